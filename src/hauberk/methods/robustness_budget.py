"""The budget (epsilon_r, delta_r) of a noise layer, and the noise that each paper derives from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from hauberk.mechanisms.extended import extended_multiplier
from hauberk.mechanisms.gaussian import classical_multiplier
from hauberk.mechanisms.gaussian_profile import GaussianProfile

Calibration = Literal["classical", "extended", "analytic"]
_MULTIPLIERS: dict[Calibration, Callable[[float, float], float]] = {
    "classical": classical_multiplier,
    "extended": extended_multiplier,
    "analytic": lambda epsilon, delta: 1 / GaussianProfile.calibrate(epsilon=epsilon, delta=delta).mu,
}


@dataclass(frozen=True, kw_only=True)
class RobustnessBudget:
    """(epsilon_r, delta_r) of the noise layer, for attacks of l2 size ``size`` and a first map of norm 1."""

    epsilon: float
    delta: float
    size: float

    def sigma(self, calibration: Calibration) -> float:
        return self.size * _MULTIPLIERS[calibration](self.epsilon, self.delta)
