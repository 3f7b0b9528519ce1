"""Noise shaped by what training has released so far: post-processing, free of privacy cost.

A shaping owns a `Geometry` and moves it after every step, looking at nothing but the noisy mean gradients
that the accounted mechanism has released. Clipping in that geometry bounds a record's influence whatever the
scales are: a bad estimate costs accuracy, never privacy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from hauberk.errors import RequestError
from hauberk.gradients import Geometry

Weights = Mapping[str, Tensor]


class Shaping(Protocol):
    """What `PrivateTrainer` asks of a shaping."""

    geometry: Geometry

    def observe(self, released: Weights, noise: float) -> None:
        """Learn from a released mean gradient; ``noise`` is its deviation where the scale is 1."""

    def applied(self, released: Weights) -> dict[str, Tensor]:
        """The part of a released gradient that moves the weights now."""

    def state(self) -> dict[str, Tensor]:
        """What must survive an interruption, as named tensors that are written in place on restoring."""


@dataclass(frozen=True, kw_only=True)
class Moments:
    """Settings of the running estimates: how slowly they move, and how far scales may lie apart."""

    decay: float = 0.95
    largest_ratio: float = 10.0
    pruned: float = 0.0  # part of the coordinates that a step leaves out

    def __post_init__(self) -> None:
        if not 0 <= self.decay < 1:
            raise RequestError(f"decay must lie in [0, 1), got {self.decay}")
        if not 1 <= self.largest_ratio < float("inf"):
            raise RequestError(f"largest_ratio must be at least 1, got {self.largest_ratio}")
        if not 0 <= self.pruned < 1:
            raise RequestError(f"the pruned part must lie in [0, 1), got {self.pruned}")


class AllCoordinates:
    """The coordinates of all parameters in one long vector, of which each parameter sees its part in place.

    A step of training a small network is many small operations; one operation on everything costs as much as
    one on a bias.
    """

    def __init__(self, weights: Weights) -> None:
        self._shapes = {name: weight.shape for name, weight in weights.items()}
        self._sizes = [weight.numel() for weight in weights.values()]
        empty = [weight.detach().flatten()[:0] for weight in weights.values()]
        self._like = torch.cat(empty or [torch.empty(0)])
        self.count = sum(self._sizes)

    def filled(self, value: float) -> Tensor:
        return self._like.new_full((self.count,), value)

    def together(self, parts: Weights) -> Tensor:
        """A new vector; ``parts`` may come in any order."""
        return torch.cat([parts[name].flatten() for name in self._shapes])

    def parts(self, vector: Tensor) -> dict[str, Tensor]:
        """The vector by parameters: views, which follow it."""
        pieces = vector.split(self._sizes)
        return {
            name: piece.view(shape) for (name, shape), piece in zip(self._shapes.items(), pieces, strict=True)
        }

    def raised(self, sizes: Tensor) -> Tensor:
        """``sizes``, changed in place: none below a tenth of its parameter's average, and none zero."""
        sizes.clamp_min_(torch.finfo(sizes.dtype).tiny)
        parts = list(sizes.split(self._sizes))
        torch._foreach_maximum_(parts, torch._foreach_mul([part.mean() for part in parts], 0.1))
        return sizes


