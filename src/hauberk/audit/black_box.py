"""The adversary who sees the released model and nothing else: how much better it knows each canary."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hauberk.audit.bounds import Values
from hauberk.audit.canaries import RecordCanaries

_AT_A_TIME = 512


def canary_losses(model: nn.Module, canaries: RecordCanaries) -> Tensor:
    """Cross-entropy of every canary."""
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            losses = [
                nn.functional.cross_entropy(model(x.to(device)), y.to(device), reduction="none")
                for x, y in zip(canaries.x.split(_AT_A_TIME), canaries.y.split(_AT_A_TIME), strict=True)
            ]
    finally:
        model.train(was_training)
    return torch.cat(losses).double().cpu()


def loss_scores(before: nn.Module, after: nn.Module, canaries: RecordCanaries) -> Values:
    """By how much training has lowered each canary's loss; the first weights are public, as is how hard a
    canary is for them."""
    scores: Values = (canary_losses(before, canaries) - canary_losses(after, canaries)).numpy()
    return scores
