"""Where the noise goes: the strategies, and that nothing beats the optimal one."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hauberk.errors import RequestError
from hauberk.mechanisms import HeterogeneousGaussian, redistribution
from hauberk.mechanisms.checks import Vector
from hauberk.mechanisms.redistribution import Norm

NORMS: list[Norm] = ["l1", "l2", "linf"]


def random_map(seed: int, rows: int = 8, columns: int = 5) -> Vector:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, columns)) * np.exp(rng.normal(size=(rows, 1)))


@pytest.mark.parametrize("norm", NORMS)
@given(seed=st.integers(0, 10**6), rows=st.integers(1, 12), columns=st.integers(1, 8))
@settings(max_examples=25, deadline=None)
def test_no_random_r_beats_the_optimal_one(norm: Norm, seed: int, rows: int, columns: int) -> None:
    weights = random_map(seed, rows, columns)
    best = redistribution.gain(weights, redistribution.optimal(weights, norm, floor=1e-6), norm)
    rng = np.random.default_rng(seed)
    optimum = redistribution.optimal(weights, norm, floor=1e-6)
    rivals = [redistribution.uniform(rows), *(redistribution.random(rows, rng) for _ in range(20))]
    rivals += [near / near.sum() for near in optimum * np.exp(0.05 * rng.normal(size=(20, rows)))]
    for r in rivals:
        assert redistribution.gain(weights, r, norm) >= best * (1 - 1e-3)


@pytest.mark.parametrize("norm", NORMS)
def test_it_is_worth_having(norm: Norm) -> None:
    weights = random_map(3, rows=30, columns=6)
    uniform = redistribution.gain(weights, redistribution.uniform(30), norm)
    assert redistribution.gain(weights, redistribution.optimal(weights, norm), norm) < 0.8 * uniform


def test_the_l2_condition_holds_at_the_optimum() -> None:
    """``r_k`` is proportional to ``sqrt(w_k X w_k')``, ``X`` on the top eigenspace: here one direction."""
    weights = np.array([[3.0, 0.1], [1.0, 0.2], [0.5, 0.1]])
    r = redistribution.optimal(weights, "l2", floor=0.0, tolerance=1e-10)
    top = np.linalg.eigh(weights.T @ (weights / r[:, None]))[1][:, -1]
    assert np.allclose(r, np.abs(weights @ top) / np.abs(weights @ top).sum(), atol=1e-4)


def test_the_linf_optimum_is_proportional_to_row_sums() -> None:
    weights = random_map(4)
    r = redistribution.optimal(weights, "linf", floor=0.0)
    assert np.allclose(r, np.abs(weights).sum(axis=1) / np.abs(weights).sum())


def test_one_output_needs_no_choice() -> None:
    for norm in NORMS:
        assert redistribution.optimal([[1.0, 2.0]], norm) == pytest.approx([1.0])


def test_a_row_of_zeros_keeps_the_floor() -> None:
    weights = np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 2.0]])
    for norm in NORMS:
        r = redistribution.optimal(weights, norm, floor=0.03)
        assert r.min() == pytest.approx(0.01, rel=1e-6)
        assert r.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("norm", NORMS)
@given(seed=st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_the_gain_bounds_every_input(norm: Norm, seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights, r = random_map(seed), redistribution.random(8, rng)
    order = {"l1": 1, "l2": 2, "linf": math.inf}[norm]
    inputs = rng.normal(size=(500, 5))
    inputs /= np.linalg.norm(inputs, ord=order, axis=1, keepdims=True)
    if norm == "l1":
        inputs = np.vstack([inputs, np.eye(5)])
    if norm == "linf":
        inputs = np.vstack([inputs, list(itertools.product((-1.0, 1.0), repeat=5))])
    reached = np.linalg.norm(inputs @ weights.T / np.sqrt(8 * r), axis=1).max()
    bound = redistribution.gain(weights, r, norm)
    assert reached <= bound
    if norm == "l1":
        assert reached == pytest.approx(bound)


def test_vulnerable_coordinates_get_more_noise() -> None:
    """000 Eq. 7, with its inflation rate, for one vector and for a mean over examples."""
    assert redistribution.from_vulnerability([1.0, -2.0, 3.0], floor=0.0) == pytest.approx(
        [1 / 6, 1 / 3, 1 / 2]
    )
    inflated = redistribution.from_vulnerability([1.0, 2.0], inflation=2.0, floor=0.0)
    assert inflated == pytest.approx([0.2, 0.8])
    examples = np.array([[1.0, -3.0], [-1.0, 1.0]])  # magnitudes are averaged, not values
    assert redistribution.from_vulnerability(examples, floor=0.0) == pytest.approx([1 / 3, 2 / 3])
    assert redistribution.from_vulnerability([1e200, 1e190], inflation=50.0).min() == pytest.approx(5e-4)


@given(seed=st.integers(0, 10**6), size=st.integers(1, 40), floor=st.floats(1e-6, 1))
@settings(max_examples=50, deadline=None)
def test_every_strategy_makes_a_valid_r(seed: int, size: int, floor: float) -> None:
    rng = np.random.default_rng(seed)
    strategies = [
        redistribution.uniform(size),
        redistribution.random(size, rng, floor=floor),
        redistribution.from_vulnerability(rng.normal(size=size), floor=floor),
    ]
    for r in strategies:
        assert r.min() >= min(floor, 1) / size * (1 - 1e-9)
        HeterogeneousGaussian.calibrate(epsilon=1.0, delta=1e-5, sensitivity=1.0, redistribution=r)


def test_wrong_requests_are_refused() -> None:
    with pytest.raises(RequestError, match="'l1', 'l2' or 'linf'"):
        redistribution.optimal(np.eye(2), "l3")  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="'l1', 'l2' or 'linf'"):
        redistribution.gain(np.eye(2), [0.5, 0.5], "l3")  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="not zero"):
        redistribution.optimal(np.zeros((2, 2)), "l2")
    with pytest.raises(RequestError, match="3 entries"):
        redistribution.gain(np.eye(2), [0.2, 0.3, 0.5], "l2")
    with pytest.raises(RequestError, match="not all zero"):
        redistribution.from_vulnerability([0.0, 0.0])
    with pytest.raises(RequestError, match="floor"):
        redistribution.from_vulnerability([1.0], floor=2.0)
    with pytest.raises(RequestError, match="larger tolerance or more iterations"):
        redistribution.optimal(random_map(0, 40, 40), "l2", tolerance=1e-12, iterations=3)