class HistoryShaping:
    """Scales from running moments of the released gradient; a subclass says which function of them.

    The centre is the running mean. ``square`` is the running square around it, less the noise that the
    mechanism is known to have added, never below a tenth of its average over the parameter: the noise leaves
    no more than that to be seen in a single coordinate.
    """

    centred = False

    def __init__(self, weights: Weights, moments: Moments | None = None) -> None:
        self._moments = moments or Moments()
        self._all = AllCoordinates(weights)
        self._mean, self._square, self._scale = (self._all.filled(value) for value in (0.0, 1.0, 1.0))
        self._seen = torch.zeros((), dtype=torch.int64)
        self._pruning = ReleasedPruning(self._all, self._moments.pruned) if self._moments.pruned else None
        # tensors that stay where they are: a recorded CUDA graph reads them in place
        self.geometry = Geometry(
            self._all.parts(self._scale),
            centre=self._all.parts(self._mean) if self.centred else None,
            mask=None if self._pruning is None else self._all.parts(self._pruning.mask),
        )

    def relative_scales(self, mean: Tensor, square: Tensor) -> Tensor:
        """Up to a factor, the scales of all coordinates."""
        raise NotImplementedError

    def observe(self, released: Weights, noise: float) -> None:
        self._seen += 1
        seen = int(self._seen)
        decay = min(self._moments.decay, seen / (seen + 1))
        gradient = self._all.together(released)
        square = (gradient - self._mean).square_() - (noise * self._scale).square_()
        self._mean.lerp_(gradient, 1 - decay)
        self._square.lerp_(square, 1.0 if seen == 1 else 1 - decay)
        self._rescale()
        if self._pruning is not None:
            self._pruning.choose(self._mean, seen)

    def applied(self, released: Weights) -> dict[str, Tensor]:
        if self._pruning is None:
            return dict(released)
        return self._all.parts(self._pruning.applied(self._all.together(released)))

    def _rescale(self) -> None:
        """Scales with a mean square of 1 over all coordinates: the noise keeps its total power."""
        relative = self.relative_scales(self._mean, self._all.raised(self._square.clone()))
        middle = relative.double().log_().mean().exp()
        ratio = self._moments.largest_ratio
        bounded = (relative / middle).clamp_(1 / ratio, ratio)
        power = bounded.double().square_().mean()
        torch.mul(bounded, power.rsqrt(), out=self._scale)

    def state(self) -> dict[str, Tensor]:
        vectors = {"mean": self._mean, "square": self._square, "scale": self._scale}
        if self._pruning is not None:
            vectors |= self._pruning.state()
        tensors = {
            f"{kind}/{name}": part
            for kind, vector in vectors.items()
            for name, part in self._all.parts(vector).items()
        }
        return {**tensors, "seen": self._seen}


class ReleasedPruning:
    """Pruning with error feedback (002 section 6.1, made sound): both look at released gradients only.

    A step takes the coordinates with the largest running mean and, in turn, some of the others, so that none
    is forgotten. What is released for the others waits and moves the weights when they are among the largest:
    the feedback of what was released, not of what was left out.
    """

    PROBED = 0.2  # of the coordinates that a step takes

    def __init__(self, coordinates: AllCoordinates, pruned: float) -> None:
        self._kept = 1 - pruned
        self.mask, self._largest = coordinates.filled(1.0), coordinates.filled(1.0)
        self._waiting = coordinates.filled(0.0)

    def choose(self, mean: Tensor, step: int) -> None:
        sizes = mean.abs()
        count = max(1, round(len(sizes) * self._kept * (1 - self.PROBED)))
        least = sizes.topk(count, sorted=False).values.amin()
        period = max(1, round(1 / (self._kept * self.PROBED)))
        self._largest.copy_(sizes >= least)
        self.mask.copy_(self._largest)
        self.mask[-step % period :: period] = 1.0

    def applied(self, released: Tensor) -> Tensor:
        self._waiting += released
        now = self._waiting * self._largest
        self._waiting -= now
        return now

    def state(self) -> dict[str, Tensor]:
        return {"mask": self.mask, "largest": self._largest, "waiting": self._waiting}


class PlainShaping(HistoryShaping):
    """No shape at all, for pruning alone: all scales stay 1."""

    def _rescale(self) -> None:
        pass


class AdaClipShaping(HistoryShaping):
    """AdaClip (Pichapati et al. 2019): gradients centred by the running mean, scales ``m_i^(1/4)``.

    ``m_i`` is the mean square of a gradient coordinate; this shape adds the least noise in total for a given
    expected norm of the scaled gradient.
    """

    centred = True

    def relative_scales(self, mean: Tensor, square: Tensor) -> Tensor:
        return square.pow(0.25)


class DirectionalShaping(HistoryShaping):
    """002 repaired: scales ``(m_i / |w_i|)^(1/3)``, its own first-order condition (Eq. 11).

    ``w_i``, the cost's sensitivity to coordinate ``i``, is the running mean of the released gradient; ``m_i``
    takes the place of the worst-case ``Delta_i^2``, for which no direction may be singled out: the worst case
    is the clipping's business.
    """

    def relative_scales(self, mean: Tensor, square: Tensor) -> Tensor:
        return (square / self._all.raised(mean.abs())).pow_(1 / 3)
