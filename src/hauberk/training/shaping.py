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


class HistoryShaping:
    """Scales from running moments of the released gradient; a subclass says which function of them.

    ``centre`` is the running mean. ``square`` is the running square around it, less the noise that the
    mechanism is known to have added, never below a tenth of its average over the parameter: the noise leaves
    no more than that to be seen in a single coordinate.
    """

    centred = False

    def __init__(self, weights: Weights, moments: Moments | None = None) -> None:
        self._moments = moments or Moments()
        self._mean = {name: torch.zeros_like(weight) for name, weight in weights.items()}
        self._square = {name: torch.ones_like(weight) for name, weight in weights.items()}
        self._scale = {name: torch.ones_like(weight) for name, weight in weights.items()}
        self._centre = {name: torch.zeros_like(weight) for name, weight in weights.items()}
        self._seen = torch.zeros((), dtype=torch.int64)
        self._pruning = ReleasedPruning(weights, self._moments.pruned) if self._moments.pruned else None
        # tensors that stay where they are: a recorded CUDA graph reads them in place
        self.geometry = Geometry(
            self._scale,
            centre=self._centre if self.centred else None,
            mask=None if self._pruning is None else self._pruning.mask,
        )

    def relative_scales(self, mean: Tensor, square: Tensor) -> Tensor:
        """Up to a factor, the scales for one parameter."""
        raise NotImplementedError

    def observe(self, released: Weights, noise: float) -> None:
        self._seen += 1
        decay = min(self._moments.decay, float(self._seen) / (float(self._seen) + 1))
        first = int(self._seen) == 1
        for name, gradient in released.items():
            square = (gradient - self._mean[name]).square() - (noise * self._scale[name]).square()
            self._mean[name].lerp_(gradient, 1 - decay)
            self._square[name].lerp_(square, 1.0 if first else 1 - decay)
        self._rescale()
        if self.centred:
            for name, centre in self._centre.items():
                centre.copy_(self._mean[name])
        if self._pruning is not None:
            self._pruning.choose(self._mean, int(self._seen))

    def applied(self, released: Weights) -> dict[str, Tensor]:
        return dict(released) if self._pruning is None else self._pruning.applied(released)

    def _rescale(self) -> None:
        """Scales with a mean square of 1 over all coordinates: the noise keeps its total power."""
        relative = {}
        for name, mean in self._mean.items():
            square = self._square[name]
            typical = square.clamp_min(0.0).mean().clamp_min(torch.finfo(square.dtype).tiny)
            relative[name] = self.relative_scales(mean, square.clamp_min(0.1 * typical))
        middle = torch.cat([each.flatten() for each in relative.values()]).double().log().mean().exp()
        ratio = self._moments.largest_ratio
        bounded = {
            name: (each / middle).clamp(1 / ratio, ratio).to(each.dtype) for name, each in relative.items()
        }
        total = sum(float(each.double().square().sum()) for each in bounded.values())
        count = sum(each.numel() for each in bounded.values())
        for name, scale in self._scale.items():
            scale.copy_(bounded[name] * (count / total) ** 0.5)

    def state(self) -> dict[str, Tensor]:
        parts = {"mean": self._mean, "square": self._square, "scale": self._scale, "centre": self._centre}
        tensors = {f"{kind}/{name}": value for kind, each in parts.items() for name, value in each.items()}
        if self._pruning is not None:
            tensors |= self._pruning.state()
        return {**tensors, "seen": self._seen}


class ReleasedPruning:
    """Pruning with error feedback (002 section 6.1, made sound): both look at released gradients only.

    A step takes the coordinates with the largest running mean and, in turn, some of the others, so that none
    is forgotten. What is released for the others waits and moves the weights when they are among the largest:
    the feedback of what was released, not of what was left out.
    """

    PROBED = 0.2  # of the coordinates that a step takes

    def __init__(self, weights: Weights, pruned: float) -> None:
        self._kept = 1 - pruned
        self.mask = {name: torch.ones_like(weight) for name, weight in weights.items()}
        self._largest = {name: torch.ones_like(weight) for name, weight in weights.items()}
        self._waiting = {name: torch.zeros_like(weight) for name, weight in weights.items()}

    def choose(self, mean: Weights, step: int) -> None:
        sizes = torch.cat([each.abs().flatten() for each in mean.values()])
        count = max(1, round(len(sizes) * self._kept * (1 - self.PROBED)))
        least = sizes.topk(count).values[-1]
        period = max(1, round(1 / (self._kept * self.PROBED)))
        start = 0
        for name, each in mean.items():
            self._largest[name].copy_(each.abs() >= least)
            places = torch.arange(start, start + each.numel(), device=each.device).view_as(each)
            probed = (places + step) % period == 0
            self.mask[name].copy_(self._largest[name].bool() | probed)
            start += each.numel()

    def applied(self, released: Weights) -> dict[str, Tensor]:
        now = {}
        for name, each in released.items():
            self._waiting[name] += each
            now[name] = self._waiting[name] * self._largest[name]
            self._waiting[name] -= now[name]
        return now

    def state(self) -> dict[str, Tensor]:
        parts = {"mask": self.mask, "largest": self._largest, "waiting": self._waiting}
        return {f"{kind}/{name}": value for kind, each in parts.items() for name, value in each.items()}


class PlainShaping(HistoryShaping):
    """No shape at all: for pruning alone."""

    def relative_scales(self, mean: Tensor, square: Tensor) -> Tensor:
        return torch.ones_like(mean)


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
        importance = mean.abs()
        floor = (0.1 * importance.mean()).clamp_min(torch.finfo(mean.dtype).tiny)
        return (square / importance.clamp_min(floor)).pow(1 / 3)
