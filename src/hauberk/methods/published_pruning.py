"""Gradient pruning with error feedback as 002 prints it (section 6.1), for its large models.

    add the last pruning error e to each record's gradient, clip, add up
    keep the largest coordinates of the sum, add noise to those, set the others to zero and remember them as e

Nothing can be proven of it: the places of the largest coordinates are released without noise, and e is
private state without noise that enters every record's gradient before clipping, so one record moves the next
sum by up to twice the clip for *every* record of the lot. The sound pruning is `ReleasedPruning` in
`hauberk.training.shaping`.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from hauberk.accounting import Event
from hauberk.accounting.events import UnprotectedEvent
from hauberk.gradients import ClippedSum, Geometry
from hauberk.training import PrivateTrainer
from hauberk.training.noise import Released, StepNoise

REASON = "published pruning releases un-noised places and feeds un-noised errors back: nothing is proven"


class ErrorFeedback:
    """The geometry that adds the last pruning error to each record's gradient."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self.negative_error = {name: torch.zeros_like(weight) for name, weight in weights.items()}
        self.geometry = Geometry({}, centre=self.negative_error, returns_centre=False)

    def observe(self, released: Mapping[str, Tensor], noise: float) -> None:
        """The error is set by `PublishedPruning`, which sees the sum."""

    def applied(self, released: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return dict(released)

    def state(self) -> dict[str, Tensor]:
        return {f"negative_error/{name}": value for name, value in self.negative_error.items()}


class PublishedPruning:
    """Noise on the largest coordinates of a sum only; ``inner`` makes the noise."""

    looks_at_records = True

    def __init__(self, trainer: PrivateTrainer, inner: StepNoise, pruned: float) -> None:
        assert isinstance(trainer.shaping, ErrorFeedback)
        self._feedback, self._inner = trainer.shaping, inner
        self._kept, self._batch = 1 - pruned, trainer.plan.batch

    def events(self, steps: int) -> tuple[Event, ...]:
        return (UnprotectedEvent(count=steps),)

    def deviation(self, sensitivity: float) -> float:
        return self._inner.deviation(sensitivity)

    def state(self) -> dict[str, Tensor]:
        return self._inner.state()

    def release(self, clipped: ClippedSum, step: int) -> Released:
        sizes = torch.cat([each.abs().flatten() for each in clipped.gradients.values()])
        least = sizes.topk(max(1, round(len(sizes) * self._kept))).values[-1]
        released = self._inner.release(clipped, step)
        kept = {}
        for name, sums in clipped.gradients.items():
            large = sums.abs() >= least
            kept[name] = released.gradients[name] * large
            self._feedback.negative_error[name].copy_(sums * ~large / -self._batch)
        return Released(gradients=kept, count_normal=released.count_normal)
