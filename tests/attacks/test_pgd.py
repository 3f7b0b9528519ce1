"""PGD against a randomised classifier finds what is there to be found, and nothing else."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from hauberk.attacks import NoisyPGD
from hauberk.certify import Smoothed
from hauberk.errors import RequestError

SIGMA = 0.25
SHAPES = [(16,), (1, 4, 4)]  # a table's row and an image
tables_and_images = pytest.mark.parametrize("shape", SHAPES, ids=["table", "image"])
DIRECTION = torch.linspace(-1, 1.5, 16) / torch.linspace(-1, 1.5, 16).norm()


def half_space() -> nn.Sequential:
    """Class 0 where DIRECTION (x - 1/2) > 0: the shortest way out is known."""
    layer = nn.Linear(16, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.stack([4 * DIRECTION, -4 * DIRECTION]))
        layer.bias.copy_(torch.stack([-2 * DIRECTION.sum(), 2 * DIRECTION.sum()]))
    return nn.Sequential(nn.Flatten(), layer)


def at_distance(distances: Tensor, shape: tuple[int, ...]) -> Tensor:
    return (0.5 + distances[:, None] * DIRECTION).view(-1, *shape)


def side(points: Tensor) -> Tensor:
    """Signed distance to the plane."""
    return (points.flatten(1) - 0.5) @ DIRECTION


@tables_and_images
def test_radius_zero_returns_the_input_bit_for_bit(shape: tuple[int, ...]) -> None:
    target = Smoothed(half_space(), sigma=SIGMA, classes=2)
    x = torch.rand(70, *shape)  # more than one batch of the attack
    x[0] = 1e-42  # a subnormal number: arithmetic may flush it
    x[2] = -0.0  # minus zero plus zero is plus zero
    radii = torch.zeros(70)
    radii[1::2] = 0.1
    found = NoisyPGD(steps=2, draws=2).run(target, x, torch.zeros(70, dtype=torch.int64), radii, seed=0)
    assert torch.equal(found[::2].view(torch.int32), x[::2].view(torch.int32))
    assert (found[1::2] != x[1::2]).flatten(1).any(1).all()


@tables_and_images
def test_the_attack_finds_the_known_way_out(shape: tuple[int, ...]) -> None:
    target = Smoothed(half_space(), sigma=SIGMA, classes=2)
    distances = torch.linspace(0.05, 0.2, 40)
    x = at_distance(distances, shape)
    labels = torch.zeros(40, dtype=torch.int64)
    found = NoisyPGD().run(target, x, labels, distances + 0.1, seed=1)
    assert (side(found) < 0).all()  # across the plane
    step = (found - x).flatten(1)
    assert ((step @ -DIRECTION) / step.norm(dim=1) > 0.95).all()  # by the shortest way
    votes = target.count_votes(found, 400, torch.Generator().manual_seed(0))
    assert (votes[:, 1] > votes[:, 0]).all()


@tables_and_images
@pytest.mark.parametrize("label", [0, 1])
def test_no_attack_crosses_a_plane_that_is_further_away_than_its_radius(
    shape: tuple[int, ...], label: int
) -> None:
    target = Smoothed(half_space(), sigma=SIGMA, classes=2)
    distances = torch.linspace(0.05, 0.2, 40) * (1 if label == 0 else -1)
    x = at_distance(distances, shape)
    labels = torch.full((40,), label)
    found = NoisyPGD(restarts=2).run(target, x, labels, 0.95 * distances.abs(), seed=1)
    assert (side(found).sign() == distances.sign()).all()
    assert (side(found).abs() < 0.2 * distances.abs()).all()  # although it tried
    assert ((found - x).flatten(1).norm(dim=1) <= 0.95 * distances.abs() + 1e-5).all()


def test_attempts_stay_in_the_box() -> None:
    target = Smoothed(half_space(), sigma=SIGMA, classes=2)
    x = torch.rand(20, 16).round()  # corners of the cube
    found = NoisyPGD(steps=5, draws=2).run(
        target, x, torch.zeros(20, dtype=torch.int64), torch.full((20,), 2.0), seed=0
    )
    assert ((found >= 0) & (found <= 1)).all()


def test_the_model_is_left_as_it_was() -> None:
    class Probe(nn.Module):
        seen: bool = False

        def forward(self, x: Tensor) -> Tensor:
            self.seen = self.seen or self.training
            return x

    probe = Probe()
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), probe, nn.Linear(16, 2))
    model.train()
    model[1].eval()
    for weight in model.parameters():
        weight.grad = torch.full_like(weight, 3.0)
    modes = [layer.training for layer in model.modules()]
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    x = torch.rand(3, 1, 4, 4)
    copy = x.clone()
    with torch.no_grad():  # the attack needs gradients even where its caller has none
        NoisyPGD(steps=3, draws=2).run(
            Smoothed(model, sigma=SIGMA, classes=2), x, torch.tensor([0, 1, 0]), torch.full((3,), 0.5), seed=0
        )
    assert not probe.seen
    assert [layer.training for layer in model.modules()] == modes
    assert all((weight.grad == 3).all() for weight in model.parameters() if weight.grad is not None)
    assert all(weight.requires_grad and weight.grad is not None for weight in model.parameters())
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert torch.equal(x, copy)
    assert not x.requires_grad


def test_a_seed_repeats_and_leaves_the_global_generator_alone() -> None:
    target = Smoothed(half_space(), sigma=SIGMA, classes=2)
    x, labels, radii = torch.rand(5, 16), torch.zeros(5, dtype=torch.int64), torch.full((5,), 0.2)
    state = torch.random.get_rng_state()
    attack = NoisyPGD(steps=3, draws=2)
    one, same, other = (attack.run(target, x, labels, radii, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_no_inputs_no_attempts() -> None:
    target = Smoothed(half_space(), sigma=SIGMA, classes=2)
    found = NoisyPGD().run(
        target, torch.empty(0, 16), torch.empty(0, dtype=torch.int64), torch.empty(0), seed=0
    )
    assert found.shape == (0, 16)


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"draws": 0}, {"restarts": 0}, {"steps": -3}])
def test_an_attack_that_does_nothing_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(RequestError, match="at least one step, one draw and one start"):
        NoisyPGD(**wrong)


def test_gradients_that_are_no_numbers_do_not_leave_the_ball() -> None:
    """The square root's slope is infinite at zero; what comes back is still an input of the classifier."""

    class Steep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, x: Tensor) -> Tensor:
            root = (x - x.detach()).abs().sqrt().sum(1)  # zero, with the gradient 0 * infinity
            return torch.stack([root, self.scale * x.sum(1)], dim=1)

    x = torch.rand(4, 8)
    found = NoisyPGD(steps=3, draws=2).run(
        Smoothed(Steep(), sigma=SIGMA, classes=2), x, torch.tensor([1] * 4), torch.full((4,), 0.1), seed=0
    )
    assert found.isfinite().all()
    sizes = (found - x).norm(dim=1)
    assert ((sizes > 0) & (sizes <= 0.1 + 1e-5)).all()  # the random start at least is kept
