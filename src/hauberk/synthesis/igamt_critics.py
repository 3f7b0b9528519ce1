"""The discriminators of IGAMT: D_x on windows of a row, D_m on those of its masks."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from hauberk.synthesis.networks import COSINES, SLOPE, step_cosines
from hauberk.synthesis.packing import RowShape

_WINDOW = 2  # neighbouring steps


class WindowCritic(nn.Module):
    """A row to one score: every window of neighbouring steps by itself, their mean, and the static columns.

    A convolution over time without batch statistics, written as a linear layer on windows. ``masks_only``
    is D_m: it sees which values are there and which steps are real, and no value (004 appendix .1).
    """

    cosines: Tensor
    head_kept: Tensor
    step_kept: Tensor

    def __init__(self, shape: RowShape, *, width: int, masks_only: bool = False) -> None:
        super().__init__()
        self.shape = shape
        head, step = torch.ones(shape.head), torch.ones(shape.step_width)
        if masks_only:
            head[: shape.static_width] = 0.0
            step[: 1 + shape.value_width] = 0.0
        self.register_buffer("cosines", step_cosines(shape.steps), persistent=False)
        self.register_buffer("head_kept", head.nonzero().flatten(), persistent=False)
        self.register_buffer("step_kept", step.nonzero().flatten(), persistent=False)
        self.windows = nn.Linear(_WINDOW * len(self.step_kept) + COSINES, width)
        self.whole = nn.Linear(width + len(self.head_kept), width)
        self.out = nn.Linear(width, 1)

    def forward(self, rows: Tensor) -> Tensor:
        head, steps = self.shape.parts(rows)
        seen = steps.index_select(-1, self.step_kept)
        following = torch.cat([seen[..., 1:, :], torch.zeros_like(seen[..., :1, :])], -2)
        places = self.cosines.expand(*seen.shape[:-1], COSINES)
        found = leaky_relu(self.windows(torch.cat([seen, following, places], -1)), SLOPE)
        mean = (found * steps[..., -1:]).mean(-2)
        together = torch.cat([mean, head.index_select(-1, self.head_kept)], -1)
        score: Tensor = self.out(leaky_relu(self.whole(together), SLOPE))
        return score
