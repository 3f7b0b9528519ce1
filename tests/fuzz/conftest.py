"""Wrong requests by the thousand: a house with one of everything, and the rule that each must obey.

A wrong request costs exit code 2 and one sentence on standard error; nothing is printed elsewhere, and no
file or folder below the current one is made, changed or removed (temporary files lie there as well).
"""

import functools
import gzip
import lzma
import os
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer.main
from PIL import Image

import hauberk.cli.imitation_folder as imitation_folder
from hauberk.attacks.imitation import AINSettings, Architecture, BoundSchedule, Recipe
from hauberk.cli import main
from hauberk.training.loop import PrivateTrainer
from hauberk.training.run_folder import previous_checkpoint

QUIET = (DeprecationWarning, PendingDeprecationWarning, ResourceWarning)  # Python shows no user these
LONGEST_SENTENCE = 2000  # characters: no file's content is poured out

SETTINGS = 'tested = 4\nsamples = 50\nattacked = 1\nattack-steps = 1\nepochs = 0.5\nmodel = "logistic"\n'
PEOPLE = """\
label = "ill"
ignored = ["comment"]
[[column]]
name = "age"
low = 0
high = 100
[[column]]
name = "smoker"
levels = ["no", "yes"]
[[column]]
name = "ill"
levels = ["healthy", "ill"]
"""
_TINY_IMITATION = AINSettings(
    architecture=Architecture(widths=(4, 4, 6, 8)),
    schedule=BoundSchedule(initial=0.5, final=0.3, rate=0.4, most_rollbacks=0),
    recipe=Recipe(radius=0.3, steps=1),
    epochs=1,
    batch=20,
    lr=1e-2,
)


def call(words: tuple[object, ...]) -> int | str:
    """The exit code of a command, or where it broke."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["hauberk", *map(str, words)])
        try:
            main()
        except SystemExit as leaving:
            return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        except BaseException as error:
            own = [each for each in traceback.extract_tb(error.__traceback__) if "/hauberk/" in each.filename]
            return f"{type(error).__name__}: {str(error)[:200]} at {own[-1].filename}:{own[-1].lineno}"
    raise AssertionError("main returned")


def tree(root: Path) -> dict[str, tuple[int, ...]]:
    """Every path below, with what changes when it is written or replaced."""
    found: dict[str, tuple[int, ...]] = {}
    waiting = [str(root)]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                facts = entry.stat(follow_symlinks=False)
                folder = entry.is_dir(follow_symlinks=False)
                # a folder's own times change with its entries, which are here themselves
                found[entry.path] = (
                    (facts.st_mode,)
                    if folder
                    else (facts.st_mode, facts.st_ino, facts.st_size, facts.st_mtime_ns)
                )
                if folder:
                    waiting.append(entry.path)
    return found


class Tries:
    """Makes wrong requests one after the other, and keeps what was wrong with the refusals."""

    def __init__(self, root: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.root = root
        self.made = 0
        self._capture = capture
        self._complaints: list[str] = []

    def refused(self, *words: object, note: str = "", after_work: bool = False) -> None:
        """This request must be refused. ``after_work``: something may have been said before."""
        self.made += 1
        before = tree(self.root)
        self._capture.readouterr()
        with warnings.catch_warnings(record=True) as shown:
            code = call(words)
        out, err = self._capture.readouterr()
        problems = [] if code == 2 else [f"exit {code}"]
        problems += [f"warned: {each.message}" for each in shown if not issubclass(each.category, QUIET)]
        if code == 2:
            *before_it, last = err.splitlines() or [""]
            if not last.startswith("hauberk: ") or (before_it and not after_work):
                problems.append(f"not one sentence: {err[:300]!r}")
            elif not 20 < len(last) < LONGEST_SENTENCE:
                problems.append(f"a sentence of {len(last)} characters: {last[:200]!r}")
            if out:
                problems.append(f"printed {out[:200]!r}")
        after = tree(self.root)
        if after != before:
            changed = sorted(
                os.path.relpath(path, self.root)
                for path in {*before, *after}
                if before.get(path) != after.get(path)
            )
            problems.append(f"touched {', '.join(changed[:5])}")
        if problems:
            shown = " ".join(text if len(text) < 80 else f"{text[:80]}…" for text in map(str, words))
            self._complaints.append(f"{shown!a}{f' [{note}]' if note else ''}: {'; '.join(problems)}")

    def code(self, *words: object) -> int | str:
        """The exit code, whatever it is."""
        code = call(words)
        self._capture.readouterr()
        return code

    def answered(self, *words: object, note: str = "") -> None:
        """This request may be right: done (0), a check that fails (1), or refused in one sentence."""
        self._capture.readouterr()
        code = call(words)
        _, err = self._capture.readouterr()
        if code not in (0, 1, 2) or "Traceback" in err or (code == 2 and not err.startswith("hauberk: ")):
            self._complaints.append(f"{' '.join(map(str, words))!a} [{note}]: {code}: {err[:300]!r}")

    def check(self) -> None:
        """Every refusal so far was in order."""
        if self._complaints:
            pytest.fail(
                f"{len(self._complaints)} of {self.made}:\n" + "\n".join(self._complaints), pytrace=False
            )


@contextmanager
def _content(path: Path, content: bytes | None) -> Iterator[None]:
    """The file with another content, or away (None), for a while."""
    kept = path.read_bytes() if path.exists() else None
    try:
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content)
        yield
    finally:
        if kept is None:
            path.unlink(missing_ok=True)
        else:
            path.write_bytes(kept)


@pytest.fixture(scope="session")
def replaced() -> Callable[[Path, bytes | None], Any]:
    return _content


@pytest.fixture(scope="session")
def wrong_files() -> Callable[[bytes, int], dict[str, bytes]]:
    return damages


def damages(content: bytes, seed: int, cuts: int = 6) -> dict[str, bytes]:
    """Damages after which no reader of structured files may take the file for whole."""
    chance = np.random.default_rng(seed)
    found = {"empty": b"", "blanks": b" \n\t ", "zeros": bytes(64), "text": b"this is no such file\n"}
    found["noise"] = chance.bytes(300)
    found["headless"] = content[len(content) // 3 :]
    for place in sorted({int(each) for each in chance.integers(1, max(2, len(content) * 9 // 10), cuts)}):
        found[f"cut at {place}"] = content[:place]
    found["beginning zeroed"] = bytes(24) + content[24:]
    found["a pickle"] = b"\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00\x8c\x02os\x94\x8c\x06system\x94\x93."
    return found


def _at_home(root: Path, torch_files: Path, patch: pytest.MonkeyPatch) -> None:
    """What every request here finds: its own folder, its own temporary files, small networks."""
    patch.chdir(root)
    patch.setenv("HAUBERK_DATA", str(root / "no-data"))
    patch.setenv("COLUMNS", "200")
    # typer builds the whole tree of commands at every call: here once
    patch.setattr(typer.main, "get_command", _get_command)
    patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(torch_files))
    patch.setattr(tempfile, "tempdir", str(root / "tmp"))
    patch.setitem(imitation_folder.PRESETS, imitation_folder.Preset.small, (_TINY_IMITATION, "logistic", 1))


_get_command = functools.lru_cache(typer.main.get_command)


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Data of every kind, runs of every kind; and where torch keeps files of its own."""
    root, torch_files = tmp_path_factory.mktemp("house").resolve(), tmp_path_factory.mktemp("torch")
    (root / "tmp").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        _at_home(root, torch_files, patch)
        _own_data(root)
        _patients(root)
        _runs(root, patch)
    return root, torch_files


