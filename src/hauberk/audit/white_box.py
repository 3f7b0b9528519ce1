"""The adversary who sees every step: all noisy sums, and everything about the other records.

Differential privacy promises to hold against whoever knows the other records and their sampling coins, so the
adversary may subtract what the others contribute. Of each canary and each step one number is kept, the inner
product of what was released with the canary's direction, in units of the sensitivity.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from hauberk.accounting import Event
from hauberk.audit.bounds import Values
from hauberk.audit.canaries import PlacedCanaries, RecordCanaries
from hauberk.gradients import ClippedSum
from hauberk.training.noise import Released, StepNoise
from hauberk.training.sampling import Sampler

_LEAST_NOISE = 1e-3  # in units of the sensitivity: a score needs some, even of a run without
_AT_A_TIME = 128


@dataclass(frozen=True, kw_only=True, eq=False)
class Sighting:
    """One step: every canary's inner product, its length as clipped, and the noise; sensitivity is 1."""

    products: Values
    lengths: Values
    noise: float


def matched_scores(sightings: list[Sighting], *, sampling_rate: float) -> Values:
    """Log-likelihood ratio of in against out, if the noise is Gaussian and fresh in every step.

    ``sum_t ln(1 - q + q exp((a y - a^2 / 2) / z^2))``: a canary that is in is in a step's sample with
    probability q. If the noise is other than it should be this is still a score, and any score is allowed.
    """
    total = np.zeros_like(sightings[0].products)
    stay = math.log1p(-sampling_rate) if sampling_rate < 1 else -math.inf
    for seen in sightings:
        shift = (seen.lengths * seen.products - seen.lengths**2 / 2) / seen.noise**2
        total += np.logaddexp(stay, math.log(sampling_rate) + shift)
    return total


def spread_scores(sightings: list[Sighting]) -> Values:
    """Largest less smallest product over the steps: large for a canary that comes and goes in stale noise."""
    products = np.stack([seen.products for seen in sightings])
    spread: Values = products.max(axis=0) - products.min(axis=0)
    return spread


class CanarySampler:
    """The method's own sampler, which also draws the canaries' rows; the trainer sees the others only.

    ``present`` are the canaries of the present step: drawn, and in.
    """

    def __init__(self, inner: Sampler, *, records: int, coins: Tensor) -> None:
        self._inner, self._records, self._coins = inner, records, coins
        self.present = torch.empty(0, dtype=torch.int64)

    def sample(self, step: int) -> Tensor:
        rows = self._inner.sample(step)
        drawn = rows[rows >= self._records] - self._records
        self.present = drawn[self._coins[drawn]]
        return rows[rows < self._records]


class _WatchedNoise:
    """A method's own noise, with somebody looking at what it releases."""

    def __init__(self, inner: StepNoise) -> None:
        self._inner = inner
        self.looks_at_records = inner.looks_at_records
        self.sightings: list[Sighting] = []

    def events(self, steps: int) -> tuple[Event, ...]:
        return self._inner.events(steps)

    def deviation(self, sensitivity: float) -> float:
        return self._inner.deviation(sensitivity)

    def state(self) -> dict[str, Tensor]:
        return self._inner.state()

    def _noted(self, products: Tensor, lengths: Tensor, sensitivity: float) -> None:
        noise = self._inner.deviation(sensitivity) / sensitivity
        self.sightings.append(
            Sighting(
                products=products.double().cpu().numpy(),
                lengths=lengths.double().cpu().numpy(),
                noise=max(noise, _LEAST_NOISE),
            )
        )


class GradientCanaryNoise(_WatchedNoise):
    """Adds the present canaries to the clipped sum, as long as its sensitivity, before the noise."""

    def __init__(self, inner: StepNoise, sampler: CanarySampler, canaries: PlacedCanaries) -> None:
        super().__init__(inner)
        self._sampler, self._canaries = sampler, canaries

    def release(self, clipped: ClippedSum, step: int) -> Released:
        others = _flat(clipped.gradients)
        sign = -1.0 if step % 2 else 1.0
        present = self._sampler.present.to(others.device)
        signal = sign * clipped.sensitivity * self._canaries.sum_of(present, others)
        both = replace(
            clipped,
            gradients=_parts(others + signal, clipped.gradients),
            records=clipped.records + len(present),
        )
        released = self._inner.release(both, step)
        seen = self._canaries.products(_flat(released.gradients) - others)
        self._noted(sign * seen / clipped.sensitivity, torch.ones_like(seen), clipped.sensitivity)
        return released


class RecordCanaryNoise(_WatchedNoise):
    """Watches records that are in the data: their direction is their own gradient at the present weights.

    The gradient is that of the plain network ``model``, without what a method puts around it; ``trained`` is
    the network in the trainer, which trains the same parameters.
    """

    def __init__(
        self, inner: StepNoise, model: nn.Module, canaries: RecordCanaries, *, trained: nn.Module
    ) -> None:
        super().__init__(inner)
        self._model, self._canaries = model, canaries
        names = {id(weight): name for name, weight in model.named_parameters()}
        self._plain_name = {
            name: names[id(weight)] for name, weight in trained.named_parameters() if id(weight) in names
        }

    def release(self, clipped: ClippedSum, step: int) -> Released:
        released = self._inner.release(clipped, step)
        parts = {
            self._plain_name[name]: part
            for name, part in released.gradients.items()
            if name in self._plain_name
        }
        found = [
            self._products(x, y, parts)
            for x, y in zip(
                self._canaries.x.split(_AT_A_TIME), self._canaries.y.split(_AT_A_TIME), strict=True
            )
        ]
        products, norms = torch.cat([each[0] for each in found]), torch.cat([each[1] for each in found])
        lengths = (norms / clipped.sensitivity).clamp(max=1.0)
        self._noted(products / clipped.sensitivity, lengths, clipped.sensitivity)
        return released

    def _products(self, x: Tensor, y: Tensor, parts: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """With each canary's unit gradient, and the gradients' norms."""
        everything = {
            name: each.detach()
            for name, each in (*self._model.named_parameters(), *self._model.named_buffers())
        }
        weights = {name: everything[name] for name in parts}
        fixed = {name: each for name, each in everything.items() if name not in parts}
        seen = _flat(parts)

        def loss(parameters: Mapping[str, Tensor], one: Tensor, label: Tensor) -> Tensor:
            scores = torch.func.functional_call(self._model, {**fixed, **parameters}, (one.unsqueeze(0),))
            return nn.functional.cross_entropy(scores, label.unsqueeze(0))

        gradients = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0), randomness="different")(
            weights, x.to(seen.device), y.to(seen.device)
        )
        flat = torch.cat([each.flatten(1) for each in gradients.values()], dim=1).double()
        norms = flat.norm(dim=1)
        return (flat @ seen) / norms.clamp(min=1e-30), norms


def _flat(parts: Mapping[str, Tensor]) -> Tensor:
    return torch.cat([part.detach().flatten() for part in parts.values()]).double()


def _parts(vector: Tensor, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    pieces = vector.split([part.numel() for part in like.values()])
    return {
        name: piece.view_as(part).to(part.dtype)
        for (name, part), piece in zip(like.items(), pieces, strict=True)
    }
