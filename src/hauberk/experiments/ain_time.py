"""004 Table 5.8: what making many adversarial examples costs, by AIN and by the attack that it imitates."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from hauberk.attacks import build_attack
from hauberk.attacks.imitation import Recipe, imitated_examples, train_ain
from hauberk.attacks.imitation.evaluation import attack_crafter, evaluate, imitation_crafter
from hauberk.experiments.ain_measures import (
    COLOURS,
    SETTINGS,
    Setting,
    accuracies,
    classifier_of,
    device,
    inputs_of,
)
from hauberk.experiments.parts import remembered
from hauberk.experiments.result import Result, Size
from hauberk.progress import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHARE = 4_000 / 54_000
"""Of C&W among the imitated examples, as in the thesis."""
EXAMPLES = 54_000
THESIS = {"AIN w/ C&W": (447_269.0, 7_166.0, 162.0), "C&W": (6_054_913.0, 0.0, 0.0)}
TIMED: dict[Size, int] = {"tiny": 16, "quick": 200, "full": 2_000}
COLUMNS = (
    "way", "examples", "step_1", "step_2", "step_3", "total",
    "thesis_step_1", "thesis_step_2", "thesis_step_3", "thesis_total",
)  # fmt: skip


def run(size: Size, seed: int, progress: Progress) -> Result:
    """AIN that imitates I-FGSM, AIN that also imitates C&W, and C&W alone, untargeted."""
    setting = SETTINGS[size]
    steps: dict[str, list[float]] = remembered(
        setting.about("ain-time", seed, timed=TIMED[size]),
        lambda: _timed(setting, TIMED[size], seed, progress),
    )
    return _result(setting, size, seed, steps)


def _wait() -> float:
    if device().type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def _timed(setting: Setting, count: int, seed: int, progress: Progress) -> dict[str, list[float]]:
    """Seconds of each step for `EXAMPLES` examples; steps that are timed on fewer are scaled up."""
    inputs, model = inputs_of(setting.target), classifier_of(setting.target, seed)
    x, y = inputs.train
    radius, found = setting.ain.schedule.final, {}
    for name, recipe in (
        ("AIN", setting.ain.recipe),
        ("AIN w/ C&W", _with_cw(setting)),
    ):
        begun = _wait()
        examples = imitated_examples(model, x, y, target=None, recipe=recipe, seed=seed, progress=progress)
        first = _wait() - begun
        begun = _wait()
        trained = train_ain(
            model,
            x,
            y,
            validation=inputs.validation,
            classes=inputs.classes,
            target=None,
            settings=replace(setting.ain, recipe=recipe),
            examples=examples,
            seed=seed,
            progress=progress,
        )
        second = _wait() - begun
        radius = max(radius, trained.imitation.bound)
        craft = imitation_crafter(trained.imitation, radius=radius, seed=seed)
        some = evaluate(model, x[:count], y[:count], craft, target=None)
        found[name] = [first * EXAMPLES / len(x), second, some.seconds * EXAMPLES]
    attack = build_attack("cw", norm="linf", steps=4 * setting.steps, stop_when_broken=False)
    craft = attack_crafter(attack, model, radius=radius, target=None, seed=seed)
    some = evaluate(model, x[:count], y[:count], craft, target=None)
    found["C&W"] = [some.seconds * EXAMPLES, 0.0, 0.0]
    return found


def _with_cw(setting: Setting) -> Recipe:
    return replace(setting.ain.recipe, attacks=("ifgsm", "cw"), shares=(1 - SHARE, SHARE))


def _result(setting: Setting, size: Size, seed: int, steps: dict[str, list[float]]) -> Result:
    rows: list[tuple[Any, ...]] = []
    for way, seconds in steps.items():
        printed: Sequence[float | None] = THESIS.get(way, (None, None, None))
        total = sum(THESIS[way]) if way in THESIS else None
        rows.append((way, EXAMPLES, *seconds, sum(seconds), *printed, total))
    return Result(
        columns=COLUMNS,
        rows=tuple(rows),
        facts={
            "data": setting.target.data,
            "network": setting.target.network,
            "accuracy": accuracies(setting, seed),
            "device": device().type,
            "examples_timed": TIMED[size],
        },
        notes=(
            "Seconds: step 1 makes the examples to imitate, step 2 trains AIN, step 3 makes examples; scaled "
            "to 54,000 examples, of which only a part was timed for steps 1 and 3.",
            "C&W here is its loss in the projected l_inf loop, thousands of times cheaper than the l2 search "
            "of 20,000 steps that the thesis timed; so AIN saves far less here than there.",
            "The thesis had a GTX 1080 Ti.",
        ),
        draw=lambda figure: _draw(figure, steps),
        measured=("step_1", "step_2", "step_3", "total"),
    )


def _draw(figure: Figure, steps: dict[str, list[float]]) -> None:
    axes = figure.subplots()
    left = [0.0] * len(steps)
    for place, title in enumerate(("examples to imitate", "training", "examples")):
        widths = [seconds[place] for seconds in steps.values()]
        axes.barh(list(steps), widths, left=left, color=COLOURS[place], label=title)
        left = [one + other for one, other in zip(left, widths, strict=True)]
    axes.set_xlabel(f"seconds for {EXAMPLES:,} examples")
    axes.legend(fontsize="x-small")
