"""What does the demo's privacy cost in time, and does the fast path change its card?

    python benchmarks/demo.py [--repeat N] [--skip-cards]

Times the demo's own training step (embedded digits, its network, batch, views and clip) three ways, taking
turns in one run: ``hauberk`` (fast path), ``hauberk-general`` (the reference path), ``plain`` (SGD over the
same views of the same records, made the same way, without clipping and noise). All of a step counts:
sampling, making the views, gradients, noise, optimizer, weight averaging.

Then trains the demo at ``--size quick`` twice with one noise seed, by either path, and prints both cards'
figures.

Writes ``benchmarks/results/demo-cpu.json`` (or ``-cuda.json``): rows ``{device, network, contender, seconds,
ratio_to_plain}`` with ``seconds`` per step.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from hauberk.files import write_json
from hauberk.gradients.choice import PathChoice
from hauberk.methods.presets import preset
from hauberk.methods.private_smoothing import PrivateSmoothing
from hauberk.methods.settings import TrainSettings, merge_settings
from hauberk.methods.training import build_method, choose_device, load_split
from hauberk.randomness import SystemRandomness
from hauberk.training import PrivateTrainer
from hauberk.training.sampling import PoissonSampler

RESULTS = Path(__file__).parent / "results"


def demo_settings(size: str, **changes: object) -> TrainSettings:
    return merge_settings(preset("digits", size, records=20_000, image=True), changes)


def trainer(method: PrivateSmoothing, path: PathChoice) -> PrivateTrainer:
    data = load_split(demo_settings("full")).train
    model = copy.deepcopy(method.model)
    device = next(model.parameters()).device
    return PrivateTrainer(
        model,
        data.x.to(device),
        data.y.to(device),
        plan=method.plan,
        views=method.views,
        clipping=method.clipping,
        optimisation=method.optimisation,
        randomness=SystemRandomness(),
        path=path,
    )


def plain_step(method: PrivateSmoothing) -> Callable[[], object]:
    """Ordinary SGD with everything of the private step but clipping and noise."""
    data, randomness = load_split(demo_settings("full")).train, SystemRandomness()
    model = copy.deepcopy(method.model)
    device = next(model.parameters()).device
    x, y = data.x.to(device), data.y.to(device)
    sampler = PoissonSampler(method.plan, held=len(x), randomness=randomness)
    optimizer = method.optimisation.build(model)

    def step() -> None:
        chosen = sampler.sample(0).to(device)
        views = method.views(x[chosen], records=chosen, step=0, key=randomness.view_key())
        optimizer.zero_grad(set_to_none=True)
        labels = y[chosen].repeat_interleave(views.shape[1])
        nn.functional.cross_entropy(model(views.flatten(0, 1)), labels).backward()
        optimizer.step()

    return step


def timed(step: Callable[[], object]) -> float:
    start = time.perf_counter()
    step()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def compare_cards(device: str) -> None:
    settings = demo_settings("quick", device=device, noise_seed=1)
    split = load_split(settings)
    paths: tuple[PathChoice, ...] = ("fast", "general")
    for path in paths:
        method = build_method(settings, split, settings.plan(records=split.records))
        method.path = path
        run = method.fit(split.train)
        card = run.audit(split.test, settings=settings.audit())
        weights = nn.utils.parameters_to_vector(run.classifier.model.parameters())
        print(f"{path}: |weights| {float(weights.detach().double().norm()):.6f}, {card.utility}", flush=True)
        print(f"    {card.robustness.observed}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--skip-cards", action="store_true")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    device = choose_device(options.device)
    settings = merge_settings(
        preset("digits", "full", records=20_000, image=True), {"device": options.device}
    )
    split = load_split(settings)
    method = build_method(settings, split, settings.plan(records=split.records))
    contenders: dict[str, Callable[[], object]] = {
        "plain": plain_step(method),
        "hauberk": trainer(method, "fast").advance,
        "hauberk-general": trainer(method, "general").advance,
    }
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(options.repeat + 2):
        for name, step in contenders.items():
            spent = timed(step)
            if turn >= 2:  # the first turns warm up
                seconds[name].append(spent)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    rows = [
        {
            "device": device.type,
            "network": settings.model,
            "contender": name,
            "seconds": median,
            "ratio_to_plain": median / medians["plain"],
        }
        for name, median in medians.items()
    ]
    for row in rows:
        print(
            f"{row['contender']:16} {row['seconds']:8.4f} s {row['ratio_to_plain']:6.2f} x plain", flush=True
        )
    RESULTS.mkdir(exist_ok=True)
    write_json(RESULTS / f"demo-{device.type}.json", rows)
    if not options.skip_cards:
        compare_cards(options.device)


if __name__ == "__main__":
    main()
