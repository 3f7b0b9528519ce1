"""004 Tables 4.1 and 4.2 and appendix Table 1 in form: every model without privacy, as published and sound.

    for every seed and contender:  learn, make as many patients, compare with patients nobody learned from
    for every seed:                compare the training patients themselves with those

Sound models stand at one proven epsilon, published ones at the epsilon that they claim and cannot prove.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from hauberk.experiments.igamt_runs import (
    NOT_PUBLIC,
    PAPER,
    SCENES,
    SEEDED,
    SOUND,
    WITHOUT,
    Contender,
    Scene,
    Sets,
    about,
    contenders,
    epsilons,
    fitted,
)
from hauberk.experiments.parts import remembered, settings_of
from hauberk.experiments.pictures import CLAIMED, OTHER, PROVEN
from hauberk.experiments.result import Cell, Result, Size
from hauberk.progress import Progress, silent
from hauberk.synthesis.evaluation import Evaluation, evaluate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

THESIS: Mapping[str, tuple[float, float, float, float]] = MappingProxyType(
    {
        "vae": (5.907236, 0.294431, 7.330084, -0.021758),
        "gan": (5.566364, -0.008107, 7.009576, -0.057234),
        "vae-gan": (5.873504, 0.015184, 7.205729, 0.210885),
        "aae": (5.555181, 0.000039, 6.995771, 0.183082),
        "daae": (5.578734, 0.000111, 6.439933, 0.390111),
        "igamt w/o_emb": (5.547475, 0.026667, 6.470049, 0.396667),
        "igamt only_t_emb": (5.486770, 0.171710, 6.447262, 0.389958),
        "igamt w/o_imi": (5.174218, 0.239063, 6.174218, 0.409063),
        "igamt w/o_imi_var": (5.111574, 0.240675, 6.151663, 0.420291),
        "igamt": (3.974107, 0.542739, 5.580912, 0.560559),
    }
)
"""Tables 4.1 and 1: Minkowski and cosine on MIMIC-IV-ED, then on Emory Synergy, all with sigma = 1."""

MEASURES = (
    "minkowski",
    "cosine",
    "time_minkowski",
    "time_cosine",
    "first_minkowski",
    "first_cosine",
    "second_minkowski",
    "second_cosine",
    "auroc",
    "missing_rate_error",
    "time_gap_distance",
    "discriminative_score",
    "membership_advantage",
)
SEEDS: dict[Size, int] = {"tiny": 1, "quick": 1, "full": 3}
REAL = "real patients"


@dataclass(frozen=True, kw_only=True)
class Plan:
    scene: Scene
    rows: tuple[Contender, ...]


def _plan(size: Size) -> Plan:
    everybody = contenders(WITHOUT, PAPER, SOUND)
    if size == "tiny":
        everybody = (
            Contender(synthesizer="marginals", form=SOUND),
            Contender(synthesizer="igamt", form=WITHOUT, ablation="w/o_emb"),
            Contender(synthesizer="igamt", form=PAPER, ablation="none"),
        )
    return Plan(scene=SCENES[size], rows=everybody)


def run(size: Size, seed: int, progress: Progress) -> Result:
    """All contenders, one after the other."""
    return run_seeds(size, seed, SEEDS[size], progress)


def run_seeds(size: Size, seed: int, seeds: int, progress: Progress) -> Result:
    """The same with another number of seeds, from ``seed`` on."""
    plan = _plan(size)
    sets = Sets(plan.scene)
    parts = [(own, contender) for own in range(seed, seed + seeds) for contender in plan.rows]
    found: list[dict[str, Any]] = []
    for done, (own, contender) in enumerate(parts):
        progress("models", done, len(parts))
        found.append(
            remembered(
                about("igamt-table", plan.scene, contender, seed=own),
                lambda contender=contender, own=own: _one(plan.scene, sets, contender, own),  # type: ignore[misc]
            )
        )
    progress("models", len(parts), len(parts))
    for own in range(seed, seed + seeds):
        found.append(
            remembered(
                {"experiment": "igamt-table", **settings_of(plan.scene), "real": True, "seed": own},
                lambda own=own: _real(plan.scene, sets, own),  # type: ignore[misc]
            )
        )
    return _result(plan, found, seeds)


def _real(scene: Scene, sets: Sets, seed: int) -> dict[str, Any]:
    """What the patients themselves would score in the place of made ones: all that can be hoped for."""
    found = evaluate(sets[scene.test], sets[scene.train], seed=seed, delta=scene.delta, progress=silent)
    nothing = {"claimed": None, "proven": None, "seconds": None}
    return {"model": REAL, "named": REAL, "form": REAL, **nothing, **_measures(scene, found)}


def _one(scene: Scene, sets: Sets, contender: Contender, seed: int) -> dict[str, Any]:
    began = time.monotonic()
    model, made = fitted(scene, sets, contender, seed=seed)
    seconds = time.monotonic() - began
    claimed, proven = epsilons(model, contender)
    found = evaluate(
        sets[scene.test], made, train=sets[scene.train], seed=seed, delta=scene.delta, progress=silent
    )
    return {
        "model": contender.label,
        "named": contender.model,
        "form": contender.form,
        "claimed": claimed,
        "proven": proven,
        "seconds": seconds,
        **_measures(scene, found),
    }


def _measures(scene: Scene, found: Evaluation) -> dict[str, float | None]:
    row = found.row()
    centres = {each.name: each.centres for each in found.fidelity.features}
    by_feature: dict[str, float | None] = {
        "time_minkowski": found.fidelity.increments.minkowski,
        "time_cosine": found.fidelity.increments.cosine,
    }
    for place, name in zip(("first", "second"), scene.features, strict=True):
        own = centres[name]
        by_feature[f"{place}_minkowski"] = None if own is None else own.minkowski
        by_feature[f"{place}_cosine"] = None if own is None else own.cosine
    return {name: by_feature[name] if name in by_feature else row[name] for name in MEASURES}


def _result(plan: Plan, found: list[dict[str, Any]], seeds: int) -> Result:
    scene = plan.scene
    rows = (
        _row(found, REAL, REAL, REAL),
        *(_row(found, each.label, each.form, each.model) for each in plan.rows),
    )
    columns = (
        "model",
        "form",
        "claimed_epsilon",
        "proven_epsilon",
        *MEASURES,
        "thesis_minkowski",
        "thesis_cosine",
        "thesis_emory_minkowski",
        "thesis_emory_cosine",
        "seconds",
    )
    return Result(
        columns=columns,
        rows=rows,
        facts={
            "data": scene.data,
            "train": scene.train,
            "test": scene.test,
            "delta": scene.delta,
            "seeds": seeds,
            "size": scene.amount,
            "first_feature": scene.features[0],
            "second_feature": scene.features[1],
        },
        notes=(
            "Means over the seeds.",
            NOT_PUBLIC,
            "The thesis' columns are those of its private models, sigma 1, and stand in every form's row.",
            SEEDED,
            "A published form claims its epsilon and proves none; a sound one claims what it proves.",
        ),
        draw=lambda figure: _draw(figure, rows, columns),
        upper_bounds=("proven_epsilon",),
        measured=("seconds",),
    )


def _row(found: list[dict[str, Any]], label: str, form: str, model: str) -> tuple[Cell, ...]:
    own = [each for each in found if (each["model"], each["form"]) == (label, form)]
    thesis: tuple[Cell, ...] = THESIS.get(model, (None, None, None, None))
    return (
        label,
        form,
        _mean(own, "claimed"),
        _mean(own, "proven"),
        *(_mean(own, measure) for measure in MEASURES),
        *thesis,
        _mean(own, "seconds"),
    )


def _mean(found: list[dict[str, Any]], name: str) -> float | None:
    values = [each[name] for each in found if each[name] is not None]
    return fmean(values) if values else None


def _draw(figure: Figure, rows: tuple[tuple[Cell, ...], ...], columns: tuple[str, ...]) -> None:
    for axes, measure in zip(figure.subplots(1, 2), ("minkowski", "cosine"), strict=True):
        names = list(dict.fromkeys(str(row[0]) for row in rows))
        forms = ((REAL, "black", 0.0), (WITHOUT, OTHER, -0.25), (PAPER, CLAIMED, 0.0), (SOUND, PROVEN, 0.25))
        for form, colour, shift in forms:
            own = [(names.index(str(row[0])), row[columns.index(measure)]) for row in rows if row[1] == form]
            axes.barh(
                [place + shift for place, _ in own],
                [float(value or 0.0) for _, value in own],
                height=0.24,
                color=colour,
                label=form,
            )
        axes.set_yticks(range(len(names)), names if measure == "minkowski" else [""] * len(names), fontsize=7)
        axes.invert_yaxis()
        axes.set_title(f"{measure} of matched centres")
    axes.legend(fontsize=7, framealpha=1.0)
