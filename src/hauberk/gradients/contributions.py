"""What each record gives to one parameter's gradient, in the form that is cheapest to clip.

Clipping asks two things of a parameter's per-record gradients: their norms, and their sum with one factor per
record. Neither always needs the gradients themselves:

- `Materialised` holds one gradient per record. Its norms are those of the very numbers that are then summed,
  so no rounding on the way can let a record past its bound.
- `OuterProducts` holds layer inputs ``a`` and output gradients ``b`` with ``gradient = sum_t b_t a_t^T`` and
  never forms it ("ghost" norms): ``norm^2 = sum_{t,l} (a_t . a_l)(b_t . b_l)``. That difference of large
  numbers can cancel: where the terms of a record cancel, plain float32 says 0 for a gradient that is not, and
  the record passes unclipped. Here the norm is *raised* by a bound on its rounding error, so that it is never
  too small.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from hauberk.precision import full_precision


class PerRecordGradient(Protocol):
    """Gradients of one parameter, one per record."""

    def norms(self) -> Tensor:
        """l2 norm of each record's gradient, ``(records,)``; never too small, not finite if it overflows."""

    def weighted_sum(self, factors: Tensor) -> Tensor:
        """``sum_i factors[i] * gradient_i`` in the parameter's shape."""

    def materialised(self) -> Tensor:
        """One gradient per record, ``(records, *parameter shape)``."""

    def scaled(self, multiplier: Tensor) -> PerRecordGradient:
        """Each gradient times ``multiplier``, coordinate by coordinate (parameter's shape or one number)."""

    def bytes_held(self) -> int:
        """Memory kept until the sum is taken."""


_RUN = 2**15


def _flat(values: Tensor) -> Tensor:
    """One row per record, also for numbers without an axis and for no records."""
    return values.reshape(len(values), math.prod(values.shape[1:]))


def _row_norms(values: Tensor) -> Tensor:
    """Norms of the norms of runs: a million equal squares added one by one lose a thousandth of the norm."""
    rows = _flat(values)
    whole = rows.shape[1] - rows.shape[1] % _RUN
    norms: Tensor = torch.linalg.vector_norm(rows[:, whole:], dim=1)
    if not whole:
        return norms
    runs = torch.linalg.vector_norm(rows[:, :whole].unflatten(1, (-1, _RUN)), dim=2)
    return torch.hypot(norms, torch.linalg.vector_norm(runs, dim=1))


@dataclass(frozen=True)
class Materialised:
    """One gradient per record. ``order`` puts the stored axes (records left out) into the parameter's."""

    gradients: Tensor
    order: tuple[int, ...] | None = None

    def norms(self) -> Tensor:
        return _row_norms(self.gradients)

    def weighted_sum(self, factors: Tensor) -> Tensor:
        with full_precision():
            flat: Tensor = factors @ _flat(self.gradients)
        total = flat.view(self.gradients.shape[1:])
        return total if self.order is None else total.permute(self.order)

    def materialised(self) -> Tensor:
        if self.order is None:
            return self.gradients
        return self.gradients.permute(0, *(axis + 1 for axis in self.order))

    def scaled(self, multiplier: Tensor) -> Materialised:
        return Materialised(self.materialised() * multiplier)

    def bytes_held(self) -> int:
        return self.gradients.numel() * self.gradients.element_size()


def smallest_squares(values: Tensor) -> float:
    """What rounding to zero may have taken from a sum of squares over the last axis."""
    return values.shape[-1] * torch.finfo(values.dtype).tiny


def gram_norms(inputs: Tensor, gradients: Tensor, overlap: Tensor | None = None) -> Tensor:
    """``|sum_t b_t a_t^T|`` for every record from the products of its positions, and not less.

    ``overlap[i, t, l]`` replaces ``a_t . a_l`` where it is known exactly (embeddings: 1 or 0). The rounding
    error of the double sum is bounded by ``u (sqrt(D) + sqrt(O) + T) (sum_t |a_t| |b_t|)^2`` (u: unit
    roundoff; D, O: lengths of ``a_t`` and ``b_t``; T positions; random rounding errors), which is added.
    """
    with full_precision():
        inner = overlap if overlap is not None else inputs @ inputs.mT
        outer = gradients @ gradients.mT
    positions = gradients.shape[1]
    sizes = (inner.diagonal(dim1=1, dim2=2) + smallest_squares(inputs)).sqrt()
    sizes = sizes * (outer.diagonal(dim1=1, dim2=2) + smallest_squares(gradients)).sqrt()
    roundoff = torch.finfo(outer.dtype).eps / 2
    growth = math.sqrt(inputs.shape[-1]) + math.sqrt(gradients.shape[-1]) + positions
    squares = (inner * outer).sum(dim=(1, 2)).clamp_min(0.0)
    return (squares + roundoff * growth * sizes.sum(1).square()).sqrt()


