"""000 Fig. 1: how much noise four calibrations need for the same promise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hauberk.experiments.pictures import CLAIMED, OTHER, PROVEN
from hauberk.experiments.result import Result, Size
from hauberk.mechanisms import (
    AnalyticGaussian,
    ExtendedGaussian,
    Gaussian,
    HeterogeneousGaussian,
    redistribution,
)
from hauberk.progress import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DELTA, SENSITIVITY, COORDINATES = 1e-5, 1.0, 10
POINTS: dict[Size, int] = {"tiny": 5, "quick": 21, "full": 81}


def run(size: Size, seed: int, progress: Progress) -> Result:
    """Sigma for sensitivity 1 and delta 1e-5, epsilon from 0.1 to 10; r is uniform, as in the paper.

    The classical theorem ends at epsilon 1, and so does its curve. HGM with analytic calibration and a
    uniform r is AGM, whose line it therefore covers; with the paper's own calibration it is EGM.
    """
    grid = np.geomspace(0.1, 10, POINTS[size])
    grid[np.argmin(np.abs(grid - 1))] = 1.0
    r = redistribution.uniform(COORDINATES)
    rows = []
    for done, epsilon in enumerate(grid.tolist(), start=1):
        request = {"epsilon": epsilon, "delta": DELTA, "sensitivity": SENSITIVITY}
        extended = ExtendedGaussian.calibrate(**request)
        heterogeneous = HeterogeneousGaussian.calibrate(**request, redistribution=r)
        rows.append(
            (
                epsilon,
                Gaussian.calibrate(**request).scale if epsilon <= 1 else None,
                extended.scale,
                AnalyticGaussian.calibrate(**request).scale,
                float(heterogeneous.scale.max()),
                extended.epsilon(DELTA),
            )
        )
        progress("epsilon", done, len(grid))
    cheaper = [row[0] for row in rows if row[1] is not None and row[2] < row[1]]
    return Result(
        columns=("epsilon", "gm", "egm", "agm", "hgm_analytic", "egm_proven_epsilon"),
        rows=tuple(rows),
        facts={
            "delta": DELTA,
            "sensitivity": SENSITIVITY,
            "coordinates": COORDINATES,
            "egm_below_gm_up_to_epsilon": max(cheaper),
            "egm_over_agm_least": min(row[2] / row[3] for row in rows),
            "egm_over_agm_most": max(row[2] / row[3] for row in rows),
        },
        notes=(
            "EGM needs a little less noise than GM for small epsilon and a little more at epsilon 1.",
            "HGM with analytic calibration and uniform r is AGM: its line lies under the dashed one.",
        ),
        draw=lambda figure: _draw(figure, rows),
        upper_bounds=("egm_proven_epsilon",),
    )


def _draw(figure: Figure, rows: list[tuple[float, float | None, float, float, float, float]]) -> None:
    axes = figure.add_subplot()
    epsilon, classical, extended, analytic, heterogeneous, _ = zip(*rows, strict=True)
    up_to_one = [(e, c) for e, c in zip(epsilon, classical, strict=True) if c is not None]
    axes.plot(
        *zip(*up_to_one, strict=True), color=OTHER, linewidth=4, alpha=0.5, label="GM (up to epsilon 1)"
    )
    axes.plot(epsilon, extended, color=CLAIMED, label="EGM = HGM, calibration of the paper")
    axes.plot(epsilon, heterogeneous, color=PROVEN, label="HGM, analytic calibration")
    axes.plot(epsilon, analytic, color="black", linewidth=1, dashes=(4, 3), label="AGM")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("epsilon")
    axes.set_title(f"noise scale sigma, sensitivity {SENSITIVITY:g}, delta {DELTA:g}")
    axes.legend()
