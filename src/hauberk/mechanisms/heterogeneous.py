"""The heterogeneous Gaussian mechanism of 000: the same noise energy, spread unevenly."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from hauberk.errors import RequestError
from hauberk.mechanisms import checks
from hauberk.mechanisms.base import ROUND_UP, EpsilonDelta, GaussianMechanism
from hauberk.mechanisms.checks import Vector
from hauberk.mechanisms.extended import extended_multiplier
from hauberk.mechanisms.gaussian_profile import GaussianProfile

Calibration = Literal["analytic", "extended"]


def check_redistribution(redistribution: ArrayLike) -> Vector:
    """A read-only copy of ``r``, if every entry is positive and they sum to one.

    000 also allows ``r_i = 0``; such a coordinate would be released without noise.
    """
    r = checks.positive_array("the redistribution vector r", redistribution)
    if not math.isclose(float(r.sum()), 1.0, abs_tol=1e-6):
        raise RequestError(f"the redistribution vector r must sum to 1, its sum is {float(r.sum()):.6g}.")
    return r


def weighted_sensitivity(sensitivity: float, redistribution: ArrayLike) -> float:
    """Largest ``||v / sqrt(K r)||`` over all ``||v||_2 <= sensitivity``; the weakest coordinate decides.

    It is the sensitivity of 000 Theorem 3 for a release of which only the plain l2 sensitivity is known.
    """
    r = check_redistribution(redistribution)
    return checks.positive("sensitivity", sensitivity) / math.sqrt(r.size * float(r.min())) * ROUND_UP


@dataclass(frozen=True, kw_only=True, eq=False)
class HeterogeneousGaussian(GaussianMechanism):
    """Heterogeneous Gaussian mechanism (000 Theorem 3): coordinate ``k`` gets variance ``sigma^2 K r_k``.

    Guarantee: (epsilon, delta) for neighbours whose *weighted* distance ``||(A(D) - A(D')) / sqrt(K r)||_2``
    is at most ``sensitivity`` (`weighted_sensitivity` bounds it from a plain one), for any epsilon > 0. ``r``
    must not depend on the private data.
    """

    sensitivity: float
    sigma: float
    redistribution: Vector
    claimed: EpsilonDelta

    def __post_init__(self) -> None:
        checks.positive("sensitivity", self.sensitivity)
        checks.positive("sigma", self.sigma)
        object.__setattr__(self, "redistribution", check_redistribution(self.redistribution))

    @classmethod
    def calibrate(
        cls,
        *,
        epsilon: float,
        delta: float,
        sensitivity: float,
        redistribution: ArrayLike,
        calibration: Calibration = "analytic",
    ) -> HeterogeneousGaussian:
        """``extended`` is the paper's sigma; ``analytic`` solves the exact profile: never more noise."""
        checks.positive("epsilon", epsilon)
        checks.positive("sensitivity", sensitivity)
        if calibration == "analytic":
            sigma = sensitivity / GaussianProfile.calibrate(epsilon=epsilon, delta=delta).mu
        elif calibration == "extended":
            sigma = sensitivity * extended_multiplier(epsilon, delta)
        else:
            raise RequestError(f"calibration must be 'analytic' or 'extended', got {calibration!r}.")
        return cls(
            sensitivity=sensitivity,
            sigma=sigma * ROUND_UP,
            redistribution=check_redistribution(redistribution),
            claimed=EpsilonDelta(epsilon=epsilon, delta=delta),
        )

    @property
    def scale(self) -> Vector:
        return self.sigma * np.sqrt(self.redistribution.size * self.redistribution)

    @property
    def mu(self) -> float:
        return self.sensitivity / self.sigma
