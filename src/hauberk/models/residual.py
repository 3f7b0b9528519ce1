"""Residual networks with GroupNorm (see `hauberk.models.normalisation` for why not BatchNorm).

The stem convolution has no path around it: the shortcuts begin behind it, so it is the network's first affine
map. Convolutions have no bias, as usual before a normalisation; each spared weight is spared noise.
"""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn

from hauberk.models.normalisation import normalise_channels
from hauberk.models.shapes import Shape, require_image

_LARGEST_SMALL_IMAGE = 32


def _conv(channels_in: int, channels_out: int, *, kernel_size: int, stride: int = 1) -> nn.Conv2d:
    """A convolution without bias, padded to keep the size (over ``stride``), with He's weights for ReLU."""
    conv = nn.Conv2d(
        channels_in, channels_out, kernel_size, stride=stride, padding=kernel_size // 2, bias=False
    )
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return conv


class MeanOverPixels(nn.Module):
    """``(n, channels, height, width)`` to ``(n, channels)``."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(dim=(2, 3))


class WideBlock(nn.Module):
    """Zagoruyko & Komodakis 2016: normalisation and ReLU come *before* each of the two 3x3 convolutions."""

    def __init__(self, channels_in: int, channels_out: int, *, stride: int) -> None:
        super().__init__()
        self.norm1 = normalise_channels(channels_in)
        self.conv1 = _conv(channels_in, channels_out, kernel_size=3, stride=stride)
        self.norm2 = normalise_channels(channels_out)
        self.conv2 = _conv(channels_out, channels_out, kernel_size=3)
        self.relu = nn.ReLU()
        keeps_shape = channels_in == channels_out and stride == 1
        self.shortcut = (
            None if keeps_shape else _conv(channels_in, channels_out, kernel_size=1, stride=stride)
        )

    def forward(self, x: Tensor) -> Tensor:
        activated = self.relu(self.norm1(x))
        # As in the paper: a projecting shortcut reads the normalised input, an identity the raw one.
        around: Tensor = x if self.shortcut is None else self.shortcut(activated)
        through: Tensor = self.conv2(self.relu(self.norm2(self.conv1(activated))))
        return around + through


def wrn_16_4(shape: Shape, classes: int) -> nn.Sequential:
    """Wide ResNet of depth 16 and width factor 4, as private training commonly uses it (De et al. 2022).

    A 3x3 stem of 16 features, then three stages of two blocks with 64, 128 and 256 features, halving the
    resolution at the second and the third.
    """
    require_image("wrn-16-4", shape, smallest_side=8)
    layers: OrderedDict[str, nn.Module] = OrderedDict(stem=_conv(shape[0], 16, kernel_size=3))
    channels = 16
    for stage, (width, stride) in enumerate([(64, 1), (128, 2), (256, 2)], start=1):
        layers[f"stage{stage}"] = nn.Sequential(
            OrderedDict(
                block1=WideBlock(channels, width, stride=stride),
                block2=WideBlock(width, width, stride=1),
            )
        )
        channels = width
    layers.update(
        norm=normalise_channels(channels),
        relu=nn.ReLU(),
        pool=MeanOverPixels(),
        output=nn.Linear(channels, classes),
    )
    return nn.Sequential(layers)


class BasicBlock(nn.Module):
    """He et al. 2016: two 3x3 convolutions, each followed by a normalisation; the sum goes through a ReLU."""

    def __init__(self, channels_in: int, channels_out: int, *, stride: int) -> None:
        super().__init__()
        self.conv1 = _conv(channels_in, channels_out, kernel_size=3, stride=stride)
        self.norm1 = normalise_channels(channels_out)
        self.conv2 = _conv(channels_out, channels_out, kernel_size=3)
        self.norm2 = normalise_channels(channels_out)
        self.relu = nn.ReLU()
        keeps_shape = channels_in == channels_out and stride == 1
        self.shortcut: nn.Module = (
            nn.Identity()
            if keeps_shape
            else nn.Sequential(
                OrderedDict(
                    conv=_conv(channels_in, channels_out, kernel_size=1, stride=stride),
                    norm=normalise_channels(channels_out),
                )
            )
        )

    def forward(self, x: Tensor) -> Tensor:
        through = self.norm2(self.conv2(self.relu(self.norm1(self.conv1(x)))))
        out: Tensor = self.relu(through + self.shortcut(x))
        return out


def resnet_18(shape: Shape, classes: int) -> nn.Sequential:
    """ResNet-18: a stem and four stages of two blocks with 64, 128, 256 and 512 features.

    Images up to 32 pixels (002's CIFAR-10) get a 3x3 stem that keeps their resolution; larger ones (Tiny
    ImageNet of 003 and 004) the original 7x7 stem with stride 2 and a max-pool.
    """
    require_image("resnet-18", shape, smallest_side=8)
    small = max(shape[1:]) <= _LARGEST_SMALL_IMAGE
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        stem=_conv(shape[0], 64, kernel_size=3) if small else _conv(shape[0], 64, kernel_size=7, stride=2),
        norm=normalise_channels(64),
        relu=nn.ReLU(),
    )
    if not small:
        layers["stem_pool"] = nn.MaxPool2d(3, stride=2, padding=1)
    channels = 64
    for stage, (width, stride) in enumerate([(64, 1), (128, 2), (256, 2), (512, 2)], start=1):
        layers[f"stage{stage}"] = nn.Sequential(
            OrderedDict(
                block1=BasicBlock(channels, width, stride=stride),
                block2=BasicBlock(width, width, stride=1),
            )
        )
        channels = width
    layers.update(
        pool=MeanOverPixels(),
        output=nn.Linear(channels, classes),
    )
    return nn.Sequential(layers)
