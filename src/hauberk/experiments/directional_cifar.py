"""002 Fig. 4c: accuracy against epsilon on CIFAR-10, ResNet-18, gradients pruned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hauberk.experiments.generators import GENERATORS, draw_line, settings_for, train
from hauberk.experiments.result import Result, Size
from hauberk.progress import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SETTINGS: dict[Size, dict[str, Any]] = {
    "tiny": {"data": "digits", "model": "logistic", "epsilons": (5.0,), "batch": 32, "epochs": 1.0},
    "quick": {"data": "cifar10", "model": "small-tanh-cnn", "epsilons": (5.0,), "batch": 256, "epochs": 5.0},
    "full": {
        "data": "cifar10",
        "model": "resnet-18",
        "epsilons": (1.0, 5.0, 10.0, 15.0),
        "batch": 256,
        "epochs": 100.0,
    },
}


def run(size: Size, seed: int, progress: Progress) -> Result:
    """Every generator with 90 % of the gradient pruned, clip 2; sound variants prove their epsilon."""
    chosen = _SETTINGS[size]
    cases = [(generator, epsilon) for epsilon in chosen["epsilons"] for generator in GENERATORS]
    rows = []
    for done, (generator, epsilon) in enumerate(cases, start=1):
        settings = settings_for(
            generator,
            data=chosen["data"],
            size=size,
            seed=seed,
            epsilon=epsilon,
            model=chosen["model"],
            batch=chosen["batch"],
            epochs=chosen["epochs"],
            clip=2.0,
            lr=0.1,
            pruned=0.9,
        )
        trained = train(generator, settings)
        rows.append((generator.name, generator.variant, epsilon, trained.proven, trained.accuracies[-1]))
        progress("training", done, len(cases))
    return Result(
        columns=("generator", "variant", "claimed", "proven", "accuracy"),
        rows=tuple(rows),
        facts={
            "data": chosen["data"],
            "model": chosen["model"],
            "batch": chosen["batch"],
            "clip": 2.0,
            "pruned": 0.9,
            "epochs": chosen["epochs"],
            "delta": 1e-5,
        },
        notes=(
            "BatchNorm is GroupNorm here: batch statistics mix records.",
            "SVHN, the paper's third data set, is not at hand and left out.",
            "Published pruning releases un-noised places and errors: nothing is proven of those runs.",
            "accuracy is that of the averaged weights on test data after the last epoch.",
        ),
        draw=lambda figure: _draw(figure, rows),
        upper_bounds=("proven",),
    )


def _draw(figure: Figure, rows: list[tuple[Any, ...]]) -> None:
    axes = figure.add_subplot()
    for generator in GENERATORS:
        points = [row for row in rows if row[:2] == (generator.name, generator.variant)]
        draw_line(axes, generator, [row[2] for row in points], [row[4] for row in points])
    axes.set_xticks(sorted({row[2] for row in rows}))
    axes.set_xlabel("claimed epsilon")
    axes.set_title("test accuracy")
    axes.legend(fontsize="x-small")
