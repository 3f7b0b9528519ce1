"""004 Tables 5.2, 5.3 and 5.5: imitation networks on ten classes of Tiny ImageNet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from hauberk.attacks.imitation import (
    PAPER,
    AdvGANSettings,
    ATNSettings,
    Imitation,
    Origin,
    train_advgan,
    train_atn,
)
from hauberk.attacks.imitation.evaluation import Craft, imitation_crafter
from hauberk.errors import RequestError
from hauberk.experiments.ain_measures import (
    COLUMNS,
    COUNTING,
    MEASURED,
    SETTINGS,
    TIMES,
    UNTARGETED,
    Measured,
    Setting,
    Target,
    accuracies,
    at_radii,
    classifier_of,
    cw_crafter,
    draw_curves,
    ifgsm_crafter,
    inputs_of,
    measure,
    row_of,
    trained_ain,
)
from hauberk.experiments.parts import remembered
from hauberk.experiments.result import Result, Size
from hauberk.progress import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SMALL_RADIUS = 0.01
"""Of I-FGSM in the thesis; AIN's are ten times as large and more."""
_FULL = Setting(
    target=Target(data="tiny_imagenet", network="resnet-18", epochs=40, batch=64),
    ain=replace(
        PAPER.within(0.1),
        architecture=replace(PAPER.architecture, noise=0.01),
        schedule=replace(PAPER.schedule, final=0.1, rate=0.15, upper=8e-3, lower=8e-4),
        batch=64,
        lr=5e-4,
        epochs=60,
    ),
    aim=0,
    radii=(0.1, 0.28),
    steps=20,
    rivals=40,
)
SIZES: dict[Size, Setting] = {
    "tiny": SETTINGS["tiny"],
    "quick": replace(SETTINGS["quick"], radii=(0.2, 0.28)),
    "full": _FULL,
}
AIMS: dict[Size, tuple[int, ...]] = {"tiny": (1,), "quick": (1,), "full": (0, 3, 6, 9)}
"""One class takes the place of "espresso", three more those of Table 5.3."""
THESIS: dict[tuple[str, str, float], tuple[float, float]] = {
    ("targeted", "ATN", 0.1): (0.3282, 20.0),
    ("targeted", "AIN", 0.1): (0.9766, 20.0),
    ("targeted", "AIN", 0.28): (1.0, 20.0),
    ("targeted", "AdvGAN", 0.28): (0.9761, 6.0),
    ("targeted", "I-FGSM", 0.01): (0.976, 80.0),
    ("targeted", "C&W", 0.01): (1.0, 558_800.0),
    (UNTARGETED, "AIN", 0.1): (0.9992, 20.0),
    (UNTARGETED, "AdvGAN", 0.1): (0.996, 6.0),
    (UNTARGETED, "I-FGSM", 0.01): (1.0, 64.0),
    (UNTARGETED, "C&W", 0.01): (1.0, 486_200.0),
}
"""Of Tables 5.2 and 5.5; the thesis' C&W lies at 0.009 and 0.004."""


def _parts(size: Size) -> tuple[str, ...]:
    return (UNTARGETED, *(f"class {aim}" for aim in AIMS[size]))


def run(size: Size, seed: int, progress: Progress) -> Result:
    """Untargeted, and aimed at each class, one after the other."""
    return _result(size, seed, [_part(part, size, seed, progress) for part in _parts(size)])


def run_for(part: str, size: Size, seed: int, progress: Progress) -> Result:
    """``untargeted`` or ``class N`` alone: `run` in pieces."""
    if part not in _parts(size):
        raise RequestError(f"ain-tiny of size {size} has the parts {', '.join(_parts(size))}, not {part!r}")
    return _result(size, seed, [_part(part, size, seed, progress)])


def _part(part: str, size: Size, seed: int, progress: Progress) -> list[dict[str, Any]]:
    setting = SIZES[size]
    rivals = part in (UNTARGETED, f"class {AIMS[size][0]}")  # Table 5.3 has AIN alone
    found: list[dict[str, Any]] = remembered(
        setting.about("ain-tiny", seed, part=part, rivals_too=rivals),
        lambda: _measured(setting, part, rivals, seed, progress),
    )
    return found


