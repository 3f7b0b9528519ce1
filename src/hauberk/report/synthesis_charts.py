"""The pictures of an evaluation of synthetic records, as inline SVG in the page's colours.

Real patients are drawn in the colour of lines, synthetic ones in that of observations. Names of levels are
the only words of a schema that enter a chart, as plain text; names of features stand in the page.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup

from hauberk.report.charts import _INK, _LINE, _svg
from hauberk.synthesis.evaluation_clusters import Plane
from hauberk.synthesis.evaluation_courses import Histogram, Trajectory
from hauberk.synthesis.evaluation_prediction import Curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SYNTHETIC = "#010207"  # a stand-in, as in the other charts
_SMALL = (3.4, 2.2)  # inches of the charts that stand in a grid
_LONGEST_LABEL = 11
_MOST_LABELS = 6


def plane_chart(plane: Plane) -> Markup:
    """Every point is a patient, real and synthetic ones in the plane of the real ones' main components."""

    def draw(axes: Axes) -> None:
        for points, colour in ((plane.real, _LINE), (plane.synthetic, _SYNTHETIC)):
            across, up = zip(*points, strict=True)
            axes.plot(
                across, up, "o", color=colour, markersize=2.6, alpha=0.55, markeredgewidth=0, clip_on=True
            )
        first, second = plane.explained
        axes.set_xlabel(f"first component, {100 * first:.0f} % of the variance")
        axes.set_title(f"second component, {100 * second:.0f} %")

    described = (
        f"Scatter plot of {len(plane.real)} real and {len(plane.synthetic)} synthetic patients in the plane "
        "of the two main components of the real ones."
    )
    return _drawn("plane", described, draw)


def roc_chart(real: Curve, synthetic: Curve, described: str) -> Markup:
    """Two receiver operating characteristics and the diagonal of chance."""

    def draw(axes: Axes) -> None:
        axes.plot([0, 100], [0, 100], color=_INK, linewidth=1.0, dashes=(4, 3))
        for curve, colour in ((real, _LINE), (synthetic, _SYNTHETIC)):
            axes.plot(
                [100 * share for share in curve.false_positive],
                [100 * share for share in curve.true_positive],
                color=colour,
            )
        axes.set_xlabel("of patients without the event, %")
        axes.set_title("flagged: of patients with the event, %")
        axes.set_xlim(0, 100)
        axes.set_ylim(0, 100)

    return _drawn("roc", described, draw)


def histogram_chart(
    place: str, histogram: Histogram, described: str, *, axis: str = "", small: bool = True
) -> Markup:
    """Shares of both sets in the same bars: real ones filled, synthetic ones as an outline."""

    def draw(axes: Axes) -> None:
        real, synthetic = (100 * np.array(side) for side in (histogram.real, histogram.synthetic))
        edges = histogram.edges if histogram.edges else tuple(np.arange(len(real) + 1) - 0.5)
        axes.stairs(real, edges, fill=True, color=_LINE, alpha=0.30, linewidth=0)
        axes.stairs(real, edges, color=_LINE, linewidth=0.8)
        axes.stairs(synthetic, edges, color=_SYNTHETIC, linewidth=1.8)
        if histogram.labels and len(histogram.labels) <= _MOST_LABELS:
            axes.set_xticks(range(len(histogram.labels)), [_short(label) for label in histogram.labels])
            for label in axes.get_xticklabels():
                label.set_parse_math(False)
        elif histogram.labels:
            axes.set_xticks([])
        else:
            axes.locator_params(axis="x", nbins=5)
        axes.set_xlim(edges[0], edges[-1])
        axes.set_ylim(0, 1.08 * max(real.max(), synthetic.max(), 1e-9))
        axes.locator_params(axis="y", nbins=4)
        axes.set_xlabel(axis)
        axes.set_title("%")

    return _drawn(place, described, draw, small=small)


def trajectory_chart(place: str, course: Trajectory, described: str, *, unit: str) -> Markup:
    """Mean courses of both sets, with one spread to either side of the real one."""

    def draw(axes: Axes) -> None:
        real, spread = _numbers(course.real), _numbers(course.real_spread)
        axes.fill_between(course.times, real - spread, real + spread, color=_LINE, alpha=0.12, linewidth=0)
        axes.plot(course.times, real, color=_LINE)
        axes.plot(course.times, _numbers(course.synthetic), color=_SYNTHETIC)
        axes.set_xlabel(unit)
        axes.locator_params(nbins=5)
        axes.set_xlim(0, course.times[-1] + course.times[0])

    return _drawn(place, described, draw, small=True, titled=False)


def _numbers(values: Sequence[float | None]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _short(label: str) -> str:
    return label if len(label) <= _LONGEST_LABEL else label[: _LONGEST_LABEL - 1] + "…"


def _drawn(
    place: str, described: str, draw: Callable[[Axes], None], *, small: bool = False, titled: bool = True
) -> Markup:
    def sized(axes: Axes) -> None:
        if small:
            figure = axes.get_figure(root=True)
            assert figure is not None
            figure.set_size_inches(*_SMALL)
            figure.subplots_adjust(left=0.13, right=0.97, bottom=0.22, top=0.88 if titled else 0.97)
        draw(axes)

    return Markup(str(_svg(place, described, sized)).replace(_SYNTHETIC, "var(--observed)"))
