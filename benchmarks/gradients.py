"""What does one private step cost, beside an ordinary one and beside other private ones?

    python benchmarks/gradients.py [--device cpu|cuda] [--networks a,b] [--contenders a,b] [--repeat N]

Contenders, each with a copy of the same network, the same records and SGD with momentum:

- ``plain``: forward, backward, optimizer step.
- ``hauberk``: the whole private step. Forward, backward, clip every record to C, sum, Gaussian noise of
  deviation z C (z = 1) from the operating system as in training, divide, optimizer step.
- ``hauberk-8-views``: the same records with 8 views each, made beforehand; each record is clipped once.
  ``plain-8x-images``, a plain step over as many images, is what it is compared with.
- ``opacus-hooks``, ``opacus-ghost``: Opacus' per-record gradients and its ghost clipping, with its own
  optimizers and their noise (from torch's generator, Opacus' default).
  ``opacus-hooks-whole-batch`` takes the batch in one piece, as users get it unless they ask for less.
- ``vmap``: ``torch.func`` without any library, with torch's noise.

Everybody works at the micro-batch that suited it best in a short trial (Hauberk: the one that it chose by
itself), and all take turns in one run, so that a busy moment of the machine hits all of them. Seconds are
medians. ``ratio_to_plain`` divides by ``plain``, for 8 views by ``plain-8x-images``. TF32 stays as torch has
it by default, for everybody. ``peak_memory_mb`` (10^6 bytes) is what a step needs beyond model and data, at
the timed micro-batch: on CUDA the allocator's peak, on a CPU the growth of a fresh process.

Writes ``benchmarks/results/gradients-cpu.json`` (or ``-cuda.json``) after every network: rows ``{device,
network, contender, seconds, ratio_to_plain, peak_memory_mb, batch, micro_batch, repetitions}``. ``batch``
counts records; ``micro_batch`` too, for plain steps images. All rows of a network come from one run; rows of
networks that were not asked for stay. Who fails is reported in a line and has no row. ``--quick`` only shows
that everything runs: it writes nothing without ``--output``, and its numbers mean nothing.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from hauberk import models
from hauberk.accounting import PrivacyPlan
from hauberk.files import read_json, write_json
from hauberk.gradients import ClippedGradients, FlatClip
from hauberk.randomness import SystemRandomness
from hauberk.training import Optimisation
from hauberk.training.noise import SumNoise
from hauberk.training.optimisation import ScheduledOptimizer

RESULTS = Path(__file__).parent / "results"
CLIP = 0.1
NOISE_MULTIPLIER = 1.0
LEARNING_RATE, MOMENTUM = 0.01, 0.9
VIEWS = 8
QUICK_BATCH = 2


@dataclass(frozen=True, kw_only=True)
class Task:
    """The shape of a network's records and how many of them make a batch."""

    shape: tuple[int, ...]
    cpu_batch: int
    cuda_batch: int
    quick_side: int


NETWORKS = {
    "paper-mnist-cnn": Task(shape=(1, 28, 28), cpu_batch=512, cuda_batch=1024, quick_side=8),
    "small-tanh-cnn": Task(shape=(1, 28, 28), cpu_batch=512, cuda_batch=2048, quick_side=14),
    "wrn-16-4": Task(shape=(3, 32, 32), cpu_batch=64, cuda_batch=512, quick_side=8),
    "transformer": Task(shape=(1, 28, 28), cpu_batch=512, cuda_batch=1024, quick_side=8),
}

# ---------------------------------------------------------------------------------------- the contenders

Step = Callable[[], None]
Make = Callable[..., tuple[Step, int]]
"""``make(model, views, labels, micro_batch)`` gives a step and the micro-batch that it works at.

``views`` is (records, views, *shape). Every step lets go of its gradients at the end, so that no contender's
leftovers lie in the others' memory.
"""


def sgd(model: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)


def plain(model: nn.Module, views: Tensor, labels: Tensor, micro_batch: int) -> tuple[Step, int]:
    images, targets = views.flatten(0, 1), labels.repeat_interleave(views.shape[1])
    optimizer = sgd(model)

    def step() -> None:
        for some, theirs in zip(images.split(micro_batch), targets.split(micro_batch), strict=True):
            (cross_entropy(model(some), theirs, reduction="sum") / len(images)).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step, min(micro_batch, len(images))


