"""Every layer obeys every law of per-record gradients: add a row, inherit the tests.

The reference of each row is the general path; `test_general` holds that one against ordinary backward.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

import hauberk.models
from hauberk.gradients import (
    ClippedGradients,
    FlatClip,
    LayerCall,
    Materialised,
    OuterProducts,
    PerRecordGradient,
    gradient_rule,
    mean_cross_entropy,
    trainable,
)
from hauberk.gradients.fast import FastPath
from hauberk.gradients.general import GeneralPath
from hauberk.gradients.rules import convolution
from hauberk.gradients.rules.embedding import Lookups
from hauberk.models.transformer import EncoderLayer, SelfAttention

pytestmark = pytest.mark.filterwarnings("ignore::hauberk.gradients.GeneralPathNotice")

CLASSES = 3

# ------------------------------------------------------------------------------------------- models


def headed(layer: nn.Module, shape: tuple[int, ...], *, integers: int = 0) -> nn.Module:
    """``layer`` and a linear head behind it."""
    with torch.no_grad():
        example = torch.zeros(1, *shape, dtype=torch.int64) if integers else torch.rand(1, *shape)
        features = layer(example).numel()
    return nn.Sequential(layer, nn.Tanh(), nn.Flatten(), nn.Linear(features, CLASSES))


def frozen(layer: nn.modules.batchnorm._BatchNorm) -> nn.Module:
    """With statistics from somewhere public."""
    layer.running_mean = torch.linspace(-1, 1, layer.num_features)
    layer.running_var = torch.linspace(0.5, 2, layer.num_features)
    return layer.eval()


def spread(layer: nn.Module) -> nn.Module:
    """Normalisations start with weight 1 and bias 0, where a wrong factor could hide."""
    for weight in layer.parameters():
        nn.init.normal_(weight)
    return layer


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        mixed, _ = self.attention(tokens, tokens, tokens)
        return self.head(torch.tanh(mixed).mean(1))


class Volume(nn.Module):
    """A scalar parameter and no rule."""

    def __init__(self) -> None:
        super().__init__()
        self.loudness = nn.Parameter(torch.tensor(0.7))

    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(x * self.loudness)


class Gain(nn.Module):
    """One factor per channel; the rule below is the one that the documentation shows."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.randn(channels))

    def forward(self, x: Tensor) -> Tensor:
        return self.gain * x


@gradient_rule(Gain)
def gain_gradients(call: LayerCall) -> dict[str, PerRecordGradient]:
    products = call.per_record(call.inputs[0] * call.output_gradient)
    return {"gain": Materialised(products.sum(1))}


class AtTheRoot(nn.Module):
    """The model itself owns a parameter beside its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.randn(6))
        self.inner = nn.Linear(6, 6)
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.inner(x + self.token)))


class CalledTwice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 6)
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.inner(torch.tanh(self.inner(x)))))


class SameParameter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        self.second.weight = self.first.weight
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.second(torch.tanh(self.first(x)))))


class TiedDecoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 5)
        self.body = nn.Linear(5, 5)
        self.decoder = nn.Linear(5, 7)
        self.decoder.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.decoder(torch.tanh(self.body(self.embedding(tokens))).mean(1))


class Residual(nn.Module):
    """In-place ReLUs behind layers, and paths around them."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(2, 4, 3, padding=1)
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.norm = nn.GroupNorm(2, 4)
        self.relu = nn.ReLU(inplace=True)
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.stem(x))
        x = self.relu(x + self.relu(self.norm(self.conv(x))))
        return self.head(x.mean((2, 3)))


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.image = nn.Conv2d(1, 3, 3)
        self.columns = nn.Linear(5, 3)
        self.head = nn.Linear(3, CLASSES)

    def forward(self, image: Tensor, columns: Tensor) -> Tensor:
        return self.head(torch.tanh(self.image(image).mean((2, 3)) * self.columns(columns)))


class Folded(nn.Module):
    """Positions folded into the batch axis and out again."""

    def __init__(self) -> None:
        super().__init__()
        self.each = nn.Linear(5, 6)
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        wide = torch.tanh(self.each(x.reshape(-1, x.shape[-1])))
        return self.head(wide.reshape(len(x), -1, 6).mean(1))


