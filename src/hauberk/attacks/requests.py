"""What is asked of an attack, checked once, and cut into batches on the classifier's device."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor, nn

from hauberk.attacks.projections import Ball, Bounds, ball
from hauberk.attacks.targets import Goal, Network, Noisy, Target
from hauberk.certify import Norm, Smoothed
from hauberk.errors import RequestError


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Inputs to attack at once, on the target's device, each with its own radius."""

    target: Target
    x: Tensor
    goal: Goal
    radii: Tensor  # float64
    norm: Norm
    bounds: Bounds
    rows: Tensor  # their places among all inputs: random starts are keyed by them, not by the batch
    seed: int

    def ball(self) -> Ball:
        return ball(self.norm, self.x, self.radii, self.bounds)

    def take(self, rows: Tensor) -> Self:
        if len(rows) == len(self.x):
            return self
        return replace(
            self, x=self.x[rows], goal=self.goal.take(rows), radii=self.radii[rows], rows=self.rows[rows]
        )


@dataclass(frozen=True, kw_only=True)
class Request:
    """Inputs, labels, targets and radii that fit together, and the classifier to attack."""

    target: Target
    x: Tensor
    labels: Tensor
    targets: Tensor | None
    radii: tuple[Tensor, ...]  # each one number per input
    norm: Norm
    bounds: Bounds
    seed: int
    batch_size: int

    @classmethod
    def checked(
        cls,
        model: nn.Module | Smoothed,
        x: Tensor,
        y: Tensor,
        *,
        targets: Tensor | None,
        radii: Sequence[float | Tensor],
        norm: Norm,
        bounds: Bounds,
        draws: int,
        seed: int,
        batch_size: int | None,
    ) -> Self:
        """Refuses, in a sentence, what does not fit together."""
        _check_inputs(x, bounds)
        if not len(radii):
            raise RequestError("there is no radius to attack at: give at least one")
        target: Target
        example = x[:1].detach() if len(x) else x.new_zeros(1, *x.shape[1:]).clamp_(*bounds)
        if isinstance(model, Smoothed):
            target = Noisy(model, example, draws=draws, seed=seed)
        elif isinstance(model, nn.Module):
            target = Network(model, example)
        else:
            raise RequestError(
                f"an attack needs a torch model or a hauberk Smoothed classifier, got {type(model).__name__}"
            )
        if batch_size is None:
            batch_size = target.inputs_at_once
        if batch_size < 1:
            raise RequestError(f"a batch needs at least one input, got a batch_size of {batch_size}")
        return cls(
            target=target,
            x=x.detach(),
            labels=_classes("labels", y, len(x), target.classes),
            targets=None if targets is None else _classes("targets", targets, len(x), target.classes),
            radii=tuple(_radii(radius, len(x)) for radius in radii),
            norm=norm,
            bounds=bounds,
            seed=seed,
            batch_size=batch_size,
        )

    def batches(self) -> Iterator[Batch]:
        """All inputs in their order, with the first radius."""
        device = self.target.device
        classes = self.labels if self.targets is None else self.targets
        for start in range(0, len(self.x), self.batch_size):
            part = slice(start, start + self.batch_size)
            x = self.x[part].to(device)
            yield Batch(
                target=self.target,
                x=x,
                goal=Goal(classes=classes[part].to(device), targeted=self.targets is not None),
                radii=self.radii[0][part].to(device),
                norm=self.norm,
                bounds=self.bounds,
                rows=torch.arange(start, start + len(x), device=device),
                seed=self.seed,
            )


def check_bounds(bounds: Bounds) -> None:
    low, high = bounds
    if not low < high:
        raise RequestError(f"bounds must be a lower and a larger upper number, got {low} and {high}")


def _check_inputs(x: Tensor, bounds: Bounds) -> None:
    if not isinstance(x, Tensor) or x.dtype not in (torch.float32, torch.float64):
        kind = str(x.dtype).removeprefix("torch.") if isinstance(x, Tensor) else type(x).__name__
        raise RequestError(f"inputs must be a float32 or float64 tensor, got {kind}")
    if x.ndim < 2 or not math.prod(x.shape[1:]):
        raise RequestError(
            f"inputs must be a batch, one input per row of the first axis, got shape {tuple(x.shape)}"
        )
    if not len(x):
        return
    low, high = x.detach().aminmax()
    lowest, highest = torch.tensor(bounds, dtype=x.dtype).tolist()
    if not (float(low) >= lowest and float(high) <= highest):  # nan fails both
        raise RequestError(
            f"inputs lie in [{float(low):.6g}, {float(high):.6g}], outside of the bounds "
            f"[{bounds[0]:g}, {bounds[1]:g}]: give the bounds of your data"
        )


def _classes(what: str, values: Tensor, count: int, classes: int) -> Tensor:
    if not isinstance(values, Tensor) or values.is_floating_point() or values.shape != (count,):
        raise RequestError(f"{what} must be a tensor of {count} integers, one per input")
    values = values.detach().long()
    if count and not (int(values.min()) >= 0 and int(values.max()) < classes):
        raise RequestError(
            f"{what} lie between {int(values.min())} and {int(values.max())}, "
            f"but the classifier has the classes 0 to {classes - 1}"
        )
    return values


def _radii(radius: float | Tensor, count: int) -> Tensor:
    radii = torch.as_tensor(radius, dtype=torch.float64).detach()
    if radii.ndim == 0:
        radii = radii.expand(count)
    if radii.shape != (count,):
        raise RequestError(f"the radius must be one number, or one for each of the {count} inputs")
    if not bool((radii >= 0).all() and radii.isfinite().all()):
        raise RequestError("a radius must be a number that is not negative and not infinite")
    return radii.contiguous()
