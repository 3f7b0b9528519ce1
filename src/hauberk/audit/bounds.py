"""From counts to epsilon: lower bounds on the privacy loss that hold with a stated probability.

Two games, two bounds. In the *many-run* game the mechanism runs often on each of two neighbours, and the
runs are independent: exact binomial confidence bounds on the two rates are enough. In the *one-run* game
(Steinke, Nasr & Jagielski 2023) it runs once on data in which every canary is in or out by its own fair coin,
and the auditor guesses coins; the canaries share one run, so their correctness is not independent, and the
bound has to come from differential privacy itself.

Both bounds are about a *fixed* guessing rule: everything that chose the rule (score, threshold, number of
guesses) was fixed before the counted coins were looked at. Several rules need a share of alpha each.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, gammaln, xlog1py, xlogy
from scipy.stats import norm

from hauberk.certify.confidence import clopper_pearson_lower, clopper_pearson_upper
from hauberk.errors import RequestError
from hauberk.mechanisms import GaussianProfile
from hauberk.mechanisms.search import last_true

Values = NDArray[np.float64]
Tail = Callable[..., Values]

_LARGEST_EPSILON = 40.0  # a coin guessed wrong once in e^40: more than any count can show
_GRID = 257


def check_level(alpha: float) -> float:
    """``alpha``, if a statement at this level says something."""
    if not 0 < alpha < 0.5:
        raise RequestError(f"alpha must lie strictly between 0 and 1/2, got {alpha}.")
    return float(alpha)


def check_delta(delta: float) -> float:
    """``delta``, if it lies in [0, 1); 0 asks for pure privacy."""
    if not 0 <= delta < 1:
        raise RequestError(f"delta must lie in [0, 1), got {delta}.")
    return float(delta)


@dataclass(frozen=True, kw_only=True)
class Rates:
    """One-sided confidence bounds on the two rates of a fixed test, both right with probability 1 - alpha.

    ``true_positive`` is a lower bound on the chance that the test says "in" when the record is in,
    ``false_positive`` an upper bound on the chance that it says so when the record is out.
    """

    true_positive: float
    false_positive: float
    alpha: float

    @classmethod
    def from_counts(
        cls, *, true_positives: int, positives: int, false_positives: int, negatives: int, alpha: float
    ) -> Rates:
        """Clopper-Pearson, half of ``alpha`` each; the runs of the test were independent."""
        check_level(alpha)
        _check_counts("true positives", true_positives, positives)
        _check_counts("false positives", false_positives, negatives)
        return cls(
            true_positive=float(clopper_pearson_lower(true_positives, positives, alpha / 2)),
            false_positive=float(clopper_pearson_upper(false_positives, negatives, alpha / 2)),
            alpha=alpha,
        )

    def delta(self, epsilon: float) -> float:
        """A lower bound on the hockey-stick divergence, ``max(0, P(S) - e^eps Q(S))``, in either order.

        Holds for all epsilon at once, with probability 1 - alpha: it uses nothing but the two rates.
        """
        forward = self.true_positive - math.exp(epsilon) * self.false_positive
        backward = (1 - self.false_positive) - math.exp(epsilon) * (1 - self.true_positive)
        return max(0.0, forward, backward)

    def epsilon(self, delta: float) -> float:
        """The largest epsilon that (epsilon, delta)-privacy would have to have, or 0.

        ``max(ln((TPR - delta) / FPR), ln((TNR - delta) / FNR))`` with the rates at their bounds. The second
        order needs no further share of alpha: TNR = 1 - FPR and FNR = 1 - TPR.
        """
        check_delta(delta)
        forward = _log_ratio(self.true_positive - delta, self.false_positive)
        backward = _log_ratio(1 - self.false_positive - delta, 1 - self.true_positive)
        return max(0.0, forward, backward)


def many_run_epsilon(
    *, true_positives: int, positives: int, false_positives: int, negatives: int, delta: float, alpha: float
) -> float:
    """A lower bound on epsilon at ``delta`` from independent runs with the record in and with it out.

    Guarantee: if the mechanism is (epsilon, delta)-private for these two neighbours and the test was fixed
    beforehand, then the returned number exceeds epsilon with probability at most ``alpha`` over the runs.
    """
    rates = Rates.from_counts(
        true_positives=true_positives,
        positives=positives,
        false_positives=false_positives,
        negatives=negatives,
        alpha=alpha,
    )
    return rates.epsilon(delta)


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """A test of one score: "in" at or above ``value``, or, turned around, "in" at or below it."""

    value: float
    above: bool = True

    def says_in(self, scores: ArrayLike) -> NDArray[np.bool_]:
        values = np.asarray(scores)
        return np.asarray(values >= self.value if self.above else values <= self.value)

    def rates(self, inside: ArrayLike, outside: ArrayLike, *, alpha: float) -> Rates:
        """Bounds on the test's rates from the scores of independent runs, in and out."""
        said_in, said_out = self.says_in(inside), self.says_in(outside)
        return Rates.from_counts(
            true_positives=int(said_in.sum()),
            positives=said_in.size,
            false_positives=int(said_out.sum()),
            negatives=said_out.size,
            alpha=alpha,
        )


