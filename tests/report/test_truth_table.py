"""The truth table in words: rounding that keeps statements true, dashes, escapes, one page alone."""

import io
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from hauberk.audit.truth_table import TruthTable
from hauberk.audit.truth_table_rows import Finding, TruthRow
from hauberk.report.truth_table import COLUMNS, line, markdown, render, screen_table, write_truth_table

REFUTED = Finding(
    row=TruthRow(
        method="directional",
        variant="paper",
        claimed_epsilon=1.0,
        proven_epsilon=61.8312,
        observed_epsilon=7.4168,
        accuracy=0.6489,
        refuted=True,
        reason="noise | <b>none</b>",
    ),
    attacks=("a likelihood ratio",),
)
EMPTY = Finding(
    row=TruthRow(method="vae", variant="sound", reason="a synthesizer classifies nothing"), attacks=()
)
ROBUST = Finding(
    row=TruthRow(
        method="pixeldp", variant="sound", claimed_radius=0.12399, proven_radius=0.12399, tested=20, broken=0
    ),
    attacks=("PGD",),
)
TABLE = TruthTable(
    size="quick", seed=0, level=1.7857e-5, epsilon=1.0, delta=1e-7, findings=(REFUTED, EMPTY, ROBUST)
)


def test_bounds_are_rounded_to_the_safe_side() -> None:
    cells = dict(zip(COLUMNS, line(REFUTED).cells, strict=True))
    assert (cells["proven ε"], cells["observed ε"]) == ("61.9", "7.41")
    assert cells["accuracy"].startswith("64.8")
    almost = Finding(row=replace(REFUTED.row, claimed_epsilon=0.99998), attacks=())
    assert line(almost).cells[2] == "1.00"
    assert dict(zip(COLUMNS, line(ROBUST).cells, strict=True))["proven radius"] == "0.123"


def test_what_is_missing_is_a_dash_with_a_reason() -> None:
    assert line(EMPTY).cells[2:9] == ("—",) * 7
    assert "- `vae` sound: a synthesizer classifies nothing." in markdown(TABLE)


def test_markdown_is_a_table_of_its_own() -> None:
    rows = [each for each in markdown(TABLE).splitlines() if each.startswith("|")]
    assert len(rows) == 2 + 3
    assert {row.count("|") for row in rows} == {len(COLUMNS) + 1}
    assert "**refuted**" in rows[2]
    assert "noise \\| <b>" in markdown(TABLE)


def test_the_page_is_alone_and_escapes() -> None:
    page = render(TABLE)
    assert "&lt;b&gt;none" in page
    assert "<b>none" not in page
    assert "http://" not in page
    assert "https://" not in page
    assert "0 of 20" in page
    assert page == render(TABLE)


def test_the_files_and_the_screen_say_the_same(tmp_path: Path) -> None:
    page, text = write_truth_table(TABLE, tmp_path)
    assert page.read_text() == render(TABLE)
    assert text.read_text() == markdown(TABLE)
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(screen_table(TABLE))
    assert "7.41" in console.export_text()
