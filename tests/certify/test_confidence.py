"""Confidence bounds against the binomial distribution itself."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from hauberk.certify import clopper_pearson_lower, majority_p_value


def upper_tail(successes: int, trials: int, probability: float) -> mpmath.mpf:
    """P[Binomial >= successes], summed term by term in forty digits."""
    with mpmath.workdps(40):
        p = mpmath.mpf(probability)
        return mpmath.fsum(
            mpmath.binomial(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(successes, trials + 1)
        )


@pytest.mark.parametrize("alpha", [0.2, 0.05, 0.001, 1e-9])
@pytest.mark.parametrize(("successes", "trials"), [(1, 1), (1, 30), (17, 30), (30, 30), (190, 200)])
def test_the_bound_solves_the_binomial_tail(successes: int, trials: int, alpha: float) -> None:
    bound = float(clopper_pearson_lower(successes, trials, alpha))
    assert float(upper_tail(successes, trials, bound)) == pytest.approx(alpha, rel=1e-9)


def test_no_success_bounds_nothing_and_unanimity_has_a_closed_form() -> None:
    assert clopper_pearson_lower(0, 50, 0.01) == 0
    assert clopper_pearson_lower(50, 50, 0.01) == pytest.approx(0.01 ** (1 / 50), rel=1e-12)
    rows = clopper_pearson_lower(np.array([0, 3, 50]), 50, 0.01)
    assert rows.tolist() == [float(clopper_pearson_lower(k, 50, 0.01)) for k in (0, 3, 50)]


def test_the_bound_never_rounds_to_certainty() -> None:
    almost_one = 1 - 2**-53
    assert clopper_pearson_lower(1000, 1000, almost_one) < 1
    assert clopper_pearson_lower(10**18, 10**18, 0.001) < 1


@given(
    trials=st.integers(1, 400),
    probability=st.floats(1e-6, 1 - 1e-6),
    alpha=st.sampled_from([0.3, 0.05, 0.001, 1e-6]),
)
@settings(max_examples=150, deadline=None)
def test_coverage_is_at_least_nominal(trials: int, probability: float, alpha: float) -> None:
    """Exactly, by adding up the probabilities of all counts whose bound is wrong."""
    counts = np.arange(trials + 1)
    wrong = clopper_pearson_lower(counts, trials, alpha) > probability
    assert binom.pmf(counts[wrong], trials, probability).sum() <= alpha * (1 + 1e-9)


def test_coverage_is_not_wasteful() -> None:
    """Somewhere the error comes close to alpha: the bound cannot be improved there."""
    counts, bounds = np.arange(101), clopper_pearson_lower(np.arange(101), 100, 0.05)
    errors = [binom.pmf(counts[bounds > p - 1e-9], 100, p).sum() for p in bounds[1:]]
    assert max(errors) == pytest.approx(0.05, rel=1e-6)


@given(successes=st.integers(0, 100), alpha=st.floats(1e-6, 0.4))
def test_the_bound_lies_below_the_share_and_grows(successes: int, alpha: float) -> None:
    bound = float(clopper_pearson_lower(successes, 100, alpha))
    assert 0 <= bound <= successes / 100
    assert bound <= float(clopper_pearson_lower(successes, 100, alpha * 1.5))
    assert successes == 100 or bound < float(clopper_pearson_lower(successes + 1, 100, alpha))


@pytest.mark.parametrize(("ahead", "behind"), [(0, 0), (0, 5), (5, 5), (10, 0), (60, 40), (700, 300)])
def test_majority_is_the_exact_sign_test(ahead: int, behind: int) -> None:
    expected = upper_tail(ahead, ahead + behind, 0.5)
    assert majority_p_value(ahead, behind) == pytest.approx(float(expected), rel=1e-9)


def test_a_tie_is_no_majority() -> None:
    assert majority_p_value(0, 0) == 1
    assert majority_p_value(50, 50) > 0.5
    assert majority_p_value(9, 0) > 0.001 > majority_p_value(10, 0)
