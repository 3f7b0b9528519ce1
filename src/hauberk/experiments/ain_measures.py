"""What 004's experiments with imitation networks share: classifier, networks, and how they are judged.

Test inputs are looked at once, at the end; bounds, roll-backs and the choice of an epoch go by validation
inputs, a tenth of the training records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from hauberk.attacks import build_attack
from hauberk.attacks.imitation import (
    PAPER,
    SMALL,
    AINSettings,
    Architecture,
    BoundSchedule,
    Examples,
    Recipe,
    TrainedAIN,
    evaluate,
    imitated_examples,
    train_ain,
)
from hauberk.attacks.imitation.classifier import THESIS, accuracy
from hauberk.attacks.imitation.evaluation import Craft, Quality, attack_crafter, imitation_crafter
from hauberk.attacks.imitation.target import Inputs, load_inputs, trained_classifier
from hauberk.experiments.result import Cell, Size
from hauberk.progress import Progress

if TYPE_CHECKING:
    from matplotlib.axes import Axes

UNTARGETED, TARGETED = "untargeted", "targeted"
COLOURS = ("#1f5fa8", "#c2571a", "#7a3e9d", "#2e7d4f", "#7f7f7f", "#a8891f", "#4aa3a3", "#b03a5b", "#555555")


@dataclass(frozen=True, kw_only=True)
class Target:
    """The classifier to attack: which network, on which records, for how long."""

    data: str
    network: str
    epochs: int
    batch: int
    most: int | None = None
    most_tests: int | None = None


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How large an experiment is. ``radii``: where success is measured; ``steps``: of I-FGSM when it attacks;
    ``seeds``: how many."""

    target: Target
    ain: AINSettings
    aim: int
    radii: tuple[float, ...]
    steps: int
    rivals: int  # epochs of ATN and AdvGAN
    seeds: int = 1

    def about(self, experiment: str, seed: int, **more: Any) -> dict[str, Any]:
        """What a finished part depends on: not the number of seeds, each of which is a part."""
        own = {name: value for name, value in asdict(self).items() if name not in ("seeds",)}
        return {"experiment": experiment, "setting": own, "seed": seed, **more}


_DIGITS = Target(data="digits", network="small-tanh-cnn", epochs=4, batch=128, most=3500, most_tests=500)
SETTINGS: dict[Size, Setting] = {
    "tiny": Setting(
        target=Target(data="digits", network="logistic", epochs=2, batch=32, most=80, most_tests=24),
        ain=AINSettings(
            architecture=Architecture(widths=(2, 2, 2, 2)),
            schedule=BoundSchedule(decay="none", initial=0.3, final=0.3),
            recipe=Recipe(radius=0.3, steps=2),
            epochs=1,
            batch=48,
        ),
        aim=8,
        radii=(0.3,),
        steps=2,
        rivals=1,
    ),
    "quick": Setting(
        target=_DIGITS,
        ain=replace(
            SMALL.within(0.2),
            schedule=replace(SMALL.schedule, final=0.2, rate=0.25, most_rollbacks=0),
            epochs=10,
        ),
        aim=8,
        radii=(0.2, 0.25, 0.3),
        steps=50,
        rivals=6,
    ),
    "full": Setting(
        target=Target(data="mnist", network=THESIS, epochs=15, batch=256),
        ain=PAPER,
        aim=8,
        radii=(0.2, 0.22, 0.25, 0.3, 0.35, 0.4),
        steps=50,
        rivals=20,
    ),
}
"""Of the experiments on digits: ``quick`` is minutes on two cores, ``full`` MNIST on a GPU."""
SHORTER: dict[Size, Setting] = {
    **SETTINGS,
    "full": replace(
        SETTINGS["full"],
        ain=replace(PAPER, schedule=replace(PAPER.schedule, rate=0.15), epochs=40),
        radii=(0.2, 0.25, 0.3, 0.4),
    ),
}
"""The same with fewer epochs, where many networks are compared with each other."""


def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@lru_cache(maxsize=2)
def inputs_of(target: Target) -> Inputs:
    return load_inputs(target.data, most=target.most, most_tests=target.most_tests, device=device())


@lru_cache(maxsize=4)
def classifier_of(target: Target, seed: int) -> nn.Module:
    return trained_classifier(
        target.network, inputs_of(target), epochs=target.epochs, batch=target.batch, seed=seed
    )


@lru_cache(maxsize=2)
def examples_of(target: Target, aim: int | None, recipe: Recipe, seed: int) -> Examples:
    """Made once for all networks that imitate them."""
    x, y = inputs_of(target).train
    return imitated_examples(classifier_of(target, seed), x, y, target=aim, recipe=recipe, seed=seed)


