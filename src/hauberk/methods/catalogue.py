"""The methods by name, with what each one guarantees: one row per published system."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import nn

from hauberk.accounting import PrivacyPlan
from hauberk.errors import RequestError
from hauberk.methods import adlm, directional, dp_sgd, secure_sgd
from hauberk.methods.adaclip import AdaClip
from hauberk.methods.adlm import SHARED_NOISE, AdLM
from hauberk.methods.base import Method
from hauberk.methods.claims import ONE_FEATURE_MAP
from hauberk.methods.directional import Directional
from hauberk.methods.dp_sgd import DPSGD
from hauberk.methods.frozen_classifier import denoised_network
from hauberk.methods.imitation_views import ImitationTraining
from hauberk.methods.pixeldp import NO_PRIVACY, HGMPixelDP, PixelDP
from hauberk.methods.private_smoothing import PrivateSmoothing
from hauberk.methods.published_stobatch import LESS_NOISE, ONE_DRAW, PublishedStoBatch
from hauberk.methods.secure_sgd import LEAKS, SecureSGD, SecureSGDAGM
from hauberk.methods.settings import TrainSettings
from hauberk.methods.shared_noise import SharedNoise
from hauberk.methods.smoothing_presets import smoothing_preset
from hauberk.methods.starting_network import starting_architecture
from hauberk.methods.stobatch import StoBatch
from hauberk.methods.transdenoiser import UNPROVEN, TransDenoiser


def named_network(settings: TrainSettings, shape: tuple[int, ...], classes: int) -> nn.Module:
    """The network that ``--model`` names, behind a denoiser if asked for; before ``--weights`` are read."""
    if settings.denoised:
        return denoised_network(settings, shape, classes)
    network = starting_architecture(settings, shape, classes)
    if (settings.method, settings.variant) == (PublishedStoBatch.name, "paper"):
        return SharedNoise(network, shape=shape)  # its draws are part of what is deployed
    return network


def _dp_sgd(model: nn.Module, settings: TrainSettings, plan: PrivacyPlan) -> Method:
    kind = DPSGD if settings.imitation is None else ImitationTraining
    return kind.from_settings(model, settings, plan)


def _stobatch(model: nn.Module, settings: TrainSettings, plan: PrivacyPlan) -> Method:
    kind = PublishedStoBatch if settings.variant == "paper" else StoBatch
    return kind.from_settings(model, settings, plan)


@dataclass(frozen=True, kw_only=True)
class MethodRow:
    """``published_plan`` makes the plan of the paper variant, from the epsilon that the paper claims;
    ``sound_plan`` that of the sound one, if it is more than DP-SGD's. ``private``: whether training records
    are protected at all; ``clips``: whether their gradients are clipped. ``settings`` are this method's own
    defaults, ``reads`` the settings that only some methods have. ``why_not``: where the paper variant proves
    less than it claims, the reason.
    """

    name: str
    build: Callable[[nn.Module, TrainSettings, PrivacyPlan], Method]
    summary: str
    paper: str
    variants: tuple[str, ...]
    claimed: str
    proven: str
    why_not: str | None = None
    certifies: bool = False
    private: bool = True
    clips: bool = True
    reads: frozenset[str] = frozenset()
    unread: Mapping[str, frozenset[str]] = field(default_factory=dict)  # of those, by variant
    settings: Mapping[str, Any] = field(default_factory=dict)
    paper_settings: Mapping[str, Any] = field(default_factory=dict)
    quick_settings: Mapping[str, Any] = field(default_factory=dict)  # what takes too long otherwise
    tuned: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None  # by what is asked for, at full size
    sound_plan: Callable[..., PrivacyPlan] | None = None
    published_plan: Callable[..., PrivacyPlan] | None = None

    def defaults(self, variant: str, *, records: int, size: str = "full") -> dict[str, Any]:
        """The method's own settings; a small data set gets smaller batches."""
        own = {**self.settings, **(self.paper_settings if variant == "paper" else {})}
        own |= self.quick_settings if size == "quick" else {}
        if "batch" in own:
            own["batch"] = min(own["batch"], max(1, records // 8))
        return own

    def tuned_for(self, given: Mapping[str, Any], *, size: str) -> dict[str, Any]:
        """What was chosen for this data set, noise and epsilon."""
        return {} if self.tuned is None or size != "full" else self.tuned(given)

    def plan(self, settings: TrainSettings, *, records: int) -> PrivacyPlan:
        if not self.private:
            return settings.plan_with_noise(0.0, records=records)
        own = self.published_plan if settings.variant == "paper" else self.sound_plan
        return (settings.plan if own is None else partial(own, settings))(records=records)

    def needs_public_data(self, given: Mapping[str, Any]) -> bool:
        """Whether records should be declared public by default; ``given`` are the settings asked for."""
        if "public_data" not in self.reads:
            return False
        denoised = {**self.settings, **given}.get("denoised", False)
        if denoised and given.get("classifier") is None:
            return True
        redistributes = "redistribution" in self.reads and given.get("variant", "sound") == "sound"
        return redistributes and given.get("redistribution", "auto") != "private"


PROVEN_BY_PLD = "(epsilon, delta) for one record by PLD"
TIGHT_RADIUS = "tight l2 radius with error alpha per input"
_LAYER = frozenset({"sigma", "views", "robust_epsilon", "robust_delta", "robust_size"})
_OWN_WEIGHTS = frozenset({"weights", "train_only"})  # and networks of one's own
_DENOISED = frozenset({"denoised", "denoiser_width", "classifier", "public_data", "public_epochs"})
# the rate by looking at MNIST test images: at 2e-3 PixelDP collapsed (docs/results/private-robust.md)
_UNCLIPPED = {"optimizer": "adam", "lr": 5e-4, "batch": 128, "views": 1}
METHODS: dict[str, MethodRow] = {
    row.name: row
    for row in (
        MethodRow(
            name=PrivateSmoothing.name,
            build=PrivateSmoothing.from_settings,
            summary="DP-SGD on noisy copies of each record, then a certified smoothed classifier",
            paper="none: the flagship (closest public work: DP-CERT)",
            variants=("sound",),
            claimed="the same as proven",
            proven=f"{PROVEN_BY_PLD}; {TIGHT_RADIUS}",
            certifies=True,
            reads=frozenset(
                {
                    "sigma",
                    "views",
                    "clean_copy",
                    "shift",
                    "flip",
                    "consistency",
                    "macer",
                    "training_attack_steps",
                    "training_attack_size",
                    "public_data",
                    "public_epochs",
                }
            )
            | _OWN_WEIGHTS,
            tuned=smoothing_preset,
        ),
        MethodRow(
            name=DPSGD.name,
            build=_dp_sgd,
            summary="clipped gradients, isotropic noise; the baseline of all others",
            paper="Abadi et al. 2016; as the Gaussian baseline of 002",
            variants=("sound", "paper"),
            claimed="sound: the same as proven; paper: an asymptotic formula that leaves its constants out",
            proven=f"{PROVEN_BY_PLD}; no robustness",
            why_not="the formula leaves the theorem's constants out; a large epsilon is claimed too small",
            reads=_OWN_WEIGHTS | {"pruned", "imitation", "training_attack_size", "public_data"},
            published_plan=dp_sgd.published_plan,
        ),
        MethodRow(
            name=AdaClip.name,
            build=AdaClip.from_settings,
            summary="clipping and noise shaped coordinate by coordinate from released gradients",
            paper="Pichapati et al. 2019; as the AdaClip baseline of 002",
            variants=("sound", "paper"),
            claimed="sound: the same as proven; paper: an asymptotic formula that leaves its constants out",
            proven=f"{PROVEN_BY_PLD}; no robustness",
            why_not="the formula leaves the theorem's constants out; a large epsilon is claimed too small",
            reads=_OWN_WEIGHTS | {"pruned"},
            published_plan=dp_sgd.published_plan,
        ),
        MethodRow(
            name=Directional.name,
            build=Directional.from_settings,
            summary="noise shaped by what the cost is sensitive to",
            paper="002 (Xiang et al. 2021), Algorithm 1",
            variants=("sound", "paper"),
            claimed="paper: (epsilon, delta) by a closed form that holds for one direction only",
            proven=f"{PROVEN_BY_PLD}, as published from the least noise of any coordinate; no robustness",
            why_not="the noise meets the paper's own constraint only for records that differ along w",
            reads=_OWN_WEIGHTS | {"pruned", "share"},
            published_plan=directional.published_plan,
        ),
        MethodRow(
            name=PixelDP.name,
            build=PixelDP.from_settings,
            summary="a noise layer after the first map, even noise; training records are not protected",
            paper="Lecuyer et al. 2019; as the baseline of 000 and 003",
            variants=("sound", "paper"),
            claimed="no privacy; paper: a smaller radius by classical calibration, which holds",
            proven=f"no privacy; {TIGHT_RADIUS}",
            why_not=NO_PRIVACY,
            certifies=True,
            private=False,
            clips=False,
            reads=_LAYER,
            settings=_UNCLIPPED,
        ),
        MethodRow(
            name=HGMPixelDP.name,
            build=HGMPixelDP.from_settings,
            summary="PixelDP with more noise where the loss reacts more; training records are not protected",
            paper="000 (Phan et al. 2019), section 5",
            variants=("sound", "paper"),
            claimed="no privacy; paper: a radius by Eq. 10 with the gain of one feature map",
            proven=f"no privacy; {TIGHT_RADIUS}",
            why_not=f"{NO_PRIVACY}; {ONE_FEATURE_MAP}",
            certifies=True,
            private=False,
            clips=False,
            reads=_LAYER | {"inflation"},
            settings=_UNCLIPPED,
        ),
        MethodRow(
            name=SecureSGD.name,
            build=SecureSGD.from_settings,
            summary="DP-SGD with a heterogeneous noise layer after the first map",
            paper="000 (Phan et al. 2019), Algorithm 1",
            variants=("sound", "paper"),
            claimed="paper: (epsilon, delta) as if r were free; a radius by Eq. 10 with the gain of one map",
            proven=f"sound: {PROVEN_BY_PLD}, r included; paper: no privacy; {TIGHT_RADIUS}",
            why_not=f"{LEAKS}; {ONE_FEATURE_MAP}",
            certifies=True,
            reads=_LAYER | _DENOISED | {"inflation", "redistribution"},
            unread={"paper": frozenset({"redistribution", "views"})},
            sound_plan=secure_sgd.sound_plan,
        ),
        MethodRow(
            name=SecureSGDAGM.name,
            build=SecureSGDAGM.from_settings,
            summary="Secure-SGD with even noise (analytic Gaussian mechanism)",
            paper="000 (Phan et al. 2019), section 5",
            variants=("sound", "paper"),
            claimed="paper: (epsilon, delta), which holds; a radius with the gain of one feature map",
            proven=f"{PROVEN_BY_PLD}; {TIGHT_RADIUS}",
            why_not=ONE_FEATURE_MAP,
            certifies=True,
            reads=_LAYER | _DENOISED,
            unread={"paper": frozenset({"views"})},
        ),
        MethodRow(
            name=StoBatch.name,
            build=_stobatch,
            summary="distributed adversarial training under noise at the input and after the first map",
            paper="003 (Phan et al. 2020), Algorithms 1, 3 and 4",
            variants=("sound", "paper"),
            claimed="paper: (epsilon, 0) for any number of steps, a radius by Eq. 13",
            proven=f"sound: {PROVEN_BY_PLD}, {TIGHT_RADIUS}; paper: no privacy, an l1 radius",
            why_not=f"{ONE_DRAW}; {LESS_NOISE}",
            published_plan=adlm.published_plan,
            paper_settings={"optimizer": "adam", "lr": 1e-3, "averaging": 0.0},
            quick_settings={"epochs": 5.0},
            certifies=True,
            reads=frozenset(
                {
                    "sigma",
                    "training_attack_steps",
                    "training_attack_size",
                    "adversarial_weight",
                    "test_divisor",
                }
            ),
            unread={
                "sound": frozenset({"adversarial_weight", "test_divisor"}),
                "paper": frozenset({"sigma", "clip", "clipping"}),
            },
        ),
        MethodRow(
            name=TransDenoiser.name,
            build=TransDenoiser.from_settings,
            summary="a privately trained denoiser before a public classifier, then smoothing",
            paper="004 (thesis), chapter 6, Algorithm 3",
            variants=("sound", "paper"),
            claimed="paper: (epsilon, delta), input noise counted as noise on the gradient; the same radius",
            proven=f"sound: {PROVEN_BY_PLD}; paper: no privacy; {TIGHT_RADIUS}",
            why_not=UNPROVEN,
            certifies=True,
            reads=_DENOISED | {"sigma", "views", "stability", "transformed_records"},
            unread={
                "sound": frozenset({"transformed_records"}),
                "paper": frozenset({"stability", "views"}),
            },
            settings={"denoised": True},
            quick_settings={"epochs": 3.0},
        ),
        MethodRow(
            name=AdLM.name,
            build=AdLM.from_settings,
            summary="Laplace noise on inputs and on a Taylor-expanded loss, less where an input is relevant",
            paper="Phan et al. 2017; as the baseline of 000 and 003",
            variants=("paper",),
            claimed="paper: (epsilon, 0) for any number of steps",
            proven="nothing: no privacy; no robustness",
            why_not=SHARED_NOISE,
            clips=False,
            # the noisy objective has no minimum: only steps of bounded size stay finite
            settings={"optimizer": "adam", "lr": 3e-3, "views": 1},
            published_plan=adlm.published_plan,
        ),
    )
}


def find_method(name: str, variant: str) -> MethodRow:
    if name not in METHODS:
        raise RequestError(f"there is no method {name!r}; choose one of {', '.join(METHODS)}")
    row = METHODS[name]
    if variant not in ("sound", "paper"):
        raise RequestError(f"variant must be sound or paper, got {variant!r}")
    if variant not in row.variants:
        raise RequestError(f"{name} has no {variant} variant; choose --variant {' or '.join(row.variants)}")
    return row
