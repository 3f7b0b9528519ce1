"""The classical Gaussian mechanism, the common ancestor of the papers' theorems."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hauberk.errors import RequestError
from hauberk.mechanisms import checks
from hauberk.mechanisms.base import ROUND_UP, EpsilonDelta, GaussianMechanism


def classical_multiplier(epsilon: float, delta: float) -> float:
    """Noise per unit of sensitivity, ``sqrt(2 ln(1.25/delta)) / epsilon``, proven for epsilon in (0, 1]
    only."""
    checks.positive("epsilon", epsilon)
    checks.probability("delta", delta)
    if epsilon > 1:
        raise RequestError(
            f"the classical Gaussian theorem holds for epsilon up to 1, got {epsilon}; "
            "choose the analytic or the extended mechanism, which have no such limit."
        )
    return math.sqrt(2 * math.log(1.25 / delta)) / epsilon


@dataclass(frozen=True, kw_only=True)
class IsotropicGaussian(GaussianMechanism):
    """``N(0, sigma^2)`` on every coordinate of a release with l2 ``sensitivity``, however sigma was found."""

    sensitivity: float
    sigma: float
    claimed: EpsilonDelta

    def __post_init__(self) -> None:
        checks.positive("sensitivity", self.sensitivity)
        checks.positive("sigma", self.sigma)

    @property
    def scale(self) -> float:
        return self.sigma

    @property
    def mu(self) -> float:
        return self.sensitivity / self.sigma


@dataclass(frozen=True, kw_only=True)
class Gaussian(IsotropicGaussian):
    """Classical Gaussian mechanism (000 Theorem 1; 004 Theorem 6 calls it w-element).

    Guarantee: (epsilon, delta) for neighbours within l2 ``sensitivity``, epsilon in (0, 1]. True, and loose:
    `AnalyticGaussian` keeps the same promise with less noise.
    """

    @classmethod
    def calibrate(cls, *, epsilon: float, delta: float, sensitivity: float) -> Gaussian:
        """``sigma = sqrt(2 ln(1.25/delta)) sensitivity / epsilon``; an epsilon above 1 is refused."""
        sigma = classical_multiplier(epsilon, delta) * checks.positive("sensitivity", sensitivity)
        claimed = EpsilonDelta(epsilon=epsilon, delta=delta)
        return cls(sensitivity=sensitivity, sigma=sigma * ROUND_UP, claimed=claimed)
