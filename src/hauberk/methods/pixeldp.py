"""PixelDP (Lecuyer et al. 2019) and HGM-PixelDP (000): a noise layer, and no privacy of the training records.

    for every step: noise after the first map, a fresh draw for every record; an ordinary gradient step
    predict by votes under the same noise; the votes certify a radius

PixelDP spreads its noise evenly, HGM-PixelDP by 000's vector r. Neither protects who was in the data, so r is
taken from the training records in both variants, and the card says so.

Guarantee (both variants): each prediction comes with an l2 radius within which it cannot change, wrong with
probability at most alpha. As published the radius is another one: PixelDP's formula holds and gives less;
000's takes one feature map for all of them and does not hold.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from hauberk.accounting import Event, PrivacyPlan, UnprotectedEvent
from hauberk.certify.first_map import FirstMap
from hauberk.methods.base import Given
from hauberk.methods.claims import ONE_FEATURE_MAP, PublishedRadius
from hauberk.methods.noise_layer import NoiseLayerMethod
from hauberk.methods.redistribution import FLOOR, PUBLISHED_FLOOR, mean_vulnerability, scales
from hauberk.methods.robustness_budget import RobustnessBudget
from hauberk.methods.settings import TrainSettings
from hauberk.training.loop import NO_CLIP
from hauberk.training.plain import train_plainly

NO_PRIVACY = "this method does not protect its training records: secure-sgd does"
BUDGET = RobustnessBudget(epsilon=1.0, delta=0.05, size=0.1)
HGM_BUDGET = RobustnessBudget(epsilon=4.0, delta=1e-5, size=0.1)  # 0.2 for pixels in [-1, 1], as in 000
PRE_TRAINING_EPOCHS = 2


class PixelDP(NoiseLayerMethod):
    """PixelDP. ``views`` noisy copies of a record are averaged in a step. Settings: `NoiseLayerMethod`."""

    name = "pixeldp"

    @property
    def unprovable(self) -> str | None:
        return NO_PRIVACY

    @classmethod
    def from_settings(cls, model: nn.Module, settings: TrainSettings, plan: PrivacyPlan) -> PixelDP:
        sigma = settings.layer_sigma(BUDGET, "classical")
        method = cls(model, plan=plan, sigma=sigma, views=settings.views, **_common(settings))
        if settings.variant == "paper":
            method.published_radius = PublishedRadius(
                certificate="pixeldp", one_map=False, source="PixelDP: epsilon_r <= 1, classical calibration"
            )
        return method


class HGMPixelDP(PixelDP):
    """PixelDP with 000's heterogeneous noise; ``inflation`` is the beta of Eq. 7, ``floor`` the least share
    of uniform noise on an output."""

    name = "hgm-pixeldp"

    def __init__(
        self,
        model: nn.Module,
        *,
        plan: PrivacyPlan,
        inflation: float = 1.0,
        floor: float = FLOOR,
        **settings: Any,
    ) -> None:
        super().__init__(model, plan=plan, **settings)
        self.inflation, self.floor = inflation, floor

    @property
    def beforehand(self) -> tuple[Event, ...]:
        return (UnprotectedEvent(),)  # r, whatever the plan says

    def layer_scales(self, given: Given, first_map: FirstMap, sigma: float) -> Tensor:
        return scales_from_training_records(
            given, first_map, sigma=sigma, inflation=self.inflation, floor=self.floor, seed=self.seed
        )

    @classmethod
    def from_settings(cls, model: nn.Module, settings: TrainSettings, plan: PrivacyPlan) -> HGMPixelDP:
        paper = settings.variant == "paper"
        method = cls(
            model,
            plan=plan,
            sigma=settings.layer_sigma(HGM_BUDGET, "extended" if paper else "analytic"),
            views=settings.views,
            inflation=settings.inflation,
            floor=PUBLISHED_FLOOR if paper else FLOOR,
            **_common(settings),
        )
        if paper:
            method.published_radius = PublishedRadius(
                certificate="hgm", one_map=True, source="000 Eq. 10, one feature map", reason=ONE_FEATURE_MAP
            )
        return method


def scales_from_training_records(
    given: Given, first_map: FirstMap, *, sigma: float, inflation: float, floor: float, seed: int
) -> Tensor:
    """000 Eq. 7 with a network trained on the records, as published: unprotected."""
    train_plainly(
        given.model,
        given.private.x,
        given.private.y,
        epochs=PRE_TRAINING_EPOCHS,
        seed=seed,
        stage="pre-training",
        progress=given.progress,
    )
    found = mean_vulnerability(
        given.model, first_map.name, first_map.output_shape, given.private, inflation=inflation
    )
    return scales(found, first_map.output_shape, sigma=sigma, floor=floor)


def _common(settings: TrainSettings) -> dict[str, Any]:
    """Nothing is clipped where nothing is protected."""
    return {**settings.common(), "clipping": NO_CLIP, "claimed_epsilon": None}