def trained_ain(
    setting: Setting, aim: int | None, seed: int, progress: Progress, settings: AINSettings | None = None
) -> TrainedAIN:
    settings = settings or setting.ain
    inputs, model = inputs_of(setting.target), classifier_of(setting.target, seed)
    imitates = bool(settings.weights.imitation)
    return train_ain(
        model,
        *inputs.train,
        validation=inputs.validation,
        classes=inputs.classes,
        target=aim,
        settings=settings,
        examples=examples_of(setting.target, aim, settings.recipe, seed) if imitates else None,
        seed=seed,
        progress=progress,
    )


def ifgsm_crafter(setting: Setting, seed: int, *, radius: float, aim: int | None) -> Craft:
    """The thesis' rival: so many steps of ``radius / steps``, no random start; broken inputs stop."""
    attack = build_attack("ifgsm", steps=setting.steps)
    return attack_crafter(attack, classifier_of(setting.target, seed), radius=radius, target=aim, seed=seed)


def cw_crafter(setting: Setting, seed: int, *, radius: float, aim: int | None) -> Craft:
    """C&W's loss in l_inf, with four times as many steps."""
    attack = build_attack("cw", norm="linf", steps=4 * setting.steps)
    return attack_crafter(attack, classifier_of(setting.target, seed), radius=radius, target=aim, seed=seed)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One attack at one radius; plain numbers, so that a part can be kept as JSON."""

    part: str
    attack: str
    seed: int
    radius: float
    distance: float
    success: float
    low: float
    high: float
    as_published: float
    milliseconds: float
    attacked: int

    @classmethod
    def of(cls, quality: Quality, *, part: str, attack: str, seed: int, radius: float) -> Measured:
        low, high = quality.interval
        return cls(
            part=part,
            attack=attack,
            seed=seed,
            radius=radius,
            distance=quality.distance,
            success=quality.success,
            low=low,
            high=high,
            as_published=quality.as_published,
            milliseconds=1000 * quality.seconds,
            attacked=quality.attacked,
        )


COLUMNS = (
    "part", "attack", "seed", "radius", "distance", "success", "low", "high", "as_published",
    "thesis", "milliseconds", "thesis_milliseconds",
)  # fmt: skip
MEASURED = ("milliseconds",)


def row_of(each: Measured, thesis: tuple[float, float] | None = None) -> tuple[Cell, ...]:
    """With the thesis' success and milliseconds beside, where it has them."""
    printed: tuple[Cell, Cell] = (None, None) if thesis is None else thesis
    return (
        each.part,
        each.attack,
        each.seed,
        each.radius,
        each.distance,
        each.success,
        each.low,
        each.high,
        each.as_published,
        printed[0],
        each.milliseconds,
        printed[1],
    )


def measure(
    setting: Setting, crafters: Mapping[tuple[str, float], Craft], *, part: str, aim: int | None, seed: int
) -> Iterator[Measured]:
    """Every crafter, by its attack's name and its radius, on the test inputs."""
    inputs, model = inputs_of(setting.target), classifier_of(setting.target, seed)
    for (name, radius), craft in crafters.items():
        quality = evaluate(model, *inputs.test, craft, target=aim)
        yield Measured.of(quality, part=part, attack=name, seed=seed, radius=radius)


def at_radii(
    trained: TrainedAIN, radii: Sequence[float], name: str, seed: int
) -> dict[tuple[str, float], Craft]:
    """The network at all radii that it is good for."""
    bound = trained.imitation.bound
    return {
        (name, radius): imitation_crafter(trained.imitation, radius=radius, seed=seed)
        for radius in radii
        if radius >= bound * (1 - 1e-9)
    }


def accuracies(setting: Setting, seed: int) -> dict[str, float]:
    """Of the classifier without any attack."""
    inputs, model = inputs_of(setting.target), classifier_of(setting.target, seed)
    return {
        "validation": accuracy(model, *inputs.validation),
        "test": accuracy(model, *inputs.test),
    }


def draw_curves(axes: Axes, measured: Sequence[Measured], title: str) -> None:
    """Success against the radius, one line per attack, mean over seeds; dots where there is one radius."""
    attacks = list(dict.fromkeys(each.attack for each in measured))
    for place, attack in enumerate(attacks):
        own = [each for each in measured if each.attack == attack]
        radii = sorted({each.radius for each in own})
        means = [
            sum(each.success for each in own if each.radius == radius)
            / sum(1 for each in own if each.radius == radius)
            for radius in radii
        ]
        axes.plot(radii, means, color=COLOURS[place % len(COLOURS)], marker="o", markersize=3, label=attack)
    axes.set_title(title)
    axes.set_xlabel("l_inf radius")
    axes.set_ylabel("success on test inputs")


COUNTING = (
    "success counts test inputs that are answered rightly and are not of the target class already; "
    "as_published counts as the thesis' code does: all inputs, those that were wrong before or of the target "
    "class included; low and high are the exact 95 % interval of success."
)
TIMES = (
    "milliseconds are per example, made in batches, and depend on the machine; the thesis had a GTX 1080 Ti."
)
