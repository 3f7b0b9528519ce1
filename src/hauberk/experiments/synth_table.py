"""Every synthesizer of health records in one table: without privacy and at one proven epsilon.

    for every seed, synthesizer and budget:  learn from the training patients, sample as many, evaluate
                                             against test patients that nobody has learned from

The measures are those of 004 section 4.3 and those that a clinic asks for (`hauberk.synthesis.evaluation`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from hauberk.accounting import prove
from hauberk.experiments.parts import remembered, settings_of
from hauberk.experiments.pictures import OTHER, PROVEN
from hauberk.experiments.result import Cell, Result, Size
from hauberk.mechanisms import EpsilonDelta
from hauberk.progress import Progress, silent
from hauberk.synthesis.base import Task
from hauberk.synthesis.catalogue import Size as Amount
from hauberk.synthesis.catalogue import find_synthesizer
from hauberk.synthesis.evaluation import evaluate
from hauberk.synthesis.patients import Patients
from hauberk.synthesis.presets import find_preset, load_patients

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEASURES = (
    "minkowski",
    "cosine",
    "discriminative_score",
    "auroc",
    "auprc",
    "missing_rate_error",
    "time_gap_distance",
    "membership_advantage",
    "epsilon_lower",
)
WITHOUT, WITH = "none", "private"
BASELINES = ("marginals", "vae", "gan", "vae-gan", "aae", "daae")  # igamt has a table of its own


@dataclass(frozen=True, kw_only=True)
class Setting:
    """``patients``: at most so many to learn from and to test on; None takes all."""

    data: str
    train: str
    test: str
    patients: int | None
    synthesizers: tuple[str, ...]
    amount: Amount
    epsilon: float
    delta: float
    seeds: int


SETTINGS: dict[Size, Setting] = {
    "tiny": Setting(
        data="ward",
        train="train",
        test="test",
        patients=64,
        synthesizers=("marginals", "vae"),
        amount="tiny",
        epsilon=3.0,
        delta=1e-5,
        seeds=1,
    ),
    "quick": Setting(
        data="ward",
        train="train",
        test="test",
        patients=None,
        synthesizers=BASELINES,
        amount="quick",
        epsilon=3.0,
        delta=1e-5,
        seeds=1,
    ),
    "full": Setting(
        data="physionet2012",
        train="a",
        test="b",
        patients=None,
        synthesizers=BASELINES,
        amount="full",
        epsilon=3.0,
        delta=1e-5,
        seeds=3,
    ),
}


def run(size: Size, seed: int, progress: Progress) -> Result:
    """All synthesizers, one after the other."""
    return run_seeds(size, seed, SETTINGS[size].seeds, progress)


def run_seeds(size: Size, seed: int, seeds: int, progress: Progress) -> Result:
    """The same with another number of seeds, from ``seed`` on."""
    setting = replace(SETTINGS[size], seeds=seeds)
    return _result(setting, _measured(setting, setting.synthesizers, seed, progress))


def _measured(
    setting: Setting, synthesizers: tuple[str, ...], seed: int, progress: Progress
) -> list[dict[str, Any]]:
    parts = [
        (own, name, budget)
        for own in range(seed, seed + setting.seeds)
        for name in synthesizers
        for budget in (WITHOUT, WITH)
    ]
    sets = _Sets(setting)
    found = []
    for done, (own, name, budget) in enumerate(parts):
        progress("synthesizers", done, len(parts))
        about = {
            "experiment": "synth-table",
            # which others stand in the table makes no difference to this one
            **{key: value for key, value in settings_of(setting).items() if key != "synthesizers"},
            "synthesizer": name,
            "settings": asdict(find_synthesizer(name).settings(setting.amount, private=budget == WITH)),
            "budget": budget,
            "seed": own,
        }
        found.append(
            remembered(
                about,
                lambda name=name, budget=budget, own=own: _one(setting, sets, name, budget, own),  # type: ignore[misc]
            )
        )
    progress("synthesizers", len(parts), len(parts))
    return found


class _Sets:
    """Training and test patients, read when the first part needs them."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._read: dict[str, Patients] = {}

    def __getitem__(self, part: str) -> Patients:
        if part not in self._read:
            patients = load_patients(self._setting.data, part=part).patients
            most = self._setting.patients
            self._read[part] = patients if most is None else patients.first(most)
        return self._read[part]


