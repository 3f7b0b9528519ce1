"""How many inputs a second do attacks get through, and how many do they break, beside other libraries?

    python benchmarks/attacks.py [--device cpu|cuda] [--networks a,b] [--attacks a,b] [--repeat N]

Two attacks in l_inf, at the same settings for everybody, on the same network and the same test inputs:

- ``PGD-40``: 40 steps of 2.5/40 of the radius;
- ``MIM-10``: 10 steps of a quarter of the radius with momentum 1.

Both start at the input. From random starts everybody finds more here and less there, by luck; from the input
all take the same way, and a difference is one of the implementations.

Contenders:

- ``hauberk``: as users get it; inputs that are broken leave the batch (``stop_when_broken``).
- ``hauberk-all-steps``: every input takes every step, as with the others.
- ``torchattacks``, ``foolbox``, ``art`` (adversarial-robustness-toolbox), by their own interfaces.

The task is the same for all: adversarial inputs, which of them are broken, and which were right before, since
only those count as successes. What a library does not say costs it one pass over the inputs or its results,
which is part of its time. Everybody works at the batch size that suited it best in a short trial, and all
take turns in one run, so that a busy moment of the machine hits all of them; rates are medians. Data lie on
the device (ART takes and gives numpy arrays, which is its interface). ``success`` is the share of the inputs
that were right and are not any more, in the last turn.

Networks are trained here for a minute or two (weights stay in ``.cache``). Writes
``benchmarks/results/attacks-cpu.json`` (or ``-cuda.json``) after every network: rows ``{device, network,
attack, radius, contender, examples_per_second, success, examples, batch, repetitions}``. All rows of a
network come from one run; rows of networks that were not asked for stay. Who fails is reported in a line and
has no row. ``--quick`` only shows that everything runs: it writes nothing without ``--output``, and its
numbers mean nothing.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from hauberk import data, models
from hauberk.attacks import MIM, PGD
from hauberk.files import read_json, write_json

RESULTS = Path(__file__).parent / "results"
WEIGHTS = Path(__file__).parents[1] / ".cache" / "attacks-benchmark"


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a network is trained and attacked on."""

    data: str
    radii: tuple[float, ...]
    training_steps: int
    cpu_examples: int | None  # None: too slow there to be asked by default
    cuda_examples: int


NETWORKS = {
    "paper-mnist-cnn": Task(
        data="mnist", radii=(0.1, 0.15, 0.2), training_steps=500, cpu_examples=128, cuda_examples=4096
    ),
    "lenet": Task(
        data="cifar10",
        radii=(1 / 255, 3 / 255, 8 / 255),
        training_steps=800,
        cpu_examples=96,
        cuda_examples=4096,
    ),
    "paper-cifar-cnn": Task(
        data="cifar10",
        radii=(1 / 255, 3 / 255, 8 / 255),
        training_steps=1000,
        cpu_examples=None,
        cuda_examples=1024,
    ),
}


@dataclass(frozen=True, kw_only=True)
class Attack:
    """The settings that all contenders share."""

    steps: int
    step: float  # share of the radius
    momentum: float


ATTACKS = {
    "PGD-40": Attack(steps=40, step=2.5 / 40, momentum=0.0),
    "MIM-10": Attack(steps=10, step=0.25, momentum=1.0),
}
TRIAL_STEPS = 3

# ---------------------------------------------------------------------------------------- the contenders

Run = Callable[[], float]
"""Attacks all inputs and returns the share of those that were right before and are broken now."""

Make = Callable[[nn.Module, Tensor, Tensor, Attack, float, int], Run]
"""``make(model, x, y, attack, radius, batch)``"""


def hauberk(
    model: nn.Module, x: Tensor, y: Tensor, attack: Attack, radius: float, batch: int, *, stop: bool = True
) -> Run:
    kind = MIM if attack.momentum else PGD
    ours = kind(
        steps=attack.steps,
        reach=attack.steps * attack.step,
        momentum=attack.momentum,
        random_start=False,
        stop_when_broken=stop,
    )
    return lambda: ours.attack(model, x, y, radius=radius, batch_size=batch).success_rate


def hauberk_all_steps(
    model: nn.Module, x: Tensor, y: Tensor, attack: Attack, radius: float, batch: int
) -> Run:
    return hauberk(model, x, y, attack, radius, batch, stop=False)


def with_torchattacks(
    model: nn.Module, x: Tensor, y: Tensor, attack: Attack, radius: float, batch: int
) -> Run:
    import torchattacks

    common = {"eps": radius, "alpha": attack.step * radius, "steps": attack.steps}
    if attack.momentum:
        theirs = torchattacks.MIFGSM(model, decay=attack.momentum, **common)
    else:
        theirs = torchattacks.PGD(model, random_start=False, **common)

    def run() -> float:
        points = torch.cat([theirs(*part) for part in zip(x.split(batch), y.split(batch), strict=True)])
        return successes(right(model, x, y, batch), ~right(model, points, y, batch))

    return run


