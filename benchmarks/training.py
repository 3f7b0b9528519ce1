"""How much of an epoch is the gradient step, and how much is everything around it?

    python benchmarks/training.py [--device cpu|cuda] [--networks a,b] [--methods a,b] [--questions a,b]

- ``epoch``: training as a user gets it (``Method.fit`` with a run folder and a progress bar: sampling,
  fetching records, making views, gradient step, shaping, weight averaging, event list, accounting, metrics,
  diagnostics, one checkpoint), against ``bare step``: forward, backward, clip in the method's geometry, sum,
  noise, optimizer, by a twin of the model over the very views that the epoch has just used. The two take
  turns step by step, so that a busy moment of the machine hits both. ``overhead`` is the part of an epoch, in
  percent, that the bare steps do not explain. Nothing is evaluated meanwhile.
- ``evaluation``: the accuracy on test data, which a run with a test set computes after each epoch.
- ``checkpoint``: writing one, checksum and fsync included, and its size.
- ``start``: what a run does once, before its first step.
- ``processes`` (CPU only): whole epochs by two processes of one thread each (torchrun, gloo), by one process
  with one thread and by one with two.

The data are the embedded digits, 28 x 28; on a GPU three times over, to make 60,000. Lots of 512, system
randomness, a plan of 20 epochs. Seconds are medians: of epochs, of writings, of repetitions.

Writes ``benchmarks/results/training-cpu.json`` (or ``-cuda.json``): rows ``{device, network, method,
question, contender, seconds, records_per_second, overhead, megabytes, repetitions}``; what makes no sense for
a question is null. Rows of networks, methods and questions that were not asked for stay. ``--quick`` only
shows that everything runs: it writes nothing without ``--output``, and its numbers mean nothing.
"""

from __future__ import annotations

import argparse
import copy
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hauberk.accounting import PrivacyPlan
from hauberk.cli.screen import progress_bars
from hauberk.data import Dataset, Split, load
from hauberk.files import read_json, write_json
from hauberk.gradients import ClippedGradients, trainable
from hauberk.methods.base import Method
from hauberk.methods.run import base_accuracy
from hauberk.methods.settings import TrainSettings
from hauberk.methods.training import build_method
from hauberk.progress import Progress
from hauberk.randomness import Key, SystemRandomness
from hauberk.training import NoisyViews, RunFolder
from hauberk.training.checkpoints import save_checkpoint
from hauberk.training.distribution import Ranks
from hauberk.training.noise import SumNoise
from hauberk.training.optimisation import ScheduledOptimizer

