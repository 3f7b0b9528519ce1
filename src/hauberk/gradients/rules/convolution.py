"""Convolutions of one, two and three dimensions, and transposed ones.

A convolution is a linear layer over patches, so a record's gradient is ``sum_t b_t patch_t^T`` over all
output positions of all its views. The patches are *one* strided view of the padded input, copied once and
multiplied once for all records: neither a loop over records nor a convolution with one group per record,
which is what makes per-record convolution gradients slow elsewhere.

A transposed convolution is the same with input and output gradient changing places.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from hauberk.gradients.contributions import Materialised, OuterProducts, PerRecordGradient
from hauberk.gradients.rules.linear import outer_is_cheaper
from hauberk.gradients.rules.registry import LayerCall, gradient_rule
from hauberk.precision import convolution_precision

_CPU_PIECE = 1 << 20
"""Patches (in numbers, 4 MiB) in work at a time on a CPU: they stay in its cache and malloc reuses them."""

_ACCELERATOR_PIECE = 1 << 29
_POSITIONS_FOR_SHIFTS, _CHANNELS_FOR_SHIFTS = 512, 64

Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d
TransposedConvolution = nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d


@dataclass(frozen=True, kw_only=True)
class Window:
    """How a kernel moves over an image that has been padded already."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    outputs: tuple[int, ...]
    groups: int

    @property
    def positions(self) -> int:
        return math.prod(self.outputs)


def patches(images: Tensor, window: Window, *, records: int) -> Tensor:
    """Channels-last ``(records * views, *sizes, channels)`` to ``(records, groups, positions, patch)``.

    Positions run over views and output pixels, a patch over kernel places and then channels: with the
    channels last the longest possible runs of memory are copied.
    """
    views = len(images) // records
    channels = images.shape[-1] // window.groups
    view_stride, *pixel_strides, _ = images.stride()
    strided = images.as_strided(
        (records, window.groups, views, *window.outputs, *window.kernel, channels),
        (
            views * view_stride,
            channels,
            view_stride,
            *(stride * step for stride, step in zip(pixel_strides, window.stride, strict=True)),
            *(stride * step for stride, step in zip(pixel_strides, window.dilation, strict=True)),
            1,
        ),
    )
    patch = math.prod(window.kernel) * channels
    return strided.reshape(records, window.groups, views * window.positions, patch)


