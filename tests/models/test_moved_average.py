"""The network that is asked at five places: what it answers, and that it is one function of the image."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from hauberk import models
from hauberk.certify import Smoothed
from hauberk.certify.first_map import find_first_map
from hauberk.errors import RequestError
from hauberk.models.moved_average import on_half_grid

MOVES = ((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1))
SHAPES = ((1, 28, 28), (3, 32, 32), (1, 14, 17), (2, 15, 15))


def network(shape: tuple[int, ...] = (1, 28, 28)) -> nn.Sequential:
    torch.manual_seed(0)
    return models.build("moved-tanh-cnn", shape=shape, classes=5)


def framed(shape: tuple[int, ...], count: int = 3) -> Tensor:
    """Images with a frame of zeros, of which a move by one pixel loses nothing."""
    x = torch.zeros(count, *shape)
    x[..., 1:-1, 1:-1] = torch.rand(count, shape[0], shape[1] - 2, shape[2] - 2)
    return x


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("gradients", [False, True])
def test_it_answers_with_the_mean_over_the_moved_images(shape: tuple[int, ...], gradients: bool) -> None:
    model, x = network(shape), framed(shape)
    model.train()
    expected = sum(model(x.roll(move, (-2, -1))).log_softmax(-1) for move in MOVES) / 5
    model.eval()
    with torch.set_grad_enabled(gradients):
        torch.testing.assert_close(model(x), expected, rtol=1e-5, atol=1e-5)


def test_it_trains_on_the_image_itself() -> None:
    model, x = network(), torch.rand(2, 1, 28, 28)
    plain = nn.Sequential(*model)
    assert torch.equal(model.train()(x), plain(x))
    assert not torch.allclose(model.eval()(x).softmax(-1), plain(x).softmax(-1), rtol=1e-4)


def test_what_is_at_the_edge_is_not_lost() -> None:
    """The same as inside a wider frame: a crop of the moved image would forget the outermost pixels."""
    model, x = network(), torch.rand(2, 1, 28, 28)
    convolution, others = model[0], nn.Sequential(*list(model)[1:])
    assert isinstance(convolution, nn.Conv2d)
    total = torch.zeros(2, 5)
    for down, right in MOVES:
        pads = (3 + right, 3 - right, 3 + down, 3 - down)
        maps = nn.functional.conv2d(
            nn.functional.pad(x, pads), convolution.weight, convolution.bias, stride=2
        )
        total = total + others(maps).log_softmax(-1)
    torch.testing.assert_close(model.eval()(x), total / 5, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", [(14, 14), (15, 14), (16, 18), (17, 17)])
@pytest.mark.parametrize("channels", [1, 3])
def test_the_half_grid_is_the_same_convolution(size: tuple[int, int], channels: int) -> None:
    layer = nn.Conv2d(channels, 4, kernel_size=8, stride=2, padding=3).double()
    x = torch.rand(2, channels, *size, dtype=torch.float64)
    torch.testing.assert_close(on_half_grid(layer, x), layer(x), rtol=1e-12, atol=1e-12)


def test_who_listens_to_a_layer_hears_it_in_every_mode() -> None:
    """Votes go another way than through the layers themselves; a hook must not be passed over for that."""
    model, x, heard = network().eval(), torch.rand(2, 1, 28, 28), []
    with torch.no_grad():
        unheard = model(x)
        for layer in (model[0], model[3]):
            layer.register_forward_hook(lambda layer, inputs, output: heard.append(len(output)))
        torch.testing.assert_close(model(x), unheard, rtol=1e-5, atol=1e-5)
    assert heard.count(2) == 3 + 5


def test_noise_behind_its_first_layer_is_refused() -> None:
    with pytest.raises(RequestError, match="noise can only follow a layer that runs once"):
        find_first_map(network(), (1, 28, 28))


def test_votes_are_those_of_the_five_places() -> None:
    """The smoothed classifier votes with the network as it is deployed, whatever mode it was left in."""
    model, x = network((1, 14, 14)), torch.rand(4, 1, 14, 14)
    votes = [
        Smoothed(model.train(training), sigma=0.25, classes=5)
        .certify(x, samples=200, alpha=0.01, seed=3)
        .votes
        for training in (True, False)
    ]
    assert (votes[0] == votes[1]).all()
