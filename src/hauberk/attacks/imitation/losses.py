"""What adversarial imitation minimises (004 Eqs. 5.1-5.6), one number per example.

    L = beta_d ||p||_2
      + beta_m (beta_m1 ||x' - x_adv||_2 + beta_m2 ||F(x') - F(x_adv)||_2)
      + beta_c L_c,      L_c = F(x')_s - F(x')_t  (targeted)   or   F(x')_y - F(x')_s  (untargeted)

with s the best class other than t, or than y. As printed L_c has no end: an input that is lost already could
be pushed further for ever, at the cost of those that are not. With a ``confidence`` it stops that far behind
the border, as in Carlini and Wagner (2017); ``inf`` is the printed form.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from hauberk.errors import RequestError


@dataclass(frozen=True, kw_only=True)
class Weights:
    """The coefficients of Eqs. 5.1 and 5.4; a zero leaves a part out, as in Figs. 5.6 and 5.13."""

    distance: float = 0.01  # beta_d
    imitation: float = 1.0  # beta_m
    of_pixels: float = 0.05  # beta_m1
    of_scores: float = 0.05  # beta_m2
    misclassification: float = 1.0  # beta_c
    confidence: float = 5.0

    def __post_init__(self) -> None:
        parts = (self.distance, self.imitation, self.of_pixels, self.of_scores, self.misclassification)
        if not all(0 <= part < math.inf for part in parts):
            raise RequestError(f"the weights of a loss are numbers from 0 on, got {parts}")
        if not any((self.distance, self.imitation, self.misclassification)):
            raise RequestError("a loss needs at least one part: distance, imitation or misclassification")
        if not self.confidence >= 0:
            raise RequestError(f"the confidence must not be negative, got {self.confidence}")


def distances(x: Tensor, y: Tensor | None = None) -> Tensor:
    """l2, row by row; its gradient at zero is zero."""
    step = x if y is None else x - y
    lengths: Tensor = torch.linalg.vector_norm(step.flatten(1), dim=1)
    return lengths


def margins(scores: Tensor, classes: Tensor, *, targeted: bool) -> Tensor:
    """``L_c``: negative exactly where the attack has reached its goal (Eq. 5.5 targeted, Eq. 5.6 not)."""
    rows = classes.view(-1, 1)
    rival = scores.scatter(1, rows, -torch.inf).amax(1)
    own = scores.gather(1, rows).squeeze(1)
    return rival - own if targeted else own - rival


def misclassification_loss(scores: Tensor, classes: Tensor, *, targeted: bool, confidence: float) -> Tensor:
    return margins(scores, classes, targeted=targeted).clamp(min=-confidence)


def imitation_loss(
    weights: Weights,
    *,
    perturbation: Tensor,
    moved: Tensor,
    imitated: Tensor,
    scores: Tensor,
    imitated_scores: Tensor,
    worth_imitating: Tensor,
    classes: Tensor,
    targeted: bool,
) -> Tensor:
    """Eq. 5.1, row by row. ``classes`` are the targets, or without a target the labels.

    ``worth_imitating``: where the imitated example reaches its goal. Scores of an attack that failed are no
    example to follow, so they are left out, as the thesis' authors do; its pixels are kept.
    """
    loss = moved.new_zeros(len(moved))
    if weights.distance:
        loss = loss + weights.distance * distances(perturbation)
    if weights.imitation:
        alike = weights.of_scores * distances(scores, imitated_scores) * worth_imitating
        if weights.of_pixels:
            alike = alike + weights.of_pixels * distances(moved, imitated)
        loss = loss + weights.imitation * alike
    if weights.misclassification:
        missed = misclassification_loss(scores, classes, targeted=targeted, confidence=weights.confidence)
        loss = loss + weights.misclassification * missed
    return loss
