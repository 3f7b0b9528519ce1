"""The functional mechanism: sensitivities met by the worst record, polynomials near their losses."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hauberk.errors import RequestError
from hauberk.mechanisms import FunctionalMechanism, objectives
from hauberk.mechanisms.functional import coefficient_sensitivity
from hauberk.mechanisms.objectives import QuadraticObjective

torch_seeds = st.integers(0, 10**6)


def regression_data(seed: int, records: int = 200, features: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(records, features, generator=generator, dtype=torch.float64) / features
    truth = torch.tensor([0.9, -0.4, 0.3, 0.1], dtype=torch.float64)[:features]
    return x, x @ truth


def test_linear_regression_is_the_sum_of_squares() -> None:
    x, y = regression_data(0)
    objective = objectives.linear_regression(x, y)
    theta = torch.tensor([0.3, -0.2, 0.5, 1.0], dtype=torch.float64)
    squares = ((y - x @ theta) ** 2).sum()
    assert torch.isclose(objective.value(theta) + (y**2).sum(), squares)
    assert torch.allclose(objective.minimiser(), torch.tensor([0.9, -0.4, 0.3, 0.1], dtype=torch.float64))


@given(seed=torch_seeds, size=st.integers(1, 6))
@settings(max_examples=25, deadline=None)
def test_coefficients_come_back_as_they_went(seed: int, size: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    root = torch.randn(size, size, generator=generator, dtype=torch.float64)
    objective = QuadraticObjective(linear=root[0], quadratic=root + root.T)
    back = QuadraticObjective.from_coefficients(objective.coefficients(), size)
    assert torch.allclose(back.linear, objective.linear)
    assert torch.allclose(back.quadratic, objective.quadratic)


def test_coefficients_of_another_size_are_refused() -> None:
    with pytest.raises(RequestError, match="quadratic in 3 variables"):
        QuadraticObjective.from_coefficients(torch.zeros(5), 3)


def test_no_record_has_larger_coefficients_than_stated() -> None:
    """Over all corners of the cube, where a convex norm is largest; and the bound is reached."""
    features = 3
    linear, logistic = [], []
    for signs in itertools.product((-1.0, 1.0), repeat=features):
        x = torch.tensor([signs])
        for y in (-1.0, 1.0):
            linear.append(objectives.linear_regression(x, torch.tensor([y])).coefficients().abs().sum())
        for label in (0.0, 1.0):
            logistic.append(
                objectives.logistic_regression(x, torch.tensor([label])).coefficients().abs().sum()
            )
    assert max(linear) == objectives.linear_regression_norm(feature_norm=features, target_bound=1.0)
    assert max(logistic) == pytest.approx(objectives.logistic_regression_norm(feature_norm=features))


def test_private_linear_regression_finds_the_truth_with_enough_records() -> None:
    x, y = regression_data(1, records=2_000_000, features=3)
    norm = objectives.linear_regression_norm(feature_norm=1.0, target_bound=1.0)
    mechanism = FunctionalMechanism.calibrate(epsilon=1.0, sensitivity=norm)
    released = mechanism.release(
        objectives.linear_regression(x, y).coefficients(), torch.Generator().manual_seed(0)
    )
    theta = QuadraticObjective.from_coefficients(released, 3).minimiser()
    assert torch.allclose(theta, torch.tensor([0.9, -0.4, 0.3], dtype=torch.float64), atol=0.02)
    assert mechanism.epsilon(0.0) <= 1.0


def test_private_logistic_regression_separates() -> None:
    generator = torch.Generator().manual_seed(2)
    labels = (torch.rand(50_000, generator=generator) < 0.5).double()
    x = (0.25 * torch.randn(50_000, 2, generator=generator, dtype=torch.float64)).clamp(-0.5, 0.5)
    x = (x + 0.3 * (2 * labels - 1)[:, None]).clamp(-0.5, 0.5)
    mechanism = FunctionalMechanism.calibrate(
        epsilon=1.0, sensitivity=objectives.logistic_regression_norm(feature_norm=1.0)
    )
    released = mechanism.release(objectives.logistic_regression(x, labels).coefficients(), generator)
    theta = QuadraticObjective.from_coefficients(released, 2).minimiser(ridge=1.0)
    accuracy = (((x @ theta) > 0).double() == labels).double().mean()
    assert accuracy > 0.9


def test_directions_without_a_minimum_are_left_alone() -> None:
    saddle = QuadraticObjective(
        linear=torch.tensor([1.0, 1.0]), quadratic=torch.diag(torch.tensor([1.0, -1.0]))
    )
    assert torch.allclose(saddle.minimiser(), torch.tensor([-0.5, 0.0]))


@given(seed=torch_seeds, classes=st.integers(1, 12))
@settings(max_examples=50, deadline=None)
def test_output_loss_is_within_eq_36(seed: int, classes: int) -> None:
    """For |z| <= 1, the range the bound is about; Eq. 36 in either reading of its denominator."""
    generator = torch.Generator().manual_seed(seed)
    z = 2 * torch.rand(100, classes, generator=generator, dtype=torch.float64) - 1
    labels = torch.nn.functional.one_hot(
        torch.randint(classes, (100,), generator=generator), classes
    ).double()
    error = objectives.output_taylor(z, labels) - objectives.output_loss(z, labels)
    other_reading = (math.e**2 + 2 * math.e - 1) / (math.e * (1 + math.e) ** 2) * classes
    spread = error.max() - error.min()
    assert spread <= objectives.output_error_bound(classes) < other_reading
    assert error.abs().max() <= 0.005 * classes  # what is true


@given(seed=torch_seeds, inputs=st.integers(1, 50))
@settings(max_examples=50, deadline=None)
def test_reconstruction_loss_is_within_eq_35(seed: int, inputs: int) -> None:
    """For |z| <= 1; the error is convex in z and does not depend on x."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(100, inputs, generator=generator, dtype=torch.float64)
    z = 2 * torch.rand(100, inputs, generator=generator, dtype=torch.float64) - 1
    error = objectives.reconstruction_loss(x, z) - objectives.reconstruction_taylor(x, z)
    assert error.max() - error.min() <= objectives.reconstruction_error_bound(inputs)
    assert (error >= 0).all()
    assert error.max() <= (math.log((1 + math.e) / 2) - 0.5 + 1e-12) * inputs  # 0.1201, what is true


