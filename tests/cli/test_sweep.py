"""``hauberk sweep``: the grid, what is kept and what is gone on with, failures, cost, mean and spread.

Most tests run the cells in the test's own process; the last ones start real processes.
"""

import csv
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hauberk.accounting import prove
from hauberk.cli import main
from hauberk.errors import RequestError
from hauberk.methods.comparison import read_run
from hauberk.methods.spending import read_spent
from hauberk.methods.sweeping import Slot, Spread, grid, slots

Run = Callable[..., Any]
OWN = ("--data", "own.npz", "--size", "tiny", "--model", "logistic", "--config", "small.toml")
SWEEP = ("sweep", *OWN, "--noise-multiplier", 2, "--sigma", "0.1,0.5", "--seeds", 2, "--name", "grid")
SMALL = ("sweep", *OWN, "--noise-multiplier", 2, "--sigma", "0.5", "--seeds", 2, "--name", "grid")
CELLS = [f"sigma-{sigma}-seed-{seed}" for seed in (0, 1) for sigma in (0.1, 0.5)]


class InThisProcess:
    """Stands in for a process: runs the command at once."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        before, sys.argv = sys.argv, ["hauberk", *command]
        try:
            with log.open("w") as words, redirect_stdout(words), redirect_stderr(words):
                main()
            self.returncode = 0
        except SystemExit as leaving:
            self.returncode = int(leaving.code or 0)
        finally:
            sys.argv = before

    def poll(self) -> int:
        return self.returncode


@pytest.fixture
def started(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Data to sweep on; the names of the cells that are started go into the list."""
    numbers, y = np.random.default_rng(0), np.arange(120) % 2
    x = np.clip(0.6 * numbers.random((120, 4)) + 0.4 * y[:, None], 0, 1).astype(np.float32)
    np.savez(workplace / "own.npz", x=x, y=y, records=108, classes=2)
    (workplace / "small.toml").write_text("attacked = 0\ntested = 12\nsamples = 50\nbatch = 54\n")
    names: list[str] = []

    def start(command: Sequence[str], slot: Slot, log: Path) -> InThisProcess:
        names.append(log.stem)
        return InThisProcess(command, log)

    monkeypatch.setattr("hauberk.methods.sweeping._started", start)
    # drawing the single runs' reports would take most of the time
    monkeypatch.setattr("hauberk.cli.train.write_report", lambda card, path: path.write_text("a report"))
    return names


def test_a_sweep_has_a_run_for_every_cell_with_mean_spread_and_cost(hauberk: Run, started: list[str]) -> None:
    done = hauberk(*SWEEP, "--json")
    assert done.code == 0, done.err
    assert started == CELLS
    assert "not accounted" in done.err
    said, folder = json.loads(done.out), Path("runs/grid")
    runs = {name: read_run(folder / name) for name in CELLS}
    for cell, names in zip(said["cells"], (CELLS[::2], CELLS[1::2]), strict=True):
        accuracies = [runs[name].accuracy for name in names]
        assert cell["accuracy_mean"] == pytest.approx(statistics.mean(accuracies))
        assert cell["accuracy_deviation"] == pytest.approx(statistics.stdev(accuracies))
        assert cell["proven_epsilon"] == max(runs[name].proven_epsilon for name in names)
        assert (cell["finished"], cell["failed"]) == (2, 0)
    events = [event for name in CELLS for event in read_spent(folder / name).ledger.events]
    (cost,) = said["cost_if_it_were"]
    assert cost["epsilon"] == pytest.approx(prove(events, 1e-5).epsilon, rel=1e-4)
    assert cost["epsilon"] > max(run.proven_epsilon or 0 for run in runs.values())
    assert f"epsilon ≤ {cost['epsilon']:.1f}"[:13] in done.err  # what the plans cost is said beforehand
    assert json.loads((folder / "sweep.json").read_text()) == said
    with (folder / "sweep.csv").open(newline="") as file:
        assert [row["sigma"] for row in csv.DictReader(file)] == ["0.1", "0.5"]
    page = (folder / "sweep.html").read_text()
    assert "Not accounted" in page
    assert page.count('<svg class="chart"') == 2
    # given again, finished runs are kept, byte for byte
    before = {name: (folder / name / "card.json").read_bytes() for name in CELLS}
    again = hauberk(*SWEEP)
    assert again.code == 0, again.err
    assert "4 of 4 runs are finished" in again.err
    assert started == CELLS
    assert {name: (folder / name / "card.json").read_bytes() for name in CELLS} == before
    assert "±" in again.out
    # a larger grid keeps what it has; one with other settings is refused
    more = hauberk(*SWEEP[:-4], "--seeds", 3, "--name", "grid")
    assert more.code == 0, more.err
    assert started[4:] == [f"sigma-{sigma}-seed-2" for sigma in (0.1, 0.5)]
    refused = hauberk(*SWEEP, "--lr", 0.5)
    assert refused.code == 2
    assert "other settings (lr" in refused.err


