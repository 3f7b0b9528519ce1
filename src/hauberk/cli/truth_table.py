"""``hauberk truth-table``: every method, synthesizer and variant; claimed, proven and observed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from hauberk.audit.truth_table import ROWS, chosen_subjects, truth_table
from hauberk.audit.truth_table_rows import Finding
from hauberk.cli.screen import messages, output, print_json
from hauberk.cli.train import RUNS, Size
from hauberk.errors import RequestError
from hauberk.progress import Progress as Report
from hauberk.report.truth_table import screen_table, write_truth_table


def truth_table_command(
    size: Annotated[Size | None, typer.Option(help="How much work (default full).")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="The same as --size quick.")] = False,
    only: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,NAME:VARIANT,…", help="Only these rows, at the same level (default: all)."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for page, table and rows (default: runs/truth-table).")
    ] = None,
    seed: Annotated[int, typer.Option(help="Initial weights, coins and attacks.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON.")] = False,
) -> None:
    """Train everything, prove what was executed, attack every promise: one table.

    Writes truth-table.html, truth-table.md and truth-table.json. Finished rows are kept, and after an
    interruption the same command goes on with them. Exit code 1: a sound promise is refuted (published ones
    are expected to be).
    """
    if quick and size not in (None, Size.quick):
        raise RequestError(f"--quick means --size quick, but --size {size.value} was given as well")
    chosen = Size.quick if quick else size or Size.full
    if not 0 <= seed < 2**31:
        raise RequestError("--seed is a whole number from 0 to 2^31 - 1")
    folder = RUNS / "truth-table" if out is None else out
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise RequestError(f"{folder} is a file: --out takes a folder")
    words = tuple(word.strip() for word in only.split(",") if word.strip()) if only else ()

    def tell(finding: Finding) -> None:
        row, verdict = finding.row, "refuted" if finding.row.refuted else "stands"
        messages.print(
            f"{row.method} ({row.variant}) {verdict}, {finding.seconds:g} s", highlight=False, markup=False
        )

    with _one_bar(len(chosen_subjects(words))) as progress:
        table = truth_table(
            size=chosen.value, only=words, seed=seed, folder=folder, progress=progress, done=tell
        )
    page, _ = write_truth_table(table, folder)
    if as_json:
        print_json([asdict(row) for row in table.rows])
    else:
        output.print(screen_table(table))
        output.print(f"Report: {page}, truth-table.md and .json beside it", highlight=False, soft_wrap=True)
    if table.refuted_sound:
        names = ", ".join(row.method for row in table.refuted_sound)
        messages.print(f"refuted though sound: {names}", style="bold red", highlight=False, markup=False)
        raise typer.Exit(1)


@contextmanager
def _one_bar(rows: int) -> Iterator[Report]:
    """One bar for all rows, which says which row and what of it is being done."""
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        console=messages,
        disable=not messages.is_terminal,
    ) as bars:
        task = bars.add_task("", total=rows)
        row = ""

        def report(stage: str, done: int, total: int) -> None:
            nonlocal row
            if stage == ROWS:
                bars.update(task, completed=done)
                return
            if ":" in stage:
                row = stage
            bars.update(task, description=row if stage == row else f"{row}, {stage}")

        yield report
