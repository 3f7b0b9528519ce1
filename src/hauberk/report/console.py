"""The card for the terminal: at most 100 columns, the same words as the report."""

from __future__ import annotations

from rich import box
from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.table import Table
from rich.text import Text

from hauberk.accounting.card import Card
from hauberk.report import wording
from hauberk.report.printable import printable
from hauberk.report.rounding import count, percent, plain

_WIDTH = 100


def card_table(card: Card) -> RenderableType:
    """Claimed, proven and observed side by side; below them utility, reasons and notes.

    Card strings are shown as they are: rich markup and terminal escapes in them have no effect.
    """
    card = printable(card)
    rows = wording.rows(card)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("", style="bold", no_wrap=True)
    for heading in ("claimed", "proven", "observed"):
        table.add_column(heading, ratio=1)
    for index, row in enumerate(rows):
        if index:
            table.add_row()
        table.add_row(row.name, *(_cell(cell) for cell in (row.claimed, row.proven, row.observed)))

    below = Table.grid(padding=(0, 2, 0, 0))
    below.add_column(style="bold", no_wrap=True)
    below.add_column(overflow="fold")
    for row in rows:
        below.add_row(row.name, Text(row.scope))
        if row.reason is not None:
            below.add_row(
                "", Text(f"{'not proven: ' if row.proven.empty else ''}{row.reason}", style="italic")
            )
    certified = _certified_line(card)
    if certified is not None:
        below.add_row("certified", certified)
    below.add_row("utility", _utility_line(card))
    for index, note in enumerate(card.notes):
        below.add_row("notes" if index == 0 else "", Text(note, style="dim"))

    first_line = Text.assemble(
        ("Guarantee card", "bold"), f"  {wording.title(card)}, {count(card.records)} records"
    )
    return Constrain(Group(first_line, table, below), _WIDTH)


def _cell(cell: wording.Cell) -> Text:
    style = "dim" if cell.empty else "bold red" if cell.doubt is not None else "bold"
    text = Text(cell.headline, style=style)
    if cell.doubt is not None:
        text.append(f"\n{cell.doubt}", style="not bold red")
    for detail in cell.details:
        text.append(f"\n{detail}", style="not bold")
    return text


def _certified_line(card: Card) -> Text | None:
    listed = wording.listed_accuracies(card)
    if not listed:
        return None
    points = ", ".join(f"{percent(point.accuracy)} at {plain(point.radius)}" for point in listed)
    return Text(f"accuracy at {card.robustness.norm} radius: {points}")


def _utility_line(card: Card) -> Text:
    utility = card.utility
    if utility is None:
        return Text("not measured", style="dim")
    line = (
        f"accuracy {percent(utility.accuracy)} ({count(utility.tested)} inputs), without noise "
        f"{percent(utility.base_accuracy)} ({count(utility.base_tested)} inputs), balanced "
        f"{percent(utility.balanced_accuracy)}"
    )
    weakest = wording.weakest_class(utility)
    if weakest is not None and weakest.accuracy is not None:
        line += f", weakest class {wording.class_name(card, weakest.label)} {percent(weakest.accuracy)}"
    return Text(line)
