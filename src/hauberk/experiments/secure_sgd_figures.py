"""000 Figs. 4 and 5: accuracy under attack against epsilon; and four certificates on the same votes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hauberk.attacks import Attack, build_attack
from hauberk.errors import RequestError
from hauberk.experiments.parts import remembered, settings_of
from hauberk.experiments.pictures import CLAIMED, OBSERVED, OTHER, PROVEN
from hauberk.experiments.result import Cell, Result, Size
from hauberk.experiments.trained_runs import ALPHA, FigureRun, count_votes, joint_gain, share_at, trained_run
from hauberk.methods.attack_records import AttackRow
from hauberk.methods.attack_runs import attack_run
from hauberk.methods.claims import PublishedRadius
from hauberk.progress import Progress

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CASES = (
    ("secure-sgd", "sound"),
    ("secure-sgd", "paper"),
    ("secure-sgd-agm", "sound"),
    ("secure-sgd-agm", "paper"),
    ("dp-sgd", "sound"),
    ("adlm", "paper"),
)
ATTACKS = ("fgsm", "ifgsm", "mim", "pgd")
RIVALS = {"secure-sgd-agm": "AGM", "dp-sgd": "DP-SGD", "adlm": "AdLM"}
PUBLISHED: dict[str, dict[str, float]] = {
    "mnist": {"secure-sgd-agm": 2.9, "dp-sgd": 10.74},
    "cifar10": {"secure-sgd-agm": 2.7, "dp-sgd": 3.8, "adlm": 17.75},
}
"""By how many points 000 reports Secure-SGD to be above each, mean over attacks and epsilons."""
CERTIFICATES = {
    "tight": ("tight", False),
    "hgm-analytic": ("hgm-analytic", False),
    "hgm": ("hgm", False),
    "hgm, one map": ("hgm", True),
}
"""By name: the formula, and whether the gain is that of one feature map, as published."""
_COLOURS = {"secure-sgd": CLAIMED, "secure-sgd-agm": PROVEN, "dp-sgd": OTHER, "adlm": OBSERVED}
_CURVE = tuple(round(0.02 * place, 2) for place in range(41))


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How large the figure of one data set is. ``radius`` and ``steps`` are the attacks', radius in linf."""

    data: str
    model: str
    epsilons: tuple[float, ...]
    seeds: int
    batch: int
    epochs: float
    radius: float
    steps: int
    attacked: int
    samples: int  # per verdict
    draws: int  # per step of an attack
    certified: int
    certified_samples: int
    robust_epsilon: float


