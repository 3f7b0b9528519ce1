"""How tests read the pages of docs/: every fenced block of commands or Python is executed, page by page.

The blocks of a page run in its order, in one empty folder and with the same Python names, as a reader would
run them. Comments before a block say where a test differs from that reader:

    <!-- test: given demo -->               what the page takes for granted: a name of GIVEN below
    <!-- test: add --size tiny -->          more options for every hauberk command of the block
    <!-- test: replace `20_000` with `99` -->   other text, the same work on less
    <!-- test: file patients.toml -->       the block is not run but is this file
    <!-- test: package src/hauberk/x.py -->     this file's place in the package (see test_extending)
    <!-- test: insert FILE after TEXT -->       not run: goes there, or before TEXT (likewise)
    <!-- test: exit 1 -->                   the exit code that the reader is told of
    <!-- test: output -->                   a text block: what the block before it printed, word for word
    <!-- test: slow -->                     run by `make test-slow` alone
    <!-- test: skip because REASON -->      not run at all; its commands must still parse
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
import typer

from hauberk.cli import main
from hauberk.cli.app import app

DOCS = Path(__file__).parents[2] / "docs"
DIRECTIVES = (
    "given", "add", "replace", "file", "package", "insert", "exit", "output", "slow", "skip because"
)  # fmt: skip
NOT_RUN = ("file", "insert", "skip because")
RUN = ("sh", "python")


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block with what the comments before it say."""

    page: str
    line: int
    kind: str
    text: str
    directives: tuple[tuple[str, str], ...]

    @property
    def place(self) -> str:
        return f"{self.page}, line {self.line}"

    def told(self, name: str) -> list[str]:
        return [value for each, value in self.directives if each == name]

    @property
    def executed(self) -> bool:
        return self.kind in RUN and not any(self.told(name) for name in NOT_RUN)

    @property
    def source(self) -> str:
        """The text as a test takes it."""
        text = self.text
        for value in self.told("replace"):
            pair = re.fullmatch(r"`(.+)` with `(.*)`", value)
            assert pair, f"{self.place}: say replace `this` with `that`"
            assert pair[1] in text, f"{self.place}: there is no {pair[1]} to replace"
            text = text.replace(pair[1], pair[2])
        return text

    @property
    def commands(self) -> list[str]:
        """Shell commands, continued lines joined."""
        if self.kind != "sh":
            return []
        lines = self.source.replace("\\\n", " ").splitlines()
        return [line for line in lines if line.strip() and not line.startswith("#")]

    def lengthened(self, command: str) -> str:
        """With the options that a test adds."""
        if not command.startswith("hauberk "):
            return command
        bare, _, _ = command.partition(" #")
        return " ".join([bare, *self.told("add")])


def blocks_of(page: str) -> list[Block]:
    """All fenced blocks of a page; a comment that no block follows, or that nobody knows, is an error."""
    found: list[Block] = []
    waiting: list[tuple[str, str]] = []
    lines = (DOCS / page).read_text().splitlines()
    number = 0
    while number < len(lines):
        line = lines[number]
        comment = re.fullmatch(r"<!-- test: (.*) -->", line)
        if comment:
            known = [name for name in DIRECTIVES if comment[1] == name or comment[1].startswith(f"{name} ")]
            assert known, f"{page}, line {number + 1}: unknown comment {comment[1]!r}"
            waiting.append((known[0], comment[1].removeprefix(known[0]).strip()))
        elif line.startswith("```"):
            end = next(n for n in range(number + 1, len(lines)) if lines[n] == "```")
            text = "\n".join(lines[number + 1 : end]) + "\n"
            found.append(
                Block(page=page, line=number + 1, kind=line[3:], text=text, directives=tuple(waiting))
            )
            waiting, number = [], end
        else:
            assert not (waiting and line.strip()), (
                f"{page}, line {number + 1}: a block must follow its comment"
            )
        number += 1
    return found


@dataclass(kw_only=True)
class Reading:
    """What came of a page."""

    folder: Path
    printed: dict[str, str] = field(default_factory=dict)  # by command, or by place of a Python block
    told: dict[str, str] = field(default_factory=dict)  # the same on stderr
    scope: dict[str, object] = field(default_factory=dict)
    blocks: int = 0  # that were run


