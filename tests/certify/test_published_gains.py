"""The gains of 000 and 003 as printed, against dense matrices, and how far below the joint one they are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from hauberk.certify.affine_map import AffineMap
from hauberk.certify.gains import gain
from hauberk.certify.noise import NoiseLayers, Norm
from hauberk.certify.published_gains import PublishedGain, published_gain, single_map_gain
from hauberk.errors import RequestError

SHAPE = (2, 5, 4)
NORMS: tuple[Norm, ...] = ("l1", "l2", "linf")
torch.manual_seed(1)
CONVOLUTION = nn.Conv2d(2, 6, 3, padding=1, groups=2)
LINEAR = nn.Linear(40, 7)
SCALES = torch.rand(6, 5, 4, generator=torch.Generator().manual_seed(2)) + 0.5


def maps_of(scales: float | torch.Tensor) -> list[NDArray[np.float64]]:
    """The whitened rows of each feature map."""
    unit = torch.eye(40).view(-1, *SHAPE)
    with torch.no_grad():
        out = (CONVOLUTION(unit) - CONVOLUTION(torch.zeros(1, *SHAPE))) / scales
    return [out[:, index].flatten(1).T.double().numpy() for index in range(6)]


def published(norm: Norm, layer: Any = CONVOLUTION, **noise: Any) -> PublishedGain:
    shape = SHAPE if layer is CONVOLUTION else (40,)
    return published_gain(NoiseLayers(**noise), norm, shape=shape, first_map=AffineMap(layer, shape))


@pytest.mark.parametrize("scales", [0.5, SCALES], ids=["uniform r", "HGM"])
def test_000_takes_the_largest_gain_of_one_map(scales: Any) -> None:
    maps = maps_of(scales)
    expected = {
        "l1": max(np.linalg.norm(one, axis=0).max() for one in maps),
        "l2": max(np.linalg.svd(one, compute_uv=False)[0] for one in maps),
        "linf": max(math.sqrt(len(one)) * np.abs(one).sum(1).max() for one in maps),
    }
    for norm in NORMS:
        found = published(norm, after_first_map=scales)
        assert found.value == pytest.approx(expected[norm], rel=1e-5)
        assert found.covers == "one feature map"


def test_003_takes_one_map_and_for_linf_one_output() -> None:
    maps = maps_of(0.5)
    assert published("l1", kind="laplace", after_first_map=0.5).value == pytest.approx(
        max(np.abs(one).sum(0).max() for one in maps), rel=1e-5
    )
    linf = published("linf", kind="laplace", after_first_map=0.5)
    assert linf.value == pytest.approx(max(np.abs(one).sum(1).max() for one in maps), rel=1e-5)
    assert linf.covers == "one output"
    one_map = single_map_gain(
        NoiseLayers(kind="laplace", after_first_map=0.5),
        "linf",
        shape=SHAPE,
        first_map=AffineMap(CONVOLUTION, SHAPE),
    )
    truth = max(np.abs(one).sum() for one in maps)
    assert linf.value < one_map.value <= truth * (1 + 1e-5)


def test_003_adds_the_losses_of_two_places() -> None:
    for norm, at_input in (("l1", 1.0), ("l2", math.sqrt(40)), ("linf", 40.0)):
        both = published(norm, kind="laplace", after_first_map=0.5, at_input=0.25)  # type: ignore[arg-type]
        alone = published(norm, kind="laplace", after_first_map=0.5)  # type: ignore[arg-type]
        assert both.value == pytest.approx(alone.value + at_input / 0.25)


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_the_published_radius_is_too_large_but_not_by_more_than_the_maps(kind: Any, norm: Norm) -> None:
    """Identical maps are the worst case: then the factor is reached."""
    noise = NoiseLayers(kind=kind, after_first_map=0.5)
    alike = nn.Conv2d(2, 6, 3, padding=1)
    with torch.no_grad():
        alike.weight.copy_(alike.weight[:1].expand(6, -1, -1, -1).clone())
    worst = math.sqrt(6) if kind == "gaussian" else 6
    for layer, reached in ((CONVOLUTION, False), (alike, True)):
        map_ = AffineMap(layer, SHAPE)
        sound = gain(noise, norm, shape=SHAPE, first_map=map_)
        factor = published_gain(noise, norm, shape=SHAPE, first_map=map_).radius_too_large_by(sound)
        assert 1 < factor <= worst * (1 + 1e-6)
        if reached and not (kind == "laplace" and norm == "l2"):
            assert factor == pytest.approx(worst, rel=1e-6)


def test_what_covers_everything_is_sound() -> None:
    """Input noise, and 000's bounds for a dense layer."""
    assert (
        published("l2", at_input=0.5).radius_too_large_by(gain(NoiseLayers(at_input=0.5), "l2", shape=SHAPE))
        == 1
    )
    noise = NoiseLayers(after_first_map=0.5)
    for norm in NORMS:
        found = published(norm, LINEAR, after_first_map=0.5)
        assert found.covers == "all outputs"
        sound = gain(noise, norm, shape=(40,), first_map=AffineMap(LINEAR, (40,)))
        assert found.radius_too_large_by(sound) <= 1 + 1e-9
    assert published("linf", LINEAR, kind="laplace", after_first_map=0.5).covers == "one output"


def test_a_map_of_zeros_is_no_obstacle() -> None:
    layer = nn.Conv2d(1, 2, 2)
    with torch.no_grad():
        layer.weight[1] = 0
    map_ = AffineMap(layer, (1, 3, 3))
    for norm in NORMS:
        found = published_gain(NoiseLayers(after_first_map=1.0), norm, shape=(1, 3, 3), first_map=map_)
        assert found.value > 0


def test_what_the_papers_do_not_have() -> None:
    with pytest.raises(RequestError, match="both places"):
        published("l2", after_first_map=0.5, at_input=0.5)
    with pytest.raises(RequestError, match="needs that map"):
        published_gain(NoiseLayers(after_first_map=0.5), "l2", shape=SHAPE)
