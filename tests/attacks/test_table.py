"""Every attack obeys every law: add a row, inherit the tests."""

from __future__ import annotations

import importlib.util
import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from hauberk.attacks import ATTACKS, Attack, build_attack
from hauberk.attacks.adapters import FromART, FromFoolbox, FromTorchattacks
from hauberk.attacks.imitation import Architecture, Imitation, ImitationNetwork, Origin, save_imitation
from hauberk.attacks.projections import sizes
from hauberk.certify import Smoothed
from hauberk.errors import RequestError


@dataclass(frozen=True, kw_only=True)
class Row:
    """An attack with settings that take a fraction of a second."""

    name: str
    make: Callable[..., Attack]
    norms: tuple[str, ...] = ("linf", "l2", "l1")
    library: str = "torch"
    classes: int = 2  # the fewest that it works with
    rowwise: bool = False  # the result for an input does not depend on its neighbours
    finds: bool = True  # strong enough for the test of what is there to be found
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def installed(self) -> bool:
        return importlib.util.find_spec(self.library) is not None

    def attack(self, norm: str, **more: Any) -> Attack:
        return self.make(norm=norm, **(self.settings | more))


def by_name(name: str, **details: Any) -> Row:
    settings = {key: details.pop(key) for key in list(details) if key not in Row.__dataclass_fields__}
    return Row(name=name, make=lambda **given: build_attack(name, **given), settings=settings, **details)


def foolbox_pgd(**given: Any) -> Attack:
    import foolbox

    kinds = {"linf": foolbox.attacks.LinfPGD, "l2": foolbox.attacks.L2PGD}
    return FromFoolbox(wrapped=kinds[given["norm"]](steps=10, rel_stepsize=0.3), **given)


def torchattacks_pgd(**given: Any) -> Attack:
    def make(model: nn.Module, radius: float) -> Any:
        import torchattacks

        kind = torchattacks.PGD if given["norm"] == "linf" else torchattacks.PGDL2
        return kind(model, eps=radius, alpha=0.3 * radius, steps=10)

    return FromTorchattacks(make=make, **given)


def art_pgd(**given: Any) -> Attack:
    def make(classifier: Any, radius: float, targeted: bool) -> Any:
        from art.attacks.evasion import ProjectedGradientDescent

        norm = {"linf": np.inf, "l2": 2, "l1": 1}[given["norm"]]
        return ProjectedGradientDescent(
            classifier,
            norm=norm,
            eps=radius,
            eps_step=0.3 * radius,
            max_iter=10,
            targeted=targeted,
            verbose=False,
        )

    return FromART(make=make, **given)


@cache
def imitation_file() -> str:
    """An untrained imitation network for sixteen values and four classes, at any radius of these tests."""
    torch.manual_seed(0)
    network = ImitationNetwork((1, 4, 4), 4, Architecture(widths=(2, 2, 2, 2)))
    made = Imitation(kind="ain", network=network, target=None, bound=1e-12, origin=Origin())
    path = Path(tempfile.mkdtemp(prefix="hauberk-")) / "ain.safetensors"
    save_imitation(path, made)
    return str(path)


TWO = ("linf", "l2")
ROWS = [
    by_name("fgsm", rowwise=True),
    by_name("ifgsm", rowwise=True, steps=10),
    by_name("mim", rowwise=True, steps=10),
    by_name("pgd", rowwise=True, steps=12, restarts=2),
    Row(
        name="pgd on the margin",
        make=lambda **given: build_attack("pgd", **given),
        rowwise=True,
        settings={"steps": 12, "loss": "margin", "momentum": 0.5},
    ),
    Row(
        name="pgd to the end",
        make=lambda **given: build_attack("pgd", **given),
        rowwise=True,
        settings={"steps": 12, "stop_when_broken": False},
    ),
    by_name("cw", library="foolbox", steps=40, searches=4),
    by_name("deepfool", norms=TWO, library="foolbox", steps=10),
    by_name("ddn", norms=("l2",), library="foolbox", steps=20),
    by_name("apgd", norms=TWO, library="torchattacks", steps=10),
    by_name("apgd-t", norms=TWO, library="torchattacks", classes=4, steps=10),
    by_name("fab", norms=TWO, library="torchattacks", steps=10),
    by_name("square", norms=TWO, library="torchattacks", queries=40, finds=False),
    by_name("autoattack", norms=TWO, library="torchattacks", steps=5, queries=20),
    Row(name="foolbox PGD", make=foolbox_pgd, norms=TWO, library="foolbox"),
    Row(name="torchattacks PGD", make=torchattacks_pgd, norms=TWO, library="torchattacks"),
    Row(name="ART PGD", make=art_pgd, library="art"),
    Row(
        name="ain",
        make=lambda **given: build_attack(imitation_file(), **given),
        norms=("linf",),
        library="safetensors",
        classes=4,
        finds=False,
    ),
]
CASES = [
    pytest.param(
        row,
        norm,
        id=f"{row.name} {norm}",
        marks=pytest.mark.skipif(not row.installed, reason=f"{row.library} is not installed"),
    )
    for row in ROWS
    for norm in row.norms
]
every_attack = pytest.mark.parametrize(("row", "norm"), CASES)

