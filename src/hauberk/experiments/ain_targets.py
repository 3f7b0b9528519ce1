"""004 Fig. 5.8: AIN aimed at several classes; success against the radius."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hauberk.errors import RequestError
from hauberk.experiments.ain_measures import (
    COLUMNS,
    COUNTING,
    MEASURED,
    SHORTER,
    TIMES,
    Measured,
    accuracies,
    at_radii,
    draw_curves,
    ifgsm_crafter,
    measure,
    row_of,
    trained_ain,
)
from hauberk.experiments.parts import remembered
from hauberk.experiments.result import Result, Size
from hauberk.progress import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AIMS: dict[Size, tuple[int, ...]] = {"tiny": (1,), "quick": (0, 5), "full": (0, 2, 5, 8)}
"""The thesis draws its classes at random and does not name them."""


def run(size: Size, seed: int, progress: Progress) -> Result:
    """All classes, one after the other."""
    return _result(size, seed, [_part(aim, size, seed, progress) for aim in AIMS[size]])


def run_for(part: str, size: Size, seed: int, progress: Progress) -> Result:
    """One class alone, by its number: `run` in pieces."""
    if part not in {str(aim) for aim in AIMS[size]}:
        raise RequestError(f"ain-targets of size {size} has the classes {AIMS[size]}, not {part!r}")
    return _result(size, seed, [_part(int(part), size, seed, progress)])


def _part(aim: int, size: Size, seed: int, progress: Progress) -> list[dict[str, Any]]:
    setting = SHORTER[size]

    def compute() -> list[dict[str, Any]]:
        trained = trained_ain(setting, aim, seed, progress)
        crafters = at_radii(trained, setting.radii, f"AIN at class {aim}", seed)
        radius = min(setting.radii)
        crafters[f"I-FGSM at class {aim}", radius] = ifgsm_crafter(setting, seed, radius=radius, aim=aim)
        found = measure(setting, crafters, part=f"class {aim}", aim=aim, seed=seed)
        return [asdict(each) for each in found]

    found: list[dict[str, Any]] = remembered(setting.about("ain-targets", seed, aim=aim), compute)
    return found


def _result(size: Size, seed: int, parts: Sequence[list[dict[str, Any]]]) -> Result:
    setting = SHORTER[size]
    found = [Measured(**each) for part in parts for each in part]
    return Result(
        columns=COLUMNS,
        rows=tuple(row_of(each) for each in found),
        facts={
            "data": setting.target.data,
            "network": setting.target.network,
            "accuracy": accuracies(setting, seed),
        },
        notes=(
            COUNTING,
            TIMES,
            "The thesis shows a figure without numbers and does not name its classes.",
        ),
        draw=lambda figure: _draw(figure, found),
        lower_bounds=("low",),
        upper_bounds=("high",),
        measured=MEASURED,
    )


def _draw(figure: Figure, found: Sequence[Measured]) -> None:
    axes = figure.subplots()
    draw_curves(axes, found, "AIN aimed at different classes")
    axes.legend(fontsize="x-small")
