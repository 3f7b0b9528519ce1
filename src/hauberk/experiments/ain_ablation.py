"""004 Figs. 5.6, 5.7, 5.13 and 5.14: AIN without parts of its loss, and without parts of its network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from hauberk.attacks.imitation import AINSettings
from hauberk.errors import RequestError
from hauberk.experiments.ain_measures import (
    COLUMNS,
    COUNTING,
    MEASURED,
    SHORTER,
    TARGETED,
    TIMES,
    UNTARGETED,
    Measured,
    Setting,
    accuracies,
    at_radii,
    draw_curves,
    measure,
    row_of,
    trained_ain,
)
from hauberk.experiments.parts import remembered
from hauberk.experiments.result import Result, Size
from hauberk.progress import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOSSES: dict[str, dict[str, float]] = {
    "AIN": {},
    "without distance": {"distance": 0.0},
    "only distance": {"imitation": 0.0, "misclassification": 0.0},
    "without imitation": {"imitation": 0.0},
    "only imitation": {"distance": 0.0, "misclassification": 0.0},
    "without misclassification": {"misclassification": 0.0},
    "only misclassification": {"distance": 0.0, "imitation": 0.0},
}
NETWORKS: dict[str, dict[str, Any]] = {
    "without self-attention": {"attention": False},
    "without residuals": {"residual": False},
    "without label": {"conditioned": False},
}
VARIANTS: dict[Size, tuple[str, ...]] = {
    "tiny": ("AIN", "without label"),
    "quick": ("AIN", "without imitation", "only imitation", "without label"),
    "full": (*LOSSES, *NETWORKS),
}
PARTS: dict[Size, tuple[str, ...]] = {
    "tiny": (UNTARGETED,),
    "quick": (UNTARGETED,),
    "full": (TARGETED, UNTARGETED),
}


def changed(settings: AINSettings, variant: str) -> AINSettings:
    """AIN without what the variant leaves out; nothing else changes."""
    weights = replace(settings.weights, **LOSSES.get(variant, {}))
    architecture = replace(settings.architecture, **NETWORKS.get(variant, {}))
    return replace(settings, weights=weights, architecture=architecture)


def run(size: Size, seed: int, progress: Progress) -> Result:
    """Targeted and untargeted, one after the other."""
    return _result(size, seed, [_part(part, size, seed, progress) for part in PARTS[size]])


def run_for(part: str, size: Size, seed: int, progress: Progress) -> Result:
    """``targeted`` or ``untargeted`` alone: `run` in pieces."""
    if part not in PARTS[size]:
        raise RequestError(f"ain-ablation of size {size} has the parts {PARTS[size]}, not {part!r}")
    return _result(size, seed, [_part(part, size, seed, progress)])


def _part(part: str, size: Size, seed: int, progress: Progress) -> list[dict[str, Any]]:
    setting = SHORTER[size]
    found: list[dict[str, Any]] = []
    for done, variant in enumerate(VARIANTS[size]):
        progress(f"{part} variants", done, len(VARIANTS[size]))
        found += remembered(
            setting.about("ain-ablation", seed, part=part, variant=variant),
            lambda variant=variant: _variant(setting, part, variant, seed, progress),  # type: ignore[misc]
        )
    progress(f"{part} variants", len(VARIANTS[size]), len(VARIANTS[size]))
    return found


def _variant(
    setting: Setting, part: str, variant: str, seed: int, progress: Progress
) -> list[dict[str, Any]]:
    aim = setting.aim if part == TARGETED else None
    trained = trained_ain(setting, aim, seed, progress, changed(setting.ain, variant))
    crafters = at_radii(trained, setting.radii, variant, seed)
    return [asdict(each) for each in measure(setting, crafters, part=part, aim=aim, seed=seed)]


def _result(size: Size, seed: int, parts: Sequence[list[dict[str, Any]]]) -> Result:
    setting = SHORTER[size]
    found = [Measured(**each) for part in parts for each in part]
    return Result(
        columns=COLUMNS,
        rows=tuple(row_of(each) for each in found),
        facts={
            "data": setting.target.data,
            "network": setting.target.network,
            "accuracy": accuracies(setting, seed),
            "weights": asdict(setting.ain.weights),
        },
        notes=(
            COUNTING,
            TIMES,
            "The thesis shows figures without numbers: AIN is the best of its variants at every radius, "
            "and with only the distance loss below 0.1 (targeted) and 0.08 (untargeted).",
            "A variant whose bound did not fall as far has no row at the smaller radii.",
        ),
        draw=lambda figure: _draw(figure, found),
        lower_bounds=("low",),
        upper_bounds=("high",),
        measured=MEASURED,
    )


def _draw(figure: Figure, found: Sequence[Measured]) -> None:
    parts = list(dict.fromkeys(each.part for each in found))
    figure.set_size_inches(10.0, 3.8 * len(parts))
    panels = figure.subplots(len(parts), 2, squeeze=False, sharey=True)
    for part, row in zip(parts, panels, strict=True):
        for axes, names, title in zip(row, (LOSSES, ("AIN", *NETWORKS)), ("loss", "network"), strict=True):
            own = [each for each in found if each.part == part and each.attack in names]
            draw_curves(axes, own, f"{part}: parts of the {title}")
            axes.legend(fontsize="xx-small")
