"""003 Figs. 8 and 9: accuracy under attacks of 100 to 2,000 steps, StoBatch beside Secure-SGD."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

from hauberk.attacks import Attack, build_attack
from hauberk.errors import RequestError
from hauberk.experiments.pictures import CLAIMED, PROVEN
from hauberk.experiments.result import Result, Size
from hauberk.experiments.stobatch_measures import (
    BY_PROOF,
    CLEAN,
    COLUMNS,
    DEPLOYED,
    PUBLISHED_WAY,
    Accuracy,
    Measured,
    Training,
    attacked,
    attacked_as_published,
    certified,
    mean_of,
    measured_case,
)
from hauberk.experiments.trained_runs import ALPHA, FigureRun
from hauberk.progress import Progress

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METHODS = {"stobatch": PROVEN, "secure-sgd": CLAIMED}
"""The sound variants, and their colours."""
ATTACKS = ("ifgsm", "pgd")
L2_RADII = (0.1, 0.25, 0.5)
PUBLISHED: dict[str, dict[str, dict[str, float]]] = {
    "cifar10": {
        "stobatch": {"attacked": 0.4525, "certified": 0.4259},
        "secure-sgd": {"attacked": 0.2908, "certified": 0.1958},
    },
    "tiny_imagenet": {
        "stobatch": {"attacked": 0.2978, "certified": 0.2831},
        "secure-sgd": {"attacked": 0.0899, "certified": 0.0872},
    },
}
"""Means over six sizes of mu (0.05 to 0.5, pixels in [-1, 1]) and four numbers of steps (100 to 2,000)."""

FROM_NOTHING = (
    "003 starts its Tiny ImageNet network from weights trained on ImageNet and has thirty classes with "
    "45,000 augmented pictures; here ten classes with 2,000 pictures are trained from nothing."
)


@dataclass(frozen=True, kw_only=True)
class Setting(Training):
    """How large the figure of one data set is; ``radii`` are linf, ``steps`` those of each attack in turn."""

    epsilon: float
    radii: tuple[float, ...]
    steps: tuple[int, ...]
    seeds: int
    attacked: int
    samples: int  # per verdict
    draws: int  # per step of an attack
    certified: int
    certified_samples: int

    def attacks(self) -> dict[str, Attack]:
        return {
            f"{name} {steps}": build_attack(name, norm="linf", draws=self.draws, steps=steps)
            for name, steps in product(ATTACKS, self.steps)
        }


_SETTINGS: dict[Size, tuple[Setting, ...]] = {
    "tiny": (
        Setting(
            data="digits",
            model="mlp",
            epsilon=2.0,
            radii=(0.1,),
            steps=(2, 4),
            seeds=1,
            batch=128,
            epochs=1.0,
            training_attack_steps=1,
            attacked=4,
            samples=20,
            draws=2,
            certified=8,
            certified_samples=60,
        ),
    ),
    "quick": (
        Setting(
            data="digits",
            model="small-tanh-cnn",
            epsilon=3.0,
            radii=(0.1,),
            steps=(10, 100),
            seeds=1,
            batch=1024,
            epochs=4.0,
            training_attack_steps=2,
            attacked=20,
            samples=100,
            draws=4,
            certified=100,
            certified_samples=300,
        ),
    ),
    "full": (
        Setting(
            data="cifar10",
            model="paper-cifar-cnn",
            epsilon=2.0,
            radii=(0.025, 0.1),
            steps=(100, 500, 2000),
            seeds=1,
            batch=2048,
            epochs=6.0,
            training_attack_steps=10,
            attacked=100,
            samples=200,
            draws=8,
            certified=300,
            certified_samples=1000,
        ),
        Setting(
            data="tiny_imagenet",
            model="resnet-18",
            epsilon=5.0,
            radii=(0.025, 0.1),
            steps=(100, 500, 2000),
            seeds=1,
            batch=256,
            epochs=20.0,
            training_attack_steps=10,
            attacked=50,
            samples=200,
            draws=8,
            certified=200,
            certified_samples=500,
        ),
    ),
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Panel:
    """All that was measured of one data set."""

    setting: Setting
    measured: tuple[Measured, ...]

    def mean(
        self, method: str, measure: str, *, steps: int | None = None, radius: float | None = None
    ) -> float:
        """Over attacks, radii, numbers of steps and seeds, where none is given. ``measure`` clean: as is."""
        return mean_of(
            self.measured,
            lambda each: (
                (each.method, each.found.measure, each.found.norm) == (method, measure, "linf")
                and (each.found.attack in ATTACKS or each.found.attack is None)
                and steps in (None, each.found.steps)
                and radius in (None, each.found.radius)
            ),
        )

    def by_steps(self, measure: str) -> dict[str, dict[str, float]]:
        """By method and number of steps."""
        return {
            method: {str(steps): self.mean(method, measure, steps=steps) for steps in self.setting.steps}
            for method in METHODS
        }


def run(size: Size, seed: int, progress: Progress) -> Result:
    """Every data set of this size, one after the other."""
    return _result([_panel(setting, size, seed, progress) for setting in _SETTINGS[size]])


def run_for(data: str, size: Size, seed: int, progress: Progress) -> Result:
    """One of the data sets alone: `run` in pieces."""
    chosen = [setting for setting in _SETTINGS[size] if setting.data == data]
    if not chosen:
        raise RequestError(f"stobatch-strong of size {size} has no data set {data!r}: leave it out")
    return _result([_panel(setting, size, seed, progress) for setting in chosen])


def _panel(setting: Setting, size: Size, seed: int, progress: Progress) -> Panel:
    cases = list(product(range(seed, seed + setting.seeds), METHODS))
    measured: list[Measured] = []
    for done, (own_seed, method) in enumerate(cases):
        progress(f"{setting.data} runs", done, len(cases))
        measured += measured_case(
            "stobatch-strong",
            setting,
            method,
            "sound",
            epsilon=setting.epsilon,
            size=size,
            seed=own_seed,
            measure=partial(_found, setting=setting, progress=progress),
            progress=progress,
        )
    progress(f"{setting.data} runs", len(cases), len(cases))
    return Panel(setting=setting, measured=tuple(measured))


def _found(trained: FigureRun, setting: Setting, progress: Progress) -> Iterator[Accuracy]:
    shot: dict[str, Any] = {
        "radii": setting.radii,
        "inputs": setting.attacked,
        "samples": setting.samples,
        "progress": progress,
    }
    names = {f"{name} {steps}": name for name, steps in product(ATTACKS, setting.steps)}
    for way in (attacked, attacked_as_published):
        for found in way(trained, setting.attacks(), **shot):
            yield replace(found, attack=names.get(found.attack or "", found.attack))
    yield from certified(
        trained,
        {"linf": setting.radii, "l2": L2_RADII},
        inputs=setting.certified,
        samples=setting.certified_samples,
        progress=progress,
    )


def _result(parts: Sequence[Panel]) -> Result:
    settings = {part.setting.data: part.setting for part in parts}
    return Result(
        columns=COLUMNS,
        rows=tuple(each.row() for part in parts for each in part.measured),
        facts={
            "models": {data: each.model for data, each in settings.items()},
            "epochs": {data: each.epochs for data, each in settings.items()},
            "training_attack_steps": {data: each.training_attack_steps for data, each in settings.items()},
            "draws_per_step": {data: each.draws for data, each in settings.items()},
            "delta": 1e-5,
            "accountant": "PLD",
            "alpha": ALPHA,
            "published": {data: PUBLISHED[data] for data in settings if data in PUBLISHED},
            "accuracy_by_steps": {part.setting.data: part.by_steps(DEPLOYED) for part in parts},
            "accuracy_by_steps_as_published": {
                part.setting.data: part.by_steps(PUBLISHED_WAY) for part in parts
            },
        },
        notes=(
            "attacked: accuracy of the deployed classifier under attacks that take the expectation over its "
            "noise; attacked as published: at points made on the network without noise, away from its own "
            "answers; low and high are the 95 % interval over inputs.",
            "An attack of more steps takes shorter ones; what it finds need not include what one of fewer "
            "steps found.",
            "radius is for pixels in [0, 1], radius_of_003 the same perturbation for pixels in [-1, 1].",
            "certified: share of right answers with at least this radius on clean inputs; sound variants "
            "claim what is proven.",
            "proven holds for unpredictable noise; the noise here is seeded so that figures can be repeated.",
            *(sentence for part in parts for sentence in _compared(part)),
            "003's certified accuracies are for attacked inputs and by another formula than its Eq. 13; what "
            "Gaussian noise proves in linf shrinks with the root of the number of pixels.",
            *((FROM_NOTHING,) if "tiny_imagenet" in settings else ()),
            "Smaller than 003: fewer radii and steps, fewer epochs, a part of the test set.",
        ),
        draw=lambda figure: _draw(figure, parts),
        upper_bounds=("proven", "high"),
        lower_bounds=("low",),
    )


def _compared(part: Panel) -> Iterator[str]:
    for method, printed in PUBLISHED.get(part.setting.data, {}).items():
        here = {
            "attacked": part.mean(method, DEPLOYED),
            "published": part.mean(method, PUBLISHED_WAY),
            "certified": part.mean(method, BY_PROOF),
        }
        shares = {name: f"{100 * value:.1f} %" for name, value in here.items()}
        yield (
            f"{part.setting.data}: 003 reports {100 * printed['attacked']:g} % conventional and "
            f"{100 * printed['certified']:g} % certified accuracy for {method}, mean over sizes and steps; "
            f"here it is {shares['attacked']} under attack, {shares['published']} under the published "
            f"attacks, and {shares['certified']} certified by proof in linf."
        )


def _draw(figure: Figure, parts: Sequence[Panel]) -> None:
    radii = max(len(part.setting.radii) for part in parts)
    figure.set_size_inches(3.6 * max(2, radii), 1.0 + 3.2 * len(parts))
    panels = figure.subplots(len(parts), radii, squeeze=False, sharey=True)
    for part, row in zip(parts, panels, strict=True):
        for radius, axes in zip(part.setting.radii, row, strict=True):
            _draw_radius(axes, part, radius)
        row[0].set_ylabel("accuracy")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=2, fontsize="x-small")


def _draw_radius(axes: Axes, part: Panel, radius: float) -> None:
    steps = part.setting.steps
    for method, colour in METHODS.items():
        for measure, style in ((DEPLOYED, {}), (PUBLISHED_WAY, {"dashes": (4, 2)})):
            shown = [part.mean(method, measure, steps=each, radius=radius) for each in steps]
            more: dict[str, Any] = {"marker": "o", "markersize": 3, **style}
            axes.plot(steps, shown, color=colour, label=f"{method}, {measure}", **more)
        axes.axhline(part.mean(method, CLEAN), color=colour, linewidth=0.8, dashes=(1, 2))
    axes.set_xscale("log")
    axes.set_xticks(steps, [f"{each:,}" for each in steps])
    axes.minorticks_off()
    axes.set_ylim(0, 1)
    axes.set_title(f"{part.setting.data}, linf {radius:g} (dotted: no attack)")
    axes.set_xlabel("steps of the attack")