RESULTS = Path(__file__).parent / "results"
RUNS = Path(__file__).parents[1] / "runs"  # where a user's runs lie: the disk matters for checkpoints
VIEWS = {"private-smoothing": 8}
METHODS = ("dp-sgd", "adaclip", "directional", "private-smoothing")
NETWORKS = ("small-tanh-cnn", "lenet")
TOO_SLOW_ON_CPU = {("lenet", "adaclip"), ("lenet", "private-smoothing")}  # minutes, to say the same
PROCESSES = {
    "1 process, 1 thread": (1, 1),
    "1 process, 2 threads": (1, 2),
    "2 processes, 1 thread each": (2, 1),
}
WARM_UP = 3  # steps
MOST_EPOCHS = 9


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What is trained, and how long it may take."""

    network: str
    method: str
    device: torch.device
    quick: bool
    seconds: float  # for the epochs of one method, at least one of which is measured whole

    @cached_property
    def split(self) -> Split:
        digits = _digits()
        if self.quick:
            return replace(digits, train=digits.train.first(96), test=digits.test.first(32), records=96)
        if self.device.type == "cpu":
            return digits
        return replace(digits, train=_threefold(digits.train), records=3 * digits.records)

    @cached_property
    def settings(self) -> TrainSettings:
        return TrainSettings(
            method=self.method,
            model=self.network,
            views=2 if self.quick else VIEWS.get(self.method, 1),
            batch=32 if self.quick else 512,
            epochs=20.0,
            noise_multiplier=1.0,
            device=self.device.type,
        )

    def build(self, **changes: Any) -> Method:
        settings = replace(self.settings, **changes)
        return build_method(settings, self.split, settings.plan(records=self.split.records))

    @property
    def steps(self) -> int:
        """Of an epoch."""
        return math.ceil(self.split.records / self.settings.batch)

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def timed(self, work: Callable[[], object]) -> float:
        self.wait()
        start = time.perf_counter()
        work()
        self.wait()
        return time.perf_counter() - start

    def median(self, work: Callable[[], object], repetitions: int) -> float:
        work()
        return statistics.median(self.timed(work) for _ in range(repetitions))

    def row(self, question: str, contender: str, seconds: float, **more: float) -> dict[str, object]:
        row: dict[str, object] = {
            "device": self.device.type,
            "network": self.network,
            "method": self.method,
            "question": question,
            "contender": contender,
            "seconds": seconds,
            "records_per_second": None,
            "overhead": None,
            "megabytes": None,
            "repetitions": None,
        }
        row |= more
        show(row)
        return row


@cache
def _digits() -> Split:
    return load("digits")


def _threefold(data: Dataset) -> Dataset:
    return replace(data, x=data.x.repeat(3, 1, 1, 1), y=data.y.repeat(3))


def show(row: dict[str, object]) -> None:
    texts = {
        "seconds": "{:9.4f} s",
        "records_per_second": "{:8.0f} records/s",
        "overhead": "overhead {:5.1f} %",
        "megabytes": "{:6.2f} MB",
    }
    numbers = [text.format(row[key]) for key, text in texts.items() if row[key] is not None]
    names = f"{row['network']:15} {row['method']:18} {row['question']:11} {row['contender']:27}"
    print(names, " ".join(numbers), flush=True)


@contextmanager
def run_folder() -> Iterator[RunFolder]:
    RUNS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-training-", dir=RUNS) as path:
        folder = RunFolder(Path(path))
        folder.create()
        yield folder


# ------------------------------------------------------------------------------------------- the questions


@dataclass(frozen=True, kw_only=True)
class RememberedViews(NoisyViews):
    """The method's own views; whoever comes after may use the last ones again."""

    last: dict[str, Tensor]

    def __call__(self, x: Tensor, *, records: Tensor, step: int, key: Key) -> Tensor:
        views = super().__call__(x, records=records, step=step, key=key)
        self.last.update(views=views, records=records)
        return views


def bare_step(
    method: Method, model: nn.Module, labels: Tensor, last: dict[str, Tensor]
) -> Callable[[], None]:
    """The gradient step alone, of ``model``, over the last sample."""
    plan = method.plan
    shaping = method.shaping(trainable(model))  # its geometry is clipped in; nobody moves it
    engine = ClippedGradients(
        model, clipping=copy.deepcopy(method.clipping), geometry=shaping and shaping.geometry
    )
    noise = SumNoise(plan, engine.clipping, SystemRandomness())
    optimizer = ScheduledOptimizer(method.optimisation, model, steps=plan.steps)

    def step() -> None:
        noisy = noise.release(engine.clipped_sum(last["views"], labels[last["records"]]), 0).gradients
        means = torch._foreach_div(list(noisy.values()), plan.batch)
        optimizer.apply(dict(zip(noisy, means, strict=True)), 0)

    return step


class Enough(Exception):
    """All that is needed has been measured."""


class Stopwatch:
    """Hears of every step of an epoch, stops the clock, takes the bare step, and starts the clock again.

    A journal reports a step before it writes anything down about it: between two reports lies what is written
    about the first step and all of the second, and between equal reports of two epochs exactly one epoch.
    """

    def __init__(self, setup: Setup, bars: Progress, bare: Callable[[], None], last: dict[str, Tensor]):
        self._setup, self._bars, self._bare, self._last = setup, bars, bare, last
        self._begin = self._resumed = math.nan
        self.epochs: list[float] = []
        self.bare: list[float] = []
        self.records: list[int] = []

    def __call__(self, stage: str, done: int, total: int) -> None:
        self._bars(stage, done, total)
        self._setup.wait()
        now = time.perf_counter()
        if done <= WARM_UP:
            self._bare()
            self._begin = now
        else:
            if (done - WARM_UP - 1) % self._setup.steps == 0:
                for each in (self.epochs, self.bare, self.records):
                    each.append(0)
            self.epochs[-1] += now - self._resumed
            self.bare[-1] += self._setup.timed(self._bare)
            self.records[-1] += len(self._last["records"])
            if (done - WARM_UP) % self._setup.steps == 0 and self._satisfied():
                raise Enough
        self._setup.wait()
        self._resumed = time.perf_counter()

    def _satisfied(self) -> bool:
        spent = time.perf_counter() - self._begin
        another = spent / len(self.epochs)
        return len(self.epochs) >= MOST_EPOCHS or spent + another > self._setup.seconds


