"""The run folder: what a run leaves behind, and what of it may be shown to others.

    config.json  model.safetensors  events.json  metrics.jsonl  card.json  report.html  strip.npz
    private/     checkpoints (removed at the end) and diagnostics computed from training records without noise

Everything outside ``private`` is a public constant, a function of test data, or a function of what the
accounted mechanism released. Files appear whole or not at all.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from hauberk.accounting import Card, CurvePoint, Exhibits, Ledger
from hauberk.accounting.exhibits import load_strip
from hauberk.accounting.json_form import from_json
from hauberk.errors import RequestError
from hauberk.files import read_json, read_tensors, write_json, write_tensors, write_text

PUBLIC_FILES = (
    "config.json",
    "model.safetensors",
    "events.json",
    "metrics.jsonl",
    "card.json",
    "report.html",
    "strip.npz",
)


class RunFolder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.private = path / "private"
        self.checkpoint = self.private / "checkpoint.safetensors"
        self.report = path / "report.html"

    @classmethod
    def check_free(cls, path: Path, *, force: bool) -> RunFolder:
        """Say no early, before anything is computed, if a run would be overwritten. Writes nothing."""
        if path.exists() and not path.is_dir():
            raise RequestError(f"{path} is a file; choose another --name")
        if path.is_dir() and any(path.iterdir()):
            if not force:
                raise RequestError(
                    f"{path} exists already: choose another --name, or --force to overwrite it"
                )
            if not (path / "config.json").exists():
                raise RequestError(f"{path} holds something that is no run; --force does not overwrite it")
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        if not (path / "config.json").is_file():
            raise RequestError(f"{path} is no run folder (it has no config.json)")
        return cls(path)

    def create(self) -> None:
        """Make the folder, and empty it of an earlier run's files (and only of those)."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            for name in PUBLIC_FILES:
                (self.path / name).unlink(missing_ok=True)
            if self.private.exists():
                shutil.rmtree(self.private)
            self.private.mkdir(mode=0o700)
            self.private.chmod(0o700)  # mkdir's mode is subject to the umask
        except OSError as error:
            raise RequestError(f"cannot create {self.path}: {error.strerror or error}") from error

    def write_config(self, config: dict[str, Any]) -> None:
        write_json(self.path / "config.json", config)

    def read_config(self) -> dict[str, Any]:
        content = read_json(self.path / "config.json")
        if not isinstance(content, dict):
            raise RequestError(f"{self.path / 'config.json'} is not an object")
        return content

    def write_events(self, ledger: Ledger, *, delta: float) -> None:
        write_json(self.path / "events.json", {**ledger.to_json(), "delta": delta})

    def read_events(self) -> Ledger:
        return Ledger.from_json(read_json(self.path / "events.json"))

    def write_model(self, weights: dict[str, Tensor]) -> None:
        write_tensors(self.path / "model.safetensors", weights)

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
            except ValueError as error:
                raise RequestError(f"{path} line {number} is not valid JSON") from error
            points.append(from_json(CurvePoint, content, where=f"{path} line {number}"))
        return tuple(points)

    def write_diagnostics(self, rows: Iterable[dict[str, float]]) -> None:
        """Numbers computed from training records without noise: for the data's owner only."""
        write_text(self.private / "diagnostics.jsonl", _lines(rows))

    def remove_checkpoint(self) -> None:
        self.checkpoint.unlink(missing_ok=True)

    def write_card(self, card: Card) -> None:
        card.save(self.path / "card.json")
        card.exhibits.save_strip(self.path / "strip.npz")

    def read_card(self) -> Card:
        if not (self.path / "card.json").exists():
            raise RequestError(f"{self.path} has no card yet: the run has not finished")
        exhibits = Exhibits(curve=self.read_metrics(), strip=load_strip(self.path / "strip.npz"))
        content = read_json(self.path / "card.json")
        return Card.from_json(content, where=str(self.path / "card.json"), exhibits=exhibits)


def _lines(rows: Iterable[dict[str, Any]]) -> str:
    return "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)
