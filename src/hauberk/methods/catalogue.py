"""The methods by name, with what each one guarantees: one row per published system."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from hauberk.accounting import PrivacyPlan
from hauberk.errors import RequestError
from hauberk.methods import directional, dp_sgd
from hauberk.methods.adaclip import AdaClip
from hauberk.methods.base import Method
from hauberk.methods.directional import Directional
from hauberk.methods.dp_sgd import DPSGD
from hauberk.methods.private_smoothing import PrivateSmoothing
from hauberk.methods.settings import TrainSettings


@dataclass(frozen=True, kw_only=True)
class MethodRow:
    """``published_plan`` makes the plan of the paper variant, from the epsilon that the paper claims."""

    name: str
    build: Callable[[nn.Module, TrainSettings, PrivacyPlan], Method]
    summary: str
    paper: str
    variants: tuple[str, ...]
    claimed: str
    proven: str
    certifies: bool = False
    published_plan: Callable[..., PrivacyPlan] | None = None

    def plan(self, settings: TrainSettings, *, records: int) -> PrivacyPlan:
        if settings.variant == "paper" and self.published_plan is not None:
            return self.published_plan(settings, records=records)
        return settings.plan(records=records)


PROVEN_BY_PLD = "(epsilon, delta) for one record by PLD"
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
            proven=f"{PROVEN_BY_PLD}; tight l2 radius with error alpha per input",
            certifies=True,
        ),
        MethodRow(
            name=DPSGD.name,
            build=DPSGD.from_settings,
            summary="clipped gradients, isotropic noise; the baseline of all others",
            paper="Abadi et al. 2016; as the Gaussian baseline of 002",
            variants=("sound", "paper"),
            claimed="sound: the same as proven; paper: an asymptotic formula that leaves its constants out",
            proven=f"{PROVEN_BY_PLD}; no robustness",
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
            published_plan=directional.published_plan,
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