def test_a_cell_is_what_train_would_have_made(hauberk: Run, started: list[str]) -> None:
    done = hauberk("sweep", *OWN, "--epsilon", 4, "--name", "grid", "--epochs", 2)
    assert done.code == 0, done.err
    cell = json.loads(Path("runs/grid/epsilon-4-seed-0/config.json").read_text())
    words = cell["command"].split()
    assert words[:2] == ["hauberk", "train"]
    trained = hauberk(*words[1:], "--name", "same")
    assert trained.code == 0, trained.err
    same = json.loads(Path("runs/same/config.json").read_text())
    for key in ("settings", "plan", "shape", "classes", "notes"):
        assert cell[key] == same[key], key
    assert hauberk("verify", "runs/grid/epsilon-4-seed-0").code == 0


def test_a_failing_cell_is_reported_and_loses_nobody(hauberk: Run, started: list[str]) -> None:
    fails, works = CELLS[3], CELLS[1]
    Path("runs/grid").mkdir(parents=True)
    Path(f"runs/grid/{fails}").write_text("in the way")
    done = hauberk(*SMALL)
    assert done.code == 1
    assert started == [works, fails]
    assert f"{fails} failed" in done.err
    assert "is a file" in done.err
    said = json.loads(Path("runs/grid/sweep.json").read_text())
    assert [(cell["finished"], cell["failed"]) for cell in said["cells"]] == [(1, 1)]
    assert [failure["run"] for failure in said["failures"]] == [fails]
    assert said["cells"][0]["accuracy_deviation"] is None  # one seed has no spread
    assert "is a file" in Path(f"runs/grid/{fails}.log").read_text()
    Path(f"runs/grid/{fails}").unlink()
    again = hauberk(*SMALL)
    assert again.code == 0, again.err
    assert started[2:] == [fails]
    assert not list(Path("runs/grid").glob("*.log"))


def test_an_interrupted_cell_is_gone_on_with_or_begun_again(hauberk: Run, started: list[str]) -> None:
    assert hauberk(*SMALL).code == 0
    audit, lost = (Path("runs/grid") / name for name in started)
    for path in (audit, lost):  # the first was killed before its card, the second before any checkpoint
        (path / "card.json").unlink()
        (path / "manifest.json").unlink()
    weights = (audit / "model.safetensors").read_bytes()
    (lost / "model.safetensors").unlink()
    done = hauberk(*SMALL)
    assert done.code == 0, done.err
    assert started[2:] == started[:2]
    assert (audit / "model.safetensors").read_bytes() == weights
    assert read_spent(lost).ledger.steps == 2
    card = (audit / "card.json").read_bytes()
    (audit / "manifest.json").unlink()  # killed after its card: nothing is trained again
    assert hauberk(*SMALL).code == 0
    assert (audit / "card.json").read_bytes() == card
    assert (audit / "manifest.json").exists()


def test_what_a_sweep_without_privacy_costs_is_not_bounded(hauberk: Run, started: list[str]) -> None:
    done = hauberk("sweep", *OWN, "--no-privacy", "--seeds", 1, "--name", "bare", "--json")
    assert done.code == 0, done.err
    (cost,) = json.loads(done.out)["cost_if_it_were"]
    assert cost["epsilon"] is None
    assert "not bounded" in done.err


