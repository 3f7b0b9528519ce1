"""What a record's loss may be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

Views = Tensor | tuple[Tensor, ...]
"""Views of records; a model with several inputs gets a tuple, each with the same leading axes."""

Predict = Callable[[Any], Tensor]
RecordLoss = Callable[[Predict, Any, Tensor], Tensor]
"""``loss(predict, views, label)``: one record's loss; ``views`` is ``(K, *shape)``, ``label`` a scalar.

It may do anything inside: average noisy copies, add penalties on gradients, run an attack. Such losses go the
general path; a `ScoreLoss` can go the fast one.
"""


class ScoreLoss:
    """A loss that looks at a record only through the model's answers to its views.

    Written once, for all records together: ``of_scores(scores, labels)`` takes ``(records, K, ...)`` answers
    and gives one loss per record. No record's loss may depend on another's answers.
    """

    def __init__(self, of_scores: Callable[[Tensor, Tensor], Tensor]) -> None:
        self.of_scores = of_scores

    def __call__(self, predict: Predict, views: Any, label: Tensor) -> Tensor:
        return self.of_scores(predict(views).unsqueeze(0), label.unsqueeze(0))[0]


def _cross_entropy_over_views(scores: Tensor, labels: Tensor) -> Tensor:
    """Averaged over the record's views, *before* clipping: K views cost what one record costs."""
    views = scores.shape[1]
    every = nn.functional.cross_entropy(
        scores.flatten(0, 1), labels.repeat_interleave(views, dim=0), reduction="none"
    )
    return every.view(-1, views).mean(1)


mean_cross_entropy = ScoreLoss(_cross_entropy_over_views)
"""Cross-entropy averaged over a record's views: the loss of a classifier."""
