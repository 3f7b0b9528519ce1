"""Directional noise (002): more noise where the cost minds it less.

As published (Algorithm 1), for every step:
    w~ = mean gradient over all records, clipped to alpha, plus isotropic noise from a share of the budget
    sample a lot; clip each record's gradient to alpha; add up
    add N(0, sigma_i^2), sigma_i = alpha sqrt(sum_j |w_j|^(4/3) / (tau |w|^2)) |w_i|^(1/3); divide; step
With share 0 the paper's "w = 1": no w~, and isotropic noise alpha / sqrt(tau).

That noise meets the paper's own privacy constraint only for records that differ along w. A record that
differs where |w_i| is small meets almost no noise: proven is what the least noise of any coordinate allows.

Sound: the same pipeline as DP-SGD in a geometry with s_i ~ (m_i / |w_i|)^(1/3), the paper's first-order
condition with the typical square m_i of a gradient coordinate in place of the worst case, which clipping
supplies. m and w come from released gradients and cost nothing. Guarantee: that of DP-SGD.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from hauberk.accounting import Event, GaussianEvent, PrivacyPlan, split_budget
from hauberk.errors import RequestError
from hauberk.gradients import ClippedSum, trainable
from hauberk.mechanisms import EpsilonDelta
from hauberk.mechanisms.optimized_additive import squared_loss_budget
from hauberk.methods.base import Method
from hauberk.methods.settings import TrainSettings
from hauberk.training import PrivateTrainer
from hauberk.training.noise import Released, StepNoise
from hauberk.training.shaping import DirectionalShaping, Shaping

CLAIM = "002 Theorem 1: closed-form directional noise, budget (epsilon/q, delta/q) over all lots"
LEAST_WEIGHT = 1e-6
"""|w_i| is taken to be at least this part of the largest: without a floor nothing could be proven at all."""
REFRESH = 5
"""Lots between two releases of w~ (the authors' code; the text says every lot, at the cost of a pass over
all records each time)."""


class Directional(Method):
    """Directional noise, sound or as published; then ``share`` of the claimed budget goes to w~."""

    name = "directional"
    share = 1 / 8

    def shaping(self, weights: Mapping[str, Tensor]) -> Shaping | None:
        return DirectionalShaping(weights, self.moments) if self.variant == "sound" else None

    def noise(self, trainer: PrivateTrainer) -> StepNoise:
        if self.variant == "sound" or not self.share:
            return trainer.noise  # the plan's, isotropic
        assert self.claimed_epsilon is not None
        total = EpsilonDelta(epsilon=self.claimed_epsilon, delta=self.plan.delta)
        return PublishedNoise(trainer, total=total, share=self.share)

    @classmethod
    def from_settings(cls, model: nn.Module, settings: TrainSettings, plan: PrivacyPlan) -> Directional:
        method = cls(model, plan=plan, **settings.common())
        if settings.variant == "paper":
            method.claim_source, method.share = CLAIM, settings.share
        return method


def published_plan(settings: TrainSettings, *, records: int) -> PrivacyPlan:
    """The plan with the noise of "w = 1", ``z = 1 / sqrt(tau)``, from the budget left to the gradients."""
    if settings.epsilon is None:
        raise RequestError("--variant paper needs --epsilon, the epsilon that the paper would claim")
    plan = settings.plan_with_noise(1.0, records=records)
    total = EpsilonDelta(epsilon=settings.epsilon, delta=settings.delta)
    for_gradients = split_budget(total, share=settings.share)[1] if settings.share else total
    tau = squared_loss_budget(for_gradients, steps=plan.steps, sampling_rate=plan.sampling_rate)
    return replace(plan, noise_multiplier=tau**-0.5)


class PublishedNoise:
    """Noise of Algorithm 1 on the *sum* of a lot; a new w~ every `REFRESH` lots.

    Proven, for neighbours that differ by one record: each lot is a Gaussian release with noise multiplier
    ``LEAST_WEIGHT^(1/3) / sqrt(tau)`` (for |w| <= 1 the sum of |w|^(4/3) is at least that of w^2), each w~
    one with sensitivity 2 alpha: a mean that is clipped to alpha can be anywhere in that ball.
    """

    looks_at_records = True

    def __init__(self, trainer: PrivateTrainer, *, total: EpsilonDelta, share: float) -> None:
        plan = trainer.plan
        for_weights, for_gradients = split_budget(total, share=share)
        self._trainer, self._alpha = trainer, trainer.clipping.sensitivity
        self._tau = squared_loss_budget(for_gradients, steps=plan.steps, sampling_rate=plan.sampling_rate)
        self._weights_noise = squared_loss_budget(for_weights, steps=plan.steps) ** -0.5  # times alpha
        weights = list(trainable(trainer.model).values())
        self._deviations = torch.zeros(
            sum(each.numel() for each in weights), dtype=torch.float64, device=weights[0].device
        )  # all zero: not known yet

    def events(self, steps: int) -> tuple[Event, ...]:
        plan = self._trainer.plan
        lots = GaussianEvent(
            noise_multiplier=LEAST_WEIGHT ** (1 / 3) * self._tau**-0.5,
            sampling_rate=plan.sampling_rate,
            count=steps,
        )
        refreshes = -(-steps // REFRESH) + 1  # a period may begin anywhere
        return lots, GaussianEvent(noise_multiplier=self._weights_noise / 2, count=refreshes)

    def deviation(self, sensitivity: float) -> float:
        return float(sensitivity * self._tau**-0.5)

    def release(self, clipped: ClippedSum, step: int) -> Released:
        size, device = len(self._deviations), self._deviations.device
        refresh = step % REFRESH == 0 or not bool(self._deviations.any())
        normals = self._trainer.randomness.normals(
            step=step, count=size * (2 if refresh else 1), device=device
        )
        if refresh:
            self._deviations.copy_(self._shape(normals[size:]))
        return Released.with_noise(clipped, self._deviations * normals[:size])

    def state(self) -> dict[str, Tensor]:
        return {"deviations": self._deviations}

    def _shape(self, normals: Tensor) -> Tensor:
        """Lines 4, 5 and 12 of Algorithm 1: a noisy w~, and from it sigma for every coordinate."""
        mean = self._trainer.mean_gradient().double()
        clipped = mean / max(1.0, float(mean.norm()) / self._alpha)
        noisy = clipped + self._alpha * self._weights_noise * normals
        size = (noisy.abs() / noisy.abs().amax()).clamp_min(LEAST_WEIGHT)
        common = (size.pow(4 / 3).sum() / (self._tau * size.square().sum())).sqrt()
        shape: Tensor = self._alpha * common * size.pow(1 / 3)
        return shape
