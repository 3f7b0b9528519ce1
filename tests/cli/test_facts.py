"""Commands that need no training."""

import json
from collections.abc import Callable

import pytest

Run = Callable[..., object]
PLAN = ("account", "--records", 60000, "--batch", 512, "--epochs", 40)


def test_the_reference_plan_accounts_to_2_68(hauberk: Run) -> None:
    done = hauberk(*PLAN, "--noise-multiplier", 1.23, "--delta", 1e-6, "--json")
    answer = json.loads(done.out)
    assert answer["epsilon"] == pytest.approx(2.68, abs=0.02)
    assert answer["steps"] == 4688
    assert answer["accountant"].startswith("PLD")
    assert "2.68" in hauberk(*PLAN, "--noise-multiplier", 1.23, "--delta", 1e-6).out


def test_calibration_by_the_command_line_never_overshoots(hauberk: Run) -> None:
    answer = json.loads(hauberk(*PLAN, "--epsilon", 2, "--json").out)
    assert 1.99 < answer["epsilon"] <= 2.0


WRONG = [
    ("nothing", ("account",), "--records"),
    ("no noise", PLAN, "exactly one"),
    ("two", (*PLAN, "--epsilon", 1, "--noise-multiplier", 1), "exactly one"),
    ("zero noise", (*PLAN, "--noise-multiplier", 0), "positive"),
    ("delta", (*PLAN, "--noise-multiplier", 1, "--delta", 2), "delta"),
    ("batch", ("account", "--records", 10, "--batch", 11, "--epochs", 1, "--epsilon", 1), "batch"),
    ("unknown run", ("account", "--run", "nowhere"), "no run"),
    ("run and plan", ("account", "--run", "nowhere", "--batch", 5), "--run"),
    ("unknown run to certify", ("certify", "nowhere"), "no run"),
    ("unknown run to attack", ("attack", "nowhere"), "no run"),
    ("unknown run to report", ("report", "nowhere"), "no run"),
    ("unknown command", ("conjure",), "conjure"),
]


@pytest.mark.parametrize(("name", "words", "part"), WRONG, ids=[row[0] for row in WRONG])
def test_wrong_requests_exit_with_2(hauberk: Run, name: str, words: tuple[object, ...], part: str) -> None:
    done = hauberk(*words)
    assert done.code == 2
    assert part in done.err
    assert "Traceback" not in done.err


def test_methods_are_listed_with_their_guarantees(hauberk: Run) -> None:
    rows = json.loads(hauberk("methods", "--json").out)
    assert rows[0]["name"] == "private-smoothing"
    assert {"name", "summary", "paper", "variants", "claimed", "proven", "why_not"} <= set(rows[0])
    assert all(row["why_not"] for row in rows if "paper" in row["variants"])
    assert "private-smoothing" in hauberk("methods").out


def test_data_sets_are_listed(hauberk: Run) -> None:
    rows = json.loads(hauberk("data", "list", "--json").out)
    assert {row["name"] for row in rows} >= {"digits", "mnist", "fashion_mnist", "cifar10", "adult"}
    assert "built in" in hauberk("data", "list").out


COMMANDS = ["demo", "train", "certify", "attack", "report", "account", "methods", "data list"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(hauberk: Run, command: str) -> None:
    done = hauberk(*command.split(), "--help")
    assert done.code == 0
    assert f"Example: hauberk {command}" in " ".join(done.out.split())


def test_the_version_is_printed(hauberk: Run) -> None:
    assert hauberk("--version").out.startswith("hauberk 0.")
