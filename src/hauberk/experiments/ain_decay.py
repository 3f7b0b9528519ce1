"""004 Figs. 5.16 and 5.17: what a falling bound is worth, and what adapting its fall is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from hauberk.attacks.imitation import BoundSchedule
from hauberk.attacks.imitation.evaluation import evaluate, imitation_crafter
from hauberk.errors import RequestError
from hauberk.experiments.ain_measures import (
    COLOURS,
    COUNTING,
    SHORTER,
    TARGETED,
    Setting,
    accuracies,
    classifier_of,
    inputs_of,
    trained_ain,
)
from hauberk.experiments.parts import remembered
from hauberk.experiments.result import Result, Size
from hauberk.progress import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FINAL = 0.26
INITIAL, FRAMEWORKS = "initial bounds", "frameworks"
PARTS = (INITIAL, FRAMEWORKS)
FIXED = "fixed"
STARTS: dict[Size, tuple[float, ...]] = {
    "tiny": (0.5,),
    "quick": (0.5, 0.8),
    "full": (0.3, 0.4, 0.5, 0.6, 0.7, 0.8),
}
WAYS: dict[str, dict[str, Any]] = {
    "exponential, adaptive": {"decay": "exponential", "adaptive": True},
    "exponential": {"decay": "exponential", "adaptive": False},
    "step": {"decay": "step", "adaptive": False, "every": 8},
    "time-based": {"decay": "time", "adaptive": False},
}
COLUMNS = ("part", "way", "initial", "epoch", "bound", "kept", "validation_success", "test_success")


def run(size: Size, seed: int, progress: Progress) -> Result:
    """Both figures, one after the other."""
    return _result(size, seed, [_part(part, size, seed, progress) for part in PARTS])


def run_for(part: str, size: Size, seed: int, progress: Progress) -> Result:
    """One of the figures alone: `run` in pieces."""
    if part not in PARTS:
        raise RequestError(f"ain-decay has the parts {' and '.join(PARTS)}, not {part!r}")
    return _result(size, seed, [_part(part, size, seed, progress)])


def _cases(part: str, size: Size) -> list[tuple[str, float, BoundSchedule]]:
    """A schedule for every line of the figure; all have the same number of epochs."""
    epochs, usual = SHORTER[size].ain.epochs, SHORTER[size].ain.schedule
    usual = replace(usual, final=FINAL, initial=max(FINAL, usual.initial))
    if part == INITIAL:
        progressive = [(f"from {start:g}", start, replace(usual, initial=start)) for start in STARTS[size]]
        return [(FIXED, FINAL, replace(usual, initial=FINAL, decay="none")), *progressive]
    cases = []
    for way, changes in list(WAYS.items())[: 2 if size == "tiny" else None]:
        schedule = replace(usual, initial=0.8, **changes)
        cases.append((way, 0.8, schedule if schedule.adaptive else _arriving(schedule, epochs)))
    return cases


def _arriving(schedule: BoundSchedule, epochs: int) -> BoundSchedule:
    """The slowest rate that still reaches the final bound after three fifths of the epochs."""
    rate = 1e-3
    every = min(schedule.every, max(1, epochs // 8))
    while (
        replace(schedule, rate=rate, every=every).at(max(1, 3 * epochs // 5)) > schedule.final and rate < 50
    ):
        rate *= 1.1
    return replace(schedule, rate=rate, every=every)


def _part(part: str, size: Size, seed: int, progress: Progress) -> list[dict[str, Any]]:
    setting, found = SHORTER[size], []
    cases = _cases(part, size)
    for done, (way, start, schedule) in enumerate(cases):
        progress(part, done, len(cases))
        found.append(
            remembered(
                setting.about("ain-decay", seed, part=part, way=way, schedule=asdict(schedule)),
                lambda way=way, start=start, schedule=schedule: _case(  # type: ignore[misc]
                    setting, part, way, start, schedule, seed, progress
                ),
            )
        )
    progress(part, len(cases), len(cases))
    return found


def _case(
    setting: Setting,
    part: str,
    way: str,
    start: float,
    schedule: BoundSchedule,
    seed: int,
    progress: Progress,
) -> dict[str, Any]:
    settings = replace(
        setting.ain, schedule=schedule, recipe=replace(setting.ain.recipe, radius=schedule.final)
    )
    trained = trained_ain(setting, setting.aim, seed, progress, settings)
    radius = max(trained.imitation.bound, schedule.final)
    craft = imitation_crafter(trained.imitation, radius=radius, seed=seed)
    quality = evaluate(
        classifier_of(setting.target, seed), *inputs_of(setting.target).test, craft, target=setting.aim
    )
    return {
        "part": part,
        "way": way,
        "initial": start,
        "bound": trained.imitation.bound,
        "success": quality.success,
        "history": [[each.epoch, each.bound, each.kept, each.success] for each in trained.history],
    }


def _result(size: Size, seed: int, parts: Sequence[list[dict[str, Any]]]) -> Result:
    setting = SHORTER[size]
    cases = [each for part in parts for each in part]
    rows = tuple(
        (
            case["part"],
            case["way"],
            case["initial"],
            epoch,
            bound,
            int(kept),
            success,
            case["success"] if place == len(case["history"]) - 1 else None,
        )
        for case in cases
        for place, (epoch, bound, kept, success) in enumerate(case["history"])
    )
    return Result(
        columns=COLUMNS,
        rows=rows,
        facts={
            "data": setting.target.data,
            "network": setting.target.network,
            "accuracy": accuracies(setting, seed),
            "final_bound": FINAL,
            "goal": f"{TARGETED} at class {setting.aim}",
            "test_success": {f"{case['part']}: {case['way']}": case["success"] for case in cases},
            "bound_reached": {f"{case['part']}: {case['way']}": case["bound"] for case in cases},
        },
        notes=(
            COUNTING,
            "validation_success is measured after every epoch at that epoch's bound; test_success stands in "
            "the last row of a case, at its final bound.",
            "All cases have the same number of epochs; without adaptation the bound arrives after three "
            "fifths of them.",
            "The thesis reports (as a figure) that starting at 0.5 or above gives almost 80 % more success "
            "at 0.26 than training at 0.26 from the start, and that the adaptive exponential decay is best.",
        ),
        draw=lambda figure: _draw(figure, cases),
    )


def _draw(figure: Figure, cases: Sequence[dict[str, Any]]) -> None:
    figure.set_size_inches(10.0, 4.0)
    left, right = figure.subplots(1, 2)
    starts = [case for case in cases if case["part"] == INITIAL]
    progressive = [case for case in starts if case["way"] != FIXED]
    if starts:
        left.plot(
            [case["initial"] for case in progressive],
            [case["success"] for case in progressive],
            color=COLOURS[0],
            marker="o",
            label="falling bound",
        )
        for case in starts:
            if case["way"] == FIXED:
                left.axhline(case["success"], color=COLOURS[1], label=f"fixed at {FINAL:g}")
        left.legend(fontsize="x-small")
    left.set_title(f"success on test inputs at {FINAL:g}")
    left.set_xlabel("initial bound")
    ways = [case for case in cases if case["part"] == FRAMEWORKS]
    for place, case in enumerate(ways):
        bounds = [bound for _, bound, _, _ in case["history"]]
        right.plot(
            bounds, [success for *_, success in case["history"]], color=COLOURS[place], label=case["way"]
        )
    right.invert_xaxis()
    right.set_title("success on validation inputs, epoch by epoch")
    right.set_xlabel("bound")
    if ways:
        right.legend(fontsize="x-small")
