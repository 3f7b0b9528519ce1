"""004 Figs. 4.8 and 4.9: how much is missing, and how irregular the times are, for every model.

1,000 patients of each: the share of a patient's cells that are empty, and the times between neighbouring
steps, as histograms over the same bars as those of the real patients.
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
from hauberk.synthesis.evaluation_courses import Histogram, histogram, missing_shares, time_gaps
from hauberk.synthesis.evaluation_distances import kolmogorov

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PATIENTS = 1000
MISSING, GAPS = "missing values", "time between steps"


@dataclass(frozen=True, kw_only=True)
class Setting:
    rows: tuple[Contender, ...]


SETTINGS: dict[Size, Setting] = {
    "tiny": Setting(rows=(Contender(synthesizer="igamt", form=SOUND, ablation="w/o_imi", protect="joint"),)),
    "quick": Setting(
        rows=tuple(each for each in contenders(WITHOUT) if each.model in ("vae", "igamt", "igamt w/o_emb"))
    ),
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
                about("igamt-histograms", scene, contender, seed=seed),
                lambda contender=contender: _one(scene, sets, contender, seed),  # type: ignore[misc]
            )
        )
    progress("models", len(rows), len(rows))
    return _result(scene, found)


def _one(scene: Scene, sets: Sets, contender: Contender, seed: int) -> dict[str, Any]:
    _, made = fitted(scene, sets, contender, seed=seed)
    real, made = sets[scene.test].first(PATIENTS), made.first(PATIENTS)
    whole = real.schema.time.decimals == 0
    pairs = {
        MISSING: (missing_shares(real), missing_shares(made), False),
        GAPS: (time_gaps(real), time_gaps(made), whole),
    }
    return {
        "model": contender.label,
        "form": contender.form,
        **{
            name: {
                "bars": _bars(histogram(name, ours, theirs, whole=own)),
                "distance": kolmogorov(ours, theirs),
            }
            for name, (ours, theirs, own) in pairs.items()
        },
    }


def _bars(found: Histogram) -> list[tuple[float, float, float]]:
    return list(zip(found.edges[:-1], found.real, found.synthetic, strict=True))


def _result(scene: Scene, found: list[dict[str, Any]]) -> Result:
    rows: list[tuple[Cell, ...]] = [
        (each["model"], each["form"], name, low, real, synthetic, each[name]["distance"])
        for each in found
        for name in (MISSING, GAPS)
        for low, real, synthetic in each[name]["bars"]
    ]
    return Result(
        columns=("model", "form", "measure", "from", "real_share", "synthetic_share", "kolmogorov"),
        rows=tuple(rows),
        facts={"data": scene.data, "patients": PATIENTS, "epsilon": scene.epsilon, "delta": scene.delta},
        notes=(
            "A bar reaches from its own place to the next one; the last one holds everything beyond.",
            "Sound models stand at the epsilon named among the facts.",
            NOT_PUBLIC,
            SEEDED,
        ),
        draw=lambda figure: _draw(figure, found),
    )


def _draw(figure: Figure, found: list[dict[str, Any]]) -> None:
    figure.set_size_inches(7.2, max(2.6, 1.3 * len(found)))
    axes = figure.subplots(len(found), 2, squeeze=False)
    for line, each in enumerate(found):
        for here, name in zip(axes[line], (MISSING, GAPS), strict=True):
            places, real, synthetic = zip(*each[name]["bars"], strict=True)
            here.step(places, real, where="post", color=OTHER, label="real")
            here.step(places, synthetic, where="post", color=PROVEN, label="synthetic")
            here.set_title(f"{each['model']}, {each['form']}: {name}", fontsize=7)
            here.tick_params(labelsize=6)
    axes[0][0].legend(fontsize=6)
