"""A confidence sequence for a probability: a bound that holds at every number of draws at once.

Count successes ``k`` and failures ``f`` among ``t = k + f`` independent draws of success probability ``p``.
For a prior over probabilities fixed beforehand, with marginal likelihood ``m(k, f) = E_prior[p^k (1-p)^f]``,

    E_t(p) = m(k, f) / (p^k (1 - p)^f)

is a nonnegative martingale with mean one when ``p`` is the truth: each draw multiplies it by a likelihood
ratio. By Ville's inequality ``P[there is a t with E_t(p) >= 1/alpha] <= alpha``. Hence the set of all ``p``
with ``E_t(p) < 1/alpha`` contains the truth *at all times*, with probability at least ``1 - alpha``: who
looks after every draw and stops when it suits still errs with probability at most ``alpha``. The likelihood
has a single peak at ``k / t``, so that set is an interval around it; its lower end is the bound.

A prior decides only how fast the bound closes. Votes of a certified input are nearly unanimous, so the priors
here put much of their weight on few failures; with all their weight on none, unanimous votes would give the
bound of a fixed number of draws, ``alpha^(1/t)``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaln, logsumexp, xlog1py, xlogy

_BISECTIONS = 70


@dataclass(frozen=True, kw_only=True)
class Prior:
    """Over the failure probability: weight ``unanimous`` on zero, the rest on Beta(a, b) by weight."""

    unanimous: float
    parts: tuple[tuple[float, float, float], ...]  # weight, a, b

    def __post_init__(self) -> None:
        total = self.unanimous + sum(weight for weight, _, _ in self.parts)
        if not abs(total - 1.0) < 1e-12:
            raise ValueError(f"the weights of a prior add up to one, not to {total}")

    def log_marginal(
        self, successes: NDArray[np.float64], failures: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """``log m(k, f)``."""
        terms = [
            np.log(weight) + betaln(a + failures, b + successes) - betaln(a, b) for weight, a, b in self.parts
        ]
        terms.append(np.where(failures == 0, np.log(self.unanimous), -np.inf))
        marginal: NDArray[np.float64] = logsumexp(np.stack(terms), axis=0)
        return marginal


LONG = Prior(unanimous=0.45, parts=((0.2, 1.0, 5000.0), (0.15, 1.0, 300.0), (0.2, 0.5, 0.5)))
"""For tens of thousands of draws, where radii near the cap are at stake."""

SHORT = Prior(unanimous=0.3, parts=((0.4, 1.0, 30.0), (0.3, 0.5, 0.5)))
"""For tens of draws: is a moderate probability exceeded?"""


def log_evidence(
    prior: Prior, successes: ArrayLike, trials: ArrayLike, probability: ArrayLike
) -> NDArray[np.float64]:
    """``log E_t(p)``: evidence, in nats, that the truth is not ``probability``."""
    k = np.asarray(successes, dtype=np.float64)
    f = np.asarray(trials, dtype=np.float64) - k
    p = np.asarray(probability, dtype=np.float64)
    evidence: NDArray[np.float64] = prior.log_marginal(k, f) - xlogy(k, p) - xlog1py(f, -p)
    return evidence


def anytime_lower(prior: Prior, successes: ArrayLike, trials: ArrayLike, alpha: float) -> NDArray[np.float64]:
    """A lower bound on the probability that holds at all times at once, with probability ``1 - alpha``."""
    k = np.asarray(successes, dtype=np.float64)
    t = np.broadcast_to(np.asarray(trials, dtype=np.float64), k.shape)
    f = t - k
    level = prior.log_marginal(k, f) + np.log(alpha)
    # in the failure probability q, where bounds close to one keep their digits: find the largest q >= f/t
    # whose likelihood is not below the level
    low, high = np.where(t > 0, f / np.maximum(t, 1.0), 1.0), np.ones_like(k)
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        inside = xlog1py(k, -middle) + xlogy(f, middle) > level
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return np.where(k > 0, 1.0 - high, 0.0)


def is_above(
    prior: Prior, successes: ArrayLike, trials: ArrayLike, threshold: float, alpha: float
) -> NDArray[np.bool_]:
    """Whether `anytime_lower` exceeds ``threshold``, without solving for it.

    Below the peak the evidence against a probability falls as the probability grows, so it is enough to ask
    at the threshold.
    """
    k, t = np.asarray(successes, dtype=np.float64), np.asarray(trials, dtype=np.float64)
    evident = log_evidence(prior, k, t, threshold) >= -np.log(alpha)
    return np.asarray((k > threshold * t) & evident)


def is_below(
    prior: Prior, successes: ArrayLike, trials: ArrayLike, threshold: float, alpha: float
) -> NDArray[np.bool_]:
    """The same in the other direction: evidence that the probability lies below ``threshold``."""
    k, t = np.asarray(successes, dtype=np.float64), np.asarray(trials, dtype=np.float64)
    evident = log_evidence(prior, k, t, threshold) >= -np.log(alpha)
    return np.asarray((k < threshold * t) & evident)
