"""Adversarial examples side by side, as in 004 Figs. 5.4 and 5.11: a row per attack, a column per class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure


def one_of_each_class(labels: Tensor, answers: Tensor, classes: int) -> Tensor:
    """The first input of every class that is answered rightly, in their order; classes without one miss."""
    rows = [((labels == each) & (answers == each)).nonzero()[:1, 0] for each in range(classes)]
    return torch.cat(rows)


def draw_examples(
    figure: Figure | SubFigure,
    pictures: Mapping[str, Tensor],
    answers: Mapping[str, list[int]] | None = None,
) -> None:
    """``pictures`` by the name of the row, each ``(columns, channels, height, width)`` in [0, 1].

    The classifier's ``answers`` stand under the pictures.
    """
    columns = max(len(each) for each in pictures.values())
    panels = figure.subplots(len(pictures), max(1, columns), squeeze=False)
    for (name, row), line in zip(pictures.items(), panels, strict=True):
        for place, axes in enumerate(line):
            axes.axis("off")
            if place >= len(row):
                continue
            shown = row[place].detach().cpu().permute(1, 2, 0).squeeze(-1).numpy()
            axes.imshow(shown, cmap="gray_r" if shown.ndim == 2 else None, vmin=0, vmax=1)
            if answers is not None:
                axes.set_title(str(answers[name][place]), fontsize="xx-small", loc="center", pad=1)
        line[0].text(
            -0.15, 0.5, name, transform=line[0].transAxes, ha="right", va="center", fontsize="x-small"
        )
