"""``hauberk compare``: table, page, CSV, and what is not of the same thing."""

import csv
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hauberk.methods.comparison import Comparison, compare_runs, mean_curve, read_run
from hauberk.methods.training import prepare, train
from hauberk.report.comparison import render_comparison

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("compare")
    numbers = np.random.default_rng(0)
    y = np.arange(200) % 2
    x = np.clip(0.5 * numbers.random((200, 5)) + 0.5 * y[:, None], 0, 1).astype(np.float32)
    np.savez(root / "own.npz", x=x, y=y, records=180, classes=2)
    np.savez(root / "other.npz", x=x[:100], y=y[:100], records=90, classes=2)
    usual = {"size": "tiny", "model": "logistic", "attacked": 0, "tested": 20, "samples": 100, "sigma": 0.25}
    several: dict[str, dict[str, Any]] = {
        "one": {"data": "own.npz", "noise_multiplier": 0.8, "epochs": 4.0},
        "two": {"data": "own.npz", "noise_multiplier": 3.0},
        "finer": {"data": "own.npz", "noise_multiplier": 3.0, "delta": 1e-7},
        "elsewhere": {"data": "other.npz", "noise_multiplier": 3.0},
        "bare": {"data": "own.npz", "no_privacy": True, "epochs": 4.0},
        "plain": {"data": "own.npz", "method": "dp-sgd", "noise_multiplier": 0.8, "sigma": None},
    }
    for name, options in several.items():
        merged = {**usual, **options, "data": str(root / options["data"])}
        given = {key: value for key, value in merged.items() if value is not None}
        train(
            prepare(root=root / "runs", name=name, force=False, config=given, options={}),
            command="hauberk train",
        )
    return root / "runs"


@pytest.fixture
def runs(original: Path, workplace: Path) -> Path:
    return shutil.copytree(original, workplace / "runs")


def card(path: Path) -> dict[str, Any]:
    return dict(json.loads((path / "card.json").read_text()))