DIRECTION = torch.linspace(-1, 1.5, 16) / torch.linspace(-1, 1.5, 16).norm()
DUAL = {"linf": 1.0, "l2": 2.0, "l1": torch.inf}


def half_space(classes: int = 4) -> nn.Sequential:
    """Class 0 where DIRECTION (x - 1/2) > 0, else class 1; the other classes never win."""
    layer = nn.Linear(16, classes)
    with torch.no_grad():
        layer.weight.zero_()
        layer.weight[0], layer.weight[1] = 4 * DIRECTION, -4 * DIRECTION
        layer.bias.fill_(-20.0)
        layer.bias[0], layer.bias[1] = -2 * DIRECTION.sum(), 2 * DIRECTION.sum()
    return nn.Sequential(nn.Flatten(), layer)


def away_from_the_plane(distance: float, norm: str, count: int = 6) -> Tensor:
    """Inputs of class 0 that are exactly this far, in the norm, from class 1."""
    generator = torch.Generator().manual_seed(0)
    sideways = 0.1 * torch.randn(count, 16, generator=generator)
    sideways -= (sideways @ DIRECTION)[:, None] * DIRECTION
    return 0.5 + sideways + distance * float(DIRECTION.norm(DUAL[norm])) * DIRECTION


def wheel() -> nn.Sequential:
    """Class i where pixel i is the brightest of the first four: every class is near, each its own way."""
    layer = nn.Linear(16, 4)
    with torch.no_grad():
        layer.weight.copy_(40 * torch.eye(4, 16))
        layer.bias.zero_()
    return nn.Sequential(nn.Flatten(), layer)


def crooked(classes: int = 4, seed: int = 0) -> nn.Sequential:
    """A network with something to find in every direction."""
    generator = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 12), nn.Tanh(), nn.Linear(12, classes))
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator))
    return model