@pytest.fixture
def house(built: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that was built, as the current one for this test alone."""
    _at_home(*built, monkeypatch)
    return built[0]


def _own_data(root: Path) -> None:
    numbers = np.random.default_rng(0)
    y = np.arange(40) % 3
    np.savez(
        root / "pixels.npz",
        x=numbers.integers(0, 256, (40, 8, 8), dtype=np.uint8),
        y=y,
        records=36,
        classes=3,
    )
    lines = [f"{20 + row},{('no', 'yes')[row % 2]},x,{('healthy', 'ill')[row // 3 % 2]}" for row in range(40)]
    people = "\n".join(["age,smoker,comment,ill", *lines]) + "\n"
    (root / "people.csv").write_text(people)
    (root / "people.csv.gz").write_bytes(gzip.compress(people.encode(), mtime=0))
    (root / "people.toml").write_text(PEOPLE)
    (root / "small.toml").write_text(SETTINGS)
    for place in range(24):
        folder = root / "pictures" / ("dark", "light")[place % 2]
        folder.mkdir(parents=True, exist_ok=True)
        pixels = numbers.integers(0, 200, (10, 9), dtype=np.uint8)
        kind = ("png", "jpg", "webp")[place // 2 % 3]
        Image.fromarray(pixels).save(folder / f"{place:02}.{kind}")


def _patients(root: Path) -> None:
    from hauberk.synthesis import WARD, simulate_ward, write_patients

    write_patients(simulate_ward(24, seed=1), root / "patients.csv")
    write_patients(simulate_ward(24, seed=2), root / "made.csv")
    write_patients(simulate_ward(24, seed=1), root / "patients.parquet")
    content = (root / "patients.csv").read_bytes()
    (root / "patients.csv.gz").write_bytes(gzip.compress(content, mtime=0))
    (root / "patients.csv.xz").write_bytes(lzma.compress(content))
    WARD.write(root / "ward.toml")


def _done(*words: object) -> None:
    code = call(words)
    assert code == 0, (words, code)


def _runs(root: Path, patch: pytest.MonkeyPatch) -> None:
    tiny = ("train", "--size", "tiny", "--config", "small.toml")
    _done(*tiny, "--data", "pixels.npz", "--name", "pixels")
    _done("certify", "pixels", "--limit", "3", "--samples", "50")
    _done("attack", "pixels", "--radius", "0.1", "--steps", "1", "--limit", "2")
    table = ("--data", "people.csv", "--schema", "people.toml", "--records", 36)
    _done(*tiny, *table, "--method", "dp-sgd", "--name", "people")
    pictures = ("--data", "pictures", "--image-size", 8, "--grey", "--records", 20)
    _done(*tiny, *pictures, "--name", "pictures")
    advance = PrivateTrainer.advance

    def dying(self: PrivateTrainer) -> object:
        if self.step == 6:  # past the first epoch, whose metrics have been seen
            raise KeyboardInterrupt
        return advance(self)

    with pytest.MonkeyPatch.context() as killed:
        killed.setattr(PrivateTrainer, "advance", dying)
        assert call((*tiny, "--data", "pixels.npz", "--epochs", 3, "--batch", 8, "--name", "stopped")) == 130
    newest = root / "runs/stopped/private/checkpoint.safetensors"
    assert newest.is_file()
    previous_checkpoint(newest).unlink()  # a damaged newest one would be passed over
    _done(
        "synth", "train", "--data", "patients.csv", "--schema", "ward.toml", "--records", 24, "--name", "ward"
    )
    _done("synth", "sample", "ward", "--patients", 5)
    _done("imitate", "train", "--data", "pixels.npz", "--name", "network", "--device", "cpu")


@pytest.fixture
def tries(house: Path, capfd: pytest.CaptureFixture[str]) -> Tries:
    return Tries(house, capfd)
