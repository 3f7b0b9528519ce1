"""How many inputs a second are certified, beside the published procedure and another library?

    python benchmarks/certify.py [--device cpu|cuda] [--networks a,b] [--questions a,b]

Questions, all at alpha = 0.001 and, for the radius, against n = 100,000 draws:

- ``radius>=0.25``: is the l2 radius at least 0.25?
- ``within-10%``, ``within-5%``: the radius, to that fraction of what 100,000 draws would give.

Contenders, with the same network and inputs of the same test set, taking turns in one run:

- ``published``: the procedure of Cohen et al. (2019), one input at a time, 100 draws for selection, 100,000
  in batches of 1,000 for estimation; the same work whatever the question.
- ``art``: the same by adversarial-robustness-toolbox.
- ``hauberk``: the sequential rules.

Networks: ``half-space`` (784 features, two classes, truth in closed form), ``paper-mnist-cnn`` on MNIST and
``wrn-16-4`` on MNIST enlarged to 32 x 32 x 3, both trained here with noise of the certificate's size for a
few hundred steps and kept in ``.cache`` (without MNIST at hand: embedded digits). Input noise sigma = 0.25.

Writes ``benchmarks/results/certify-cpu.json`` (or ``-cuda.json``): rows ``{device, network, question,
contender, inputs_per_second, speedup, draws, unsafe}`` and more: ``draws`` are per input, ``extrapolated``
says that a speed was taken from fewer draws, ``unsafe`` counts certified inputs whose true probability is
below what their radius needs, among ``checked`` ones; it is null where the truth is not known. On CUDA the
truth of some inputs of a network is taken from 10,000,000 draws.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from scipy.stats import beta, norm
from torch import Tensor, nn

from hauberk.certify import AtLeast, Rule, Smoothed, Within
from hauberk.data import load
from hauberk.errors import RequestError
from hauberk.files import write_json
from hauberk.models import build

RESULTS = Path(__file__).parent / "results"
CACHE = Path(__file__).parents[1] / ".cache" / "certify"
SIGMA, ALPHA, DRAWS, SELECTION, RADIUS = 0.25, 0.001, 100_000, 100, 0.25
QUESTIONS = ("radius>=0.25", "within-10%", "within-5%")
NETWORKS = ("half-space", "paper-mnist-cnn", "wrn-16-4")
TRUTH_DRAWS = 10_000_000


def rules(draws: int) -> dict[str, Rule]:
    return {
        "radius>=0.25": AtLeast(radius=RADIUS, samples=draws),
        "within-10%": Within(fraction=0.1, samples=draws),
        "within-5%": Within(fraction=0.05, samples=draws),
    }


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A network, inputs to certify, and the truth where it is known."""

    name: str
    model: nn.Module
    x: Tensor
    classes: int
    probabilities: NDArray[np.float64] | None = None  # of class 0


class HalfSpace(nn.Module):
    """Class 0 where the first coordinate is positive: under noise its probability is Phi(x_0 / sigma)."""

    def __init__(self) -> None:
        super().__init__()
        weight = torch.zeros(784, 2)
        weight[0] = torch.tensor([1.0, -1.0])
        self.register_buffer("weight", weight)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight


def half_space() -> Subject:
    """Distances to the plane as certified radii of image classifiers are: many large, some near zero."""
    dice = np.random.default_rng(0)
    distances = np.where(dice.random(4000) < 0.5, 1.5, dice.uniform(-0.2, 1.2, 4000))
    x = torch.zeros(4000, 784)
    x[:, 0] = torch.from_numpy(distances)
    probabilities = norm.cdf(x[:, 0].double().numpy() / SIGMA)
    return Subject(name="half-space", model=HalfSpace(), x=x, classes=2, probabilities=probabilities)


def images() -> tuple[Tensor, Tensor, Tensor]:
    try:
        split = load("mnist")
    except RequestError:
        split = load("digits")
    return split.train.x, split.train.y, split.test.x


def trained(name: str, device: torch.device, *, quick: bool) -> Subject:
    x, y, test = images()
    if name == "wrn-16-4":
        x, test = (nn.functional.pad(each, (2, 2, 2, 2)).expand(-1, 3, -1, -1) for each in (x, test))
    torch.manual_seed(0)
    model = build(name, shape=tuple(x.shape[1:]), classes=10).to(device)
    kept = CACHE / f"{name}{'-quick' if quick else ''}.safetensors"
    if kept.is_file():
        model.load_state_dict(load_file(kept, device=str(device)))
    else:
        steps, batch = (3, 16) if quick else (250, 64) if name == "wrn-16-4" else (1200, 64)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        for step in range(steps):
            rows = torch.randint(len(x), (batch,))
            noisy = x[rows].to(device) + SIGMA * torch.randn(batch, *x.shape[1:], device=device)
            optimizer.zero_grad(set_to_none=True)
            nn.functional.cross_entropy(model(noisy), y[rows].to(device)).backward()
            optimizer.step()
            if step % 50 == 0:
                print(f"  training {name}, step {step} of {steps}", flush=True)
        CACHE.mkdir(parents=True, exist_ok=True)
        save_file({key: value.cpu().contiguous() for key, value in model.state_dict().items()}, kept)
    spread = torch.linspace(0, len(test) - 1, min(2048, len(test))).long()
    return Subject(name=name, model=model.eval(), x=test[spread].contiguous(), classes=10)