class Reader:
    """Runs pages, each once in a session."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.done: dict[tuple[str, bool], Reading] = {}

    def read(self, page: str, *, slow: bool = False) -> Reading:
        if (page, slow) not in self.done:
            folder = self.place / page.replace("/", "-") / ("slow" if slow else "quick")
            folder.mkdir(parents=True)
            self.done[page, slow] = self._run(page, Reading(folder=folder), slow)
        return self.done[page, slow]

    def _run(self, page: str, reading: Reading, slow: bool) -> Reading:
        module = types.ModuleType("page")  # dataclasses look their module up
        reading.scope = vars(module)
        last = ""
        with (
            contextlib.chdir(reading.folder),
            _importable(module, reading.folder),
            mock.patch.dict(os.environ, {"COLUMNS": "160"}),
        ):
            for block in blocks_of(page):
                if block.told("slow") and not slow:
                    continue
                for name in block.told("given"):
                    GIVEN[name](self, reading)
                for name in block.told("file"):
                    Path(name).parent.mkdir(parents=True, exist_ok=True)
                    Path(name).write_text(block.source)
                if block.told("output"):
                    assert _trimmed(block.text) == _trimmed(last), block.place
                if not block.executed:
                    continue
                reading.blocks += 1
                if block.kind == "python":
                    last = _python(block, reading)
                for command in block.commands:
                    last = _command(block, command, reading)
        return reading

    def ask(self, reading: Reading, command: str) -> str:
        """One more command in the page's folder: what it prints."""
        with contextlib.chdir(reading.folder), _recorded(command, reading):
            code = hauberk(command)
        assert code == 0, reading.told[command]
        return reading.printed[command]

    def demo(self) -> Path:
        """A tiny run, as `hauberk demo` leaves a larger one."""
        folder = self.place / "runs" / "demo"
        if not folder.exists():
            with contextlib.chdir(self.place), contextlib.redirect_stdout(io.StringIO()):
                Path("tiny.toml").write_text("tested = 2\nepochs = 0.2\n")
                assert hauberk("hauberk train --size tiny --device cpu --config tiny.toml --name demo") == 0
        return folder


@contextlib.contextmanager
def _importable(module: types.ModuleType, folder: Path) -> Iterator[None]:
    """The page itself and the files in its folder; what else it imports stays imported."""
    sys.modules[module.__name__] = module
    try:
        with mock.patch.object(sys, "path", [str(folder), *sys.path]):
            yield
    finally:
        del sys.modules[module.__name__]


def _trimmed(text: str) -> str:
    """Without blanks at the ends of lines, and whatever version the accountant has."""
    text = re.sub(r"(dp-accounting) [\d.]+", r"\1", text)
    return "\n".join(line.rstrip() for line in text.rstrip().splitlines())


def _python(block: Block, reading: Reading) -> str:
    with _recorded(block.place, reading):
        exec(compile(block.source, block.place, "exec"), reading.scope)
    return reading.printed[block.place]


def _command(block: Block, command: str, reading: Reading) -> str:
    wanted = int((block.told("exit") or ["0"])[0])
    line = block.lengthened(command)
    if line.startswith("hauberk "):
        with _recorded(command, reading):
            code = hauberk(line)
    else:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            line, shell=True, capture_output=True, text=True, env={**os.environ, "PATH": path}
        )
        code, reading.printed[command], reading.told[command] = done.returncode, done.stdout, done.stderr
    assert code == wanted, f"{block.place}: {line}\n{reading.printed[command]}{reading.told[command]}"
    return reading.printed[command]


@contextlib.contextmanager
def _recorded(name: str, reading: Reading) -> Iterator[None]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        yield
    reading.printed[name], reading.told[name] = out.getvalue(), err.getvalue()


def hauberk(line: str) -> int:
    """The exit code of a command, run in this process."""
    shown = warnings.showwarning
    with mock.patch.object(sys, "argv", shlex.split(line)):
        try:
            main()
        except SystemExit as leaving:
            return int(leaving.code or 0)
        finally:
            warnings.showwarning = shown
    return 0


