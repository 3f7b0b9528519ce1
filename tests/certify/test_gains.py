"""Gains against dense matrices, enumerated corners and searches for a worse direction: never below the truth.

The truth is computed from the dense matrix of the layer, made by feeding it one unit vector at a time.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn

from hauberk.certify import affine_map
from hauberk.certify.affine_map import AffineMap
from hauberk.certify.gains import Gain, gain
from hauberk.certify.noise import NoiseLayers, Norm
from hauberk.certify.spectral import convolution_norm_bound, largest_eigenvalue_bound
from hauberk.errors import RequestError

Matrix = NDArray[np.float64]
NORMS: tuple[Norm, ...] = ("l1", "l2", "linf")
CLOSE = 1e-6  # how far above the truth an exact value may be, relative

LAYERS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {}


def row(name: str, shape: tuple[int, ...], layer: nn.Module) -> None:
    LAYERS[name] = (layer, shape)


torch.manual_seed(0)
row("linear", (7,), nn.Linear(7, 5))
row("linear, more outputs", (4,), nn.Linear(4, 11))
row("linear per token", (3, 4), nn.Linear(4, 2))
row("plain", (1, 4, 3), nn.Conv2d(1, 3, 3))
row("padded", (2, 3, 3), nn.Conv2d(2, 4, 3, padding=1))
row("same", (1, 4, 5), nn.Conv2d(1, 2, (2, 4), padding="same"))
row("strided", (2, 5, 4), nn.Conv2d(2, 3, 3, stride=2, padding=1))
row("stride above kernel", (1, 5, 5), nn.Conv2d(1, 2, 2, stride=3))
row("dilated", (1, 5, 5), nn.Conv2d(1, 2, 2, dilation=2, padding=1))
row("strided and dilated", (1, 7, 6), nn.Conv2d(1, 2, (3, 2), stride=(2, 3), dilation=(2, 1), padding=(2, 1)))
row("grouped", (4, 3, 3), nn.Conv2d(4, 6, 2, groups=2, padding=1))
row("per channel", (3, 1, 1), nn.Conv2d(3, 9, 1, groups=3, bias=False))
row("wide padding", (1, 2, 2), nn.Conv2d(1, 2, 3, padding=3))
row("reflect", (1, 4, 4), nn.Conv2d(1, 3, 3, padding=2, padding_mode="reflect"))
row("replicate", (2, 3, 3), nn.Conv2d(2, 3, 3, stride=2, padding=2, padding_mode="replicate"))
row("circular", (1, 4, 4), nn.Conv2d(1, 3, 3, padding=1, padding_mode="circular"))
row("circular same", (1, 4, 4), nn.Conv2d(1, 3, 3, padding="same", padding_mode="circular", dilation=2))

each = pytest.mark.parametrize("name", LAYERS)


def dense(layer: nn.Module, shape: tuple[int, ...]) -> Matrix:
    """``W``, by feeding the layer one unit vector at a time, in float64."""
    weights = {name: value.double() for name, value in layer.state_dict().items()}
    unit = torch.eye(math.prod(shape), dtype=torch.float64).view(-1, *shape)
    with torch.no_grad():
        out = torch.func.functional_call(layer, weights, unit)
        zero = torch.func.functional_call(layer, weights, torch.zeros_like(unit[:1]))
    return (out - zero).flatten(1).T.numpy()


def scales_for(name: str, kind: str) -> float | Tensor:
    """One scale, one per channel or feature, or one per output."""
    layer, shape = LAYERS[name]
    output = AffineMap(layer, shape).output_shape  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(3)
    if kind == "one":
        return 0.3
    if kind == "per channel":
        size = (output[0], 1, 1) if isinstance(layer, nn.Conv2d) else (output[-1],)
        return torch.rand(size, generator=generator) + 0.2
    return torch.rand(output, generator=generator, dtype=torch.float64) * 2 + 0.05


def whitened(name: str, scales: float | Tensor) -> Matrix:
    layer, shape = LAYERS[name]
    output = AffineMap(layer, shape).output_shape  # type: ignore[arg-type]
    divisor = torch.as_tensor(scales, dtype=torch.float64).expand(output).reshape(-1, 1).numpy()
    return dense(layer, shape) / divisor


def corners(dimension: int) -> Matrix:
    """All sign vectors, up to a common sign, as columns."""
    return np.array(list(itertools.product((1.0, -1.0), repeat=dimension - 1)), dtype=np.float64).T


def with_first(signs: Matrix) -> Matrix:
    return np.vstack((np.ones((1, signs.shape[1])), signs))


def true_gain(matrix: Matrix, norm: Norm, *, output: int) -> float:
    """``sup ||A a||_output`` over the unit ball of ``norm``, output norm 2 or 1, exactly or from below.

    l1: a column. l2 to l2: a singular value. linf: corners, all of them up to 2^14, else a search.
    """
    if norm == "l1":
        return float(np.linalg.norm(matrix, ord=output, axis=0).max())
    if norm == "l2" and output == 2:
        return float(np.linalg.svd(matrix, compute_uv=False)[0])
    if norm == "linf" and matrix.shape[1] <= 14:
        return float(np.linalg.norm(matrix @ with_first(corners(matrix.shape[1])), ord=output, axis=0).max())
    return searched_gain(matrix, norm, output=output)


def searched_gain(matrix: Matrix, norm: Norm, *, output: int) -> float:
    """The best of many climbs; each step goes to the maximiser of the linearised gain and never descends."""
    generator = np.random.default_rng(0)
    a = generator.normal(size=(matrix.shape[1], 64))
    for _ in range(100):
        image = matrix @ a
        slope = matrix.T @ (image if output == 2 else np.sign(image))
        if norm == "l2":
            a = slope / np.linalg.norm(slope, axis=0)
        elif norm == "linf":
            a = np.where(slope >= 0, 1.0, -1.0)
        else:
            a = np.zeros_like(a)
            best = np.abs(slope).argmax(axis=0)
            a[best, np.arange(64)] = 1.0
    return float(np.linalg.norm(matrix @ a, ord=output, axis=0).max())


def joint_root(matrix: Matrix, sigma: float) -> Matrix:
    """A matrix whose squared gain is ``a'Ga`` for whitened layer noise and input noise sigma."""
    covariance = sigma**2 * matrix @ matrix.T + np.eye(len(matrix))
    values, vectors = np.linalg.eigh(covariance)
    return (vectors / np.sqrt(values)) @ vectors.T @ matrix


