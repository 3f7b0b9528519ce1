"""003 section 4, scalability: seconds per epoch against trainers and steps of the training attacks.

Three ways to take the same step with the same records, the same noise and so the same weights:

    batch by batch   one trainer attacks one small batch after the other (003 Alg. 1)
    together         one trainer attacks all records of the step at once
    distributed      several trainers, each with its part of the records, at the same time (003 Alg. 4)

This module run by ``torchrun`` is one of several trainers.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from hauberk.accounting.json_form import from_json
from hauberk.data import Split
from hauberk.experiments.parts import remembered
from hauberk.experiments.pictures import CLAIMED, OBSERVED, PROVEN
from hauberk.experiments.result import Cell, Result, Size
from hauberk.files import read_json, write_json
from hauberk.methods.base import Constants
from hauberk.methods.run import Run
from hauberk.methods.settings import TrainSettings
from hauberk.methods.stobatch import StoBatch
from hauberk.methods.training import build_model, choose_device, load_split
from hauberk.progress import Progress, silent
from hauberk.randomness import Key
from hauberk.training import RecordViews
from hauberk.training.distribution import Ranks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SMALL_BATCH = 32
"""Records that are attacked at once batch by batch: what 003 gives to one GPU."""
BATCH_BY_BATCH, TOGETHER, DISTRIBUTED = "batch by batch", "together", "distributed"
PUBLISHED = {"batch_by_batch_days": 30, "distributed_days": 3, "epochs": 600, "attack_steps": 200, "gpus": 4}
"""CIFAR-10 on TITAN Xp; the first number is "over 30", the second "about 3"."""
_COLOURS = {BATCH_BY_BATCH: CLAIMED, TOGETHER: PROVEN, DISTRIBUTED: OBSERVED}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is trained: ``lots`` steps are timed after a first one that warms up."""

    data: str
    size: str
    model: str
    batch: int
    lots: int
    attack_steps: tuple[int, ...]
    trainers: tuple[int, ...]


_SETTINGS: dict[Size, Setting] = {
    "tiny": Setting(
        data="digits", size="tiny", model="mlp", batch=64, lots=2, attack_steps=(1, 3), trainers=(1,)
    ),
    "quick": Setting(
        data="digits",
        size="quick",
        model="small-tanh-cnn",
        batch=256,
        lots=3,
        attack_steps=(1, 10, 40),
        trainers=(1, 2),
    ),
    "full": Setting(
        data="mnist",
        size="full",
        model="small-tanh-cnn",
        batch=2048,
        lots=2,
        attack_steps=(1, 10, 40, 200),
        trainers=(1, 2),
    ),
}


