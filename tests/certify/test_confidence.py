"""Confidence bounds against the binomial distribution itself, and against scores whose mean is known."""

from __future__ import annotations

from collections.abc import Callable

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binom

from hauberk.certify import clopper_pearson_lower, majority_p_value
from hauberk.certify.confidence import (
    bounds_from_scores,
    bounds_from_votes,
    clopper_pearson_upper,
    empirical_bernstein_lower,
    empirical_bernstein_upper,
    hoeffding_lower,
    hoeffding_upper,
)
from hauberk.errors import RequestError

Values = NDArray[np.float64]


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


# Upper bounds on a probability


def lower_tail(successes: int, trials: int, probability: float) -> mpmath.mpf:
    """P[Binomial <= successes]."""
    with mpmath.workdps(40):
        p = mpmath.mpf(probability)
        return mpmath.fsum(
            mpmath.binomial(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(successes + 1)
        )


@pytest.mark.parametrize("alpha", [0.2, 0.001, 1e-9, 1e-20])
@pytest.mark.parametrize(("successes", "trials"), [(0, 1), (0, 200), (3, 30), (17, 30), (29, 30)])
def test_the_upper_bound_solves_the_binomial_tail(successes: int, trials: int, alpha: float) -> None:
    bound = float(clopper_pearson_upper(successes, trials, alpha))
    assert float(lower_tail(successes, trials, bound)) == pytest.approx(alpha, rel=1e-9)


def test_unanimity_leaves_no_room_above() -> None:
    assert clopper_pearson_upper([0, 50], 50, 0.01).tolist() == [pytest.approx(1 - 0.01 ** (1 / 50)), 1.0]
    assert clopper_pearson_upper(0, 10**15, 0.001) == pytest.approx(np.log(1000) * 1e-15, rel=1e-9)
    assert (clopper_pearson_lower(0, 0, 0.01), clopper_pearson_upper(0, 0, 0.01)) == (0, 1)  # no draw at all


@given(successes=st.integers(0, 100), alpha=st.floats(1e-6, 0.4))
def test_the_upper_bound_mirrors_the_lower_one(successes: int, alpha: float) -> None:
    upper = float(clopper_pearson_upper(successes, 100, alpha))
    assert upper == pytest.approx(1 - float(clopper_pearson_lower(100 - successes, 100, alpha)), rel=1e-12)
    assert successes == 0 or float(clopper_pearson_upper(successes - 1, 100, alpha)) < upper


def test_every_input_may_have_its_own_number_of_draws() -> None:
    counts, trials = np.array([3, 30, 299]), np.array([5, 40, 300])
    for bound in (clopper_pearson_lower, clopper_pearson_upper):
        rows = [float(bound(k, n, 0.01)) for k, n in zip(counts, trials, strict=True)]
        assert bound(counts, trials, 0.01).tolist() == rows


# Scores in [0, 1]


def test_hoeffding_by_hand() -> None:
    width = np.sqrt(np.log(1000) / 400)
    assert hoeffding_lower(0.7, 200, 0.001) == pytest.approx(0.7 - width)
    assert hoeffding_upper(0.7, 200, 0.001) == pytest.approx(0.7 + width)
    assert hoeffding_lower(0.1, 200, 0.001) == 0
    assert hoeffding_upper(0.9, 200, 0.001) == 1


def test_empirical_bernstein_by_hand() -> None:
    width = np.sqrt(2 * 0.01 * np.log(2000) / 500) + 7 * np.log(2000) / (3 * 499)
    assert empirical_bernstein_lower(0.7, 0.01, 500, 0.001) == pytest.approx(0.7 - width)
    assert empirical_bernstein_upper(0.7, 0.01, 500, 0.001) == pytest.approx(0.7 + width)
    assert empirical_bernstein_lower(0.03, 0.01, 500, 0.001) == 0
    assert empirical_bernstein_upper(0.99, 0.01, 500, 0.001) == 1


def test_scores_that_vary_little_are_better_bounded_by_their_variance() -> None:
    assert empirical_bernstein_lower(0.9, 1e-4, 10_000, 0.001) > hoeffding_lower(0.9, 10_000, 0.001)
    assert empirical_bernstein_lower(0.9, 0.25, 10_000, 0.001) < hoeffding_lower(0.9, 10_000, 0.001)
    assert empirical_bernstein_lower(0.9, 1e-4, 50, 0.001) < hoeffding_lower(0.9, 50, 0.001)


@given(
    mean=st.floats(0, 1),
    variance=st.floats(0, 0.25),
    trials=st.integers(2, 10**6),
    alpha=st.floats(1e-9, 0.9),
)
def test_bounds_on_means_stay_in_order(mean: float, variance: float, trials: int, alpha: float) -> None:
    """In [0, 1], on their side of the mean, growing with it, closer for more draws and for a larger alpha."""

    def bounds(mean: float, variance: float, trials: int, alpha: float) -> Values:
        return np.array(
            [
                hoeffding_lower(mean, trials, alpha),
                empirical_bernstein_lower(mean, variance, trials, alpha),
                hoeffding_upper(mean, trials, alpha),
                empirical_bernstein_upper(mean, variance, trials, alpha),
            ]
        )

    here, up = bounds(mean, variance, trials, alpha), np.array([1.0, 1.0, -1.0, -1.0])
    assert ((here >= 0) & (here <= 1)).all()
    assert (up * here <= up * mean + 1e-15).all()
    for closer in (
        bounds(mean, variance, 2 * trials, alpha),
        bounds(mean, variance, trials, min(1.1 * alpha, 0.99)),
        bounds(mean, variance / 2, trials, alpha),
    ):
        assert (up * closer >= up * here - 1e-15).all()
    assert (bounds(min(mean + 0.01, 1.0), variance, trials, alpha) >= here - 1e-15).all()


@given(
    trials=st.integers(2, 300),
    probability=st.floats(1e-4, 1 - 1e-4),
    alpha=st.sampled_from([0.3, 0.05, 1e-3]),
)
@settings(max_examples=100, deadline=None)
def test_bounds_on_means_cover_votes_exactly(trials: int, probability: float, alpha: float) -> None:
    """Votes are scores too: the probabilities of all counts with a wrong bound add up to at most alpha."""
    counts = np.arange(trials + 1)
    mean = counts / trials
    variance = mean * (1 - mean) * trials / (trials - 1)
    for wrong in (
        hoeffding_lower(mean, trials, alpha) > probability,
        hoeffding_upper(mean, trials, alpha) < probability,
        empirical_bernstein_lower(mean, variance, trials, alpha) > probability,
        empirical_bernstein_upper(mean, variance, trials, alpha) < probability,
        clopper_pearson_upper(counts, trials, alpha) < probability,
    ):
        assert binom.pmf(counts[wrong], trials, probability).sum() <= alpha * (1 + 1e-9)


REPETITIONS = 10_000
SCORES: dict[str, tuple[float, Callable[[np.random.Generator, tuple[int, int]], Values]]] = {
    "beta(8, 2)": (0.8, lambda generator, shape: generator.beta(8, 2, shape)),
    "beta(0.2, 0.1)": (2 / 3, lambda generator, shape: generator.beta(0.2, 0.1, shape)),
    "rare": (0.02, lambda generator, shape: 1.0 * (generator.random(shape) < 0.02)),
    "even": (0.5, lambda generator, shape: 1.0 * (generator.random(shape) < 0.5)),
    "constant": (0.3, lambda generator, shape: np.full(shape, 0.3)),
}


def most_errors(alpha: float) -> int:
    """More would happen by chance with probability 1e-6 at most, if the error rate is alpha."""
    return int(binom.isf(1e-6, REPETITIONS, alpha))


@pytest.mark.parametrize("kind", SCORES)
def test_bounds_on_means_err_no_more_often_than_alpha(kind: str) -> None:
    mean, draw = SCORES[kind]
    scores = draw(np.random.default_rng(7), (REPETITIONS, 150))
    means, variances = scores.mean(axis=1), scores.var(axis=1, ddof=1)
    for alpha in (0.3, 0.05, 0.001):
        for wrong in (
            hoeffding_lower(means, 150, alpha) > mean,
            hoeffding_upper(means, 150, alpha) < mean,
            empirical_bernstein_lower(means, variances, 150, alpha) > mean,
            empirical_bernstein_upper(means, variances, 150, alpha) < mean,
        ):
            assert wrong.sum() <= most_errors(alpha)
    if kind == "even":  # where Hoeffding is nearly sharp the errors do come
        assert (hoeffding_lower(means, 150, 0.3) > mean).sum() > 0.03 * REPETITIONS


# The top class and its rivals


def test_shares_of_alpha_among_the_classes() -> None:
    votes = np.array([[90, 4, 5, 1], [10, 20, 60, 8]])
    lower, upper = bounds_from_votes(votes, [0, 2], 100, 0.06)
    assert lower.tolist() == clopper_pearson_lower([90, 60], 100, 0.03).tolist()
    assert upper.tolist() == clopper_pearson_upper([5, 20], 100, 0.01).tolist()
    means, variances = votes / 100, np.full(votes.shape, 0.01)
    lower, upper = bounds_from_scores(means, [0, 2], 100, 0.06)
    assert lower.tolist() == hoeffding_lower([0.9, 0.6], 100, 0.03).tolist()
    assert upper.tolist() == hoeffding_upper([0.05, 0.2], 100, 0.01).tolist()
    variances[0, 1] = 0.25  # a rival with a smaller mean, but a larger bound
    lower, upper = bounds_from_scores(means, [0, 2], 100, 0.06, variances=variances)
    assert lower.tolist() == empirical_bernstein_lower([0.9, 0.6], 0.01, 100, 0.03).tolist()
    assert upper.tolist() == empirical_bernstein_upper([0.04, 0.2], [0.25, 0.01], 100, 0.01).tolist()


def test_a_rival_has_no_more_than_the_top_class_leaves() -> None:
    lower, upper = bounds_from_votes([[97, 3, 0]], [0], 100, 1e-6)
    assert upper == 1 - lower
    assert upper < clopper_pearson_upper(3, 100, 1e-6 / 4)


def test_two_classes_have_nothing_to_split() -> None:
    lower, upper = bounds_from_votes([[80, 15]], [0], 100, 0.01)  # five draws voted for nobody
    assert lower == clopper_pearson_lower(80, 100, 0.01)
    assert upper == 1 - lower


@pytest.mark.parametrize("probabilities", [[0.5, 0.3, 0.2], [0.34, 0.33, 0.33], [0.05, 0.9, 0.05]])
@pytest.mark.parametrize("alpha", [0.1, 0.01])
def test_both_bounds_hold_together(probabilities: list[float], alpha: float) -> None:
    """Also if the selected class is not the most likely one; for means of the votes as well."""
    votes = np.random.default_rng(8).multinomial(120, probabilities, REPETITIONS)
    means = votes / 120
    variances = means * (1 - means) * 120 / 119
    selected = np.zeros(REPETITIONS, dtype=int)
    for lower, upper in (
        bounds_from_votes(votes, selected, 120, alpha),
        bounds_from_scores(means, selected, 120, alpha),
        bounds_from_scores(means, selected, 120, alpha, variances=variances),
    ):
        wrong = (lower > probabilities[0]) | (upper < max(probabilities[1:]))
        assert wrong.sum() <= most_errors(alpha)


def test_wrong_requests_are_refused() -> None:
    for alpha in (0.0, 1.0, -0.1, float("nan")):
        for bound in (clopper_pearson_lower, clopper_pearson_upper, hoeffding_lower, hoeffding_upper):
            with pytest.raises(RequestError, match="alpha"):
                bound(1, 2, alpha)
        with pytest.raises(RequestError, match="alpha"):
            empirical_bernstein_lower(0.5, 0.1, 10, alpha)
    for successes in (-1, 11, float("nan")):
        with pytest.raises(RequestError, match="counted among the trials"):
            clopper_pearson_lower(successes, 10, 0.1)
    for mean in (-0.1, 1.1, float("nan")):
        with pytest.raises(RequestError, match=r"in \[0, 1\]"):
            hoeffding_upper(mean, 10, 0.1)
    with pytest.raises(RequestError, match="at least 1 draw per"):
        hoeffding_lower(0.5, 0, 0.1)
    with pytest.raises(RequestError, match="at least 2 draws per"):
        empirical_bernstein_upper(0.5, 0.0, 1, 0.1)
    with pytest.raises(RequestError, match="variance"):
        empirical_bernstein_upper(0.5, float("nan"), 10, 0.1)
    with pytest.raises(RequestError, match="more votes than the 10 draws"):
        bounds_from_votes([[9, 2, 0]], [0], 10, 0.1)
    with pytest.raises(RequestError, match="at least two classes"):
        bounds_from_votes([[9], [8]], [0, 0], 10, 0.1)
    with pytest.raises(RequestError, match="one selected class per input"):
        bounds_from_scores([[0.5, 0.5]], [0, 1], 10, 0.1)
    with pytest.raises(RequestError, match="from 0 to 2"):
        bounds_from_votes([[9, 1, 0]], [-1], 10, 0.1)
    with pytest.raises(RequestError, match="variances of that shape"):
        bounds_from_scores([[0.5, 0.5]], [0], 10, 0.1, variances=[0.1])
