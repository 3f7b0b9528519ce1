"""The table of networks: one row each, and every generic test applies to every row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from hauberk.errors import RequestError
from hauberk.models import convolutional, dense, moved_average, residual, transformer
from hauberk.models.shapes import Shape


@dataclass(frozen=True, kw_only=True)
class Network:
    """A row: what to say about a network, and how to make one for a shape and a number of classes."""

    description: str
    make: Callable[[Shape, int], nn.Sequential]


_NETWORKS = {
    "small-tanh-cnn": Network(
        description="two convolutions and a dense layer with tanh, usual in DP-SGD work; 26,010 weights",
        make=convolutional.small_tanh_cnn,
    ),
    "moved-tanh-cnn": Network(
        description="small-tanh-cnn with 128 dense units, asked at five places of the image",
        make=moved_average.moved_tanh_cnn,
    ),
    "paper-mnist-cnn": Network(
        description="Secure-SGD's MNIST network: two 5x5 convolutions (32, 64) and 256 dense units",
        make=convolutional.paper_mnist_cnn,
    ),
    "paper-cifar-cnn": Network(
        description="Secure-SGD's CIFAR-10 network: three convolutions (128, 128, 256) and 256 dense units",
        make=convolutional.paper_cifar_cnn,
    ),
    "wrn-16-4": Network(
        description="wide residual network of depth 16 and width 4 with GroupNorm, usual for CIFAR-10",
        make=residual.wrn_16_4,
    ),
    "lenet": Network(
        description="directional noise's MNIST network: two 5x5 convolutions (32, 64) and 64 dense units",
        make=convolutional.lenet,
    ),
    "resnet-18": Network(
        description="ResNet-18 with GroupNorm; the stem fits images up to 32 pixels or, above, Tiny ImageNet",
        make=residual.resnet_18,
    ),
    "mlp": Network(
        description="two hidden layers of 256 ReLU units; takes any shape",
        make=dense.mlp,
    ),
    "logistic": Network(
        description="logistic regression, one linear layer; takes any shape",
        make=dense.logistic,
    ),
    "transformer": Network(
        description="small transformer encoder (2 layers, 4 heads, width 64) for images and feature vectors",
        make=transformer.transformer,
    ),
}


def names() -> tuple[str, ...]:
    """The networks' names, in the order in which help and documentation list them."""
    return tuple(_NETWORKS)


def describe() -> dict[str, str]:
    """One line per network, by name."""
    return {name: network.description for name, network in _NETWORKS.items()}


def build(name: str, *, shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """A freshly initialised network from records of ``shape``, values in [0, 1], to ``classes`` logits.

    ``shape`` is that of one record: ``(channels, height, width)`` for an image, ``(features,)`` for a vector.
    The weights are drawn from torch's global generator: seed it for the same network twice.
    Raises `RequestError` for an unknown name and for a shape that the network cannot take.
    """
    if name not in _NETWORKS:
        raise RequestError(f"There is no network {name!r}; choose one of {', '.join(_NETWORKS)}.")
    if not shape or min(shape) < 1:
        raise RequestError(f"The shape of a record must be one or more positive sizes, not {tuple(shape)}.")
    if classes < 2:
        raise RequestError(f"A classifier needs at least 2 classes, not {classes}.")
    return _NETWORKS[name].make(tuple(shape), classes)
