"""The networks that all neural synthesizers are built of, on packed rows (`hauberk.synthesis.packing`).

Linear layers only, shared by all steps of a patient and without batch statistics: every layer has a cheap
per-record gradient rule, and no record sees another. A step's place in the stay enters as fixed cosines. The
number of weights hardly grows with the number of steps, which is what privacy noise asks for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu, relu, softplus

from hauberk.synthesis.packing import Columns, RowShape
from hauberk.synthesis.scales import Scales

COSINES = 8
SLOPE = 0.2  # of leaky rectifiers in critics
SOFTNESS = 0.5  # temperature of relaxed coins and levels
_SMALLEST_SPREAD = -2.5  # logarithm of a standard deviation, in scores
_LARGEST_SPREAD = 0.5


def step_cosines(steps: int) -> Tensor:
    """(T, COSINES): the place of a step in the stay, from slow to fast."""
    place = (torch.arange(steps) + 0.5) / steps
    return torch.cos(math.pi * place[:, None] * torch.arange(COSINES))


class Encoder(nn.Module):
    """A row to ``outputs`` numbers: every step by itself, their mean, then with the static columns.

    Padding counts as zero in the mean over all T steps; T is public. An encoder does not see the outcome,
    which is drawn last, from the finished row. A ``critic`` sees all.
    """

    cosines: Tensor
    kept: Tensor

    def __init__(self, shape: RowShape, *, width: int, outputs: int, critic: bool = False) -> None:
        super().__init__()
        self.shape, self._slope = shape, SLOPE if critic else 0.0
        self.register_buffer("cosines", step_cosines(shape.steps), persistent=False)
        kept = torch.ones(shape.head) if critic else shape.head_without_outcome()
        self.register_buffer("kept", kept, persistent=False)
        self.step = nn.Linear(shape.step_width + COSINES, width)
        self.whole = nn.Linear(width + shape.head, width)
        self.out = nn.Linear(width, outputs)

    def forward(self, rows: Tensor) -> Tensor:
        head, steps = self.shape.parts(rows)
        real = steps[..., -1:]
        places = self.cosines.expand(*steps.shape[:-1], COSINES)
        hidden = leaky_relu(self.step(torch.cat([steps, places], -1)), self._slope) * real
        together = torch.cat([hidden.mean(-2), head * self.kept], -1)
        found: Tensor = self.out(leaky_relu(self.whole(together), self._slope))
        return found


class Decoder(nn.Module):
    """Latent numbers to the distribution of a row: means of scores, logits of levels, masks and real steps.

    ``spread`` holds one logarithm of a standard deviation for each column, whatever the latent numbers;
    ``going_on`` what the released lengths say about the logit of one more step, to which the network adds.
    """

    cosines: Tensor
    going_on: Tensor

    def __init__(self, shape: RowShape, *, width: int, latent: int) -> None:
        super().__init__()
        self.shape, self.latent = shape, latent
        self.register_buffer("cosines", step_cosines(shape.steps), persistent=False)
        self.register_buffer("going_on", torch.zeros(shape.steps))
        self.first = nn.Linear(latent, width)
        # without static features one output that nobody reads: layers must have some
        self.head = nn.Linear(width, max(1, shape.head))
        self.carried = nn.Linear(width, width)
        self.place = nn.Linear(COSINES, width, bias=False)
        self.step = nn.Linear(width, shape.step_width)
        self.spread = nn.Linear(1, shape.static_width + 1 + shape.value_width, bias=False)
        nn.init.constant_(self.spread.weight, -0.3)

    def forward(self, latent: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """``(..., head)``, ``(..., T, step_width)`` and the spreads ``(..., columns)``."""
        before = latent.shape[:-1]
        hidden = relu(self.first(latent))
        places = self.cosines.expand(*before, *self.cosines.shape)
        steps = relu(self.carried(hidden).unsqueeze(-2) + self.place(places))
        spread = self.spread(latent.new_ones(*before, 1)).clamp(_SMALLEST_SPREAD, _LARGEST_SPREAD)
        out = self.step(steps)
        out = torch.cat([out[..., :-1], (out[..., -1] + self.going_on)[..., None]], -1)
        return self.head(hidden)[..., : self.shape.head], out, spread

    def start_from(self, scales: Scales) -> None:
        """Biases as the released scales have them, so that training begins at the pooled frequencies."""
        shape, schema = self.shape, scales.schema
        with torch.no_grad():
            for layer in (self.head, self.step):
                layer.weight.mul_(0.3)  # else chance would tie the outcome to whatever it likes
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
            self.going_on.copy_(torch.logit(follows.clamp(0.002, 0.998)))


def negative_log_likelihood(
    outputs: tuple[Tensor, Tensor, Tensor], rows: Tensor, shape: RowShape, *, head_weight: float
) -> Tensor:
    """Of each row under the decoder's distribution, per step: one number a row.

    Numbers are Gaussian in scores, levels categorical, masks and going on Bernoulli. Terms of missing values
    and of padding are left out (losses on masked data, 004 section 4.2.2). ``head_weight`` counts the static
    features and the outcome among them, which are few beside the steps, as if there were so many of them.
    """
    head, steps, spread = outputs
    true_head, true_steps = shape.parts(rows)
    real = true_steps[..., -1]
    static_seen = true_head[..., shape.static_width :]
    # without the outcome, which is drawn from the finished row (`hauberk.synthesis.outcome_head`)
    static = _columns_cost(
        head,
        true_head * shape.head_without_outcome_value(),
        spread[..., : shape.static_width],
        shape.static,
        static_seen,
        first=0,
    )
    static = static + _coin_cost(head[..., shape.static_width :], static_seen).sum(-1)
    seen = true_steps[..., 1 + shape.value_width : -1]
    step_spread = spread[..., None, shape.static_width :]
    gap = _gaussian_cost(steps[..., 0], true_steps[..., 0], step_spread[..., 0])
    values = _columns_cost(steps, true_steps, step_spread[..., 1:], shape.temporal, seen, first=1)
    presence = _coin_cost(steps[..., 1 + shape.value_width : -1], seen).sum(-1)
    temporal = ((gap + values + presence) * real).sum(-1)
    # whether a step follows is asked at every real step but the last possible one
    going_on = (_coin_cost(steps[..., 1:, -1], real[..., 1:]) * real[..., :-1]).sum(-1)
    return (head_weight * static + temporal + going_on) / shape.steps


def _gaussian_cost(mean: Tensor, value: Tensor, log_deviation: Tensor) -> Tensor:
    return 0.5 * ((value - mean) * torch.exp(-log_deviation)).square() + log_deviation


def _coin_cost(logit: Tensor, coin: Tensor) -> Tensor:
    return softplus(logit) - coin * logit


def _columns_cost(
    outputs: Tensor, truth: Tensor, spread: Tensor, columns: tuple[Columns, ...], seen: Tensor, *, first: int
) -> Tensor:
    """Summed over the features that are observed."""
    if not columns:
        return outputs.new_zeros(outputs.shape[:-1])
    here = slice(first, columns[-1].stop)
    # all columns as if they were numbers, those of levels with weight 0: gathering some of them is slower
    masks = [each.mask for each in columns for _ in range(each.width)]
    numbers = [float(not each.categorical) for each in columns for _ in range(each.width)]
    weights = seen[..., masks] * seen.new_tensor(numbers)
    cost = (_gaussian_cost(outputs[..., here], truth[..., here], spread) * weights).sum(-1)
    for each in columns:
        if each.categorical:
            levels = slice(each.start, each.stop)
            cost = cost - (outputs[..., levels].log_softmax(-1) * truth[..., levels]).sum(-1)
    return cost


def persistent(noise: Tensor, shape: RowShape, share: float) -> Tensor:
    """The same standard normals, where values of later steps keep ``share`` of the first step's.

    Each entry stays standard normal. Two later steps have correlation ``share^2``: a patient whose pressure
    is low at one step is likely to have it low at the others, whatever the decoder knows of it.
    """
    head, steps = shape.parts(noise)
    kept = steps.new_zeros(shape.step_width)
    kept[1 : 1 + shape.value_width] = share  # not of gaps and of what is measured: those are new each time
    later = kept * steps[..., :1, :] + (1 - kept.square()).sqrt() * steps[..., 1:, :]
    return shape.joined(head, torch.cat([steps[..., :1, :], later], -2))


def draw(outputs: tuple[Tensor, Tensor, Tensor], noise: Tensor, shape: RowShape) -> Tensor:
    """Rows sampled from the decoder's distribution by ``noise``, ``shape.width`` standard normals a row.

    Coins and levels are exact in value and relaxed in gradient (straight through), so that critics see 0 and
    1 and generators still learn. What is not observed, or padding, is 0.
    """
    head, steps, spread = outputs
    head_noise, step_noise = shape.parts(noise)
    static_seen = _coin(head[..., shape.static_width :], head_noise[..., shape.static_width :])
    static = _drawn_columns(head, head_noise, spread[..., : shape.static_width], shape.static, static_seen, 0)
    seen_places = slice(1 + shape.value_width, -1)
    goes_on = _coin(steps[..., -1], step_noise[..., -1])
    goes_on = torch.cat([torch.ones_like(goes_on[..., :1]), goes_on[..., 1:]], -1)
    real = goes_on.cumprod(-1)[..., None]
    seen = _coin(steps[..., seen_places], step_noise[..., seen_places]) * real
    step_spread = spread[..., None, shape.static_width :]
    gap = (steps[..., :1] + step_spread[..., :1].exp() * step_noise[..., :1]) * real
    values = _drawn_columns(steps, step_noise, step_spread[..., 1:], shape.temporal, seen, 1)
    return shape.joined(torch.cat([static, static_seen], -1), torch.cat([gap, values, seen, real], -1))


def _uniform(noise: Tensor) -> Tensor:
    uniform: Tensor = torch.special.ndtr(noise)
    return uniform.clamp(1e-6, 1 - 1e-6)


def _coin(logit: Tensor, noise: Tensor) -> Tensor:
    moved = logit + torch.logit(_uniform(noise))
    soft = torch.sigmoid(moved / SOFTNESS)
    return soft + ((moved > 0).to(soft.dtype) - soft).detach()


def _drawn_columns(
    outputs: Tensor, noise: Tensor, spread: Tensor, columns: tuple[Columns, ...], seen: Tensor, first: int
) -> Tensor:
    parts = []
    for each in columns:
        here = slice(each.start, each.stop)
        if each.categorical:
            gumbel = -torch.log(-torch.log(_uniform(noise[..., here])))
            soft = ((outputs[..., here] + gumbel) / SOFTNESS).softmax(-1)
            hard = torch.zeros_like(soft).scatter(-1, soft.argmax(-1, keepdim=True), 1.0)
            column = soft + (hard - soft).detach()
        else:
            column = (
                outputs[..., here]
                + spread[..., here.start - first : here.stop - first].exp() * noise[..., here]
            )
        parts.append(column * seen[..., each.mask : each.mask + 1])
    return torch.cat(parts, -1) if parts else outputs[..., :0]


class LatentNetwork(nn.Module):
    """Two layers between latent numbers: the generator of latent numbers, and the critic that judges them."""

    def __init__(self, inputs: int, *, width: int, outputs: int) -> None:
        super().__init__()
        self.first = nn.Linear(inputs, width)
        self.second = nn.Linear(width, width)
        self.out = nn.Linear(width, outputs)

    def forward(self, numbers: Tensor) -> Tensor:
        hidden = leaky_relu(self.first(numbers), SLOPE)
        found: Tensor = self.out(leaky_relu(self.second(hidden), SLOPE))
        return found


def turned(values: Tensor, strength: float) -> Tensor:
    """``values``, through which gradients pass backwards with the opposite sign, times ``strength``.

    A critic behind it goes down its loss while what is before it goes up: one loss, one gradient, one clip.
    """
    return (1 + strength) * values.detach() - strength * values


@torch.no_grad()
def bound_spectral_norms(critics: Iterable[nn.Module], *, bound: float = 1.0) -> None:
    """Divide every weight matrix whose largest singular value exceeds ``bound`` down to it.

    With rectifiers of slope at most 1 a critic of L layers then has Lipschitz constant at most ``bound^L`` in
    the l2 norm of each layer's input. A function of released weights: post-processing.
    """
    for critic in critics:
        for layer in critic.modules():
            if isinstance(layer, nn.Linear):
                weight = layer.weight
                short = weight @ weight.T if len(weight) <= weight.shape[1] else weight.T @ weight
                largest = torch.linalg.eigvalsh(short.double())[-1].clamp_min(0.0).sqrt().to(weight)
                weight.div_((largest / bound).clamp_min(1.0))
