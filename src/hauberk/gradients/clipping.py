"""Ways to bound what one record can do to a sum of gradients. Each says what it guarantees: `sensitivity`.

A clipping turns the norms of a record's gradient (one per parameter) into factors (one per parameter).
Whatever it does, for every record ``|(factor_p * gradient_p)_p| <= sensitivity`` in l2 over all parameters
together: that is the only thing privacy asks of it, and the tests search for a record that breaks it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from hauberk.errors import RequestError

SMALLEST_BOUND = 1e-12


class Clipping(Protocol):
    """What `ClippedGradients` needs of a clipping."""

    @property
    def sensitivity(self) -> float:
        """Adding or removing a record moves the clipped sum by at most this in l2."""

    def factors(self, norms: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """For every parameter one factor in [0, 1] or more per record; 0 for all where a norm is not finite.

        A record whose gradient overflows or is NaN contributes nothing: its influence would be unbounded.
        """


def check_bound(bound: float) -> None:
    """Squares of float32 numbers below 1e-23 vanish, and a norm must never come out smaller than it is."""
    if not SMALLEST_BOUND <= bound < float("inf"):
        raise RequestError(f"clip must be positive (at least {SMALLEST_BOUND:g}) and finite, got {bound}")


def joint_norm(norms: Mapping[str, Tensor]) -> Tensor:
    """l2 norm over several parameters together."""
    return torch.stack(list(norms.values())).square().sum(0).sqrt()


def clip_factors(norms: Tensor, bound: float) -> Tensor:
    """``min(1, bound / norm)`` for each record; 0 where the norm is not finite."""
    factors = (bound / norms.clamp_min(torch.finfo(norms.dtype).tiny)).clamp_max(1.0)
    return torch.where(norms.isfinite(), factors, 0.0)


@dataclass(frozen=True)
class FlatClip:
    """The whole gradient to l2 norm at most ``bound`` (Abadi et al. 2016). Sensitivity: ``bound``."""

    bound: float

    def __post_init__(self) -> None:
        check_bound(self.bound)

    @property
    def sensitivity(self) -> float:
        return self.bound

    def factors(self, norms: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return dict.fromkeys(norms, clip_factors(joint_norm(norms), self.bound))


@dataclass(frozen=True)
class AutomaticClip:
    """Every gradient *normalised*: times ``bound / (norm + stability)`` (Bu et al. 2023).

    Sensitivity: ``bound``, never quite reached. Small gradients are stretched, so the bound needs no tuning
    against their size; only its product with the learning rate matters.
    """

    bound: float = 1.0
    stability: float = 0.01

    def __post_init__(self) -> None:
        check_bound(self.bound)
        if not SMALLEST_BOUND <= self.stability < float("inf"):
            raise RequestError(
                f"the stability of automatic clipping must be at least {SMALLEST_BOUND:g}, "
                f"got {self.stability}"
            )

    @property
    def sensitivity(self) -> float:
        return self.bound

    def factors(self, norms: Mapping[str, Tensor]) -> dict[str, Tensor]:
        joint = joint_norm(norms)
        factors = torch.where(joint.isfinite(), self.bound / (joint + self.stability), 0.0)
        return dict.fromkeys(norms, factors)


@dataclass(frozen=True)
class PerLayerClip:
    """Every layer's gradient to a bound of its own. Sensitivity: ``sqrt(sum of bounds^2)``.

    ``bounds`` is one number (the joint sensitivity, shared equally by the layers) or one bound per layer, by
    the layer's path in the model. The noise is the same for all layers; for noise in proportion to each
    layer's bound, clip to equal bounds under a `Geometry` that holds them.
    """

    bounds: float | Mapping[str, float]

    def __post_init__(self) -> None:
        for bound in [self.bounds] if isinstance(self.bounds, int | float) else self.bounds.values():
            check_bound(bound)

    @property
    def sensitivity(self) -> float:
        if isinstance(self.bounds, int | float):
            return float(self.bounds)
        return math.hypot(*self.bounds.values())

    def factors(self, norms: Mapping[str, Tensor]) -> dict[str, Tensor]:
        layers: dict[str, dict[str, Tensor]] = {}
        for name, norm in norms.items():
            layers.setdefault(layer_of(name), {})[name] = norm
        finite = joint_norm(norms).isfinite()
        factors: dict[str, Tensor] = {}
        for layer, own in layers.items():
            bound = self._bound_of(layer, count=len(layers))
            factors |= dict.fromkeys(own, torch.where(finite, clip_factors(joint_norm(own), bound), 0.0))
        return factors

    def _bound_of(self, layer: str, *, count: int) -> float:
        if isinstance(self.bounds, int | float):
            return self.bounds / math.sqrt(count)
        if layer not in self.bounds:
            raise RequestError(
                f"per-layer clipping has no bound for the layer {layer!r}; it has {', '.join(self.bounds)}"
            )
        return self.bounds[layer]


def layer_of(parameter: str) -> str:
    """The path of the layer that a parameter's name belongs to: all but the last part."""
    return parameter.rpartition(".")[0]


@dataclass(kw_only=True)
class AdaptiveClip:
    """A flat bound that follows a quantile of the gradients' norms, privately (Andrew et al. 2021).

    After every step the number of records below the bound is released too, with Gaussian noise of standard
    deviation ``count_deviation``, and the bound moves by ``exp(-rate * (share below - quantile))``. Counted
    as ``sum (b_i - 1/2)``, that release has sensitivity 1/2. It comes from the same Poisson sample as the
    gradient, so both are **one** event: for a plan's noise multiplier ``z`` the gradient gets the slightly
    larger ``(z^-2 - (2 count_deviation)^-2)^(-1/2)``, and the plan's epsilon stays what it was.
    """

    bound: float
    quantile: float = 0.5
    rate: float = 0.2
    count_deviation: float = 10.0
    largest: float = 1e6
    smallest: float = 1e-6

    def __post_init__(self) -> None:
        check_bound(self.smallest)
        if not self.smallest <= self.bound <= self.largest < float("inf"):
            raise RequestError(f"the bound must lie in [{self.smallest}, {self.largest}], got {self.bound}")
        if not 0 < self.quantile < 1:
            raise RequestError(f"the quantile must lie strictly between 0 and 1, got {self.quantile}")
        if not (0 < self.rate < float("inf") and 0 < self.count_deviation < float("inf")):
            raise RequestError("rate and count deviation of adaptive clipping must be positive numbers")

    @property
    def sensitivity(self) -> float:
        return self.bound

    def factors(self, norms: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return FlatClip(self.bound).factors(norms)

    def gradient_noise_multiplier(self, joint: float) -> float:
        """What the gradient must get so that gradient and count together are worth ``joint``."""
        left = joint**-2 - (2 * self.count_deviation) ** -2
        if left <= 0:
            raise RequestError(
                f"a count deviation of {self.count_deviation:g} spends all of noise multiplier {joint:g}: "
                f"it must exceed {joint / 2:.3g}"
            )
        return 1 / math.sqrt(left)

    def follow(self, *, records: int, clipped: int, normal: float, batch: int) -> None:
        """Move the bound by one released count; ``normal`` is a fresh standard normal, ``batch`` public."""
        released = records / 2 - clipped + self.count_deviation * normal
        below = min(1.0, max(0.0, 0.5 + released / batch))
        moved = self.bound * math.exp(-self.rate * (below - self.quantile))
        self.bound = min(self.largest, max(self.smallest, moved))