def _measured(
    setting: Setting, part: str, rivals: bool, seed: int, progress: Progress
) -> list[dict[str, Any]]:
    aim = None if part == UNTARGETED else int(part.removeprefix("class "))
    crafters = at_radii(trained_ain(setting, aim, seed, progress), setting.radii, "AIN", seed)
    if rivals:
        crafters |= _rivals(setting, aim, seed, progress)
        for radius in (SMALL_RADIUS, *setting.radii):
            crafters["I-FGSM", radius] = ifgsm_crafter(setting, seed, radius=radius, aim=aim)
            crafters["C&W", radius] = cw_crafter(setting, seed, radius=radius, aim=aim)
    return [asdict(each) for each in measure(setting, crafters, part=part, aim=aim, seed=seed)]


def _rivals(
    setting: Setting, aim: int | None, seed: int, progress: Progress
) -> dict[tuple[str, float], Craft]:
    inputs, model = inputs_of(setting.target), classifier_of(setting.target, seed)
    shared: dict[str, Any] = {"classes": inputs.classes, "target": aim, "seed": seed, "progress": progress}
    smallest, largest = min(setting.radii), max(setting.radii)
    made: dict[tuple[str, float], Craft] = {}
    if aim is not None:
        atn = ATNSettings(
            widths=setting.ain.architecture.widths,
            epochs=setting.rivals,
            batch=setting.ain.batch,
            bound=smallest,
        )
        network = train_atn(model, *inputs.train, settings=atn, **shared)
        own = Imitation(kind="atn", network=network, target=aim, bound=smallest, origin=Origin())
        made["ATN", smallest] = imitation_crafter(own, radius=smallest)
    bound = smallest if aim is None else largest
    generator = train_advgan(
        model, *inputs.train, settings=AdvGANSettings(epochs=setting.rivals, bound=bound, batch=64), **shared
    )
    gan = Imitation(kind="advgan", network=generator, target=aim, bound=bound, origin=Origin())
    made["AdvGAN", bound] = imitation_crafter(gan, radius=bound)
    return made


def _thesis(each: Measured) -> tuple[float, float] | None:
    part = each.part if each.part == UNTARGETED else "targeted"
    return THESIS.get((part, each.attack, round(each.radius, 4)))


def _result(size: Size, seed: int, parts: Sequence[list[dict[str, Any]]]) -> Result:
    setting = SIZES[size]
    found = [Measured(**each) for part in parts for each in part]
    return Result(
        columns=COLUMNS,
        rows=tuple(row_of(each, _thesis(each)) for each in found),
        facts={
            "data": setting.target.data,
            "network": setting.target.network,
            "accuracy": accuracies(setting, seed),
            "thesis_other_targets": {"t71": 0.9802, "t99": 0.9697, "t183": 0.9774},
        },
        notes=(
            COUNTING,
            TIMES,
            "The thesis attacks a ResNet-18 for 200 classes that was trained on ImageNet before and is right "
            "on 80.5 % of its inputs; here ten classes with 2,000 pictures are learnt from nothing.",
            "I-FGSM and C&W stand at the thesis' radius of about 0.01 and at AIN's radii as well.",
            *(() if size == "full" else ("At this size the pictures are digits.",)),
        ),
        draw=lambda figure: _draw(figure, found),
        lower_bounds=("low",),
        upper_bounds=("high",),
        measured=MEASURED,
    )


def _draw(figure: Figure, found: Sequence[Measured]) -> None:
    parts = list(dict.fromkeys(each.part for each in found))
    figure.set_size_inches(3.6 * max(2, len(parts)), 4.0)
    for axes, part in zip(figure.subplots(1, len(parts), squeeze=False)[0], parts, strict=True):
        draw_curves(axes, [each for each in found if each.part == part], part)
        axes.legend(fontsize="xx-small")