def gain_of(name: str, norm: Norm, **noise: Any) -> Gain:
    layer, shape = LAYERS[name]
    return gain(NoiseLayers(**noise), norm, shape=shape, first_map=AffineMap(layer, shape))  # type: ignore[arg-type]


@each
@pytest.mark.parametrize("kind", ["one", "per channel", "per output"])
@pytest.mark.parametrize("norm", NORMS)
def test_gaussian_gain_of_layer_noise(name: str, kind: str, norm: Norm) -> None:
    scales = scales_for(name, kind)
    matrix = whitened(name, scales)
    found, truth = gain_of(name, norm, after_first_map=scales), true_gain(matrix, norm, output=2)
    assert found.value >= truth
    if norm == "linf":
        assert not found.exact
        assert found.value <= np.sqrt((np.abs(matrix).sum(1) ** 2).sum()) * (1 + CLOSE)  # the row bound
        assert found.value <= np.sqrt(matrix.shape[1]) * true_gain(matrix, "l2", output=2) * (1 + CLOSE)
        assert found.value == pytest.approx(
            min(
                np.sqrt(np.abs(matrix.T @ matrix).sum()),
                np.sqrt(matrix.shape[1]) * true_gain(matrix, "l2", output=2),
            ),
            rel=CLOSE,
        )
    else:
        assert found.exact
        assert found.value <= truth * (1 + CLOSE)


@each
@pytest.mark.parametrize("sigma", [1e-3, 0.5, 30.0])
@pytest.mark.parametrize("norm", NORMS)
def test_gaussian_gain_of_both_noises(name: str, sigma: float, norm: Norm) -> None:
    """Also where one of the noises hardly matters, and never above the gain of either alone."""
    scales = scales_for(name, "per output")
    root = joint_root(whitened(name, scales), sigma)
    found, truth = (
        gain_of(name, norm, after_first_map=scales, at_input=sigma),
        true_gain(root, norm, output=2),
    )
    assert found.value >= truth * (1 - 1e-12)  # the dense truth inverts a matrix, and rounds by itself
    for alone in ({"after_first_map": scales}, {"at_input": sigma}):
        assert found.value <= gain_of(name, norm, **alone).value * (1 + CLOSE)
    if norm != "linf":
        assert found.exact
        assert found.value <= truth * (1 + CLOSE)
    else:
        spectral = math.sqrt(root.shape[1]) * true_gain(root, "l2", output=2)
        magnitudes = math.sqrt(np.abs(root.T @ root).sum())
        assert found.value <= min(spectral, magnitudes) * (1 + CLOSE)


