"""The loss against its closed form, and its gradients against what one works out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hauberk.attacks.imitation.losses import (
    Weights,
    distances,
    imitation_loss,
    margins,
    misclassification_loss,
)
from hauberk.errors import RequestError


@given(seed=st.integers(0, 2**31), targeted=st.booleans())
@settings(max_examples=30, deadline=None)
def test_margins_are_negative_exactly_where_the_goal_is_reached(seed: int, targeted: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(20, 5, generator=generator)
    classes = torch.randint(5, (20,), generator=generator)
    value = margins(scores, classes, targeted=targeted)
    reached = (scores.argmax(1) == classes) if targeted else (scores.argmax(1) != classes)
    assert ((value < 0) == reached).all()


def test_margins_of_one_row_by_hand() -> None:
    scores = torch.tensor([[1.0, 4.0, 2.5]])
    assert margins(scores, torch.tensor([2]), targeted=True).item() == pytest.approx(4.0 - 2.5)  # Eq. 5.5
    assert margins(scores, torch.tensor([1]), targeted=False).item() == pytest.approx(4.0 - 2.5)  # Eq. 5.6
    assert margins(scores, torch.tensor([1]), targeted=True).item() == pytest.approx(2.5 - 4.0)


@pytest.mark.parametrize("targeted", [True, False])
def test_the_gradient_of_the_margin_is_plus_and_minus_one(targeted: bool) -> None:
    scores = torch.tensor([[1.0, 4.0, 2.5]], requires_grad=True)
    loss = misclassification_loss(scores, torch.tensor([1]), targeted=targeted, confidence=math.inf)
    loss.sum().backward()
    sign = -1.0 if targeted else 1.0
    assert scores.grad is not None
    assert scores.grad.tolist() == [[0.0, sign, -sign]]


def test_confidence_stops_the_loss_and_its_gradient() -> None:
    scores = torch.tensor([[9.0, 1.0]], requires_grad=True)
    loss = misclassification_loss(scores, torch.tensor([0]), targeted=True, confidence=3.0)
    assert loss.item() == -3.0
    loss.sum().backward()
    assert scores.grad is not None
    assert scores.grad.tolist() == [[0.0, 0.0]]


def parts(seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "perturbation": torch.randn(4, 1, 3, 3, generator=generator, dtype=torch.float64),
        "moved": torch.randn(4, 1, 3, 3, generator=generator, dtype=torch.float64),
        "imitated": torch.randn(4, 1, 3, 3, generator=generator, dtype=torch.float64),
        "scores": torch.randn(4, 5, generator=generator, dtype=torch.float64),
        "imitated_scores": torch.randn(4, 5, generator=generator, dtype=torch.float64),
        "worth_imitating": torch.tensor([True, False, True, True]),
        "classes": torch.tensor([0, 1, 2, 3]),
    }


WEIGHTS = Weights(
    distance=0.3, imitation=2.0, of_pixels=0.7, of_scores=0.4, misclassification=1.1, confidence=math.inf
)


@pytest.mark.parametrize("targeted", [True, False])
def test_the_whole_loss_is_the_printed_sum(targeted: bool) -> None:
    given = parts(1)
    value = imitation_loss(WEIGHTS, **given, targeted=targeted)
    for row in range(4):
        apart = (given["moved"][row] - given["imitated"][row]).square().sum().sqrt()
        in_scores = (given["scores"][row] - given["imitated_scores"][row]).square().sum().sqrt()
        expected = 0.3 * given["perturbation"][row].square().sum().sqrt() + 2.0 * 0.7 * apart
        if given["worth_imitating"][row]:
            expected += 2.0 * 0.4 * in_scores
        others = [given["scores"][row][k] for k in range(5) if k != row]
        own = given["scores"][row][row]
        missed = max(others) - own if targeted else own - max(others)
        assert value[row].item() == pytest.approx(float(expected + 1.1 * missed))


@pytest.mark.parametrize("targeted", [True, False])
def test_gradients_agree_with_finite_differences(targeted: bool) -> None:
    given = parts(2)
    free = {name: given.pop(name).requires_grad_(True) for name in ("perturbation", "moved", "scores")}

    def loss(perturbation: Tensor, moved: Tensor, scores: Tensor) -> Tensor:
        return imitation_loss(
            WEIGHTS, perturbation=perturbation, moved=moved, scores=scores, targeted=targeted, **given
        )

    assert torch.autograd.gradcheck(loss, tuple(free.values()))


def test_parts_without_weight_are_left_out_and_zero_distance_has_a_gradient() -> None:
    given = parts(3)
    only = imitation_loss(Weights(distance=0.0, imitation=0.0, confidence=math.inf), **given, targeted=True)
    assert torch.equal(only, margins(given["scores"], given["classes"], targeted=True))
    point = torch.zeros(2, 3, requires_grad=True)
    distances(point).sum().backward()
    assert point.grad is not None
    assert (point.grad == 0).all()


def test_wrong_weights_are_refused() -> None:
    for wrong in (
        {"distance": -1.0},
        {"of_pixels": math.inf},
        {"confidence": -1.0},
        {"distance": 0.0, "imitation": 0.0, "misclassification": 0.0},
    ):
        with pytest.raises(RequestError):
            Weights(**wrong)
