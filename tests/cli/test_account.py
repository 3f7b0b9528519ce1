"""``hauberk account RUN RUN …``: what several runs spent together."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hauberk.accounting import Ledger, prove
from hauberk.methods.training import prepare, train

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four runs on the same records: two private ones, one with a private r beforehand, one without noise."""
    root = tmp_path_factory.mktemp("account")
    numbers = np.random.default_rng(0)
    x = numbers.random((60, 1, 14, 14)).astype(np.float32)
    np.savez(root / "own.npz", x=x, y=np.arange(60) % 2, records=54, classes=2)
    usual = {"data": str(root / "own.npz"), "size": "tiny", "attacked": 0, "tested": 2, "samples": 20}
    logistic = {"model": "logistic"}
    several: dict[str, dict[str, Any]] = {
        "one": {"noise_multiplier": 2.0, **logistic},
        "two": {"noise_multiplier": 4.0, "delta": 1e-6, "seed": 1, **logistic},
        "bare": {"no_privacy": True, **logistic},
        "seeded": {"noise_multiplier": 2.0, "noise_seed": 3, **logistic},
        "few": {"noise_multiplier": 2.0, "validation": 4, **logistic},
        "redistributed": {"epsilon": 4.0, "method": "secure-sgd", "redistribution": "private"},
    }
    for name, options in several.items():
        prepared = prepare(
            root=root / "runs", name=name, force=False, config={**usual, **options}, options={}
        )
        train(prepared, command="hauberk train")
    return root / "runs"


@pytest.fixture
def runs(original: Path, workplace: Path) -> Path:
    return shutil.copytree(original, workplace / "runs")


def events_of(path: Path) -> tuple[Any, ...]:
    return Ledger.from_json(json.loads((path / "events.json").read_text())).events


def test_runs_cost_the_composition_of_their_events_at_the_smallest_delta(hauberk: Run, runs: Path) -> None:
    done = hauberk("account", "one", "two", "--json")
    assert done.code == 0, done.err
    said = json.loads(done.out)
    expected = prove([*events_of(runs / "one"), *events_of(runs / "two")], 1e-6).epsilon
    assert said["delta"] == 1e-6
    assert said["epsilon"] == pytest.approx(expected, rel=1e-6)
    alone = [run["epsilon"] for run in said["runs"]]
    assert max(alone) < said["epsilon"] < sum(alone) + 1  # the second stands at a larger delta alone
    assert "smallest" in " ".join(said["remarks"])
    text = hauberk("account", "one", "two").out
    assert "Together: epsilon ≤" in text
    assert "smallest" in text


def test_the_total_never_lies_below_a_part_and_delta_can_be_chosen(hauberk: Run, runs: Path) -> None:
    at = {
        delta: json.loads(hauberk("account", "one", "two", "--delta", delta, "--json").out)
        for delta in ("1e-4", "1e-6")
    }
    assert at["1e-4"]["epsilon"] < at["1e-6"]["epsilon"]
    single = json.loads(hauberk("account", "one", "--json").out)
    assert single["epsilon"] == pytest.approx(single["runs"][0]["epsilon"], rel=1e-9)
    assert single["epsilon"] < at["1e-6"]["epsilon"]


def test_a_run_without_noise_makes_the_total_unbounded(hauberk: Run, runs: Path) -> None:
    done = hauberk("account", "one", "bare")
    assert done.code == 0, done.err
    assert "unbounded" in done.out
    assert "bare trained without privacy noise" in done.out
    said = json.loads(hauberk("account", "one", "bare", "--json").out)
    assert said["unbounded"]
    assert said["epsilon"] is None


def test_a_release_before_training_is_no_step(hauberk: Run, runs: Path) -> None:
    config = json.loads((runs / "redistributed/config.json").read_text())
    assert len(config["plan"]["beforehand"]) == 1
    one = json.loads(hauberk("account", "--run", "redistributed", "--json").out)
    total = sum(event.count for event in events_of(runs / "redistributed"))
    assert one["steps"] == total - 1
    assert one["releases_beforehand"] == 1
    several = json.loads(hauberk("account", "redistributed", "--json").out)["runs"][0]
    assert (several["steps"], several["releases_beforehand"]) == (total - 1, 1)


def test_other_records_are_counted_only_when_told(hauberk: Run, runs: Path) -> None:
    refused = hauberk("account", "one", "few")
    assert refused.code == 2
    assert "--same-records" in refused.err
    assert "did not train on the same records" in refused.err
    told = json.loads(hauberk("account", "one", "few", "--same-records", "--json").out)
    assert told["epsilon"] > json.loads(hauberk("account", "one", "--json").out)["epsilon"]
    assert "as if in all of them" in " ".join(told["remarks"])


def test_another_unit_is_refused(hauberk: Run, runs: Path) -> None:
    card = json.loads((runs / "two/card.json").read_text())
    card["privacy"] |= {"unit": "one person", "neighbours": "add or remove one person"}
    (runs / "two/card.json").write_text(json.dumps(card))
    done = hauberk("account", "one", "two", "--same-records")
    assert done.code == 2
    assert "one person" in done.err


WRONG = [
    ("proves nothing", ("one", "seeded"), "recorded seed"),
    ("twice", ("one", "./runs/one"), "twice"),
    ("no run", ("one", "nowhere"), "no run"),
    ("with a plan", ("one", "--records", 5), "events"),
    ("with --run", ("one", "--run", "two"), "events"),
    ("delta", ("one", "--delta", 2), "delta"),
    ("same records of none", ("--same-records",), "--same-records"),
]


@pytest.mark.parametrize(("name", "words", "part"), WRONG, ids=[row[0] for row in WRONG])
def test_wrong_requests_cost_a_sentence(
    hauberk: Run, runs: Path, name: str, words: tuple[object, ...], part: str
) -> None:
    done = hauberk("account", *words)
    assert done.code == 2
    assert part in done.err
    assert "Traceback" not in done.err


def test_a_run_that_has_not_finished_is_refused(hauberk: Run, runs: Path) -> None:
    (runs / "two/card.json").unlink()
    done = hauberk("account", "one", "two")
    assert done.code == 2
    assert "not finished" in done.err
