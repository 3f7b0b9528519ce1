"""002 Table 2: what each noise generator adds to the time of a lot."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

import torch

from hauberk.experiments.generators import GENERATORS, prepare, settings_for
from hauberk.experiments.result import Result, Size
from hauberk.progress import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SETTINGS: dict[Size, dict[str, Any]] = {
    "tiny": {"data": "digits", "model": "logistic", "batch": 32, "lots": 2},
    "quick": {"data": "digits", "model": "lenet", "batch": 512, "lots": 5},
    "full": {"data": "mnist", "model": "lenet", "batch": 512, "lots": 20},
}
PUBLISHED = {"gaussian": 1.53, "directional": 2.19, "w = 1": 1.70, "adaclip": 1.95}
"""Seconds per batch that 002 printed (MNIST, RTX 3090); without noise 1.50."""


def run(size: Size, seed: int, progress: Progress) -> Result:
    """Seconds per lot, generators taking turns; the first turn warms up and does not count."""
    chosen = _SETTINGS[size]
    steps = {}
    for generator in GENERATORS:
        settings = settings_for(
            generator,
            data=chosen["data"],
            model=chosen["model"],
            size=size,
            seed=seed,
            epsilon=1.0,
            batch=chosen["batch"],
        )
        method, split = prepare(generator, settings)
        steps[generator.label] = method.trainer(split.train).advance
    seconds: dict[str, list[float]] = {label: [] for label in steps}
    for turn in range(chosen["lots"] + 1):
        for label, step in steps.items():
            start = time.perf_counter()
            step()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            if turn:
                seconds[label].append(time.perf_counter() - start)
        progress("lots", turn + 1, chosen["lots"] + 1)
    means = {label: statistics.mean(values) for label, values in seconds.items()}
    basis = means[next(each.label for each in GENERATORS if each.name == "gaussian")]
    rows = tuple(
        (each.name, each.variant, means[each.label], means[each.label] / basis, PUBLISHED[each.name] / 1.53)
        for each in GENERATORS
    )
    return Result(
        columns=("generator", "variant", "seconds", "ratio_to_gaussian", "ratio_published"),
        rows=rows,
        facts={
            "data": chosen["data"],
            "model": chosen["model"],
            "batch": chosen["batch"],
            "lots": chosen["lots"],
        },
        notes=(
            "seconds are means over lots, because the published directional noise passes over all records "
            "every few lots.",
            "ratio_published divides the paper's own seconds by those of its Gaussian generator.",
        ),
        draw=lambda figure: _draw(figure, rows),
        measured=("seconds", "ratio_to_gaussian"),
    )


def _draw(figure: Figure, rows: tuple[tuple[Any, ...], ...]) -> None:
    axes = figure.add_subplot()
    labels = [each.label for each in GENERATORS]
    axes.barh(labels, [row[3] for row in rows], color=[each.colour for each in GENERATORS])
    axes.set_title("time per lot over that of the Gaussian generator")
    axes.invert_yaxis()
