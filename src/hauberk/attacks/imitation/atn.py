"""ATN (Baluja and Fischer 2018), a baseline of 004: a transformation network trained on re-ranked answers.

    r(F(x), t) = normalised { alpha max F(x) at t;  F(x)_k elsewhere }          (probabilities)
    L = beta ||x' - x||_2^2 + ||softmax F(x') - r(softmax F(x), t)||_2^2

The target is pushed to the front while the others keep their order. It works with a target only, has one
example per input, and neither imitation nor a bound that falls: perturbations are clipped at a fixed bound,
so that it can be compared. The network is AIN's without label, noise, attention and residual additions.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hauberk.attacks.imitation.networks import Architecture, ImitationNetwork
from hauberk.attacks.targets import generator, left_as_it_was
from hauberk.errors import RequestError
from hauberk.progress import Progress, silent
from hauberk.randomness import derive_key


@dataclass(frozen=True, kw_only=True)
class ATNSettings:
    """``alpha`` > 1 makes the target the largest; ``beta`` weighs nearness against the answer: a
    confident classifier hardly answers small steps, and at 0.01 the network then learns to do nothing."""

    widths: tuple[int, int, int, int] = (32, 64, 128, 256)
    epochs: int = 30
    batch: int = 512
    lr: float = 1e-3
    bound: float = 0.2
    alpha: float = 1.5
    beta: float = 1e-3

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch < 1 or not self.lr > 0:
            raise RequestError("ATN needs at least one epoch, one input per batch and a positive rate")
        if not self.alpha > 1:
            raise RequestError(f"alpha must be above 1 so that the target leads, got {self.alpha}")
        if not (0 < self.bound <= 1 and self.beta >= 0):
            raise RequestError("the bound of ATN must lie in (0, 1], and beta not below 0")


def re_ranked(chances: Tensor, target: int, *, alpha: float) -> Tensor:
    """The answer that ATN asks for: ``target`` first, the others in their order; rows add up to one."""
    ranked = chances.clone()
    ranked[:, target] = alpha * chances.amax(1)
    return ranked / ranked.sum(1, keepdim=True)


def train_atn(
    classifier: nn.Module,
    x: Tensor,
    labels: Tensor,
    *,
    classes: int,
    target: int | None,
    settings: ATNSettings | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> ImitationNetwork:
    """The transformation network, on the device of ``x``. The classifier is left as it was."""
    settings = settings or ATNSettings()
    if target is None:
        raise RequestError("ATN re-ranks the answers towards a target class: give a target")
    plain = Architecture(
        widths=settings.widths, noise=0.0, attention=False, residual=False, conditioned=False
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_key(seed, "ATN weights")[0])
        shape = (int(x.shape[1]), int(x.shape[2]), int(x.shape[3]))
        network = ImitationNetwork(shape, classes, plain).to(x.device)
    optimizer = torch.optim.Adam(network.parameters(), lr=settings.lr)
    schedule = torch.optim.lr_scheduler.LinearLR(
        optimizer, start_factor=1.0, end_factor=0.05, total_iters=settings.epochs
    )
    chance = generator(x.device, seed, "ATN order")
    wanted = (labels != target).nonzero()[:, 0]
    if not len(wanted):
        raise RequestError("there is nothing to attack: all inputs are of the target class already")
    with left_as_it_was(classifier):
        for epoch in range(settings.epochs):
            order = wanted[torch.randperm(len(wanted), generator=chance, device=x.device)]
            for rows in order.split(settings.batch):
                given = x[rows]
                with torch.no_grad():
                    asked = re_ranked(classifier(given).softmax(1), target, alpha=settings.alpha)
                moved, _ = network.moved(given, labels[rows], None, settings.bound)
                far = (moved - given).flatten(1).square().sum(1).mean()
                wrong = (classifier(moved).softmax(1) - asked).square().sum(1).mean()
                optimizer.zero_grad(set_to_none=True)
                (settings.beta * far + wrong).backward()
                optimizer.step()
            schedule.step()
            progress("ATN", epoch + 1, settings.epochs)
    return network.requires_grad_(False).eval()
