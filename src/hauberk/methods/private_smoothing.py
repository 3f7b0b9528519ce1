"""Private smoothing: DP-SGD on noisy copies of each record, then a certified smoothed classifier.

    for every step:
        sample each record by its own coin
        for every sampled record: average the loss over K noisy copies, take its gradient, clip it once
        add the clipped gradients and Gaussian noise, divide by a constant, take a momentum step
    release the averaged weights; predict by majority vote under the same input noise

Guarantees: training is (epsilon, delta)-differentially private for adding or removing one record (PLD). Each
prediction comes with an l2 radius within which it cannot change, wrong with probability at most alpha.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from hauberk.accounting import PrivacyPlan
from hauberk.certify import NoiseLayers
from hauberk.errors import RequestError
from hauberk.methods.base import Constants, Method
from hauberk.methods.settings import TrainSettings
from hauberk.training import NoisyViews


class PrivateSmoothing(Method):
    """``sigma`` is both the noise of the training copies and that of the smoothed classifier; ``views``
    copies of a record are averaged before its gradient is clipped. Other settings: `Method`."""

    name = "private-smoothing"

    def __init__(
        self, model: nn.Module, *, plan: PrivacyPlan, sigma: float, views: int = 1, **settings: Any
    ) -> None:
        if not 0 < sigma < float("inf"):
            raise RequestError(f"sigma must be positive, got {sigma}: without noise there is no certificate")
        super().__init__(model, plan=plan, views=NoisyViews(sigma=sigma, views=views), **settings)
        self.sigma = sigma

    def noise_layers(self, constants: Constants) -> NoiseLayers:
        return NoiseLayers(at_input=self.sigma)

    @classmethod
    def from_settings(cls, model: nn.Module, settings: TrainSettings, plan: PrivacyPlan) -> PrivateSmoothing:
        return cls(model, plan=plan, sigma=settings.input_sigma, views=settings.views, **settings.common())
