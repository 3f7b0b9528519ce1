"""Clipped per-record gradients by the general path: ``torch.func``, any model, any per-record loss.

The loss is a function of *one* record (with all its views) and of the parameters. It may do anything
inside: average noisy copies, add penalties on gradients, run an attack. Other passes through the model leave
no trace here, because nothing is recorded: the gradient is a pure function.

This path is the reference that faster ones must agree with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from hauberk.errors import RequestError
from hauberk.gradients.record_mixing import refuse_record_mixing

SMALLEST_BOUND = 1e-12

Predict = Callable[[Tensor], Tensor]
RecordLoss = Callable[[Predict, Tensor, Tensor], Tensor]
"""``loss(predict, views, label)``: one record's loss; ``views`` is ``(K, *shape)``, ``label`` a scalar."""


def mean_cross_entropy(predict: Predict, views: Tensor, label: Tensor) -> Tensor:
    """Averaged over the record's views, *before* clipping: K views cost what one record costs."""
    return nn.functional.cross_entropy(predict(views), label.expand(views.shape[0]))


@dataclass(frozen=True, kw_only=True)
class ClippedSum:
    """A sum over records of gradients clipped to l2 norm at most ``sensitivity``.

    Guarantee: adding or removing one record moves the sum by at most ``sensitivity`` in l2 norm over all
    parameters together (up to float32 rounding).

    ``records``, ``clipped`` and ``loss`` are private diagnostics: they were computed from the records without
    noise and must not leave the run's ``private`` folder.
    """

    gradients: dict[str, Tensor]
    sensitivity: float
    records: int
    clipped: int
    loss: float


def trainable(model: nn.Module) -> dict[str, Tensor]:
    """The parameters that training may change, by name; ``requires_grad=False`` is honoured."""
    return {name: weight.detach() for name, weight in model.named_parameters() if weight.requires_grad}


def clip_factors(squared_norms: Tensor, bound: float) -> Tensor:
    """``min(1, bound / norm)`` for each record; 0 where the norm is not finite.

    A record whose gradient overflows or is NaN contributes nothing: its influence would be unbounded.
    """
    norms = squared_norms.sqrt()
    factors = (bound / norms.clamp_min(torch.finfo(norms.dtype).tiny)).clamp_max(1.0)
    return torch.where(norms.isfinite(), factors, torch.zeros_like(factors))


def check_bound(bound: float) -> None:
    """Squares of float32 numbers below 1e-23 vanish, and a norm must never come out smaller than it is."""
    if not SMALLEST_BOUND <= bound < float("inf"):
        raise RequestError(f"clip must be positive (at least {SMALLEST_BOUND:g}) and finite, got {bound}")


class PerRecordGradients:
    """Computes clipped gradient sums for one model and one per-record loss.

    ``chunk`` records are differentiated at a time; the result does not depend on it.
    """

    def __init__(self, model: nn.Module, loss: RecordLoss = mean_cross_entropy, *, chunk: int = 256) -> None:
        refuse_record_mixing(model)
        weights = trainable(model)
        if not weights:
            raise RequestError("the model has no parameter with requires_grad=True: nothing can be trained")
        for name, weight in weights.items():
            if weight.dtype not in (torch.float32, torch.float64):
                raise RequestError(
                    f"parameter '{name}' is {weight.dtype}: gradient norms lose their bound below float32"
                )
        self._model = model
        self._chunk = chunk
        frozen = {
            name: weight.detach() for name, weight in model.named_parameters() if not weight.requires_grad
        }
        self._constants = {**frozen, **dict(model.named_buffers())}

        def record_loss(weights: dict[str, Tensor], views: Tensor, label: Tensor) -> Tensor:
            return loss(lambda x: functional_call(model, {**self._constants, **weights}, (x,)), views, label)

        # "different": layers that draw (dropout) draw anew for every record.
        self._per_record = vmap(grad_and_value(record_loss), in_dims=(None, 0, 0), randomness="different")

    def per_record(self, views: Tensor, labels: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """Each record's own gradient and loss, from views of shape ``(records, K, ...)``."""
        gradients, losses = self._per_record(trainable(self._model), views, labels)
        return gradients, losses

    def clipped_sum(self, views: Tensor, labels: Tensor, *, bound: float) -> ClippedSum:
        """Clip each record's gradient to l2 norm ``bound`` and add up; an empty batch gives zeros.

        Nothing that a record contains may stop this: whether a run finishes must not depend on one record.
        """
        check_bound(bound)
        total = {name: torch.zeros_like(weight) for name, weight in trainable(self._model).items()}
        clipped, loss_sum = 0, 0.0
        for start in range(0, len(labels), self._chunk):
            part = slice(start, start + self._chunk)
            gradients, losses = self.per_record(views[part], labels[part])
            squares = torch.stack([g.flatten(1).square().sum(1) for g in gradients.values()]).sum(0)
            factors = clip_factors(squares, bound)
            finite = squares.isfinite()
            all_finite = bool(finite.all())
            for name, gradient in gradients.items():
                flat = gradient.flatten(1)
                if not all_finite:  # 0 * NaN is NaN: a factor of zero alone would not silence the record
                    flat = torch.where(finite[:, None], flat, torch.zeros_like(flat))
                total[name] += (factors @ flat).view_as(total[name])
            clipped += int((factors < 1).sum())
            loss_sum += float(losses[losses.isfinite()].double().sum())
        count = len(labels)
        return ClippedSum(
            gradients=total,
            sensitivity=bound,
            records=count,
            clipped=clipped,
            loss=loss_sum / count if count else 0.0,
        )
