"""``hauberk compare``: several runs in one table and on one page."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Column, Table

from hauberk.cli.examine import find_run
from hauberk.cli.screen import output, print_json
from hauberk.cli.train import RUNS
from hauberk.errors import RequestError
from hauberk.files import write_text
from hauberk.methods.comparison import Comparison, compare_runs
from hauberk.report.comparison import write_comparison
from hauberk.report.comparison_wording import shared_facts, shown_columns
from hauberk.report.printable import printable

_NAMES, _CELLS = 19, 13  # columns of the terminal for a row's name, and for each run


def compare(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Folders, or names below runs/.")],
    radius: Annotated[
        str | None,
        typer.Option(
            metavar="R1,R2,…", help="Compare certified accuracy at these (default: the usual ones)."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the page and the table (default: runs/comparison).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Put finished runs side by side: privacy, accuracy, certified radii, seconds.

    Writes comparison.html, which needs nothing else, and comparison.csv. Runs on other data, or with another
    delta, unit or norm, are compared too, and the page says what is then not of the same thing.
    """
    folder = RUNS / "comparison" if out is None else out
    _check_folder(folder)
    radii = None if radius is None else numbers(radius, "--radius")
    comparison = compare_runs([find_run(name) for name in runs], radii=radii)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(f"cannot create {folder}: {error.strerror or error}") from error
    write_comparison(comparison, folder / "comparison.html")
    write_text(folder / "comparison.csv", comparison.to_csv())
    if as_json:
        print_json({**comparison.to_json(), "report": str(folder / "comparison.html")})
        return
    _show(comparison)
    _say(f"Report: {folder / 'comparison.html'}, comparison.csv beside it")


def _check_folder(folder: Path) -> None:
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise RequestError(f"{folder} is a file: --out takes a folder")
    if os.path.exists(folder / "config.json"):
        raise RequestError(f"{folder} is a run of its own: --out takes another folder")


def numbers(text: str | None, option: str) -> tuple[float, ...]:
    """A list such as 1,2,4; nothing where nothing was given."""
    if text is None:
        return ()
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        values = (math.nan,)
    if not all(math.isfinite(value) for value in values):
        raise RequestError(f"{option} takes numbers with commas between them, such as 1,2,4, not {text!r}")
    return values


def _show(comparison: Comparison) -> None:
    """A row per quantity and a column per run, as many runs beside each other as the terminal is wide."""
    comparison = printable(comparison)
    shown = shown_columns(comparison)
    heads = [str(place) for place, _ in enumerate(comparison.runs, start=1)]
    for head, run in zip(heads, comparison.runs, strict=True):
        _say(f"{head:>3}  {run.name}")
    beside = max(1, (output.width - _NAMES) // _CELLS)
    for first in range(0, len(heads), beside):
        part = slice(first, first + beside)
        numbers = (
            Column(head, justify="right", max_width=_CELLS - 2, overflow="fold") for head in heads[part]
        )
        table = Table(Column("", no_wrap=True), *numbers, box=None, padding=(0, 2, 0, 0))
        for each in shown[1:]:  # the first is the run's name
            table.add_row(each.name, *map(escape, each.cells[part]))
        output.print()
        output.print(table)
    output.print()
    shared = shared_facts(comparison)
    for sentence in (*([f"All runs: {shared}."] if shared else []), *comparison.remarks):
        _say(sentence)


def _say(sentence: str) -> None:
    output.print(sentence, highlight=False, markup=False, soft_wrap=True)
