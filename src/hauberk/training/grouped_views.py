"""Several images of one person as the views of one record.

    person -> its images -> views of each image -> loss of each image -> mean over the person's own images

The gradient of that mean is clipped once, so a person costs what one record costs, whatever number of images
it has: adding or removing a person with all images moves the clipped sum by at most the clipping bound.

Records are ``(persons, most, *shape)`` with labels ``(persons, most)``; a negative label marks a place that
the person does not fill. What stands there has no influence at all: its loss is left out before the mean, so
its gradient is exactly zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hauberk.gradients import ScoreLoss, Views
from hauberk.randomness import Key
from hauberk.training.views import RecordViews


@dataclass(frozen=True, kw_only=True)
class GroupedViews:
    """The views of all images of a person, one image after the other; ``of_one`` makes those of an image.

    Image ``i`` of person ``p`` has the identity ``p * most + i``: its noise is its own, and a neighbour does
    not shift it.
    """

    of_one: RecordViews

    def __call__(self, x: Tensor, *, records: Tensor, step: int, key: Key) -> Views:
        """``(n, most * K, ...)`` from ``(n, most, *shape)``."""
        persons, most = x.shape[:2]
        images = (records.unsqueeze(1) * most + torch.arange(most, device=records.device)).flatten()
        views = self.of_one(x.flatten(0, 1), records=images, step=step, key=key)

        def folded(each: Tensor) -> Tensor:
            return each.reshape(persons, most * each.shape[1], *each.shape[2:])

        return tuple(map(folded, views)) if isinstance(views, tuple) else folded(views)


def grouped_loss(of_one: ScoreLoss) -> ScoreLoss:
    """The mean of ``of_one`` over a person's own images.

    With labels ``(persons,)`` all views are of one image, as in records that are no persons (the made-up ones
    on which a gradient path is chosen, for example).
    """

    def of_scores(scores: Tensor, labels: Tensor) -> Tensor:
        if labels.ndim == 1:
            return of_one.of_scores(scores, labels)
        persons, most = labels.shape
        own = labels >= 0
        every = scores.reshape(persons * most, scores.shape[1] // most, *scores.shape[2:])
        losses = of_one.of_scores(every, labels.clamp_min(0).flatten()).view(persons, most)
        return torch.where(own, losses, 0.0).sum(1) / own.sum(1).clamp_min(1)

    return ScoreLoss(of_scores)