class WithKeywords(nn.Module):
    """Layers called by keyword."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 5)
        self.head = nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(input=torch.tanh(self.inner(input=x)))


class Unused(nn.Module):
    """A layer that the loss never sees, one whose answer is thrown away, and one with a frozen weight."""

    def __init__(self) -> None:
        super().__init__()
        self.asleep, self.ignored = nn.Linear(4, 4), nn.Linear(6, 2)
        self.bias_only = nn.Linear(6, 6)
        self.bias_only.weight.requires_grad_(False)
        self.solid = nn.Conv1d(1, 1, 1).requires_grad_(False)
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        self.ignored(x)
        return self.head(torch.tanh(self.bias_only(self.solid(x.unsqueeze(1)).squeeze(1))))


# -------------------------------------------------------------------------------------------- table


@dataclass(frozen=True, kw_only=True)
class Row:
    """A model, the shape of a record (of each of its inputs) and how its gradients are to be kept."""

    name: str
    build: Callable[[], nn.Module]
    shapes: tuple[tuple[int, ...], ...]
    integers: int = 0  # tokens instead of numbers: how many there are
    kept: dict[str, type] = field(default_factory=dict)  # parameter name: form of its gradients
    records: int = 4

    def views(self, count: int, *, records: int | None = None, dtype: torch.dtype = torch.float32) -> Any:
        rows = self.records if records is None else records
        every = tuple(
            torch.randint(0, self.integers, (rows, count, *shape))
            if self.integers
            else torch.randn(rows, count, *shape, dtype=dtype)
            for shape in self.shapes
        )
        return every if len(every) > 1 else every[0]


def layer(
    name: str, make: Callable[[], nn.Module], *shape: int, kept: type | None = None, integers: int = 0
) -> Row:
    return Row(
        name=name,
        build=lambda: headed(make(), shape, integers=integers),
        shapes=(shape,),
        integers=integers,
        kept={} if kept is None else {"0.weight": kept},
    )


def whole(name: str, build: Callable[[], nn.Module], *shapes: tuple[int, ...], integers: int = 0) -> Row:
    return Row(name=name, build=build, shapes=shapes, integers=integers)


ROWS = [
    layer("linear", lambda: nn.Linear(9, 5), 9, kept=OuterProducts),
    layer("linear without bias", lambda: nn.Linear(9, 5, bias=False), 9, kept=OuterProducts),
    layer("linear on short wide sequences", lambda: nn.Linear(32, 32), 2, 32, kept=OuterProducts),
    layer("linear on long narrow sequences", lambda: nn.Linear(3, 4), 5, 3, kept=Materialised),
    layer("linear on grids", lambda: nn.Linear(3, 4), 2, 3, 3, kept=Materialised),
    layer("conv1d", lambda: nn.Conv1d(3, 4, 3), 3, 8, kept=Materialised),
    layer("conv1d strided padded dilated", lambda: nn.Conv1d(2, 4, 3, stride=2, padding=2, dilation=2), 2, 9),
    layer("conv1d circular", lambda: nn.Conv1d(2, 3, 4, padding=2, padding_mode="circular"), 2, 7),
    layer("conv1d ghost", lambda: nn.Conv1d(16, 16, 3), 16, 4, kept=OuterProducts),
    layer("conv2d", lambda: nn.Conv2d(2, 4, 3), 2, 6, 6, kept=Materialised),
    layer("conv2d without bias", lambda: nn.Conv2d(2, 4, 3, bias=False), 2, 6, 6),
    layer("conv2d not square", lambda: nn.Conv2d(2, 3, (1, 4), stride=(2, 1), padding=(0, 3)), 2, 5, 7),
    layer("conv2d even kernel", lambda: nn.Conv2d(2, 3, 4, stride=3, padding=1), 2, 7, 8),
    layer("conv2d 1x1", lambda: nn.Conv2d(3, 5, 1), 3, 4, 4),
    layer("conv2d same", lambda: nn.Conv2d(2, 3, 3, padding="same"), 2, 5, 4),
    layer("conv2d same even dilated", lambda: nn.Conv2d(2, 3, (2, 4), padding="same", dilation=2), 2, 6, 7),
    layer("conv2d valid", lambda: nn.Conv2d(2, 3, 2, padding="valid"), 2, 4, 5),
    layer("conv2d circular", lambda: nn.Conv2d(2, 3, 3, padding=(2, 1), padding_mode="circular"), 2, 5, 4),
    layer("conv2d reflect", lambda: nn.Conv2d(2, 3, 3, padding=(1, 2), padding_mode="reflect"), 2, 5, 4),
    layer("conv2d replicate", lambda: nn.Conv2d(2, 3, 3, 2, padding=2, padding_mode="replicate"), 2, 5, 4),
    layer("conv2d same reflect", lambda: nn.Conv2d(2, 3, 3, padding="same", padding_mode="reflect"), 2, 5, 4),
    layer("conv2d groups", lambda: nn.Conv2d(4, 6, 3, groups=2, padding=1), 4, 4, 5),
    layer("conv2d depthwise", lambda: nn.Conv2d(4, 8, 3, groups=4), 4, 5, 5),
    layer("conv2d ghost", lambda: nn.Conv2d(16, 16, 3, padding=1, stride=2), 16, 2, 3, kept=OuterProducts),
    layer("conv2d ghost one pixel", lambda: nn.Conv2d(8, 24, 2), 8, 2, 2, kept=OuterProducts),
    layer("conv3d", lambda: nn.Conv3d(2, 3, 2, stride=(1, 2, 1), padding=1), 2, 3, 4, 3),
    layer("conv3d groups dilated", lambda: nn.Conv3d(4, 4, (1, 2, 2), groups=2, dilation=2), 4, 2, 3, 4),
    layer("conv3d replicate", lambda: nn.Conv3d(2, 2, 2, padding=1, padding_mode="replicate"), 2, 2, 3, 2),
    layer("conv3d ghost", lambda: nn.Conv3d(8, 16, 2), 8, 2, 2, 3, kept=OuterProducts),
    layer("transposed conv1d", lambda: nn.ConvTranspose1d(3, 4, 3, 2, padding=1, output_padding=1), 3, 6),
    layer("transposed conv1d dilated", lambda: nn.ConvTranspose1d(3, 2, 3, dilation=2, padding=2), 3, 5),
    layer("transposed conv1d ghost", lambda: nn.ConvTranspose1d(16, 16, 3, 2), 16, 2, kept=OuterProducts),
    layer(
        "transposed conv1d ghost, output padded beyond the stride",
        lambda: nn.ConvTranspose1d(16, 16, 3, dilation=3, output_padding=2),
        16, 2, kept=OuterProducts,
    ),
    layer("transposed conv2d", lambda: nn.ConvTranspose2d(2, 3, (2, 3), (1, 2), padding=(0, 1)), 2, 4, 3),
    layer("transposed conv2d groups", lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2), 4, 3, 3),
    layer("transposed conv2d depthwise", lambda: nn.ConvTranspose2d(4, 4, 2, groups=4, bias=False), 4, 3, 3),
    layer("transposed conv2d ghost", lambda: nn.ConvTranspose2d(16, 8, 3), 16, 1, 2, kept=OuterProducts),
    layer("transposed conv3d", lambda: nn.ConvTranspose3d(2, 3, 2, stride=2, output_padding=1), 2, 2, 3, 2),
    layer("embedding, large table", lambda: nn.Embedding(50, 8), 5, integers=50, kept=Lookups),
    layer("embedding, large table, repeats", lambda: nn.Embedding(90, 8), 5, integers=3, kept=Lookups),
    layer("embedding, small table", lambda: nn.Embedding(4, 3), 5, integers=4, kept=Materialised),
    layer("embedding with padding", lambda: nn.Embedding(60, 8, padding_idx=2), 6, integers=4, kept=Lookups),
    layer("embedding with padding, small", lambda: nn.Embedding(4, 3, padding_idx=0), 6, integers=4),
    layer("embedding of grids", lambda: nn.Embedding(6, 4), 2, 3, integers=6),
    layer("group norm", lambda: spread(nn.GroupNorm(2, 4)), 4, 3, 5),
    layer("group norm on units", lambda: spread(nn.GroupNorm(2, 6)), 6),
    layer("layer norm", lambda: spread(nn.LayerNorm(6)), 6),
    layer("layer norm on sequences", lambda: spread(nn.LayerNorm(6)), 4, 6),
    layer("layer norm over two axes", lambda: spread(nn.LayerNorm((3, 5))), 2, 3, 5),
    layer("layer norm without bias", lambda: spread(nn.LayerNorm(6, bias=False)), 4, 6),
    layer("instance norm 1d", lambda: spread(nn.InstanceNorm1d(3, affine=True)), 3, 7),
    layer("instance norm 2d", lambda: spread(nn.InstanceNorm2d(3, affine=True)), 3, 4, 4),
    layer("instance norm 3d", lambda: spread(nn.InstanceNorm3d(2, affine=True)), 2, 2, 3, 2),
    layer("rms norm", lambda: spread(nn.RMSNorm(6)), 4, 6),
    layer("rms norm over two axes", lambda: spread(nn.RMSNorm((3, 5), eps=1e-3)), 2, 3, 5),
    layer("frozen batch norm 1d", lambda: spread(frozen(nn.BatchNorm1d(5))), 5),
    layer("frozen batch norm 1d on sequences", lambda: spread(frozen(nn.BatchNorm1d(5))), 5, 3),
    layer("frozen batch norm 2d", lambda: spread(frozen(nn.BatchNorm2d(3))), 3, 4, 4),
    layer("prelu", lambda: nn.PReLU(), 6),
    layer("prelu per channel", lambda: nn.PReLU(3), 3, 4, 4),
    layer("prelu per unit", lambda: nn.PReLU(5), 5),
    layer("own layer without a rule", lambda: Volume(), 6),
    layer("own layer with a rule", lambda: Gain(6), 6),
    layer("subclass of a known layer", lambda: type("Mine", (nn.Linear,), {})(6, 4), 6),
    layer("parametrised layer", lambda: nn.utils.parametrizations.weight_norm(nn.Linear(6, 4)), 6),
    layer("self-attention", lambda: SelfAttention(8, heads=2), 5, 8),
    layer("encoder layer", lambda: EncoderLayer(8, heads=2, feed_forward=12), 5, 8),
    layer("torch's encoder layer", lambda: nn.TransformerEncoderLayer(8, 2, 12, 0.0, batch_first=True), 4, 8),
    whole("multi-head attention", Attending, (5, 8)),
    whole("parameter at the root", AtTheRoot, (6,)),
    whole("one layer called twice", CalledTwice, (6,)),
    whole("one parameter in two layers", SameParameter, (6,)),
    whole("decoder tied to the embedding", TiedDecoder, (4,), integers=7),
    whole("residual with in-place ReLU", Residual, (2, 5, 5)),
    whole("two inputs", TwoInputs, (1, 5, 5), (5,)),
    whole("positions folded into the batch", Folded, (3, 5)),
    whole("layers called by keyword", WithKeywords, (6,)),
    whole("unused and frozen layers", Unused, (6,)),
]  # fmt: skip

every_row = pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in ROWS])


def agree(
    found: dict[str, PerRecordGradient], expected: dict[str, PerRecordGradient], tolerance: float
) -> None:
    """Gradients, norms and weighted sums, relative to the largest entry; norms never come out smaller."""
    assert set(found) == set(expected)
    largest = max(float(each.materialised().abs().max()) for each in expected.values())
    for name, reference in expected.items():
        wanted, mine = reference.materialised(), found[name]
        slack = tolerance * max(float(wanted.abs().max()), 1e-2 * largest)
        torch.testing.assert_close(
            mine.materialised(), wanted, rtol=0, atol=slack, msg=lambda m, n=name: f"{n}: {m}"
        )
        factors = torch.linspace(0.2, 1.3, len(wanted), dtype=wanted.dtype)
        total = torch.tensordot(factors, wanted, dims=1)
        assert mine.weighted_sum(factors).shape == total.shape
        torch.testing.assert_close(
            mine.weighted_sum(factors),
            total,
            rtol=0,
            atol=len(wanted) * slack,
            msg=lambda m, n=name: f"{n}: {m}",
        )
        norms = wanted.reshape(len(wanted), -1).norm(dim=1)
        assert (mine.norms() >= norms * (1 - tolerance) - slack).all(), name
        assert (mine.norms() <= norms * (1 + 10 * tolerance) + 10 * slack).all(), name


# --------------------------------------------------------------------------------------------- laws


@every_row
@pytest.mark.parametrize("count", [1, 3])
def test_the_fast_path_gives_what_the_general_path_gives(row: Row, count: int) -> None:
    model = row.build()
    views, labels = row.views(count), torch.randint(0, CLASSES, (row.records,))
    found, losses = FastPath(model, mean_cross_entropy).gradients(views, labels)
    expected, wanted_losses = GeneralPath(model, mean_cross_entropy).gradients(views, labels)
    agree(found, expected, 1e-4)
    torch.testing.assert_close(losses, wanted_losses, rtol=1e-4, atol=1e-5)
    assert not losses.requires_grad
    for name, kind in row.kept.items():
        assert isinstance(found[name], kind), f"{name} is kept as {type(found[name]).__name__}"


@every_row
def test_in_float64_both_paths_agree_to_nine_digits(row: Row) -> None:
    model = row.build().double()
    views, labels = row.views(2, dtype=torch.float64), torch.randint(0, CLASSES, (row.records,))
    found, _ = FastPath(model, mean_cross_entropy).gradients(views, labels)
    expected, _ = GeneralPath(model, mean_cross_entropy).gradients(views, labels)
    agree(found, expected, 1e-9)


@every_row
def test_the_engine_takes_every_row_on_the_fast_path(row: Row, flat: Callable[..., Tensor]) -> None:
    """No row falls back silently; the sum is the general path's, in parts or whole; no records give zeros."""
    model = row.build()
    views, labels = row.views(2), torch.randint(0, CLASSES, (row.records,))
    engine = ClippedGradients(model, clipping=FlatClip(0.1), path="fast")
    total = engine.clipped_sum(views, labels)
    assert engine.path == "fast"
    assert set(total.gradients) == set(trainable(model))

    general, _ = GeneralPath(model, mean_cross_entropy).gradients(views, labels)
    norms = torch.stack([each.norms() for each in general.values()]).norm(dim=0)
    factors = (0.1 / norms).clamp_max(1.0)
    expected = flat({name: each.weighted_sum(factors) for name, each in general.items()})
    torch.testing.assert_close(flat(total.gradients), expected, rtol=0, atol=1e-4 * row.records * 0.1)

    for part in (1, 3):
        with mock.patch.object(engine, "records_at_a_time", lambda part=part: part):
            parts = engine.clipped_sum(views, labels)
        torch.testing.assert_close(flat(parts.gradients), flat(total.gradients), rtol=0, atol=1e-5)
        assert (parts.clipped, parts.records) == (total.clipped, total.records)

    none = engine.clipped_sum(row.views(2, records=0), torch.empty(0, dtype=torch.int64))
    assert float(flat(none.gradients).abs().sum()) == 0.0
    assert set(none.gradients) == set(total.gradients)


