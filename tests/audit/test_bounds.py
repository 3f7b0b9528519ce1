"""From counts to epsilon: closed forms, laws, an exact linear program, and how often the bounds are wrong."""

import functools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.special import comb
from scipy.stats import binom, norm

from hauberk.audit.bounds import (
    Rates,
    Tail,
    Threshold,
    choose_threshold,
    gaussian_estimate,
    many_run_epsilon,
    one_run_epsilon,
    one_run_p_value,
    sharp_tail,
    steinke_tail,
)
from hauberk.errors import RequestError
from hauberk.mechanisms import GaussianProfile

REPETITIONS = 300
ALPHA = 0.05
TAILS = pytest.mark.parametrize("tail", [sharp_tail, steinke_tail])


def too_many(wrong: int, repetitions: int, alpha: float) -> bool:
    """Would a bound that is wrong with probability alpha be wrong so often once in a million?"""
    return float(binom.sf(wrong - 1, repetitions, alpha)) < 1e-6


def worst_case(*, canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """The largest chance of ``correct`` or more right guesses under (epsilon, delta)-privacy, exactly.

    Variables: the chance of every number of right guesses, and what each pair of neighbouring patterns
    contributes to the hockey-stick divergence in either order.
    """
    count, e = guesses + 1, math.exp(epsilon)
    patterns = comb(guesses, np.arange(count))
    limits, used = [], np.zeros(3 * count)
    for k in range(count):
        for other, slack, ways in (
            (k - 1, count + k, comb(guesses - 1, k - 1)),
            (k + 1, 2 * count + k, comb(guesses - 1, k)),
        ):
            if 0 <= other < count:
                row = np.zeros(3 * count)
                row[k], row[other], row[slack] = 1 / patterns[k], -e / patterns[other], -1
                limits.append(row)
                used[slack] = ways
    objective, total = np.zeros((2, 3 * count))
    objective[correct:count], total[:count] = -1, 1
    solved = linprog(
        objective,
        A_ub=np.array([*limits, used]),
        b_ub=np.array([0.0] * len(limits) + [delta * canaries / guesses]),
        A_eq=total[None],
        b_eq=[1.0],
        bounds=(0, None),
    )
    return float(-solved.fun)


@pytest.mark.parametrize(("guesses", "epsilon"), [(2, 0.1), (3, 0.1), (5, 1.0), (9, 1.0), (9, 2.0)])
def test_the_sharp_tail_is_the_exact_worst_case(guesses: int, epsilon: float) -> None:
    checked = 0
    for canaries in (guesses, 2 * guesses):
        for delta in (0.0, 1e-3, 1e-2):
            for correct in range(1, guesses + 1):
                game = {"canaries": canaries, "guesses": guesses, "correct": correct, "delta": delta}
                tail = float(sharp_tail(epsilon, **game))
                worst = worst_case(**game, epsilon=epsilon)
                assert worst <= tail + 1e-6
                if tail < 1:
                    assert tail == pytest.approx(worst, abs=1e-6)
                    checked += 1
                assert tail <= float(steinke_tail(epsilon, **game)) + 1e-12
    assert checked


def test_the_published_tail_fails_where_it_is_given_as_one() -> None:
    """Two canaries, one right guess: its formula says less than a private mechanism does."""
    q = 1 / (1 + math.exp(-1.0))
    formula = 1 - (1 - q) ** 2 + 2 * 2 * 0.05 * (1 - q) ** 2
    game = {"canaries": 2, "guesses": 2, "correct": 1, "delta": 0.05}
    assert worst_case(**game, epsilon=1.0) > formula + 2e-3
    assert float(steinke_tail(1.0, **game)) == 1


@TAILS
def test_pure_privacy_in_closed_form(tail: Tail) -> None:
    """All of n guesses right: the smallest epsilon with q^n above alpha."""
    for n in (5, 40, 400):
        q = ALPHA ** (1 / n)
        found = one_run_epsilon(canaries=n, guesses=n, correct=n, delta=0.0, alpha=ALPHA, tail=tail)
        assert found == pytest.approx(math.log(q / (1 - q)), rel=1e-9)


@TAILS
@given(guesses=st.integers(1, 300), share=st.floats(0, 1), epsilon=st.floats(0, 5), idle=st.integers(0, 100))
@settings(max_examples=60, deadline=None)
def test_without_delta_the_tail_is_binomial(
    tail: Tail, guesses: int, share: float, epsilon: float, idle: int
) -> None:
    correct = round(share * guesses)
    p = one_run_p_value(
        canaries=guesses + idle, guesses=guesses, correct=correct, epsilon=epsilon, delta=0.0, tail=tail
    )
    binomial = float(binom.sf(correct - 1, guesses, 1 / (1 + math.exp(-epsilon))))
    assert p == pytest.approx(binomial if binomial <= 0.5 else 1.0)


@given(guesses=st.integers(1, 60), share=st.floats(0.5, 1), log_delta=st.floats(-8, -3))
@settings(max_examples=20, deadline=None)
def test_more_right_guesses_mean_more_and_more_delta_means_less(
    guesses: int, share: float, log_delta: float
) -> None:
    correct = round(share * guesses)

    def bound(correct: int, delta: float, tail: Tail = sharp_tail, canaries: int = 200) -> float:
        return one_run_epsilon(
            canaries=canaries, guesses=guesses, correct=correct, delta=delta, alpha=ALPHA, tail=tail
        )

    delta = 10**log_delta
    here = bound(correct, delta)
    assert here <= bound(min(correct + 1, guesses), delta) + 1e-9
    assert bound(correct, 2 * delta) <= here + 1e-9
    assert bound(correct, delta, canaries=400) <= here + 1e-9
    assert bound(correct, delta, steinke_tail) <= here + 1e-9 <= bound(correct, 0.0) + 2e-9


@given(positives=st.integers(1, 500), negatives=st.integers(1, 500), data=st.data())
@settings(max_examples=60, deadline=None)
def test_many_runs_are_monotone_in_the_counts(positives: int, negatives: int, data: st.DataObject) -> None:
    true = data.draw(st.integers(0, positives))
    false = data.draw(st.integers(0, negatives))

    def bound(true: int, false: int, delta: float) -> float:
        return many_run_epsilon(
            true_positives=true,
            positives=positives,
            false_positives=false,
            negatives=negatives,
            delta=delta,
            alpha=ALPHA,
        )

    here = bound(true, false, 1e-3)
    assert bound(min(true + 1, positives), false, 1e-3) >= here
    assert bound(true, max(false - 1, 0), 1e-3) >= here
    assert bound(true, false, 1e-2) <= here <= bound(true, false, 0.0)
    # the two orders of the neighbours are one statement: swapping "in" and "out" changes nothing
    swapped = many_run_epsilon(
        true_positives=negatives - false,
        positives=negatives,
        false_positives=positives - true,
        negatives=positives,
        delta=1e-3,
        alpha=ALPHA,
    )
    assert swapped == pytest.approx(here, abs=1e-9)


def test_many_runs_in_closed_form() -> None:
    """All right on both sides: Clopper-Pearson's bound is (alpha/2)^(1/n), and the odds follow."""
    n, low = 400, (ALPHA / 2) ** (1 / 400)
    rates = Rates.from_counts(true_positives=n, positives=n, false_positives=0, negatives=n, alpha=ALPHA)
    assert rates.epsilon(0.0) == pytest.approx(math.log(low / (1 - low)))
    assert rates.epsilon(0.1) == pytest.approx(math.log((low - 0.1) / (1 - low)))
    for epsilon in (0.0, 1.0, 3.0):  # delta and epsilon are inverse
        assert rates.epsilon(rates.delta(epsilon)) == pytest.approx(epsilon)


@pytest.mark.parametrize("delta", [0.0, 1e-3])
@pytest.mark.parametrize("truth", [0.5, 2.0])
def test_many_run_bounds_are_wrong_no_more_often_than_allowed(truth: float, delta: float) -> None:
    """Randomised response attains epsilon, so the bound is tested where it is hardest to keep."""
    rng = np.random.default_rng(round(10 * truth))
    q, n = 1 / (1 + math.exp(-truth)), 2000
    # the record is given away with probability delta, else a coin of bias q: exactly (truth, delta)-private
    right = delta + (1 - delta) * q
    hits, misses = rng.binomial(n, right, REPETITIONS), rng.binomial(n, (1 - delta) * (1 - q), REPETITIONS)
    bounds = [
        many_run_epsilon(
            true_positives=int(hit),
            positives=n,
            false_positives=int(miss),
            negatives=n,
            delta=delta,
            alpha=ALPHA,
        )
        for hit, miss in zip(hits, misses, strict=True)
    ]
    assert not too_many(sum(bound > truth for bound in bounds), REPETITIONS, ALPHA)
    assert np.median(bounds) > truth - 0.25  # and it has teeth


@functools.cache
def one_run(canaries: int, guesses: int, correct: int, delta: float) -> float:
    return one_run_epsilon(canaries=canaries, guesses=guesses, correct=correct, delta=delta, alpha=ALPHA)


@pytest.mark.parametrize("delta", [0.0, 1e-4])
@pytest.mark.parametrize("truth", [0.5, 2.0])
def test_one_run_bounds_are_wrong_no_more_often_than_allowed(truth: float, delta: float) -> None:
    """Every coin through randomised response, and with chance delta in the open: exactly private."""
    rng = np.random.default_rng(3)
    m, q = 1000, 1 / (1 + math.exp(-truth))
    rights = rng.binomial(m, delta + (1 - delta) * q, REPETITIONS)
    bounds = np.array([one_run(m, m, int(right), delta) for right in rights])
    wrong = int((bounds > truth).sum())
    assert not too_many(wrong, REPETITIONS, ALPHA)
    assert wrong > 0  # the level is used: the bound is not merely cautious
    assert np.median(bounds) > truth - 0.3


def test_one_gaussian_run_with_abstentions_stays_below_its_epsilon_and_comes_near() -> None:
    """Every canary has a coordinate of one Gaussian release; the boldest fifth of the guesses counts."""
    rng = np.random.default_rng(4)
    m, delta, bounds = 2000, 1e-5, []
    truth = 4.0
    mu = GaussianProfile.calibrate(epsilon=truth, delta=delta).mu
    for _ in range(200):
        coins = rng.random(m) < 0.5
        scores = coins * mu + rng.normal(size=m)
        order = scores.argsort()
        right = coins[order[-m // 10 :]].sum() + (~coins[order[: m // 10]]).sum()
        bounds.append(one_run(m, 2 * (m // 10), int(right), delta))
    assert not too_many(int(np.sum(np.array(bounds) > truth)), 200, ALPHA)
    assert np.median(bounds) > 1.3


def test_a_threshold_is_found_on_one_half_and_tested_on_the_other() -> None:
    rng = np.random.default_rng(5)
    mu, delta, n = 1.5, 1e-3, 4000
    truth, bounds = GaussianProfile(mu=mu).epsilon(delta), []
    for repetition in range(200):
        sign = 1 if repetition % 2 else -1  # a score that is lower for members is turned around
        inside, outside = sign * rng.normal(mu, 1, n), sign * rng.normal(0, 1, n)
        half = n // 2
        chosen = choose_threshold(inside[:half], outside[:half], delta=delta, alpha=ALPHA)
        bounds.append(chosen.rates(inside[half:], outside[half:], alpha=ALPHA).epsilon(delta))
    assert not too_many(int(np.sum(np.array(bounds) > truth)), 200, ALPHA)
    assert np.median(bounds) > 0.4 * truth


def test_ties_are_counted_on_the_side_of_in() -> None:
    assert Threshold(value=1.0).says_in([0.5, 1.0, 2.0]).tolist() == [False, True, True]
    assert Threshold(value=1.0, above=False).says_in([0.5, 1.0, 2.0]).tolist() == [True, True, False]


@pytest.mark.parametrize("mu", [0.3, 1.0, 3.0])
def test_the_gaussian_estimate_is_near_for_a_gaussian(mu: float) -> None:
    n = 1_000_000
    found, mistaken = round(n * norm.cdf(mu / 2)), round(n * norm.cdf(-mu / 2))
    estimate = gaussian_estimate(
        true_positives=found, positives=n, false_positives=mistaken, negatives=n, delta=1e-5
    )
    assert estimate.mu == pytest.approx(mu, rel=1e-3)
    assert estimate.epsilon == pytest.approx(GaussianProfile(mu=mu).epsilon(1e-5), rel=2e-3)
    half = n // 2
    none = gaussian_estimate(true_positives=half, positives=n, false_positives=half, negatives=n, delta=1e-5)
    assert none.epsilon == 0


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: one_run_epsilon(canaries=5, guesses=6, correct=1, delta=0.0, alpha=0.05),
        lambda: one_run_epsilon(canaries=5, guesses=5, correct=6, delta=0.0, alpha=0.05),
        lambda: one_run_epsilon(canaries=5, guesses=0, correct=0, delta=0.0, alpha=0.05),
        lambda: one_run_epsilon(canaries=5, guesses=5, correct=5, delta=1.0, alpha=0.05),
        lambda: one_run_epsilon(canaries=5, guesses=5, correct=5, delta=0.0, alpha=0.5),
        lambda: Rates.from_counts(true_positives=3, positives=2, false_positives=0, negatives=2, alpha=0.05),
        lambda: Rates.from_counts(true_positives=0, positives=2, false_positives=0, negatives=0, alpha=0.05),
        lambda: choose_threshold([1.0], [], delta=0.0, alpha=0.05),
        lambda: choose_threshold([math.nan], [1.0], delta=0.0, alpha=0.05),
        lambda: gaussian_estimate(true_positives=1, positives=2, false_positives=1, negatives=2, delta=0.0),
    ],
)
def test_a_wrong_request_is_refused_in_one_sentence(wrong: object) -> None:
    with pytest.raises(RequestError) as refusal:
        wrong()  # type: ignore[operator]
    assert str(refusal.value).endswith(".")
    assert "\n" not in str(refusal.value)


def test_jax_privacy_agrees_on_the_same_scores() -> None:
    auditing = pytest.importorskip("jax_privacy.auditing")
    rng = np.random.default_rng(6)
    inside, outside = rng.normal(2, 1, 600), rng.normal(0, 1, 600)
    theirs = auditing.CanaryScoreAuditor(inside, outside)
    fixed = Threshold(value=1.5)
    explicit = auditing.Explicit(1.5)
    for delta in (1e-5, 1e-2):
        ours = fixed.rates(inside, outside, alpha=ALPHA).epsilon(delta)
        assert theirs.epsilon_clopper_pearson(
            ALPHA, delta, one_sided=False, threshold_strategy=explicit
        ) == pytest.approx(ours, rel=1e-6)
        guesses = int(fixed.says_in(inside).sum() + fixed.says_in(outside).sum())
        published = one_run_epsilon(
            canaries=1200,
            guesses=guesses,
            correct=int(fixed.says_in(inside).sum()),
            delta=delta,
            alpha=ALPHA,
            tail=steinke_tail,
        )
        assert theirs.epsilon_one_run(ALPHA, delta, threshold_strategy=explicit) == pytest.approx(
            published, abs=1e-3
        )
