"""A sweep: the same run for every epsilon, sigma and seed, with mean and spread over the seeds.

Every run has a folder of its own, so that a sweep which was killed goes on with what is not finished. Cards
count their own run only. Whoever chooses by the results has seen all of them: what that costs one record is
the composition of all runs' events (`hauberk.methods.spending`).
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

from hauberk.accounting.card import CertifiedAccuracy
from hauberk.data.input_form import DescribedSplit
from hauberk.errors import RequestError
from hauberk.methods.comparison import ComparedRun, Comparison, as_csv, mean_curve
from hauberk.methods.settings import TrainSettings
from hauberk.methods.training import Prepared, choose_device, read_form, read_settings
from hauberk.training import RunFolder

_POLLED = 0.05  # seconds between two looks at the processes
_PATIENCE = 20.0  # seconds that a process has to end by itself
_ELSEWHERE = ("device", "data_dir", "memory")  # what may differ without another result being meant


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run of a sweep; None: the preset's own value."""

    epsilon: float | None
    sigma: float | None
    seed: int

    @property
    def setting(self) -> tuple[float | None, float | None]:
        """What the seeds have in common."""
        return self.epsilon, self.sigma

    @property
    def name(self) -> str:
        """The folder of the run, below that of the sweep."""
        given = {"epsilon": self.epsilon, "sigma": self.sigma, "seed": self.seed}
        return "-".join(f"{key}-{value:g}" for key, value in given.items() if value is not None)

    def words(self) -> tuple[str, ...]:
        """As options of `hauberk train`."""
        given = {"--epsilon": self.epsilon, "--sigma": self.sigma, "--seed": self.seed}
        words = ((name, repr(value)) for name, value in given.items() if value is not None)
        return tuple(word for pair in words for word in pair)


def grid(epsilons: Sequence[float], sigmas: Sequence[float], seeds: int) -> tuple[Cell, ...]:
    """All combinations, the first seed of each first: a sweep that is stopped early has seen all of them."""
    if seeds < 1:
        raise RequestError(f"--seeds must be at least 1, got {seeds}")
    for name, values in (("--epsilon", epsilons), ("--sigma", sigmas)):
        if len(set(values)) < len(values):
            raise RequestError(f"{name} names a value twice: name each once")
    cells = tuple(
        Cell(epsilon=epsilon, sigma=sigma, seed=seed)
        for seed in range(seeds)
        for epsilon in (*epsilons,) or (None,)
        for sigma in (*sigmas,) or (None,)
    )
    if len({cell.name for cell in cells}) < len(cells):
        raise RequestError("two values of the sweep agree in their first six digits: give others")
    return cells


def finished(path: Path) -> bool:
    """Whether the run is there with everything; an unfinished one is gone on with."""
    return (path / "card.json").is_file() and (path / "manifest.json").is_file()


def check_same_settings(path: Path, wanted: Prepared, *, seed: int) -> None:
    """A run of an earlier sweep counts for this one only if it was asked for the same."""
    if not (path / "config.json").is_file():
        return
    found, config = read_settings(RunFolder.open(path))
    advice = "choose another --name, or --force to train everything again"
    for each in fields(TrainSettings):
        before, now = getattr(found, each.name), getattr(replace(wanted.settings, seed=seed), each.name)
        if each.name not in _ELSEWHERE and before != now:
            raise RequestError(
                f"{path} was trained with other settings ({each.name} {before}, now {now}): {advice}"
            )
    form = wanted.split.form if isinstance(wanted.split, DescribedSplit) else None
    if read_form(config) != form:
        raise RequestError(f"{path} was trained by another schema or on another folder: {advice}")


@dataclass(frozen=True, kw_only=True)
class Slot:
    """Where one process at a time may run: its device, and what its environment says."""

    device: str
    environment: Mapping[str, str]


