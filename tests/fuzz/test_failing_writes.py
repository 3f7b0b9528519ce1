"""A disk that is full, a folder that may not be written into: one sentence, and everything is as it was."""

import errno
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

Words = tuple[object, ...]


def typed(text: str) -> Words:
    """A command as it is typed."""
    return tuple(text.split())


WRITERS: list[Words] = [
    typed("report pixels"),
    typed("certify pixels --limit 2 --samples 50 --device cpu"),
    typed("attack pixels --radius 0.1 --limit 2 --steps 1 --draws 1"),
    typed("predict pixels pixels.npz --samples 50 --out new.csv"),
    typed("data inspect people.csv --out new.toml"),
    typed("data inspect people.csv --out people.toml --force"),
    typed("synth inspect patients.csv --out new.toml"),
    typed("synth sample ward --patients 3 --out new.csv"),
    typed("synth sample ward --patients 3 --force"),
    typed("imitate attack network --limit 2 --device cpu"),
]
NAMES = [" ".join(map(str, words))[:40] for words in WRITERS]


@pytest.mark.parametrize("words", WRITERS, ids=NAMES)
def test_a_full_disk(tries: Any, words: Words, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found out when what was written shall reach the disk."""

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    tries.refused(*words, note="full disk", after_work=True)
    tries.check()


@pytest.mark.parametrize("words", WRITERS, ids=NAMES)
def test_a_folder_that_may_not_be_written_into(
    tries: Any, words: Words, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may write everywhere: the refusal is played."""

    def denied(*given: Any, **more: Any) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(tempfile, "mkstemp", denied)
    tries.refused(*words, note="permission denied", after_work=True)
    tries.check()


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read and write everything"
)
def test_real_permissions(tries: Any, house: Path) -> None:
    closed = {house / "pixels.npz": 0o000, house / "runs" / "pixels": 0o500, house / "people.toml": 0o000}
    kept = {path: path.stat().st_mode for path in closed}
    try:
        for path, mode in closed.items():
            path.chmod(mode)
        tries.refused("train", "--data", "pixels.npz", "--name", "new")
        tries.refused(*typed("data inspect people.csv --out people.toml/x"))
        tries.refused("report", "pixels")
    finally:
        for path, mode in kept.items():
            path.chmod(mode)
    tries.check()
