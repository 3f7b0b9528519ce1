"""Per-record losses for a network that will be smoothed: they look at a record through its noisy copies only.

    cross-entropy   averaged over the copies                                          (Cohen et al. 2019)
    consistency     w * (mean_k KL(p || p_k) + H(p) / 2), p the mean of the copies' p_k  (Jeong & Shin 2020)
    macer           w * sigma / 2 * max(0, margin - (Phi^-1(q_y) - Phi^-1(q_rival))) where the copies' mean q,
                    sharpened, answers rightly: the certified radius itself            (Zhai et al. 2020)

All of them are functions of one record's scores, so a record's gradient is clipped once and costs what it
costs without them. MACER's own first term is the logarithm of the mean; here it is the mean of logarithms, as
without it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from hauberk.errors import RequestError
from hauberk.gradients import ScoreLoss, mean_cross_entropy

ENTROPY = 0.5
"""Weight of the mean's entropy beside the divergence, as published."""
SHARPENED = 16.0
"""MACER's beta: votes count classes, not probabilities, and sharpened scores come nearer to that."""
MARGIN = 8.0
"""MACER's gamma, in units of the noise: no larger margin is asked for."""
_ALMOST_ONE = 1 - 1e-6  # float32 has nothing between this and one for Phi^-1 to work with


@dataclass(frozen=True, kw_only=True)
class SmoothingLoss:
    """Weights of the terms; with both 0 it is the cross-entropy over the copies."""

    sigma: float
    consistency: float = 0.0
    macer: float = 0.0

    def __post_init__(self) -> None:
        for name in ("consistency", "macer"):
            if not 0 <= getattr(self, name) < math.inf:
                raise RequestError(f"{name} must not be negative, got {getattr(self, name):g}")

    def record_loss(self) -> ScoreLoss:
        if not self.consistency and not self.macer:
            return mean_cross_entropy
        return ScoreLoss(self.of_scores)

    def of_scores(self, scores: Tensor, labels: Tensor) -> Tensor:
        """One loss per record from ``(records, views, classes)`` scores."""
        loss = mean_cross_entropy.of_scores(scores, labels)
        if self.consistency:
            loss = loss + self.consistency * _disagreement(scores)
        if self.macer:
            loss = loss + self.macer * self.sigma / 2 * _missing_margin(scores, labels)
        return loss


def _disagreement(scores: Tensor) -> Tensor:
    each = scores.log_softmax(-1)
    mean = torch.logsumexp(each, 1) - math.log(scores.shape[1])
    p = mean.exp()
    divergence = (p.unsqueeze(1) * (mean.unsqueeze(1) - each)).sum(-1).mean(1)
    return divergence - ENTROPY * (p * mean).sum(-1)


def _missing_margin(scores: Tensor, labels: Tensor) -> Tensor:
    """What the certified radius lacks of the margin, in units of sigma / 2; 0 where the answer is wrong."""
    q = (SHARPENED * scores).softmax(-1).mean(1)
    own = q.gather(1, labels.unsqueeze(1)).squeeze(1)
    rival = q.scatter(1, labels.unsqueeze(1), -1.0).max(1).values
    bounded = (each.clamp(1 - _ALMOST_ONE, _ALMOST_ONE) for each in (own, rival))
    own_quantile, rival_quantile = (torch.special.ndtri(each) for each in bounded)
    missing = (MARGIN - (own_quantile - rival_quantile)).clamp_min(0)
    return torch.where(own > rival, missing, 0.0)
