"""Secure-SGD (000 Algorithm 1): DP-SGD with a heterogeneous noise layer, private and certifiably robust.

    settle r (Eq. 7): where the loss reacts more to h1, h1 gets more noise
    for every step:                                                                     (lines 4-16)
        sample each record by its own coin
        h1 = W1 x + N(0, sigma_r^2 K r), a fresh draw for every record
        clip each record's gradient to C; add up; add N(0, (z C)^2); divide; step; hold the norm of W1
    verified testing: votes under the same noise, label and radius                      (lines 18-23)

Guarantees (sound): training is (epsilon, delta)-differentially private for adding or removing one record
(PLD), the release of r included, or r comes from public records. Each prediction comes with an l2 radius
within which it cannot change, wrong with probability at most alpha (tight certificate, gain of all maps).

As published r is computed from the private training records, without noise; one draw of the noise serves all
records and steps; the gain is that of one feature map. Of the privacy of r nothing can be proven.

Secure-SGD-AGM is the same with even noise: there is no r, and as published its privacy holds.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from hauberk.accounting import Event, GaussianEvent, PrivacyPlan, UnprotectedEvent
from hauberk.certify.first_map import FirstMap
from hauberk.data import Dataset
from hauberk.errors import RequestError
from hauberk.methods import redistribution
from hauberk.methods.base import Constants, Given
from hauberk.methods.claims import ONE_FEATURE_MAP, PublishedRadius
from hauberk.methods.frozen_classifier import FrozenClassifier
from hauberk.methods.noise_layer import NoiseLayerMethod
from hauberk.methods.pixeldp import HGM_BUDGET, scales_from_training_records
from hauberk.methods.settings import TrainSettings
from hauberk.training.plain import train_plainly

LEAKS = "r is computed from the private training records without noise and released with the classifier"
PRE_TRAINING_EPOCHS = 5


class SecureSGDAGM(NoiseLayerMethod):
    """Secure-SGD with even noise. ``frozen``: the network is a denoiser before a classifier that is kept as
    it is. Settings: `NoiseLayerMethod`."""

    name = "secure-sgd-agm"

    def __init__(
        self, model: nn.Module, *, plan: PrivacyPlan, frozen: FrozenClassifier | None = None, **settings: Any
    ) -> None:
        super().__init__(model, plan=plan, **settings)
        self.frozen = frozen

    def check(self, public: Dataset | None, *, shape: tuple[int, ...]) -> None:
        super().check(public, shape=shape)
        if self.frozen:
            self.frozen.check(self.model, public)

    def settle(self, given: Given) -> Constants:
        classifier = self.frozen.settle(given) if self.frozen else {}
        return {**super().settle(given), **classifier}

    def furnish(self, model: nn.Module, constants: Constants) -> None:
        if self.frozen:
            self.frozen.furnish(model, constants)

    @classmethod
    def from_settings(cls, model: nn.Module, settings: TrainSettings, plan: PrivacyPlan) -> SecureSGDAGM:
        paper = settings.variant == "paper"
        method = cls(
            model,
            plan=plan,
            sigma=settings.layer_sigma(HGM_BUDGET, "analytic"),
            **_layer(settings),
            **settings.common(),
        )
        if paper:
            method.published_radius = PublishedRadius(
                certificate="hgm-analytic",
                one_map=True,
                source="000 section 5 (AGM), one feature map",
                reason=ONE_FEATURE_MAP,
            )
        return method


class SecureSGD(SecureSGDAGM):
    """Secure-SGD. ``source`` of r: ``public``, ``private`` (the plan's ``beforehand`` pays for it), or
    ``training-set`` (as published). ``inflation`` is the beta of Eq. 7."""

    name = "secure-sgd"

    def __init__(
        self,
        model: nn.Module,
        *,
        plan: PrivacyPlan,
        source: str = "public",
        inflation: float = 1.0,
        floor: float = redistribution.FLOOR,
        **settings: Any,
    ) -> None:
        if source not in ("public", "private", "training-set"):
            raise RequestError(f"r comes from public, private or training-set, not from {source!r}")
        if (source == "private") != bool(plan.beforehand) and plan.private:
            raise RequestError("a plan pays for a private r beforehand, and for no other")
        super().__init__(model, plan=plan, **settings)
        self.source, self.inflation, self.floor = source, inflation, floor

    @property
    def unprovable(self) -> str | None:
        return LEAKS if self.source == "training-set" else super().unprovable

    @property
    def beforehand(self) -> tuple[Event, ...]:
        return (UnprotectedEvent(),) if self.source == "training-set" else super().beforehand

    def check(self, public: Dataset | None, *, shape: tuple[int, ...]) -> None:
        super().check(public, shape=shape)
        if self.source == "public" and public is None:
            raise RequestError("r comes from public records: give public data, or redistribution private")
        if self.source == "private" and not self.plan.beforehand:
            raise RequestError("without privacy noise nothing is released privately: take r from public data")

    def layer_scales(self, given: Given, first_map: FirstMap, sigma: float) -> Tensor:
        """``sigma_r sqrt(K r)`` with r by Eq. 7."""
        if self.source == "training-set":
            return scales_from_training_records(
                given,
                first_map,
                sigma=sigma,
                inflation=self.inflation,
                floor=self.floor,
                seed=self.seed,
            )
        found = (
            self._private(given, first_map) if self.source == "private" else self._public(given, first_map)
        )
        return redistribution.scales(found, first_map.output_shape, sigma=sigma, floor=self.floor)

    def _public(self, given: Given, first_map: FirstMap) -> Tensor:
        assert given.public is not None  # checked
        if self.frozen is None:  # else the classifier has seen the public records already
            train_plainly(
                given.model,
                given.public.x,
                given.public.y,
                epochs=PRE_TRAINING_EPOCHS,
                seed=self.seed,
                progress=given.progress,
            )
        return redistribution.mean_vulnerability(
            given.model, first_map.name, first_map.output_shape, given.public, inflation=self.inflation
        )

    def _private(self, given: Given, first_map: FirstMap) -> Tensor:
        return redistribution.private_vulnerability(
            given.model,
            first_map.name,
            first_map.output_shape,
            given.private,
            inflation=self.inflation,
            event=self.plan.beforehand[0],
            randomness=given.randomness,
        )

    @classmethod
    def from_settings(cls, model: nn.Module, settings: TrainSettings, plan: PrivacyPlan) -> SecureSGD:
        paper = settings.variant == "paper"
        method = cls(
            model,
            plan=plan,
            sigma=settings.layer_sigma(HGM_BUDGET, "extended" if paper else "analytic"),
            source="training-set" if paper else settings.redistribution_source,
            inflation=settings.inflation,
            floor=redistribution.PUBLISHED_FLOOR if paper else redistribution.FLOOR,
            **_layer(settings),
            **settings.common(),
        )
        if paper:
            method.published_radius = PublishedRadius(
                certificate="hgm", one_map=True, source="000 Eq. 10, one feature map", reason=ONE_FEATURE_MAP
            )
        return method


def _layer(settings: TrainSettings) -> dict[str, Any]:
    """As published: one draw of the noise for everything, and nothing holds W1's norm."""
    sound = settings.variant == "sound"
    return {
        "views": settings.views if sound else 1,
        "held": sound,
        "shared_noise": not sound,
        "frozen": FrozenClassifier.from_settings(settings),
    }


def sound_plan(settings: TrainSettings, *, records: int) -> PrivacyPlan:
    """The plan with the cost of a private r in it."""
    beforehand: tuple[GaussianEvent, ...] = ()
    if settings.redistribution_source == "private" and not settings.no_privacy:
        beforehand = (redistribution.private_event(epsilon=settings.epsilon, delta=settings.delta),)
    return settings.plan(records=records, beforehand=beforehand)
