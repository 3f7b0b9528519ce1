"""What an attack climbs on: the right loss, of the right classifier."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from hauberk.attacks.targets import NO_ANSWER, Goal, Network, Noisy, answers, left_as_it_was, log_mean_softmax
from hauberk.certify import Smoothed
from hauberk.errors import RequestError


def two_classes(slope: float = 4.0) -> nn.Sequential:
    layer = nn.Linear(16, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.stack([torch.full((16,), slope / 4), torch.full((16,), -slope / 4)]))
        layer.bias.zero_()
    return nn.Sequential(nn.Flatten(), layer)


def test_the_expectation_is_inside_the_logarithm() -> None:
    """The loss of the smoothed classifier, not the average loss of its noisy copies."""
    smoothed = Smoothed(two_classes(), sigma=0.25, classes=2)
    x = torch.full((1, 16), 0.02)
    target = Noisy(smoothed, x, draws=50_000, seed=0)
    loss = Goal(classes=torch.tensor([0]), targeted=False).gains(target.scores(x))
    noisy = smoothed.noisy(x.repeat_interleave(50_000, 0), torch.Generator().manual_seed(1))
    probabilities = smoothed.model(noisy).detach().softmax(1)[:, 0].double()
    assert float(loss.detach()) == pytest.approx(-math.log(float(probabilities.mean())), abs=0.02)
    assert float(loss.detach()) < float(-probabilities.log().mean()) - 0.05  # the average loss is another


def test_scores_of_a_smoothed_classifier_are_log_probabilities() -> None:
    logits = torch.randn(3, 7, 4, generator=torch.Generator().manual_seed(0))
    scores = log_mean_softmax(logits)
    assert torch.allclose(scores.exp(), logits.softmax(2).mean(1))
    assert log_mean_softmax(torch.full((1, 2, 3), 1e30)).isfinite().all()


def test_noise_is_fresh_at_every_look_and_repeats_with_the_seed() -> None:
    smoothed, x = Smoothed(two_classes(), sigma=0.25, classes=2), torch.zeros(2, 16)
    target, again = (Noisy(smoothed, x[:1], draws=3, seed=5) for _ in range(2))
    first, second = target.scores(x), target.scores(x)
    assert not torch.equal(first, second)
    assert torch.equal(first, again.scores(x))


@pytest.mark.parametrize("targeted", [False, True])
def test_gains_grow_towards_the_goal(targeted: bool) -> None:
    scores = torch.tensor([[3.0, 1.0, 0.0], [0.5, 1.0, 0.0]])
    better = scores - torch.tensor([1.0, 0.0, 0.0]) * (-1 if targeted else 1)
    for loss in ("cross-entropy", "margin"):
        goal = Goal(classes=torch.tensor([0, 0]), targeted=targeted, loss=loss)
        assert (goal.gains(better) > goal.gains(scores)).all()
    margin = Goal(classes=torch.tensor([0, 0]), targeted=targeted, loss="margin").gains(scores)
    assert margin.tolist() == ([2.0, -0.5] if targeted else [-2.0, 0.5])
    assert ((margin > 0) == goal.reached(answers(scores))).all()


def test_the_margin_has_a_slope_where_the_softmax_has_none() -> None:
    scores = torch.tensor([[200.0, 0.0]], requires_grad=True)
    (flat,) = torch.autograd.grad(Goal(classes=torch.tensor([0]), targeted=False).gains(scores).sum(), scores)
    goal = Goal(classes=torch.tensor([0]), targeted=False, loss="margin")
    (steep,) = torch.autograd.grad(goal.gains(scores).sum(), scores)
    assert float(flat.abs().max()) == 0.0
    assert steep.tolist() == [[-1.0, 1.0]]


def test_scores_that_are_no_numbers_name_no_class() -> None:
    given = answers(torch.tensor([[float("nan"), 1.0], [1.0, 0.0]]))
    assert given.tolist() == [NO_ANSWER, 0]
    assert Goal(classes=torch.tensor([0, 0]), targeted=False).reached(given).tolist() == [True, False]


def test_modes_and_gradients_are_restored_after_a_failure() -> None:
    model = two_classes().train()
    model[1].weight.grad = torch.ones(2, 16)

    def fail() -> None:
        with left_as_it_was(model):
            assert not any(weight.requires_grad for weight in model.parameters())
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert model.training
    assert all(weight.requires_grad for weight in model.parameters())
    assert torch.equal(model[1].weight.grad, torch.ones(2, 16))


class Answers(nn.Module):
    """Answers with whatever it was given."""

    def __init__(self, answer: object) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, x: torch.Tensor) -> object:
        return self.answer


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (torch.zeros(1, 1), "single score"),
        (torch.zeros(1), "row of class scores"),
        (torch.zeros(1, 3, 4), "row of class scores"),
        ("yes", "row of class scores"),
    ],
)
def test_models_without_class_scores_are_refused(answer: object, sentence: str) -> None:
    with pytest.raises(RequestError, match=sentence):
        Network(Answers(answer), torch.zeros(1, 4))