def slots(device: str, jobs: int | None) -> tuple[Slot, ...]:
    """One per CUDA device, or ``jobs`` on the processor, which share its cores."""
    chosen = choose_device(device)
    if chosen.type == "cuda":
        if jobs is not None:
            raise RequestError("on CUDA devices there is one process per device: leave out --jobs")
        listed = os.environ.get("CUDA_VISIBLE_DEVICES")
        names = (
            [str(place) for place in range(torch.cuda.device_count())] if not listed else listed.split(",")
        )
        names = names if chosen.index is None else [names[chosen.index]]
        return tuple(Slot(device="cuda", environment={"CUDA_VISIBLE_DEVICES": name}) for name in names)
    if jobs is not None and jobs < 1:
        raise RequestError(f"--jobs must be at least 1, got {jobs}")
    share = max(1, (os.cpu_count() or 1) // (jobs or 1))
    threads = {} if "OMP_NUM_THREADS" in os.environ or not jobs else {"OMP_NUM_THREADS": str(share)}
    return tuple(Slot(device="cpu", environment=threads) for _ in range(jobs or 1))


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A run that ended without a card: its last words, and where all of them are."""

    run: str
    said: str
    log: str


def run_all(
    cells: Sequence[Cell],
    places: Sequence[Slot],
    *,
    folder: Path,
    command: Callable[[Cell, Slot], Sequence[str]],
    done: Callable[[int], None],
) -> tuple[Failure, ...]:
    """Each cell in a process of its own, as many at a time as there are places.

    A cell that fails is reported and loses nobody else's work. When this process is stopped, so are they.
    """
    waiting, failures = deque(cells), []
    running: dict[int, tuple[Cell, subprocess.Popen[bytes]]] = {}
    with _stopped_together(running):
        while waiting or running:
            for place, slot in enumerate(places):
                if place not in running and waiting:
                    cell = waiting.popleft()
                    running[place] = cell, _started(command(cell, slot), slot, folder / f"{cell.name}.log")
            time.sleep(_POLLED)
            for place, (cell, process) in list(running.items()):
                if process.poll() is None:
                    continue
                del running[place]
                log = folder / f"{cell.name}.log"
                if process.returncode == 0 and finished(folder / cell.name):
                    log.unlink(missing_ok=True)
                else:
                    failures.append(Failure(run=cell.name, said=_last_words(log, process), log=str(log)))
                done(len(cells) - len(waiting) - len(running))
    return tuple(failures)


def _started(command: Sequence[str], slot: Slot, log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as handle:
        return subprocess.Popen(
            [sys.executable, "-m", "hauberk", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=handle,
            env={**os.environ, **slot.environment, "COLUMNS": "200"},
        )


def _last_words(log: Path, process: subprocess.Popen[bytes]) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    if process.returncode < 0:
        return f"ended by signal {-process.returncode}"
    return lines[-1].removeprefix("hauberk: ") if lines else f"ended with exit code {process.returncode}"


@contextmanager
def _stopped_together(running: Mapping[int, tuple[Cell, subprocess.Popen[bytes]]]) -> Iterator[None]:
    """Whatever ends this process ends those that it started."""

    def leave(*_: object) -> None:
        sys.exit(128 + signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        for _, process in running.values():
            process.terminate()
        for _, process in running.values():
            try:
                process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Mean and sample standard deviation over seeds; one seed has no spread."""

    mean: float | None
    deviation: float | None

    @classmethod
    def of(cls, values: Sequence[float | None]) -> Spread:
        """Of all values; nothing where one of them is not known."""
        known = [value for value in values if value is not None]
        if not known or len(known) < len(values):
            return cls(mean=None, deviation=None)
        mean = math.fsum(known) / len(known)
        squares = math.fsum((value - mean) ** 2 for value in known)
        return cls(mean=mean, deviation=math.sqrt(squares / (len(known) - 1)) if len(known) > 1 else None)


@dataclass(frozen=True, kw_only=True)
class CellSummary:
    """What the seeds of one setting gave. ``proven_epsilon``: the largest of theirs, None if one has none."""

    epsilon: float | None
    sigma: float | None
    finished: int
    failed: int
    proven_epsilon: float | None
    accuracy: Spread
    certified: tuple[Spread, ...]  # at the radii of the comparison
    average_certified_radius: Spread
    training_seconds: Spread
    certification_seconds: Spread
    curve: tuple[CertifiedAccuracy, ...]

    @property
    def setting(self) -> tuple[float | None, float | None]:
        return self.epsilon, self.sigma

    @property
    def name(self) -> str:
        given = {"epsilon": self.epsilon, "sigma": self.sigma}
        said = ", ".join(f"{key} {value:g}" for key, value in given.items() if value is not None)
        return said or "preset"


def summarise(
    cells: Sequence[Cell], runs: Mapping[str, ComparedRun], radii: Sequence[float]
) -> tuple[CellSummary, ...]:
    """One row per setting in the order of the grid; ``runs`` are the finished ones, by their cell's name."""
    settings = dict.fromkeys(cell.setting for cell in cells)
    rows = []
    for setting in settings:
        mine = [cell for cell in cells if cell.setting == setting]
        found = [runs[cell.name] for cell in mine if cell.name in runs]
        proven = [run.proven_epsilon for run in found if run.proven_epsilon is not None]
        rows.append(
            CellSummary(
                epsilon=setting[0],
                sigma=setting[1],
                finished=len(found),
                failed=len(mine) - len(found),
                proven_epsilon=max(proven) if proven and len(proven) == len(found) else None,
                accuracy=Spread.of([run.accuracy for run in found]),
                certified=tuple(Spread.of([run.certified_at(radius) for run in found]) for radius in radii),
                average_certified_radius=Spread.of([run.average_certified_radius for run in found]),
                training_seconds=Spread.of([run.training_seconds for run in found]),
                certification_seconds=Spread.of([run.certification_seconds for run in found]),
                curve=mean_curve(found),
            )
        )
    return tuple(rows)


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What all runs cost one record together, if the sweep were accounted; None: not bounded, and why."""

    delta: float
    epsilon: float | None
    runs: int
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A sweep that has ended, with what failed."""

    name: str
    cells: tuple[CellSummary, ...]
    comparison: Comparison | None  # of all finished runs; None if there is none
    failures: tuple[Failure, ...]
    costs: tuple[Cost, ...]

    def rows(self) -> list[dict[str, Any]]:
        """One flat row per setting."""
        radii = () if self.comparison is None else self.comparison.radii
        rows = []
        for cell in self.cells:
            row: dict[str, Any] = {"epsilon": cell.epsilon, "sigma": cell.sigma}
            row |= {"finished": cell.finished, "failed": cell.failed, "proven_epsilon": cell.proven_epsilon}
            named = {
                "accuracy": cell.accuracy,
                "average_certified_radius": cell.average_certified_radius,
                **{f"certified_at_{radius:g}": at for radius, at in zip(radii, cell.certified, strict=True)},
                "training_seconds": cell.training_seconds,
                "certification_seconds": cell.certification_seconds,
            }
            for name, spread in named.items():
                row |= {f"{name}_mean": spread.mean, f"{name}_deviation": spread.deviation}
            rows.append(row)
        return rows

    def to_csv(self) -> str:
        return as_csv(self.rows())

    def to_json(self) -> dict[str, Any]:
        return {
            "sweep": self.name,
            "cells": self.rows(),
            "runs": [] if self.comparison is None else self.comparison.rows(),
            "failures": [vars(failure) for failure in self.failures],
            "accounted": False,
            "cost_if_it_were": [vars(cost) for cost in self.costs],
        }
