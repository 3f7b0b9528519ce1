"""The analytic Gaussian mechanism: no formula, the exact profile solved for the noise."""

from __future__ import annotations

from dataclasses import dataclass

from hauberk.mechanisms import checks
from hauberk.mechanisms.base import ROUND_UP, EpsilonDelta
from hauberk.mechanisms.gaussian import IsotropicGaussian
from hauberk.mechanisms.gaussian_profile import GaussianProfile


@dataclass(frozen=True, kw_only=True)
class AnalyticGaussian(IsotropicGaussian):
    """Analytic Gaussian mechanism (Balle & Wang 2018, the baseline of 000 Fig. 1).

    Guarantee: (epsilon, delta) for neighbours within l2 ``sensitivity``, any epsilon > 0, with the least
    isotropic Gaussian noise that keeps it.
    """

    @classmethod
    def calibrate(cls, *, epsilon: float, delta: float, sensitivity: float) -> AnalyticGaussian:
        """``sigma = sensitivity / mu`` with the largest ``mu`` whose exact profile keeps the pair."""
        checks.positive("epsilon", epsilon)
        mu = GaussianProfile.calibrate(epsilon=epsilon, delta=delta).mu
        sigma = checks.positive("sensitivity", sensitivity) / mu
        claimed = EpsilonDelta(epsilon=epsilon, delta=delta)
        return cls(sensitivity=sensitivity, sigma=sigma * ROUND_UP, claimed=claimed)

    @classmethod
    def of_multiplier(cls, *, noise_multiplier: float, sensitivity: float, delta: float) -> AnalyticGaussian:
        """Noise ``noise_multiplier * sensitivity``; claimed is what that exactly keeps at ``delta``."""
        exact = GaussianProfile(mu=1 / checks.positive("noise_multiplier", noise_multiplier))
        claimed = EpsilonDelta(epsilon=exact.epsilon(delta), delta=delta)
        return cls(sensitivity=sensitivity, sigma=noise_multiplier * sensitivity, claimed=claimed)
