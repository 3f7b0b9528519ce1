"""The truth table for people: as Markdown for a README, as one self-contained page, and for the terminal.

Epsilons are rounded so that the statement stays true: what is claimed or proven up, what was observed down.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from hauberk.audit.truth_table import TruthTable
from hauberk.audit.truth_table_rows import Finding, TruthRow
from hauberk.files import write_text
from hauberk.report.printable import printable
from hauberk.report.rounding import at_least, at_most, length, percent, plain

if TYPE_CHECKING:
    from jinja2 import Template

NOTHING = "—"
COLUMNS = (
    "method",
    "variant",
    "claimed ε",
    "proven ε",
    "observed ε",
    "claimed radius",
    "proven radius",
    "broken",
    "accuracy",
    "refuted",
)


@dataclass(frozen=True, kw_only=True)
class Line:
    """A row in words, in the order of `COLUMNS`."""

    cells: tuple[str, ...]
    refuted: bool
    reason: str
    attacks: tuple[str, ...]


def line(finding: Finding) -> Line:
    row = printable(finding.row)
    return Line(
        cells=(
            row.method,
            row.variant,
            _shown(row.claimed_epsilon, _three_digits),
            _shown(row.proven_epsilon, _three_digits),
            _shown(row.observed_epsilon, at_least),
            _shown(row.claimed_radius, length),
            _shown(row.proven_radius, length),
            NOTHING if row.tested is None else f"{row.broken} of {row.tested}",
            _shown(row.accuracy, percent),
            _verdict(row),
        ),
        refuted=row.refuted,
        reason=row.reason or "",
        attacks=printable(finding.attacks),
    )


def _three_digits(value: float) -> str:
    """An upper bound; what is rounded up to the next power of ten has three digits, too."""
    return at_most(float(at_most(value).replace(",", "")))


def _shown(value: float | None, form: Callable[[float], str]) -> str:
    return NOTHING if value is None else form(value)


def _verdict(row: TruthRow) -> str:
    return "refuted" if row.refuted else "no"


def statement(table: TruthTable) -> str:
    """What the table as a whole says, in one sentence."""
    promised = f"epsilon {plain(table.epsilon)} at delta {plain(table.delta)}"
    return (
        f"Every private row promises {promised}; each attack may wrong a promise with probability at most "
        f"{plain(float(f'{table.level:.2g}'))}, and so any of the sound ones with at most 0.001."
    )


def markdown(table: TruthTable) -> str:
    """For a README: the table, and below it why single rows are refuted or empty."""
    lines = [line(finding) for finding in table.findings]
    head = [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * 2}{'---:|' * (len(COLUMNS) - 3)}---|"]
    body = [_markdown_row(each) for each in lines]
    reasons = [
        f"- `{each.cells[0]}` {each.cells[1]}: {_plain(each.reason)}." for each in lines if each.reason
    ]
    return "\n".join([*head, *body, "", statement(table), "", *reasons]) + "\n"


def _markdown_row(each: Line) -> str:
    cells = [_plain(cell) for cell in each.cells]
    if each.refuted:
        cells[-1] = f"**{cells[-1]}**"
    return f"| {' | '.join(cells)} |"


def _plain(text: str) -> str:
    return text.replace("|", "\\|")


def screen_table(table: TruthTable) -> Table:
    shown = Table(*COLUMNS, title="truth table", title_justify="left", caption=statement(table))
    for finding in table.findings:
        each = line(finding)
        style = "" if not each.refuted else "bold red" if finding.row.variant == "sound" else "red"
        shown.add_row(*(Text(cell) for cell in each.cells), style=style)
    return shown


def write_truth_table(table: TruthTable, folder: Path) -> tuple[Path, Path]:
    """``truth-table.html`` and ``truth-table.md``, each whole or not at all."""
    page, text = folder / "truth-table.html", folder / "truth-table.md"
    write_text(page, render(table))
    write_text(text, markdown(table))
    return page, text


def render(table: TruthTable) -> str:
    """One page that needs nothing else; every string is escaped."""
    return _template().render(
        columns=COLUMNS,
        lines=[line(finding) for finding in table.findings],
        statement=statement(table),
        size=table.size,
        seed=table.seed,
    )


@functools.cache
def _template() -> Template:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("truth-table.html.j2")
