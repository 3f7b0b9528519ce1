"""The report of synthetic records: everything is on the page, nothing on it acts, and no word is unearned."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from hauberk.accounting.card import Card
from hauberk.report.synthesis_report import render_synthesis, write_synthesis_report
from hauberk.report.synthesis_wording import key_figures, summary
from hauberk.synthesis import simulate_ward
from hauberk.synthesis.evaluation import Evaluation, evaluate

pytest.importorskip("sklearn")


@pytest.fixture(scope="module")
def leaked() -> Evaluation:
    train = simulate_ward(120, seed=2)
    return evaluate(simulate_ward(110, seed=1), train, train=train, patients=100)


@pytest.fixture(scope="module")
def alone() -> Evaluation:
    """No training set: no reference, no membership test."""
    return evaluate(simulate_ward(60, seed=1), simulate_ward(60, seed=2))


@pytest.fixture(scope="module")
def page(leaked: Evaluation) -> str:
    return render_synthesis(leaked)


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.identifiers: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.identifiers += [value or "" for name, value in attrs if name == "id"]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.identifiers += [value or "" for name, value in attrs if name == "id"]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole(page: str, leaked: Evaluation) -> None:
    tags = _Tags()
    tags.feed(page)
    assert tags.open == []
    assert "script" not in tags.seen
    assert len(set(tags.identifiers)) == len(tags.identifiers)
    assert page.count('<svg class="chart"') == 2 + 3 + 5 + 11 + 1
    assert "default-src 'none'" in page
    for feature in leaked.fidelity.features:
        assert f'<th scope="row">{feature.name}</th>' in page
    assert "100 looked at" in page
    assert "no privacy guarantee of the synthesizer covers it" in page
    assert "#0102" not in page  # every stand-in has become a colour of the page
    assert not re.search(r"\bnan\b|\bNone\b", page)


def test_the_same_evaluation_gives_the_same_bytes(page: str, leaked: Evaluation) -> None:
    assert render_synthesis(leaked) == page


def test_a_leak_is_told(leaked: Evaluation, card: Card) -> None:
    said = summary(leaked, None)["Privacy"]
    assert "equal a training record in every value" in said
    assert "refutes every epsilon below 2." in said
    assert not key_figures(leaked, None)[3].doubt
    proven = replace(card, privacy=replace(card.privacy, proven=replace(card.privacy.proven, epsilon=1.5)))
    assert "contradicts the proof" in summary(leaked, proven)["Privacy"]
    assert key_figures(leaked, proven)[3].doubt
    loose = replace(proven.privacy.proven, epsilon=50.0)
    assert (
        "contradicts"
        not in summary(leaked, replace(card, privacy=replace(card.privacy, proven=loose)))["Privacy"]
    )
    unproven = replace(card, privacy=replace(card.privacy, proven=None))
    assert "Nothing is proven" in summary(leaked, unproven)["Privacy"]


def test_what_was_not_measured_is_said(alone: Evaluation) -> None:
    page = render_synthesis(replace(alone, prediction=None, detection=None))
    assert "Membership was not tested" in page
    assert "There is no curve of predictions" in page
    assert page.count("not measured, see the notes") == 3
    assert "needs the training set" in page


def test_a_difference_is_named_only_where_there_is_one(alone: Evaluation) -> None:
    used = alone.prediction
    assert used is not None
    none = replace(used, auroc_lost=replace(used.auroc_lost, value=0.01, low=-0.02, high=0.04))
    sure = replace(
        used,
        auroc_lost=replace(used.auroc_lost, value=0.1, low=0.05, high=0.15),
        auroc_synthetic=replace(used.auroc_synthetic, value=0.7, low=0.6, high=0.8),
    )
    none = replace(none, auroc_synthetic=sure.auroc_synthetic)
    assert "no difference" in summary(replace(alone, prediction=none), None)["Usefulness"]
    assert "What is lost is 0.100" in summary(replace(alone, prediction=sure), None)["Usefulness"]
    guess = replace(used, auroc_synthetic=replace(used.auroc_synthetic, value=0.5, low=0.4, high=0.6))
    assert "guessing" in summary(replace(alone, prediction=guess), None)["Usefulness"]


def test_hostile_names_stay_text(alone: Evaluation) -> None:
    bad = "<script>alert('$x^$')</script>\x1b[31m"
    near, pictures = alone.fidelity, alone.pictures
    hostile = replace(
        alone,
        schema=bad,
        notes=(bad,),
        fidelity=replace(near, features=(replace(near.features[0], name=bad), *near.features[1:])),
        pictures=replace(
            pictures,
            marginals=(
                replace(pictures.marginals[1], name=bad, labels=(bad, "$\\frac")),
                *pictures.marginals[2:],
            ),
        ),
    )
    page = render_synthesis(hostile, bad)
    assert "<script" not in page
    assert "\x1b" not in page
    assert "The card of the run is not shown: &lt;script&gt;" in page


def test_it_is_written(alone: Evaluation, card: Card, tmp_path: Path) -> None:
    write_synthesis_report(alone, tmp_path / "report.html", card=card)
    text = (tmp_path / "report.html").read_text()
    assert "<h1>private-smoothing" in text
    assert card.command in text
