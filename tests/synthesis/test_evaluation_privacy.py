"""The bound on epsilon: never above a known epsilon more often than it says, and near it where it can be."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from hauberk.certify.confidence import clopper_pearson_lower
from hauberk.synthesis import simulate_ward
from hauberk.synthesis.evaluation_features import draw
from hauberk.synthesis.evaluation_privacy import (
    Guesses,
    Membership,
    chance_of_guesses,
    epsilon_lower_bound,
    guess_members,
    membership,
    nearest,
)


@settings(deadline=None)
@given(made=st.integers(1, 500), share=st.floats(0, 1), alpha=st.floats(1e-6, 0.2))
def test_without_delta_the_bound_is_clopper_pearsons(made: int, share: float, alpha: float) -> None:
    right = round(share * made)
    bound = epsilon_lower_bound(right, made, pool=1000, alpha=alpha, delta=0)
    lowest = float(clopper_pearson_lower(right, made, alpha))
    expected = max(0.0, math.log(lowest / (1 - lowest))) if lowest > 0 else 0.0
    assert bound == pytest.approx(expected, abs=1e-6)


@settings(deadline=None, max_examples=30)
@given(
    made=st.integers(1, 60), epsilon=st.floats(0, 4), delta=st.sampled_from([0, 1e-6, 1e-3]), data=st.data()
)
def test_the_chance_is_a_sum_that_can_be_checked(
    made: int, epsilon: float, delta: float, data: st.DataObject
) -> None:
    right = data.draw(st.integers(0, made))
    share = math.exp(epsilon) / (1 + math.exp(epsilon))
    beta = sum(binom.pmf(k, made, share) for k in range(right, made + 1))
    slopes = [
        sum(binom.pmf(right - k, made, share) for k in range(1, i + 1)) / i for i in range(1, right + 1)
    ]
    expected = min(1.0, beta + 2 * 100 * delta * max(slopes, default=0.0))
    found = chance_of_guesses(right, made, pool=100, epsilon=epsilon, delta=delta)
    assert found == pytest.approx(expected, abs=1e-9)


def test_delta_costs_something_and_certainty_has_a_limit() -> None:
    exact = epsilon_lower_bound(1000, 1000, pool=2000, alpha=0.05, delta=0)
    assert exact == pytest.approx(math.log(1000 / -math.log(0.05)), abs=0.01)
    assert 3 < epsilon_lower_bound(1000, 1000, pool=2000, alpha=0.05, delta=1e-5) < exact
    assert epsilon_lower_bound(0, 0, pool=10, alpha=0.05, delta=0) == 0
    assert epsilon_lower_bound(5, 10, pool=10, alpha=0.05, delta=0) == 0


def _guess(distances: np.ndarray, member: np.ndarray, chance: np.random.Generator, alpha: float) -> Guesses:
    keys = chance.integers(0, 2**63, len(member)).astype(np.uint64)
    found = guess_members(distances, member, keys, alpha=alpha, delta=0)
    assert isinstance(found, Guesses)
    return found


def test_distances_that_know_nothing_are_believed_at_most_alpha() -> None:
    chance = np.random.default_rng(0)
    tries, alpha, wrong = 300, 0.1, 0
    for _ in range(tries):
        member = chance.integers(0, 2, 200)
        wrong += _guess(chance.random(200), member, chance, alpha).epsilon_lower > 0
    assert wrong <= binom.isf(1e-6, tries, alpha)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_randomised_response_is_measured_and_not_exceeded(epsilon: float) -> None:
    """Whoever is a member says so with odds e^epsilon: an exactly epsilon-private release of every coin."""
    chance = np.random.default_rng(1)
    share = math.exp(epsilon) / (1 + math.exp(epsilon))
    bounds = []
    for _ in range(100):
        member = chance.integers(0, 2, 2000)
        told = np.where(chance.random(2000) < share, member, 1 - member)
        bounds.append(_guess(1.0 - told, member, chance, 0.05).epsilon_lower)
    assert np.mean(np.array(bounds) > epsilon) <= binom.isf(1e-6, 100, 0.05) / 100
    assert np.median(bounds) > epsilon - 0.35


def test_few_patients_are_not_tested() -> None:
    keys = np.arange(12, dtype=np.uint64)
    said = guess_members(np.arange(12.0), np.arange(12) % 2, keys, alpha=0.05, delta=0)
    assert "too few" in str(said)


def test_nearest_is_the_nearest() -> None:
    rows, among = np.random.default_rng(0).random((2, 30, 4))
    brute = np.sqrt(((rows[:, None] - among) ** 2).sum(2)).min(1)
    np.testing.assert_allclose(nearest(rows, among), brute, atol=1e-5)
    assert nearest(rows, rows).max() == 0


def test_a_partial_leak_is_found() -> None:
    """One in three synthetic patients is a training record: members are found, the others are not blamed."""
    train, held_out, fresh = (simulate_ward(300, seed=seed) for seed in (1, 2, 3))
    copied = train.first(100)
    tensors = ("static", "static_observed", "increments", "values", "observed", "lengths")
    mixed = type(train)(
        schema=train.schema,
        **{name: torch.cat([getattr(copied, name), getattr(fresh, name)[:200]]) for name in tensors},
    )
    found = membership(
        *(draw(each, 4000, seed=0) for each in (mixed, train, held_out)), alpha=0.05, delta=1e-5
    )
    assert isinstance(found, Membership)
    assert found.neighbours.copies == 100
    assert found.guesses.guessed == "member"
    assert found.guesses.epsilon_lower > 1.5
    assert found.guesses.rates.advantage.low > 0.1
    assert found.guesses.rates.false_positive < 0.1
