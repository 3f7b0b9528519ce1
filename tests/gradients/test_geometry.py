"""Clipping in another shape is clipping of ``g / s``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hauberk.gradients import ClippedGradients, FlatClip, Geometry, trainable


def model() -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(12, 12, 2), nn.Tanh(), nn.Flatten(), nn.Linear(24, 8), nn.Tanh(), nn.Linear(8, 3)
    )


def drawn_scales(network: nn.Module) -> dict[str, Tensor]:
    return {name: 10 ** (6 * torch.rand_like(weight) - 3) for name, weight in trainable(network).items()}


SCALES: dict[str, Callable[[nn.Module], dict[str, Any]]] = {
    "one number": lambda network: {"3.weight": 0.01, "0.bias": 7},
    "every coordinate": drawn_scales,
    "every coordinate of one layer": lambda network: {"0.weight": drawn_scales(network)["0.weight"]},
    "in float64": lambda network: {name: scale.double() for name, scale in drawn_scales(network).items()},
}


@pytest.mark.parametrize("name", SCALES)
@pytest.mark.parametrize("path", ["fast", "general"])
def test_the_sum_is_that_of_gradients_divided_and_clipped_by_hand(
    name: str,
    path: Any,
    flat: Callable[..., Tensor],
    one_at_a_time: Callable[..., dict[str, Tensor]],
) -> None:
    network = model()
    scales = SCALES[name](network)
    geometry = Geometry(scales)
    x, y, bound = torch.randn(5, 2, 12, 3), torch.randint(0, 3, (5,)), 0.2
    engine = ClippedGradients(network, clipping=FlatClip(bound), geometry=geometry, path=path)
    total = engine.clipped_sum(x, y)
    expected = torch.zeros(sum(weight.numel() for weight in network.parameters()), dtype=torch.float64)
    for row in range(5):
        gradient = one_at_a_time(network, x[row], y[row])
        divided = flat({key: each / torch.as_tensor(scales.get(key, 1.0)) for key, each in gradient.items()})
        expected += divided * min(1.0, bound / float(divided.norm()))
    torch.testing.assert_close(flat(total.gradients), expected, rtol=0, atol=1e-4 * bound)
    restored = geometry.restored(total.gradients)
    for key, value in total.gradients.items():
        torch.testing.assert_close(restored[key], (value * torch.as_tensor(scales.get(key, 1.0))).to(value))
    assert total.sensitivity == bound


@pytest.mark.parametrize(
    "scale", [0.0, -1.0, math.inf, math.nan, torch.tensor([1.0, 0.0]), torch.tensor([-1.0, 2.0])]
)
def test_a_scale_that_is_not_positive_is_refused(scale: Any, refusal: Callable[..., str]) -> None:
    assert "'w' must be positive" in refusal(lambda: Geometry({"w": scale}))


@pytest.mark.parametrize(
    ("scales", "sentence"),
    [
        ({"5.wieght": 1.0}, "'5.wieght', which is no trainable parameter"),
        ({"5.bias": torch.ones(4)}, "has shape (4,), its parameter (3,)"),
        ({"5.weight": torch.ones(8)}, "has shape (8,), its parameter (3, 8)"),
    ],
)
def test_wrong_names_and_shapes_are_refused(
    scales: dict[str, Any], sentence: str, refusal: Callable[..., str]
) -> None:
    assert sentence in refusal(
        lambda: ClippedGradients(model(), clipping=FlatClip(1.0), geometry=Geometry(scales))
    )


def test_a_frozen_parameter_has_no_scale(refusal: Callable[..., str]) -> None:
    network = model()
    network[3].weight.requires_grad_(False)
    geometry = Geometry({"3.weight": 2.0})
    assert "no trainable" in refusal(
        lambda: ClippedGradients(network, clipping=FlatClip(1.0), geometry=geometry)
    )


@pytest.mark.parametrize("scale", [1e-24, 1e-20, 1e20, 1e24])
def test_extreme_scales_are_refused_or_bounded(scale: float, flat: Callable[..., Tensor]) -> None:
    """Squares of 1e-24 vanish in float32; a norm that came out as 0 once let 1,131 bounds through."""
    from hauberk.errors import RequestError

    network = nn.Linear(64, 3)
    bound = 1e-9
    try:
        geometry = Geometry({name: torch.full_like(each, scale) for name, each in trainable(network).items()})
        engine = ClippedGradients(network, clipping=FlatClip(bound), geometry=geometry, path="fast")
    except RequestError:
        return
    for size in (1e10, 1e15, 1e17, 1e18):
        for label in range(3):
            total = engine.clipped_sum(torch.full((1, 1, 64), size), torch.tensor([label]))
            assert float(flat(total.gradients).norm()) <= bound * (1 + 1e-3)
