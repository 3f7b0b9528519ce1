"""Three line charts as inline SVG that take their colours and font from the page.

The same numbers give the same bytes: identifiers are hashed with a fixed salt and prefixed with the chart's
name, and no date is written. No text of a card enters a chart.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from hauberk.report.rounding import at_most, percent, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Stand-ins that matplotlib can draw with; the page's style sheet gives them their real colours.
_LINE, _INK, _RULE, _PROVEN = "#010203", "#010204", "#010205", "#010206"
_PAGE_COLOURS = {_LINE: "--line", _INK: "--muted", _RULE: "--rule", _PROVEN: "--proven"}

_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "hauberk",
    "svg.fonttype": "none",
    "font.size": 10.0,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "axes.linewidth": 0.8,
    "axes.titlecolor": _INK,
    "axes.titlelocation": "left",  # names the vertical axis without turning the reader's head
    "axes.titlesize": "medium",
    "axes.titlepad": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": _RULE,
    "grid.linewidth": 0.8,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "ytick.major.size": 0,
    "lines.linewidth": 2.0,
    "lines.markersize": 4.5,
    "lines.solid_capstyle": "round",
}
_MOST_MARKERS = 30


def certified_accuracy_chart(radii: Sequence[float], accuracies: Sequence[float]) -> Markup:
    """Certified accuracy against radius: a step line that shows the lower value between two listed radii."""

    def draw(axes: Axes) -> None:
        percents = [100 * accuracy for accuracy in accuracies]
        axes.fill_between(radii, percents, step="pre", color=_LINE, alpha=0.12, linewidth=0)
        axes.plot(radii, percents, drawstyle="steps-pre", color=_LINE, **_markers(len(radii)))
        axes.set_xlabel("radius of the perturbation")
        axes.set_title("certified accuracy, %")
        axes.set_xlim(0, max(radii) or 1)
        axes.set_ylim(0, 100)

    described = (
        f"Line chart. Certified accuracy falls from {percent(accuracies[0])} at radius {plain(radii[0])} "
        f"to {percent(accuracies[-1])} at radius {plain(radii[-1])}."
        if len(radii) > 1
        else f"Chart of one point: certified accuracy {percent(accuracies[0])} at radius {plain(radii[0])}."
    )
    return _svg("certified", described, draw)


def epsilon_chart(steps: Sequence[int], epsilons: Sequence[float], proven: float | None) -> Markup:
    """Epsilon against training steps, with the proven epsilon of the whole run as a dashed line."""

    def draw(axes: Axes) -> None:
        axes.plot(steps, epsilons, color=_LINE, **_markers(len(steps)))
        top = max([*epsilons, proven or 0.0])
        if proven is not None:
            axes.axhline(proven, color=_PROVEN, linewidth=1.4, dashes=(4, 3))
            axes.annotate(
                f"proven {at_most(proven)}",
                (0, proven),
                xycoords=("axes fraction", "data"),
                xytext=(4, 4),
                textcoords="offset points",
                color=_PROVEN,
            )
        axes.set_xlabel("steps")
        axes.locator_params(axis="x", nbins=6, integer=True)
        axes.set_title("epsilon")
        axes.set_xlim(0, max(steps) or 1)
        axes.set_ylim(0, 1.18 * top or 1)

    described = f"Line chart. Epsilon reaches {at_most(epsilons[-1])} after {steps[-1]:,} steps."
    return _svg("epsilon", described, draw)


def accuracy_chart(epochs: Sequence[float], accuracies: Sequence[float]) -> Markup:
    """Accuracy on test data against epochs of training."""

    def draw(axes: Axes) -> None:
        percents = [100 * accuracy for accuracy in accuracies]
        axes.plot(epochs, percents, color=_LINE, **_markers(len(epochs)))
        axes.set_xlabel("epochs")
        axes.locator_params(axis="x", nbins=6, integer=True)
        axes.set_title("accuracy on test data, %")
        axes.set_xlim(0, max(epochs) or 1)
        axes.set_ylim(max(0, 10 * ((min(percents) - 2) // 10)), 100)

    described = (
        f"Line chart. Accuracy on test data is {percent(accuracies[0])} after {plain(epochs[0])} epochs "
        f"and {percent(accuracies[-1])} after {plain(epochs[-1])} epochs."
    )
    return _svg("accuracy", described, draw)


def _markers(points: int) -> dict[str, Any]:
    return {"marker": "o", "clip_on": False} if points <= _MOST_MARKERS else {}


def _svg(name: str, described: str, draw: Callable[[Axes], None]) -> Markup:
    import matplotlib
    from matplotlib.figure import Figure

    buffer = io.StringIO()
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # a user's own style must not change a report
        matplotlib.rcParams.update(_STYLE)
        figure = Figure(figsize=(4.8, 3.1))
        figure.subplots_adjust(left=0.09, right=0.97, bottom=0.17, top=0.89)
        draw(figure.add_subplot())
        unsigned = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(buffer, format="svg", transparent=True, metadata=unsigned)
    return Markup(_for_the_page(buffer.getvalue(), name, described))


def _for_the_page(drawing: str, name: str, described: str) -> str:
    """From a file of its own to a part of a page: unique identifiers, the page's colours, words for it."""
    drawing = drawing[drawing.index("<svg") :]
    view = re.search(r'viewBox="[^"]*"', drawing)
    assert view is not None
    body = drawing[drawing.index(">") + 1 :]
    body = re.sub(r'id="([^"]+)"', rf'id="{name}-\1"', body)
    body = re.sub(r'(?:xlink:)?href="#([^"]+)"', rf'href="#{name}-\1"', body)
    body = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", body)
    body = re.sub(r"<!--.*?-->\s*", "", body, flags=re.DOTALL)
    for stand_in, variable in _PAGE_COLOURS.items():
        body = body.replace(stand_in, f"var({variable})")
    return f'<svg class="chart" {view.group()} role="img" aria-label="{escape(described)}">{body.strip()}'
