"""``hauberk groups``: accuracy and certified radius of a table run by groups of its test records."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Column, Table

from hauberk.certify.metrics import Mean, Share
from hauberk.cli.compare import numbers
from hauberk.cli.examine import RunArgument, find_run
from hauberk.cli.screen import output, print_json, progress_bars
from hauberk.errors import RequestError
from hauberk.files import write_text
from hauberk.methods.groups import ALL, NO_COST, GroupRow, GroupTable, group_table
from hauberk.report.printable import printable
from hauberk.report.rounding import count, length, percent, percent_at_most, plain

_MEANING = "Below a number: its 95 % interval. Guessing: always the most frequent class of the group."


def groups(
    run: RunArgument,
    by: Annotated[
        list[str],
        typer.Option(metavar="COLUMN,…", help="Columns; of a number with edges of its bands: age:25:45:65."),
    ],
    radius: Annotated[
        str | None, typer.Option(metavar="R1,R2,…", help="Certified accuracy at these radii.")
    ] = None,
    samples: Annotated[int | None, typer.Option(help="Draws per record (default: as on the card).")] = None,
    alpha: Annotated[
        float | None, typer.Option(help="Error probability per record (default: as on the card).")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(help="So many test records, spread evenly (default: all).")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or auto.")] = "auto",
    seed: Annotated[int | None, typer.Option(help="Of the draws (default: the run's own).")] = None,
    csv: Annotated[Path | None, typer.Option("--csv", help="Write one line per group to this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """How a run on a table treats groups of its test records.

    Accuracy, certified accuracy and mean radius of each group, with its size and 95 % intervals. A column is
    one of the run's schema (for adult: sex, race, age, …) or another one of the table of test records.
    """
    if csv is not None and (os.path.isdir(csv) or not os.path.isdir(csv.parent)):
        raise RequestError(f"--csv takes a file in a folder that exists, not {csv}")
    columns = [name.strip() for each in by for name in each.split(",")]
    radii = None if radius is None else numbers(radius, "--radius")
    with progress_bars() as progress:
        table = group_table(
            find_run(run),
            columns,
            radii=radii,
            samples=samples,
            alpha=alpha,
            limit=limit,
            seed=seed,
            device=device,
            progress=progress,
        )
    if csv is not None:
        write_text(csv, table.to_csv())
    if as_json:
        print_json(table.to_json())
        return
    _show(printable(table))
    if csv is not None:
        _say(f"Groups: {csv}")


def _show(table: GroupTable) -> None:
    certifies = table.certificate is not None
    heads = ["records", "guessing", "accuracy", *(f"certified at {plain(radius)}" for radius in table.radii)]
    heads += ["mean radius"] if certifies else []
    columns = (Column(head, justify="right") for head in heads)
    shown = Table(Column("", overflow="fold"), *columns, box=None, padding=(0, 2, 0, 0))
    names = dict.fromkeys(row.column for row in table.rows)
    for name in names:
        if name != ALL:
            shown.add_row(f"[bold]{escape(name)}[/bold]")
        for row in table.of(name):
            shown.add_row(*_cells(row, indented=name != ALL))
    output.print(shown)
    _say(_MEANING)
    if certifies:
        _say(
            f"Radii: {table.norm}, certificate {table.certificate}, {count(table.samples or 0)} draws, each "
            f"wrong with probability at most {plain(table.alpha or 0.0)}; a wrong answer counts as radius 0."
        )
    for sentence in (*(gap for name in names if (gap := table.gap(name)) is not None), NO_COST):
        _say(sentence)


def _cells(row: GroupRow, *, indented: bool) -> list[str]:
    name = f"  {escape(row.group)}" if indented else escape(row.group)
    if not row.records:
        return [name, "0"]
    shares = [_share(each) for each in (row.accuracy, *(row.certified or ()))]
    mean = row.average_certified_radius
    assert row.guessing is not None  # the group has records
    return [
        name,
        count(row.records),
        percent(row.guessing),
        *shares,
        *([] if mean is None else [_mean(mean)]),
    ]


def _share(share: Share) -> str:
    assert share.value is not None  # the group has records
    low, high = percent(share.low).split()[0], percent_at_most(share.high).split()[0]
    return f"{percent(share.value)}\n[dim]{low}–{high}[/dim]"


def _mean(mean: Mean) -> str:
    if mean.counted < 2:
        return length(mean.value)
    return f"{length(mean.value)}\n[dim]{length(mean.low)}–{math.ceil(1000 * mean.high) / 1000:.3f}[/dim]"


def _say(sentence: str) -> None:
    output.print(sentence, highlight=False, markup=False, soft_wrap=True)