def choose_threshold(inside: ArrayLike, outside: ArrayLike, *, delta: float, alpha: float) -> Threshold:
    """The threshold whose bound would be largest if these scores were fresh. They are not: test on others."""
    check_level(alpha)
    check_delta(delta)
    high, low = np.sort(np.asarray(inside, dtype=np.float64)), np.sort(np.asarray(outside, dtype=np.float64))
    if not (high.size and low.size and np.isfinite(high).all() and np.isfinite(low).all()):
        raise RequestError("scores must be finite numbers, at least one with the record in and one without.")
    best, chosen = -1.0, Threshold(value=float(high[-1]))
    candidates = _quantiles(np.unique(np.concatenate([high, low])))
    for above in (True, False):
        if above:
            said_in = high.size - np.searchsorted(high, candidates, side="left")
            said_out = low.size - np.searchsorted(low, candidates, side="left")
        else:
            said_in = np.searchsorted(high, candidates, side="right")
            said_out = np.searchsorted(low, candidates, side="right")
        lower = clopper_pearson_lower(said_in, high.size, alpha / 2)
        upper = clopper_pearson_upper(said_out, low.size, alpha / 2)
        forward = _log_ratios(lower - delta, upper)
        backward = _log_ratios(1 - upper - delta, 1 - lower)
        bounds = np.maximum(forward, backward)
        place = int(bounds.argmax())
        if bounds[place] > best:
            # half way to the next score that is not said to be in: fresh scores fall on either side
            other = place - 1 if above else place + 1
            beyond = candidates[min(max(other, 0), len(candidates) - 1)]
            best = float(bounds[place])
            chosen = Threshold(value=float((candidates[place] + beyond) / 2), above=above)
    return chosen