_SETTINGS: dict[Size, tuple[Setting, ...]] = {
    "tiny": (
        Setting(
            data="digits",
            model="small-tanh-cnn",
            epsilons=(2.0,),
            seeds=1,
            batch=128,
            epochs=1.0,
            radius=0.1,
            steps=1,
            attacked=4,
            samples=20,
            draws=2,
            certified=8,
            certified_samples=60,
            robust_epsilon=4.0,
        ),
    ),
    "quick": (
        Setting(
            data="digits",
            model="small-tanh-cnn",
            epsilons=(1.0, 3.0),
            seeds=1,
            batch=1024,
            epochs=8.0,
            radius=0.1,
            steps=10,
            attacked=100,
            samples=200,
            draws=8,
            certified=200,
            certified_samples=500,
            robust_epsilon=4.0,
        ),
    ),
    "full": (
        Setting(
            data="mnist",
            model="paper-mnist-cnn",
            epsilons=(0.5, 1.0, 2.0),
            seeds=2,
            batch=2048,
            epochs=10.0,
            radius=0.1,
            steps=10,
            attacked=500,
            samples=200,
            draws=16,
            certified=1000,
            certified_samples=1000,
            robust_epsilon=4.0,
        ),
        Setting(
            data="cifar10",
            model="paper-cifar-cnn",
            epsilons=(2.0, 8.0),
            seeds=1,
            batch=2048,
            epochs=6.0,
            radius=0.1,  # 0.2 for pixels in [-1, 1]
            steps=3,
            attacked=500,
            samples=200,
            draws=16,
            certified=1000,
            certified_samples=1000,
            robust_epsilon=8.0,
        ),
    ),
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Attacked:
    """One run under all attacks."""

    data: str
    method: str
    variant: str
    epsilon: float
    proven: float | None
    seed: int
    found: tuple[AttackRow, ...]

    @property
    def mean_accuracy(self) -> float:
        """Over the four attacks, as 000 averages."""
        return float(np.mean([row.accuracy for row in self.found if row.attack in ATTACKS]))

    def rows(self) -> Iterator[tuple[Cell, ...]]:
        for row in self.found:
            yield (
                self.data,
                self.method,
                self.variant,
                self.epsilon,
                self.proven,
                self.seed,
                row.attack,
                row.accuracy,
                row.accuracy_low,
                row.accuracy_high,
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class Panels:
    """What is shown of one data set; ``certified``: by certificate, radii where the answer is right."""

    setting: Setting
    attacked: tuple[Attacked, ...]
    certified: dict[str, NDArray[np.float64]]
    gains: dict[str, float]

    def differences(self, variant: str) -> dict[str, float]:
        """Secure-SGD minus each rival, in points, mean over attacks, epsilons and seeds.

        A rival that has only one variant is compared with both of Secure-SGD's.
        """

        def mean(method: str) -> float:
            own = [each for each in self.attacked if each.method == method]
            same = [each for each in own if each.variant == variant] or own
            return float(np.mean([each.mean_accuracy for each in same]))

        return {rival: 100 * (mean("secure-sgd") - mean(rival)) for rival in RIVALS}


def run(size: Size, seed: int, progress: Progress) -> Result:
    """Every data set of this size, one after the other."""
    return _result([_panels(setting, size, seed, progress) for setting in _SETTINGS[size]])


def run_for(data: str, size: Size, seed: int, progress: Progress) -> Result:
    """One of the data sets alone: `run` in pieces."""
    chosen = [setting for setting in _SETTINGS[size] if setting.data == data]
    if not chosen:
        raise RequestError(f"secure-sgd-figures of size {size} have no data set {data!r}: leave it out")
    return _result([_panels(setting, size, seed, progress) for setting in chosen])


def _panels(setting: Setting, size: Size, seed: int, progress: Progress) -> Panels:
    attacked: list[Attacked] = []
    certified: dict[str, NDArray[np.float64]] = {}
    gains: dict[str, float] = {}
    cases = list(product(range(seed, seed + setting.seeds), setting.epsilons, CASES))
    for done, (own_seed, epsilon, (method, variant)) in enumerate(cases):
        progress(f"{setting.data} runs", done, len(cases))
        shown = (own_seed, epsilon, (method, variant)) == (seed, setting.epsilons[-1], CASES[0])
        about: dict[str, Any] = {
            "method": method,
            "variant": variant,
            "seed": own_seed,
            "epsilon": epsilon,
        }
        found = remembered(
            {
                "figure": "secure-sgd-figures",
                "size": size,
                **settings_of(setting),
                **about,
                "certified": shown,
            },
            partial(_case, setting, size, certify=shown, progress=progress, **about),
        )
        rows = tuple(AttackRow(**row) for row in found["rows"])
        attacked.append(Attacked(data=setting.data, proven=found["proven"], found=rows, **about))
        if shown:
            certified = {name: np.array(radii) for name, radii in found["certified"].items()}
            gains = found["gains"]
    progress(f"{setting.data} runs", len(cases), len(cases))
    return Panels(setting=setting, attacked=tuple(attacked), certified=certified, gains=gains)


def _case(
    setting: Setting,
    size: Size,
    *,
    method: str,
    variant: str,
    seed: int,
    epsilon: float,
    certify: bool,
    progress: Progress,
) -> dict[str, Any]:
    """One run, attacked and, if asked for, certified, as JSON."""
    trained = trained_run(
        method,
        variant,
        data=setting.data,
        size=size,
        seed=seed,
        progress=progress,
        model=setting.model,
        batch=setting.batch,
        epochs=setting.epochs,
        epsilon=epsilon,
        robust_epsilon=setting.robust_epsilon if method.startswith("secure-sgd") else None,
    )
    rows = [vars(row) for row in _attacked(trained, setting, progress)]
    radii, gains = _certified(trained, setting, progress) if certify else ({}, {})
    return {
        "proven": trained.proven,
        "rows": rows,
        "certified": {name: each.tolist() for name, each in radii.items()},
        "gains": gains,
    }


def _attacked(trained: FigureRun, setting: Setting, progress: Progress) -> list[AttackRow]:
    built = {name: _attack(name, setting) for name in ATTACKS}
    short = {attack.name: name for name, attack in built.items()}
    found = attack_run(
        trained.run,
        trained.test,
        attacks=list(built.values()),
        norm="linf",
        radii=[setting.radius],
        limit=setting.attacked,
        samples=setting.samples,
        progress=progress,
    )
    return [replace(row, attack=short.get(row.attack, row.attack)) for row in found.table.rows]


def _attack(name: str, setting: Setting) -> Attack:
    """As in 000's code: steps of radius / steps, for Madry's attack too."""
    steps = {} if name == "fgsm" else {"steps": setting.steps}
    return build_attack(name, norm="linf", draws=setting.draws, reach=1.0, **steps)


def _certified(
    trained: FigureRun, setting: Setting, progress: Progress
) -> tuple[dict[str, NDArray[np.float64]], dict[str, float]]:
    """Radii in l2 of one run by every certificate of the figure, from the same votes."""
    votes = count_votes(
        trained, inputs=setting.certified, samples=setting.certified_samples, progress=progress
    )
    published = PublishedRadius(certificate="hgm", one_map=True, source="000 Eq. 10, one feature map")
    gains = {
        "all maps": joint_gain(trained, "l2"),
        "one map": published.gain(trained.classifier, "l2", trained.test.shape),
    }
    radii = {
        name: votes.certified(certificate, gain=gains["one map" if one_map else "all maps"])
        for name, (certificate, one_map) in CERTIFICATES.items()
    }
    return radii, gains


def _result(parts: Sequence[Panels]) -> Result:
    def by_data(value: Callable[[Panels], Any]) -> dict[str, Any]:
        return {part.setting.data: value(part) for part in parts}

    return Result(
        columns=(
            "data",
            "method",
            "variant",
            "epsilon",
            "proven",
            "seed",
            "attack",
            "accuracy",
            "low",
            "high",
        ),
        rows=tuple(row for part in parts for each in part.attacked for row in each.rows()),
        facts={
            "models": by_data(lambda part: part.setting.model),
            "epochs": by_data(lambda part: part.setting.epochs),
            "batch": by_data(lambda part: part.setting.batch),
            "delta": 1e-5,
            "accountant": "PLD",
            "attack_radius_linf": by_data(lambda part: part.setting.radius),
            "attack_radius_linf_of_000": by_data(lambda part: 2 * part.setting.radius),
            "attack_steps": by_data(lambda part: part.setting.steps),
            "published": PUBLISHED,
            "secure_sgd_minus_sound": by_data(lambda part: part.differences("sound")),
            "secure_sgd_minus_as_published": by_data(lambda part: part.differences("paper")),
            "alpha": ALPHA,
            "gains": by_data(lambda part: part.gains),
            "certified_radii": list(_CURVE),
            "certified_accuracy": by_data(
                lambda part: {
                    name: [share_at(radii, mu) for mu in _CURVE] for name, radii in part.certified.items()
                }
            ),
        },
        notes=(
            "accuracy is that of the deployed classifier at attacked inputs, the attacks taking the "
            "expectation over its noise; low and high are its 95 % interval over inputs.",
            "epsilon is what the run is set to claim; proven is what the executed steps prove, and - that "
            "nothing can be proven.",
            "proven holds for unpredictable noise; the noise here is seeded so that figures can be repeated.",
            *(sentence for part in parts for sentence in _compared(part)),
            "000's code attacks the network without its noise; here the attacks know the noise and average "
            "over it.",
            "The steps of all attacks add up to one radius, PGD's too, as in 000's code; longer steps break "
            "more.",
            "Sound secure-sgd takes r from public records and trains on the others, so on fewer than its "
            "rivals.",
            "certified_accuracy is that of the first sound secure-sgd run at the largest epsilon, in l2, "
            "from one count of votes; tight, hgm-analytic and hgm take the gain of all feature maps and "
            "hold, 000 takes that of one map: where its radius is below tight it holds by luck.",
            "Smaller than 000: fewer steps, fewer epsilons, a part of the test set.",
        ),
        draw=lambda figure: _draw(figure, parts),
        upper_bounds=("proven", "high"),
        lower_bounds=("low",),
    )


def _compared(part: Panels) -> Iterator[str]:
    """One sentence for each number that 000 prints."""
    sound, paper = part.differences("sound"), part.differences("paper")
    for rival, points in PUBLISHED.get(part.setting.data, {}).items():
        yield (
            f"{part.setting.data}: 000 reports Secure-SGD {points:g} points above {RIVALS[rival]}; here it "
            f"is {sound[rival]:+.1f} points (sound) and {paper[rival]:+.1f} (as published)."
        )


def _draw(figure: Figure, parts: Sequence[Panels]) -> None:
    figure.set_size_inches(7.2, 1.0 + 3.4 * len(parts))
    panels = figure.subplots(len(parts), 2, squeeze=False)
    for part, (by_epsilon, by_radius) in zip(parts, panels, strict=True):
        _draw_attacked(by_epsilon, part)
        _draw_certified(by_radius, part)
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=2, fontsize="x-small")


def _draw_attacked(axes: Axes, part: Panels) -> None:
    epsilons = part.setting.epsilons
    for method, variant in CASES:
        own = [each for each in part.attacked if (each.method, each.variant) == (method, variant)]
        means = [
            float(np.mean([each.mean_accuracy for each in own if each.epsilon == epsilon]))
            for epsilon in epsilons
        ]
        style: dict[str, Any] = {} if variant == "sound" else {"dashes": (4, 2)}
        label = f"{method}, {'sound' if variant == 'sound' else 'as published'}"
        axes.plot(epsilons, means, color=_COLOURS[method], label=label, marker="o", markersize=3.5, **style)
    axes.set_xscale("log")
    axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    axes.minorticks_off()
    axes.set_ylim(0, 1)
    axes.set_title(f"{part.setting.data}: accuracy, mean over attacks")
    axes.set_xlabel("epsilon that is claimed")


def _draw_certified(axes: Axes, part: Panels) -> None:
    styles: dict[str, dict[str, Any]] = {
        "tight": {"color": PROVEN},
        "hgm-analytic": {"color": PROVEN, "dashes": (4, 2)},
        "hgm": {"color": PROVEN, "dashes": (1, 1.5)},
        "hgm, one map": {"color": CLAIMED, "dashes": (1, 1.5)},
    }
    for name, radii in part.certified.items():
        label = f"{name} (as published)" if CERTIFICATES[name][1] else name
        axes.plot(_CURVE, [share_at(radii, mu) for mu in _CURVE], label=label, **styles[name])
    axes.set_ylim(0, 1)
    axes.set_title(f"{part.setting.data}: certified accuracy of secure-sgd")
    axes.set_xlabel("l2 radius, pixels in [0, 1]")
    axes.legend(fontsize="x-small")
