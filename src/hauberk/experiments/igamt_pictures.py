"""004 Figs. 4.5 to 4.7: real and synthetic patients in the plane of two main components, and mean courses.

Every point of the plane is a patient, real ones among them: this experiment shows public patients only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hauberk.experiments.igamt_runs import (
    NOT_PUBLIC,
    SCENES,
    SEEDED,
    SOUND,
    WITHOUT,
    Contender,
    Scene,
    Sets,
    about,
    contenders,
    fitted,
)
from hauberk.experiments.parts import remembered
from hauberk.experiments.pictures import OTHER, PROVEN
from hauberk.experiments.result import Cell, Result, Size
from hauberk.progress import Progress
from hauberk.synthesis.evaluation_clusters import plane
from hauberk.synthesis.evaluation_courses import trajectories
from hauberk.synthesis.evaluation_features import draw as drawn

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = 200  # points of each set
IN_COURSES = 100  # patients, as in Fig. 4.7


@dataclass(frozen=True, kw_only=True)
class Setting:
    rows: tuple[Contender, ...]


SETTINGS: dict[Size, Setting] = {
    "tiny": Setting(
        rows=(Contender(synthesizer="igamt", form=SOUND, ablation="only_t_emb", protect="joint"),)
    ),
    "quick": Setting(rows=tuple(each for each in contenders(WITHOUT) if each.model in ("vae", "igamt"))),
    "full": Setting(rows=contenders(WITHOUT, SOUND)),
}


def run(size: Size, seed: int, progress: Progress) -> Result:
    """All models, one after the other."""
    scene, rows = SCENES[size], SETTINGS[size].rows
    sets = Sets(scene)
    found = []
    for done, contender in enumerate(rows):
        progress("models", done, len(rows))
        found.append(
            remembered(
                about("igamt-pictures", scene, contender, seed=seed),
                lambda contender=contender: _one(scene, sets, contender, seed),  # type: ignore[misc]
            )
        )
    progress("models", len(rows), len(rows))
    return _result(scene, found)


def _one(scene: Scene, sets: Sets, contender: Contender, seed: int) -> dict[str, Any]:
    _, made = fitted(scene, sets, contender, seed=seed)
    real = sets[scene.test]
    most = max(len(real), len(made))
    both = [drawn(each, most, seed=seed) for each in (real, made)]
    points = plane(*both, seed=seed)
    courses = trajectories(real.first(IN_COURSES), made.first(IN_COURSES))
    return {
        "model": contender.label,
        "form": contender.form,
        "explained": list(points.explained),
        "real": [list(each) for each in points.real[:SHOWN]],
        "synthetic": [list(each) for each in points.synthetic[:SHOWN]],
        "courses": {
            each.name: [list(each.times), list(each.real), list(each.synthetic)]
            for each in courses
            if each.name in scene.features
        },
    }


def _result(scene: Scene, found: list[dict[str, Any]]) -> Result:
    rows: list[tuple[Cell, ...]] = []
    for each in found:
        for side in ("real", "synthetic"):
            rows += [(each["model"], each["form"], "plane", side, x, y) for x, y in each[side]]
        for name, (times, real, synthetic) in each["courses"].items():
            for side, values in (("real", real), ("synthetic", synthetic)):
                rows += [
                    (each["model"], each["form"], name, side, at, value)
                    for at, value in zip(times, values, strict=True)
                ]
    return Result(
        columns=("model", "form", "picture", "side", "x", "y"),
        rows=tuple(rows),
        facts={
            "data": scene.data,
            "epsilon": scene.epsilon,
            "delta": scene.delta,
            "time_unit": Sets(scene)[scene.test].schema.time.unit,
            "patients_in_courses": IN_COURSES,
        },
        notes=(
            "The plane is that of the real patients' two main components; a course is a mean over patients.",
            "Sound models stand at the epsilon named among the facts.",
            NOT_PUBLIC,
            SEEDED,
        ),
        draw=lambda figure: _draw(figure, found, scene.features),
    )


def _draw(figure: Figure, found: list[dict[str, Any]], features: tuple[str, ...]) -> None:
    figure.set_size_inches(7.2, max(2.6, 1.5 * len(found)))
    axes = figure.subplots(len(found), 1 + len(features), squeeze=False)
    for line, each in enumerate(found):
        first = axes[line][0]
        for side, colour in (("real", OTHER), ("synthetic", PROVEN)):
            first.scatter(*zip(*each[side], strict=True), s=2, color=colour, label=side)
        first.set_title(f"{each['model']}, {each['form']}", fontsize=7)
        for here, name in zip(axes[line][1:], features, strict=True):
            times, real, synthetic = each["courses"][name]
            for values, colour in ((real, OTHER), (synthetic, PROVEN)):
                here.plot(times, [float("nan") if value is None else value for value in values], color=colour)
            here.set_title(name, fontsize=7)
        for here in axes[line]:
            here.tick_params(labelsize=6)
    axes[0][0].legend(fontsize=6)
