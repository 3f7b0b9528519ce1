"""The mixed mechanism of 004: noise that came through the model, topped up with fresh noise."""

from __future__ import annotations

import math
from dataclasses import dataclass

import dp_accounting
import numpy as np
import torch
from numpy.typing import ArrayLike

from hauberk.mechanisms import checks
from hauberk.mechanisms.base import ROUND_UP, EpsilonDelta, GaussianMechanism, sampled_releases
from hauberk.mechanisms.checks import Vector
from hauberk.mechanisms.covariance import (
    certified_smallest_eigenvalue,
    check_covariance,
    smallest_eigenvalue,
    standard_deviations,
)
from hauberk.mechanisms.gaussian import classical_multiplier
from hauberk.mechanisms.multivariate import with_covariance


@dataclass(frozen=True, kw_only=True, eq=False)
class MixedGaussian(GaussianMechanism):
    """MMGA (004 Theorem 4): ``N(0, transformed)`` plus fresh ``N(0, isotropic^2)`` on every coordinate.

    Claimed by 004 is the privacy of isotropic noise ``xi_up = sqrt(isotropic^2 + T S_min(transformed))``,
    ``T`` the number of training ``steps``. The factor ``T`` has no proof. It would be right for the joint
    release of ``T`` *equal* answers that share one draw of the transformed noise; a neighbour whose
    answers change sign from step to step meets the fresh noise alone. Exactly true for one release within
    l2 ``sensitivity``, whatever the neighbour, is the Gaussian profile of ``sensitivity /
    sqrt(S_min(isotropic^2 I + transformed))``, provided the transformed covariance does not depend on the
    private data.
    """

    sensitivity: float
    transformed: Vector
    isotropic: float
    steps: int
    claimed: EpsilonDelta

    def __post_init__(self) -> None:
        checks.positive("sensitivity", self.sensitivity)
        checks.nonnegative("the isotropic noise", self.isotropic)
        checks.count("steps", self.steps)
        transformed = check_covariance("the transformed covariance", self.transformed)
        object.__setattr__(self, "transformed", transformed)
        certified_smallest_eigenvalue("the sum of both covariances", self.covariance)

    @classmethod
    def calibrate(
        cls,
        *,
        epsilon: float,
        delta: float,
        sensitivity: float,
        transformed: ArrayLike,
        steps: int,
        ignored_below: float = 0.0,
    ) -> MixedGaussian:
        """The fresh noise that 004 Algorithm 3 (line 16) adds to reach ``xi_up``.

        ``xi_up = sqrt(2 ln(1.25/delta)) sensitivity / epsilon``. ``transformed`` is ``M sigma^2``, full
        or the vector of a diagonal, and may be singular. Where it is worth less than ``ignored_below``
        (the thesis' ``xi_low``) it is not counted.
        """
        target = classical_multiplier(epsilon, delta) * checks.positive("sensitivity", sensitivity)
        checks.nonnegative("ignored_below", ignored_below)
        covariance = check_covariance("the transformed covariance", transformed)
        counted = checks.count("steps", steps) * smallest_eigenvalue(covariance)
        if math.sqrt(counted) < ignored_below:
            counted = 0.0
        return cls(
            sensitivity=sensitivity,
            transformed=covariance,
            isotropic=math.sqrt(max(target**2 - counted, 0.0)) * ROUND_UP,
            steps=steps,
            claimed=EpsilonDelta(epsilon=epsilon, delta=delta),
        )

    @property
    def covariance(self) -> Vector:
        """Covariance of one release, both noises together; no factor ``T``."""
        identity = 1.0 if self.transformed.ndim == 1 else np.eye(len(self.transformed))
        return self.transformed + self.isotropic**2 * identity

    @property
    def scale(self) -> Vector:
        return standard_deviations(self.covariance)

    @property
    def mu(self) -> float:
        smallest = certified_smallest_eigenvalue("the sum of both covariances", self.covariance)
        return self.sensitivity / math.sqrt(smallest)

    @property
    def claimed_mu(self) -> float:
        """Whitened sensitivity by 004's account, with the factor ``T``: the most its theorem can claim."""
        counted = self.isotropic**2 + self.steps * smallest_eigenvalue(self.transformed)
        return self.sensitivity / math.sqrt(counted)

    def training_event(self, *, sampling_rate: float) -> dp_accounting.DpEvent:
        """What can be proven of: ``steps`` releases with *fresh* noise of both kinds, each on a Poisson
        sample."""
        return sampled_releases(1 / self.mu, sampling_rate=sampling_rate, steps=self.steps)

    def claimed_training_event(self, *, sampling_rate: float) -> dp_accounting.DpEvent:
        """The same training as 004 Theorem 9 accounts for it: ``xi_up`` in the place of the noise.

        The theorem leaves its constants open, so the claim is what an accountant says of this event.
        """
        return sampled_releases(1 / self.claimed_mu, sampling_rate=sampling_rate, steps=self.steps)

    def shaped(self, normals: torch.Tensor) -> torch.Tensor:
        return with_covariance(normals, self.covariance)
