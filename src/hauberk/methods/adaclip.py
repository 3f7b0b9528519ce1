"""AdaClip (Pichapati et al. 2019): clipping and noise shaped coordinate by coordinate.

    for every step:
        centre each record's gradient by the running mean of released gradients, divide by the scales s,
        clip to l2 norm C; add up, add N(0, (z C)^2), divide by a constant, multiply by s, add the mean back
        update mean and scales, s_i ~ m_i^(1/4), from what was released

Guarantee: that of DP-SGD with the same noise multiplier. Mean and scales are functions of released gradients;
wrong ones cost accuracy only. As published in 002 the noise comes from its asymptotic formula (see `dp_sgd`).
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from hauberk.accounting import PrivacyPlan
from hauberk.methods.base import Method
from hauberk.methods.dp_sgd import PUBLISHED_CLAIM
from hauberk.methods.settings import TrainSettings
from hauberk.training.shaping import AdaClipShaping, Shaping


class AdaClip(Method):
    """DP-SGD in AdaClip's geometry. Settings: `Method`."""

    name = "adaclip"

    def shaping(self, weights: Mapping[str, Tensor]) -> Shaping:
        return AdaClipShaping(weights, self.moments)

    @classmethod
    def from_settings(cls, model: nn.Module, settings: TrainSettings, plan: PrivacyPlan) -> AdaClip:
        method = cls(model, plan=plan, **settings.common())
        if settings.variant == "paper":
            method.claim_source = PUBLISHED_CLAIM
        return method
