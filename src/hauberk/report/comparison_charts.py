"""Charts of several runs in one picture, as inline SVG in the page's colours.

Runs are told by number, colour and dashes, never by colour alone; no text of a card enters a chart. The page
gives the colours: eight of them (``--run-1`` and so on), then the same again with other dashes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from hauberk.report.charts import _svg
from hauberk.report.rounding import at_most, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = 8
_STAND_INS = tuple(f"#01021{place}" for place in range(COLOURS))  # the page gives them their real colours
_DASHES: tuple[tuple[float, ...] | None, ...] = (None, (5, 2), (1.5, 1.5), (6, 2, 1.5, 2))
_WIDE_RANGE = 20  # times the smallest epsilon: then a logarithmic axis shows more


@dataclass(frozen=True, kw_only=True)
class Line:
    """One curve: ``place`` (from 0) gives its colour, its dashes and its number."""

    place: int
    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Point:
    """One run at (epsilon, accuracy), with the accuracy's ``spread`` to either side where it is a mean."""

    place: int
    x: float
    y: float
    spread: float | None = None


def colour_name(place: int) -> str:
    """The page's variable for a run's colour."""
    return f"--run-{place % COLOURS + 1}"


def swatch(place: int) -> Markup:
    """A short piece of a run's line, for a legend."""
    dashes = _dashes(place)
    pattern = "" if dashes is None else f' stroke-dasharray="{" ".join(f"{2 * each:g}" for each in dashes)}"'
    return Markup(
        f'<svg class="swatch" viewBox="0 0 30 6" aria-hidden="true"><path d="M1 3H29" '
        f'stroke="var({colour_name(place)})"{pattern}/></svg>'
    )


def certified_chart(name: str, norm: str, lines: Sequence[Line]) -> Markup:
    """Certified accuracy against radius; between two radii the lower value is drawn."""

    def draw(axes: Axes) -> None:
        for line in lines:
            style = _style(line.place)
            axes.plot(line.x, [100 * each for each in line.y], drawstyle="steps-pre", **style)
        axes.set_xlabel(f"{norm} radius of the perturbation")
        axes.set_title("certified accuracy, %")
        axes.set_xlim(0, max((max(line.x) for line in lines), default=1) or 1)
        axes.set_ylim(0, 100)

    told = (
        f"run {line.place + 1} from {percent(line.y[0])} to {percent(line.y[-1])} at radius {line.x[-1]:g}"
        for line in lines
    )
    return _drawn(name, f"Line chart of certified accuracy: {'; '.join(told)}.", draw)


def epsilon_chart(points: Sequence[Point]) -> Markup:
    """Accuracy against proven epsilon, one numbered point per run."""

    def draw(axes: Axes) -> None:
        for order, point in enumerate(points):
            colour = _STAND_INS[point.place % COLOURS]
            beside = sum(_near(point, other, points) for other in points[:order])
            spread = None if point.spread is None else 100 * point.spread
            style: dict[str, Any] = {
                "color": colour,
                "marker": "o",
                "markersize": 6,
                "capsize": 3,
                "clip_on": False,
            }
            axes.errorbar([point.x], [100 * point.y], yerr=spread, **style)
            axes.annotate(
                str(point.place + 1),
                (point.x, 100 * point.y),
                xytext=(6 + 13 * beside, 5),  # labels of points in one place stand side by side
                textcoords="offset points",
                color=colour,
            )
        largest, smallest = max(point.x for point in points), min(point.x for point in points)
        if smallest > 0 and largest > _WIDE_RANGE * smallest:
            axes.set_xscale("log")
        else:
            axes.set_xlim(0, 1.12 * largest or 1)
        axes.set_xlabel("proven epsilon")
        axes.set_title("accuracy, %")
        lowest = min(100 * (point.y - (point.spread or 0.0)) for point in points)
        axes.set_ylim(max(0, 10 * ((lowest - 2) // 10)), 100)

    told = (f"run {point.place + 1} {percent(point.y)} at epsilon {at_most(point.x)}" for point in points)
    return _drawn("privacy", f"Chart of accuracy against proven epsilon: {'; '.join(told)}.", draw)


def _near(one: Point, other: Point, points: Sequence[Point]) -> bool:
    widest = max(point.x for point in points)
    return abs(one.x - other.x) <= 0.04 * widest and abs(one.y - other.y) <= 0.05


def _dashes(place: int) -> tuple[float, ...] | None:
    return _DASHES[place // COLOURS % len(_DASHES)]


def _style(place: int) -> dict[str, Any]:
    dashes = _dashes(place)
    style: dict[str, Any] = {"color": _STAND_INS[place % COLOURS]}
    return style if dashes is None else {**style, "dashes": dashes}


def _drawn(name: str, described: str, draw: Callable[[Axes], None]) -> Markup:
    drawing = str(_svg(name, described, draw))
    for place, stand_in in enumerate(_STAND_INS):
        drawing = drawing.replace(stand_in, f"var({colour_name(place)})")
    return Markup(drawing)