def test_the_minimiser_of_the_polynomial_is_nearly_as_good() -> None:
    """Eqs. 35 and 36 are about optima: the loss at the polynomial's minimiser against the least loss."""
    grid = torch.linspace(-1, 1, 2001, dtype=torch.float64)[:, None]
    for value in (0.0, 0.2, 0.5, 0.9, 1.0):
        x = torch.full_like(grid, value)
        loss, taylor = objectives.reconstruction_loss(x, grid), objectives.reconstruction_taylor(x, grid)
        assert loss[taylor.argmin()] - loss.min() <= objectives.reconstruction_error_bound(1)
    for label in (0.0, 1.0):
        y = torch.full_like(grid, label)
        loss, taylor = objectives.output_loss(grid, y), objectives.output_taylor(grid, y)
        assert loss[taylor.argmin()] - loss.min() <= objectives.output_error_bound(1)


def test_lemma_sensitivities_for_replaced_records() -> None:
    assert (
        coefficient_sensitivity(objectives.reconstruction_norm(inputs=25, hidden=196), "replace-one") == 4950
    )
    assert coefficient_sensitivity(objectives.output_norm(hidden=256), "replace-one") == 512


def test_unknown_neighbours_are_refused() -> None:
    with pytest.raises(RequestError, match="neighbours"):
        FunctionalMechanism.calibrate(
            epsilon=1.0,
            sensitivity=1.0,
            neighbours="cousins",  # type: ignore[arg-type]
        )