@each
@pytest.mark.parametrize("kind", ["one", "per output"])
@pytest.mark.parametrize("norm", NORMS)
def test_laplace_loss_of_layer_noise(name: str, kind: str, norm: Norm) -> None:
    scales = scales_for(name, kind)
    matrix = whitened(name, scales)
    found = gain_of(name, norm, kind="laplace", after_first_map=scales)
    truth = true_gain(matrix, norm, output=1)
    assert found.value >= truth
    if norm == "l1":
        assert found.exact
        assert found.value <= truth * (1 + CLOSE)
    else:
        s_max = true_gain(matrix, "l2", output=2)
        by_rows = math.sqrt(matrix.size if norm == "linf" else len(matrix)) * s_max
        columns = np.abs(matrix).sum(0)
        by_sums = columns.sum() if norm == "linf" else np.linalg.norm(columns)
        assert found.value <= min(by_rows, by_sums) * (1 + CLOSE)


@pytest.mark.parametrize(
    ("kind", "values"), [("gaussian", (2.0, 2.0, 2.0 * 6**0.5)), ("laplace", (2.0, 2.0 * 6**0.5, 12.0))]
)
def test_noise_at_the_input_alone(kind: Any, values: tuple[float, ...]) -> None:
    for norm, value in zip(NORMS, values, strict=True):
        found = gain(NoiseLayers(kind=kind, at_input=0.5), norm, shape=(1, 2, 3))
        assert found.exact
        assert value <= found.value <= value * (1 + 1e-12)


@pytest.mark.parametrize("norm", NORMS)
def test_laplace_noise_at_both_places_loses_no_more_than_at_either(norm: Norm) -> None:
    for at_input, after in ((0.1, 100.0), (100.0, 0.1)):
        both = gain_of("padded", norm, kind="laplace", at_input=at_input, after_first_map=after)
        alone = [
            gain_of("padded", norm, kind="laplace", at_input=at_input),
            gain_of("padded", norm, kind="laplace", after_first_map=after),
        ]
        assert both.value == min(each.value for each in alone)


