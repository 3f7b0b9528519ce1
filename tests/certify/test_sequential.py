"""The confidence sequence: its error over all times at once, computed exactly, draw by draw."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hauberk.certify.confidence import clopper_pearson_lower
from hauberk.certify.sequential import LONG, SHORT, Prior, anytime_lower, is_above, is_below, log_evidence

PRIORS = {"long": LONG, "short": SHORT}


def chance_of_ever(wrong: list[np.ndarray], probability: float) -> float:
    """That a walk of independent draws ever enters ``wrong[t]`` (a mask over successes), exactly."""
    alive, caught = np.array([1.0]), 0.0
    for mask in wrong:
        alive = np.append(alive * (1 - probability), 0.0) + np.insert(alive * probability, 0, 0.0)
        caught += float(alive[mask].sum())
        alive = np.where(mask, 0.0, alive)
    return caught


@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
@pytest.mark.parametrize("alpha", [0.2, 0.01])
def test_looking_after_every_draw_errs_at_most_alpha(prior: Prior, alpha: float) -> None:
    bounds = [anytime_lower(prior, np.arange(t + 1), t, alpha) for t in range(1, 401)]
    chances = []
    for probability in (0.05, 0.5, 0.8413, 0.99, 0.999):
        chances.append(chance_of_ever([bound > probability for bound in bounds], probability))
    assert max(chances) <= alpha
    assert max(chances) > 0.05 * alpha  # not by being useless


def test_a_fixed_number_of_draws_would_err_more_often_if_looked_at_all_the_time() -> None:
    """The reason for all this: the same walk against the exact bound for a fixed number of draws."""
    bounds = [clopper_pearson_lower(np.arange(t + 1), t, 0.05) for t in range(1, 401)]
    assert chance_of_ever([bound > 0.8 for bound in bounds], 0.8) > 0.1


@given(trials=st.integers(1, 10**6), share=st.floats(0, 1), alpha=st.sampled_from([0.3, 0.001, 1e-9]))
@settings(deadline=None)
def test_the_bound_is_where_the_evidence_reaches_the_level(trials: int, share: float, alpha: float) -> None:
    successes = round(share * trials)
    for prior in PRIORS.values():
        bound = float(anytime_lower(prior, np.array(successes), trials, alpha))
        assert 0 <= bound <= successes / trials
        assert bound < float(clopper_pearson_lower(successes, trials, alpha)) or bound == 0
        if bound > 1e-12:
            evidence = float(log_evidence(prior, successes, trials, bound))
            assert evidence >= -np.log(alpha) - 1e-6
            slightly_above = 1 - (1 - bound) * (1 - 1e-6)
            assert not bool(is_above(prior, successes, trials, slightly_above, alpha * 0.9999))
            assert bool(is_above(prior, successes, trials, bound * (1 - 1e-9), alpha * 1.0001))


def test_the_marginal_is_the_integral() -> None:
    prior = SHORT
    with mpmath.workdps(30):
        for successes, failures in ((12, 0), (12, 3), (150, 10)):
            parts = [
                weight
                * mpmath.quad(
                    lambda q, a=a, b=b, k=successes, f=failures: (
                        q ** (a - 1 + f) * (1 - q) ** (b - 1 + k) / mpmath.beta(a, b)
                    ),
                    [0, 0.01, 0.03, 0.06, 0.1, 0.2, 0.5, 1],
                )
                for weight, a, b in prior.parts
            ]
            truth = mpmath.log(sum(parts) + (prior.unanimous if failures == 0 else 0))
            found = prior.log_marginal(np.array(float(successes)), np.array(float(failures)))
            assert float(found) == pytest.approx(float(truth), rel=1e-6)


def test_evidence_has_mean_one_under_the_truth() -> None:
    """A martingale: its expectation over all outcomes of t draws is one, at every t."""
    from scipy.stats import binom

    for prior in PRIORS.values():
        for probability in (0.3, 0.9, 0.99):
            for t in (1, 7, 50):
                counts = np.arange(t + 1)
                evidence = np.exp(log_evidence(prior, counts, t, probability))
                assert float((binom.pmf(counts, t, probability) * evidence).sum()) == pytest.approx(1.0)


def test_above_and_below_exclude_each_other() -> None:
    counts = np.arange(501)
    above, below = is_above(SHORT, counts, 500, 0.7, 0.01), is_below(SHORT, counts, 500, 0.7, 0.01)
    assert not (above & below).any()
    assert above[-1]
    assert below[0]
    assert (np.diff(above.astype(int)) >= 0).all()
    assert (np.diff(below.astype(int)) <= 0).all()


def test_no_successes_bound_nothing_and_weights_are_checked() -> None:
    assert anytime_lower(LONG, np.array([0, 0]), 100, 0.01).tolist() == [0, 0]
    with pytest.raises(ValueError, match="add up to one"):
        Prior(unanimous=0.5, parts=((0.4, 1.0, 1.0),))
