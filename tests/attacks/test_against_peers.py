"""At the same settings at least as many adversarial examples as torchattacks and foolbox find."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from hauberk import data
from hauberk.attacks import MIM, PGD

RADII = [0.05, 0.1, 0.2]
STEPS = 10


@pytest.fixture(scope="module")
def digits() -> tuple[nn.Module, Tensor, Tensor]:
    """A small convolutional network, trained for a second, and 60 test images."""
    split = data.load("digits")
    torch.manual_seed(0)
    channels, side = split.train.x.shape[1:3]
    model = nn.Sequential(
        nn.Conv2d(channels, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * ((side + 1) // 2) ** 2, 10),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(60):
        rows = torch.randint(len(split.train.x), (64,))
        loss = nn.functional.cross_entropy(model(split.train.x[rows]), split.train.y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    x, y = split.test.x[:60], split.test.y[:60]
    with torch.no_grad():
        assert (model(x).argmax(1) == y).float().mean() > 0.8
    return model, x, y


def broken_by(attack: object, model: nn.Module, x: Tensor, y: Tensor) -> int:
    points = attack(x, y)  # type: ignore[operator]
    with torch.no_grad():
        return int((model(points).argmax(1) != y).sum())


def test_pgd_and_mim_against_torchattacks(digits: tuple[nn.Module, Tensor, Tensor]) -> None:
    """Without random starts both take the same way; ours counts every point on it, theirs the last."""
    torchattacks = pytest.importorskip("torchattacks")
    model, x, y = digits
    for radius in RADII:
        step = radius / 4
        theirs = torchattacks.PGD(model, eps=radius, alpha=step, steps=STEPS, random_start=False)
        ours = PGD(steps=STEPS, random_start=False).attack(model, x, y, radius=radius)
        assert ours.broken.sum() >= broken_by(theirs, model, x, y)
        theirs = torchattacks.MIFGSM(model, eps=radius, alpha=step, steps=STEPS, decay=1.0)
        ours = MIM(steps=STEPS, reach=2.5).attack(model, x, y, radius=radius)
        assert ours.broken.sum() >= broken_by(theirs, model, x, y)
        theirs = torchattacks.PGDL2(model, eps=5 * radius, alpha=5 * step, steps=STEPS, random_start=False)
        ours = PGD(norm="l2", steps=STEPS, random_start=False).attack(model, x, y, radius=5 * radius)
        assert ours.broken.sum() >= broken_by(theirs, model, x, y)


def test_pgd_against_foolbox(digits: tuple[nn.Module, Tensor, Tensor]) -> None:
    foolbox = pytest.importorskip("foolbox")
    model, x, y = digits
    wrapped = foolbox.PyTorchModel(model.eval(), bounds=(0, 1))
    for radius in RADII:
        for norm, attack, size in (
            ("linf", foolbox.attacks.LinfPGD, radius),
            ("l2", foolbox.attacks.L2PGD, 5 * radius),
            ("l1", foolbox.attacks.SparseL1DescentAttack, 30 * radius),
        ):
            theirs = attack(steps=STEPS, rel_stepsize=1 / 4, random_start=False)
            _, _, success = theirs(wrapped, x, y, epsilons=size)
            ours = PGD(norm=norm, steps=STEPS, random_start=False).attack(model, x, y, radius=size)
            assert ours.broken.sum() >= int(success.sum()), (norm, radius)


def test_from_random_starts_all_find_the_same_but_for_luck(digits: tuple[nn.Module, Tensor, Tensor]) -> None:
    torchattacks, foolbox = pytest.importorskip("torchattacks"), pytest.importorskip("foolbox")
    model, x, y = digits
    torch.manual_seed(1)
    wrapped = foolbox.PyTorchModel(model.eval(), bounds=(0, 1))
    ours = torch_found = foolbox_found = 0
    for radius in RADII:
        ours += int(PGD(steps=STEPS).attack(model, x, y, radius=radius).broken.sum())
        theirs = torchattacks.PGD(model, eps=radius, alpha=radius / 4, steps=STEPS)
        torch_found += broken_by(theirs, model, x, y)
        found = foolbox.attacks.LinfPGD(steps=STEPS, rel_stepsize=1 / 4)(wrapped, x, y, epsilons=radius)
        foolbox_found += int(found[2].sum())
    assert ours >= max(torch_found, foolbox_found) - 3  # of 180


def test_a_step_of_mim_is_the_step_of_torchattacks(digits: tuple[nn.Module, Tensor, Tensor]) -> None:
    """Before projection and bounds matter, the same points."""
    torchattacks = pytest.importorskip("torchattacks")
    model, x, y = digits
    x = (0.25 + x / 2)[:20]
    theirs = torchattacks.MIFGSM(model, eps=0.1, alpha=0.02, steps=4, decay=0.7)(x, y[:20])
    ours = MIM(steps=4, reach=0.8, momentum=0.7, stop_when_broken=False).perturb(model, x, y[:20], radius=0.1)
    assert torch.allclose(ours, theirs, atol=1e-6)
