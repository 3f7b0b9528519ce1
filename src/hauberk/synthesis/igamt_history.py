"""What a decoder knows before a step: values last observed, masks, shares so far, elapsed time.

All of it is a function of the steps before, once for whole rows (`history`, one pass for all steps, as
training needs it) and once step by step (`RunningHistory`, as generation needs it). Both give the same.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hauberk.synthesis.packing import RowShape
from hauberk.synthesis.scales import SPREAD, Scales

PRIOR = 2.0  # steps' worth of the released frequency in the share of steps with a measurement
_POINTS = 65  # of the table from scores to times


class Known(nn.Module):
    """Released constants that histories need: how often each feature is there, and how long a gap is.

    Gaps are standard scores in a row; ``gaps`` and ``first`` hold the time (as a share of the horizon) at
    evenly spaced scores, so that the time elapsed is a differentiable function of a row.
    """

    presence: Tensor
    gaps: Tensor
    first: Tensor
    column_masks: Tensor  # of every value column the place of its feature among the masks

    def __init__(self, shape: RowShape) -> None:
        super().__init__()
        self.shape = shape
        masks = [each.mask for each in shape.temporal for _ in range(each.width)]
        self.register_buffer("column_masks", torch.tensor(masks), persistent=False)
        self.register_buffer("presence", torch.full((len(shape.temporal),), 0.5))
        self.register_buffer("gaps", torch.full((_POINTS,), 1.0 / shape.steps))
        self.register_buffer("first", torch.zeros(_POINTS))

    def start_from(self, scales: Scales) -> None:
        ticks = max(1, scales.schema.time.ticks)
        scores = torch.linspace(-SPREAD, SPREAD, _POINTS)
        self.presence.copy_(scales.presence.float().clamp(0.002, 0.998))
        self.gaps.copy_(scales.value_of(scores, "gaps", ticks))
        self.first.copy_(scales.value_of(scores, "first", ticks))

    def times(self, scores: Tensor, table: Tensor) -> Tensor:
        """Shares of the horizon, linear between the points of the table."""
        place = (scores.clamp(-SPREAD, SPREAD) + SPREAD) * ((_POINTS - 1) / (2 * SPREAD))
        low = place.detach().floor().clamp(max=_POINTS - 2)
        index = low.long()
        before, after = table[index], table[index + 1]
        return before + (place - low) * (after - before)

    def values(self, steps: Tensor) -> Tensor:
        return steps[..., 1 : 1 + self.shape.value_width]

    def seen(self, steps: Tensor) -> Tensor:
        return steps[..., 1 + self.shape.value_width : -1]


def history(steps: Tensor, known: Known) -> tuple[Tensor, Tensor]:
    """For ``(..., T, step_width)`` steps: what is known before each of the T + 1 steps, and elapsed times.

    ``(..., T + 1, gap + columns + features + features)``: the last gap, the value last observed of every
    column (0 before the first), and of every feature its last mask and its share of the steps so far, both
    as differences from the released frequency; ``(..., T + 1)``. Place t depends on steps before t alone.
    """
    number = steps.shape[-2]
    seen, values = known.seen(steps), known.values(steps)
    there = seen.index_select(-1, known.column_masks) > 0.5
    own = torch.arange(number, device=steps.device)[:, None].expand(there.shape)
    last = torch.where(there, own, -1).cummax(-2).values
    carried = values.gather(-2, last.clamp_min(0)) * (last >= 0)
    passed = torch.arange(1, number + 1, device=steps.device)[:, None]
    shares = (seen.cumsum(-2) + PRIOR * known.presence) / (passed + PRIOR) - known.presence
    after = torch.cat([steps[..., :1], carried, seen - known.presence, shares], -1)
    real = steps[..., -1]
    first = known.times(steps[..., :1, 0], known.first)
    times = torch.cat([first, known.times(steps[..., 1:, 0], known.gaps)], -1) * real
    nothing = torch.zeros_like(after[..., :1, :])
    start = torch.zeros_like(times[..., :1])
    return torch.cat([nothing, after], -2), torch.cat([start, times.cumsum(-1)], -1)


class RunningHistory:
    """The same, one step after the other: ``after`` takes a step and moves on."""

    def __init__(self, known: Known, rows: int, *, like: Tensor) -> None:
        shape = known.shape
        self._known, self._passed = known, 0
        self._carried = like.new_zeros(rows, shape.value_width)
        self._count = like.new_zeros(rows, len(shape.temporal))
        self._last = like.new_zeros(rows, 1)
        self._mask = known.presence.expand(rows, -1)
        self.elapsed = like.new_zeros(rows)

    def before(self) -> Tensor:
        """``(rows, gap + columns + features + features)`` before the next step."""
        presence = self._known.presence
        shares = (self._count + PRIOR * presence) / (self._passed + PRIOR) - presence
        return torch.cat([self._last, self._carried, self._mask - presence, shares], -1)

    def after(self, step: Tensor) -> None:
        """``step`` is ``(rows, step_width)``."""
        known = self._known
        seen, values = known.seen(step), known.values(step)
        self._carried = torch.where(seen.index_select(-1, known.column_masks) > 0.5, values, self._carried)
        self._count = self._count + seen
        self._last, self._mask = step[:, :1], seen
        table = known.first if self._passed == 0 else known.gaps
        self.elapsed = self.elapsed + known.times(step[:, 0], table) * step[:, -1]
        self._passed += 1
