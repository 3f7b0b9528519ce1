"""The last layer of IGAMT's decoder, which its imitator shares, and rows made step by step through it."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from hauberk.synthesis.igamt_history import Known, RunningHistory
from hauberk.synthesis.igamt_transformer import TransformerDecoder, history_width
from hauberk.synthesis.packing import RowShape
from hauberk.synthesis.scales import Scales

_SMALLEST_SPREAD, _LARGEST_SPREAD = -2.5, 0.5  # logarithms of standard deviations, in scores
_FIRST_SPREAD = -0.3
# Where training begins, as public constants: a value stays near the last one, and what has been measured
# often in this patient will be measured again. Noise leaves little room to find that out.
_MASKS_REPEAT, _SHARES_REPEAT = 0.8, 3.0

Outputs = tuple[Tensor, Tensor, Tensor]
"""``(..., head)``, ``(..., T, step_width)`` and spreads ``(..., columns)``: a row's distribution."""


class LastLayer(nn.Module):
    """Hidden numbers to the distribution of a step: means of scores, logits of levels, masks, going on.

    The last value, mask, share and gap also go straight to their own column (``persistence``, a weight for
    each), so that hidden numbers are left with what differs from that. ``head`` gives the distribution of
    the start features from the central hidden state; ``spread`` one logarithm of a standard deviation a
    column; ``going_on`` what the released lengths say about one more step.
    """

    going_on: Tensor

    def __init__(self, shape: RowShape, *, width: int, latent: int, persistence: float) -> None:
        super().__init__()
        self.shape = shape
        self.register_buffer("going_on", torch.zeros(shape.steps))
        # without static features one output that nobody reads: layers must have some
        self.head = nn.Linear(latent, max(1, shape.head))
        self.step = nn.Linear(width, shape.step_width)
        self.persistence = nn.Linear(1, history_width(shape), bias=False)
        self.spread = nn.Linear(1, shape.static_width + 1 + shape.value_width, bias=False)
        features = len(shape.temporal)
        starts = (0.0, persistence, _MASKS_REPEAT, _SHARES_REPEAT)
        with torch.no_grad():
            self.spread.weight.fill_(_FIRST_SPREAD)
            for part, value in zip(
                self.persistence.weight.split([1, shape.value_width, features, features]), starts, strict=True
            ):
                part.fill_(value)

    def forward(self, hidden: Tensor, before: Tensor, latent: Tensor, *, frozen: bool = False) -> Outputs:
        """``hidden`` and ``before`` are ``(..., T, ...)``. Through a ``frozen`` layer gradients pass to what
        is before it and not to its own weights: an imitator uses it and does not train it."""
        ones = latent.new_ones(*latent.shape[:-1], 1)
        direct = self.directly(before, _through(self.persistence, ones, frozen).unsqueeze(-2))
        further = self.going_on.expand(direct.shape[:-1]).unsqueeze(-1)
        steps = _through(self.step, hidden, frozen) + torch.cat([direct, further], -1)
        head = _through(self.head, latent, frozen)[..., : self.shape.head]
        return head, steps, _bounded(_through(self.spread, ones, frozen))

    def directly(self, before: Tensor, weights: Tensor) -> Tensor:
        """What the history says by itself: ``(..., gap + columns + features)``."""
        shape, features = self.shape, len(self.shape.temporal)
        weighted = before * weights
        own, masks, shares = weighted.split([1 + shape.value_width, features, features], -1)
        return torch.cat([own, masks + shares], -1)

    def start_features(self, latent: Tensor) -> Tensor:
        found: Tensor = self.head(latent)[..., : self.shape.head]
        return found

    def spreads(self, ones: Tensor) -> Tensor:
        return _bounded(self.spread(ones))

    def start_from(self, scales: Scales) -> None:
        """Biases as the released scales have them, so that training begins at the pooled frequencies."""
        shape, schema = self.shape, scales.schema
        with torch.no_grad():
            for layer in (self.head, self.step):
                layer.weight.mul_(0.3)
                layer.bias.zero_()
            for each, feature in zip(shape.static, schema.static, strict=True):
                shares = scales.shares(f"static/{feature.name}").float()
                missing = float(shares[-1].clamp(0.005, 0.995))
                self.head.bias[shape.static_width + each.mask] = math.log((1 - missing) / missing)
                if each.categorical:
                    self.head.bias[each.start : each.stop] = shares[:-1].clamp_min(0.003).log()
            for each, feature in zip(shape.temporal, schema.temporal, strict=True):
                if each.categorical:
                    shares = scales.shares(f"values/{feature.name}").float()
                    self.step.bias[each.start : each.stop] = shares.clamp_min(0.003).log()
            seen = scales.presence.float().clamp(0.002, 0.998)
            self.step.bias[1 + shape.value_width : -1] = torch.logit(seen)
            lengths = scales.shares("lengths").float()
            reached = lengths.flip(0).cumsum(0).flip(0).clamp_min(1e-6)  # at least so many steps
            follows = reached / torch.cat([torch.ones(1), reached[:-1]])
            # one in five hundred at each of fifty steps would already shorten every tenth stay
            self.going_on.copy_(torch.logit(follows.clamp(2e-4, 1 - 2e-4)))


