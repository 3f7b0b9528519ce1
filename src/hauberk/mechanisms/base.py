"""What every mechanism can say: its noise, what its paper claims, what is exactly true of it.

A mechanism is a frozen record of *noise as it is executed* (``scale``), together with the promise its
paper makes for it (``claimed``). ``delta`` and ``epsilon`` never look at the promise: they are computed
from the noise.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import dp_accounting
import numpy as np
import torch

from hauberk.errors import RequestError
from hauberk.mechanisms import checks
from hauberk.mechanisms.checks import Vector
from hauberk.mechanisms.gaussian_profile import GaussianProfile

ROUND_UP = 1 + 1e-13
"""Calibrated noise is multiplied by this: rounding never takes noise away, and a profile computed anew
from the rounded noise, whose own last digits tremble, still keeps the pair that was asked for."""


@dataclass(frozen=True, kw_only=True)
class EpsilonDelta:
    """A pair (epsilon, delta) of differential privacy; delta 0 is pure privacy."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        checks.nonnegative("epsilon", self.epsilon)
        if not 0 <= self.delta < 1:
            raise RequestError(f"delta must lie in [0, 1), got {self.delta}.")


class Mechanism(ABC):
    """Additive noise that knows its exact privacy.

    ``claimed`` is what the paper's formula promises; ``delta(epsilon)`` and ``epsilon(delta)`` are what
    is true for the worst pair of neighbours within ``sensitivity``. The neighbouring relation is the
    caller's: it is the one for which ``sensitivity`` was computed.
    """

    claimed: EpsilonDelta

    @classmethod
    @abstractmethod
    def calibrate(cls, *args: Any, **request: Any) -> Self:
        """The mechanism as its paper sets it for ``epsilon``, ``delta``, ``sensitivity`` (keywords)."""

    @property
    @abstractmethod
    def scale(self) -> float | Vector:
        """Standard deviation of the noise: one number, or one per coordinate."""

    @abstractmethod
    def delta(self, epsilon: float) -> float:
        """Smallest delta for this epsilon, rounded up."""

    @abstractmethod
    def epsilon(self, delta: float) -> float:
        """Smallest epsilon for this delta, rounded up."""

    @abstractmethod
    def event(self) -> dp_accounting.DpEvent:
        """What an accountant has to know: the event that ``delta`` and ``epsilon`` describe."""

    @abstractmethod
    def sample(self, shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
        """Fresh noise on the generator's device, in torch's default floating type.

        Noise with one scale per coordinate fills the last axes of ``shape`` with its coordinates;
        the axes before them are independent draws.
        """


class GaussianMechanism(Mechanism):
    """A mechanism whose privacy is that of a Gaussian release with whitened sensitivity ``mu``.

    Guarantee: ``delta`` and ``epsilon`` are exact for real-valued noise (`GaussianProfile`), whatever the
    paper's theorem says.
    """

    @property
    @abstractmethod
    def mu(self) -> float:
        """Whitened sensitivity: the largest ``||Sigma^{-1/2} (A(D) - A(D'))||`` over neighbours."""

    @property
    def profile(self) -> GaussianProfile:
        """Exact privacy of one release."""
        return GaussianProfile(mu=self.mu)

    def delta(self, epsilon: float) -> float:
        return self.profile.delta(epsilon)

    def epsilon(self, delta: float) -> float:
        return self.profile.epsilon(delta)

    def event(self) -> dp_accounting.DpEvent:
        return dp_accounting.GaussianDpEvent(1 / self.mu)

    def sample(self, shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
        return self.shaped(standard_normal(shape, generator))

    def shaped(self, normals: torch.Tensor) -> torch.Tensor:
        """This mechanism's noise from independent N(0, 1): training draws them from a source of its own."""
        return scaled(normals, self.scale)


def sampled_releases(noise_multiplier: float, *, sampling_rate: float, steps: int) -> dp_accounting.DpEvent:
    """``steps`` Gaussian releases, each on its own Poisson sample of the records (all of them at rate 1)."""
    release: dp_accounting.DpEvent = dp_accounting.GaussianDpEvent(noise_multiplier)
    if checks.rate("sampling_rate", sampling_rate) < 1:
        release = dp_accounting.PoissonSampledDpEvent(sampling_rate, release)
    return dp_accounting.SelfComposedDpEvent(release, checks.count("steps", steps))


def standard_normal(shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    """Independent N(0, 1) on the generator's device."""
    return torch.randn(tuple(shape), generator=generator, device=generator.device)


def scaled(noise: torch.Tensor, scale: float | Vector) -> torch.Tensor:
    """``noise`` times ``scale``, whose coordinates are the last axes of ``noise``."""
    if isinstance(scale, np.ndarray):
        checks.trailing_shape(noise.shape, scale.shape)
        return noise * torch.tensor(scale, dtype=noise.dtype, device=noise.device)
    return noise * scale
