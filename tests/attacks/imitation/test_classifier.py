"""Classifiers to attack, and training them against an adversary."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hauberk.attacks import IFGSM
from hauberk.attacks.imitation import TrainedAIN, train_ain
from hauberk.attacks.imitation.classifier import (
    THESIS,
    accuracy,
    adversary_of_attack,
    adversary_of_imitation,
    fresh_classifier,
    train_classifier,
)
from hauberk.errors import RequestError


def test_the_thesis_classifier_takes_its_pictures() -> None:
    model = fresh_classifier(THESIS, shape=(1, 28, 28), classes=10, seed=0)
    assert model(torch.rand(2, 1, 28, 28)).shape == (2, 10)
    dense = [layer.out_features for layer in model.modules() if isinstance(layer, nn.Linear)]
    assert dense == [1024, 256, 10]
    convolutions = [layer for layer in model.modules() if isinstance(layer, nn.Conv2d)]
    assert len(convolutions) == 15
    with pytest.raises(RequestError, match="at least"):
        fresh_classifier(THESIS, shape=(1, 4, 4), classes=10, seed=0)
    with pytest.raises(RequestError, match="takes pictures"):
        fresh_classifier(THESIS, shape=(16,), classes=10, seed=0)


def test_a_seed_decides_the_weights_and_nobody_elses_chance() -> None:
    before = torch.random.get_rng_state()
    one, same, other = (fresh_classifier("logistic", shape=(4,), classes=2, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(before, torch.random.get_rng_state())
    first, second, third = (next(model.parameters()) for model in (one, same, other))
    assert torch.equal(first, second)
    assert not torch.equal(first, third)


def test_training_against_an_adversary_sees_both_copies(world: Any) -> None:
    seen: list[int] = []

    def adversary(model: nn.Module, x: Tensor, labels: Tensor, step: int) -> Tensor:
        seen.append(step)
        return 1 - x

    model = fresh_classifier("logistic", shape=(1, 6, 6), classes=3, seed=0)
    sizes: list[int] = []
    model.register_forward_hook(lambda *given: sizes.append(len(given[1][0])))
    train_classifier(model, world.x, world.labels, epochs=1, batch=60, adversary=adversary)
    assert seen == [0, 1, 2]
    assert sizes == [120, 120, 120]
    assert not model.training


def test_adversarial_training_defends_against_its_own_adversary(world: Any) -> None:
    plain = fresh_classifier("mlp", shape=(1, 6, 6), classes=3, seed=0)
    train_classifier(plain, world.x, world.labels, epochs=10, batch=30)
    assert accuracy(plain, world.x, world.labels) > 0.95
    found = train_ain(
        plain,
        world.x,
        world.labels,
        validation=world.validation,
        classes=3,
        target=None,
        settings=world.settings.within(0.2),
    )
    attack = IFGSM(steps=5)
    for adversary in (
        adversary_of_imitation(found.imitation, radius=0.2),
        adversary_of_attack(attack, radius=0.2),
    ):
        model = fresh_classifier("mlp", shape=(1, 6, 6), classes=3, seed=0)
        train_classifier(model, world.x, world.labels, epochs=10, batch=30, adversary=adversary)
        left = [
            accuracy(each, adversary(each, world.x, world.labels, 1000), world.labels)
            for each in (plain, model)
        ]
        assert left[1] > left[0]


def test_noise_gives_other_copies_at_every_step(world: Any, untargeted: TrainedAIN) -> None:
    adversary = adversary_of_imitation(untargeted.imitation, radius=0.4)
    one, same, other = (adversary(world.classifier, world.x, world.labels, step) for step in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