def sharp_tail(epsilon: ArrayLike, *, canaries: int, guesses: int, correct: int, delta: float) -> Values:
    """How likely ``correct`` or more right guesses are at most, for any (epsilon, delta)-private mechanism.

    Guarantee: ``canaries`` records are in or out by independent fair coins, the mechanism runs once, and
    ``guesses`` coins (a number fixed beforehand; which ones may depend on everything released) are guessed.
    Then ``P[at least v right] <= beta + m delta beta (1 - beta) / (v P[W = v])`` with ``W`` binomial over the
    guesses with success ``q = e^eps / (1 + e^eps)`` and ``beta = P[W >= v]``. What exceeds 1/2 is given as 1.

    Why. Averaging a mechanism over all permutations and flips of the coins keeps its privacy and the number
    of right guesses; what remains is the distribution ``p_k`` of that number. Write ``p_k = P[W = k] (x_0 +
    ... + x_k)``: pure privacy means ``x_j <= 0`` for j >= 1, and for a neighbour who flips one coin the
    hockey-stick divergence is at least ``sum_j max(x_j, 0) j P[W = j] / m``, which is thus at most delta. The
    chance of at least v right guesses is ``sum_j x_j P[W >= max(j, v)]`` under ``sum_j x_j P[W >= j] = 1``, a
    linear program, and the multipliers ``beta`` and ``beta (1 - beta) / (v P[W = v])`` are feasible for its
    dual, because ``P[W < j] / (j P[W = j])`` grows with j and ``P[W >= j] / (j P[W = j])`` falls. One jump
    ``x_v > 0`` attains the bound as long as ``x_0 >= 0``: no better one exists for this count.
    """
    q = 1 / (1 + np.exp(-np.asarray(epsilon, dtype=np.float64)))
    if correct == 0:
        return np.ones_like(q)
    beta, exactly = _at_least(correct, guesses, q), _exactly(correct, guesses, q)
    upper = beta <= 0.5
    computable = upper & (exactly > 0)
    # where both underflow: P[W = k] falls from v on at least as fast as it does from v to v + 1
    at_most = (correct + 1) * (1 - q) / np.maximum(correct + 1 - (guesses + 1) * q, 1e-9)
    ratio = np.where(computable, beta / np.where(computable, exactly, 1.0), at_most)
    tail = np.where(upper, beta + canaries * delta * (1 - beta) * ratio / correct, 1.0)
    return np.where(tail > 0.5, 1.0, tail)


def steinke_tail(epsilon: ArrayLike, *, canaries: int, guesses: int, correct: int, delta: float) -> Values:
    """The bound of Steinke, Nasr & Jagielski 2023 (Theorem 5.2) on the same probability, as other auditors
    use it: ``beta + 2 m delta max_i P[v - i <= W < v] / i``.

    Up to twice `sharp_tail` in delta's part, and not valid below the mean of ``W`` (two canaries, one right
    guess, epsilon 1, delta 0.05: it says 0.9421, and 0.9447 is possible); values above 1/2 are given as 1.
    """
    q = 1 / (1 + np.exp(-np.asarray(epsilon, dtype=np.float64)))
    if correct == 0:
        return np.ones_like(q)
    beta = _at_least(correct, guesses, q)
    below = _exactly(np.arange(correct - 1, -1, -1), guesses, q[..., None]).cumsum(axis=-1)
    steepest = (below / np.arange(1, correct + 1)).max(axis=-1)
    tail = beta + 2 * canaries * delta * steepest
    return np.where((beta > 0.5) | (tail > 0.5), 1.0, tail)


def one_run_p_value(
    *, canaries: int, guesses: int, correct: int, epsilon: float, delta: float, tail: Tail = sharp_tail
) -> float:
    """p-value of "the mechanism is (epsilon, delta)-private", given the right guesses of one run."""
    _check_guesses(canaries, guesses, correct)
    check_delta(delta)
    value = tail(epsilon, canaries=canaries, guesses=guesses, correct=correct, delta=delta)
    return float(np.asarray(value).item())


def one_run_epsilon(
    *, canaries: int, guesses: int, correct: int, delta: float, alpha: float, tail: Tail = sharp_tail
) -> float:
    """A lower bound on epsilon at ``delta`` from one run: all smaller epsilons are rejected at ``alpha``.

    Guarantee: if the mechanism is (epsilon, delta)-private for adding or removing one canary, then the
    returned number exceeds epsilon with probability at most ``alpha`` over the coins and the run. The number
    of guesses was fixed beforehand.
    """
    _check_guesses(canaries, guesses, correct)
    check_level(alpha)
    check_delta(delta)

    def p_values(epsilon: ArrayLike) -> Values:
        return tail(epsilon, canaries=canaries, guesses=guesses, correct=correct, delta=delta)

    # the first epsilon that is not rejected, so that a p-value that is not monotone could not mislead
    grid = np.linspace(0.0, _LARGEST_EPSILON, _GRID)
    kept = p_values(grid) > alpha
    first = int(kept.argmax())
    if kept[0]:
        return 0.0
    if not kept.any():
        return _LARGEST_EPSILON
    return last_true(
        lambda epsilon: float(np.asarray(p_values(epsilon)).item()) <= alpha,
        true_at=float(grid[first - 1]),
        false_at=float(grid[first]),
    )