@torch.no_grad()
def published(subject: Subject, row: int, device: torch.device, draws: int) -> tuple[int, float]:
    """CERTIFY of Cohen et al., written down plainly."""
    image = subject.x[row].to(device)

    def counts(total: int) -> NDArray[np.int64]:
        votes = np.zeros(subject.classes, dtype=np.int64)
        while total > 0:
            now = min(total, 1000)
            batch = image.repeat((now, *[1] * image.ndim))
            scores = subject.model(batch + SIGMA * torch.randn_like(batch))
            votes += np.bincount(scores.argmax(1).cpu().numpy(), minlength=subject.classes)
            total -= now
        return votes

    chosen = int(counts(SELECTION).argmax())
    won = int(counts(draws)[chosen])
    lower = beta.ppf(ALPHA, won, draws - won + 1) if won else 0.0
    return (chosen, SIGMA * float(norm.ppf(lower))) if lower > 0.5 else (-1, 0.0)


def toolbox(subject: Subject, device: torch.device) -> Callable[[int, int], object]:
    from art.estimators.certification.randomized_smoothing import PyTorchRandomizedSmoothing

    classifier = PyTorchRandomizedSmoothing(
        model=subject.model,
        loss=nn.CrossEntropyLoss(),
        input_shape=tuple(subject.x.shape[1:]),
        nb_classes=subject.classes,
        device_type="gpu" if device.type == "cuda" else "cpu",
        sample_size=SELECTION,
        scale=SIGMA,
        alpha=ALPHA,
    )
    return lambda row, draws: classifier.certify(subject.x[row : row + 1].numpy(), n=draws, batch_size=1000)


