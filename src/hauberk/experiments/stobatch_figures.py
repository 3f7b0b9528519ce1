"""003 Figs. 2 to 7: accuracy under four attacks and certified accuracy, against epsilon and mu.

2, 3   conventional accuracy against epsilon, at mu = 0.2 for pixels in [-1, 1]
4, 5   conventional accuracy against mu
6, 7   certified accuracy against mu
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

from hauberk.attacks import Attack, build_attack
from hauberk.certify import Norm
from hauberk.errors import RequestError
from hauberk.experiments.pictures import CLAIMED, OBSERVED, OTHER, PROVEN
from hauberk.experiments.result import Result, Size
from hauberk.experiments.stobatch_measures import (
    BY_CLAIM,
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
from hauberk.methods.attack_records import WORST_CASE
from hauberk.methods.catalogue import find_method
from hauberk.progress import Progress

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CASES = (
    ("stobatch", "sound"),
    ("stobatch", "paper"),
    ("secure-sgd", "sound"),
    ("secure-sgd-agm", "sound"),
    ("dp-sgd", "sound"),
    ("adlm", "paper"),
    ("pixeldp", "sound"),
)
ATTACKS = ("fgsm", "ifgsm", "mim", "pgd")
L2_RADII = (0.25, 0.5, 1.0)
RIVALS = {"secure-sgd": "SecureSGD", "secure-sgd-agm": "SecureSGD-AGM", "adlm": "AdLM", "dp-sgd": "DP-SGD"}
PUBLISHED: dict[str, dict[str, Any]] = {
    "mnist": {
        "accuracy_at_mu_0.2": {
            "epsilon 0.2": {"stobatch": 0.827, "secure-sgd": 0.4164, "secure-sgd-agm": 0.112},
            "epsilon 2": {"stobatch": 0.8959, "secure-sgd": 0.7864, "secure-sgd-agm": 0.441},
        },
        "gain": {"secure-sgd": 22.36, "secure-sgd-agm": 46.84, "adlm": 56.21, "dp-sgd": 77.26},
        "gain_over_mu_at_epsilon_0.2": {
            "secure-sgd": 44.91,
            "secure-sgd-agm": 61.13,
            "adlm": 52.21,
            "dp-sgd": 62.2,
        },
        "certified_at_epsilon_1_from_mu_0.05_to_0.6": {
            "stobatch": [0.8429, 0.7241],
            "pixeldp": [0.9419, 0.0908],
            "secure-sgd": [0.8674, 0.0799],
            "secure-sgd-agm": [0.8723, 0.0526],
        },
    },
    "cifar10": {
        "accuracy_of_stobatch_from_epsilon_2_to_10": [0.4202, 0.4676],
        "gain": {"secure-sgd": 10.42, "secure-sgd-agm": 14.08, "adlm": 29.22, "dp-sgd": 14.62},
        "certified_gain_over_secure_sgd_at_epsilon_2": 21.01,
    },
}
"""What 003 prints: accuracies are shares; gains are points by which StoBatch is above, over attacks and
epsilons at mu = 0.2 unless said otherwise; mu is for pixels in [-1, 1]."""
_COLOURS = {
    "stobatch": PROVEN,
    "secure-sgd": CLAIMED,
    "secure-sgd-agm": "#e0a458",
    "dp-sgd": OTHER,
    "adlm": OBSERVED,
    "pixeldp": "#2b2b2b",
}


@dataclass(frozen=True, kw_only=True)
class Setting(Training):
    """How large the figures of one data set are. ``radii`` (linf) and ``steps`` are those of the attacks;
    over epsilon the figures show ``usual_radius``, over mu the largest epsilon."""

    epsilons: tuple[float, ...]
    radii: tuple[float, ...]
    usual_radius: float
    seeds: int
    steps: int
    attacked: int
    samples: int  # per verdict
    draws: int  # per step of an attack
    certified: int
    certified_samples: int

    def attacks(self) -> dict[str, Attack]:
        """As in 003's code: steps of radius / steps, for Madry's attack too."""
        settings: dict[str, Any] = {"norm": "linf", "draws": self.draws, "reach": 1.0}
        return {
            name: build_attack(name, **settings, **({} if name == "fgsm" else {"steps": self.steps}))
            for name in ATTACKS
        }


_SETTINGS: dict[Size, tuple[Setting, ...]] = {
    "tiny": (
        Setting(
            data="digits",
            model="mlp",
            epsilons=(2.0,),
            radii=(0.1,),
            usual_radius=0.1,
            seeds=1,
            batch=128,
            epochs=1.0,
            training_attack_steps=1,
            steps=1,
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
            epsilons=(1.0, 3.0),
            radii=(0.1,),
            usual_radius=0.1,
            seeds=1,
            batch=1024,
            epochs=4.0,
            training_attack_steps=1,
            steps=10,
            attacked=40,
            samples=100,
            draws=4,
            certified=100,
            certified_samples=300,
        ),
    ),
    "full": (
        Setting(
            data="mnist",
            model="small-tanh-cnn",
            epsilons=(0.2, 1.0, 2.0),
            radii=(0.025, 0.1, 0.3),
            usual_radius=0.1,
            seeds=2,
            batch=2048,
            epochs=10.0,
            training_attack_steps=5,
            steps=10,
            attacked=500,
            samples=200,
            draws=16,
            certified=500,
            certified_samples=1000,
        ),
        Setting(
            data="cifar10",
            model="paper-cifar-cnn",
            epsilons=(2.0, 10.0),
            radii=(0.025, 0.1, 0.25),
            usual_radius=0.1,
            seeds=1,
            batch=2048,
            epochs=4.0,
            training_attack_steps=3,
            steps=3,
            attacked=300,
            samples=200,
            draws=16,
            certified=300,
            certified_samples=500,
        ),
    ),
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Panels:
    """All that was measured of one data set."""

    setting: Setting
    measured: tuple[Measured, ...]

    def mean(
        self,
        case: tuple[str, str],
        measure: str,
        radius: float,
        *,
        epsilon: float | None = None,
        norm: Norm = "linf",
    ) -> float:
        """Over the four attacks and the seeds; without ``epsilon`` over all epsilons too."""
        return mean_of(
            self.measured,
            lambda each: (
                (each.case, each.found.measure) == (case, measure)
                and (each.found.norm, each.found.radius) == (norm, radius)
                and each.found.attack != WORST_CASE
                and epsilon in (None, each.epsilon)
            ),
        )

    def gains(self, variant: str, measure: str) -> dict[str, float]:
        """StoBatch minus each rival in points, at the usual radius."""
        rivals = {method: next(each for each in CASES if each[0] == method) for method in RIVALS}
        own = self.mean(("stobatch", variant), measure, self.setting.usual_radius)
        return {
            method: 100 * (own - self.mean(case, measure, self.setting.usual_radius))
            for method, case in rivals.items()
        }

    def all_gains(self) -> dict[str, dict[str, float]]:
        ways = {"attacked": DEPLOYED, "as_published": PUBLISHED_WAY}
        return {
            f"{variant}_{way}": self.gains(variant, measure)
            for variant, (way, measure) in product(("sound", "paper"), ways.items())
        }


def run(size: Size, seed: int, progress: Progress) -> Result:
    """Every data set of this size, one after the other."""
    return _result([_panels(setting, size, seed, progress) for setting in _SETTINGS[size]])


def run_for(data: str, size: Size, seed: int, progress: Progress) -> Result:
    """One of the data sets alone: `run` in pieces."""
    chosen = [setting for setting in _SETTINGS[size] if setting.data == data]
    if not chosen:
        raise RequestError(f"stobatch-figures of size {size} have no data set {data!r}: leave it out")
    return _result([_panels(setting, size, seed, progress) for setting in chosen])


def _panels(setting: Setting, size: Size, seed: int, progress: Progress) -> Panels:
    measured: list[Measured] = []
    seeds = range(seed, seed + setting.seeds)
    cases = [
        (own_seed, epsilon, case)
        for own_seed, epsilon, case in product(seeds, setting.epsilons, CASES)
        if find_method(*case).private or epsilon == setting.epsilons[0]  # the others do not depend on it
    ]
    for done, (own_seed, epsilon, case) in enumerate(cases):
        progress(f"{setting.data} runs", done, len(cases))
        measured += measured_case(
            "stobatch-figures",
            setting,
            *case,
            epsilon=epsilon,
            size=size,
            seed=own_seed,
            measure=partial(_found, setting=setting, progress=progress),
            progress=progress,
        )
    progress(f"{setting.data} runs", len(cases), len(cases))
    return Panels(setting=setting, measured=tuple(measured))


def _found(trained: FigureRun, setting: Setting, progress: Progress) -> Iterator[Accuracy]:
    for way in (attacked, attacked_as_published):
        yield from way(
            trained,
            setting.attacks(),
            radii=setting.radii,
            inputs=setting.attacked,
            samples=setting.samples,
            progress=progress,
        )
    yield from certified(
        trained,
        {"linf": setting.radii, "l2": L2_RADII},
        inputs=setting.certified,
        samples=setting.certified_samples,
        progress=progress,
    )


def _result(parts: Sequence[Panels]) -> Result:
    settings = {part.setting.data: part.setting for part in parts}
    return Result(
        columns=COLUMNS,
        rows=tuple(each.row() for part in parts for each in part.measured),
        facts={
            "models": {data: each.model for data, each in settings.items()},
            "epochs": {data: each.epochs for data, each in settings.items()},
            "batch": {data: each.batch for data, each in settings.items()},
            "training_attack_steps": {data: each.training_attack_steps for data, each in settings.items()},
            "attack_steps": {data: each.steps for data, each in settings.items()},
            "draws_per_step": {data: each.draws for data, each in settings.items()},
            "delta": 1e-5,
            "accountant": "PLD",
            "alpha": ALPHA,
            "published": {data: PUBLISHED[data] for data in settings if data in PUBLISHED},
            "stobatch_minus": {part.setting.data: part.all_gains() for part in parts},
        },
        notes=(
            "attacked: accuracy of the deployed classifier, the attacks taking the expectation over its "
            "noise and the true labels; low and high are the 95 % interval over inputs.",
            "attacked as published: the same classifier at points made on the network without noise and away "
            "from its own answers, as in 003's code; whatever accuracy is gained by that is the attack's "
            "weakness and not the classifier's strength.",
            "certified: share of right answers with at least this radius, by the method's own formula "
            "(claimed) and by what holds (proven), from the same votes on clean inputs; dp-sgd and adlm "
            "promise none.",
            "Eq. 13 takes one feature map and more noise than is drawn, but adds the losses of both noises "
            "where the smaller alone holds: its claim may lie on either side of the proof.",
            "A run that is right on one input in ten, clean or not, gives all inputs the same answer: no "
            "attack and no radius can change that.",
            "radius is for pixels in [0, 1], radius_of_003 the same perturbation for pixels in [-1, 1].",
            "epsilon is what a run is set to claim; proven is what the executed steps prove, and - that "
            "nothing can be proven; pixeldp protects nobody.",
            "proven holds for unpredictable noise; the noise here is seeded so that figures can be repeated.",
            *(sentence for part in parts for sentence in _compared(part)),
            "003 reports the best of many evaluations during training (MNIST), normalises over test batches, "
            "and its certified accuracies come from another formula than its Eq. 13; none of this is done "
            "here.",
            "The steps of all attacks add up to one radius, PGD's too, as in 003's code.",
            "Smaller than 003: fewer epochs, epsilons and radii, a part of the test set.",
        ),
        draw=lambda figure: _draw(figure, parts),
        upper_bounds=("proven", "high"),
        lower_bounds=("low",),
    )


def _compared(part: Panels) -> Iterator[str]:
    """One sentence for each number that 003 prints and this figure measures."""
    data, gains = part.setting.data, part.all_gains()
    for rival, points in PUBLISHED.get(data, {}).get("gain", {}).items():
        found = {name: f"{each[rival]:+.1f}" for name, each in gains.items()}
        yield (
            f"{data}: 003 reports StoBatch {points:g} points above {RIVALS[rival]}, mean over attacks and "
            f"epsilons at mu = 0.2; here it is {found['sound_attacked']} (sound) and "
            f"{found['paper_attacked']} (as published) where the deployed classifier is attacked, and "
            f"{found['sound_as_published']} and {found['paper_as_published']} under the published attacks."
        )
    for named, accuracies in PUBLISHED.get(data, {}).get("accuracy_at_mu_0.2", {}).items():
        epsilon = float(named.removeprefix("epsilon "))
        if epsilon not in part.setting.epsilons:
            continue
        for method, share in accuracies.items():
            case = next(each for each in reversed(CASES) if each[0] == method)
            here = [part.mean(case, way, 0.1, epsilon=epsilon) for way in (DEPLOYED, PUBLISHED_WAY)]
            yield (
                f"{data}: 003 reports {100 * share:g} % for {method} at {named} and mu = 0.2; here it is "
                f"{100 * here[0]:.1f} % ({case[1]} variant), and {100 * here[1]:.1f} % under the published "
                "attacks."
            )


def _draw(figure: Figure, parts: Sequence[Panels]) -> None:
    figure.set_size_inches(10.5, 1.2 + 3.4 * len(parts))
    panels = figure.subplots(len(parts), 3, squeeze=False, sharey=True)
    for part, row in zip(parts, panels, strict=True):
        for case in CASES:
            _draw_case(row, part, case)
        setting, at_largest = part.setting, f"epsilon {part.setting.epsilons[-1]:g}"
        row[0].set_title(f"{setting.data}: attacked at {setting.usual_radius:g}, mean of four")
        row[0].set_xlabel("epsilon that is claimed")
        row[1].set_title(f"attacked, {at_largest}")
        row[1].set_xlabel("linf radius, pixels in [0, 1]")
        row[2].set_title(f"certified (dotted: claimed), {at_largest}")
        row[2].set_xlabel("l2 radius, pixels in [0, 1]")
        row[0].set_ylim(0, 1)
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=4, fontsize="x-small")


def _draw_case(row: Sequence[Axes], part: Panels, case: tuple[str, str]) -> None:
    setting, private = part.setting, find_method(*case).private
    dashes: dict[str, Any] = {} if case[1] == "sound" else {"dashes": (4, 2)}
    style = {"color": _COLOURS[case[0]], "marker": "o", "markersize": 3, **dashes}
    label = f"{case[0]}, {'sound' if case[1] == 'sound' else 'as published'}"
    shown = [
        part.mean(case, DEPLOYED, setting.usual_radius, epsilon=epsilon if private else None)
        for epsilon in setting.epsilons
    ]
    row[0].plot(setting.epsilons, shown, label=label, **style)
    largest = setting.epsilons[-1] if private else None
    shown = [part.mean(case, DEPLOYED, radius, epsilon=largest) for radius in setting.radii]
    row[1].plot((0.0, *setting.radii), (part.mean(case, CLEAN, 0.0, epsilon=largest), *shown), **style)
    proven, claimed = (
        [part.mean(case, measure, radius, epsilon=largest, norm="l2") for radius in L2_RADII]
        for measure in (BY_PROOF, BY_CLAIM)
    )
    row[2].plot(L2_RADII, proven, **style)
    if claimed != proven:
        row[2].plot(L2_RADII, claimed, **{**style, "dashes": (1, 1.5)})
