"""A small transformer encoder for images and feature vectors.

Attention is written out as four linear layers and two matrix products instead of ``nn.MultiheadAttention``:
that layer computes differently in evaluation mode, hides its weights from per-layer gradient rules, and its
fused kernels cannot be differentiated twice, as a gradient penalty needs.
"""

from __future__ import annotations

import math
from collections import OrderedDict

import torch
from torch import Tensor, nn

from hauberk.errors import RequestError
from hauberk.models.shapes import Shape, require_image

_WIDTH = 64
_HEADS = 4
_LAYERS = 2
_FEED_FORWARD = 128
_MOST_PATCHES = 64
_MOST_FEATURES = 1024  # attention looks at all pairs of tokens


class LearnedPositions(nn.Module):
    """Adds to each token a learned vector of its own, which tells the network where the token comes from."""

    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.vectors = nn.Parameter(torch.empty(tokens, width))
        nn.init.normal_(self.vectors, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        return tokens + self.vectors


class PixelsToTokens(nn.Module):
    """``(n, width, height', width')`` feature maps to ``(n, height' * width', width)`` tokens."""

    def forward(self, maps: Tensor) -> Tensor:
        return maps.flatten(2).transpose(1, 2)


class SelfAttention(nn.Module):
    """Multi-head scaled dot-product attention among the tokens of one record (Vaswani et al. 2017).

    Queries, keys and values have no bias: the normalisation before them has one, and that of the keys would
    cancel in the softmax, so it would receive noise and never a gradient.
    """

    def __init__(self, width: int, *, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.output = nn.Linear(width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        query, key, value = (self._split(layer(tokens)) for layer in (self.query, self.key, self.value))
        scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
        mixed = (scores.softmax(dim=-1) @ value).transpose(-3, -2).flatten(-2)
        out: Tensor = self.output(mixed)
        return out

    def _split(self, tokens: Tensor) -> Tensor:
        """``(..., tokens, width)`` to ``(..., heads, tokens, width / heads)``."""
        per_head = tokens.reshape(*tokens.shape[:-1], self.heads, tokens.shape[-1] // self.heads)
        return per_head.transpose(-3, -2)


class EncoderLayer(nn.Module):
    """Attention and a feed-forward layer, each behind a LayerNorm and with a path around it (pre-norm)."""

    def __init__(self, width: int, *, heads: int, feed_forward: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = SelfAttention(width, heads=heads)
        self.norm2 = nn.LayerNorm(width)
        self.expand = nn.Linear(width, feed_forward)
        self.activation = nn.GELU()
        self.contract = nn.Linear(feed_forward, width)

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens + self.attention(self.norm1(tokens))
        thought: Tensor = self.contract(self.activation(self.expand(self.norm2(tokens))))
        return tokens + thought


class MeanOverTokens(nn.Module):
    """``(n, tokens, width)`` to ``(n, width)``."""

    def forward(self, tokens: Tensor) -> Tensor:
        return tokens.mean(dim=1)


def transformer(shape: Shape, classes: int) -> nn.Sequential:
    """Encoder of width 64 with 4 heads, 2 layers, feed-forward 128, no dropout, and a mean over the tokens.

    An image is cut into at most 64 square patches (28 pixels: 7x7 of 4; 32: 8x8 of 4; 64: 8x8 of 8), each
    mapped to a token. A vector becomes one token per feature: its value times a learned vector, plus another.
    """
    layers = _tokens_of_vector(shape[0]) if len(shape) == 1 else _tokens_of_image(shape)
    for number in range(1, _LAYERS + 1):
        layers[f"layer{number}"] = EncoderLayer(_WIDTH, heads=_HEADS, feed_forward=_FEED_FORWARD)
    layers.update(
        norm=nn.LayerNorm(_WIDTH),
        pool=MeanOverTokens(),
        output=nn.Linear(_WIDTH, classes),
    )
    return nn.Sequential(layers)


def _tokens_of_image(shape: Shape) -> OrderedDict[str, nn.Module]:
    require_image("transformer", shape, smallest_side=1)
    sides = shape[1:]
    patch = 1
    while math.prod(math.ceil(side / patch) for side in sides) > _MOST_PATCHES:
        patch += 1
    rows, columns = (math.ceil(side / patch) for side in sides)
    # Sides that the patch does not divide get a black margin: without it a strided convolution would silently
    # leave out the last pixels.
    margins = (math.ceil((rows * patch - sides[0]) / 2), math.ceil((columns * patch - sides[1]) / 2))
    # No bias: the positions are one.
    return OrderedDict(
        patches=nn.Conv2d(shape[0], _WIDTH, kernel_size=patch, stride=patch, padding=margins, bias=False),
        tokens=PixelsToTokens(),
        positions=LearnedPositions(rows * columns, _WIDTH),
    )


def _tokens_of_vector(features: int) -> OrderedDict[str, nn.Module]:
    if features > _MOST_FEATURES:
        raise RequestError(
            f"The network transformer makes a token of each feature and takes at most {_MOST_FEATURES}, "
            f"not {features}; mlp and logistic take any number."
        )
    # A convolution with one group per feature is "value times its own vector" in a layer that per-record
    # gradients and certificates already know.
    return OrderedDict(
        column=nn.Unflatten(1, (features, 1, 1)),
        vectors=nn.Conv2d(features, features * _WIDTH, kernel_size=1, groups=features, bias=False),
        tokens=nn.Unflatten(1, (features, _WIDTH)),
        drop_pixel=nn.Flatten(2),
        positions=LearnedPositions(features, _WIDTH),
    )