def ask_epoch(setup: Setup) -> list[dict[str, object]]:
    method = setup.build()
    last: dict[str, Tensor] = {}
    method.views = RememberedViews(sigma=method.views.sigma, views=method.views.views, last=last)
    labels = setup.split.train.y.to(setup.device)
    with run_folder() as folder, progress_bars() as bars:
        bare = bare_step(method, copy.deepcopy(method.model), labels, last)
        watch = Stopwatch(setup, bars, bare, last)
        with suppress(Enough):
            method.fit(setup.split.train, folder=folder, progress=watch)
    pairs = list(zip(watch.epochs, watch.bare, watch.records, strict=True))
    overhead = statistics.median(100 * (1 - bare / epoch) for epoch, bare, _ in pairs)
    rows = []
    for contender, spent, more in (
        ("epoch", watch.epochs, {"overhead": overhead}),
        ("bare step", watch.bare, {}),
    ):
        speed = statistics.median(
            records / seconds for seconds, records in zip(spent, watch.records, strict=True)
        )
        rows.append(
            setup.row(
                "epoch",
                contender,
                statistics.median(spent),
                records_per_second=speed,
                repetitions=len(pairs),
                **more,
            )
        )
    return rows


def ask_evaluation(setup: Setup) -> list[dict[str, object]]:
    method, test = setup.build(), setup.split.test
    seconds = setup.median(lambda: base_accuracy(method.model, test), 3)
    return [setup.row("evaluation", f"{len(test):,} test images", seconds, repetitions=3)]


def ask_checkpoint(setup: Setup) -> list[dict[str, object]]:
    trainer = setup.build().trainer(setup.split.train)
    trainer.advance()  # so that the optimizer has something to remember
    repetitions = 2 if setup.quick else 15
    with run_folder() as folder:
        seconds = setup.median(
            lambda: save_checkpoint(trainer, folder.checkpoint, view_key=(1, 2)), repetitions
        )
        size = folder.checkpoint.stat().st_size / 1e6
    return [setup.row("checkpoint", "write and sync", seconds, megabytes=size, repetitions=repetitions)]


def ask_start(setup: Setup) -> list[dict[str, object]]:
    records, batch = setup.split.records, setup.settings.batch
    method = setup.build()
    works: dict[str, Callable[[], object]] = {
        "load the data": lambda: load("digits"),
        "calibrate the noise": lambda: PrivacyPlan.calibrate(
            epsilon=2.99, delta=1e-5, records=records, batch=batch, epochs=20.0
        ),
        "check and measure the network": lambda: method.trainer(setup.split.train),
    }
    return [setup.row("start", name, setup.timed(work), repetitions=1) for name, work in works.items()]


# ---------------------------------------------------------------------------------------- several processes


def whole_epochs(setup: Setup) -> list[tuple[float, int]]:
    """Seconds and records of each epoch but the first, of training by the processes of torchrun."""
    times: list[float] = []

    def note(stage: str, done: int, total: int) -> None:
        if done % setup.steps == 0:
            times.append(time.perf_counter())

    with Ranks.from_environment() as ranks:
        method = setup.build(epochs=2.0 if setup.quick else 4.0)
        if not ranks.leader:
            method.fit(setup.split.train, ranks=ranks)
            return []
        with run_folder() as folder:
            method.fit(setup.split.train, folder=folder, progress=note, ranks=ranks)
            means = [row["mean_batch"] for row in folder.read_diagnostics()]
    # the last steps may make less than an epoch
    spent = [after - before for before, after in pairwise(times)]
    return [
        (each, round(mean * setup.steps)) for each, mean in zip(spent, means[1 : len(times)], strict=True)
    ]


