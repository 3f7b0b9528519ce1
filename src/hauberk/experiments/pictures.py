"""One look for all pictures of this room: quiet axes, colours that differ in lightness too."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLAIMED, PROVEN, OBSERVED, OTHER = "#c2571a", "#1f5fa8", "#7a3e9d", "#7f7f7f"

_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "hauberk",
    "font.size": 10.0,
    "axes.titlelocation": "left",
    "axes.titlesize": "medium",
    "axes.titlepad": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
}


def render(draw: Callable[[Figure], None], *, kind: str = "png") -> bytes:
    """The picture as a file's bytes. The same numbers give the same bytes: no date is written."""
    import matplotlib
    from matplotlib.figure import Figure

    buffer = io.BytesIO()
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # a user's own style must not change a result
        matplotlib.rcParams.update(_STYLE)
        figure = Figure(figsize=(7.2, 4.2), dpi=150, layout="constrained")
        draw(figure)
        unsigned = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
        figure.savefig(buffer, format=kind, metadata=unsigned[kind])
    return buffer.getvalue()
