"""The multivariate Gaussian mechanism of 004: noise with any covariance."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from numpy.typing import ArrayLike

from hauberk.mechanisms import checks
from hauberk.mechanisms.base import ROUND_UP, EpsilonDelta, GaussianMechanism, scaled
from hauberk.mechanisms.checks import Vector
from hauberk.mechanisms.covariance import (
    certified_smallest_eigenvalue,
    check_covariance,
    square_root,
    standard_deviations,
)
from hauberk.mechanisms.gaussian import classical_multiplier


def with_covariance(normals: torch.Tensor, covariance: Vector) -> torch.Tensor:
    """Noise whose last axis has this covariance, from independent N(0, 1)."""
    root = square_root(covariance)
    if root.ndim == 1:
        return scaled(normals, root)
    checks.trailing_shape(normals.shape, (len(root),))
    return normals @ torch.tensor(root, dtype=normals.dtype, device=normals.device).T


@dataclass(frozen=True, kw_only=True, eq=False)
class MultivariateGaussian(GaussianMechanism):
    """Multivariate Gaussian mechanism (004 Theorem 3, diagonal: Theorem 7): noise ``N(0, covariance)``.

    Guarantee: (epsilon, delta) for neighbours within l2 ``sensitivity``, epsilon in (0, 1]. Exactly true
    is the Gaussian profile of ``mu = sensitivity / sqrt(S_min(covariance))``: the worst neighbour moves
    along the direction with the least noise. The covariance must not depend on the private data.
    """

    sensitivity: float
    covariance: Vector
    claimed: EpsilonDelta

    def __post_init__(self) -> None:
        checks.positive("sensitivity", self.sensitivity)
        object.__setattr__(self, "covariance", check_covariance("the covariance", self.covariance))
        certified_smallest_eigenvalue("the covariance", self.covariance)

    @classmethod
    def calibrate(
        cls, *, epsilon: float, delta: float, sensitivity: float, covariance: ArrayLike
    ) -> MultivariateGaussian:
        """Noise ``sigma^2 M`` for the ``covariance`` M (full, or the vector of a diagonal), given up to a
        factor.

        Sigma is the smallest of 004 Theorem 3:
        ``S_min(M)^{1/2} sigma = sqrt(2 ln(1.25/delta)) sensitivity / epsilon``.
        """
        least_noise = classical_multiplier(epsilon, delta) * checks.positive("sensitivity", sensitivity)
        matrix = check_covariance("the covariance", covariance)
        variance = least_noise**2 / certified_smallest_eigenvalue("the covariance", matrix)
        claimed = EpsilonDelta(epsilon=epsilon, delta=delta)
        return cls(sensitivity=sensitivity, covariance=matrix * (variance * ROUND_UP), claimed=claimed)

    @property
    def scale(self) -> Vector:
        return standard_deviations(self.covariance)

    @property
    def mu(self) -> float:
        return self.sensitivity / math.sqrt(certified_smallest_eigenvalue("the covariance", self.covariance))

    def shaped(self, normals: torch.Tensor) -> torch.Tensor:
        return with_covariance(normals, self.covariance)
