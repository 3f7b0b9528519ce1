"""What the table of networks cannot see: the order of layers in the papers' networks."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hauberk import models
from hauberk.models.convolutional import ConcatenatedConvolution

# Layers in order, as the docstrings of the networks tell them.
ORDERS = {
    "small-tanh-cnn": "Conv2d Tanh NeighbourMax Conv2d Tanh NeighbourMax Flatten Linear Tanh Linear",
    "moved-tanh-cnn": "Conv2d Tanh NeighbourMax Conv2d Tanh NeighbourMax Flatten Linear Tanh Linear",
    "paper-mnist-cnn": "Conv2d ReLU MaxPool2d Conv2d ReLU MaxPool2d Flatten Linear ReLU Linear",
    "paper-cifar-cnn": "Conv2d ReLU GroupNorm ConcatenatedConvolution GroupNorm Conv2d ReLU GroupNorm "
    "AvgPool2d Flatten Linear GroupNorm ReLU Linear",
    "lenet": "Conv2d ReLU GroupNorm MaxPool2d Conv2d ReLU GroupNorm MaxPool2d "
    "Flatten Linear ReLU GroupNorm Linear",
}


@pytest.mark.parametrize("name", ORDERS)
def test_order_of_layers(name: str) -> None:
    with torch.device("meta"):
        model = models.build(name, shape=(3, 32, 32), classes=10)
    assert [type(layer).__name__ for layer in model] == ORDERS[name].split()


@pytest.mark.parametrize(
    ("name", "values"),
    [("small-tanh-cnn", 32 * 4 * 4), ("paper-mnist-cnn", 64 * 7 * 7), ("paper-cifar-cnn", 256 * 7 * 7)],
)
def test_values_before_the_dense_layer_on_28_pixels(name: str, values: int) -> None:
    with torch.device("meta"):
        hidden = models.build(name, shape=(1, 28, 28), classes=10).get_submodule("hidden")
    assert isinstance(hidden, nn.Linear)
    assert hidden.in_features == values


def test_concatenation_keeps_the_input_behind_the_new_features() -> None:
    layer = ConcatenatedConvolution(3, 5, kernel_size=5)
    maps = torch.rand(2, 3, 9, 9)
    both = layer(maps)
    assert both.shape == (2, 8, 9, 9)
    assert torch.equal(both[:, 5:], maps)
    assert torch.equal(both[:, :5], layer.conv(maps).relu())
