"""What the table of networks cannot see: resolutions, stems and shortcuts of the residual networks."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hauberk import models
from hauberk.models.residual import BasicBlock, WideBlock


def resolutions(name: str, shape: tuple[int, ...]) -> list[int]:
    """Height of the feature maps behind the stem and behind each stage."""
    seen: list[int] = []
    with torch.device("meta"):
        model = models.build(name, shape=shape, classes=10)
        for path, layer in model.named_children():
            if path.startswith("stage") or path == "stem":
                layer.register_forward_hook(lambda layer, inputs, output: seen.append(output.shape[2]))
        model(torch.zeros(1, *shape))
    return seen


@pytest.mark.parametrize(
    ("name", "side", "expected"),
    [
        ("wrn-16-4", 32, [32, 32, 16, 8]),
        ("wrn-16-4", 28, [28, 28, 14, 7]),
        ("wrn-16-4", 64, [64, 64, 32, 16]),
        ("resnet-18", 32, [32, 32, 16, 8, 4]),
        ("resnet-18", 28, [28, 28, 14, 7, 4]),
        ("resnet-18", 64, [32, 16, 8, 4, 2]),
    ],
)
def test_resolutions(name: str, side: int, expected: list[int]) -> None:
    assert resolutions(name, (3, side, side)) == expected


@pytest.mark.parametrize(("side", "kernel"), [(32, 3), (33, 7)])
def test_the_stem_fits_the_image(side: int, kernel: int) -> None:
    with torch.device("meta"):
        stem = models.build("resnet-18", shape=(3, side, 20), classes=10).get_submodule("stem")
    assert isinstance(stem, nn.Conv2d)
    assert stem.kernel_size == (kernel, kernel)


def test_depth_is_the_number_in_the_name() -> None:
    """Each paper counts its own way: all convolutions, or no shortcuts but the output layer."""
    with torch.device("meta"):
        wide = models.build("wrn-16-4", shape=(3, 32, 32), classes=10)
        plain = models.build("resnet-18", shape=(3, 32, 32), classes=10)
    assert sum(isinstance(layer, nn.Conv2d) for layer in wide.modules()) == 16
    on_main_path = [layer for path, layer in plain.named_modules() if "shortcut" not in path]
    assert sum(isinstance(layer, nn.Conv2d | nn.Linear) for layer in on_main_path) == 18


@pytest.mark.parametrize("block", [WideBlock, BasicBlock])
def test_a_block_that_keeps_its_shape_has_a_path_around_it(block: type[WideBlock] | type[BasicBlock]) -> None:
    layer = block(32, 32, stride=1)
    nn.init.zeros_(layer.conv2.weight)
    maps = torch.rand(2, 32, 5, 5)
    assert torch.equal(layer(maps), maps)


@pytest.mark.parametrize("block", [WideBlock, BasicBlock])
def test_a_block_can_halve_and_widen(block: type[WideBlock] | type[BasicBlock]) -> None:
    assert block(16, 64, stride=2)(torch.rand(2, 16, 7, 7)).shape == (2, 64, 4, 4)
