"""How the transformer cuts records into tokens, and that its attention is the textbook's."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hauberk import models
from hauberk.errors import RequestError
from hauberk.models.transformer import SelfAttention

# (height, width, patch, tokens)
CUTS = [
    (28, 28, 4, 49),
    (32, 32, 4, 64),
    (64, 64, 8, 64),
    (8, 8, 1, 64),
    (30, 30, 4, 64),
    (33, 20, 4, 45),
    (1, 100, 2, 50),
    (1, 1, 1, 1),
]


@pytest.mark.parametrize(("height", "width", "patch", "tokens"), CUTS)
def test_images_become_at_most_64_patches(height: int, width: int, patch: int, tokens: int) -> None:
    model = models.build("transformer", shape=(3, height, width), classes=2)
    cut = model.get_submodule("patches")
    assert isinstance(cut, nn.Conv2d)
    assert cut.kernel_size == (patch, patch)
    assert model[:2](torch.rand(1, 3, height, width)).shape == (1, tokens, 64)
    assert model.get_parameter("positions.vectors").shape == (tokens, 64)


@pytest.mark.parametrize(("height", "width", "patch", "tokens"), CUTS)
def test_every_pixel_is_read_exactly_once(height: int, width: int, patch: int, tokens: int) -> None:
    model = models.build("transformer", shape=(1, height, width), classes=2)
    cut = model.get_submodule("patches")
    assert isinstance(cut, nn.Conv2d)
    nn.init.ones_(cut.weight)
    image = torch.ones(1, 1, height, width, requires_grad=True)
    cut(image)[:, 0].sum().backward()
    assert image.grad is not None
    assert (image.grad == 1).all()


def test_a_feature_becomes_its_value_times_a_vector_plus_a_vector() -> None:
    model = models.build("transformer", shape=(5,), classes=2)
    record = torch.rand(3, 5)
    layers = [path for path, _ in model.named_children()]
    tokens = model[: layers.index("positions") + 1](record)
    directions = model.get_parameter("vectors.weight").reshape(5, 64)
    expected = record[:, :, None] * directions + model.get_parameter("positions.vectors")
    torch.testing.assert_close(tokens, expected)


def test_attention_is_the_textbook_one() -> None:
    torch.manual_seed(0)
    ours = SelfAttention(64, heads=4).double()
    reference = nn.MultiheadAttention(64, 4, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        reference.in_proj_weight.copy_(torch.cat((ours.query.weight, ours.key.weight, ours.value.weight)))
        reference.in_proj_bias.zero_()
        reference.out_proj.load_state_dict(ours.output.state_dict())
    tokens = torch.rand(2, 7, 64, dtype=torch.float64)
    expected, _ = reference(tokens, tokens, tokens)
    torch.testing.assert_close(ours(tokens), expected)


def test_positions_make_the_order_of_patches_matter() -> None:
    torch.manual_seed(0)
    model = models.build("transformer", shape=(1, 28, 28), classes=10)
    image = torch.rand(1, 1, 28, 28)
    shifted = image.roll(4, dims=3)  # the same patches, in other places
    assert not torch.allclose(model(image), model(shifted), atol=1e-4)
    nn.init.zeros_(model.get_parameter("positions.vectors"))
    torch.testing.assert_close(model(image), model(shifted), rtol=1e-4, atol=1e-5)


def test_too_many_features_are_refused_with_an_alternative() -> None:
    models.build("transformer", shape=(1024,), classes=2)
    with pytest.raises(RequestError, match=r"at most 1024, not 1025; mlp and logistic"):
        models.build("transformer", shape=(1025,), classes=2)


def test_a_table_is_refused() -> None:
    with pytest.raises(RequestError, match="transformer takes images"):
        models.build("transformer", shape=(28, 28), classes=2)


def test_a_lone_feature_is_enough() -> None:
    assert models.build("transformer", shape=(1,), classes=2)(torch.ones(1, 1)).isfinite().all()
