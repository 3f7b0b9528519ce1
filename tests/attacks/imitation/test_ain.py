"""An AIN learns to attack a classifier, leaves it alone, repeats itself, and can be tuned further."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from hauberk.attacks.imitation import (
    PAPER,
    SMALL,
    AINSettings,
    BoundSchedule,
    BoundWalk,
    TrainedAIN,
    Weights,
    train_ain,
)
from hauberk.attacks.imitation.ain import attackable
from hauberk.attacks.imitation.evaluation import evaluate, imitation_crafter
from hauberk.errors import RequestError


def trained(world: Any, **changes: Any) -> TrainedAIN:
    given = {"settings": world.settings, "target": None, "seed": 0, **changes}
    return train_ain(world.classifier, world.x, world.labels, validation=world.validation, classes=3, **given)


@pytest.mark.parametrize("target", [None, 1])
def test_it_learns_to_attack(world: Any, untargeted: TrainedAIN, target: int | None) -> None:
    found = untargeted if target is None else trained(world, target=target)
    craft = imitation_crafter(found.imitation, radius=0.3)
    quality = evaluate(world.classifier, world.x, world.labels, craft, target=target)
    assert found.imitation.bound == 0.3
    assert found.imitation.target == target
    assert quality.success > 0.9
    assert quality.largest_distance <= 0.3


def test_history_tells_every_epoch_and_bounds_fall(world: Any) -> None:
    told: list[tuple[str, int, int]] = []
    found = trained(
        world, settings=replace(world.settings, epochs=8), progress=lambda *words: told.append(words)
    )
    assert [each.epoch for each in found.history] == list(range(8))
    kept = [each.bound for each in found.history if each.kept]
    assert kept == sorted(kept, reverse=True)
    assert kept[0] == 0.6
    assert kept[-1] == 0.3
    assert ("imitating", 8, 8) in told
    assert {stage for stage, _, _ in told} == {"label extractor", "examples to imitate", "imitating"}


def test_the_classifier_is_left_as_it_was_and_a_seed_repeats(world: Any) -> None:
    world.classifier.train()
    before = {name: each.clone() for name, each in world.classifier.state_dict().items()}
    chance = torch.random.get_rng_state()
    short = replace(world.settings, epochs=2)
    one, same, other = (trained(world, settings=short, seed=seed).imitation.network for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), chance)
    assert world.classifier.training
    assert all(weight.grad is None and weight.requires_grad for weight in world.classifier.parameters())
    for name, each in world.classifier.state_dict().items():
        assert torch.equal(each, before[name])
    for (name, first), second in zip(one.state_dict().items(), same.state_dict().values(), strict=True):
        assert torch.equal(first, second), name
    different = zip(one.parameters(), other.parameters(), strict=True)
    assert any(not torch.equal(first, second) for first, second in different)
    world.classifier.eval()


def test_a_rolled_back_epoch_leaves_no_trace(world: Any) -> None:
    """With every epoch but the first rolled back, the weights are those after the first."""
    never = BoundSchedule(initial=0.9, final=0.01, rate=2.0, range=1.5, most_rollbacks=99)
    settings = replace(world.settings, schedule=never, epochs=4, falling=0.0)
    found = trained(world, settings=settings)
    first = trained(world, settings=replace(settings, epochs=1))
    assert [each.kept for each in found.history] == [True, False, False, False]
    for one, other in zip(
        found.imitation.network.parameters(), first.imitation.network.parameters(), strict=True
    ):
        assert torch.equal(one, other)
    assert found.imitation.bound == 0.9


def test_fine_tuning_begins_where_the_earlier_one_ended(world: Any, untargeted: TrainedAIN) -> None:
    """For a classifier that changed slightly, one epoch from an earlier AIN beats one from nothing."""
    earlier = untargeted.imitation
    once = replace(world.settings.within(0.3), epochs=1, schedule=BoundSchedule(initial=0.3, final=0.3))
    tuned = trained(world, settings=once, start=earlier)
    fresh = trained(world, settings=once)
    assert tuned.history[-1].success > fresh.history[-1].success
    weights = tuned.imitation.network.state_dict()
    kept = earlier.network.state_dict()
    assert torch.equal(weights["extractor.spread_out.weight"], kept["extractor.spread_out.weight"])
    assert not torch.equal(weights["encoder.0.0.weight"], kept["encoder.0.0.weight"])
    with pytest.raises(RequestError, match="was made for inputs of shape"):
        train_ain(
            world.classifier,
            world.x.view(-1, 1, 4, 9),
            world.labels,
            validation=world.validation,
            classes=3,
            target=None,
            settings=once,
            start=earlier,
        )


def test_an_only_distance_loss_attacks_nothing(world: Any) -> None:
    """004: below 0.1 at any distance."""
    weights = Weights(distance=1.0, imitation=0.0, misclassification=0.0)
    found = trained(world, settings=replace(world.settings, weights=weights))
    assert found.history[-1].success < 0.1


def test_attackable_inputs_are_right_and_not_of_the_target(world: Any) -> None:
    labels = world.labels.clone()
    labels[:30] = (labels[:30] + 1) % 3  # wrong labels: answered wrongly
    rows = attackable(world.classifier, world.x, labels, target=2)
    assert not rows[:30].any()
    assert (rows[30:] == (labels[30:] != 2)).all()


def test_wrong_requests_are_refused(world: Any) -> None:
    with pytest.raises(RequestError, match="there is no class 3"):
        trained(world, target=3)
    rows = world.labels == 1
    with pytest.raises(RequestError, match="all inputs are of the target class"):
        train_ain(
            world.classifier,
            world.x[rows],
            world.labels[rows],
            validation=world.validation,
            classes=3,
            target=1,
            settings=world.settings,
        )
    for wrong in ({"epochs": 0}, {"batch": 0}, {"lr": 0.0}, {"falling": 2.0}):
        with pytest.raises(RequestError):
            AINSettings(**wrong)


def test_presets_reach_their_final_bound_even_at_the_slowest_rate() -> None:
    for settings in (SMALL, PAPER):
        walk = BoundWalk(settings.schedule)
        for epoch in range(settings.epochs):
            walk.advance(0.97**epoch)  # a fall that is rolled back as often as may be
        assert walk.finished
        assert settings.recipe.radius == settings.schedule.final
    assert SMALL.within(0.2).schedule.final == SMALL.within(0.2).recipe.radius == 0.2
