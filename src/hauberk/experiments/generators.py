"""002's noise generators, as published and sound, trained in 002's settings: what its figures compare."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from hauberk.accounting import CurvePoint, Event, PrivacyPlan, prove
from hauberk.data import Split
from hauberk.experiments.pictures import CLAIMED, OBSERVED, OTHER, PROVEN
from hauberk.methods.base import Method
from hauberk.methods.catalogue import find_method
from hauberk.methods.presets import preset
from hauberk.methods.settings import TrainSettings, merge_settings
from hauberk.methods.training import build_method, load_split

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, kw_only=True)
class Generator:
    """One of 002's four ways to make noise, by its name there."""

    name: str
    method: str
    variant: str
    settings: dict[str, Any] = field(default_factory=dict)
    colour: str = OTHER

    @property
    def label(self) -> str:
        return f"{self.name}, {'as published' if self.variant == 'paper' else 'sound'}"


GENERATORS = (
    Generator(name="gaussian", method="dp-sgd", variant="paper", colour=OTHER),
    Generator(name="adaclip", method="adaclip", variant="paper", colour=OBSERVED),
    Generator(name="w = 1", method="directional", variant="paper", settings={"share": 0.0}, colour=PROVEN),
    Generator(name="directional", method="directional", variant="paper", colour=CLAIMED),
    Generator(name="gaussian", method="dp-sgd", variant="sound", colour=OTHER),
    Generator(name="adaclip", method="adaclip", variant="sound", colour=OBSERVED),
    Generator(name="directional", method="directional", variant="sound", colour=CLAIMED),
)
SOUND = tuple(each for each in GENERATORS if each.variant == "sound")


@lru_cache(maxsize=4)
def _split(data: str, size: str) -> Split:
    return load_split(TrainSettings(data=data, size=size))


@dataclass(frozen=True, kw_only=True)
class Trained:
    """``proven`` holds for the same run without its noise seed; seeded noise is for repeating figures."""

    generator: Generator
    plan: PrivacyPlan
    proven: float | None  # None: nothing can be proven
    curve: tuple[CurvePoint, ...]

    @property
    def accuracies(self) -> list[float]:
        return [point.test_accuracy for point in self.curve if point.test_accuracy is not None]


def settings_for(generator: Generator, *, data: str, size: str, seed: int, **changes: Any) -> TrainSettings:
    """002's Table 1 where nothing else is said: LeNet, lot 512, clip 0.1, momentum 0.9."""
    basis = preset(data, size, records=_split(data, size).records, image=True)
    published: dict[str, Any] = {
        "model": "lenet",
        "batch": 512,
        "clip": 0.1,
        "lr": 2.0,
        "views": 1,
        "method": generator.method,
        "variant": generator.variant,
        "seed": seed,
        "noise_seed": seed,
        **generator.settings,
    }
    return merge_settings(basis, published, changes)


def prepare(generator: Generator, settings: TrainSettings) -> tuple[Method, Split]:
    split = _split(settings.data, settings.size)
    plan = find_method(settings.method, settings.variant).plan(settings, records=split.records)
    return build_method(settings, split, plan), split


def proven_epsilon_of(events: Sequence[Event], delta: float) -> float | None:
    epsilon = prove(events, delta).epsilon
    return epsilon if math.isfinite(epsilon) else None


def train(generator: Generator, settings: TrainSettings) -> Trained:
    method, split = prepare(generator, settings)
    run = method.fit(split.train, test=split.test)
    return Trained(
        generator=generator,
        plan=method.plan,
        proven=proven_epsilon_of(run.ledger.events, settings.delta),
        curve=run.curve,
    )


def draw_line(axes: Axes, generator: Generator, x: Sequence[float], y: Sequence[float]) -> None:
    dashes: dict[str, Any] = {} if generator.variant == "sound" else {"dashes": (4, 2)}
    axes.plot(x, y, color=generator.colour, label=generator.label, marker="o", markersize=3, **dashes)