@pytest.fixture
def only_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every layer counts as too large for its Gram matrix."""
    monkeypatch.setattr(affine_map, "LARGEST_EXACT_SIDE", 0)


@each
@pytest.mark.parametrize("kind", ["one", "per output"])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("sigma", [0.0, 0.5])
@pytest.mark.usefixtures("only_bounds")
def test_bounds_for_large_layers_hold_on_small_ones(name: str, kind: str, norm: Norm, sigma: float) -> None:
    scales = scales_for(name, kind)
    matrix = whitened(name, scales)
    found = gain_of(name, norm, after_first_map=scales, at_input=sigma)
    root = joint_root(matrix, sigma)
    assert found.value >= true_gain(root, norm, output=2) * (1 - 1e-12)
    if norm == "l2":
        assert not found.exact
    loss = gain_of(name, norm, kind="laplace", after_first_map=scales)
    assert loss.value >= true_gain(matrix, norm, output=1)


def test_the_bound_for_many_tokens_takes_the_smallest_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    """A weight matrix that fits, though the map of all tokens does not."""
    matrix = whitened("linear per token", scales := scales_for("linear per token", "per output"))
    truth = true_gain(matrix, "l2", output=2)
    monkeypatch.setattr(affine_map, "LARGEST_EXACT_SIDE", 5)
    found = gain_of("linear per token", "l2", after_first_map=scales)
    assert truth <= found.value
    same = gain_of("linear per token", "l2", after_first_map=0.3)
    assert not same.exact
    assert same.value == pytest.approx(true_gain(whitened("linear per token", 0.3), "l2", output=2))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(("at_input", "after"), [(1e6, 1e-6), (1e-6, 1e6), (1e40, 1e-40), (1e-40, 1e40)])
def test_where_one_noise_drowns_the_other(norm: Norm, at_input: float, after: float) -> None:
    """The gain is that of the larger noise: G cannot be formed then without losing all digits."""
    both = gain_of("linear, more outputs", norm, at_input=at_input, after_first_map=after).value
    alone = [
        gain_of("linear, more outputs", norm, at_input=at_input).value,
        gain_of("linear, more outputs", norm, after_first_map=after).value,
    ]
    assert both == pytest.approx(min(alone), rel=1e-5)


LARGER = {
    "3x3": (nn.Conv2d(3, 16, 3, padding=1), (3, 16, 16)),
    "5x5 without padding": (nn.Conv2d(1, 8, 5), (1, 20, 20)),
    "7x7 strided": (nn.Conv2d(3, 8, 7, stride=2, padding=3), (3, 20, 20)),
    "8x8 strided": (nn.Conv2d(1, 16, 8, stride=2, padding=3), (1, 28, 28)),
    "dilated": (nn.Conv2d(1, 4, 3, dilation=2, padding=2), (1, 22, 22)),
    "grouped": (nn.Conv2d(4, 8, 3, groups=2, padding=1), (4, 12, 12)),
    "patches": (nn.Conv2d(3, 16, 4, stride=4), (3, 16, 16)),
}


@pytest.mark.parametrize("name", LARGER)
def test_the_bound_of_a_convolution_is_close_to_the_exact_norm(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer, shape = LARGER[name]
    truth = float(np.linalg.svd(dense(layer, shape) / 0.5, compute_uv=False)[0])
    exact, told = AffineMap(layer, shape).spectral_norm_bound(0.5)
    monkeypatch.setattr(affine_map, "LARGEST_EXACT_SIDE", 0)
    bound, told_bound = AffineMap(layer, shape).spectral_norm_bound(0.5)
    assert (told, told_bound) == (True, False)
    assert truth <= exact <= truth * (1 + CLOSE)
    nothing_overlaps = name == "patches"  # the layer is one matrix, and the bound its norm
    assert truth <= bound <= truth * (1 + CLOSE if nothing_overlaps else 1.1)


def test_the_bound_of_a_convolution_approaches_the_norm_on_large_images() -> None:
    """What remains is the grid (at most 1.005), so the direction of the grid correction is seen too."""
    layer = nn.Conv2d(1, 3, 3, padding=1)
    bound = convolution_norm_bound(layer.weight.detach(), stride=(1, 1), dilation=(1, 1), groups=1)
    fine = torch.fft.fft2(layer.weight.detach().double(), s=(512, 512))
    supremum = float(fine.abs().square().sum((0, 1)).max().sqrt())
    assert supremum <= bound <= 1.006 * supremum


@given(st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_convolution_has_a_larger_norm_than_its_bound(data: Any) -> None:
    """Random kernels, strides, dilations, groups and sizes; a few weights only, so that peaks are sharp."""

    def pair(low: int, high: int) -> tuple[int, int]:
        return data.draw(st.tuples(st.integers(low, high), st.integers(low, high)))

    groups = data.draw(st.integers(1, 2))
    kernel, stride, dilation, padding = pair(1, 4), pair(1, 3), pair(1, 3), pair(0, 4)
    reach = tuple(d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True))
    sides = tuple(r + data.draw(st.integers(0, 6)) for r in reach)
    channels = groups * data.draw(st.integers(1, 2))
    layer = nn.Conv2d(
        channels,
        groups * data.draw(st.integers(1, 3)),
        kernel,
        stride=stride,
        dilation=dilation,
        padding=padding,
        groups=groups,
    ).double()
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 1000)))
    with torch.no_grad():
        layer.weight.copy_(torch.randn(layer.weight.shape, generator=generator, dtype=torch.float64))
        layer.weight *= torch.rand(layer.weight.shape, generator=generator) < data.draw(st.floats(0.2, 1))
    truth = np.linalg.svd(dense(layer, (channels, *sides)), compute_uv=False)[0]
    found = convolution_norm_bound(layer.weight.detach(), stride=stride, dilation=dilation, groups=groups)
    assert found >= truth
    assert AffineMap(layer, (channels, *sides)).spectral_norm_bound(1.0)[0] >= truth


@given(st.integers(1, 30), st.integers(0, 1000), st.floats(0, 12))
@settings(max_examples=60, deadline=None)
def test_the_eigenvalue_bound_is_above_and_close(size: int, seed: int, decades: float) -> None:
    """Also for matrices whose eigenvalues spread over many decades, or all coincide."""
    generator = np.random.default_rng(seed)
    basis = np.linalg.qr(generator.normal(size=(size, size)))[0]
    values = 10 ** (-decades * generator.random(size))
    matrix = torch.from_numpy((basis * values) @ basis.T)
    matrix = (matrix + matrix.T) / 2
    found = largest_eigenvalue_bound(matrix)
    truth = float(np.linalg.eigvalsh(matrix.numpy())[-1])
    assert truth < found < truth * (1 + 1e-9)


def test_the_eigenvalue_bound_survives_a_guess_from_below(monkeypatch: pytest.MonkeyPatch) -> None:
    """The guess only saves time: a wrong one makes the bound larger, never wrong."""
    matrix = torch.diag(torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64))
    monkeypatch.setattr(torch.linalg, "eigvalsh", lambda _: torch.tensor([1.0], dtype=torch.float64))
    assert 5.0 < largest_eigenvalue_bound(matrix) < 50.0


def test_a_large_gram_matrix_is_that_of_the_dense_matrix() -> None:
    """Several blocks of the identity, and both sides."""
    layer = nn.Conv2d(2, 40, 3, padding=1)
    map_ = AffineMap(layer, (2, 18, 18))
    matrix = dense(layer, (2, 18, 18)) / 0.7
    np.testing.assert_allclose(map_.gram(0.7).numpy(), matrix.T @ matrix, atol=1e-12)
    assert np.linalg.norm(map_.gram(0.7).numpy() - matrix.T @ matrix, ord=2) <= map_.gram_error(0.7)
    wide = nn.Linear(900, 30)
    found, exact = AffineMap(wide, (900,)).spectral_norm_bound(1.0)
    truth = np.linalg.svd(wide.weight.detach().double().numpy(), compute_uv=False)[0]
    assert exact
    assert truth <= found <= truth * (1 + CLOSE)


@pytest.mark.parametrize("norm", NORMS)
def test_new_weights_and_new_scales_give_new_gains(norm: Norm) -> None:
    """The map remembers what it computed; also when weights are written behind autograd's back."""
    layer = nn.Linear(4, 3)
    map_ = AffineMap(layer, (4,))
    before = gain(NoiseLayers(after_first_map=1.0), norm, shape=(4,), first_map=map_).value
    layer.weight.data.mul_(2)
    after = gain(NoiseLayers(after_first_map=1.0), norm, shape=(4,), first_map=map_).value
    assert after == pytest.approx(2 * before)
    quieter = gain(NoiseLayers(after_first_map=0.1), norm, shape=(4,), first_map=map_).value
    assert quieter == pytest.approx(10 * after)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_gain_scales_with_noise(kind: Any, norm: Norm) -> None:
    once = gain_of("padded", norm, kind=kind, after_first_map=0.5, at_input=0.25).value
    twice = gain_of("padded", norm, kind=kind, after_first_map=1.0, at_input=0.5).value
    assert once == pytest.approx(2 * twice, rel=1e-9)


