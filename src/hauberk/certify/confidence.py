"""Confidence bounds on a probability from counted votes, and on a mean from scores in [0, 1].

Every bound here is one-sided: a lower bound exceeds the truth with probability at most ``alpha`` over the
draws, and an upper bound falls below it as rarely. The draws are independent, and their number was fixed
before they were made. Several bounds at once need a share of alpha each (union bound): `bounds_from_votes`
and `bounds_from_scores` see to that for the top class and its rivals.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta, binomtest

from hauberk.errors import RequestError

Values = NDArray[np.float64]

_BELOW_ONE = np.nextafter(1.0, 0.0)  # a bound rounded to 1 would certify an infinite radius


def clopper_pearson_lower(successes: ArrayLike, trials: ArrayLike, alpha: float) -> NDArray[np.float64]:
    """A number that exceeds the true probability with probability at most ``alpha`` (exact, one-sided)."""
    counts, draws = _counts(successes, trials, alpha)
    bound = beta.ppf(alpha, np.maximum(counts, 1.0), draws - counts + 1.0)
    return np.where(counts > 0, np.minimum(bound, _BELOW_ONE), 0.0)


def clopper_pearson_upper(successes: ArrayLike, trials: ArrayLike, alpha: float) -> NDArray[np.float64]:
    """A number that falls below the true probability with probability at most ``alpha`` (exact)."""
    counts, draws = _counts(successes, trials, alpha)
    bound = beta.isf(alpha, counts + 1.0, np.maximum(draws - counts, 1.0))
    return np.where(counts < draws, bound, 1.0)


def hoeffding_lower(mean: ArrayLike, trials: ArrayLike, alpha: float) -> NDArray[np.float64]:
    """``mean - sqrt(ln(1/alpha) / 2n)`` for scores in [0, 1] (Hoeffding 1963; used by 000, 003)."""
    means, draws = _means(mean, trials, alpha, fewest=1)
    return np.asarray(np.maximum(means - np.sqrt(np.log(1.0 / alpha) / (2.0 * draws)), 0.0))


def hoeffding_upper(mean: ArrayLike, trials: ArrayLike, alpha: float) -> NDArray[np.float64]:
    """``mean + sqrt(ln(1/alpha) / 2n)``: what `hoeffding_lower` says of one minus the scores."""
    return 1.0 - hoeffding_lower(1.0 - np.asarray(mean, dtype=np.float64), trials, alpha)


def empirical_bernstein_lower(
    mean: ArrayLike, variance: ArrayLike, trials: ArrayLike, alpha: float
) -> NDArray[np.float64]:
    """``mean - sqrt(2 V ln(2/alpha) / n) - 7 ln(2/alpha) / (3 (n - 1))`` for scores in [0, 1].

    ``variance`` is the *unbiased* sample variance ``V``, a sum over ``n - 1``. One-sided at ``alpha``: the 2
    in the logarithm pays for not knowing the true variance, not for a second side (Maurer & Pontil 2009,
    Theorem 4). Better than Hoeffding where scores vary little, worse for few draws.
    """
    means, draws = _means(mean, trials, alpha, fewest=2)
    spread = np.asarray(variance, dtype=np.float64)
    if not (spread >= 0.0).all():
        raise RequestError("a sample variance is a number that is not negative; it needs at least two draws")
    log_term = np.log(2.0 / alpha)
    width = np.sqrt(2.0 * spread * log_term / draws) + 7.0 * log_term / (3.0 * (draws - 1.0))
    return np.asarray(np.maximum(means - width, 0.0))


def empirical_bernstein_upper(
    mean: ArrayLike, variance: ArrayLike, trials: ArrayLike, alpha: float
) -> NDArray[np.float64]:
    """The mirror image of `empirical_bernstein_lower`: one minus a score has the same variance."""
    return 1.0 - empirical_bernstein_lower(1.0 - np.asarray(mean, dtype=np.float64), variance, trials, alpha)


class Bounds(NamedTuple):
    """What a certificate needs to know of each input."""

    top_lower: NDArray[np.float64]
    runner_up_upper: NDArray[np.float64]  # holds for every class but the top one


def bounds_from_votes(votes: ArrayLike, selected: ArrayLike, trials: int, alpha: float) -> Bounds:
    """Clopper–Pearson bounds for the selected class and for all its rivals, from ``(inputs, classes)`` votes.

    Guarantee, for each input on its own: with probability at least ``1 - alpha`` *both* bounds hold, for
    classes ``selected`` on other draws than these. Half of alpha goes to the selected class, the other half
    in equal shares to the rivals. A draw has one vote at most (none, if its scores are NaN), so a rival has
    no more than the selected class leaves; with two classes this alone is used, and gets all of alpha.
    """
    counts = np.asarray(votes)
    rows, rivals = _split(counts, selected)
    if counts.size and counts.sum(axis=-1).max() > trials:
        raise RequestError(f"an input has more votes than the {trials} draws: pass the draws of all classes")
    if counts.shape[1] == 2:
        lower = clopper_pearson_lower(counts[rows], trials, alpha)
        return Bounds(lower, 1.0 - lower)
    lower = clopper_pearson_lower(counts[rows], trials, alpha / 2.0)
    # the bound grows with the count, so the rival with most votes has the largest
    most = np.where(rivals, counts, 0).max(axis=1)
    upper = clopper_pearson_upper(most, trials, alpha / (2.0 * (counts.shape[1] - 1)))
    return Bounds(lower, np.minimum(upper, 1.0 - lower))


def bounds_from_scores(
    means: ArrayLike, selected: ArrayLike, trials: int, alpha: float, *, variances: ArrayLike | None = None
) -> Bounds:
    """The same from mean scores ``(inputs, classes)``, each score in [0, 1]; they need not add up to one.

    Hoeffding's bounds; with the unbiased sample ``variances`` of the scores, of the same shape, those of
    Maurer and Pontil. Guarantee and shares of alpha as in `bounds_from_votes`, also for two classes, where
    scores that do add up to one are better served by one lower bound with all of alpha.
    """
    scores = np.asarray(means, dtype=np.float64)
    rows, rivals = _split(scores, selected)
    share = alpha / (2.0 * (scores.shape[1] - 1))
    if variances is None:
        lower = hoeffding_lower(scores[rows], trials, alpha / 2.0)
        upper = hoeffding_upper(scores, trials, share)
    else:
        spread = np.asarray(variances, dtype=np.float64)
        if spread.shape != scores.shape:
            raise RequestError(
                f"mean scores of shape {scores.shape} need variances of that shape, not {spread.shape}"
            )
        lower = empirical_bernstein_lower(scores[rows], spread[rows], trials, alpha / 2.0)
        upper = empirical_bernstein_upper(scores, spread, trials, share)
    return Bounds(lower, np.where(rivals, upper, 0.0).max(axis=1))


def majority_p_value(ahead: int, behind: int) -> float:
    """p-value of "the first class is not more likely than the second" given votes for either."""
    if ahead + behind == 0:
        return 1.0
    return float(binomtest(ahead, ahead + behind, 0.5, alternative="greater").pvalue)


def _check_alpha(alpha: float) -> None:
    if not 0.0 < alpha < 1.0:
        raise RequestError(f"alpha must lie strictly between 0 and 1, got {alpha}")


def _counts(successes: ArrayLike, trials: ArrayLike, alpha: float) -> tuple[Values, Values]:
    _check_alpha(alpha)
    counts, draws = np.asarray(successes, dtype=np.float64), np.asarray(trials, dtype=np.float64)
    if not ((counts >= 0.0) & (counts <= draws)).all():
        raise RequestError(
            "successes are counted among the trials: pass counts from 0 to the number of trials"
        )
    return counts, draws


def _means(mean: ArrayLike, trials: ArrayLike, alpha: float, *, fewest: int) -> tuple[Values, Values]:
    _check_alpha(alpha)
    means, draws = np.asarray(mean, dtype=np.float64), np.asarray(trials, dtype=np.float64)
    if not ((means >= 0.0) & (means <= 1.0)).all():
        raise RequestError("mean scores must lie in [0, 1]: squash or rescale the scores before averaging")
    if not (draws >= fewest).all():
        raise RequestError(f"this bound needs at least {fewest} draw{'s' if fewest > 1 else ''} per input")
    return means, draws


def _split(
    table: NDArray[Any], selected: ArrayLike
) -> tuple[tuple[NDArray[np.int64], NDArray[np.int64]], NDArray[np.bool_]]:
    """Index of each input's selected entry, and a mask of all the others."""
    chosen = np.asarray(selected, dtype=np.int64)
    if table.ndim != 2 or table.shape[1] < 2 or chosen.shape != table.shape[:1]:
        raise RequestError(
            f"pass (inputs, classes) with at least two classes and one selected class per input, "
            f"not {table.shape} and {chosen.shape}"
        )
    if ((chosen < 0) | (chosen >= table.shape[1])).any():
        raise RequestError(f"a selected class is a number from 0 to {table.shape[1] - 1}")
    return (np.arange(len(chosen), dtype=np.int64), chosen), np.arange(table.shape[1]) != chosen[:, None]
