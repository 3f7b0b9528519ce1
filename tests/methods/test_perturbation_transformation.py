"""004's perturbation transformation against slower ways to the same numbers, and where its credit ends."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hauberk.errors import RequestError
from hauberk.mechanisms import MixedGaussian
from hauberk.methods.perturbation_transformation import (
    SLICE,
    additional_noise,
    reconstruction_losses,
    remainder,
    smallest_singular_values,
    transformation,
)
from hauberk.models.denoiser import denoiser

DOUBLE = torch.float64


def smooth() -> nn.Sequential:
    torch.manual_seed(0)
    first, last = nn.Conv2d(1, 2, 3, padding=1), nn.ConvTranspose2d(2, 1, 3, padding=1)
    return nn.Sequential(first, nn.Tanh(), last).double()


def small_denoiser() -> nn.Module:
    torch.manual_seed(0)
    return denoiser((1, 5, 4), width=2).double()


def images(records: int, *shape: int) -> Tensor:
    return torch.rand(records, *shape, generator=torch.Generator().manual_seed(1), dtype=DOUBLE)


def flat(tensors: tuple[Tensor, ...]) -> Tensor:
    return torch.cat([each.flatten() for each in tensors])


def weight_gradient(model: nn.Module, z: Tensor, x: Tensor) -> Tensor:
    """``grad_theta l(z)`` of one record, by an ordinary backward pass."""
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    loss = reconstruction_losses(model, z[None], x[None])[0]
    return flat(torch.autograd.grad(loss, weights)).detach()


def by_loops(model: nn.Module, x: Tensor) -> Tensor:
    """The definition: differentiate each pixel of ``grad_x l`` by every weight, one after the other."""
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    matrices = []
    for record in x:
        given = record.clone().requires_grad_()
        loss = reconstruction_losses(model, given[None], record[None])[0]
        (slope,) = torch.autograd.grad(loss, given, create_graph=True)
        columns = [
            flat(torch.autograd.grad(pixel, weights, retain_graph=True, materialize_grads=True))
            for pixel in slope.flatten()
        ]
        matrices.append(torch.stack(columns, dim=1))
    return torch.stack(matrices)


# ----------------------------------------------------------------------------------------- transformation


@pytest.mark.parametrize("chunk", [3, 7, 1000])
@pytest.mark.parametrize(
    ("build", "shape"), [(smooth, (1, 4, 3)), (small_denoiser, (1, 5, 4))], ids=["smooth", "denoiser"]
)
def test_it_is_the_mixed_derivative(
    build: Callable[[], nn.Module], shape: tuple[int, ...], chunk: int
) -> None:
    model, x = build(), images(3, *shape)
    found = transformation(model, x, chunk=chunk)
    weights = sum(weight.numel() for weight in model.parameters())
    assert found.shape == (3, weights, math.prod(shape))
    assert found.abs().amax() > 0.01
    torch.testing.assert_close(found, by_loops(model, x), rtol=1e-9, atol=1e-11)


def test_it_moves_the_gradient_as_input_noise_does() -> None:
    """``grad_theta l(x + b) - grad_theta l(x) = A b`` to first order, the target staying x."""
    model, (x,), step = smooth(), images(1, 1, 4, 3), 1e-5
    (matrix,) = transformation(model, x[None])
    for pixel in range(x.numel()):
        nudge = torch.zeros(x.numel(), dtype=DOUBLE)
        nudge[pixel] = step
        nudge = nudge.view_as(x)
        difference = weight_gradient(model, x + nudge, x) - weight_gradient(model, x - nudge, x)
        torch.testing.assert_close(matrix[:, pixel], difference / (2 * step), rtol=1e-6, atol=1e-8)


def test_frozen_weights_are_left_out_and_the_model_is_left_as_it_was() -> None:
    model, x = smooth(), images(2, 1, 4, 3)
    whole = transformation(model, x)
    model[0].requires_grad_(False)
    last = sum(weight.numel() for weight in model[2].parameters())
    torch.testing.assert_close(transformation(model, x), whole[:, -last:])
    assert all(weight.grad is None for weight in model.parameters())
    with pytest.raises(RequestError, match="nothing to transform"):
        transformation(model.requires_grad_(False), x)


def test_no_record_is_no_matrix() -> None:
    found = transformation(smooth(), images(0, 1, 4, 3))
    assert len(found) == 0
    assert not smallest_singular_values(found, batch=8).any()


# ---------------------------------------------------------------------------------------------- remainder


def test_the_remainder_of_a_quadratic_is_its_curvature() -> None:
    scale = torch.tensor([1.0, -2.0, 3.0], dtype=DOUBLE)
    x, z = images(3, 1, 2, 2), images(6, 1, 2, 2)[3:]

    def loss(given: Tensor) -> Tensor:
        return scale * given.square().flatten(1).sum(1) + given.flatten(1).sum(1)

    curvature = scale * (z - x).square().flatten(1).sum(1)
    found = remainder(loss, z, x)
    torch.testing.assert_close(found, curvature)
    assert not found.requires_grad


def test_the_remainder_of_a_linear_denoiser_is_never_negative() -> None:
    model = nn.Conv2d(1, 1, 3, padding=1).double()
    x, z = images(5, 1, 4, 4), images(10, 1, 4, 4)[5:]
    expected = (model(z) - model(x)).square().flatten(1).sum(1)
    found = remainder(lambda given: reconstruction_losses(model, given, x), z, x)
    torch.testing.assert_close(found, expected)


def test_an_inequality_of_losses_is_none_of_gradients() -> None:
    """004 Lemma 1 says ``grad l(z) >= grad l(x) + A (z - x)`` for records with a remainder of 0 or more."""
    model, x = smooth(), images(8, 1, 4, 3)
    z = x + 0.25 * torch.randn(x.shape, generator=torch.Generator().manual_seed(2), dtype=DOUBLE)
    kept = remainder(lambda given: reconstruction_losses(model, given, x), z, x) >= 0
    assert kept.any()
    moved = (transformation(model, x) @ (z - x).flatten(1).unsqueeze(2)).squeeze(2)
    for noisy, clean, linear in zip(z[kept], x[kept], moved[kept], strict=True):
        gap = weight_gradient(model, noisy, clean) - weight_gradient(model, clean, clean) - linear
        assert gap.min() < -1e-3


# ------------------------------------------------------------------------------- smallest singular values


@pytest.mark.parametrize("slice_size", [1, 5, SLICE, 23, 40])
def test_singular_values_are_those_of_numpy(slice_size: int) -> None:
    matrices, batch = torch.randn(4, 40, 12, generator=torch.Generator().manual_seed(0), dtype=DOUBLE), 6
    found = smallest_singular_values(matrices, batch, slice_size)
    whole = sum(each @ each.T for each in matrices.numpy()) / batch**2
    expected = [
        np.linalg.svd(whole[start : start + slice_size, start : start + slice_size], compute_uv=False)[-1]
        for start in range(0, 40, slice_size)
    ]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9)
    assert (found > 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE])
def test_a_slice_larger_than_pixels_times_records_earns_no_credit(dtype: torch.dtype) -> None:
    """The theory's problem: the rank of M. Without slices there is nothing to count."""
    model, x = smooth().to(dtype), images(2, 1, 4, 3).to(dtype)
    matrices = transformation(model, x)
    weights, rank = matrices.shape[1], matrices.shape[2] * len(x)
    assert weights > rank
    assert smallest_singular_values(matrices, batch=2, slice_size=weights).tolist() == [0.0]
    assert smallest_singular_values(matrices, batch=2, slice_size=rank + 1)[0] == 0
    assert smallest_singular_values(matrices, batch=2, slice_size=6)[0] > 0


