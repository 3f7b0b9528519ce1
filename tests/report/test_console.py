"""The card in the terminal: all of it, within 100 columns, whatever the strings are."""

import io
from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.console import Console

from hauberk.accounting.card import Card
from hauberk.report import card_table


def printed(card: Card, width: int = 160) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width, force_terminal=False).print(card_table(card))
    return stream.getvalue()


def test_the_three_columns_and_what_belongs_to_them(card: Card) -> None:
    said = printed(card)
    for phrase in ("claimed", "proven", "observed", "ε ≤ 2.99", "ε ≥ 0.412", "0 of 120 broken", "δ = 1e-5"):
        assert phrase in said
    assert "balanced" in said
    assert "Test data are not protected" in said


@pytest.mark.parametrize("width", [60, 80, 160])
def test_no_line_is_too_long(card: Card, width: int) -> None:
    assert max(len(line) for line in printed(card, width).splitlines()) <= min(width, 100)


ROWS: list[tuple[str, Callable[[Card], Card], str]] = [
    (
        "no proof",
        lambda card: replace(card, privacy=replace(card.privacy, proven=None, reason="the noise has a seed")),
        "not proven: The noise has a seed.",
    ),
    (
        "reason for something else",
        lambda card: replace(card, robustness=replace(card.robustness, reason="the attack was stopped")),
        "The attack was stopped.",
    ),
    (
        "no certificate",
        lambda card: replace(card, robustness=replace(card.robustness, proven=None, reason="no noise")),
        "not proven: No noise.",
    ),
    (
        "nothing observed",
        lambda card: replace(card, privacy=replace(card.privacy, observed=None)),
        "not computed",
    ),
    ("no utility", lambda card: replace(card, utility=None), "not measured"),
    ("markup", lambda card: replace(card, data="[red]x[/red] [/]"), "[red]x[/red] [/]"),
    (
        "terminal escapes",
        lambda card: replace(card, data="a\x1b[2Jb\u202ec\udcff"),
        "a\ufffd[2Jb\ufffdc\ufffd",
    ),
    ("line breaks", lambda card: replace(card, notes=("one\ntwo",)), "one two"),
]


@pytest.mark.parametrize(("name", "change", "expected"), ROWS, ids=[row[0] for row in ROWS])
def test_variants(card: Card, name: str, change: Callable[[Card], Card], expected: str) -> None:
    said = printed(change(card))
    assert expected in said
    assert "\x1b" not in said
