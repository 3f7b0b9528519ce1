"""Privacy noise on a clipped sum: the Gaussian mechanism, drawn from the run's randomness."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from hauberk.accounting import Event, PrivacyPlan
from hauberk.gradients import AdaptiveClip, ClippedSum, Clipping
from hauberk.mechanisms import AnalyticGaussian
from hauberk.randomness import Randomness


@dataclass(frozen=True, kw_only=True)
class Released:
    """What a step gives away."""

    gradients: dict[str, Tensor]
    count_normal: float | None  # the standard normal beside the count of an adaptive clipping

    @classmethod
    def with_noise(cls, clipped: ClippedSum, noise: Tensor) -> Released:
        """The sum with ``noise`` on it, one long vector for all parameters one after the other."""
        parts = noise.split([part.numel() for part in clipped.gradients.values()])
        noisy = {
            name: (part.double() + each.view_as(part)).to(part.dtype)
            for (name, part), each in zip(clipped.gradients.items(), parts, strict=True)
        }
        return cls(gradients=noisy, count_normal=None)


class StepNoise(Protocol):
    """What `PrivateTrainer` asks of a noise."""

    looks_at_records: bool  # one that does needs all of them in one process

    def events(self, steps: int) -> tuple[Event, ...]:
        """What ``steps`` steps release, known before the first of them runs."""

    def deviation(self, sensitivity: float) -> float:
        """Of the noise on a coordinate of the sum (where it differs by coordinate: of a typical one)."""

    def release(self, clipped: ClippedSum, step: int) -> Released:
        """Add noise; what is returned may be published."""

    def state(self) -> dict[str, Tensor]:
        """What must survive an interruption, as named tensors that are written in place on restoring."""


class SumNoise:
    """Adds ``N(0, (noise multiplier * sensitivity)^2)`` to every coordinate of a clipped sum.

    Guarantee: a step releases no more than one Gaussian release with the plan's noise multiplier. Where the
    clipping also releases a count from the same sample, the gradient's noise is raised so that both together
    are that one release.
    """

    looks_at_records = False

    def __init__(self, plan: PrivacyPlan, clipping: Clipping, randomness: Randomness) -> None:
        self._plan, self._clipping, self._randomness = plan, clipping, randomness
        self._counts = isinstance(clipping, AdaptiveClip) and plan.private
        self.noise_multiplier = plan.noise_multiplier
        if isinstance(clipping, AdaptiveClip) and plan.private:
            self.noise_multiplier = clipping.gradient_noise_multiplier(plan.noise_multiplier)

    @cached_property
    def _of_unit_sums(self) -> AnalyticGaussian:
        return AnalyticGaussian.of_multiplier(
            noise_multiplier=self.noise_multiplier, sensitivity=1.0, delta=self._plan.delta
        )

    def events(self, steps: int) -> tuple[Event, ...]:
        return (self._plan.event(steps=steps),)

    def deviation(self, sensitivity: float) -> float:
        """Of the noise on every coordinate of the sum."""
        return self.noise_multiplier * sensitivity

    def state(self) -> dict[str, Tensor]:
        return {}

    def mechanism(self, sensitivity: float) -> AnalyticGaussian:
        """The mechanism for a sum of this sensitivity."""
        sigma = self.deviation(sensitivity)
        return replace(self._of_unit_sums, sensitivity=sensitivity, sigma=sigma)

    def release(self, clipped: ClippedSum, step: int) -> Released:
        if not self._plan.private:
            count_normal = 0.0 if isinstance(self._clipping, AdaptiveClip) else None
            return Released(gradients=clipped.gradients, count_normal=count_normal)
        parts = list(clipped.gradients.values())
        sums = torch.cat([part.flatten() for part in parts])  # a few large steps, not many small ones
        normals = self._randomness.normals(step=step, count=len(sums) + self._counts, device=sums.device)
        noise = self.mechanism(clipped.sensitivity).shaped(normals[: len(sums)])
        noisy = (sums.double() + noise).to(sums.dtype).split([part.numel() for part in parts])
        return Released(
            gradients={
                name: each.view_as(part).to(part.dtype)
                for (name, part), each in zip(clipped.gradients.items(), noisy, strict=True)
            },
            count_normal=float(normals[-1]) if self._counts else None,
        )
