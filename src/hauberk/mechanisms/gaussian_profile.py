"""The exact privacy of one Gaussian release.

A release ``A(D) + N(0, Sigma)`` with data-independent ``Sigma`` is as private as its *whitened
sensitivity* ``mu = max ||Sigma^{-1/2} (A(D) - A(D'))||`` says, and nothing else matters
(Balle & Wang 2018, Theorem 8; Dong, Roth & Su 2019: it is exactly ``mu``-Gaussian DP):

    delta(eps) = Phi(-t) - e^eps Phi(-t - mu),    t = eps/mu - mu/2.

The theorems of 000 and 004 are upper bounds of this function. Composition is easy here: releases with
``mu_1, mu_2, ...`` on the same records are together one release with ``mu = sqrt(sum mu_i^2)``.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import erfcx

from hauberk.mechanisms import checks
from hauberk.mechanisms.search import last_true

_SQRT_2 = math.sqrt(2.0)
_SQRT_2_PI = math.sqrt(2.0 * math.pi)
_SQRT_HALF_PI = math.sqrt(math.pi / 2.0)

# What double precision may cost; both only ever move the answer to the safe side.
_SLACK_OF_T = 4e-16  # relative to eps/mu + mu/2, whose difference t is
_SLACK_OF_DELTA = 1e-11  # relative

_SMALL_MU = 0.5  # below, a difference of two Mills ratios loses digits and is integrated instead
_NO_DENSITY = 40.0  # beyond this t the normal density underflows

_nodes, _weights = np.polynomial.legendre.leggauss(16)
_NODES, _WEIGHTS = (_nodes + 1) / 2, _weights / 2


def _mills_ratio(t: Any) -> Any:
    """``(1 - Phi(t)) / phi(t)``, without the cancellation of the quotient."""
    return _SQRT_HALF_PI * erfcx(t / _SQRT_2)


def _hockey_stick(t: float, mu: float) -> float:
    """``Phi(-t) - e^eps Phi(-t - mu)`` with ``eps = mu (t + mu/2)``, so that ``e^eps phi(t + mu) =
    phi(t)``."""
    density = math.exp(-t * t / 2) / _SQRT_2_PI
    if mu < _SMALL_MU:
        # R' = s R - 1, so the difference of Mills ratios is an integral of something smooth and positive.
        s = t + mu * _NODES
        return density * mu * float(_WEIGHTS @ (1 - s * _mills_ratio(s)))
    if t < 0:  # phi(t) R(t) would be 0 * inf for a large mu
        return 0.5 * math.erfc(t / _SQRT_2) - density * float(_mills_ratio(t + mu))
    return density * float(_mills_ratio(t) - _mills_ratio(t + mu))


@dataclass(frozen=True, kw_only=True)
class GaussianProfile:
    """Privacy of a Gaussian release with whitened sensitivity ``mu``.

    Guarantee: for all neighbours within ``mu`` and all events ``S``,
    ``P[M(D) in S] <= e^eps P[M(D') in S] + delta(eps)``, with equality for the worst pair and event, so
    neither function can be improved. What is returned is exact up to about ten digits and always rounded
    to the safe side: ``delta`` and ``epsilon`` up, the ``mu`` of ``calibrate`` down.
    """

    mu: float

    def __post_init__(self) -> None:
        checks.positive("the whitened sensitivity mu", self.mu)

    def delta(self, epsilon: float) -> float:
        """Smallest delta for this epsilon; never below the smallest normal double, so it never reads as 0."""
        checks.nonnegative("epsilon", epsilon)
        scaled = epsilon / self.mu
        if scaled - self.mu / 2 > _NO_DENSITY:
            return sys.float_info.min
        t = scaled - self.mu / 2 - _SLACK_OF_T * (scaled + self.mu / 2)
        exact = _hockey_stick(t, self.mu)
        return min(1.0, max(exact * (1 + _SLACK_OF_DELTA), sys.float_info.min))

    def epsilon(self, delta: float) -> float:
        """Smallest epsilon >= 0 for this delta; ``self.delta`` of it does not exceed ``delta``."""
        checks.probability("delta", delta)
        if self.delta(0.0) <= delta:
            return 0.0
        fails, keeps = 0.0, self.mu * (self.mu / 2 + math.sqrt(2 * math.log(1 / delta)))
        while self.delta(keeps) > delta:
            fails, keeps = keeps, 2 * keeps
        return last_true(lambda epsilon: self.delta(epsilon) <= delta, true_at=keeps, false_at=fails)

    @classmethod
    def calibrate(cls, *, epsilon: float, delta: float) -> GaussianProfile:
        """The largest ``mu`` (the least noise) that keeps (epsilon, delta)."""
        checks.nonnegative("epsilon", epsilon)
        checks.probability("delta", delta)
        keeps = fails = 1.0
        while cls(mu=keeps).delta(epsilon) > delta:
            keeps, fails = keeps / 2, keeps
        while cls(mu=fails).delta(epsilon) <= delta:
            keeps, fails = fails, 2 * fails
        return cls(mu=last_true(lambda mu: cls(mu=mu).delta(epsilon) <= delta, true_at=keeps, false_at=fails))
