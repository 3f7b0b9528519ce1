"""What counts as success, in both ways of counting."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hauberk.attacks import IFGSM
from hauberk.attacks.imitation.evaluation import attack_crafter, evaluate, judged
from hauberk.errors import RequestError


def scripted(world: Any, answers: list[int]) -> torch.Tensor:
    """Pictures that the classifier answers in this way."""
    points = torch.zeros(len(answers), 1, 6, 6)
    for row, answer in enumerate(answers):
        points[row, 0, 2 * answer : 2 * answer + 2] = 1.0
    return points


def test_wrong_and_already_targeted_inputs_do_not_count(world: Any) -> None:
    before, labels = [0, 0, 1, 2, 1, 0], [0, 0, 1, 2, 2, 1]  # the last two are answered wrongly
    after = [1, 0, 1, 1, 1, 1]
    x, points = scripted(world, before), scripted(world, after)
    quality = judged(world.classifier, x, torch.tensor(labels), points, target=1, seconds=0.5)
    # rows 0, 1 and 3 count: right and not of class 1; rows 0 and 3 end there
    assert (quality.attacked, quality.broken) == (3, 2)
    assert quality.success == pytest.approx(2 / 3)
    assert quality.as_published == pytest.approx(5 / 6)  # every input that ends in class 1
    assert quality.accuracy == pytest.approx(4 / 6)
    assert quality.seconds == 0.5
    low, high = quality.interval
    assert low < 2 / 3 < high


def test_untargeted_counts_only_what_was_right(world: Any) -> None:
    before, labels = [0, 0, 1, 2], [0, 0, 1, 1]
    after = [1, 0, 1, 0]
    quality = judged(
        world.classifier,
        scripted(world, before),
        torch.tensor(labels),
        scripted(world, after),
        target=None,
        seconds=0.0,
    )
    assert (quality.attacked, quality.broken) == (3, 1)
    assert quality.as_published == pytest.approx(2 / 4)  # the last was wrong from the start


def test_distances_and_times_are_measured(world: Any) -> None:
    craft = attack_crafter(IFGSM(steps=3), world.classifier, radius=0.1, target=None)
    quality = evaluate(world.classifier, world.x, world.labels, craft, target=None)
    assert 0 < quality.distance <= quality.largest_distance <= 0.1
    assert quality.seconds > 0
    outcome = IFGSM(steps=3).attack(world.classifier, world.x, world.labels, radius=0.1)
    assert quality.success == pytest.approx(outcome.success_rate)
    with pytest.raises(RequestError, match="at least one input"):
        evaluate(world.classifier, world.x[:0], world.labels[:0], craft, target=None)