def hauberk(model: nn.Module, views: Tensor, labels: Tensor, _: int) -> tuple[Step, int]:
    batch = len(labels)
    engine = ClippedGradients(model, clipping=FlatClip(CLIP))
    engine.prepare(views)
    plan = PrivacyPlan(
        records=10 * batch, batch=batch, epochs=10, noise_multiplier=NOISE_MULTIPLIER, delta=1e-5
    )
    noise = SumNoise(plan, engine.clipping, SystemRandomness())
    optimizer = ScheduledOptimizer(
        Optimisation(lr=LEARNING_RATE, momentum=MOMENTUM, schedule="constant"), model, steps=1
    )

    def step() -> None:
        noisy = noise.release(engine.clipped_sum(views, labels), 0).gradients
        means = torch._foreach_div(list(noisy.values()), batch)
        optimizer.apply(dict(zip(noisy, means, strict=True)), 0)

    return step, min(engine.records_at_a_time(), len(labels))


def opacus_hooks(model: nn.Module, views: Tensor, labels: Tensor, micro_batch: int) -> tuple[Step, int]:
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    module = GradSampleModule(model)
    optimizer = DPOptimizer(
        sgd(module), noise_multiplier=NOISE_MULTIPLIER, max_grad_norm=CLIP, expected_batch_size=len(labels)
    )
    return _opacus_step(module, optimizer, cross_entropy, views, labels, micro_batch)


def opacus_ghost(model: nn.Module, views: Tensor, labels: Tensor, micro_batch: int) -> tuple[Step, int]:
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    module = GradSampleModuleFastGradientClipping(model, max_grad_norm=CLIP, use_ghost_clipping=True)
    optimizer = DPOptimizerFastGradientClipping(
        sgd(module), noise_multiplier=NOISE_MULTIPLIER, max_grad_norm=CLIP, expected_batch_size=len(labels)
    )
    loss = DPLossFastGradientClipping(module, optimizer, nn.CrossEntropyLoss())
    return _opacus_step(module, optimizer, loss, views, labels, micro_batch)


def _opacus_step(
    module: nn.Module,
    optimizer: Any,
    loss: Callable[..., Any],
    views: Tensor,
    labels: Tensor,
    micro_batch: int,
) -> tuple[Step, int]:
    """Micro-batches by skipped steps, the way of Opacus' own BatchMemoryManager."""
    assert views.shape[1] == 1, "Opacus would clip every view as a record of its own"
    parts = list(zip(views[:, 0].split(micro_batch), labels.split(micro_batch), strict=True))

    def step() -> None:
        for number, (images, targets) in enumerate(parts, start=1):
            optimizer.zero_grad(set_to_none=True)
            loss(module(images), targets).backward()
            optimizer.signal_skip_step(do_skip=number < len(parts))
            optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step, min(micro_batch, len(labels))


def straight_vmap(model: nn.Module, views: Tensor, labels: Tensor, micro_batch: int) -> tuple[Step, int]:
    optimizer, weights = sgd(model), dict(model.named_parameters())

    def record_loss(values: dict[str, Tensor], images: Tensor, label: Tensor) -> Tensor:
        answers = functional_call(model, values, (images,))
        return cross_entropy(answers, label.expand(len(images)))

    per_record = vmap(grad(record_loss), in_dims=(None, 0, 0))

    def step() -> None:
        values = {name: weight.detach() for name, weight in weights.items()}
        total = {name: torch.zeros_like(value) for name, value in values.items()}
        for some, theirs in zip(views.split(micro_batch), labels.split(micro_batch), strict=True):
            gradients = per_record(values, some, theirs)
            norms = torch.stack([each.flatten(1).norm(dim=1) for each in gradients.values()]).norm(dim=0)
            factors = (CLIP / norms.clamp_min(1e-12)).clamp_max(1.0)
            for name, each in gradients.items():
                total[name] += torch.tensordot(factors, each, dims=1)
        for name, weight in weights.items():
            noise = NOISE_MULTIPLIER * CLIP * torch.randn_like(weight)
            weight.grad = (total[name] + noise) / len(labels)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step, min(micro_batch, len(labels))


@dataclass(frozen=True, kw_only=True)
class Contender:
    """How a contender is made, and who must run beside it."""

    make: Make
    tries_micro_batches: bool = True
    views: int = 1
    baseline: str = "plain"
    companions: tuple[str, ...] = ()


CONTENDERS = {
    "plain": Contender(make=plain),
    "hauberk": Contender(make=hauberk, tries_micro_batches=False),
    "plain-8x-images": Contender(make=plain, views=VIEWS, baseline="plain-8x-images"),
    "hauberk-8-views": Contender(
        make=hauberk, tries_micro_batches=False, views=VIEWS, baseline="plain-8x-images"
    ),
    "opacus-hooks": Contender(make=opacus_hooks, companions=("opacus-hooks-whole-batch",)),
    "opacus-hooks-whole-batch": Contender(make=opacus_hooks, tries_micro_batches=False),
    "opacus-ghost": Contender(make=opacus_ghost),
    "vmap": Contender(make=straight_vmap),
}