def _through(layer: nn.Linear, inputs: Tensor, frozen: bool) -> Tensor:
    bias = layer.bias.detach() if frozen and layer.bias is not None else None
    found: Tensor = linear(inputs, layer.weight.detach(), bias) if frozen else layer(inputs)
    return found


def _bounded(spread: Tensor) -> Tensor:
    return spread.clamp(_SMALLEST_SPREAD, _LARGEST_SPREAD)


def decoded(
    decoder: TransformerDecoder,
    last: LastLayer,
    rows: Tensor,
    latent: Tensor,
    past: tuple[Tensor, Tensor],
    *,
    frozen: bool = False,
) -> Outputs:
    """The distribution of every step of ``rows`` given those before it: one pass, teacher forced.

    ``past`` is the `history` of the rows.
    """
    before, elapsed = past[0][..., :-1, :], past[1][..., :-1]
    outputs: Outputs = last(decoder(rows, latent, before, elapsed), before, latent, frozen=frozen)
    return outputs


@torch.no_grad()
def make_rows(
    decoder: TransformerDecoder, last: LastLayer, known: Known, latent: Tensor, noise: Tensor
) -> Tensor:
    """``(n, width)`` rows, each step drawn given those before it (004 section 4.2.6, stages 3 to 5).

    ``noise`` holds a standard normal for every entry. One pass of `decoded` over the made rows, drawn with
    the same noise, gives the same rows, and gradients.
    """
    shape = last.shape
    head_noise, step_noise = shape.parts(noise)
    coins = torch.logit(_uniform(step_noise[..., 1 + shape.value_width :]))
    head = _drawn_head(last.start_features(latent), last, head_noise, latent)
    ones = latent.new_ones(len(latent), 1)
    weights, spread = last.persistence(ones), last.spreads(ones)[:, shape.static_width :].exp()
    caches, running = (
        decoder.caches(len(latent), like=latent),
        RunningHistory(known, len(latent), like=latent),
    )
    embedded = decoder.embedding.start_features(head)
    step: Tensor | None = None
    real = latent.new_ones(len(latent), 1)
    made = []
    for place in range(shape.steps):
        token = decoder.embedding.one(embedded, step, running, place)
        out = last.step(decoder.one(token, latent, caches, place))
        own = torch.cat(
            [last.directly(running.before(), weights), last.going_on[place].expand(len(out), 1)], -1
        )
        out = out + own
        if place > 0:
            real = real * (out[:, -1:] + coins[:, place, -1:] > 0)
        seen = (out[:, 1 + shape.value_width : -1] + coins[:, place, :-1] > 0) * real
        numbers = out[:, : 1 + shape.value_width] + spread * step_noise[:, place, : 1 + shape.value_width]
        for each in shape.temporal:
            if each.categorical:
                numbers[:, each.start : each.stop] = _drawn_level(
                    out[:, each.start : each.stop], step_noise[:, place, each.start : each.stop]
                )
        numbers = numbers * torch.cat([real, seen.index_select(-1, known.column_masks)], -1)
        step = torch.cat([numbers, seen, real], -1)
        running.after(step)
        made.append(step)
    return shape.joined(head, torch.stack(made, 1))


def _drawn_head(logits: Tensor, last: LastLayer, noise: Tensor, latent: Tensor) -> Tensor:
    shape = last.shape
    width = shape.static_width
    seen = (logits[:, width:] + torch.logit(_uniform(noise[:, width:])) > 0).to(logits.dtype)
    spread = last.spreads(latent.new_ones(len(latent), 1))[:, :width].exp()
    values = logits[:, :width] + spread * noise[:, :width]
    for each in shape.static:
        here = slice(each.start, each.stop)
        if each.categorical:
            values[:, here] = _drawn_level(logits[:, here], noise[:, here])
        values[:, here] *= seen[:, each.mask : each.mask + 1]
    return torch.cat([values, seen], -1)


def _drawn_level(logits: Tensor, noise: Tensor) -> Tensor:
    chosen = (logits - torch.log(-torch.log(_uniform(noise)))).argmax(-1, keepdim=True)
    return torch.zeros_like(logits).scatter(-1, chosen, 1.0)


def _uniform(noise: Tensor) -> Tensor:
    uniform: Tensor = torch.special.ndtr(noise)
    return uniform.clamp(1e-6, 1 - 1e-6)
