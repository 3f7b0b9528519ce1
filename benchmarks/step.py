"""What does one private step cost?  Plain SGD, Hauberk's general path and Opacus, interleaved in one run.

    python benchmarks/step.py [--batch 512] [--repeat 7]

Writes ``benchmarks/results/step-cpu.json`` (or ``-cuda.json``): rows ``{device, network, contender, seconds,
ratio_to_plain}``, medians over the repetitions.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from hauberk import models
from hauberk.files import write_json
from hauberk.gradients import PerRecordGradients

NETWORKS = ("small-tanh-cnn", "paper-mnist-cnn")
RESULTS = Path(__file__).parent / "results"


def plain(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Callable[[], None]:
    def step() -> None:
        model.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()

    return step


def hauberk_general(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Callable[[], None]:
    engine, views = PerRecordGradients(model), x.unsqueeze(1)
    return lambda: engine.clipped_sum(views, y, bound=0.1) and None


def opacus_hooks(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Callable[[], None]:
    from opacus import GradSampleModule

    wrapped = GradSampleModule(model)
    weights = [weight for weight in wrapped.parameters() if weight.requires_grad]

    def step() -> None:
        wrapped.zero_grad()
        nn.functional.cross_entropy(wrapped(x), y, reduction="sum").backward()
        squares = torch.stack([weight.grad_sample.flatten(1).square().sum(1) for weight in weights]).sum(0)
        factors = (0.1 / squares.sqrt()).clamp_max(1.0)
        for weight in weights:
            torch.einsum("i,i...->...", factors, weight.grad_sample)

    return step


CONTENDERS = {"plain": plain, "hauberk": hauberk_general, "opacus-hooks": opacus_hooks}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    rows = []
    for network in NETWORKS:
        x = torch.rand(options.batch, 1, 28, 28, device=options.device)
        y = torch.randint(0, 10, (options.batch,), device=options.device)
        steps = {
            name: build(models.build(network, shape=(1, 28, 28), classes=10).to(options.device), x, y)
            for name, build in CONTENDERS.items()
        }
        seconds: dict[str, list[float]] = {name: [] for name in steps}
        for repetition in range(options.repeat + 1):
            for name, step in steps.items():
                start = time.perf_counter()
                step()
                if options.device != "cpu":
                    torch.cuda.synchronize()
                if repetition:  # the first one warms up
                    seconds[name].append(time.perf_counter() - start)
        medians = {name: statistics.median(values) for name, values in seconds.items()}
        for name, median in medians.items():
            ratio = median / medians["plain"]
            print(f"{network:16} {name:14} {median:8.3f} s  {ratio:5.2f} x plain", flush=True)
            rows.append(
                {
                    "device": options.device,
                    "network": network,
                    "contender": name,
                    "seconds": median,
                    "ratio_to_plain": ratio,
                }
            )
    RESULTS.mkdir(exist_ok=True)
    write_json(RESULTS / f"step-{options.device}.json", rows)


if __name__ == "__main__":
    main()