@dataclass(frozen=True, kw_only=True)
class GaussianEstimate:
    """What the rates would mean for a Gaussian release: an estimate, in a column of its own.

    No bound: nothing is said about its error, and a mechanism that is no single Gaussian release (any
    subsampled one) may have an epsilon on either side of it.
    """

    mu: float
    epsilon: float
    delta: float


def gaussian_estimate(
    *, true_positives: int, positives: int, false_positives: int, negatives: int, delta: float
) -> GaussianEstimate:
    """``mu = Phi^-1(TPR) - Phi^-1(FPR)`` and its epsilon; half a count keeps rates off 0 and 1."""
    _check_counts("true positives", true_positives, positives)
    _check_counts("false positives", false_positives, negatives)
    if not 0 < delta < 1:
        raise RequestError(f"a Gaussian estimate needs a delta strictly between 0 and 1, got {delta}.")
    found = (true_positives + 0.5) / (positives + 1)
    mistaken = (false_positives + 0.5) / (negatives + 1)
    mu = abs(float(norm.ppf(found) - norm.ppf(mistaken)))
    epsilon = GaussianProfile(mu=mu).epsilon(delta) if mu > 0 else 0.0
    return GaussianEstimate(mu=mu, epsilon=epsilon, delta=delta)


def _at_least(successes: int, trials: int, chance: Values) -> Values:
    """``P[W >= successes]`` for a binomial W and at least one success."""
    return np.asarray(betainc(successes, trials - successes + 1, chance))


def _exactly(successes: ArrayLike, trials: int, chance: Values) -> Values:
    """``P[W = successes]``, without scipy's distribution objects: bisection asks often, and they are slow."""
    counts = np.asarray(successes, dtype=np.float64)
    ways = gammaln(trials + 1) - gammaln(counts + 1) - gammaln(trials - counts + 1)
    return np.asarray(np.exp(ways + xlogy(counts, chance) + xlog1py(trials - counts, -chance)))


def _check_counts(name: str, counted: int, among: int) -> None:
    if not 0 <= counted <= among or among < 1:
        raise RequestError(f"{name} are counted among at least one run, got {counted} of {among}.")


def _check_guesses(canaries: int, guesses: int, correct: int) -> None:
    if not 0 <= correct <= guesses <= canaries or guesses < 1:
        raise RequestError(
            "right guesses are counted among the guesses and guesses among the canaries, "
            f"got {correct} of {guesses} of {canaries}."
        )


def _log_ratio(above: float, below: float) -> float:
    return math.log(above / below) if above > 0 and below > 0 else 0.0


def _log_ratios(above: Values, below: Values) -> Values:
    """`_log_ratio` of each pair."""
    sound = (above > 0) & (below > 0)
    ratio = np.divide(above, below, out=np.ones_like(above), where=sound)
    return np.log(np.maximum(ratio, np.finfo(np.float64).tiny))


def _quantiles(values: Values) -> Values:
    """A few hundred of the sorted ``values``, dense at both ends, where small sets are cut off."""
    if len(values) <= 256:
        return values
    ends = np.unique(np.geomspace(1, len(values) / 2, 128).astype(np.int64)) - 1
    return np.asarray(values[np.unique(np.concatenate([ends, len(values) - 1 - ends]))])
