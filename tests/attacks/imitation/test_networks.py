"""No perturbation leaves its bound, whatever the weights are; and the parts do what they are there for."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hauberk.attacks.imitation.advgan import AdversarialGenerator
from hauberk.attacks.imitation.networks import (
    Architecture,
    ImitationNetwork,
    LabelExtractor,
    PerturbationNetwork,
    ResidualBlock,
    SelfAttention,
    clipped,
)
from hauberk.attacks.imitation.saved import Imitation, Origin
from hauberk.errors import RequestError

TINY = Architecture(widths=(2, 3, 4, 5))


def networks(shape: tuple[int, int, int]) -> list[PerturbationNetwork]:
    torch.manual_seed(0)
    plain = Architecture(widths=(2, 3, 4, 5), noise=0.0, attention=False, residual=False, conditioned=False)
    return [
        ImitationNetwork(shape, 3, TINY),
        ImitationNetwork(shape, 3, plain),
        AdversarialGenerator(shape, 3),
    ]


@given(
    which=st.integers(0, 2),
    radius=st.floats(1e-6, 1.0),
    scale=st.sampled_from([0.0, 1.0, 1e3, 1e20, float("inf"), float("nan")]),
    shape=st.sampled_from([(1, 4, 4), (3, 5, 7), (1, 1, 1)]),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=30, deadline=None)
def test_nothing_leaves_the_bound_or_the_unit_interval(
    which: int, radius: float, scale: float, shape: tuple[int, int, int], seed: int
) -> None:
    network = networks(shape)[which]
    with torch.no_grad():
        for weight in network.parameters():
            weight.mul_(scale)
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(3, *shape, generator=generator)
    x[0] = x[0].round()  # a corner
    labels = torch.randint(3, (3,), generator=generator)
    imitation = Imitation(kind="ain", network=network, target=None, bound=1e-6, origin=Origin())
    made = imitation.craft(x, labels, radius=radius, copies=2, seed=seed)
    assert made.shape == (3, 2, *shape)
    assert ((made >= 0) & (made <= 1)).all()  # which nan would fail
    assert ((made.double() - x.double().unsqueeze(1)).abs() <= radius).all()
    _, perturbation = network.moved(x, labels, network.draw_noise(3, generator), radius)
    assert (perturbation.double().abs() <= float(torch.tensor(radius))).all()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.1, 1.1])
def test_inputs_that_are_no_pictures_are_refused(value: float) -> None:
    imitation = Imitation(
        kind="ain", network=ImitationNetwork((1, 4, 4), 3, TINY), target=None, bound=0.1, origin=Origin()
    )
    x = torch.full((2, 1, 4, 4), 0.5)
    x[1, 0, 2, 2] = value
    with pytest.raises(RequestError, match=r"\[0, 1\]"):
        imitation.craft(x, torch.tensor([0, 1]), radius=0.2)
    with pytest.raises(RequestError, match="made for inputs of shape"):
        imitation.craft(torch.rand(2, 1, 5, 5), torch.tensor([0, 1]), radius=0.2)


def test_the_clip_lets_values_come_back_and_not_further_out() -> None:
    z = torch.tensor([-2.0, -2.0, 0.1, 0.1, 2.0, 2.0], requires_grad=True)
    slope = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])
    value = clipped(z, 0.5)
    assert value.tolist() == pytest.approx([-0.5, -0.5, 0.1, 0.1, 0.5, 0.5])
    (value * slope).sum().backward()
    # gradient descent walks against the gradient: inwards is taken, outwards is not
    assert z.grad is not None
    assert z.grad.tolist() == [0.0, -1.0, 1.0, -1.0, 1.0, 0.0]


def test_the_extractor_tells_all_classes_apart_within_the_domain_of_pictures() -> None:
    torch.manual_seed(0)
    extractor = LabelExtractor(10, 6, 7)
    assert extractor.train_once() == 1.0
    channels = extractor(torch.arange(10))
    assert channels.shape == (10, 1, 6, 7)
    assert ((channels > 0) & (channels < 1)).all()
    assert not any(weight.requires_grad for weight in extractor.parameters())


def test_attention_is_the_identity_at_first_and_looks_everywhere_later() -> None:
    torch.manual_seed(0)
    attention, x = SelfAttention(4), torch.randn(2, 4, 3, 3)
    assert torch.equal(attention(x), x)
    with torch.no_grad():
        attention.weight.fill_(1.0)
    x.requires_grad_(True)
    (gradient,) = torch.autograd.grad(attention(x)[0, :, 0, 0].sum(), x)
    assert (gradient[0].abs().sum(0) > 0).all()  # one place depends on all places
    assert (gradient[1] == 0).all()  # and on no other record


def test_a_residual_block_adds_its_input_unless_told_not_to() -> None:
    torch.manual_seed(0)
    x = torch.rand(2, 3, 4, 4)
    for residual, expected in ((True, x), (False, torch.zeros_like(x))):
        block = ResidualBlock(3, residual=residual)
        with torch.no_grad():
            for weight in block.body.parameters():
                weight.zero_()
        assert torch.equal(block(x), expected)


def test_label_and_noise_matter_exactly_where_they_should() -> None:
    x, labels = torch.rand(2, 1, 6, 6), torch.tensor([0, 2])
    chance = torch.Generator().manual_seed(0)
    for network in networks((1, 6, 6)):
        noise, other = network.draw_noise(2, chance), network.draw_noise(2, chance)
        assert (noise is None) == (network.noise_shape is None)
        given = network(x, labels, noise)
        assert given.shape == x.shape
        if noise is not None:
            assert not torch.equal(given, network(x, labels, other))
        conditioned = isinstance(network, ImitationNetwork) and network.extractor is not None
        assert torch.equal(given, network(x, labels.flip(0), noise)) != conditioned


def test_wrong_architectures_are_refused() -> None:
    for wrong in ({"widths": (1, 2, 3)}, {"blocks": 0}, {"noise": -1.0}):
        with pytest.raises(RequestError):
            Architecture(**wrong)
    with pytest.raises(RequestError, match="pictures"):
        ImitationNetwork((16,), 3)  # type: ignore[arg-type]
