"""The classifiers that imitation networks attack, and how they are trained: plainly, or against an adversary.

Nothing is private here. In adversarial training (004 section 5.3.4) every batch is seen twice, as it is and
as an adversary moves it; the adversary is an imitation network that was trained before against a classifier
trained plainly, or an attack on the network as it is at that moment.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from hauberk import models
from hauberk.attacks.base import Attack
from hauberk.attacks.imitation.saved import Imitation
from hauberk.attacks.targets import generator
from hauberk.errors import RequestError
from hauberk.progress import Progress, silent
from hauberk.randomness import derive_key

THESIS = "thesis-cnn"
_LEAK = 0.2
_KERNELS, _STRIDES, _WIDTHS = (4, 3, 4, 3, 4), (2, 1, 2, 1, 2), (16, 16, 32, 32, 64)

Adversary = Callable[[nn.Module, Tensor, Tensor, int], Tensor]
"""From the network in training, a batch, its labels and the number of the step to adversarial copies."""


class _Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.LeakyReLU(_LEAK),
            nn.Conv2d(channels, channels, 3, padding=1),
        )

    def forward(self, x: Tensor) -> Tensor:
        through: Tensor = self.body(x)
        return nn.functional.leaky_relu(x + through, _LEAK)


def thesis_classifier(shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """004's MNIST classifier: five convolutions, each with a residual block, and 1024-256-10 dense units."""
    if len(shape) != 3:
        raise RequestError(f"{THESIS} takes pictures, not inputs of shape {shape}")
    layers: list[nn.Module] = []
    before, (_, height, width) = shape[0], shape
    for kernel, stride, made in zip(_KERNELS, _STRIDES, _WIDTHS, strict=True):
        layers += [nn.Conv2d(before, made, kernel, stride, 1), nn.LeakyReLU(_LEAK), _Residual(made)]
        height, width = ((side + 2 - kernel) // stride + 1 for side in (height, width))
        before = made
    if min(height, width) < 1:
        raise RequestError(f"{THESIS} takes pictures of at least 12 x 12, not {shape[1]} x {shape[2]}")
    dense = [nn.Linear(before * height * width, 1024), nn.LeakyReLU(_LEAK)]
    dense += [nn.Linear(1024, 256), nn.LeakyReLU(_LEAK), nn.Linear(256, classes)]
    return nn.Sequential(*layers, nn.Flatten(), *dense)


def fresh_classifier(name: str, *, shape: tuple[int, ...], classes: int, seed: int) -> nn.Module:
    """`thesis_classifier`, or a network of `hauberk.models`, with weights from ``seed``."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_key(seed, "classifier weights")[0])
        if name == THESIS:
            return thesis_classifier(shape, classes)
        return models.build(name, shape=shape, classes=classes)


def train_classifier(
    model: nn.Module,
    x: Tensor,
    labels: Tensor,
    *,
    epochs: int,
    batch: int = 128,
    rate: float = 1e-3,
    adversary: Adversary | None = None,
    shifted: int = 0,
    seed: int = 0,
    stage: str = "classifier",
    progress: Progress = silent,
) -> None:
    """Minimise the cross-entropy in place by Adam, on the device of ``x``; order and copies from ``seed``.

    With an ``adversary`` the loss is the mean over every batch and its adversarial copies. ``shifted``:
    batches of pictures are moved by up to so many pixels. There is no guarantee of privacy.
    """
    steps = epochs * -(-len(x) // batch)
    optimizer = torch.optim.Adam([each for each in model.parameters() if each.requires_grad], lr=rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3 * rate, total_steps=max(2, steps))
    chance, places = generator(x.device, seed, "classifier order"), torch.Generator().manual_seed(seed)
    done = 0
    model.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(x), generator=chance, device=x.device).split(batch):
            given, classes = x[rows], labels[rows]
            if shifted:
                down, right = torch.randint(-shifted, shifted + 1, (2,), generator=places).tolist()
                given = _moved(given, down, right)
            if adversary is not None:
                given = torch.cat([given, adversary(model, given, classes, done)])
                classes = classes.repeat(2)
            optimizer.zero_grad(set_to_none=True)
            nn.functional.cross_entropy(model(given), classes).backward()
            optimizer.step()
            schedule.step()
            done += 1
            progress(stage, done, steps)
    model.eval()


def _moved(x: Tensor, down: int, right: int) -> Tensor:
    reach = max(abs(down), abs(right))
    padded = nn.functional.pad(x, (reach,) * 4)
    height, width = x.shape[-2:]
    return padded[..., reach + down : reach + down + height, reach + right : reach + right + width]


def adversary_of_imitation(imitation: Imitation, *, radius: float, seed: int = 0) -> Adversary:
    """Copies by an imitation network: with noise in its centre others at every step."""

    def move(model: nn.Module, x: Tensor, labels: Tensor, step: int) -> Tensor:
        return imitation.craft(x, labels, radius=radius, seed=seed, first=step)[:, 0]

    return move


def adversary_of_attack(attack: Attack, *, radius: float, seed: int = 0) -> Adversary:
    """Copies by an attack on the network in training."""

    def move(model: nn.Module, x: Tensor, labels: Tensor, step: int) -> Tensor:
        return attack.perturb(model, x, labels, radius=radius, seed=seed + step, batch_size=len(x))

    return move


@torch.no_grad()
def accuracy(model: nn.Module, x: Tensor, labels: Tensor) -> float:
    at_once = 512 if x.device.type == "cpu" else 8192
    right = [
        (model(some).argmax(1) == classes).sum()
        for some, classes in zip(x.split(at_once), labels.split(at_once), strict=True)
    ]
    return float(torch.stack(right).sum()) / len(x)