@dataclass(frozen=True)
class OuterProducts:
    """``gradient_i = sum_t b_it a_it^T``: inputs ``(records, T, D)``, output gradients ``(records, T, O)``.

    ``kernel(factors)`` computes the weighted sum where the framework has one of its own for the layer.
    """

    inputs: Tensor
    gradients: Tensor
    shape: torch.Size
    kernel: Callable[[Tensor], Tensor] | None = None

    def norms(self) -> Tensor:
        if self.gradients.shape[1] > 1:
            return gram_norms(self.inputs, self.gradients)
        inner = _row_norms(self.inputs) + math.sqrt(smallest_squares(self.inputs))
        return inner * (_row_norms(self.gradients) + math.sqrt(smallest_squares(self.gradients)))

    def weighted_sum(self, factors: Tensor) -> Tensor:
        with full_precision():
            if self.kernel is not None:
                return self.kernel(factors)
            weighted = self.gradients * factors[:, None, None]
            total: Tensor = weighted.flatten(0, 1).mT @ self.inputs.flatten(0, 1)
        return total.view(self.shape)

    def materialised(self) -> Tensor:
        return (self.gradients.mT @ self.inputs).view(len(self.gradients), *self.shape)

    def scaled(self, multiplier: Tensor) -> PerRecordGradient:
        if multiplier.numel() == 1:
            size = multiplier.reshape(())
            kernel = None if self.kernel is None else _times(self.kernel, size)
            return OuterProducts(self.inputs, self.gradients * size, self.shape, kernel)
        if self.gradients.shape[1] == 1 and self.kernel is None:
            return ScaledOuterProduct(self, multiplier)
        return Materialised(self.materialised() * multiplier)

    def bytes_held(self) -> int:
        return (self.inputs.numel() + self.gradients.numel()) * self.gradients.element_size()


def _times(kernel: Callable[[Tensor], Tensor], size: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda factors: kernel(factors) * size


@dataclass(frozen=True)
class ScaledOuterProduct:
    """One position per record, every coordinate with a multiplier: ``m_oj b_o a_j``.

    ``norm^2 = sum_oj b_o^2 m_oj^2 a_j^2`` is one matrix product, and nothing in it can cancel.
    """

    product: OuterProducts
    multiplier: Tensor

    def norms(self) -> Tensor:
        inputs, gradients = self.product.inputs[:, 0], self.product.gradients[:, 0]
        multiplier = self.multiplier.expand(self.product.shape).reshape(gradients.shape[1], inputs.shape[1])
        # divided by the largest of each, squares cannot overflow, and what they lose below `tiny` is added
        tiny = torch.finfo(inputs.dtype).tiny
        sizes = [each.abs().amax(dim=1).clamp_min(tiny) for each in (inputs, gradients)]
        largest = multiplier.abs().amax()
        inputs, gradients = inputs / sizes[0].unsqueeze(1), gradients / sizes[1].unsqueeze(1)
        with full_precision():
            weights = gradients.square() @ (multiplier / largest).square()
        lost = 4 * multiplier.numel() * tiny
        return ((weights * inputs.square()).sum(1) + lost).sqrt() * sizes[0] * largest * sizes[1]

    def weighted_sum(self, factors: Tensor) -> Tensor:
        return self.product.weighted_sum(factors) * self.multiplier

    def materialised(self) -> Tensor:
        return self.product.materialised() * self.multiplier

    def scaled(self, multiplier: Tensor) -> PerRecordGradient:
        return ScaledOuterProduct(self.product, self.multiplier * multiplier)

    def bytes_held(self) -> int:
        return self.product.bytes_held()