WRONG = [
    ("list", ("--epsilon", "1,x"), "--epsilon"),
    ("twice", ("--epsilon", "1,1.0"), "twice"),
    ("seeds", ("--seeds", 0), "--seeds"),
    ("seed", ("--seed", 3), "--seeds"),
    ("resume", ("--resume", "runs/x"), "--resume"),
    ("name", ("--name", "a/b"), "--name"),
    ("jobs", ("--jobs", 0), "--jobs"),
    ("option", ("--nonsense", 1), "nonsense"),
    ("method", ("--method", "nonsense"), "nonsense"),
    ("unread", ("--method", "dp-sgd", "--sigma", "0.5"), "sigma"),
    ("data", ("--data", "nowhere.npz"), "nowhere"),
    ("negative", ("--sigma=-1",), "sigma"),
    ("sizes", ("--quick", "--size", "tiny"), "--quick"),
    ("device", ("--device", "abacus"), "device"),
]


@pytest.mark.parametrize(("name", "words", "part"), WRONG, ids=[row[0] for row in WRONG])
def test_wrong_requests_cost_a_sentence_before_anything_is_trained(
    hauberk: Run, started: list[str], name: str, words: tuple[object, ...], part: str
) -> None:
    done = hauberk("sweep", *(() if "--data" in words or "--size" in words else OWN), *words)
    assert done.code == 2
    assert part in done.err
    assert "Traceback" not in done.err
    assert started == []
    assert not Path("runs").exists()


def test_the_grid_begins_with_the_first_seed_of_everything() -> None:
    cells = grid((1.0, 2.0), (0.25,), 2)
    assert [(cell.epsilon, cell.seed) for cell in cells] == [(1.0, 0), (2.0, 0), (1.0, 1), (2.0, 1)]
    assert cells[0].words() == ("--epsilon", "1.0", "--sigma", "0.25", "--seed", "0")
    assert [cell.name for cell in grid((), (), 1)] == ["seed-0"]
    with pytest.raises(RequestError, match="six digits"):
        grid((1.00000001, 1.00000002), (), 1)


def test_a_spread_over_seeds() -> None:
    assert Spread.of([1.0, 3.0]) == Spread(mean=2.0, deviation=pytest.approx(2**0.5))
    assert Spread.of([1.0]) == Spread(mean=1.0, deviation=None)
    assert Spread.of([1.0, None]) == Spread(mean=None, deviation=None)


def test_processes_are_one_per_device_or_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    assert slots("cpu", None) == (Slot(device="cpu", environment={}),)
    assert slots("cpu", 4) == (Slot(device="cpu", environment={"OMP_NUM_THREADS": "2"}),) * 4
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [slot.environment["CUDA_VISIBLE_DEVICES"] for slot in slots("auto", None)] == ["0", "1"]
    assert [slot.environment["CUDA_VISIBLE_DEVICES"] for slot in slots("cuda:1", None)] == ["1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    assert [slot.environment["CUDA_VISIBLE_DEVICES"] for slot in slots("cuda", None)] == ["5", "7"]
    with pytest.raises(RequestError, match="--jobs"):
        slots("cuda", 2)


@pytest.mark.slow
def test_real_processes_side_by_side_and_a_killed_sweep_goes_on(workplace: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "hauberk", "sweep", "--data", "digits", "--size", "tiny", "--seeds", "3"]
    command += ["--epochs", "40", "--name", "grid", "--device", "cpu", "--jobs", "2", "--json"]
    first = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while not list(Path("runs/grid").glob("*/events.json")) and first.poll() is None:
        time.sleep(0.1)
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=60)
    assert first.returncode == 128 + signal.SIGTERM
    assert not list(Path("runs/grid").glob("*/card.json"))
    second = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert second.returncode == 0, second.stderr
    said = json.loads(second.stdout)
    assert said["cells"][0]["finished"] == 3
    assert not list(Path("runs/grid").glob("*.log"))