def with_companions(asked: Iterable[str]) -> list[str]:
    """Those asked for, their baselines and their companions, in the table's order."""
    wanted = set(asked)
    for name in list(wanted):
        wanted |= {CONTENDERS[name].baseline, *CONTENDERS[name].companions}
    return [name for name in CONTENDERS if name in wanted]


# ---------------------------------------------------------------------------------------- the measurement


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One network on one device: makes contenders on equal terms, times them, and measures their memory."""

    network: str
    device: torch.device
    quick: bool

    @property
    def batch(self) -> int:
        if self.quick:
            return QUICK_BATCH
        task = NETWORKS[self.network]
        return task.cuda_batch if self.device.type == "cuda" else task.cpu_batch

    def candidates(self, contender: Contender) -> list[int]:
        whole = self.batch * (contender.views if contender.make is plain else 1)
        if not contender.tries_micro_batches:
            return [whole]
        if self.quick or self.device.type == "cuda":
            return [whole // part for part in ((1, 2) if self.quick else (1, 2, 4, 8))]
        return [whole, *(size for size in (256, 128, 64, 32, 16) if size < whole)]

    def make(self, contender: Contender, micro_batch: int, *, batch: int | None = None) -> tuple[Step, int]:
        gc.collect()  # a predecessor may still hold tensors in cycles
        torch.manual_seed(0)  # the same start for everybody
        batch, task = batch or self.batch, NETWORKS[self.network]
        shape = (task.shape[0], task.quick_side, task.quick_side) if self.quick else task.shape
        model = models.build(self.network, shape=shape, classes=10).to(self.device)
        views = torch.rand(batch, contender.views, *shape).to(self.device)
        labels = torch.randint(10, (batch,)).to(self.device)
        return contender.make(model, views, labels, micro_batch)

    def seconds(self, step: Step) -> float:
        self._wait()
        start = time.perf_counter()
        step()
        self._wait()
        return time.perf_counter() - start

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def peak_memory_mb(self, step: Step) -> float:
        """What one step needs beyond what is held before it."""
        gc.collect()
        if self.device.type == "cuda":
            self._wait()
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            step()
            self._wait()
            return (torch.cuda.max_memory_allocated() - before) / 1e6
        with suppress(OSError, AttributeError):  # freed memory that the process keeps would hide the growth
            ctypes.CDLL(None).malloc_trim(0)
        with suppress(OSError):  # where this is not allowed, the process's peak so far must do
            Path("/proc/self/clear_refs").write_text("5")  # sets the peak back to what is resident now
        before = _peak_kilobytes()
        step()
        return (_peak_kilobytes() - before) * 1024 / 1e6

    def memory(self, name: str, micro_batch: int) -> float:
        if self.device.type == "cuda" or self.quick:
            # a fresh start: what a contender keeps between steps (recorded graphs) belongs to its need
            fresh, _ = self.make(CONTENDERS[name], micro_batch)
            return self.peak_memory_mb(fresh)
        command = [sys.executable, __file__, "--memory-of", self.network, name, str(micro_batch)]
        done = subprocess.run([*command, "--device", "cpu"], capture_output=True, text=True)
        if done.returncode:
            said = done.stderr.strip().splitlines() or [f"ended with {done.returncode}"]
            raise RuntimeError(f"its memory could not be measured: {said[-1]}")
        return float(done.stdout.split()[-1])

    def best_micro_batch(self, name: str) -> int | None:
        """The fastest of the candidates; one that fails is reported and out of the race."""
        candidates = self.candidates(CONTENDERS[name])
        if len(candidates) == 1:
            return candidates[0]
        times: dict[int, float] = {}
        for size in candidates:
            with reported(f"{name} on {self.network} at micro-batch {size}"):
                step, _ = self.make(CONTENDERS[name], size)
                tries = 8 if self.device.type == "cuda" else 2  # the first ones there set libraries up
                times[size] = min(self.seconds(step) for _ in range(tries))
        return min(times, key=times.__getitem__, default=None)

    def rows(self, names: Sequence[str], repetitions: int) -> list[dict[str, object]]:
        steps: dict[str, tuple[Step, int]] = {}
        for name in names:
            size = self.best_micro_batch(name)
            if size is None:
                continue
            with reported(f"{name} on {self.network}"):
                made = self.make(CONTENDERS[name], size)
                for _ in range(3 if self.device.type == "cuda" else 1):
                    self.seconds(made[0])
                steps[name] = made
                print(f"  {name} takes micro-batches of {made[1]}", flush=True)
        times: dict[str, list[float]] = {name: [] for name in steps}
        for turn in range(1, repetitions + 1):
            for name in list(steps):
                with reported(f"{name} on {self.network}"):
                    times[name].append(self.seconds(steps[name][0]))
                if len(times[name]) < turn:
                    del steps[name]
        medians = {name: statistics.median(times[name]) for name in steps}
        rows: list[dict[str, object]] = []
        for name, (_, micro_batch) in steps.items():
            baseline = CONTENDERS[name].baseline
            with reported(f"{name} on {self.network}"):
                if baseline not in medians:
                    raise RuntimeError(f"{baseline}, which it is compared with, failed")
                row = {
                    "device": self.device.type,
                    "network": self.network,
                    "contender": name,
                    "seconds": medians[name],
                    "ratio_to_plain": medians[name] / medians[baseline],
                    "peak_memory_mb": self.memory(name, micro_batch),
                    "batch": self.batch,
                    "micro_batch": micro_batch,
                    "repetitions": repetitions,
                }
                rows.append(row)
                print(
                    f"{self.network:16} {name:25} {medians[name]:9.4f} s {row['ratio_to_plain']:7.2f} x "
                    f"{baseline:15} {row['peak_memory_mb']:9.0f} MB",
                    flush=True,
                )
        return rows


@contextmanager
def reported(what: str) -> Iterator[None]:
    """Whatever fails inside costs one line, not the run: peers and memory limits are not in our hands."""
    try:
        yield
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        print(f"{what}: {reason[:200]}", flush=True)


def _kilobytes(file: str, key: str) -> int:
    (line,) = [line for line in Path(file).read_text().splitlines() if line.startswith(f"{key}:")]
    return int(line.split()[1])


def _peak_kilobytes() -> int:
    try:
        return _kilobytes("/proc/self/status", "VmHWM")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _fail_rather_than_be_killed() -> None:
    """Let an allocation beyond the machine's memory raise, before the system ends the whole process."""
    try:
        used = _kilobytes("/proc/self/status", "VmSize")
        free = _kilobytes("/proc/meminfo", "MemAvailable")
    except OSError:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard == resource.RLIM_INFINITY:  # else somebody has set a limit already
        resource.setrlimit(resource.RLIMIT_AS, ((used + free) * 1024, hard))