def ask_processes(setup: Setup) -> list[dict[str, object]]:
    found: dict[str, list[tuple[float, int]]] = {name: [] for name in PROCESSES}
    for _ in range(1 if setup.quick else 2):
        for name, (processes, threads) in PROCESSES.items():
            found[name] += started(setup, processes=processes, threads=threads)
    return [
        setup.row(
            "processes",
            name,
            statistics.median(seconds for seconds, _ in epochs),
            records_per_second=statistics.median(records / seconds for seconds, records in epochs),
            repetitions=len(epochs),
        )
        for name, epochs in found.items()
    ]


def started(setup: Setup, *, processes: int, threads: int) -> list[tuple[float, int]]:
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "epochs.json"
        command = [sys.executable, *(torchrun if processes > 1 else ()), __file__, "--device", "cpu"]
        command += ["--networks", setup.network, "--methods", setup.method, "--epochs-to", str(answer)]
        done = subprocess.run(
            [*command, *(["--quick"] if setup.quick else [])],
            env={**os.environ, "OMP_NUM_THREADS": str(threads)},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(f"{processes} processes ended with {done.returncode}: {done.stderr[-2000:]}")
        return [(seconds, records) for seconds, records in read_json(answer)]


# --------------------------------------------------------------------------------------------- the command

ASK = {
    "start": ask_start,
    "epoch": ask_epoch,
    "evaluation": ask_evaluation,
    "checkpoint": ask_checkpoint,
    "processes": ask_processes,
}
OF_ONE_METHOD = {"start", "evaluation", "processes"}  # the others would say the same
OF_ONE_NETWORK = {"start", "processes"}


def _names(text: str, known: Iterable[str]) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in known:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
    return names


def asked(options: argparse.Namespace, device: torch.device) -> Iterator[tuple[str, str, str]]:
    """Network, method and question, in turn."""
    for network in options.networks:
        for method in options.methods:
            for question in options.questions:
                if question in OF_ONE_METHOD and method != options.methods[0]:
                    continue
                if question in OF_ONE_NETWORK and network != options.networks[0]:
                    continue
                if question == "processes" and device.type == "cuda":
                    continue  # they would share the one GPU
                if question == "epoch" and device.type == "cpu" and (network, method) in TOO_SLOW_ON_CPU:
                    continue
                yield network, method, question


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "cuda"))
    parser.add_argument("--networks", type=lambda text: _names(text, NETWORKS), default=list(NETWORKS))
    parser.add_argument("--methods", type=lambda text: _names(text, METHODS), default=list(METHODS))
    parser.add_argument("--questions", type=lambda text: _names(text, ASK), default=list(ASK))
    parser.add_argument("--seconds", type=float, default=20.0, help="for one method's epochs (at least one)")
    parser.add_argument("--quick", action="store_true", help="96 records: does it run at all?")
    parser.add_argument("--output", type=Path, help="folder for the results (default: benchmarks/results)")
    parser.add_argument("--epochs-to", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    device = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if "OMP_NUM_THREADS" in os.environ:
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))

    def setup(network: str, method: str) -> Setup:
        seconds = 0.0 if options.quick else options.seconds
        return Setup(network=network, method=method, device=device, quick=options.quick, seconds=seconds)

    if options.epochs_to:
        epochs = whole_epochs(setup(options.networks[0], options.methods[0]))
        if epochs:
            write_json(options.epochs_to, epochs)
        return

    where = torch.cuda.get_device_name() if device.type == "cuda" else f"{torch.get_num_threads()} threads"
    print(f"torch {torch.__version__}, {device.type} ({where})", flush=True)
    folder = options.output or (None if options.quick else RESULTS)
    for network, method, question in asked(options, device):
        rows = ASK[question](setup(network, method))
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"training-{device.type}.json"
            earlier = read_json(path) if path.exists() else []
            mine = (network, method, question)
            others = [row for row in earlier if (row["network"], row["method"], row["question"]) != mine]
            write_json(path, others + rows)


if __name__ == "__main__":
    main()
