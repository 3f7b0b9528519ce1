"""The run folder: what a run leaves behind, and what of it may be shown to others.

    config.json  model.safetensors  events.json  metrics.jsonl  card.json  report.html  strip.npz
    noise.safetensors  where the method set something before training, the scales of a noise layer, say
    private/     checkpoints (removed at the end) and diagnostics computed from training records without noise

Everything outside ``private`` is a public constant, a function of test data, or a function of what the
accounted mechanism released. Files appear whole or not at all, and one process at a time works on a run: two
that went on with the same one would forget each other's events.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from torch import Tensor

from hauberk.accounting import Card, CurvePoint, Exhibits, Ledger
from hauberk.accounting.exhibits import load_strip
from hauberk.accounting.json_form import from_json
from hauberk.errors import RequestError
from hauberk.files import (
    PARTIAL,
    read_json,
    read_tensors,
    remove_partial,
    write_json,
    write_tensors,
    write_text,
)

try:
    import fcntl
except ImportError:  # Windows: nobody keeps two processes apart there
    fcntl = None  # type: ignore[assignment]

# In the order in which an earlier run is removed. Whatever moment a kill picks, what is left is a run that
# still counts its events for as long as it has weights, and that --force recognises.
PUBLIC_FILES = (
    "synthetic.csv",  # of a synthesizer: what an earlier run made must not stand beside a new card
    "synthetic.csv.gz",
    "synthetic.csv.xz",
    "synthetic.parquet",
    "synthetic.npz",
    "evaluation.json",
    "attacks.json",
    "attacks.npz",
    "certificates.csv",
    "certificates.json",
    "card.json",
    "report.html",
    "strip.npz",
    "metrics.jsonl",
    "model.safetensors",
    "noise.safetensors",
    "events.json",
    "config.json",
    "manifest.json",
)
LOCK = "lock"


def previous_checkpoint(checkpoint: Path) -> Path:
    """Where the last checkpoint but one lies."""
    return checkpoint.with_name(f"{checkpoint.stem}-previous{checkpoint.suffix}")


class RunFolder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.private = path / "private"
        self.checkpoint = self.private / "checkpoint.safetensors"
        self.report = path / "report.html"
        self._lock: IO[bytes] | None = None

    @classmethod
    def check_free(cls, path: Path, *, force: bool) -> RunFolder:
        """Say no early, before anything is computed, if a run would be overwritten. Writes nothing."""
        if os.path.exists(path) and not os.path.isdir(path):
            raise RequestError(f"{path} is a file; choose another --name")
        if os.path.isdir(path) and not _blank(path):
            if not force:
                raise RequestError(
                    f"{path} exists already: choose another --name, or --force to overwrite it"
                )
            if not (path / "config.json").exists():
                raise RequestError(f"{path} holds something that is no run; --force does not overwrite it")
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        if not os.path.isfile(path / "config.json"):
            raise RequestError(f"{path} is no run folder (it has no config.json)")
        return cls(path)

    def create(self) -> None:
        """Make the folder, and empty it of an earlier run's files (and only of those)."""
        try:
            self.private.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.private.chmod(0o700)  # mkdir's mode is subject to the umask
            self.claim()
            for path in self.private.iterdir():
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                elif path.name != LOCK:
                    path.unlink()
            for name in PUBLIC_FILES:
                (self.path / name).unlink(missing_ok=True)
        except OSError as error:
            raise RequestError(f"cannot create {self.path}: {error.strerror or error}") from error

    def claim(self) -> None:
        """Keep other processes off this run until this one ends, and clear away what a killed one left.

        The operating system gives the claim up when the process dies, however it dies.
        """
        try:
            if self._lock is None:
                self._lock = self._locked()
            remove_partial(self.path)
            remove_partial(self.private)
        except OSError as error:
            raise RequestError(f"cannot write in {self.path}: {error.strerror or error}") from error

    def _locked(self) -> IO[bytes]:
        path = self.private / LOCK
        handle = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb")
        try:
            if fcntl is not None:
                # POSIX locks belong to the process: one that opens its own run again is not locked out
                fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:
            handle.close()
            raise RequestError(
                f"another process is at work on {self.path}: wait for it, or end it"
            ) from error
        except OSError:
            pass  # a file system without locks
        return handle

    def write_config(self, config: dict[str, Any]) -> None:
        write_json(self.path / "config.json", config)

    def read_config(self) -> dict[str, Any]:
        content = read_json(self.path / "config.json")
        if not isinstance(content, dict):
            raise RequestError(f"{self.path / 'config.json'} is not an object")
        return content

    def write_events(self, ledger: Ledger, *, delta: float) -> None:
        write_json(self.path / "events.json", {**ledger.to_json(), "delta": delta})

    @property
    def begun(self) -> bool:
        """Whether any step may have run: steps are in the event list before they run."""
        return (self.path / "events.json").exists()

    def read_events(self) -> Ledger:
        return Ledger.from_json(read_json(self.path / "events.json"))

    def write_model(self, weights: dict[str, Tensor]) -> None:
        write_tensors(self.path / "model.safetensors", weights)

    def write_constants(self, constants: dict[str, Tensor]) -> None:
        """What was set before training and belongs to the released classifier; before `write_model`."""
        if constants:
            write_tensors(self.path / "noise.safetensors", constants)

    def read_constants(self, names: Iterable[str]) -> dict[str, Tensor]:
        """Those ``names``; a file without one of them is refused, and none is needed where none is asked."""
        path, wanted = self.path / "noise.safetensors", tuple(names)
        found = read_tensors(path) if wanted else {}
        for name in wanted:
            if name not in found:
                raise RequestError(f"{path} lacks {name!r}: it belongs to another method")
        return {name: found[name] for name in wanted}

    @property
    def trained(self) -> bool:
        return (self.path / "model.safetensors").exists()

    def read_model(self) -> dict[str, Tensor]:
        if not self.trained:
            raise RequestError(f"{self.path} has no trained model: the run has not finished")
        return read_tensors(self.path / "model.safetensors")

    def write_metrics(self, curve: Iterable[CurvePoint]) -> None:
        write_text(self.path / "metrics.jsonl", _lines(asdict(point) for point in curve))

    def read_metrics(self) -> tuple[CurvePoint, ...]:
        path = self.path / "metrics.jsonl"
        if not path.exists():
            return ()
        points = []
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            try:
                content = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise RequestError(f"{path} line {number} is not valid JSON") from error
            points.append(from_json(CurvePoint, content, where=f"{path} line {number}"))
        return tuple(points)

    def write_diagnostics(self, rows: Iterable[dict[str, float]]) -> None:
        """Numbers computed from training records without noise: for the data's owner only."""
        finite = [
            {name: value if math.isfinite(value) else None for name, value in row.items()} for row in rows
        ]
        write_text(self.private / "diagnostics.jsonl", _lines(finite))

    def read_diagnostics(self) -> list[dict[str, float]]:
        """Nothing if they are damaged: nobody's guarantee depends on them."""
        try:
            lines = (self.private / "diagnostics.jsonl").read_bytes().splitlines()
            rows = [json.loads(line) for line in lines]
        except (OSError, ValueError, RecursionError):
            return []
        return [row for row in rows if isinstance(row, dict) and isinstance(row.get("step"), int)]

    def remove_checkpoint(self) -> None:
        """All that training could go on from, the unfinished included, and the claim to do so.

        Called when the model is there: nobody will train on this run any more.
        """
        try:
            # the older one first: what a kill leaves is the newest, or nothing
            for path in (previous_checkpoint(self.checkpoint), self.checkpoint, self.private / LOCK):
                path.unlink(missing_ok=True)
            if self.private.exists():
                remove_partial(self.private)
            if self._lock is not None:
                self._lock.close()
                self._lock = None
        except OSError as error:
            raise RequestError(
                f"cannot remove the checkpoints in {self.private}: {error.strerror or error}"
            ) from error

    def write_card(self, card: Card) -> None:
        card.exhibits.save_strip(self.path / "strip.npz")
        card.save(self.path / "card.json")  # last: a run with a card has finished

    def read_card(self) -> Card:
        if not (self.path / "card.json").exists():
            raise RequestError(f"{self.path} has no card yet: the run has not finished")
        exhibits = Exhibits(curve=self.read_metrics(), strip=load_strip(self.path / "strip.npz"))
        content = read_json(self.path / "card.json")
        return Card.from_json(content, where=str(self.path / "card.json"), exhibits=exhibits)


def _blank(path: Path) -> bool:
    """Nothing in it but what a run leaves that was killed while its folder was being made."""
    beginning = {path / "private", path / "private" / LOCK}
    return all(
        each in beginning or (each.name.startswith(".config.json.") and each.suffix == PARTIAL)
        for each in path.rglob("*")
    )


def _lines(rows: Iterable[dict[str, Any]]) -> str:
    return "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)