class Clock:
    """Seconds per input, taken in turns."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.seconds: dict[str, list[float]] = {}

    def time(self, name: str, work: Callable[[], object], inputs: float) -> None:
        self._wait()
        start = time.perf_counter()
        work()
        self._wait()
        self.seconds.setdefault(name, []).append((time.perf_counter() - start) / inputs)

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize()

    def median(self, name: str) -> float:
        return statistics.median(self.seconds[name])


def _unsafe(radii: NDArray[np.float64], truth: NDArray[np.float64]) -> int:
    """Certified inputs whose probability for the certified class is below what the radius needs."""
    return int(((radii > 0) & (truth < norm.cdf(radii / SIGMA))).sum())


def _probability_of_label(subject: Subject, labels: NDArray[np.int64], rows: slice) -> NDArray[np.float64]:
    assert subject.probabilities is not None
    first = subject.probabilities[rows]
    return np.where(labels == 0, first, 1 - first)


def sizes(subject: Subject, device: torch.device, *, quick: bool) -> tuple[int, int, dict[str, int]]:
    """Turns, draws that peers are timed on, and inputs of ours per turn for each question."""
    if quick:
        return 1, 500, dict.fromkeys(QUESTIONS, 2)
    if device.type == "cuda":
        turns, few = (2, 16) if subject.name == "wrn-16-4" else (3, 128)
        return turns, DRAWS, {"radius>=0.25": 512, "within-10%": few, "within-5%": few}
    if subject.name == "wrn-16-4":
        return 1, 5000, {"radius>=0.25": 12, "within-10%": 1, "within-5%": 1}
    if subject.name == "half-space":
        return 3, DRAWS, {"radius>=0.25": 1000, "within-10%": 32, "within-5%": 32}
    return 2, DRAWS, {"radius>=0.25": 128, "within-10%": 3, "within-5%": 3}


def compare(
    subject: Subject, device: torch.device, questions: list[str], *, quick: bool
) -> list[dict[str, object]]:
    target = Smoothed(subject.model, sigma=SIGMA, classes=subject.classes)
    turns, timed_draws, inputs = sizes(subject, device, quick=quick)
    art = None
    try:
        art = toolbox(subject, device)
    except ImportError as missing:
        print(f"art is not here ({missing}): no row", flush=True)
    clock, drawn, checks = Clock(device), {name: [] for name in QUESTIONS}, dict.fromkeys(QUESTIONS, (0, 0))
    target.certify(subject.x[:4], samples=20)  # what is loaded once is nobody's time
    known = None  # every class's probability for the first inputs, by many draws
    if device.type == "cuda" and subject.name == "paper-mnist-cnn" and not quick:
        generator = torch.Generator(device=device).manual_seed(99)
        known = target.count_votes(subject.x[:2], TRUTH_DRAWS, generator) / TRUTH_DRAWS
    factor = (DRAWS + SELECTION) / (timed_draws + SELECTION)
    for turn in range(turns):
        row = 37 * turn % len(subject.x)
        clock.time("published", lambda row=row: published(subject, row, device, timed_draws), 1 / factor)
        if art is not None:
            clock.time("art", lambda row=row: art(row, timed_draws), 1 / factor)
        for question, rule in rules(500 if quick else DRAWS).items():
            if question not in questions:
                continue
            begin = turn * inputs[question]
            rows = slice(begin, begin + inputs[question])
            found = []
            clock.time(
                question,
                lambda rows=rows, rule=rule, found=found: found.append(
                    target.certify(subject.x[rows], rule=rule, alpha=ALPHA, seed=rows.start)
                ),
                inputs[question],
            )
            drawn[question].append(float(found[0].draws.mean()) + rule.selection)
            if subject.probabilities is not None:
                truth = _probability_of_label(subject, found[0].labels, rows)
                bad, checked = checks[question]
                certified = int((found[0].radii > 0).sum())
                checks[question] = bad + _unsafe(found[0].radii, truth), checked + certified
            elif known is not None and turn == 0:
                labels, radii = found[0].labels[: len(known)], found[0].radii[: len(known)]
                share = np.where(labels >= 0, known[np.arange(len(known)), labels], 0.0)
                margin = 4 * np.sqrt(share * (1 - share) / TRUTH_DRAWS)
                checks[question] = _unsafe(radii, share + margin), int((radii > 0).sum())
    rows_out: list[dict[str, object]] = []
    base = clock.median("published")
    for question in questions:
        for contender in ("published", "art", "hauberk") if art is not None else ("published", "hauberk"):
            spent = clock.median(question if contender == "hauberk" else contender)
            ours = contender == "hauberk"
            bad, checked = checks[question]
            rows_out.append(
                {
                    "device": device.type,
                    "network": subject.name,
                    "question": question,
                    "contender": contender,
                    "inputs_per_second": 1 / spent,
                    "speedup": base / spent,
                    "draws": statistics.fmean(drawn[question]) if ours else DRAWS + SELECTION,
                    "unsafe": bad if ours and checked else None,
                    "checked": checked if ours else 0,
                    "inputs": inputs[question] * turns if ours else turns,
                    "extrapolated": not ours and timed_draws < DRAWS,
                }
            )
    return rows_out


def show(row: dict[str, object]) -> None:
    unsafe = "" if row["unsafe"] is None else f"  unsafe {row['unsafe']} of {row['checked']}"
    marked = "  (extrapolated)" if row["extrapolated"] else ""
    print(
        f"{row['network']:16} {row['question']:13} {row['contender']:10} "
        f"{row['inputs_per_second']:10.3f} inputs/s  {row['speedup']:8.2f} x  "
        f"{row['draws']:9.0f} draws{unsafe}{marked}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"))
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--questions", default=",".join(QUESTIONS))
    parser.add_argument("--quick", action="store_true", help="a few draws: does it run at all?")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder for the results")
    options = parser.parse_args()
    device = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    print(f"torch {torch.__version__}, {device.type}, sigma {SIGMA}, alpha {ALPHA}", flush=True)
    questions = options.questions.split(",")
    if unknown := [each for each in questions if each not in QUESTIONS]:
        parser.error(f"{unknown[0]!r} is none of {', '.join(QUESTIONS)}")
    file = options.output / f"certify-{device.type}.json"
    for name in options.networks.split(","):
        if name not in NETWORKS:
            parser.error(f"{name!r} is none of {', '.join(NETWORKS)}")
        subject = half_space() if name == "half-space" else trained(name, device, quick=options.quick)
        subject.model.to(device)
        rows = compare(subject, device, questions, quick=options.quick)
        for row in rows:
            show(row)
        if not options.quick:
            kept = [] if not file.is_file() else _other_rows(file, name, questions)
            write_json(file, kept + rows)


def _other_rows(file: Path, network: str, questions: list[str]) -> list[dict[str, object]]:
    import json

    rows: list[dict[str, object]] = json.loads(file.read_text())
    return [row for row in rows if row["network"] != network or row["question"] not in questions]


if __name__ == "__main__":
    main()
