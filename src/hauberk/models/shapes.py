"""Which inputs a network can take, and how many features its convolutions leave of them."""

from __future__ import annotations

import torch
from torch import nn

from hauberk.errors import RequestError

Shape = tuple[int, ...]


def require_image(network: str, shape: Shape, *, smallest_side: int) -> None:
    """Refuse anything but ``(channels, height, width)`` with both sides at least ``smallest_side``."""
    if len(shape) != 3:
        raise RequestError(
            f"The network {network} takes images (channels, height, width), not records of shape {shape}; "
            "for those, mlp and logistic take any shape."
        )
    if min(shape[1:]) < smallest_side:
        raise RequestError(
            f"The network {network} needs images of at least {smallest_side} x {smallest_side} pixels, "
            f"not {shape[1]} x {shape[2]}; mlp and logistic take any shape."
        )


def features_left(layers: nn.Sequential, shape: Shape) -> int:
    """Number of values per record behind ``layers``: asked of the layers, so that no formula can disagree.

    Draws no random number, and follows the default device (a network can be built on ``meta``).
    """
    with torch.no_grad():
        left: torch.Tensor = layers(torch.zeros(1, *shape))
    return left[0].numel()
