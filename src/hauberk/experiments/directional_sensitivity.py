"""002 Figs. 5a, 5d and 6a: how accuracy depends on lot size, pruning ratio and clip value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hauberk.experiments.generators import GENERATORS, Generator, draw_line, settings_for, train
from hauberk.experiments.result import Result, Size
from hauberk.progress import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SETTINGS: dict[Size, dict[str, Any]] = {
    "tiny": {
        "data": "digits",
        "model": "logistic",
        "epochs": 1.0,
        "batch": (32, 64),
        "pruned": (0.5,),
        "clip": (0.1,),
    },
    "quick": {
        "data": "digits",
        "model": "small-tanh-cnn",  # LeNet takes six times as long
        "epochs": 3.0,
        "batch": (128, 1024),
        "pruned": (0.0, 0.9),
        "clip": (0.01, 0.1, 1.0),
    },
    "full": {
        "data": "mnist",
        "model": "lenet",
        "epochs": 60.0,
        "batch": (128, 256, 512, 1024, 2048),
        "pruned": (0.0, 0.5, 0.9, 0.99),
        "clip": (0.01, 0.05, 0.1, 0.5, 1.0),
    },
}
EPSILONS = {"batch": 1.0, "pruned": 1.0, "clip": 0.3}
AXES = {"batch": "lot size", "pruned": "pruned part", "clip": "clip value"}


def run(size: Size, seed: int, progress: Progress) -> Result:
    """Every generator over lot sizes and pruning ratios (epsilon 1) and over clip values (epsilon 0.3)."""
    chosen = _SETTINGS[size]
    defaults = {"batch": min(512, max(chosen["batch"])), "pruned": 0.0, "clip": 0.1}
    cases = [(axis, value, generator) for axis in AXES for value in chosen[axis] for generator in GENERATORS]
    rows = []
    for done, (axis, value, generator) in enumerate(cases, start=1):
        settings = settings_for(
            generator,
            data=chosen["data"],
            model=chosen["model"],
            size=size,
            seed=seed,
            epsilon=EPSILONS[axis],
            epochs=chosen["epochs"],
            **{**defaults, axis: value},
        )
        trained = train(generator, settings)
        accuracy = trained.accuracies[-1]
        rows.append(
            (axis, value, generator.name, generator.variant, EPSILONS[axis], trained.proven, accuracy)
        )
        progress("training", done, len(cases))
    return Result(
        columns=("axis", "value", "generator", "variant", "claimed", "proven", "accuracy"),
        rows=tuple(rows),
        facts={"data": chosen["data"], "model": chosen["model"], "epochs": chosen["epochs"], "delta": 1e-5},
        notes=(
            "The paper prunes on CIFAR-10 only; here all three axes are on one data set.",
            "A published run with pruning proves nothing: its proven epsilon is missing.",
            "accuracy is that of the averaged weights on test data after the last epoch.",
            "The learning rate is the same everywhere, as in the paper; none was tuned per value.",
        ),
        draw=lambda figure: _draw(figure, rows),
        upper_bounds=("proven",),
    )


def _draw(figure: Figure, rows: list[tuple[Any, ...]]) -> None:
    panels = dict(zip(AXES, figure.subplots(1, 3), strict=True))
    for axis, axes in panels.items():
        for generator in GENERATORS:
            points = [(row[1], row[-1]) for row in rows if row[0] == axis and _is(row, generator)]
            draw_line(axes, generator, [value for value, _ in points], [each for _, each in points])
        if axis != "pruned":
            axes.set_xscale("log")
        values = sorted({row[1] for row in rows if row[0] == axis})
        axes.set_xticks(values, [f"{value:g}" for value in values])
        axes.minorticks_off()
        axes.set_xlabel(AXES[axis])
        axes.set_title(f"accuracy, claimed {EPSILONS[axis]:g}")
    handles, labels = next(iter(panels.values())).get_legend_handles_labels()
    figure.legend(handles, labels, fontsize="x-small", loc="outside lower center", ncols=4)


def _is(row: tuple[Any, ...], generator: Generator) -> bool:
    return bool(row[2] == generator.name and row[3] == generator.variant)
