"""What does not fit together is refused in one sentence, before anything is attacked."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from hauberk.attacks import PGD, build_attack, find_attack
from hauberk.errors import RequestError

X = torch.rand(4, 1, 4, 4, generator=torch.Generator().manual_seed(0))
Y = torch.tensor([0, 1, 2, 0])
NAN = X.clone()
NAN[1, 0, 2, 2] = float("nan")


def model() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 3))


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"model": lambda x: x}, "needs a torch model or a hauberk Smoothed classifier, got function"),
        ({"x": X * 255}, r"outside of the bounds \[0, 1\]: give the bounds of your data"),
        ({"x": X - 0.5}, "outside of the bounds"),
        ({"x": NAN}, "outside of the bounds"),
        ({"x": X.half()}, "float32 or float64 tensor, got float16"),
        ({"x": (X * 255).to(torch.uint8)}, "got uint8"),
        ({"x": X.numpy()}, "got ndarray"),
        ({"x": X[0, 0, 0]}, "one input per row"),
        ({"x": torch.empty(4, 0)}, "one input per row"),
        ({"y": Y.float()}, "labels must be a tensor of 4 integers"),
        ({"y": Y[:3]}, "labels must be a tensor of 4 integers"),
        ({"y": [0, 1, 2, 0]}, "labels must be a tensor of 4 integers"),
        ({"y": Y + 1}, "labels lie between 1 and 3, but the classifier has the classes 0 to 2"),
        ({"y": Y - 1}, "labels lie between -1 and 1"),
        ({"targets": Y + 2}, "targets lie between"),
        ({"targets": Y[:2]}, "targets must be"),
        ({"radius": -0.1}, "not negative"),
        ({"radius": float("nan")}, "not negative"),
        ({"radius": float("inf")}, "not infinite"),
        ({"radius": torch.rand(3)}, "one for each of the 4 inputs"),
        ({"samples": 0}, "at least one draw"),
        ({"batch_size": 0}, "at least one input"),
    ],
)
def test_wrong_requests(wrong: dict[str, Any], sentence: str) -> None:
    request = {"model": model(), "x": X, "y": Y, "radius": 0.1} | wrong
    with pytest.raises(RequestError, match=sentence) as refused:
        PGD(steps=1).attack(request.pop("model"), request.pop("x"), request.pop("y"), **request)
    assert "\n" not in str(refused.value)


def test_no_radius_at_all() -> None:
    with pytest.raises(RequestError, match="no radius"):
        PGD().sweep(model(), X, Y, radii=[])


def test_bounds_that_float32_cannot_hold() -> None:
    """0.1 is not a float32; inputs at that bound are still inputs."""
    found = PGD(bounds=(-0.1, 0.1), steps=2).attack(model(), torch.full((2, 16), 0.1), Y[:2], radius=0.05)
    assert (found.adversarial <= torch.tensor(0.1)).all()


def test_other_integers_are_labels_too() -> None:
    one, same = (PGD(steps=2).attack(model().eval(), X, labels, radius=0.1) for labels in (Y, Y.int()))
    assert one.labels.tolist() == same.labels.tolist()


def test_an_unknown_attack_is_refused_with_the_known_ones() -> None:
    with pytest.raises(RequestError, match="no attack 'pdg'; choose among fgsm, ifgsm, mim, pgd"):
        find_attack("pdg")


def test_an_unknown_setting_is_refused_with_the_known_ones() -> None:
    with pytest.raises(RequestError, match=r"mim has no setting 'decay'; it has norm, .* momentum"):
        build_attack("mim", decay=0.9)


def test_progress_counts_the_inputs() -> None:
    told: list[int] = []
    PGD(steps=1).attack(model(), X, Y, radius=0.1, batch_size=3, progress=told.append)
    assert told == [3, 1]