def _one(setting: Setting, sets: _Sets, name: str, budget: str, seed: int) -> dict[str, Any]:
    train, test = sets[setting.train], sets[setting.test]
    part = find_preset(setting.data).parts[setting.train]
    private = budget == WITH
    task = Task(
        schema=train.schema,
        records=part.records if setting.patients is None else setting.patients,
        budget=EpsilonDelta(epsilon=setting.epsilon, delta=setting.delta) if private else None,
        seed=seed,
        noise_seed=seed,  # a table that can be made again
        data=setting.data,
        unit=part.unit,
    )
    model = find_synthesizer(name).build(task, size=setting.amount)
    began = time.monotonic()
    model.fit(train)
    learned = time.monotonic() - began
    began = time.monotonic()
    made = model.sample(len(train), seed=seed)
    sampled = time.monotonic() - began
    row = evaluate(test, made, train=train, seed=seed, delta=setting.delta, progress=silent).row()
    return {
        "synthesizer": name,
        "budget": budget,
        "epsilon": prove(model.trained.ledger.events, setting.delta).epsilon if private else None,
        "seconds": learned,
        "sampling": sampled,
        "auroc_real": row["auroc_real"],
        **{measure: row[measure] for measure in MEASURES},
    }


def _result(setting: Setting, found: list[dict[str, Any]]) -> Result:
    rows = tuple(_rows(found))
    real = [each["auroc_real"] for each in found if each["auroc_real"] is not None]
    return Result(
        columns=(
            "synthesizer",
            "epsilon",
            *MEASURES,
            "auroc_least",
            "auroc_largest",
            "seconds",
            "sampling_seconds",
        ),
        rows=rows,
        facts={
            "data": setting.data,
            "train": setting.train,
            "test": setting.test,
            "delta": setting.delta,
            "seeds": setting.seeds,
            "size": setting.amount,
            "auroc_of_real_patients": fmean(real) if real else None,
        },
        notes=(
            "Means over the seeds; the least and the largest AUROC are over them too.",
            "Epsilon is proven by the accountant from the executed events, for noise that nobody knows; the "
            "noise of these runs has a seed, so that the table can be made again.",
            "A row without an epsilon was trained without privacy.",
            "AUROC and AUPRC: train on synthetic, test on real patients that nobody learned from.",
        ),
        draw=lambda figure: _draw(figure, rows),
        upper_bounds=("epsilon",),
        measured=("seconds", "sampling_seconds"),
    )


def _rows(found: list[dict[str, Any]]) -> Iterator[tuple[Cell, ...]]:
    for name in dict.fromkeys(each["synthesizer"] for each in found):
        for budget in (WITHOUT, WITH):
            own = [each for each in found if (each["synthesizer"], each["budget"]) == (name, budget)]
            areas = [each["auroc"] for each in own if each["auroc"] is not None]
            yield (
                name,
                _mean(own, "epsilon"),
                *(_mean(own, measure) for measure in MEASURES),
                min(areas) if areas else None,
                max(areas) if areas else None,
                _mean(own, "seconds"),
                _mean(own, "sampling"),
            )


def _mean(found: list[dict[str, Any]], name: str) -> float | None:
    values = [each[name] for each in found if each[name] is not None]
    return fmean(values) if values else None


def _draw(figure: Figure, rows: tuple[tuple[Cell, ...], ...]) -> None:
    axes = figure.subplots()
    names = list(dict.fromkeys(str(row[0]) for row in rows))
    place = 2 + MEASURES.index("auroc")
    for shift, private, colour, label in (
        (-0.2, False, OTHER, "without privacy"),
        (0.2, True, PROVEN, "private"),
    ):
        bars = [
            (names.index(str(row[0])) + shift, row[place])
            for row in rows
            if (row[1] is not None) == private and isinstance(row[place], float)
        ]
        axes.bar(
            [x for x, _ in bars], [float(y or 0.0) for _, y in bars], width=0.38, color=colour, label=label
        )
    axes.axhline(0.5, color="black", linewidth=0.8)
    axes.set_xticks(range(len(names)), names)
    axes.set_ylim(0.3, 1.0)
    axes.set_title("AUROC, trained on synthetic patients and tested on real ones")
    axes.legend(loc="upper right")
