"""What each ingredient of private smoothing brings, and how its settings are chosen: on held-out records.

One network per row: a basis, and the basis with something changed. Accuracy and average certified radius are
those of training records that the network has not seen; test records choose nothing.
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
from hauberk.methods.smoothing_presets import BASIS, smoothing_preset
from hauberk.progress import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One data set and noise: a basis, and by name what is changed of it. ``{}`` is the basis itself."""

    data: str
    sigma: float
    epsilon: float
    delta: float
    held_out: int
    samples: int
    tested: int
    seeds: int
    basis: Mapping[str, Any]
    changes: Mapping[str, Mapping[str, Any]]


def ingredients(basis: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """By name, what is changed of ``basis``: one thing each."""
    return {
        "basis": {},
        "asked at one place, 32 dense units": {"model": "small-tanh-cnn"},
        "one copy of a record, so no consistency": {"views": 1, "consistency": 0.0},
        "twice the copies": {"views": 2 * basis["views"]},
        "one copy without noise": {"clean_copy": True},
        "copies moved by a pixel": {"shift": 1},
        "no weight averaging": {"averaging": 0.0},
        "constant rate": {"schedule": "constant"},
        "half the batch": {"batch": basis["batch"] // 2},
        "twice the batch": {"batch": 2 * basis["batch"]},
        "half the epochs": {"epochs": basis["epochs"] / 2},
        "no consistency": {"consistency": 0.0},
        "consistency 3": {"consistency": 3.0},
        "MACER 1": {"macer": 1.0},
        "SmoothAdv 0.25, 2 steps": {"training_attack_size": 0.25, "training_attack_steps": 2},
    }


_TINY = {"model": "logistic", "views": 2, "batch": 64, "epochs": 0.25}
_QUICK = {"views": 2, "batch": 1024, "epochs": 4.0}
_HELD_OUT: dict[str, Any] = {"held_out": 10_000, "samples": 2000, "tested": 5000, "seeds": 1}
_MNIST: dict[str, Any] = {"data": "mnist", "epsilon": 2.68, "delta": 1e-6, "basis": BASIS, **_HELD_OUT}
_FASHION: dict[str, Any] = _MNIST | {"data": "fashion_mnist", "epsilon": 2.70}
_CLEAN = {"clean_copy": True}
SETTINGS: dict[Size, tuple[Setting, ...]] = {
    "tiny": (
        Setting(
            data="digits",
            sigma=0.25,
            epsilon=3.0,
            delta=1e-5,
            held_out=40,
            samples=60,
            tested=8,
            seeds=1,
            basis=_TINY,
            changes=ingredients(_TINY),
        ),
    ),
    "quick": (
        Setting(
            data="digits",
            sigma=0.25,
            epsilon=2.99,
            delta=1e-5,
            held_out=1000,
            samples=500,
            tested=100,
            seeds=1,
            basis=_QUICK,
            changes=ingredients(_QUICK),
        ),
    ),
    "full": (
        Setting(
            sigma=0.5,
            changes={
                **ingredients(BASIS),
                "one copy without noise, rate 2": {**_CLEAN, "lr": 2.0},
                "one copy without noise, twice the copies": {**_CLEAN, "views": 16},
            },
            **_MNIST,
        ),
        Setting(
            sigma=0.25,
            changes={
                "rate 2.5": {"lr": 2.5},
                "rate 3.5": {"lr": 3.5},
                "rate 2.5, twice the copies": {"lr": 2.5, "views": 16},
                "rate 3.5, twice the copies": {"lr": 3.5, "views": 16},
                "rate 2.5, consistency 2": {"lr": 2.5, "consistency": 2.0},
                "rate 2.5, twice the batch and the epochs": {"lr": 2.5, "batch": 4096, "epochs": 120.0},
                "rate 2.5, copies moved by a pixel": {"lr": 2.5, "shift": 1},
            },
            **_MNIST,
        ),
        Setting(
            sigma=1.0,
            changes={
                "one copy without noise, rate 2.5": {**_CLEAN, "lr": 2.5},
                "one copy without noise, rate 3.5": {**_CLEAN, "lr": 3.5},
                "one copy without noise, rate 2.5, twice the copies": {**_CLEAN, "lr": 2.5, "views": 16},
                "one copy without noise, rate 2.5, consistency 0.5": {
                    **_CLEAN,
                    "lr": 2.5,
                    "consistency": 0.5,
                },
            },
            **_MNIST,
        ),
        Setting(sigma=0.25, changes={"rate 1.5": {}, "rate 3": {"lr": 3.0}}, **_FASHION),
        Setting(
            sigma=0.5, changes={"consistency 1": {}, "consistency 2.5": {"consistency": 2.5}}, **_FASHION
        ),
        Setting(
            sigma=1.0, changes={"consistency 1": {}, "consistency 2.5": {"consistency": 2.5}}, **_FASHION
        ),
    ),
}
COLUMNS = (
    "data",
    "sigma",
    "ingredient",
    "seed",
    "base_accuracy",
    "average_certified_radius",
    "standard_error",
    "preset",
)


def run(size: Size, seed: int, progress: Progress) -> Result:
    cases = [
        (setting, name, own)
        for setting in SETTINGS[size]
        for name in setting.changes
        for own in range(seed, seed + setting.seeds)
    ]
    rows: list[tuple[Cell, ...]] = []
    for done, (setting, name, own_seed) in enumerate(cases):
        progress("networks", done, len(cases))
        found = candidate(setting, setting.changes[name], size, own_seed, progress)
        measured = (found[column] for column in COLUMNS[4:-1])
        chosen = "yes" if is_preset(setting, name) else "no"
        rows.append((setting.data, setting.sigma, name, own_seed, *measured, chosen))
    progress("networks", len(cases), len(cases))
    return result_of(tuple(rows), size)


def is_preset(setting: Setting, name: str) -> bool:
    """Whether a row was chosen: its settings are those of `smoothing_preset`."""
    asked = {"data": setting.data, "sigma": setting.sigma, "epsilon": setting.epsilon}
    return smoothing_preset(asked) == {**setting.basis, **setting.changes[name]}


def candidate(
    setting: Setting, changes: Mapping[str, Any], size: Size, seed: int, progress: Progress
) -> dict[str, Any]:
    """The basis with ``changes``, trained without the held-out records and measured on them."""
    settings = {**setting.basis, **changes}
    common = {name: value for name, value in settings_of(setting).items() if name not in ("basis", "changes")}
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


def result_of(rows: tuple[tuple[Cell, ...], ...], size: Size) -> Result:
    return Result(
        columns=COLUMNS,
        rows=rows,
        facts={
            f"{each.data}, sigma {each.sigma:g}": {
                name: value for name, value in settings_of(each).items() if name != "changes"
            }
            for each in SETTINGS[size]
        },
        notes=(
            "Measured on training records that were held out: settings are chosen by these rows, which do "
            "not say what a run is worth.",
            "Each row is its data set's basis with what the row names; the noise is calibrated anew, so that "
            "all rows of a data set have the same epsilon.",
            "preset: the row that `hauberk.methods.smoothing_presets` has.",
            "A choice by held-out private records is itself a release that epsilon does not cover.",
        ),
        draw=lambda figure: _draw(figure, rows),
        lower_bounds=("average_certified_radius",),
    )


def _draw(figure: Figure, rows: tuple[tuple[Cell, ...], ...]) -> None:
    """The first data set and noise, which has most rows: each radius beside the basis, which comes first."""
    axes = figure.subplots()
    data, sigma = rows[0][:2]
    radii: dict[str, list[float]] = {}
    for row in rows:
        if row[:2] == (data, sigma):
            radii.setdefault(str(row[2]), []).append(float(row[5] or 0))
    means = [sum(own) / len(own) for own in radii.values()]
    for place, mean in enumerate(means):
        axes.barh(place, mean - means[0], color=PROVEN if mean >= means[0] else OTHER, height=0.6)
    axes.axvline(0.0, color="black", linewidth=1)
    axes.set_yticks(range(len(radii)), list(radii))
    axes.invert_yaxis()
    axes.set_title(f"radius on held-out {data} ({sigma})")
    axes.set_xlabel("average certified radius, less that of the basis")
