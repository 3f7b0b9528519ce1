"""What an experiment hands over, and how it is written down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hauberk.errors import RequestError
from hauberk.experiments.pictures import render
from hauberk.files import write_bytes, write_json
from hauberk.progress import Progress
from hauberk.version import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Size = Literal["tiny", "quick", "full"]
"""``full`` is the paper's setting; ``tiny`` is for tests and means nothing."""

Cell = float | int | str | None


@dataclass(frozen=True, kw_only=True)
class Result:
    """``columns`` and ``rows`` are the numbers of the picture; ``None`` is a value that does not exist.

    Columns named in ``upper_bounds`` are rounded up when shown, those in ``lower_bounds`` down.
    ``facts`` are single numbers and settings, ``notes`` what a reader must know, one sentence each.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    facts: dict[str, Any]
    notes: tuple[str, ...]
    draw: Callable[[Figure], None]
    upper_bounds: tuple[str, ...] = ()
    lower_bounds: tuple[str, ...] = ()
    measured: tuple[str, ...] = ()  # columns that a second run does not repeat: times


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """``run(size, seed, progress)`` makes the numbers; ``source`` is the place in the papers."""

    source: str
    summary: str
    run: Callable[[Size, int, Progress], Result]
    run_seeds: Callable[[Size, int, int, Progress], Result] | None = None  # with a number of seeds


def to_json(name: str, experiment: Experiment, result: Result, *, size: Size, seed: int) -> dict[str, Any]:
    """The numbers as they are written beside the picture."""
    return {
        "experiment": name,
        "source": experiment.source,
        "size": size,
        "seed": seed,
        "version": __version__,
        "facts": result.facts,
        "rows": [dict(zip(result.columns, row, strict=True)) for row in result.rows],
        "notes": list(result.notes),
    }


def write(folder: Path, name: str, content: dict[str, Any], result: Result) -> tuple[Path, Path]:
    """Picture and numbers, side by side; each file appears whole or not at all."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(f"cannot make the folder {folder}: {error.strerror or error}") from error
    picture, numbers = folder / f"{name}.png", folder / f"{name}.json"
    write_json(numbers, content)
    write_bytes(picture, render(result.draw))
    return picture, numbers
