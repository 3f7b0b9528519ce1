"""What each ingredient of private smoothing brings, and how its settings are chosen: on held-out records.

One network per ingredient: the preset, and the preset with one thing changed. Accuracy and average certified
radius are those of training records that the network has not seen; test records choose nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from hauberk.certify.metrics import Mean
from hauberk.experiments.flagship import right_radii
from hauberk.experiments.parts import remembered, settings_of
from hauberk.experiments.pictures import OTHER, PROVEN
from hauberk.experiments.result import Cell, Result, Size
from hauberk.experiments.trained_runs import trained_run
from hauberk.methods.run import base_accuracy
from hauberk.methods.smoothing_presets import smoothing_preset
from hauberk.progress import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PRESET = "preset"


@dataclass(frozen=True, kw_only=True)
class Setting:
    data: str
    sigma: float
    epsilon: float
    delta: float
    held_out: int
    samples: int
    tested: int
    seeds: int
    basis: tuple[tuple[str, Any], ...] = ()  # what is changed for all, such as a smaller network


def ingredients(basis: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """By name, what is changed of ``basis``: one thing each."""
    return {
        PRESET: {},
        "asked at one place, 32 dense units": {"model": "small-tanh-cnn"},
        "one copy of a record, so no consistency": {"views": 1, "consistency": 0.0},
        "no weight averaging": {"averaging": 0.0},
        "constant rate": {"schedule": "constant"},
        "half the batch": {"batch": basis["batch"] // 2},
        "twice the batch": {"batch": 2 * basis["batch"]},
        "half the epochs": {"epochs": basis["epochs"] / 2},
        "one copy without noise": {"clean_copy": True},
        "copies moved by a pixel": {"shift": 1},
        "no consistency": {"consistency": 0.0},
        "consistency 3": {"consistency": 3.0},
        "MACER 1": {"macer": 1.0},
        "SmoothAdv 0.25, 2 steps": {"training_attack_size": 0.25, "training_attack_steps": 2},
    }


SETTINGS: dict[Size, Setting] = {
    "tiny": Setting(
        data="digits",
        sigma=0.25,
        epsilon=3.0,
        delta=1e-5,
        held_out=40,
        samples=60,
        tested=8,
        seeds=1,
        basis=(("model", "logistic"), ("views", 2), ("batch", 64), ("epochs", 0.25)),
    ),
    "quick": Setting(
        data="digits",
        sigma=0.25,
        epsilon=2.99,
        delta=1e-5,
        held_out=1000,
        samples=500,
        tested=100,
        seeds=1,
        basis=(("views", 2), ("batch", 1024), ("epochs", 4.0)),
    ),
    "full": Setting(
        data="mnist",
        sigma=0.5,
        epsilon=2.68,
        delta=1e-6,
        held_out=10_000,
        samples=10_000,
        tested=2000,
        seeds=2,
    ),
}
COLUMNS = ("ingredient", "seed", "base_accuracy", "average_certified_radius", "standard_error")


def run(size: Size, seed: int, progress: Progress) -> Result:
    setting = SETTINGS[size]
    changes = ingredients(basis_of(setting, size))
    cases = [(name, own) for name in changes for own in range(seed, seed + setting.seeds)]
    rows: list[tuple[Cell, ...]] = []
    for done, (name, own_seed) in enumerate(cases):
        progress("networks", done, len(cases))
        found = candidate(setting, changes[name], size, own_seed, progress)
        rows.append((name, own_seed, *(found[column] for column in COLUMNS[2:])))
    progress("networks", len(cases), len(cases))
    return _result(tuple(rows), setting, changes)


def basis_of(setting: Setting, size: Size) -> dict[str, Any]:
    asked = {"data": setting.data, "sigma": setting.sigma, "epsilon": setting.epsilon}
    return (smoothing_preset(asked) if size == "full" else {}) | dict(setting.basis)


def candidate(
    setting: Setting, changes: Mapping[str, Any], size: Size, seed: int, progress: Progress
) -> dict[str, Any]:
    """The preset with ``changes``, trained without the held-out records and measured on them."""
    settings = {**basis_of(setting, size), **changes}
    common = {name: value for name, value in settings_of(setting).items() if name != "basis"}
    found: dict[str, Any] = remembered(
        {"figure": "flagship-ablation", "size": size, **common, "settings": settings, "seed": seed},
        partial(_measured, setting, settings, size, seed, progress),
    )
    return found


def _measured(
    setting: Setting, settings: Mapping[str, Any], size: Size, seed: int, progress: Progress
) -> dict[str, Any]:
    trained = trained_run(
        "private-smoothing",
        "sound",
        data=setting.data,
        size=size,
        seed=seed,
        progress=progress,
        sigma=setting.sigma,
        epsilon=setting.epsilon,
        delta=setting.delta,
        validation=setting.held_out,
        **settings,
    )
    radii = right_radii(trained, samples=setting.samples, tested=setting.tested, progress=progress)
    mean = Mean.of(radii.clip(min=0.0))
    return {
        "base_accuracy": base_accuracy(trained.run.model, trained.test),
        "average_certified_radius": mean.value,
        "standard_error": mean.standard_error,
    }


def _result(
    rows: tuple[tuple[Cell, ...], ...], setting: Setting, changes: Mapping[str, Mapping[str, Any]]
) -> Result:
    return Result(
        columns=COLUMNS,
        rows=rows,
        facts={**settings_of(setting), "changes": dict(changes)},
        notes=(
            f"Measured on training records of {setting.data} that were held out: settings are chosen by "
            "these rows, which do not say what a run is worth.",
            "Each ingredient is the preset with one change; the noise is calibrated anew, so that every row "
            "has the same epsilon.",
            "A choice by held-out private records is itself a release that epsilon does not cover.",
        ),
        draw=lambda figure: _draw(figure, rows),
        lower_bounds=("average_certified_radius",),
    )


def _draw(figure: Figure, rows: tuple[tuple[Cell, ...], ...]) -> None:
    axes = figure.subplots()
    names = list(dict.fromkeys(str(row[0]) for row in rows))
    for place, name in enumerate(names):
        radii = [float(row[3] or 0) for row in rows if row[0] == name]
        axes.barh(place, sum(radii) / len(radii), color=PROVEN if name == PRESET else OTHER, height=0.6)
        axes.plot(radii, [place] * len(radii), "k.", markersize=4)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_title("average certified radius on held-out records")