def test_slices_of_float32_lose_little() -> None:
    model, x = smooth(), images(4, 1, 4, 3)
    exact = smallest_singular_values(transformation(model, x), 4, 6)
    coarse = smallest_singular_values(transformation(model.float(), x.float()), 4, 6)
    torch.testing.assert_close(coarse, exact, rtol=1e-2, atol=1e-10)


def test_part_of_a_batch_earns_no_more_than_the_whole() -> None:
    matrices = transformation(smooth(), images(6, 1, 4, 3))
    credits = [smallest_singular_values(matrices[:count], batch=6, slice_size=6) for count in range(7)]
    for fewer, more in itertools.pairwise(credits):
        assert (fewer <= more * (1 + 1e-9)).all()
    assert (credits[1] < credits[6]).any()


def test_more_records_than_the_batch_has_are_refused() -> None:
    with pytest.raises(RequestError, match="batch"):
        smallest_singular_values(torch.ones(3, 4, 5), batch=2)


# --------------------------------------------------------------------------------------- additional noise


def test_the_three_cases_of_line_16() -> None:
    sigma, steps, low, up = 0.25, 100, 0.5, 2.0
    credit = torch.tensor([0.0, 0.49, 0.5, 1.2, 1.999, 2.0, 7.0], dtype=DOUBLE)  # sqrt(T s_min) sigma
    s_min = (credit / sigma).square() / steps
    found = additional_noise(s_min, sigma=sigma, steps=steps, low=low, up=up)
    middle = (up**2 - credit[2:5].square()).sqrt()
    torch.testing.assert_close(found[:2], torch.full((2,), up, dtype=DOUBLE))
    torch.testing.assert_close(found[2:5], middle)
    torch.testing.assert_close(found[5:], torch.zeros(2, dtype=DOUBLE), rtol=0, atol=1e-7)
    assert middle[1] == pytest.approx(1.6)


def test_continuous_at_xi_up_and_falling() -> None:
    up, just_below = 2.0, 2.0 * (1 - 1e-12)
    credit = torch.cat([torch.linspace(0, 3, 50, dtype=DOUBLE), torch.tensor([just_below], dtype=DOUBLE)])
    found = additional_noise(credit.sort().values.square(), sigma=1.0, steps=1, low=0.0, up=up)
    assert (found.diff() <= 0).all()
    (at_the_edge,) = additional_noise(credit[-1:].square(), sigma=1.0, steps=1, low=0.0, up=up)
    assert 0 < at_the_edge < 1e-5


def test_it_is_the_noise_of_the_mixed_mechanism() -> None:
    """The scalar form in `hauberk.mechanisms`, which takes ``M sigma^2`` and finds ``xi_up`` by itself."""
    sigma, steps, variance = 0.3, 50, 0.07
    mixed = MixedGaussian.calibrate(
        epsilon=0.9,
        delta=1e-5,
        sensitivity=1.0,
        transformed=[variance * sigma**2],
        steps=steps,
        ignored_below=0.1,
    )
    up = math.sqrt(2 * math.log(1.25 / 1e-5)) / 0.9
    found = additional_noise(torch.tensor([variance], dtype=DOUBLE), sigma=sigma, steps=steps, low=0.1, up=up)
    assert found.item() == pytest.approx(mixed.isotropic, rel=1e-6)


@pytest.mark.parametrize(
    "wrong", [{"low": 3.0}, {"up": -1.0}, {"steps": 0}, {"sigma": math.nan}, {"low": -1.0}], ids=str
)
def test_a_request_without_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(RequestError):
        additional_noise(torch.ones(1), **{"sigma": 0.25, "steps": 10, "low": 0.1, "up": 2.0, **wrong})