def by_position(maps: Tensor, groups: int, *, records: int) -> Tensor:
    """``(records * views, channels, *sizes)`` to ``(records, groups, channels / groups, positions)``."""
    views = len(maps) // records
    split = maps.reshape(records, views, groups, maps.shape[1] // groups, -1)
    return split.permute(0, 2, 3, 1, 4).flatten(3)


def materialise(images: Tensor, maps: Tensor, window: Window, *, records: int) -> Materialised:
    """One product of ``maps`` with the patches of channels-last ``images`` per record and group."""
    views, patch = len(images) // records, math.prod(window.kernel) * images.shape[-1] // window.groups
    limit = _CPU_PIECE if images.device.type == "cpu" else _ACCELERATOR_PIECE
    piece = max(1, limit // (views * window.positions * patch * window.groups))
    outputs = maps.shape[1]
    gradients = images.new_empty(records * window.groups, outputs // window.groups, patch)
    for start in range(0, records, piece):
        count = min(piece, records - start)
        rows = slice(start * views, (start + count) * views)
        wide = patches(images[rows], window, records=count).flatten(0, 1)
        tall = by_position(maps[rows], window.groups, records=count).flatten(0, 1)
        torch.bmm(tall, wide, out=gradients[start * window.groups : (start + count) * window.groups])
    places = len(window.kernel)
    stored = gradients.view(records, outputs, *window.kernel, images.shape[-1] // window.groups)
    return Materialised(stored, order=(0, places + 1, *range(1, places + 1)))


def materialise_by_shifts(images: Tensor, maps: Tensor, window: Window, *, records: int) -> Materialised:
    """The same without a copy of any patch, for stride 1: one product per kernel place.

    With output gradients laid out on the grid of the padded image (zeros in its margin), moving the kernel by
    one place moves the flat image by a constant number of pixels, and a moved image is just another view.
    """
    sizes, channels, places = images.shape[1:-1], images.shape[-1], len(window.kernel)
    views = len(images) // records
    flat = images.flatten(1, -2)
    margins = [amount for size, out in zip(sizes, window.outputs, strict=True) for amount in (size - out, 0)]
    on_grid = functional.pad(maps, margins[::-1]).flatten(2)
    steps = [math.prod(sizes[axis + 1 :]) * window.dilation[axis] for axis in range(places)]
    length = flat.shape[1] - sum((k - 1) * step for k, step in zip(window.kernel, steps, strict=True))
    # one product per view keeps the device busy where records are few
    gradients = images.new_empty(len(images), math.prod(window.kernel), maps.shape[1], channels)
    for number, place in enumerate(itertools.product(*(range(k) for k in window.kernel))):
        start = sum(index * step for index, step in zip(place, steps, strict=True))
        torch.bmm(on_grid[..., :length], flat[:, start : start + length], out=gradients[:, number])
    if views > 1:
        gradients = gradients.view(records, views, *gradients.shape[1:]).sum(1)
    stored = gradients.view(records, *window.kernel, maps.shape[1], channels)
    return Materialised(stored, order=(places, places + 1, *range(places)))


def shifts_are_cheaper(images: Tensor, maps: Tensor, window: Window) -> bool:
    """On an accelerator copying large images nine times over costs more than reading them nine times."""
    return (
        images.device.type != "cpu"
        and window.groups == 1
        and set(window.stride) == {1}
        and window.positions >= _POSITIONS_FOR_SHIFTS
        and min(images.shape[-1], maps.shape[1]) >= _CHANNELS_FOR_SHIFTS
    )


def _weight_gradients(
    layer: Convolution | TransposedConvolution, images: Tensor, maps: Tensor, window: Window, *, records: int
) -> PerRecordGradient:
    """``maps`` times the patches of padded channels-last ``images``; ghosts where positions are few."""
    # an output padded beyond the stride has a margin that no window touches
    for axis, (size, step, gap, count) in enumerate(
        zip(window.kernel, window.stride, window.dilation, window.outputs, strict=True), start=1
    ):
        images = images.narrow(axis, 0, min(images.shape[axis], step * (count - 1) + gap * (size - 1) + 1))
    positions = window.positions * (len(images) // records)
    patch = math.prod(window.kernel) * images.shape[-1]
    if window.groups == 1 and outer_is_cheaper(positions, patch, maps.shape[1], maps.device):

        def kernel(factors: Tensor) -> Tensor:
            nothing = [0] * len(window.stride)
            total: Tensor = torch.ops.aten.convolution_backward(
                maps * _per_view(factors, maps), images.movedim(-1, 1), layer.weight.detach(), None,
                window.stride, nothing, window.dilation, False, nothing, window.groups, (False, True, False),
            )[1]  # fmt: skip
            return total

        wide = patches(images, window, records=records)[:, 0]
        # patches store kernel places before channels: the norm does not mind, and `kernel` makes the sum
        return _GhostConvolution(
            wide,
            by_position(maps, 1, records=records)[:, 0].mT,
            layer.weight.shape,
            kernel,
            window=window,
        )
    # A record's norm is taken of these very numbers, so they may be as coarse as the framework's own
    # convolution gradients are.
    with convolution_precision():
        if shifts_are_cheaper(images, maps, window):
            return materialise_by_shifts(images, maps, window, records=records)
        return materialise(images, maps, window, records=records)


@dataclass(frozen=True)
class _GhostConvolution(OuterProducts):
    window: Window | None = None

    def materialised(self) -> Tensor:
        assert self.window is not None
        places = len(self.window.kernel)
        stored = (self.gradients.mT @ self.inputs).view(
            len(self.gradients), self.shape[0], *self.window.kernel, -1
        )
        return stored.permute(0, 1, places + 2, *range(2, places + 2))


def _per_view(factors: Tensor, maps: Tensor) -> Tensor:
    """One factor per record, spread over its views and shaped to multiply feature maps."""
    return factors.repeat_interleave(len(maps) // len(factors)).view(-1, *[1] * (maps.ndim - 1))


def channels_last(images: Tensor, padding: Sequence[int]) -> Tensor:
    """``(n, channels, *sizes)`` to contiguous ``(n, *sizes, channels)`` with zeros around, in one copy."""
    moved = images.movedim(1, -1)
    if not any(padding):
        return moved.contiguous()
    sizes = [size + 2 * amount for size, amount in zip(images.shape[2:], padding, strict=True)]
    padded = images.new_zeros(len(images), *sizes, images.shape[1])
    inner = tuple(
        slice(amount, amount + size) for amount, size in zip(padding, images.shape[2:], strict=True)
    )
    padded[(slice(None), *inner)] = moved
    return padded


def _padded(layer: Convolution, images: Tensor) -> Tensor:
    if layer.padding_mode == "zeros" and not isinstance(layer.padding, str):
        return channels_last(images, layer.padding)
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    around = functional.pad(images, layer._reversed_padding_repeated_twice, mode=mode)
    return channels_last(around, [0] * len(layer.kernel_size))


def _bias(call: LayerCall) -> dict[str, PerRecordGradient]:
    if "bias" not in call.wanted:
        return {}
    return {"bias": Materialised(call.per_record(call.output_gradient).flatten(3).sum((1, 3)))}


@gradient_rule(nn.Conv1d, nn.Conv2d, nn.Conv3d)
def convolution_gradients(call: LayerCall) -> dict[str, PerRecordGradient]:
    layer = call.layer
    assert isinstance(layer, Convolution)
    found = _bias(call)
    if "weight" in call.wanted:
        call.per_record(call.input)  # refuses images without a record axis
        images, maps = _padded(layer, call.input), call.output_gradient
        window = Window(
            kernel=layer.kernel_size,
            stride=layer.stride,
            dilation=layer.dilation,
            outputs=tuple(maps.shape[2:]),
            groups=layer.groups,
        )

        found["weight"] = _weight_gradients(layer, images, maps, window, records=call.records)
    return found


@gradient_rule(nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
def transposed_gradients(call: LayerCall) -> dict[str, PerRecordGradient]:
    layer = call.layer
    assert isinstance(layer, TransposedConvolution)
    found = _bias(call)
    if "weight" in call.wanted:
        call.per_record(call.input)
        padding = [each for each in layer.padding if isinstance(each, int)]  # strings are not allowed here
        maps, images = call.input, channels_last(call.output_gradient, padding)
        window = Window(
            kernel=layer.kernel_size,
            stride=layer.stride,
            dilation=layer.dilation,
            outputs=tuple(maps.shape[2:]),
            groups=layer.groups,
        )

        found["weight"] = _weight_gradients(layer, images, maps, window, records=call.records)
    return found