def with_foolbox(model: nn.Module, x: Tensor, y: Tensor, attack: Attack, radius: float, batch: int) -> Run:
    import foolbox
    from foolbox.attacks.mi_fgsm import LinfMomentumIterativeFastGradientMethod

    common = {"rel_stepsize": attack.step, "steps": attack.steps, "random_start": False}
    if attack.momentum:
        theirs = LinfMomentumIterativeFastGradientMethod(momentum=attack.momentum, **common)
    else:
        theirs = foolbox.attacks.LinfPGD(**common)
    wrapped = foolbox.PyTorchModel(model, bounds=(0, 1), device=x.device)

    def run() -> float:
        parts = zip(x.split(batch), y.split(batch), strict=True)
        broken = torch.cat([theirs(wrapped, some, labels, epsilons=radius)[2] for some, labels in parts])
        return successes(right(model, x, y, batch), broken)

    return run


def with_art(model: nn.Module, x: Tensor, y: Tensor, attack: Attack, radius: float, batch: int) -> Run:
    from art.attacks.evasion import MomentumIterativeMethod, ProjectedGradientDescent
    from art.estimators.classification import PyTorchClassifier

    classifier = PyTorchClassifier(
        model=model,
        loss=nn.CrossEntropyLoss(),
        input_shape=tuple(x.shape[1:]),
        nb_classes=10,
        clip_values=(0.0, 1.0),
        device_type="gpu" if x.device.type == "cuda" else "cpu",
    )
    common: dict[str, Any] = {
        "norm": np.inf,
        "eps": radius,
        "eps_step": attack.step * radius,
        "max_iter": attack.steps,
        "batch_size": batch,
        "verbose": False,
    }
    if attack.momentum:
        theirs = MomentumIterativeMethod(classifier, decay=attack.momentum, **common)
    else:
        theirs = ProjectedGradientDescent(classifier, num_random_init=0, **common)
    inputs, labels = x.cpu().numpy(), y.cpu().numpy()

    def run() -> float:
        points = torch.from_numpy(theirs.generate(inputs, labels)).to(x.device)
        return successes(right(model, x, y, batch), ~right(model, points, y, batch))

    return run


@torch.no_grad()
def right(model: nn.Module, points: Tensor, labels: Tensor, batch: int) -> Tensor:
    """Which points are answered with their labels."""
    return torch.cat([model(part).argmax(1) for part in points.split(batch)]) == labels


def successes(right_before: Tensor, broken: Tensor) -> float:
    return float((right_before & broken).sum() / right_before.sum())


CONTENDERS: dict[str, Make] = {
    "hauberk": hauberk,
    "hauberk-all-steps": hauberk_all_steps,
    "torchattacks": with_torchattacks,
    "foolbox": with_foolbox,
    "art": with_art,
}
PEERS = ("torchattacks", "foolbox", "art")

