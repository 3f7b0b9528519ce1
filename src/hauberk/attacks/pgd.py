"""Projected gradient descent against a randomised classifier, in l2, with expectation over the noise."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hauberk.certify import Smoothed, evaluation_mode
from hauberk.errors import RequestError

_BATCH = 64


def _norms(x: Tensor) -> Tensor:
    """l2 norm of each row, shaped to broadcast against ``x``."""
    return _per_row(x.flatten(1).square().sum(1).sqrt(), x)


def _per_row(values: Tensor, x: Tensor) -> Tensor:
    """One value per row, shaped to broadcast against ``x``."""
    return values.view(-1, *[1] * (x.ndim - 1))


def project_l2(
    x: Tensor, centre: Tensor, radii: Tensor, *, bounds: tuple[float, float] = (0.0, 1.0)
) -> Tensor:
    """Into the l2 ball of each row's radius, then into the box.

    The centre lies in the box, so clamping only shortens the step: the result satisfies both.
    """
    step = x - centre
    size = _norms(step)
    radii = radii.view_as(size)
    step = step * (radii / size.clamp_min(torch.finfo(x.dtype).tiny)).clamp_max(1.0)
    return (centre + step).clamp(*bounds)


@dataclass(frozen=True, kw_only=True)
class NoisyPGD:
    """Ascent on ``-log E[softmax probability of the label]`` over the classifier's own noise.

    The expectation is inside the logarithm: that is the smoothed classifier's own loss (Salman et al. 2019),
    not the average loss of its noisy copies. ``draws`` fresh noises estimate it at every step.
    """

    steps: int = 20
    draws: int = 16
    restarts: int = 1

    def __post_init__(self) -> None:
        if min(self.steps, self.draws, self.restarts) < 1:
            raise RequestError("an attack needs at least one step, one draw and one start")

    @property
    def name(self) -> str:
        starts = "1 start" if self.restarts == 1 else f"{self.restarts} starts"
        return f"l2 PGD, {self.steps} steps, expectation over {self.draws} draws, {starts}"

    def _loss(self, target: Smoothed, x: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        noisy = target.noisy(x.repeat_interleave(self.draws, 0), generator)
        log_probabilities = nn.functional.log_softmax(target.model(noisy), dim=1)
        log_probabilities = log_probabilities.unflatten(0, (len(x), self.draws))
        chosen = log_probabilities.gather(2, labels.view(-1, 1, 1).expand(-1, self.draws, 1)).squeeze(2)
        return -torch.logsumexp(chosen, dim=1)  # up to the constant log(draws)

    def _one_start(
        self, target: Smoothed, x: Tensor, labels: Tensor, radii: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        start = torch.randn(x.shape, generator=generator, device=x.device)
        current = project_l2(x + start * (_per_row(radii, x) / _norms(start)), x, radii)
        length = 2.5 * radii / self.steps
        for _ in range(self.steps):
            current = current.detach().requires_grad_(True)
            loss = self._loss(target, current, labels, generator)
            (gradient,) = torch.autograd.grad(loss.sum(), current)
            direction = gradient / _norms(gradient).clamp_min(1e-12)
            direction = direction.nan_to_num(0.0, 0.0, 0.0)  # where the gradient is no number, stay
            current = project_l2(current.detach() + direction * _per_row(length, x), x, radii)
        # The last point, not the one with the largest loss: under noise that would be the luckiest draw.
        return current, self._loss(target, current, labels, generator).detach()

    def run(self, target: Smoothed, x: Tensor, labels: Tensor, radii: Tensor, *, seed: int) -> Tensor:
        """For each input, the worst point found within its own radius and within [0, 1].

        Radius zero returns the input bit for bit. The model's modes and gradients are left as they were.
        """
        generator = torch.Generator(device=target.device).manual_seed(seed)
        found = []
        with evaluation_mode(target.model), torch.enable_grad():
            for part in torch.arange(len(x)).split(_BATCH) if len(x) else []:
                inputs, size = x[part].to(target.device), radii[part].to(target.device, x.dtype)
                classes = labels[part].to(target.device)
                best, best_loss = inputs, torch.full((len(part),), -float("inf"), device=target.device)
                for _ in range(self.restarts):
                    point, loss = self._one_start(target, inputs, classes, size, generator)
                    better = _per_row(loss > best_loss, x)
                    best, best_loss = torch.where(better, point, best), torch.maximum(loss, best_loss)
                still = _per_row(size == 0, x)
                found.append(torch.where(still, inputs, best).cpu())
        return torch.cat(found) if found else x.clone()