def _names(text: str, known: Iterable[str]) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in known:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
    return names


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "cuda"))
    parser.add_argument("--networks", type=lambda text: _names(text, NETWORKS), default=list(NETWORKS))
    parser.add_argument("--contenders", type=lambda text: _names(text, CONTENDERS), default=list(CONTENDERS))
    parser.add_argument("--repeat", type=int, help="turns of each contender (default: CPU 7, CUDA 20)")
    parser.add_argument("--quick", action="store_true", help="tiny batches, 2 turns: does it run at all?")
    parser.add_argument("--output", type=Path, help="folder for the results (default: benchmarks/results)")
    parser.add_argument("--memory-of", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    device = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if device.type == "cpu":
        _fail_rather_than_be_killed()
    if options.quick:
        torch.set_num_threads(1)  # threads that wait for each other crawl where others use the machine too
    if options.memory_of:
        network, name, micro_batch = options.memory_of
        measurement = Measurement(network=network, device=device, quick=options.quick)
        measurement.make(CONTENDERS[name], 2, batch=2)[0]()  # what torch loads once is no step's memory
        print(measurement.peak_memory_mb(measurement.make(CONTENDERS[name], int(micro_batch))[0]))
        return

    names = with_companions(options.contenders)
    try:
        import opacus  # noqa: F401
    except ImportError as error:
        print(f"opacus is left out: {error}", flush=True)
        names = [name for name in names if not name.startswith("opacus")]
    repetitions = options.repeat or (2 if options.quick else 20 if device.type == "cuda" else 7)
    where = torch.cuda.get_device_name() if device.type == "cuda" else f"{torch.get_num_threads()} threads"
    print(f"torch {torch.__version__}, {device.type} ({where}), medians of {repetitions}", flush=True)
    gc.freeze()  # collections, also those in the middle of a timed step, need not go through all modules
    folder = options.output or (None if options.quick else RESULTS)
    for network in options.networks:
        measurement = Measurement(network=network, device=device, quick=options.quick)
        print(f"{network}, {measurement.batch} records", flush=True)
        rows = measurement.rows(names, repetitions)
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"gradients-{device.type}.json"
            others = [row for row in read_json(path) if row["network"] != network] if path.exists() else []
            write_json(path, others + rows)


if __name__ == "__main__":
    main()
