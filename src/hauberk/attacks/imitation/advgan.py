"""AdvGAN (Xiao et al. 2018), a baseline of 004: a generator of perturbations against a discriminator.

    L_G = weight sum f(x') + mean ||p||_2 + mean (D(x') - 1)^2,     f: by how much the goal is missed in
                                                                    probabilities, 0 where it is reached
    L_D = mean (D(x) - 1)^2 + mean D(x')^2

Settings of the public code that 004 used: perturbations clamped at 0.3, weight 10, Adam at 1e-3 falling by
ten at five and at eight tenths of the way. That code fits its own classifier; here the generator is trained
against the classifier that it is compared on. There is no noise: one example per input.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from hauberk.attacks.imitation.losses import distances, margins
from hauberk.attacks.imitation.networks import PerturbationNetwork
from hauberk.attacks.targets import generator, left_as_it_was
from hauberk.errors import RequestError
from hauberk.progress import Progress, silent
from hauberk.randomness import derive_key

_WIDTHS = (8, 16, 32)
_LEAK = 0.2


class _Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.GroupNorm(channels, channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.GroupNorm(channels, channels),
        )

    def forward(self, x: Tensor) -> Tensor:
        through: Tensor = self.body(x)
        return x + through


class AdversarialGenerator(PerturbationNetwork):
    """Three convolutions, four residual blocks, and back; the label is not looked at."""

    def __init__(self, shape: tuple[int, int, int], classes: int) -> None:
        super().__init__(shape, classes)
        channels, height, width = shape
        self._padding = (0, -width % 4, 0, -height % 4)
        first, second, third = _WIDTHS

        def normed(layer: nn.Module, made: int) -> nn.Sequential:
            return nn.Sequential(layer, nn.GroupNorm(made, made), nn.ReLU())

        self.body = nn.Sequential(
            normed(nn.Conv2d(channels, first, 3, 1, 1), first),
            normed(nn.Conv2d(first, second, 4, 2, 1), second),
            normed(nn.Conv2d(second, third, 4, 2, 1), third),
            *[_Block(third) for _ in range(4)],
            normed(nn.ConvTranspose2d(third, second, 4, 2, 1), second),
            normed(nn.ConvTranspose2d(second, first, 4, 2, 1), first),
            nn.Conv2d(first, channels, 3, 1, 1),
        )

    def forward(self, x: Tensor, labels: Tensor, noise: Tensor | None = None) -> Tensor:
        z: Tensor = self.body(functional.pad(x, self._padding))
        return torch.tanh(z[..., : self.shape[1], : self.shape[2]])


def discriminator(channels: int) -> nn.Sequential:
    """Least-squares: one number per picture, 1 for real ones."""
    first, second, third = _WIDTHS
    return nn.Sequential(
        nn.Conv2d(channels, first, 4, 2, 1),
        nn.LeakyReLU(_LEAK),
        nn.Conv2d(first, second, 4, 2, 1),
        nn.GroupNorm(1, second),
        nn.LeakyReLU(_LEAK),
        nn.Conv2d(second, third, 3, 1, 1),
        nn.GroupNorm(1, third),
        nn.LeakyReLU(_LEAK),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(third, 1),
    )


@dataclass(frozen=True, kw_only=True)
class AdvGANSettings:
    epochs: int = 60
    batch: int = 128
    lr: float = 1e-3
    bound: float = 0.3
    weight: float = 10.0

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch < 1 or not self.lr > 0:
            raise RequestError("AdvGAN needs at least one epoch, one input per batch and a positive rate")
        if not 0 < self.bound <= 1:
            raise RequestError(f"the bound of AdvGAN must lie in (0, 1], got {self.bound}")


def train_advgan(
    classifier: nn.Module,
    x: Tensor,
    labels: Tensor,
    *,
    classes: int,
    target: int | None,
    settings: AdvGANSettings | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> AdversarialGenerator:
    """The generator, on the device of ``x``. The classifier is left as it was."""
    settings = settings or AdvGANSettings()
    device = x.device
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_key(seed, "AdvGAN weights")[0])
        shape = (int(x.shape[1]), int(x.shape[2]), int(x.shape[3]))
        made = AdversarialGenerator(shape, classes).to(device)
        judge = discriminator(shape[0]).to(device)
    of_made = torch.optim.Adam(made.parameters(), lr=settings.lr)
    of_judge = torch.optim.Adam(judge.parameters(), lr=settings.lr)
    chance = generator(device, seed, "AdvGAN order")
    goal = labels if target is None else torch.full_like(labels, target)
    with left_as_it_was(classifier):
        for epoch in range(settings.epochs):
            for optimizer in (of_made, of_judge):
                for group in optimizer.param_groups:
                    group["lr"] = settings.lr * _falling(epoch / settings.epochs)
            for rows in torch.randperm(len(x), generator=chance, device=device).split(settings.batch):
                real = x[rows]
                moved, perturbation = made.moved(real, labels[rows], None, settings.bound)
                of_judge.zero_grad(set_to_none=True)
                ((judge(real) - 1) ** 2).mean().add((judge(moved.detach()) ** 2).mean()).backward()
                of_judge.step()
                chances = classifier(moved).softmax(1)
                missed = margins(chances, goal[rows], targeted=target is not None).clamp(min=0.0)
                loss = settings.weight * missed.sum() + distances(perturbation).mean()
                of_made.zero_grad(set_to_none=True)
                (loss + ((judge(moved) - 1) ** 2).mean()).backward()
                of_made.step()
            progress("AdvGAN", epoch + 1, settings.epochs)
    return made.requires_grad_(False).eval()


def _falling(done: float) -> float:
    return 1.0 if done < 0.5 else 0.1 if done < 0.8 else 0.01
