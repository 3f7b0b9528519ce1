"""The denoiser: shapes, who reads what, the fast path, and that it learns."""

from __future__ import annotations

import warnings
from collections import OrderedDict

import pytest
import torch
from torch import Tensor, nn

from hauberk.certify.first_map import find_first_map
from hauberk.data import load
from hauberk.errors import RequestError
from hauberk.gradients import ClippedGradients, FlatClip, GeneralPathNotice
from hauberk.models.denoiser import SMALLEST_SIDE, denoiser

MNIST, CIFAR = (1, 28, 28), (3, 32, 32)
SHAPES = [MNIST, CIFAR, (1, 8, 8), (2, SMALLEST_SIDE, 5), (3, 9, 6), (1, 11, 13)]


def before_a_frozen_classifier(shape: tuple[int, ...]) -> nn.Sequential:
    torch.manual_seed(0)
    classifier = nn.Sequential(
        OrderedDict(
            conv=nn.Conv2d(shape[0], 4, 3),
            relu=nn.ReLU(),
            flat=nn.Flatten(),
            output=nn.Linear(4 * (shape[1] - 2) * (shape[2] - 2), 10),
        )
    )
    return nn.Sequential(OrderedDict(denoiser=denoiser(shape), classifier=classifier.requires_grad_(False)))


def clipped_gradients(model: nn.Module, path: str, views: Tensor, labels: Tensor) -> dict[str, Tensor]:
    engine = ClippedGradients(model, clipping=FlatClip(0.3), path=path)
    engine.prepare(views)
    assert engine.path == ("fast" if path == "auto" else path)
    return engine.clipped_sum(views, labels).gradients


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_an_image_comes_out_as_it_went_in(shape: tuple[int, ...]) -> None:
    with torch.device("meta"):
        assert denoiser(shape)(torch.zeros(3, *shape)).shape == (3, *shape)


@pytest.mark.parametrize(("width", "weights"), [(1, 133), (8, 6657)])
def test_number_of_weights(width: int, weights: int) -> None:
    with torch.device("meta"):
        assert sum(weight.numel() for weight in denoiser(MNIST, width=width).parameters()) == weights


@pytest.mark.parametrize("shape", [(30,), (28, 28), (1, SMALLEST_SIDE - 1, 28), (1, 28, SMALLEST_SIDE - 1)])
def test_what_is_no_image_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(RequestError, match="denoiser"):
        denoiser(shape)


@pytest.mark.parametrize("width", [0, -8, 2.0, True])
def test_a_width_without_sense_is_refused(width: int) -> None:
    with pytest.raises(RequestError, match="whole number"):
        denoiser(MNIST, width=width)


def test_records_do_not_meet() -> None:
    torch.manual_seed(0)
    model, images = denoiser((1, 9, 8)).double(), torch.rand(4, 1, 9, 8, dtype=torch.float64)
    others = torch.cat([images[:1], 5 * images[1:]])
    torch.testing.assert_close(model(images)[:1], model(others)[:1])


def test_both_ways_through_the_network_are_used() -> None:
    torch.manual_seed(0)
    model, images = denoiser((1, 8, 8)), torch.rand(2, 1, 8, 8)
    whole = model(images)
    nn.init.zeros_(model.up.weight)
    by_skip_alone = model(images)
    assert not torch.allclose(whole, by_skip_alone)
    assert not torch.allclose(by_skip_alone[0], by_skip_alone[1])


def test_the_residual_block_has_a_path_around_it() -> None:
    block = denoiser(MNIST).residual
    nn.init.zeros_(block.norm_out.weight)
    maps = torch.rand(2, 16, 5, 5)
    assert torch.equal(block(maps), maps)


@pytest.mark.parametrize("shape", [MNIST, CIFAR, (1, 7, 6)], ids=str)
def test_noise_may_follow_the_first_convolution(shape: tuple[int, ...]) -> None:
    model = before_a_frozen_classifier(shape)
    found = find_first_map(model, shape)
    assert found.name == "denoiser.conv1"
    images = torch.rand(2, *shape)
    torch.testing.assert_close(found.rest(found.apply(images), images), model(images))


@pytest.mark.parametrize("shape", [(1, 12, 12), (3, 9, 7)], ids=str)
def test_the_fast_path_serves_it_wholly(shape: tuple[int, ...]) -> None:
    """No notice of any layer without a rule, and the sums of the reference path to float64 rounding."""
    model = before_a_frozen_classifier(shape).double()
    views, labels = torch.rand(5, 2, *shape, dtype=torch.float64), torch.arange(5)
    with warnings.catch_warnings():
        warnings.simplefilter("error", GeneralPathNotice)
        fast = clipped_gradients(model, "auto", views, labels)
    general = clipped_gradients(model, "general", views, labels)
    assert set(fast) == {f"denoiser.{name}" for name, _ in model.denoiser.named_parameters()}
    for name, gradient in general.items():
        torch.testing.assert_close(fast[name], gradient, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_the_first_answers_are_of_the_size_of_images(seed: int) -> None:
    torch.manual_seed(seed)
    with torch.no_grad():
        answers = denoiser(MNIST)(torch.rand(16, *MNIST))
    assert 0.05 < answers.square().mean().sqrt() < 1


def test_a_few_steps_remove_noise() -> None:
    """Better than the noisy image itself, which at this noise is better than a blank one."""
    torch.manual_seed(0)
    sigma, digits = 0.25, load("digits")
    train, test = digits.train.x[:1024], digits.test.x[:256]
    model = denoiser(MNIST)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(40):
        clean = train[step * 32 % 1024 :][:32]
        loss = nn.functional.mse_loss(model(clean + sigma * torch.randn_like(clean)), clean)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    noisy = test + sigma * torch.randn_like(test)
    with torch.no_grad():
        left = nn.functional.mse_loss(model(noisy), test)
    assert nn.functional.mse_loss(noisy, test) < test.square().mean()
    assert left < nn.functional.mse_loss(noisy, test) / 2