# ------------------------------------------------------------------------------ convolutions at random


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[nn.Module, tuple[int, ...]]:
    """Any convolution of one to three dimensions that torch accepts, and the shape of an image for it."""
    places, transposed = draw(st.integers(1, 3)), draw(st.booleans())

    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(places))

    kernel, stride, dilation = each(1, 3), each(1, 3), each(1, 2)
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    channels = groups * draw(st.integers(1, 3)), groups * draw(st.integers(1, 3))
    options: dict[str, Any] = {"stride": stride, "dilation": dilation, "groups": groups}
    options["bias"] = draw(st.booleans())
    reach = [step * (size - 1) + 1 for step, size in zip(dilation, kernel, strict=True)]
    if transposed:
        options["padding"] = tuple(draw(st.integers(0, (size - 1) // 2)) for size in reach)
        room = [max(pair) - 1 for pair in zip(stride, dilation, strict=True)]
        options["output_padding"] = tuple(draw(st.integers(0, most)) for most in room)
        sizes = tuple(draw(st.integers(1, 3)) for _ in reach)
        kinds = nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d
    else:
        options["padding"] = each(0, 2)
        sizes = tuple(size + draw(st.integers(0, 3)) for size in reach)
        kinds = nn.Conv1d, nn.Conv2d, nn.Conv3d
    return kinds[places - 1](*channels, kernel, **options), (channels[0], *sizes)


@settings(max_examples=100, deadline=None)
@given(
    drawn=convolutions(),
    count=st.integers(1, 3),
    way=st.sampled_from(["ghost", "patches", "shifts"]),
    seed=st.integers(0, 1000),
)
def test_any_convolution_equals_one_at_a_time_backward(
    one_at_a_time: Callable[..., dict[str, Tensor]],
    drawn: tuple[nn.Module, tuple[int, ...]],
    count: int,
    way: str,
    seed: int,
) -> None:
    """Each way of computing it, whichever would have been cheaper."""
    torch.manual_seed(seed)
    model = headed(*drawn).double()
    views, labels = torch.randn(3, count, *drawn[1], dtype=torch.float64), torch.tensor([0, 1, 2])
    shiftable = drawn[0].groups == 1 and set(drawn[0].stride) == {1}
    with (
        mock.patch.object(convolution, "outer_is_cheaper", return_value=way == "ghost"),
        mock.patch.object(convolution, "shifts_are_cheaper", return_value=way == "shifts" and shiftable),
    ):
        found, _ = FastPath(model, mean_cross_entropy).gradients(views, labels)
        assert isinstance(found["0.weight"], OuterProducts) == (way == "ghost" and drawn[0].groups == 1)
        alone = [one_at_a_time(model, views[row], labels[row]) for row in range(3)]
        expected = {name: Materialised(torch.stack([each[name] for each in alone])) for name in alone[0]}
        agree(found, expected, 1e-9)


# --------------------------------------------------------------------------------- the package's networks

SMALLEST_IMAGES = dict.fromkeys(("small-tanh-cnn", "moved-tanh-cnn"), (1, 14, 14)) | dict.fromkeys(
    ("wrn-16-4", "resnet-18"), (1, 8, 8)
)


@pytest.mark.parametrize("name", hauberk.models.names())
def test_the_networks_of_this_package_go_the_fast_path(name: str, flat: Callable[..., Tensor]) -> None:
    """`prepare` compares gradients, norms and sums with the general path itself."""
    shape = SMALLEST_IMAGES.get(name, (1, 4, 4))
    model = hauberk.models.build(name, shape=shape, classes=CLASSES)
    engine = ClippedGradients(model, clipping=FlatClip(0.1), path="fast")
    total = engine.clipped_sum(torch.rand(2, 1, *shape), torch.tensor([0, 2]))
    assert engine.path == "fast"
    assert 0.1 < float(flat(total.gradients).norm()) <= 0.2 * (1 + 1e-4)


# ----------------------------------------------------------------------------------- own rules, details


def test_a_rule_belongs_to_a_class_and_not_to_its_subclasses() -> None:
    from hauberk.gradients.rules import rule_of

    assert rule_of(Gain(2)) is gain_gradients
    assert rule_of(type("Louder", (Gain,), {})(2)) is None


def test_pieces_of_a_batch_give_what_the_whole_gives() -> None:
    """Patches are made for a few records at a time; the limit on them changes nothing."""
    model = headed(nn.Conv2d(3, 5, 3), (3, 6, 6))
    views, labels = torch.randn(5, 2, 3, 6, 6), torch.randint(0, CLASSES, (5,))
    whole_batch, _ = FastPath(model, mean_cross_entropy).gradients(views, labels)
    with mock.patch.object(convolution, "_CPU_PIECE", 1):
        pieces, _ = FastPath(model, mean_cross_entropy).gradients(views, labels)
    torch.testing.assert_close(pieces["0.weight"].materialised(), whole_batch["0.weight"].materialised())


def test_patches_are_those_of_unfold() -> None:
    images = torch.randn(6, 4, 5, 7)
    window = convolution.Window(kernel=(2, 3), stride=(2, 1), dilation=(1, 2), outputs=(2, 3), groups=1)
    wide = convolution.patches(images.movedim(1, -1).contiguous(), window, records=3)
    unfolded = functional.unfold(
        images, (2, 3), dilation=(1, 2), stride=(2, 1)
    )  # (6, channel * place, position)
    unfolded = unfolded.view(3, 2, 4, 6, 6).permute(0, 1, 4, 3, 2).reshape(3, 1, 12, 24)
    torch.testing.assert_close(wide, unfolded)
