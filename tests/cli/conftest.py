"""Runs commands in the test's own process and folder, as a user would: words in, text and exit code out."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from hauberk.cli import main, screen


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder; nothing is known about data sets."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HAUBERK_DATA", str(tmp_path / "no-data"))
    monkeypatch.setenv("COLUMNS", "200")
    for console in (screen.output, screen.messages):  # made when the program began, with the width of then
        monkeypatch.setattr(console, "width", 200)
    return tmp_path


@pytest.fixture
def hauberk(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., Outcome]:
    def run(*words: object) -> Outcome:
        monkeypatch.setattr("sys.argv", ["hauberk", *map(str, words)])
        capfd.readouterr()
        code = 0
        try:
            main()
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        captured = capfd.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run