# ---------------------------------------------------------------------------------------- the measurement


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One network on one device."""

    network: str
    device: torch.device
    quick: bool

    @property
    def task(self) -> Task:
        return NETWORKS[self.network]

    def inputs(self) -> tuple[Tensor, Tensor]:
        if self.quick:
            test, count = data.load("digits").test, 8
        else:
            test = data.load(self.task.data).test
            on_cpu = self.task.cpu_examples or 32
            count = self.task.cuda_examples if self.device.type == "cuda" else on_cpu
        return test.x[:count].to(self.device), test.y[:count].to(self.device)

    def model(self) -> nn.Module:
        train = data.load("digits" if self.quick else self.task.data).train
        torch.manual_seed(0)
        model = models.build(self.network, shape=train.shape, classes=10).to(self.device)
        kept = WEIGHTS / f"{self.network}-{self.device.type}-{self.task.training_steps}.safetensors"
        if not self.quick and kept.exists():
            model.load_state_dict(load_file(kept, device=str(self.device)))
            return model.eval()
        steps = 2 if self.quick else self.task.training_steps
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps + 1)
        for _ in range(steps):
            rows = torch.randint(len(train.x), (8 if self.quick else 128,))
            loss = cross_entropy(model(train.x[rows].to(self.device)), train.y[rows].to(self.device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        if not self.quick:
            WEIGHTS.mkdir(parents=True, exist_ok=True)
            save_file(model.state_dict(), kept)
        return model.eval()

    def seconds(self, run: Run) -> tuple[float, float]:
        """How long it takes, and its success."""
        self._wait()
        start = time.perf_counter()
        found = run()
        self._wait()
        return time.perf_counter() - start, found

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def candidates(self, count: int) -> list[int]:
        if self.quick:
            return [4]
        sizes = (1024, 4096, count) if self.device.type == "cuda" else (32, 64, count)
        return sorted({min(size, count) for size in sizes})

    def best_batch(self, name: str, model: nn.Module, x: Tensor, y: Tensor, attack: Attack) -> int | None:
        """The fastest of the candidates; one that fails is reported and out of the race."""
        trial = replace(attack, steps=TRIAL_STEPS)
        times: dict[int, float] = {}
        for size in self.candidates(len(x)):
            with reported(f"{name} on {self.network} at batches of {size}"):
                run = CONTENDERS[name](model, x, y, trial, self.task.radii[0], size)
                times[size] = min(self.seconds(run)[0] for _ in range(2))
        return min(times, key=times.__getitem__, default=None)

    def rows(
        self, names: Sequence[str], attacks: Sequence[str], repetitions: int
    ) -> Iterator[dict[str, Any]]:
        model, (x, y) = self.model(), self.inputs()
        accuracy = float(right(model, x, y, 256).double().mean())
        print(f"{self.network}: {len(x)} inputs, {accuracy:.1%} right without an attack", flush=True)
        for title in attacks:
            attack = replace(ATTACKS[title], steps=TRIAL_STEPS) if self.quick else ATTACKS[title]
            batches = {name: self.best_batch(name, model, x, y, attack) for name in names}
            sizes = ", ".join(f"{name} {size}" for name, size in batches.items())
            print(f"  {title}, batches: {sizes}", flush=True)
            for radius in self.task.radii[:1] if self.quick else self.task.radii:
                runs: dict[str, Run] = {}
                for name, size in batches.items():
                    if size is not None:
                        runs[name] = CONTENDERS[name](model, x, y, attack, radius, size)
                times: dict[str, list[float]] = {name: [] for name in runs}
                success: dict[str, float] = {}
                for turn in range(1, repetitions + 1):
                    for name in list(runs):
                        with reported(f"{name} on {self.network}"):
                            taken, success[name] = self.seconds(runs[name])
                            times[name].append(taken)
                        if len(times[name]) < turn:
                            del runs[name]
                rates = {name: len(x) / statistics.median(times[name]) for name in runs}
                fastest = max((rates[name] for name in PEERS if name in rates), default=float("nan"))
                for name, rate in rates.items():
                    print(
                        f"  {title} {radius:8.4f} {name:18} {rate:10.1f} a second {rate / fastest:6.2f} x "
                        f"the fastest peer, {success[name]:7.2%} broken",
                        flush=True,
                    )
                    yield {
                        "device": self.device.type,
                        "network": self.network,
                        "attack": title,
                        "radius": radius,
                        "contender": name,
                        "examples_per_second": rate,
                        "success": success[name],
                        "examples": len(x),
                        "batch": batches[name],
                        "repetitions": repetitions,
                    }


@contextmanager
def reported(what: str) -> Iterator[None]:
    """Whatever fails inside costs one line, not the run: peers are not in our hands."""
    try:
        yield
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        print(f"{what}: {reason[:200]}", flush=True)


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
    parser.add_argument("--networks", type=lambda text: _names(text, NETWORKS))
    parser.add_argument("--attacks", type=lambda text: _names(text, ATTACKS), default=list(ATTACKS))
    parser.add_argument("--contenders", type=lambda text: _names(text, CONTENDERS), default=list(CONTENDERS))
    parser.add_argument("--repeat", type=int, help="turns of each contender (default: CPU 3, CUDA 5)")
    parser.add_argument(
        "--quick", action="store_true", help="a few inputs and steps, 1 turn: does it run at all?"
    )
    parser.add_argument("--output", type=Path, help="folder for the results (default: benchmarks/results)")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    device = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if options.quick:
        torch.set_num_threads(1)  # threads that wait for each other crawl where others use the machine too
    on_cuda = device.type == "cuda"
    networks = options.networks or [
        name for name, task in NETWORKS.items() if on_cuda or task.cpu_examples is not None
    ]
    repetitions = options.repeat or (1 if options.quick else 5 if on_cuda else 3)
    where = torch.cuda.get_device_name() if on_cuda else f"{torch.get_num_threads()} threads"
    print(f"torch {torch.__version__}, {device.type} ({where}), medians of {repetitions}", flush=True)
    folder = options.output or (None if options.quick else RESULTS)
    for network in networks:
        measurement = Measurement(network=network, device=device, quick=options.quick)
        rows = list(measurement.rows(options.contenders, options.attacks, repetitions))
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"attacks-{device.type}.json"
            others = [row for row in read_json(path) if row["network"] != network] if path.exists() else []
            write_json(path, others + rows)


if __name__ == "__main__":
    main()
