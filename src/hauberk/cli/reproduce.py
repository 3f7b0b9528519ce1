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
from hauberk.experiments.parts import kept_in
from hauberk.randomness import check_seed
from hauberk.report.rounding import at_least, at_most

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
    seeds: Annotated[
        int | None, typer.Option(help="How many seeds, where the experiment lets one choose (flagship).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON.")] = False,
) -> None:
    """Make a figure or table of the papers anew: a picture, its numbers beside it, and a table here.

    Long ones keep their finished parts: after an interruption the same command goes on with them.
    """
    if name not in EXPERIMENTS:
        raise RequestError(f"there is no experiment {name!r}; known: {', '.join(EXPERIMENTS)}")
    experiment = EXPERIMENTS[name]
    if seeds is not None and (experiment.run_seeds is None or seeds < 1):
        choices = ", ".join(each for each, one in EXPERIMENTS.items() if one.run_seeds is not None)
        raise RequestError(f"--seeds is a number of at least 1 for {choices}: leave it out for others")
    check_seed(seed)
    folder = out or RUNS / "reproduce" / name
    with kept_in(folder / "parts"), progress_bars() as progress:
        if seeds is not None and experiment.run_seeds is not None:
            result = experiment.run_seeds(size.value, seed, seeds, progress)
        else:
            result = experiment.run(size.value, seed, progress)
        content = to_json(name, experiment, result, size=size.value, seed=seed)
        picture, numbers = write(folder, name, content, result)
    if as_json:
        print_json(content | {"picture": str(picture), "numbers": str(numbers)})
        return
    output.print(f"{experiment.source}: {experiment.summary}", highlight=False)
    output.print(_table(result))
    for fact, value in result.facts.items():
        output.print(f"{fact.replace('_', ' ')}: {_plain(value)}", highlight=False)
    for note in result.notes:
        output.print(f"- {note}", highlight=False)
    for label, path in (("Picture", picture), ("Numbers", numbers)):
        output.print(f"{label}: {path}", highlight=False, soft_wrap=True)


def _table(result: Result) -> Table:
    table = Table(*(column.replace("_", " ") for column in result.columns))
    stride = -(-len(result.rows) // _MOST_ROWS)
    for row in result.rows[::stride]:
        cells = zip(result.columns, row, strict=True)
        table.add_row(*(_shown(cell, column, result) for column, cell in cells))
    if stride > 1:
        table.caption = f"every {stride}th of {len(result.rows)} rows; all are in the file"
    return table


def _plain(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(inner)}" for key, inner in value.items())
    if isinstance(value, list):
        return ", ".join(_plain(inner) for inner in value)
    return str(value)


def _shown(cell: float | int | str | None, column: str, result: Result) -> str:
    if cell is None:
        return "-"
    if not isinstance(cell, float):
        return str(cell)
    if column in result.upper_bounds:
        return at_most(cell)
    if column in result.lower_bounds and cell > 1e-6:
        return at_least(cell)
    return f"{cell:.4g}"