def test_every_number_is_the_cards(hauberk: Run, runs: Path) -> None:
    done = hauberk("compare", "one", "two", "plain", "--json", "--radius", "0.05,0.1")
    assert done.code == 0, done.err
    said = json.loads(done.out)
    assert [row["name"] for row in said["runs"]] == ["runs/one", "runs/two", "runs/plain"]
    for row in said["runs"]:
        its = card(Path(row["name"]))
        assert row["proven_epsilon"] == its["privacy"]["proven"]["epsilon"]
        assert row["claimed_epsilon"] == its["privacy"]["claimed"]["epsilon"]
        assert row["observed_epsilon"] is None
        assert row["accuracy"] == its["utility"]["accuracy"]
        proven = its["robustness"]["proven"]
        if proven is None:
            assert row["certified_at_0.1"] is None
            continue
        assert row["average_certified_radius"] == proven["average_certified_radius"]
        at = {point["radius"]: point["accuracy"] for point in proven["certified_accuracy"]}
        assert row["certified_at_0.05"] == at[0.05]
    with (runs / "comparison/comparison.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows] == ["runs/one", "runs/two", "runs/plain"]
    assert float(rows[0]["proven_epsilon"]) == said["runs"][0]["proven_epsilon"]
    assert rows[2]["average_certified_radius"] == ""


def test_the_page_stands_alone_and_epsilon_is_rounded_up(hauberk: Run, runs: Path) -> None:
    done = hauberk("compare", "one", "two", "--out", "side")
    assert done.code == 0, done.err
    page = Path("side/comparison.html").read_text()
    assert "http" not in page.replace('http-equiv="Content-Security-Policy"', "")
    assert "<script" not in page
    assert page.count('<svg class="chart"') == 2
    for name in ("one", "two"):
        proven = card(runs / name)["privacy"]["proven"]["epsilon"]
        shown = [float(number) for number in re.findall(r">(\d+\.\d+)<", page)]
        assert any(proven <= number <= 1.01 * proven for number in shown)
    assert "var(--run-2)" in page
    assert "#01021" not in page  # no stand-in colour is left
    assert render_comparison(compare_runs([runs / "one"])) == render_comparison(compare_runs([runs / "one"]))
    assert "ε proven" in done.out.replace("\N{NO-BREAK SPACE}", " ")


def remarks(hauberk: Run, *names: str) -> str:
    done = hauberk("compare", *names, "--json")
    assert done.code == 0, done.err
    said = json.loads(done.out)["remarks"]
    page = Path("runs/comparison/comparison.html").read_text()
    for sentence in said:
        assert sentence[:40].replace("'", "&#39;") in page
    return " ".join(said)


def test_what_is_not_of_the_same_thing_is_said(hauberk: Run, runs: Path) -> None:
    assert remarks(hauberk, "one", "two") == ""
    assert "epsilons are not of the same thing" in remarks(hauberk, "two", "elsewhere")
    assert "deltas differ (1e-05; 1e-07)" in remarks(hauberk, "two", "finer")
    assert "bare proves no privacy: trained without privacy noise" in remarks(hauberk, "two", "bare")
    content = card(runs / "two")
    content["privacy"] |= {"unit": "one person", "neighbours": "add or remove one person"}
    content["robustness"]["norm"] = "l1"
    (runs / "two/card.json").write_text(json.dumps(content))
    said = remarks(hauberk, "one", "two")
    assert "protect different things" in said
    assert "different norms" in said
    page = Path("runs/comparison/comparison.html").read_text()
    assert page.count('<svg class="chart"') == 3  # a chart for each norm


def test_between_two_radii_the_lower_share_counts(runs: Path) -> None:
    run = read_run(runs / "one")
    listed = {point.radius: point.accuracy for point in run.curve}
    assert run.certified_at(0.07) == listed[0.1]
    assert run.certified_at(99.0) == 0.0
    assert read_run(runs / "plain").certified_at(0.1) is None
    both = mean_curve([run, read_run(runs / "two")])
    other = read_run(runs / "two").certified_at(0.05)
    assert other is not None
    assert both[1].accuracy == pytest.approx((listed[0.05] + other) / 2)


def test_seconds_are_by_the_files_or_not_known(runs: Path) -> None:
    files = [runs / "one" / name for name in ("config.json", "model.safetensors", "card.json")]
    for path, at in zip(files, (1000, 1030, 1036), strict=True):
        os.utime(path, (at, at))
    run = read_run(runs / "one")
    assert (run.training_seconds, run.certification_seconds) == (30, 6)
    (runs / "one/certificates.json").write_text('{"on_the_card": true}')  # the card was written again since
    assert read_run(runs / "one").certification_seconds is None
    for path in files:
        os.utime(path, (1000, 1000))
    assert read_run(runs / "one").training_seconds is None


def test_markup_and_escapes_in_a_card_stay_text(runs: Path) -> None:
    content = card(runs / "one")
    content["data"] = "<b>[red]x\x1b[31m"
    (runs / "one/card.json").write_text(json.dumps(content))
    page = render_comparison(compare_runs([runs / "one"]))
    assert "<b>" not in page
    assert "\x1b" not in page
    assert "&lt;b&gt;" in page


WRONG = [
    ("no run", ("nowhere",), "no run"),
    ("twice", ("one", "runs/one"), "twice"),
    ("unfinished", ("one", "begun"), "not finished"),
    ("synthesizer", ("one", "synthesizer"), "synthesizer"),
    ("radius", ("one", "--radius", "x"), "--radius"),
    ("negative radius", ("one", "--radius=-1"), "negative"),
    ("out is a run", ("one", "--out", "runs/two"), "--out"),
    ("out is a file", ("one", "--out", "runs/two/card.json"), "--out"),
]


@pytest.mark.parametrize(("name", "words", "part"), WRONG, ids=[row[0] for row in WRONG])
def test_wrong_requests_cost_a_sentence_and_write_nothing(
    hauberk: Run, runs: Path, name: str, words: tuple[object, ...], part: str
) -> None:
    (runs / "two/card.json").rename(runs / "elsewhere/card.json")
    (runs / "synthesizer").mkdir()
    (runs / "synthesizer/config.json").write_text('{"kind": "synthesizer"}')
    shutil.copytree(runs / "two", runs / "begun")
    (runs / "two/card.json").write_text("{}")
    done = hauberk("compare", *words)
    assert done.code == 2
    assert part in done.err
    assert "Traceback" not in done.err
    assert not (runs / "comparison").exists()


def test_a_comparison_of_nothing_certified_says_so(runs: Path) -> None:
    page = render_comparison(compare_runs([runs / "plain"]))
    assert "none of these runs certifies anything" in page
    assert isinstance(compare_runs([runs / "plain"]), Comparison)