@every_attack
@given(
    radius=st.sampled_from([1e-9, 0.01, 0.1, 0.3, 3.0]),
    bounds=st.sampled_from([(0.0, 1.0), (-1.0, 3.0)]),
    image=st.booleans(),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_attack_leaves_ball_or_bounds(
    row: Row, norm: str, radius: float, bounds: tuple[float, float], image: bool, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand((3, 1, 4, 4) if image else (3, 16), generator=generator)
    x = (bounds[0] + (bounds[1] - bounds[0]) * x).clamp(*bounds)
    x[0] = x[0].round()  # a corner
    labels = torch.randint(4, (3,), generator=generator)
    found = row.attack(norm, bounds=bounds).attack(crooked(), x, labels, radius=radius, seed=seed)
    assert found.adversarial.shape == x.shape
    assert found.adversarial.dtype == x.dtype
    assert ((found.adversarial >= bounds[0]) & (found.adversarial <= bounds[1])).all()
    assert (sizes(found.adversarial, x, norm) <= radius).all()
    with torch.no_grad():
        answers = crooked()(found.adversarial).argmax(1)
    assert found.answers.tolist() == answers.tolist()  # what is reported is so
    assert found.broken.tolist() == (answers != labels).tolist()


@every_attack
def test_radius_zero_returns_the_input_bit_for_bit(row: Row, norm: str) -> None:
    x = torch.rand(4, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    x[0] = 1e-42  # a subnormal number: arithmetic may flush it
    x[2] = -0.0  # minus zero plus zero is plus zero
    labels = torch.tensor([0, 1, 2, 3])
    attack, model = row.attack(norm), crooked()
    whole = attack.attack(model, x, labels, radius=0.0).adversarial
    assert torch.equal(whole.view(torch.int32), x.view(torch.int32))
    radii = torch.tensor([0.0, 0.5, 0.0, 0.5])
    for points in (
        attack.attack(model, x, labels, radius=radii).adversarial,
        attack.perturb(model, x, labels, radius=radii),
    ):
        assert torch.equal(points[::2].view(torch.int32), x[::2].view(torch.int32))
    small, none = attack.sweep(model, x, labels, radii=[0.3, 0.0])
    assert torch.equal(none.adversarial.view(torch.int32), x.view(torch.int32))
    assert none.sizes.tolist() == [0.0] * 4
    assert none.accuracy == float((model(x).argmax(1) == labels).double().mean())
    assert small.accuracy <= none.accuracy


@every_attack
def test_every_attack_finds_what_is_there_and_no_more(row: Row, norm: str) -> None:
    """Within 0.95 of the distance to the other class nothing can be found, within 1.5 of it everybody can."""
    attack, model = row.attack(norm), half_space()
    x, labels = away_from_the_plane(0.1, norm), torch.zeros(6, dtype=torch.int64)
    safe, unsafe = attack.sweep(model, x, labels, radii=[0.095, 0.15])
    assert not safe.broken.any()
    assert safe.success_rate == 0.0
    if row.finds:
        assert unsafe.broken.all()
        assert unsafe.success_rate == 1.0
        assert (unsafe.sizes > 0.0999).all()
    assert (unsafe.answers == unsafe.broken).all()  # class 1 where broken, else 0


@every_attack
def test_binary_tasks_work_or_are_refused_in_a_sentence(row: Row, norm: str) -> None:
    x, labels = away_from_the_plane(0.1, norm), torch.zeros(6, dtype=torch.int64)
    attack = row.attack(norm)
    if row.classes > 2:
        with pytest.raises(RequestError, match="the classifier has fewer"):
            attack.attack(half_space(classes=2), x, labels, radius=0.15)
        return
    found = attack.attack(half_space(classes=2), x, labels, radius=0.15)
    assert found.broken.all() or not row.finds


@every_attack
def test_targets_are_reached_or_refused(row: Row, norm: str) -> None:
    attack, model = row.attack(norm), wheel()
    x, labels, targets = torch.full((4, 1, 4, 4), 0.5), torch.tensor([0, 0, 1, 1]), torch.tensor([1, 2, 2, 3])
    x.view(4, 16)[:2, 0] += 0.02
    x.view(4, 16)[2:, 1] += 0.02
    if not attack.can_aim:
        with pytest.raises(RequestError, match="cannot aim"):
            attack.attack(model, x, labels, radius=0.1, targets=targets)
        return
    found = attack.attack(model, x, labels, radius=0.1, targets=targets)
    assert found.broken.tolist() == (found.answers == targets.numpy()).tolist()
    if row.finds:
        assert found.answers.tolist() == targets.tolist()
        assert found.success_rate == 1.0


@every_attack
def test_the_model_and_all_chance_are_left_as_they_were(row: Row, norm: str) -> None:
    class Probe(nn.Module):
        seen: bool = False

        def forward(self, x: Tensor) -> Tensor:
            self.seen = self.seen or self.training
            return x

    torch.manual_seed(3)
    probe = Probe()
    model = nn.Sequential(
        nn.Flatten(), nn.BatchNorm1d(16), nn.Dropout(0.5), probe, nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 4)
    )
    model.train()
    model[2].eval()
    model[4].weight.requires_grad_(False)
    for weight in model.parameters():
        weight.grad = torch.full_like(weight, 3.0)
    modes = [layer.training for layer in model.modules()]
    wanted = [weight.requires_grad for weight in model.parameters()]
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    x, labels = torch.rand(3, 1, 4, 4), torch.tensor([0, 1, 2])
    copy = x.clone()
    chance = torch.random.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    with torch.no_grad():  # an attack needs gradients even where its caller has none
        row.attack(norm).attack(model, x, labels, radius=0.2)
    assert not probe.seen
    assert [layer.training for layer in model.modules()] == modes
    assert [weight.requires_grad for weight in model.parameters()] == wanted
    assert all(weight.grad is not None and (weight.grad == 3).all() for weight in model.parameters())
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert model.state_dict().keys() == before.keys()
    assert not model._forward_hooks
    assert not model._forward_pre_hooks
    assert torch.equal(x, copy)
    assert not x.requires_grad
    assert torch.equal(torch.random.get_rng_state(), chance[0])
    assert random.getstate() == chance[1]
    assert np.random.get_state()[1].tolist() == chance[2]  # noqa: NPY002


@every_attack
def test_a_seed_repeats(row: Row, norm: str) -> None:
    x, labels = torch.rand(5, 16, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 3, 0])
    attack = row.attack(norm)
    one, same = (attack.attack(crooked(), x, labels, radius=0.05, seed=4) for _ in range(2))
    assert torch.equal(one.adversarial, same.adversarial)
    assert one.broken.tolist() == same.broken.tolist()


@every_attack
def test_a_larger_radius_breaks_no_less(row: Row, norm: str) -> None:
    x = torch.rand(5, 16, generator=torch.Generator().manual_seed(2))
    model = crooked()
    with torch.no_grad():
        labels = model(x).argmax(1)
    radii = [0.4, 0.02, 0.1]
    large, small, middle = row.attack(norm).sweep(model, x, labels, radii=radii)
    assert [float(each.radii[0]) for each in (large, small, middle)] == radii
    assert (small.broken <= middle.broken).all()
    assert (middle.broken <= large.broken).all()
    for each, radius in zip((large, small, middle), radii, strict=True):
        assert (each.sizes <= radius).all()


@pytest.mark.parametrize(("row", "norm"), [case for case in CASES if case.values[0].rowwise])
def test_the_batch_size_changes_nothing(row: Row, norm: str) -> None:
    """In double precision, where the rounding of another batch shape does not matter."""
    x = torch.rand(6, 1, 4, 4, generator=torch.Generator().manual_seed(0)).double()
    model = crooked().double()
    with torch.no_grad():
        labels = model(x).argmax(1)
    attack = row.attack(norm)
    whole = attack.attack(model, x, labels, radius=0.1, batch_size=6)
    parts = attack.attack(model, x, labels, radius=0.1, batch_size=4)
    assert torch.allclose(whole.adversarial, parts.adversarial, atol=1e-9)
    assert whole.broken.tolist() == parts.broken.tolist()


@every_attack
def test_randomised_classifiers_can_be_attacked(row: Row, norm: str) -> None:
    x, labels = away_from_the_plane(0.1, norm, count=3), torch.zeros(3, dtype=torch.int64)
    target = Smoothed(half_space(), sigma=0.05, classes=4)
    attack = row.attack(norm, draws=4)
    safe, unsafe = attack.sweep(target, x, labels, radii=[0.05, 0.5], samples=200)
    assert not safe.broken.any()
    assert (sizes(unsafe.adversarial, x, norm) <= 0.5).all()
    if row.library == "torch":
        assert unsafe.broken.all()


@every_attack
def test_no_inputs_no_attempts(row: Row, norm: str) -> None:
    found = row.attack(norm).attack(
        crooked(), torch.empty(0, 1, 4, 4), torch.empty(0, dtype=torch.int64), radius=0.1
    )
    assert found.adversarial.shape == (0, 1, 4, 4)
    assert np.isnan(found.accuracy)
    assert found.success_interval() == (0.0, 1.0)


def test_every_attack_of_the_catalogue_has_a_row() -> None:
    assert {row.name for row in ROWS} >= set(ATTACKS)


@every_attack
def test_names_say_what_was_done(row: Row, norm: str) -> None:
    name = row.attack(norm).name
    assert norm in name
    assert name != replace(row.attack(row.norms[0]), bounds=(0.0, 2.0)).name or norm == row.norms[0]
