"""The denoiser of 004 chapter 6: an image with noise in, an image of the same shape out.

After the thesis' Figure 8, which shows convolutions and transposed convolutions with layer normalisation, a
residual block and a skip connection. The sizes in the figure cannot be read, so the sizes here are ours, and
small: private training adds noise to every weight. The thesis' dropout is left out, so that training and
evaluation compute the same.

What holds by construction, for any weights:

- the answer for a record depends on that record alone (the normalisation reads one record's features);
- ``conv1`` is the only reader of the input, so `hauberk.certify.first_map` finds it in ``nn.Sequential`` of
  denoiser and classifier, and noise may follow it. The skip connection begins behind ``conv1``.
"""

from __future__ import annotations

import math

from torch import Tensor, nn

from hauberk.errors import RequestError
from hauberk.models.shapes import Shape, require_image

SMALLEST_SIDE = 4
"""In pixels: half of it must leave a 3x3 convolution more than a single position to look at."""


def _normalise_record(channels: int) -> nn.GroupNorm:
    """Layer normalisation of feature maps: one mean and deviation over all channels and positions.

    One group rather than `nn.LayerNorm`, whose gains would belong to positions as well and outnumber all
    other weights.
    """
    return nn.GroupNorm(1, channels)


class NarrowResidual(nn.Module):
    """Two 3x3 convolutions, narrow between them, and a path around both."""

    def __init__(self, channels: int, *, between: int) -> None:
        super().__init__()
        self.conv_in = nn.Conv2d(channels, between, 3, padding=1, bias=False)
        self.norm_in = _normalise_record(between)
        self.conv_out = nn.Conv2d(between, channels, 3, padding=1, bias=False)
        self.norm_out = _normalise_record(channels)
        self.relu = nn.ReLU()

    def forward(self, maps: Tensor) -> Tensor:
        inner = self.relu(self.norm_in(self.conv_in(maps)))
        out: Tensor = self.relu(maps + self.norm_out(self.conv_out(inner)))
        return out


class Denoiser(nn.Module):
    """Built by `denoiser`, which checks the request.

        conv1 3x3 -> down 4x4, half the resolution -> residual block -> up 4x4 -> add conv1's features -> 3x3

    Convolutions before a normalisation have no bias; each spared weight is spared noise.
    """

    def __init__(self, shape: Shape, *, width: int) -> None:
        super().__init__()
        channels, height, sideways = shape
        self.conv1 = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.norm1 = _normalise_record(width)
        self.down = nn.Conv2d(width, 2 * width, 4, stride=2, padding=1, bias=False)
        self.norm_down = _normalise_record(2 * width)
        self.residual = NarrowResidual(2 * width, between=width)
        # Halving an odd side drops a pixel; the padding of the output brings it back.
        self.up = nn.ConvTranspose2d(
            2 * width,
            width,
            4,
            stride=2,
            padding=1,
            output_padding=(height % 2, sideways % 2),
            bias=False,
        )
        self.norm_up = _normalise_record(width)
        self.output = nn.ConvTranspose2d(width, channels, 3, padding=1)
        # Torch takes the output's channels for the input's here, and the first answers would be many times
        # worse than a blank image; private training has no steps to spare for undoing that.
        nn.init.kaiming_uniform_(self.output.weight, a=math.sqrt(5), mode="fan_out")
        assert self.output.bias is not None
        nn.init.zeros_(self.output.bias)
        self.relu = nn.ReLU()

    def forward(self, noisy: Tensor) -> Tensor:
        features = self.relu(self.norm1(self.conv1(noisy)))
        inner = self.residual(self.relu(self.norm_down(self.down(features))))
        joined = self.relu(self.norm_up(self.up(inner) + features))
        clean: Tensor = self.output(joined)
        return clean


def denoiser(shape: Shape, *, width: int = 8) -> nn.Module:
    """A denoiser for images ``(channels, height, width)`` with values around [0, 1], noise included.

    ``width`` is the number of features behind ``conv1``; inside there are twice as many. The output has the
    shape of the input and is not bounded. Any side from `SMALLEST_SIDE` on is served, odd ones too. Initial
    weights come from torch's global generator.
    """
    require_image("denoiser", shape, smallest_side=SMALLEST_SIDE)
    if isinstance(width, bool) or not isinstance(width, int) or width < 1:
        raise RequestError(f"the width of the denoiser must be a whole number of at least 1, got {width}")
    return Denoiser(shape, width=width)