# ------------------------------------------------------------------------------- what pages take for granted


def _given_demo(reader: Reader, reading: Reading) -> None:
    shutil.copytree(reader.demo(), reading.folder / "runs" / "demo")


def _given_model(reader: Reader, reading: Reading) -> None:
    """A classifier of one's own with inputs and labels."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(36, 20), torch.nn.ReLU(), torch.nn.Linear(20, 10)
    )
    x = torch.rand(40, 1, 6, 6)
    with torch.no_grad():
        reading.scope |= {"model": model, "x": x, "y": model(x).argmax(1), "torch": torch}


def _given_own_arrays(reader: Reader, reading: Reading) -> None:
    """mine.npz and other.npz, pictures of 28 by 28 with 10 classes, and weights of a lenet for them."""
    from safetensors.torch import save_file

    import hauberk as hb

    chance = np.random.default_rng(0)
    for name in ("mine", "other"):
        x = chance.random((600, 1, 28, 28), dtype=np.float32)
        y = chance.integers(10, size=600)
        np.savez(f"{name}.npz", x=x, y=y, x_test=x[:40], y_test=y[:40])
    save_file(hb.models.build("lenet", shape=(1, 28, 28), classes=10).state_dict(), "lenet.safetensors")


def _given_vitals(reader: Reader, reading: Reading) -> None:
    """A table of patients as a hospital might export it."""
    rows = [
        f"{patient},{hour},{60 + patient % 40 + hour},{patient % 2}"
        for patient in range(40)
        for hour in range(6)
    ]
    Path("vitals.csv").write_text("subject_id,hour,pulse,died\n" + "\n".join(rows) + "\n")


def _given_made_patients(reader: Reader, reading: Reading) -> None:
    """What a synthesizer might have made."""
    from hauberk.synthesis import simulate_ward, write_patients

    write_patients(simulate_ward(80, seed=9), Path("made.csv"))


def _given_ward_run(reader: Reader, reading: Reading) -> None:
    """A synthesizer's run."""
    with contextlib.redirect_stdout(io.StringIO()):
        assert hauberk("hauberk synth train --synthesizer marginals --data ward --name ward") == 0


GIVEN: dict[str, Callable[[Reader, Reading], None]] = {
    "demo": _given_demo,
    "model": _given_model,
    "own arrays": _given_own_arrays,
    "vitals": _given_vitals,
    "made patients": _given_made_patients,
    "ward run": _given_ward_run,
}


# --------------------------------------------------------------------------------- commands without running


def parse(line: str) -> None:
    """Hold a whole command to the command line: it exists, and its options and their kinds do."""
    command = typer.main.get_command(app)
    rest = shlex.split(line, comments=True)[1:]
    context = command.make_context("hauberk", list(rest))
    while hasattr(command, "resolve_command"):
        rest = context._protected_args + context.args
        name, command, rest = command.resolve_command(context, rest)
        context = command.make_context(name, list(rest), parent=context)


def parse_options(line: str) -> None:
    """Hold the options of a command with words left open (RUN, …) to the command line."""
    command = typer.main.get_command(app)
    words = [word for word in re.split(r"[\s=]+", line)[1:] if word not in ("…", "...")]
    while words and hasattr(command, "resolve_command") and words[0] in command.commands:
        command = command.commands[words.pop(0)]
    if hasattr(command, "resolve_command"):
        names = [name for word in words[:1] for name in re.split(r"[|,]|\\\|", word)]
        assert all(name.startswith("-") or name in command.commands for name in names), line
        return
    known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)} | {
        "--help",
        "-h",
    }
    for word in words:
        if re.fullmatch(r"--[a-z][a-z-]*", word):
            assert word in known, f"{line}: there is no option {word}"


# --------------------------------------------------------------------------------------------------- fixtures


@pytest.fixture(scope="session")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    return Reader(tmp_path_factory.mktemp("pages"))


@pytest.fixture(scope="session")
def blocks() -> Callable[[str], list[Block]]:
    return blocks_of


@pytest.fixture(scope="session")
def parses() -> Callable[[str], None]:
    return parse


@pytest.fixture(scope="session")
def options_exist() -> Callable[[str], None]:
    return parse_options
