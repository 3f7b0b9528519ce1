"""``hauberk reproduce``: a figure or table of the papers, made anew."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from hauberk.cli.screen import output, print_json, progress_bars
from hauberk.cli.train import RUNS, Size
from hauberk.errors import RequestError
from hauberk.experiments import EXPERIMENTS, Result, to_json, write

_MOST_ROWS = 20  # of a table on the screen; all of them are in the file


def reproduce(
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"One of {', '.join(EXPERIMENTS)}.")],
    size: Annotated[
        Size, typer.Option(help="The paper's setting (full), minutes (quick) or a test.")
    ] = Size.full,
    out: Annotated[
        Path | None, typer.Option(help="Folder for picture and numbers; default runs/reproduce/NAME.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Where chance is involved (networks, data).")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON.")] = False,
) -> None:
    """Make a figure or table of the papers anew: a picture, its numbers beside it, and a table here."""
    if name not in EXPERIMENTS:
        raise RequestError(f"there is no experiment {name!r}; known: {', '.join(EXPERIMENTS)}")
    experiment = EXPERIMENTS[name]
    with progress_bars() as progress:
        result = experiment.run(size.value, seed, progress)
    content = to_json(name, experiment, result, size=size.value, seed=seed)
    picture, numbers = write(out or RUNS / "reproduce" / name, name, content, result)
    if as_json:
        print_json(content | {"picture": str(picture), "numbers": str(numbers)})
        return
    output.print(f"{experiment.source}: {experiment.summary}", highlight=False)
    output.print(_table(result))
    for note in result.notes:
        output.print(f"- {note}", highlight=False)
    for label, path in (("Picture", picture), ("Numbers", numbers)):
        output.print(f"{label}: {path}", highlight=False, soft_wrap=True)


def _table(result: Result) -> Table:
    table = Table(*(column.replace("_", " ") for column in result.columns))
    stride = -(-len(result.rows) // _MOST_ROWS)
    for row in result.rows[::stride]:
        table.add_row(*(_shown(cell) for cell in row))
    if stride > 1:
        table.caption = f"every {stride}th of {len(result.rows)} rows; all are in the file"
    return table


def _shown(cell: float | int | str | None) -> str:
    if cell is None:
        return "-"
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)
