"""Networks on fixed wavelet features: few weights for privacy noise to fall on.

    u_jl = | x * psi_jl |   oriented Morlet wavelets of two scales, the modulus of their complex answer
    S    = u_jl and x itself, averaged by a Gaussian window over four pixels     (first-order scattering)

The features are constants of mathematics: nothing is learnt from records, so they cost no privacy, and the
certificate holds as for any network on noisy inputs. Without noise at the input, private networks on such
features were better than those that learn their first layers (Tramer & Boneh 2021).
"""

from __future__ import annotations

import math
from collections import OrderedDict

import torch
from torch import Tensor, nn

from hauberk.models.shapes import Shape, features_left, require_image

ORIENTATIONS = 8
_SIZES = (7, 13)  # of the filters of each scale: what lies outside is less than a thousandth
_SLANT, _FREQUENCY, _WIDTH = 0.5, 3 * math.pi / 4, 0.8


def morlet(scale: int, angle: float, size: int) -> Tensor:
    """A plane wave under a Gaussian window, shifted so that a constant image gives 0; complex."""
    places = torch.arange(size, dtype=torch.float64) - size // 2
    y, x = torch.meshgrid(places, places, indexing="ij")
    along = x * math.cos(angle) + y * math.sin(angle)
    across = y * math.cos(angle) - x * math.sin(angle)
    width = _WIDTH * 2**scale
    window = torch.exp(-(along**2 + (_SLANT * across) ** 2) / (2 * width**2))
    wave = torch.exp(1j * (_FREQUENCY / 2**scale) * along)
    balanced = window * (wave - (window * wave).sum() / window.sum())
    wavelet: Tensor = balanced * (_SLANT / (2 * math.pi * width**2))
    return wavelet


def _window(size: int, width: float) -> Tensor:
    places = torch.arange(size, dtype=torch.float64) - size // 2
    line = torch.exp(-(places**2) / (2 * width**2))
    window = line.unsqueeze(1) * line
    return (window / window.sum()).float()


class WaveletModuli(nn.Module):
    """``(n, C, H, W)`` to ``(n, 17 C, H / 4, W / 4)``; it has no weights."""

    filters0: Tensor
    filters1: Tensor
    fine_window: Tensor
    coarse_window: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels
        for scale, size in enumerate(_SIZES):
            angles = [math.pi * turn / ORIENTATIONS for turn in range(ORIENTATIONS)]
            filters = torch.stack([morlet(scale, angle, size) for angle in angles])
            both = torch.cat([filters.real, filters.imag]).float().unsqueeze(1)
            self.register_buffer(f"filters{scale}", both, persistent=False)
        self.register_buffer("fine_window", _window(7, 1.6), persistent=False)
        self.register_buffer("coarse_window", _window(3, 0.8), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        records, channels = x.shape[:2]
        alone = x.flatten(0, 1).unsqueeze(1)
        moduli = [
            self._averaged(self._moduli(alone, self.filters0, stride=1), self.fine_window, stride=4),
            self._averaged(self._moduli(alone, self.filters1, stride=2), self.coarse_window, stride=2),
            self._averaged(alone, self.fine_window, stride=4),
        ]
        features = torch.cat(moduli, 1)
        return features.view(records, channels * features.shape[1], *features.shape[2:])

    @staticmethod
    def _moduli(x: Tensor, filters: Tensor, *, stride: int) -> Tensor:
        answers = nn.functional.conv2d(x, filters, stride=stride, padding=filters.shape[-1] // 2)
        real, imaginary = answers.chunk(2, 1)
        return (real.square() + imaginary.square() + 1e-12).sqrt()

    @staticmethod
    def _averaged(x: Tensor, window: Tensor, *, stride: int) -> Tensor:
        channels, size = x.shape[1], window.shape[-1]
        kernel = window.expand(channels, 1, size, size)
        return nn.functional.conv2d(x, kernel, stride=stride, padding=size // 2, groups=channels)

    def extra_repr(self) -> str:
        return f"{self.channels} -> {(2 * ORIENTATIONS + 1) * self.channels} channels, fixed"


def _normalised_moduli(shape: Shape) -> nn.Sequential:
    maps = (2 * ORIENTATIONS + 1) * shape[0]
    # over all features of an image, with nothing to learn: noise at the input raises all moduli alike
    return nn.Sequential(
        OrderedDict(moduli=WaveletModuli(shape[0]), norm=nn.GroupNorm(1, maps, affine=False))
    )


def wavelet_linear(shape: Shape, classes: int) -> nn.Sequential:
    """One linear layer on the normalised features: 8,340 weights for MNIST."""
    require_image("wavelet-linear", shape, smallest_side=8)
    features = _normalised_moduli(shape)
    features.add_module("flatten", nn.Flatten())
    features.add_module("output", nn.Linear(features_left(features, shape), classes))
    return features


def wavelet_cnn(shape: Shape, classes: int) -> nn.Sequential:
    """A 3x3 convolution of 32 features with tanh, and a linear layer, on the normalised features."""
    require_image("wavelet-cnn", shape, smallest_side=8)
    features = _normalised_moduli(shape)
    maps = (2 * ORIENTATIONS + 1) * shape[0]
    features.add_module("conv", nn.Conv2d(maps, 32, kernel_size=3, padding=1))
    features.add_module("tanh", nn.Tanh())
    features.add_module("flatten", nn.Flatten())
    features.add_module("output", nn.Linear(features_left(features, shape), classes))
    return features
