"""DP-SGD (Abadi et al. 2016): the baseline that 002 calls Gaussian.

    for every step:
        sample each record by its own coin; clip each record's gradient to l2 norm C
        add the clipped gradients and N(0, (z C)^2) to every coordinate, divide by a constant, take a step

Guarantee (sound): (epsilon, delta)-differential privacy for adding or removing one record, with the noise
multiplier ``z`` that PLD needs for it.

As published in 002 the noise comes from an asymptotic formula, ``z = 2 q sqrt(k ln(1/delta)) / epsilon`` for
k steps at rate q, and the claim is the formula's epsilon. It is the moments accountant's theorem with its
constants left out: too much noise at small epsilon, far too little at large (claimed 10 is proven 45).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from torch import nn

from hauberk.accounting import PrivacyPlan
from hauberk.errors import RequestError
from hauberk.gradients import RecordLoss, mean_cross_entropy
from hauberk.methods.base import Method, refuse_other_losses
from hauberk.methods.settings import TrainSettings

PUBLISHED_CLAIM = "002's Gaussian baseline: z = 2 q sqrt(k ln(1/delta)) / epsilon"


def asymptotic_noise(*, epsilon: float, delta: float, sampling_rate: float, steps: int) -> float:
    """002's noise multiplier for its Gaussian and AdaClip baselines."""
    return 2 * sampling_rate * math.sqrt(steps * math.log(1 / delta)) / epsilon


def published_plan(settings: TrainSettings, *, records: int) -> PrivacyPlan:
    """The plan whose noise comes from `asymptotic_noise` for the claimed epsilon."""
    if settings.epsilon is None:
        raise RequestError("--variant paper needs --epsilon, the epsilon that the paper would claim")
    plan = settings.plan_with_noise(1.0, records=records)
    noise = asymptotic_noise(
        epsilon=settings.epsilon, delta=settings.delta, sampling_rate=plan.sampling_rate, steps=plan.steps
    )
    return replace(plan, noise_multiplier=noise)


class DPSGD(Method):
    """DP-SGD without views and without a promise of robustness.

    ``loss`` is any per-record loss (`hauberk.gradients.RecordLoss`), a function of one record and the network
    alone; a `ScoreLoss` can go the fast path. Other settings: `Method`.
    """

    name = "dp-sgd"

    def __init__(
        self, model: nn.Module, *, plan: PrivacyPlan, loss: RecordLoss = mean_cross_entropy, **settings: Any
    ) -> None:
        refuse_other_losses(loss)
        super().__init__(model, plan=plan, **settings)
        self.loss = loss

    def record_loss(self, shape: tuple[int, ...], classes: int) -> RecordLoss:
        return self.loss

    @classmethod
    def from_settings(cls, model: nn.Module, settings: TrainSettings, plan: PrivacyPlan) -> DPSGD:
        method = cls(model, plan=plan, **settings.common())
        if settings.variant == "paper":
            method.claim_source = PUBLISHED_CLAIM
        return method