@lru_cache(maxsize=1)
def _split(setting: Setting) -> Split:
    return load_split(TrainSettings(data=setting.data, size=setting.size))


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One way to train, and what it is asked to do."""

    setting: Setting
    way: str
    trainers: int
    attack_steps: int
    seed: int

    def train(self, ranks: Ranks, progress: Progress = silent) -> Run:
        """Some steps; the weights are the same for every way, up to the order of sums."""
        own, split = self.setting, _split(self.setting)
        settings = TrainSettings(
            method="stobatch",
            data=own.data,
            size=own.size,
            model=own.model,
            noise_multiplier=1.0,
            batch=own.batch,
            epochs=(own.lots + 1) * own.batch / split.records,
            training_attack_steps=self.attack_steps,
            seed=self.seed,
            noise_seed=self.seed,
        )
        kind = BatchByBatch if self.way == BATCH_BY_BATCH else StoBatch
        plan = settings.plan(records=split.records)
        method = kind.from_settings(build_model(settings, split, ranks), settings, plan)
        return method.fit(split.train, ranks=ranks, progress=progress)

    def seconds(self, ranks: Ranks) -> list[float]:
        """Of every step but the first."""
        times: list[float] = []

        def note(stage: str, done: int, total: int) -> None:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            times.append(time.perf_counter())

        self.train(ranks, note)
        return [after - before for before, after in pairwise(times)]


class BatchByBatch(StoBatch):
    """StoBatch with attacks on `SMALL_BATCH` records at a time; the gradient step is the same."""

    def record_views(self, model: nn.Module, shape: tuple[int, ...], constants: Constants) -> RecordViews:
        return InPieces(views=super().record_views(model, shape, constants), records_at_once=SMALL_BATCH)


@dataclass(frozen=True, kw_only=True)
class InPieces:
    """The same views, made of few records at a time: those of a record do not depend on the others."""

    views: RecordViews
    records_at_once: int

    def __call__(self, x: Tensor, *, records: Tensor, step: int, key: Key) -> tuple[Tensor, ...]:
        pieces = [
            self.views(some, records=own, step=step, key=key)
            for some, own in zip(
                x.split(self.records_at_once), records.split(self.records_at_once), strict=True
            )
        ]
        return tuple(torch.cat(each) for each in zip(*pieces, strict=True))


def run(size: Size, seed: int, progress: Progress) -> Result:
    """All contenders, one after the other; each trainer has one thread on a CPU, or a GPU of its own."""
    setting = _SETTINGS[size]
    contenders = list(_contenders(setting, seed))
    seconds: list[float] = []
    for done, contender in enumerate(contenders):
        progress("contenders", done, len(contenders))
        about = {"figure": "stobatch-scaling", "cores": os.cpu_count(), **asdict(contender)}
        seconds.append(statistics.median(remembered(about, partial(timed, contender))))
    progress("contenders", len(contenders), len(contenders))
    return _result(setting, contenders, seconds)


def _contenders(setting: Setting, seed: int) -> Iterator[Contender]:
    gpus = torch.cuda.device_count() if choose_device("auto").type == "cuda" else None
    for attack_steps in setting.attack_steps:
        for trainers in setting.trainers:
            if gpus is not None and trainers > gpus:
                continue
            for way in (BATCH_BY_BATCH, TOGETHER) if trainers == 1 else (DISTRIBUTED,):
                yield Contender(
                    setting=setting, way=way, trainers=trainers, attack_steps=attack_steps, seed=seed
                )


def timed(contender: Contender) -> list[float]:
    """Seconds of each step; several trainers are processes that ``torchrun`` starts."""
    if contender.trainers == 1:
        with _one_thread():
            return contender.seconds(Ranks.alone())
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(contender.trainers)]
    with tempfile.TemporaryDirectory() as folder:
        question, answer = Path(folder) / "contender.json", Path(folder) / "seconds.json"
        write_json(question, asdict(contender))
        done = subprocess.run(
            [sys.executable, *torchrun, "-m", __name__, str(question), str(answer)],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"a trainer ended with {done.returncode}: {done.stderr[-2000:]}")
        return [float(each) for each in read_json(answer)]


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _trainer(question: Path, answer: Path) -> None:
    """What each of several processes does; the leader writes down how long it took."""
    contender = from_json(Contender, read_json(question), where=str(question))
    with _one_thread(), Ranks.from_environment() as ranks:
        seconds = contender.seconds(ranks)
        if ranks.leader:
            write_json(answer, seconds)


def _result(setting: Setting, contenders: Sequence[Contender], seconds: Sequence[float]) -> Result:
    records = _split(setting).records
    steps_of_an_epoch = -(-records // setting.batch)
    device = choose_device("auto").type
    slowest = {
        each.attack_steps: spent
        for each, spent in zip(contenders, seconds, strict=True)
        if each.way == BATCH_BY_BATCH
    }
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (
            each.way,
            each.trainers,
            each.attack_steps,
            spent * steps_of_an_epoch,
            setting.batch / spent,
            slowest[each.attack_steps] / spent,
        )
        for each, spent in zip(contenders, seconds, strict=True)
    )
    alone = {row[2]: float(row[4] or 0) for row in rows if row[0] == TOGETHER}
    return Result(
        columns=(
            "way",
            "trainers",
            "attack_steps",
            "seconds_per_epoch",
            "records_per_second",
            "over_batch_by_batch",
        ),
        rows=rows,
        facts={
            "data": setting.data,
            "model": setting.model,
            "records": records,
            "batch": setting.batch,
            "records_at_once_batch_by_batch": SMALL_BATCH,
            "steps_timed": setting.lots,
            "device": device,
            "cores": os.cpu_count(),
            "published": PUBLISHED,
            "distributed_over_one_trainer": {
                f"{row[1]} trainers, {row[2]} attack steps": float(row[4] or 0) / alone[row[2]]
                for row in rows
                if row[0] == DISTRIBUTED
            },
        },
        notes=(
            "All ways take the same steps with the same records and noise and end with the same weights.",
            f"batch by batch: the attacks of a step go through {SMALL_BATCH} records at a time, as one "
            "device of 003 does; together: through all records of the step at once; distributed: several "
            "trainers at the same time, each with its part of the records, over torch.distributed.",
            "The gradient step is the same in all ways: what differs is how the attacks are run.",
            "seconds_per_epoch is the median time of a step times the steps of an epoch; over_batch_by_batch "
            "says how many times faster a way is than batch by batch with as many attack steps.",
            "On a CPU every trainer has one thread; trainers for which there is no core or no GPU of their "
            "own gain nothing, and without a GPU for each they are left out.",
            "003 reports over 30 days batch by batch and about 3 days distributed for 600 epochs of CIFAR-10 "
            "with 200 attack steps on four GPUs: a ratio of ten, which four devices alone do not explain.",
        ),
        draw=lambda figure: _draw(figure, rows, setting),
        measured=("seconds_per_epoch", "records_per_second", "over_batch_by_batch"),
    )


def _draw(figure: Figure, rows: Sequence[Sequence[Any]], setting: Setting) -> None:
    axes = figure.add_subplot()
    for way, trainers in dict.fromkeys((row[0], row[1]) for row in rows):
        own = [row for row in rows if (row[0], row[1]) == (way, trainers)]
        label = way if trainers == 1 else f"{way}, {trainers} trainers"
        axes.plot(
            [row[2] for row in own], [row[3] for row in own], color=_COLOURS[way], label=label, marker="o"
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(setting.attack_steps, [str(each) for each in setting.attack_steps])
    axes.set_title(f"seconds per epoch, {setting.data}, {setting.model}")
    axes.set_xlabel("steps of the training attacks")
    axes.legend()


if __name__ == "__main__":
    _trainer(Path(sys.argv[1]), Path(sys.argv[2]))
