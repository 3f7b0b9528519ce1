"""`hauberk truth-table`: rows from the catalogues, their keys, what ends with which exit code."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import hauberk.audit.truth_table as module
from hauberk.audit.truth_table import Inquiry, chosen_subjects, level_of_an_attack, subjects
from hauberk.audit.truth_table_rows import DELTA, Finding, Subject, TruthRow, judged
from hauberk.methods import METHODS
from hauberk.progress import Progress
from hauberk.synthesis.catalogue import SYNTHESIZERS

KEYS = [
    "method",
    "variant",
    "claimed_epsilon",
    "proven_epsilon",
    "observed_epsilon",
    "claimed_radius",
    "proven_radius",
    "tested",
    "broken",
    "accuracy",
    "refuted",
    "reason",
]
Run = Callable[..., Any]


def planted(row: TruthRow) -> Callable[[Subject, Inquiry, Progress], Finding]:
    """A maker of rows that trains nothing."""

    def make(subject: Subject, inquiry: Inquiry, progress: Progress) -> Finding:
        given = replace(row, method=subject.method, variant=subject.variant)
        return judged(Finding(row=given, attacks=("none",)), refuted_because=(), missing=("made up",))

    return make


def test_a_few_rows_end_to_end(hauberk: Run, workplace: Path) -> None:
    said = hauberk("truth-table", "--size", "tiny", "--only", "dp-sgd:sound,pixeldp:paper,vae", "--json")
    assert said.code == 0, said.err
    rows = json.loads(said.out)
    assert [list(row) for row in rows] == [KEYS] * 3
    by_name = {(row["method"], row["variant"]): row for row in rows}
    private = by_name["dp-sgd", "sound"]
    assert private["claimed_epsilon"] == private["proven_epsilon"] == pytest.approx(1.0, abs=1e-3)
    assert 0 <= private["observed_epsilon"] <= private["proven_epsilon"]
    assert 0 < private["accuracy"] < 1
    assert "no robustness" in private["reason"]
    robust = by_name["pixeldp", "paper"]
    assert robust["claimed_epsilon"] is robust["observed_epsilon"] is None
    assert "does not protect" in robust["reason"]
    assert robust["proven_radius"] >= robust["claimed_radius"] >= 0
    assert robust["broken"] == 0 <= robust["tested"]
    synthesizer = by_name["vae", "sound"]
    assert synthesizer["claimed_radius"] is synthesizer["accuracy"] is None
    assert "classifies nothing" in synthesizer["reason"]
    folder = workplace / "runs" / "truth-table"
    assert {path.name for path in folder.iterdir()} == {
        "truth-table.html",
        "truth-table.md",
        "truth-table.json",
    }
    kept = json.loads((folder / "truth-table.json").read_text())
    assert [finding["row"] for finding in kept["findings"]] == rows
    text = (folder / "truth-table.md").read_text()
    assert "| dp-sgd | sound |" in text
    assert "—" in text
    assert "dp-sgd (sound) stands" in said.err


def test_a_refuted_sound_row_ends_with_exit_code_1(hauberk: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    row = TruthRow(method="", variant="", claimed_epsilon=1.0, proven_epsilon=1.0, observed_epsilon=1.2)
    monkeypatch.setattr(module, "method_finding", planted(row))
    said = hauberk("truth-table", "--size", "tiny", "--only", "dp-sgd", "--out", "here")
    assert said.code == 1
    assert "refuted though sound: dp-sgd" in said.err
    assert "refuted" in said.out


def test_a_refuted_published_row_is_expected(hauberk: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    row = TruthRow(method="", variant="", claimed_epsilon=1.0, observed_epsilon=1.2)
    monkeypatch.setattr(module, "method_finding", planted(row))
    said = hauberk("truth-table", "--size", "tiny", "--only", "adlm:paper", "--json", "--out", "here")
    assert said.code == 0
    (found,) = json.loads(said.out)
    assert found["refuted"] is True
    assert found["reason"].startswith("the observed epsilon is above the claimed one")


def test_an_interrupted_table_goes_on_with_its_finished_rows(
    hauberk: Run, monkeypatch: pytest.MonkeyPatch, workplace: Path
) -> None:
    made: list[str] = []

    def make(subject: Subject, inquiry: Inquiry, progress: Progress) -> Finding:
        if subject.name == "dp-sgd:paper" and "dp-sgd:paper" not in made:
            made.append(subject.name)
            raise KeyboardInterrupt
        made.append(subject.name)
        return Finding(row=TruthRow(method=subject.method, variant=subject.variant), attacks=())

    monkeypatch.setattr(module, "method_finding", make)
    words = ("truth-table", "--size", "tiny", "--only", "dp-sgd", "--out", "here")
    assert hauberk(*words).code != 0
    (kept,) = (workplace / "here" / "parts").iterdir()
    # another call for other rows, in the meantime, leaves them alone
    assert hauberk("truth-table", "--size", "tiny", "--only", "adlm", "--out", "here").code == 0
    assert kept.is_file()
    made.remove("adlm:paper")
    assert hauberk(*words).code == 0
    assert made == ["dp-sgd:sound", "dp-sgd:paper", "dp-sgd:paper"]
    assert not (workplace / "here" / "parts").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--only", "sgd"), "no row 'sgd'"),
        (("--quick", "--size", "tiny"), "--quick means --size quick"),
        (("--seed", -1), "--seed is a whole number"),
    ],
)
def test_a_wrong_request_costs_one_sentence(hauberk: Run, words: tuple[object, ...], said: str) -> None:
    outcome = hauberk("truth-table", *words)
    assert outcome.code == 2
    assert said in " ".join(outcome.err.split())


def test_the_rows_are_those_of_the_catalogues() -> None:
    names = [each.name for each in subjects()]
    assert len(set(names)) == len(names)
    for method, row in METHODS.items():
        assert {f"{method}:{variant}" for variant in row.variants} <= set(names)
    assert set(SYNTHESIZERS) <= {each.method for each in subjects()}
    assert "igamt:paper" in names
    assert [each.name for each in chosen_subjects(["adlm", "vae:sound"])] == ["adlm:paper", "vae:sound"]


def test_the_level_is_divided_over_two_attacks_a_row_and_leaves_room_for_delta() -> None:
    assert level_of_an_attack() == pytest.approx(1e-3 / (2 * len(subjects())))
    # one training with canaries cannot refute anything at a level below its delta
    assert level_of_an_attack() / 6 > 10 * DELTA


def test_a_verdict_says_why_and_what_is_missing() -> None:
    row = TruthRow(method="m", variant="paper", claimed_epsilon=1.0, proven_epsilon=3.0, observed_epsilon=2.0)
    found = judged(Finding(row=row, attacks=()), refuted_because=("a reason",), missing=("a gap", "a gap"))
    assert (found.row.refuted, found.row.reason) == (True, "a reason; a gap")
    within = replace(row, observed_epsilon=0.5)
    stands = judged(Finding(row=within, attacks=()), refuted_because=(), missing=())
    assert (stands.row.refuted, stands.row.reason) == (False, None)
    beyond = replace(row, observed_epsilon=4.0)
    proof = judged(Finding(row=beyond, attacks=()), refuted_because=("a reason",), missing=())
    assert proof.row.reason == "a reason; the observed epsilon is above the proven one"


@pytest.mark.slow
def test_the_whole_quick_table(hauberk: Run) -> None:
    said = hauberk("truth-table", "--quick", "--json")
    assert said.code == 0, said.err
    rows = {(row["method"], row["variant"]): row for row in json.loads(said.out)}
    assert len(rows) == len(subjects())
    assert not any(row["refuted"] for (_, variant), row in rows.items() if variant == "sound")
    assert rows["directional", "paper"]["observed_epsilon"] > 5
    for method in ("stobatch", "transdenoiser", "igamt", "adlm", "secure-sgd"):
        row = rows[method, "paper"]
        assert row["observed_epsilon"] > row["claimed_epsilon"], method
    for method in ("hgm-pixeldp", "secure-sgd-agm"):
        assert rows[method, "paper"]["refuted"], method
    for row in rows.values():
        assert row["reason"] or None not in row.values()
