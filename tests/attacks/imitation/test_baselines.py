"""ATN and AdvGAN attack what AIN attacks, as their papers say."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hauberk.attacks.imitation import AdvGANSettings, ATNSettings, Imitation, Origin, train_advgan, train_atn
from hauberk.attacks.imitation.atn import re_ranked
from hauberk.attacks.imitation.evaluation import evaluate, imitation_crafter
from hauberk.errors import RequestError


def test_re_ranking_puts_the_target_first_and_keeps_the_order_of_the_others() -> None:
    chances = torch.tensor([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1]])
    ranked = re_ranked(chances, 2, alpha=1.5)
    assert ranked.argmax(1).tolist() == [2, 2]
    assert ranked.sum(1).tolist() == pytest.approx([1.0, 1.0])
    assert ranked[0, 0] / ranked[0, 1] == pytest.approx(2.0)
    assert ranked[0, 2] / ranked[0, 0] == pytest.approx(1.5)


def quality(world: Any, network: Any, kind: Any, target: int | None) -> float:
    imitation = Imitation(kind=kind, network=network, target=target, bound=0.4, origin=Origin())
    craft = imitation_crafter(imitation, radius=0.4)
    return evaluate(world.classifier, world.x, world.labels, craft, target=target).success


def test_atn_reaches_its_target(world: Any) -> None:
    settings = ATNSettings(widths=(4, 4, 6, 8), epochs=20, batch=30, lr=1e-2, bound=0.4, beta=0.001)
    network = train_atn(world.classifier, world.x, world.labels, classes=3, target=1, settings=settings)
    assert network.noise_shape is None
    assert quality(world, network, "atn", 1) > 0.6
    with pytest.raises(RequestError, match="give a target"):
        train_atn(world.classifier, world.x, world.labels, classes=3, target=None)


@pytest.mark.parametrize("target", [None, 1])
def test_advgan_breaks_the_classifier(world: Any, target: int | None) -> None:
    settings = AdvGANSettings(epochs=15, batch=15, lr=5e-3, bound=0.4)
    network = train_advgan(
        world.classifier, world.x, world.labels, classes=3, target=target, settings=settings
    )
    assert quality(world, network, "advgan", target) > 0.8


def test_wrong_settings_are_refused() -> None:
    for wrong in ({"alpha": 1.0}, {"epochs": 0}, {"bound": 0.0}):
        with pytest.raises(RequestError):
            ATNSettings(**wrong)
    for wrong in ({"epochs": 0}, {"bound": 2.0}):
        with pytest.raises(RequestError):
            AdvGANSettings(**wrong)
