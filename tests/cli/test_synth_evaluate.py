"""``hauberk synth evaluate`` and ``report``: files and presets in, a table, a page and an exit code out."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hauberk.synthesis import WARD, simulate_ward, write_patients
from hauberk.synthesis.evaluation import Evaluation, evaluate

pytest.importorskip("sklearn")
Command = Callable[..., Any]


@pytest.fixture
def files(workplace: Path) -> Path:
    write_patients(simulate_ward(60, seed=1), workplace / "real.csv")
    write_patients(simulate_ward(60, seed=2), workplace / "made.csv")
    WARD.write(workplace / "ward.toml")
    return workplace


def test_two_files_and_a_schema(hauberk: Command, files: Path) -> None:
    outcome = hauberk(
        "synth", "evaluate", "real.csv", "made.csv", "--schema", "ward.toml", "--out", "e/first"
    )
    assert outcome.code == 0, outcome.err
    for word in (
        "Marginals",
        "AUROC",
        "Discriminative score",
        "Cluster centres",
        "No membership test",
        "Report:",
    ):
        assert word in outcome.out
    found = Evaluation.from_json(json.loads((files / "e/first/evaluation.json").read_text()))
    assert found == evaluate(simulate_ward(60, seed=1), simulate_ward(60, seed=2))
    assert "Evaluation of synthetic records" in (files / "e/first/report.html").read_text()
    again = hauberk("synth", "evaluate", "real.csv", "made.csv", "--data", "ward", "--out", "e/first")
    assert again.code == 2
    assert "--force" in again.err


def test_presets_name_parts_and_the_schema(hauberk: Command, files: Path) -> None:
    words = ("synth", "evaluate", "ward:test", "made.csv", "--train", "ward", "--patients", 50, "--json")
    outcome = hauberk(*words, "--delta", "1e-6", "--alpha", "0.01", "--seed", 3)
    assert outcome.code == 0, outcome.err
    facts = json.loads(outcome.out)
    assert facts["sets"]["train"] == {"given": 2000, "used": 50}
    assert facts["sets"]["real"] == {"given": 1000, "used": 50}
    assert facts["membership"]["guesses"]["delta"] == 1e-6
    assert facts["membership"]["guesses"]["alpha"] == 0.01
    assert facts["seed"] == 3


def test_a_run_is_reported_and_evaluated_if_asked(hauberk: Command, files: Path) -> None:
    run = files / "runs" / "first"
    run.mkdir(parents=True)
    refused = hauberk("synth", "report", "first")
    assert refused.code == 2
    assert "evaluation.json" in refused.err
    (files / "made.csv").rename(run / "synthetic.csv")
    (run / "card.json").write_text("{}")
    outcome = hauberk("synth", "report", "first", "--real", "real.csv", "--schema", "ward.toml", "--json")
    assert outcome.code == 0, outcome.err
    report = files / json.loads(outcome.out)["report"]
    assert "The card of the run is not shown: card.json lacks the key" in report.read_text()
    (run / "card.json").unlink()
    report.unlink()
    assert hauberk("synth", "report", "runs/first").code == 0
    assert "The card of the run" not in report.read_text()


def test_repairs_are_told(hauberk: Command, files: Path) -> None:
    lines = (files / "made.csv").read_text().splitlines()
    replace(WARD, out_of_bounds="clip").write(files / "ward.toml")
    cells = lines[1].split(",")
    cells[lines[0].split(",").index("heart_rate")] = "900"
    (files / "made.csv").write_text("\n".join([lines[0], ",".join(cells), *lines[2:]]) + "\n")
    outcome = hauberk("synth", "evaluate", "real.csv", "made.csv", "--schema", "ward.toml", "--json")
    assert outcome.code == 0, outcome.err
    assert "1 values of the synthetic set were repaired" in outcome.err


def test_mistakes_cost_one_sentence(hauberk: Command, files: Path) -> None:
    for words, told in (
        (("real.csv", "made.csv"), "--schema or --data"),
        (("real.csv", "made.csv", "--schema", "ward.toml", "--data", "ward"), "give one of them"),
        (("ward:nowhere", "made.csv"), "no part 'nowhere'"),
        (("ward", "nothing.csv"), "nothing.csv"),
        (("ward", "made.csv", "--alpha", "2"), "alpha"),
        (("ward", "."), "0 files of synthetic patients"),
        (("ward:train", "made.csv", "--train", "ward:train"), "training set"),
    ):
        outcome = hauberk("synth", "evaluate", *words, "--out", "e")
        assert outcome.code == 2, words
        assert told in outcome.err
        assert "Traceback" not in outcome.err
        assert not (files / "e").exists()
    assert hauberk("synth", "report", "e", "--train", "ward").code == 2
    (files / "e").mkdir()
    (files / "e" / "evaluation.json").write_text("{}")
    assert "lacks the key" in hauberk("synth", "report", "e").err


def test_help_has_an_example(hauberk: Command) -> None:
    assert "Example: hauberk synth evaluate" in hauberk("synth", "evaluate", "--help").out
    assert "Example: hauberk synth report" in hauberk("synth", "report", "--help").out
