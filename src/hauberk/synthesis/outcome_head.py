"""The outcome comes last: a row is made first, then its outcome from what the row says.

    p(row, outcome) = p(row) p(outcome | row),   logit p(outcome | row) = w . summary(row) + b

A network that puts out the outcome beside everything else has to find out, through noise, which of its latent
numbers go with it; at 4,000 patients and epsilon 3 it does not, and whoever learns from its rows predicts no
better than a coin. The few weights here are learned from real rows by likelihood, in the same clipped
gradient and the same release as all other networks.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, softplus

from hauberk.synthesis.packing import RowShape
from hauberk.synthesis.scales import Scales


class OutcomeHead(nn.Module):
    """A logistic model of the outcome's second level on the summary of a row.

    The summary is what a clinician would look at first: the mean observed score of every temporal column, the
    share of steps in which a feature was measured, and the static columns. It never holds the outcome itself.
    """

    kept: Tensor

    def __init__(self, shape: RowShape) -> None:
        super().__init__()
        assert shape.outcome is not None, "who builds this has looked"
        self.shape, self._outcome = shape, shape.outcome
        self.register_buffer("kept", shape.head_without_outcome(), persistent=False)
        self._masks = [each.mask for each in shape.temporal for _ in range(each.width)]
        self.logit = nn.Linear(shape.value_width + len(shape.temporal) + shape.head, 1)
        nn.init.zeros_(self.logit.weight)

    def start_from(self, scales: Scales) -> None:
        """With the released frequency of the outcome, whatever the row."""
        assert scales.schema.outcome is not None
        shares = scales.shares(f"static/{scales.schema.outcome}").clamp_min(0.003)
        with torch.no_grad():
            self.logit.bias.fill_(float(torch.log(shares[1] / shares[0])))

    def summary(self, rows: Tensor) -> Tensor:
        """``(..., columns + features + head)``; linear in values and shares, so gradients pass."""
        head, steps = self.shape.parts(rows)
        stop = 1 + self.shape.value_width
        observed = steps[..., stop:-1].sum(-2)
        means = steps[..., 1:stop].sum(-2) / observed[..., self._masks].clamp_min(1.0)
        shares = observed / steps[..., -1].sum(-1, keepdim=True).clamp_min(1.0)
        return torch.cat([means, shares, head * self.kept], -1)

    def cost(self, rows: Tensor) -> Tensor:
        """Negative log-likelihood of each row's outcome; 0 where it is unknown."""
        head, _ = self.shape.parts(rows)
        happened = head[..., self._outcome.start + 1]
        known = head[..., self.shape.static_width + self._outcome.mask]
        logit = self.logit(self.summary(rows)).squeeze(-1)
        cost: Tensor = (softplus(logit) - happened * logit) * known
        return cost

    def complete(self, rows: Tensor, noise: Tensor) -> Tensor:
        """Made rows with their outcome drawn anew; whether it is known stays as it was made.

        ``noise`` holds a standard normal for every entry of a row. Gradients reach the row through a relaxed
        coin, not these weights: critics have no say in them.
        """
        start, mask = self._outcome.start, self.shape.static_width + self._outcome.mask
        logit = linear(self.summary(rows), self.logit.weight.detach(), self.logit.bias.detach())
        uniform = torch.special.ndtr(noise[..., start : start + 1]).clamp(1e-6, 1 - 1e-6)
        moved = logit + torch.logit(uniform)
        soft = torch.sigmoid(moved)
        happened = soft + ((moved > 0).to(soft.dtype) - soft).detach()
        levels = torch.cat([1 - happened, happened], -1) * rows[..., mask : mask + 1]
        return torch.cat([rows[..., :start], levels, rows[..., self._outcome.stop :]], -1)
