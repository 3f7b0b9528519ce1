"""The extended Gaussian mechanism of 000, which lifts the classical limit epsilon <= 1."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hauberk.errors import RequestError
from hauberk.mechanisms import checks
from hauberk.mechanisms.base import ROUND_UP, EpsilonDelta
from hauberk.mechanisms.gaussian import IsotropicGaussian

LARGEST_DELTA = math.sqrt(2 / math.pi) * math.exp(-0.5)
"""000 Eq. 20: from here on (0.4839) the proof needs another condition than the published one."""


def extended_multiplier(epsilon: float, delta: float) -> float:
    """Noise per unit of sensitivity: ``(sqrt(s) + sqrt(s + epsilon)) / (sqrt(2) epsilon)``.

    ``s = ln(sqrt(2/pi)/delta)``. The theorems of 000 print ``sqrt(2)/pi`` in ``s``; the proof (Eq. 14)
    has ``sqrt(2/pi)``, which is used here.
    """
    checks.positive("epsilon", epsilon)
    checks.probability("delta", delta)
    if delta >= LARGEST_DELTA:
        raise RequestError(
            f"the extended Gaussian theorem needs delta below {LARGEST_DELTA:.4f}, got {delta}."
        )
    s = math.log(math.sqrt(2 / math.pi) / delta)
    return (math.sqrt(s) + math.sqrt(s + epsilon)) / (math.sqrt(2) * epsilon)


@dataclass(frozen=True, kw_only=True)
class ExtendedGaussian(IsotropicGaussian):
    """Extended Gaussian mechanism (000 Theorem 2).

    Guarantee: (epsilon, delta) for neighbours within l2 ``sensitivity``, any epsilon > 0, delta < 0.4839.
    True, and loose: `AnalyticGaussian` keeps the same promise with less noise.
    """

    @classmethod
    def calibrate(cls, *, epsilon: float, delta: float, sensitivity: float) -> ExtendedGaussian:
        """``sigma = sensitivity * extended_multiplier(epsilon, delta)``."""
        sigma = extended_multiplier(epsilon, delta) * checks.positive("sensitivity", sensitivity)
        claimed = EpsilonDelta(epsilon=epsilon, delta=delta)
        return cls(sensitivity=sensitivity, sigma=sigma * ROUND_UP, claimed=claimed)
