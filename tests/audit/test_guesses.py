"""Guessing coins by rules that were fixed beforehand: what is counted, and how often the bound is wrong."""

import numpy as np
import pytest
from scipy.stats import binom

from hauberk.audit.bounds import one_run_epsilon
from hauberk.audit.guesses import RULES, GuessRule, best_verdict
from hauberk.errors import RequestError
from hauberk.mechanisms import GaussianProfile

EVERYBODY = GuessRule(top=0.5, bottom=0.5)


def test_the_top_is_guessed_in_and_the_bottom_out() -> None:
    coins = np.array([True, False, True, False, True, False, False, False])
    scores = np.array([8.0, 1.0, 7.0, 2.0, 6.0, 5.0, 4.0, 3.0])
    verdict = best_verdict(
        {"only": scores}, coins, delta=1e-5, alpha=0.05, rules=[GuessRule(top=0.5, bottom=0.25)]
    )
    assert (verdict.guesses, verdict.correct) == (6, 5)  # number 6 (score 5) is guessed in and was out
    expected = one_run_epsilon(canaries=8, guesses=6, correct=5, delta=1e-5, alpha=0.05)
    assert verdict.epsilon_lower == expected
    assert verdict.estimate is not None


def test_every_score_and_rule_costs_its_share_of_alpha() -> None:
    coins = np.arange(100) < 50
    perfect = np.where(coins, 1.0, 0.0)
    noise = np.random.default_rng(0).normal(size=100)
    alone = best_verdict({"good": perfect}, coins, delta=0.0, alpha=0.05, rules=[EVERYBODY])
    assert alone.correct == 100
    shared = best_verdict({"bad": noise, "good": perfect}, coins, delta=0.0, alpha=0.05, rules=RULES)
    assert shared.score == "good"
    assert shared.rule == str(EVERYBODY)
    assert shared.epsilon_lower == one_run_epsilon(
        canaries=100, guesses=100, correct=100, delta=0.0, alpha=0.05 / (2 * len(RULES))
    )
    assert shared.epsilon_lower < alone.epsilon_lower


def test_the_best_of_several_rules_is_wrong_no_more_often_than_allowed() -> None:
    """Two scores, six rules, one Gaussian release: the largest of twelve bounds still keeps its level."""
    rng = np.random.default_rng(1)
    truth, delta, alpha, m, repetitions = 1.0, 1e-3, 0.3, 100, 200
    mu = GaussianProfile.calibrate(epsilon=truth, delta=delta).mu
    bounds = []
    for _ in range(repetitions):
        coins = rng.random(m) < 0.5
        seen = coins * mu + rng.normal(size=m)
        verdict = best_verdict({"seen": seen, "chance": rng.normal(size=m)}, coins, delta=delta, alpha=alpha)
        bounds.append(verdict.epsilon_lower)
    wrong = int((np.array(bounds) > truth).sum())
    assert binom.sf(wrong - 1, repetitions, alpha) >= 1e-6
    loud = best_verdict({"seen": coins * 6.0 + rng.normal(size=m)}, coins, delta=delta, alpha=alpha)
    assert loud.epsilon_lower > 2  # the same pipeline speaks up where there is something to say


def test_a_few_canaries_get_at_least_one_guess() -> None:
    assert GuessRule(top=0.02, bottom=0.0).counts(3) == (1, 0)
    assert GuessRule(top=0.5, bottom=0.5).counts(3) == (1, 1)


def test_coins_that_fell_alike_have_no_estimate() -> None:
    verdict = best_verdict({"x": np.arange(4.0)}, np.ones(4, dtype=bool), delta=1e-5, alpha=0.05)
    assert verdict.estimate is None


@pytest.mark.parametrize(("top", "bottom"), [(0.7, 0.4), (-0.1, 0.5), (0.0, 0.0)])
def test_impossible_parts_are_refused(top: float, bottom: float) -> None:
    with pytest.raises(RequestError, match="sum to at most 1"):
        GuessRule(top=top, bottom=bottom)


def test_an_audit_without_scores_is_refused() -> None:
    with pytest.raises(RequestError, match="at least one score"):
        best_verdict({}, np.ones(4, dtype=bool), delta=1e-5, alpha=0.05)