def test_requests_without_a_meaning() -> None:
    noise, map_ = NoiseLayers(after_first_map=1.0), AffineMap(nn.Linear(4, 3), (4,))
    with pytest.raises(RequestError, match="l1, l2 or linf"):
        gain(noise, "l3", shape=(4,), first_map=map_)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="needs that map"):
        gain(noise, "l2", shape=(4,))
    with pytest.raises(RequestError, match="reads 4 numbers"):
        gain(noise, "l2", shape=(5,), first_map=map_)
    with pytest.raises(RequestError, match="does not fit"):
        gain(NoiseLayers(after_first_map=torch.ones(2)), "l2", shape=(4,), first_map=map_)
    with torch.no_grad():
        map_.layer.weight.mul_(1e-30)
    with pytest.raises(RequestError, match="too large or too small"):
        gain(NoiseLayers(after_first_map=1e60), "l2", shape=(4,), first_map=map_)
    with torch.no_grad():
        map_.layer.weight.zero_()
    with pytest.raises(RequestError, match="first map is zero"):
        gain(noise, "l2", shape=(4,), first_map=map_)
    with torch.no_grad():
        map_.layer.weight.fill_(float("nan"))
    with pytest.raises(RequestError, match="not finite"):
        gain(noise, "l2", shape=(4,), first_map=map_)
