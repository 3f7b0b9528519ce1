"""A small world in which attacks can be judged by eye: which third of a picture is the brightest."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from hauberk.attacks.imitation import AINSettings, Architecture, BoundSchedule, Recipe, TrainedAIN, train_ain


@dataclass(frozen=True)
class World:
    classifier: nn.Module
    x: Tensor
    labels: Tensor
    settings: AINSettings

    @property
    def validation(self) -> tuple[Tensor, Tensor]:
        return self.x[:60], self.labels[:60]


def bands() -> nn.Sequential:
    """Class i where band i (two rows of six) is the brightest."""
    layer = nn.Linear(36, 3)
    with torch.no_grad():
        layer.bias.zero_()
        layer.weight.zero_()
        for band in range(3):
            layer.weight[band, 12 * band : 12 * band + 12] = 1.0
    return nn.Sequential(nn.Flatten(), layer)


@pytest.fixture(scope="session")
def world() -> World:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(3, (180,), generator=generator)
    x = 0.5 * torch.rand(180, 1, 6, 6, generator=generator)
    for row, label in enumerate(labels.tolist()):
        x[row, 0, 2 * label : 2 * label + 2] += 0.35
    settings = AINSettings(
        architecture=Architecture(widths=(6, 6, 8, 8)),
        schedule=BoundSchedule(initial=0.6, final=0.3, rate=0.15, upper=0.01, lower=0.001, most_rollbacks=1),
        recipe=Recipe(radius=0.3, steps=4),
        epochs=14,
        batch=30,
        lr=1e-2,
    )
    return World(classifier=bands(), x=x, labels=labels, settings=settings)


@pytest.fixture(scope="session")
def untargeted(world: World) -> TrainedAIN:
    """An AIN of this world, trained once."""
    return train_ain(
        world.classifier,
        world.x,
        world.labels,
        validation=world.validation,
        classes=3,
        target=None,
        settings=world.settings,
    )
