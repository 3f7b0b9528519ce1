"""004 Figs. 4.10 and 4.11: overall Minkowski distance and cosine against epsilon, and against sigma.

The thesis' epsilon is what its accountant says of a sigma; here models are sound, epsilon is proven, and
sigma is the noise multiplier of their steps that gives it (none for marginals, which takes two releases).
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from hauberk.experiments.igamt_runs import (
    BASELINES,
    NOT_PUBLIC,
    SCENES,
    SEEDED,
    SOUND,
    Contender,
    Scene,
    Sets,
    about,
    epsilons,
    fitted,
)
from hauberk.experiments.parts import remembered
from hauberk.experiments.result import Cell, Result, Size
from hauberk.progress import Progress
from hauberk.synthesis.evaluation_clusters import whole_records
from hauberk.synthesis.neural import NeuralSynthesizer

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class Setting:
    rows: tuple[Contender, ...]
    epsilons: tuple[float, ...]
    seeds: int


_IGAMT = tuple(
    Contender(synthesizer="igamt", form=SOUND, ablation=ablation, protect=protect)
    for ablation, protect in (("none", "joint"), ("none", "critics"), ("w/o_imi_var", "joint"))
)
_EVERYBODY = (*(Contender(synthesizer=name, form=SOUND) for name in ("marginals", *BASELINES)), *_IGAMT)
SETTINGS: dict[Size, Setting] = {
    "tiny": Setting(
        rows=(Contender(synthesizer="marginals", form=SOUND), _IGAMT[2]), epsilons=(3.0,), seeds=1
    ),
    "quick": Setting(rows=(_EVERYBODY[0], _EVERYBODY[1], *_IGAMT[:2]), epsilons=(1.0, 8.0), seeds=1),
    "full": Setting(rows=_EVERYBODY, epsilons=(0.235, 0.5, 1.0, 1.5, 3.0, 8.0), seeds=3),
}
"""0.235 is where the thesis sees all models fail, 1.5 its main epsilon."""


def run(size: Size, seed: int, progress: Progress) -> Result:
    """All models at all epsilons."""
    return run_seeds(size, seed, SETTINGS[size].seeds, progress)


def run_seeds(size: Size, seed: int, seeds: int, progress: Progress) -> Result:
    """The same with another number of seeds, from ``seed`` on."""
    setting, scene = SETTINGS[size], SCENES[size]
    sets = Sets(scene)
    parts = [
        (own, contender, epsilon)
        for own in range(seed, seed + seeds)
        for epsilon in setting.epsilons
        for contender in setting.rows
    ]
    found = []
    for done, (own, contender, epsilon) in enumerate(parts):
        progress("models", done, len(parts))
        found.append(
            remembered(
                about("igamt-epsilon", scene, contender, seed=own, at=epsilon),
                lambda own=own, contender=contender, epsilon=epsilon: _one(  # type: ignore[misc]
                    scene, sets, contender, epsilon, own
                ),
            )
        )
    progress("models", len(parts), len(parts))
    return _result(scene, setting, found, seeds)


def _one(scene: Scene, sets: Sets, contender: Contender, epsilon: float, seed: int) -> dict[str, Any]:
    model, made = fitted(scene, sets, contender, seed=seed, epsilon=epsilon)
    distance = whole_records(sets[scene.test], made, seed=seed)
    return {
        "model": contender.label,
        "asked": epsilon,
        "proven": epsilons(model, contender)[1],
        "sigma": model.plan.noise_multiplier if isinstance(model, NeuralSynthesizer) else None,
        "minkowski": distance.minkowski,
        "cosine": distance.cosine,
    }


def _result(scene: Scene, setting: Setting, found: list[dict[str, Any]], seeds: int) -> Result:
    rows: list[tuple[Cell, ...]] = []
    for contender in setting.rows:
        for epsilon in setting.epsilons:
            own = [each for each in found if (each["model"], each["asked"]) == (contender.label, epsilon)]
            sigmas = [each["sigma"] for each in own if each["sigma"] is not None]
            rows.append(
                (
                    contender.label,
                    fmean(each["proven"] for each in own),
                    fmean(sigmas) if sigmas else None,
                    fmean(each["minkowski"] for each in own),
                    fmean(each["cosine"] for each in own),
                )
            )
    every = tuple(rows)
    return Result(
        columns=("model", "proven_epsilon", "sigma", "minkowski", "cosine"),
        rows=every,
        facts={"data": scene.data, "delta": scene.delta, "seeds": seeds, "size": scene.amount},
        notes=(
            "Means over the seeds; sigma is the noise multiplier of a step.",
            NOT_PUBLIC,
            SEEDED,
        ),
        draw=lambda figure: _draw(figure, every),
        upper_bounds=("proven_epsilon",),
    )


def _draw(figure: Figure, rows: tuple[tuple[Cell, ...], ...]) -> None:
    axes = figure.subplots(2, 2, sharey="row")
    for line, (place, title) in enumerate(((3, "Minkowski distance"), (4, "cosine"))):
        for column, (across, label) in enumerate(((1, "proven epsilon"), (2, "sigma"))):
            here = axes[line][column]
            for number, name in enumerate(dict.fromkeys(str(row[0]) for row in rows)):
                own = sorted(
                    (float(row[across]), float(row[place]))  # type: ignore[arg-type]
                    for row in rows
                    if row[0] == name and row[across] is not None
                )
                width = 2.4 if name.startswith("igamt") else 1.2
                here.plot(
                    *zip(*own, strict=True) if own else ((), ()),
                    marker="o",
                    linewidth=width,
                    markersize=3,
                    color=f"C{number}",
                    label=name,
                )
            here.set_xscale("log")
            here.set_xlabel(label)
            if column == 0:
                here.set_ylabel(title)
    axes[0][0].legend(fontsize=6)
