"""The same attacks where the model, or everything, lies on a CUDA device."""

from __future__ import annotations

import importlib.util

import pytest
import torch
from torch import Tensor, nn

from hauberk.attacks import ATTACKS, NoisyPGD, build_attack
from hauberk.attacks.projections import sizes
from hauberk.certify import Smoothed

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")

QUICK = {"steps": 8, "queries": 30, "searches": 2}


def model() -> nn.Sequential:
    """Large weights: there is something to find near every input."""
    torch.manual_seed(0)
    convolution, dense = nn.Conv2d(1, 8, 3, padding=1), nn.Linear(512, 5)
    with torch.no_grad():
        for weight in (convolution.weight, dense.weight):
            weight.copy_(torch.randn(weight.shape))
    return nn.Sequential(convolution, nn.ReLU(), nn.Flatten(), dense)


def inputs() -> tuple[Tensor, Tensor]:
    x = torch.rand(40, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return x, model()(x).argmax(1)


@pytest.mark.parametrize("name", list(ATTACKS))
@pytest.mark.parametrize("inputs_too", [True, False])
def test_every_attack_runs_on_a_device(name: str, inputs_too: bool) -> None:
    kind = ATTACKS[name]
    library = getattr(kind, "library", "torchattacks" if name == "autoattack" else "foolbox")
    if name not in ("fgsm", "ifgsm", "mim", "pgd") and importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    known = kind.__dataclass_fields__
    settings = {key: value for key, value in QUICK.items() if key in known and name != "fgsm"}
    x, labels = inputs()
    if inputs_too:
        x, labels = x.cuda(), labels.cuda()
    network = model().cuda()
    for norm in kind.norms:
        attack = build_attack(name, norm=norm, **settings)
        small, large = attack.sweep(network, x, labels, radii=[0.01, 0.3 if norm == "linf" else 3.0])
        assert small.adversarial.device == x.device
        for found in (small, large):
            assert (sizes(found.adversarial, x, norm).cpu() <= torch.from_numpy(found.radii)).all()
            assert ((found.adversarial >= 0) & (found.adversarial <= 1)).all()
        assert large.broken.sum() > 10 or name in ("fgsm", "cw", "square")  # weak at these settings


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_stopping_early_breaks_the_same_inputs_on_a_device(norm: str) -> None:
    x, labels = inputs()
    early, late = (
        build_attack("pgd", norm=norm, stop_when_broken=stop).attack(
            model().double().cuda(), x.double(), labels, radius={"linf": 0.02, "l2": 0.1, "l1": 0.4}[norm]
        )
        for stop in (True, False)
    )
    assert early.broken.tolist() == late.broken.tolist()
    assert 0 < early.broken.sum() < 40


def test_a_smoothed_classifier_is_attacked_on_its_device() -> None:
    x, labels = inputs()
    target = Smoothed(model().cuda(), sigma=0.1, classes=5)
    found = build_attack("pgd", norm="l2", steps=10).attack(target, x, labels, radius=3.0, samples=200)
    assert found.broken.sum() > 10
    points = NoisyPGD(steps=3).run(target, x, labels, torch.full((40,), 0.5), seed=0)
    assert points.device == x.device
    assert (sizes(points, x, "l2") <= 0.5).all()
