"""Examples to imitate: in the ball, by the right attack, with the scores that belong to them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hauberk.attacks.imitation import Recipe, imitated_examples
from hauberk.attacks.imitation.classifier import fresh_classifier
from hauberk.errors import RequestError


@pytest.mark.parametrize("target", [None, 0])
def test_examples_lie_in_the_ball_and_know_their_scores(world: Any, target: int | None) -> None:
    recipe = Recipe(attacks=("ifgsm", "pgd"), shares=(0.5, 0.5), radius=0.25, steps=4)
    found = imitated_examples(world.classifier, world.x, world.labels, target=target, recipe=recipe)
    assert ((found.points - world.x).abs() <= 0.25 + 1e-6).all()
    assert ((found.points >= 0) & (found.points <= 1)).all()
    with torch.no_grad():
        scores = world.classifier(found.points)
    assert torch.equal(scores, found.scores)
    answers = scores.argmax(1)
    expected = answers != world.labels if target is None else answers == target
    assert (found.reached == expected).all()
    assert found.reached.float().mean() > 0.9


def test_shares_decide_who_makes_an_example(world: Any) -> None:
    bent = fresh_classifier("mlp", shape=(1, 6, 6), classes=3, seed=0)  # where steps do not all go one way

    def points(recipe: Recipe) -> torch.Tensor:
        return imitated_examples(bent, world.x, world.labels, target=None, recipe=recipe).points

    one = points(Recipe(attacks=("fgsm",), shares=(1.0,), radius=0.2))
    mixed = points(Recipe.of("fgsm:0.7,pgd:0.3", radius=0.2, steps=3))
    from_one = (mixed == one).flatten(1).all(1)
    assert 0.55 < float(from_one.float().mean()) < 0.85


def test_recipes_are_read_from_words_and_refused_in_a_sentence() -> None:
    assert Recipe.of("ifgsm") == Recipe()
    assert Recipe.of("ifgsm:0.9, cw:0.1").shares == (0.9, 0.1)
    for wrong in ("ifgsm:much", "no-attack", "ifgsm:-1"):
        with pytest.raises(RequestError):
            Recipe.of(wrong)
    with pytest.raises(RequestError, match="one share"):
        Recipe(attacks=("ifgsm",), shares=())
    with pytest.raises(RequestError, match="radius"):
        Recipe(radius=0.0)
