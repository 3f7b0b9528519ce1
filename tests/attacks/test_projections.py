"""Balls and bounds are kept to the last bit, and nearest points are the nearest."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import LinearConstraint, minimize
from torch import Tensor

from hauberk.attacks.projections import NORMS, Norm, ball, project_l2, sizes
from hauberk.errors import RequestError

norms = pytest.mark.parametrize("norm", NORMS)


def exact_size(norm: Norm, point: Tensor, centre: Tensor) -> Fraction:
    """The size of one row's step in rational numbers; squared for l2."""
    steps = [
        abs(Fraction(a) - Fraction(b))
        for a, b in zip(point.flatten().tolist(), centre.flatten().tolist(), strict=True)
    ]
    if norm == "linf":
        return max(steps, default=Fraction(0))
    return sum((step**2 if norm == "l2" else step for step in steps), Fraction(0))


def assert_inside(norm: Norm, points: Tensor, centre: Tensor, radii: Tensor, low: float, high: float) -> None:
    """Within ball and bounds, as real numbers: no tolerance."""
    assert ((points >= low) & (points <= high)).all()
    for point, middle, radius in zip(points, centre, radii.tolist(), strict=True):
        limit = Fraction(radius) ** (2 if norm == "l2" else 1)
        assert exact_size(norm, point, middle) <= limit


@st.composite
def situations(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor, tuple[float, float]]:
    """Centres within bounds, radii of any size, points from inside to far away."""
    rows, shape = draw(st.integers(0, 4)), draw(st.sampled_from([(1,), (7,), (1, 3, 3), (3, 2, 2)]))
    low, high = draw(
        st.sampled_from([(0.0, 1.0), (-1.0, 1.0), (-3.0, 5.0), (-math.inf, math.inf), (0.5, 0.5)])
    )
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    centre = torch.rand(rows, *shape, generator=generator, dtype=dtype)
    if math.isfinite(low):
        centre = (low + (high - low) * centre).clamp(low, high)
    if draw(st.booleans()):
        centre = centre.round().clamp(low, high)  # corners of the box
    spread = draw(st.sampled_from([0.0, 1e-30, 1e-6, 0.1, 3.0, 1e4, 1e25]))
    points = centre + spread * torch.randn(rows, *shape, generator=generator, dtype=dtype)
    radius = draw(st.one_of(st.floats(0, 5), st.sampled_from([0.0, 0.1, 0.3, 1e-42, 1e-9, 1e20])))
    share = torch.rand(rows, generator=generator, dtype=torch.float64) if draw(st.booleans()) else 1.0
    return points, centre, radius * torch.ones(rows, dtype=torch.float64) * share, (low, high)


@norms
@given(situation=situations())
@settings(max_examples=150, deadline=None)
def test_projections_never_leave_ball_or_bounds(norm: Norm, situation: tuple) -> None:
    points, centre, radii, bounds = situation
    balls = ball(norm, centre, radii, bounds)
    projected = balls.project_(points.clone())
    assert projected.shape == points.shape
    assert projected.dtype == points.dtype
    assert_inside(norm, projected, centre, radii, *bounds)
    assert torch.equal(balls.project_(projected.clone()), projected)  # what is inside stays, bit for bit


@norms
@given(situation=situations())
@settings(max_examples=50, deadline=None)
def test_random_points_are_inside(norm: Norm, situation: tuple) -> None:
    points, centre, radii, bounds = situation
    normals = torch.randn(points.shape, generator=torch.Generator().manual_seed(0), dtype=centre.dtype)
    assert_inside(norm, ball(norm, centre, radii, bounds).random_points(normals), centre, radii, *bounds)


@norms
@given(seed=st.integers(0, 2**31), reach=st.sampled_from([0.05, 0.3, 1.0, 4.0]))
@settings(max_examples=15, deadline=None)
def test_projections_are_the_nearest_points(norm: Norm, seed: int, reach: float) -> None:
    """Against a general solver for the same convex problem."""
    generator = torch.Generator().manual_seed(seed)
    centre = torch.rand(1, 4, generator=generator, dtype=torch.float64)
    wanted = centre + reach * torch.randn(1, 4, generator=generator, dtype=torch.float64)
    radius = 0.1 + 0.5 * float(torch.rand((), generator=generator))
    found = ball(norm, centre, torch.tensor([radius]), (0.0, 1.0)).project_(wanted.clone())
    middle, goal = centre[0].numpy(), wanted[0].numpy()
    # x' = middle + up - down with up, down >= 0 makes all three norms smooth or linear
    steps = np.concatenate([np.eye(4), -np.eye(4)], axis=1)
    size = {
        "linf": LinearConstraint(np.concatenate([np.eye(4), np.eye(4)], axis=1), ub=radius),
        "l1": LinearConstraint(np.ones((1, 8)), ub=radius),
        "l2": {"type": "ineq", "fun": lambda v: radius**2 - ((steps @ v) ** 2).sum()},
    }[norm]
    solved = minimize(
        lambda v: ((middle + steps @ v - goal) ** 2).sum(),
        np.full(8, 0.01),
        method="SLSQP",
        bounds=[(0, 2)] * 8,
        constraints=[size, LinearConstraint(steps, lb=-middle, ub=1 - middle)],
        options={"maxiter": 500, "ftol": 1e-13},
    )
    nearest = math.dist(middle + steps @ solved.x, goal)
    assert math.dist(found[0].tolist(), goal) <= nearest + 1e-5


def test_l2_keeps_what_is_inside_and_shortens_what_is_not() -> None:
    centre = torch.full((2, 4), 0.5)
    x = centre + torch.tensor([[0.1, 0.0, 0.0, 0.0], [0.3, 0.4, 0.0, 0.0]])
    projected = project_l2(x, centre, torch.tensor([0.2, 0.25]))
    assert torch.equal(projected[0], x[0])
    assert torch.allclose(projected[1], centre[1] + torch.tensor([0.15, 0.2, 0.0, 0.0]))
    assert torch.equal(project_l2(x, centre, torch.zeros(2)), centre)


def test_a_clamped_coordinate_leaves_its_share_to_the_others() -> None:
    """Scaling first and clamping then would stop at (1, 0.65)."""
    found = project_l2(torch.tensor([[1.9, 0.9]]), torch.tensor([[0.9, 0.5]]), torch.tensor([0.3]))
    assert found[0].tolist() == pytest.approx([1.0, 0.5 + math.sqrt(0.3**2 - 0.1**2)], abs=1e-5)


def test_l1_shrinks_every_step_alike() -> None:
    centre = torch.full((1, 3), 0.5)
    found = ball("l1", centre, torch.tensor([0.3]), (0, 1)).project_(
        centre + torch.tensor([[0.3, 0.2, -0.1]])
    )
    assert (found - centre)[0].tolist() == pytest.approx([0.2, 0.1, 0.0], abs=1e-5)


def test_linf_bounds_a_radius_that_float32_cannot_hold() -> None:
    """0.1 is larger in float32 than in float64, and 0.5 + 0.1 rounds up as well."""
    centre = torch.full((1, 1), 0.5)
    found = ball("linf", centre, torch.tensor([0.1], dtype=torch.float64), (0, 1)).project_(centre + 1)
    assert float(found) - 0.5 <= 0.1
    assert float(torch.nextafter(found, torch.tensor(2.0))) - 0.5 > 0.1  # and no larger number would do


@pytest.mark.parametrize(("norm", "size"), [("l1", 1.0), ("l2", 1.0), ("linf", 1.0)])
def test_the_steepest_direction_has_size_one(norm: Norm, size: float) -> None:
    gradient = torch.randn(5, 3, 4, 4, generator=torch.Generator().manual_seed(0)) * 1e-20
    centre = torch.full_like(gradient, 0.5)
    before = gradient.clone()
    direction = ball(norm, centre, torch.ones(5), (0, 1)).steepest(gradient, centre, torch.zeros(5))
    assert torch.allclose(
        sizes(direction, torch.zeros_like(direction), norm), torch.full((5,), size).double()
    )
    assert ((direction * before).flatten(1).sum(1) > 0).all()


@norms
def test_no_gradient_no_direction(norm: Norm) -> None:
    centre = torch.full((2, 6), 0.5)
    direction = ball(norm, centre, torch.ones(2), (0, 1)).steepest(torch.zeros(2, 6), centre, torch.ones(2))
    assert torch.equal(direction, torch.zeros(2, 6))


def test_l1_does_not_push_against_the_bounds() -> None:
    points = torch.tensor([[1.0, 0.5, 0.0]])
    gradient = torch.tensor([[9.0, 1.0, -5.0]])
    direction = ball("l1", points, torch.ones(1), (0, 1)).steepest(gradient, points, torch.tensor([0.1]))
    assert direction.tolist() == [[0.0, 1.0, 0.0]]


def test_a_long_step_of_l1_is_shared() -> None:
    points, gradient = torch.full((2, 8), 0.5), torch.arange(1.0, 9).repeat(2, 1)
    balls = ball("l1", points, torch.full((2,), 3.0), (0, 1))
    direction = balls.steepest(gradient, points, torch.tensor([0.4, 2.0]))
    assert direction[0].tolist() == [0.0] * 7 + [1.0]
    assert direction[1].tolist() == [0.0] * 4 + [0.25] * 4


@norms
def test_taking_rows_keeps_their_balls(norm: Norm) -> None:
    generator = torch.Generator().manual_seed(0)
    centre, radii = torch.rand(6, 8, generator=generator), torch.rand(6, generator=generator)
    points = torch.randn(6, 8, generator=generator)
    rows = torch.tensor([4, 1])
    balls = ball(norm, centre, radii, (0, 1))
    assert torch.equal(balls.take(rows).project_(points[rows]), balls.project_(points.clone())[rows])


def test_an_unknown_norm_is_refused() -> None:
    with pytest.raises(RequestError, match="choose one of l1, l2, linf"):
        ball("l3", torch.zeros(1, 1), torch.zeros(1), (0, 1))  # type: ignore[arg-type]
