"""What libraries get to see, and what happens without them. (Their attacks themselves: the table.)"""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import pytest
import torch
from torch import nn

import hauberk.attacks
from hauberk.attacks import build_attack
from hauberk.attacks.adapters import UnitInputs
from hauberk.attacks.library import AutoAttack
from hauberk.attacks.targets import Network, Noisy, Target
from hauberk.certify import Smoothed
from hauberk.errors import RequestError


def model(classes: int, features: int = 6) -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(features, classes))


@pytest.mark.parametrize(
    ("name", "library", "command"),
    [
        ("cw", "foolbox", "hauberk\\[oracles\\]"),
        ("deepfool", "foolbox", "hauberk\\[oracles\\]"),
        ("ddn", "foolbox", "hauberk\\[oracles\\]"),
        ("square", "torchattacks", "--no-deps torchattacks==3.5.1"),
        ("autoattack", "torchattacks", "--no-deps torchattacks==3.5.1"),
    ],
)
def test_a_missing_library_is_named_with_the_command_that_installs_it(
    name: str, library: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec

    def without(module: str) -> object:
        return None if module == library else found(module)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    with pytest.raises(RequestError, match=f"{library}, which is not installed: pip install .*{command}"):
        build_attack(name, norm="l2")
    build_attack("pgd", norm="l2")


def test_no_library_is_imported_before_it_is_used() -> None:
    for file in Path(hauberk.attacks.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.split(".")[0] for name in names} & {"foolbox", "torchattacks", "art", "eagerpy"}


@pytest.mark.parametrize("classes", [2, 3, 4, 10])
def test_autoattack_leaves_out_what_needs_more_classes(classes: int) -> None:
    pytest.importorskip("torchattacks")
    x = torch.rand(1, 6)
    network = Network(model(classes), x)
    titles = [part.title for part in AutoAttack().parts(network)]
    assert titles == (["APGD", "APGD-T", "FAB", "Square"] if classes >= 4 else ["APGD", "FAB", "Square"])
    noisy = Noisy(Smoothed(model(classes), sigma=0.1, classes=classes), x, draws=2, seed=0)
    losses = [part.loss for part in AutoAttack().parts(noisy)]  # type: ignore[attr-defined]
    assert losses == (["ce", "dlr"] if classes >= 3 else ["ce"])


def test_the_dlr_loss_needs_three_classes() -> None:
    pytest.importorskip("torchattacks")
    with pytest.raises(RequestError, match="use loss ce"):
        build_attack("apgd", loss="dlr").attack(model(2), torch.rand(2, 6), torch.tensor([0, 1]), radius=0.1)


class Remembering(Target):
    """Keeps what it was asked."""

    randomised, inputs_at_once, classes, device = False, 1, 2, torch.device("cpu")

    def __init__(self) -> None:
        self.model = model(2)
        self.asked = torch.empty(0)

    def scores(self, x: torch.Tensor) -> torch.Tensor:
        self.asked = x
        return torch.zeros(len(x), 2, dtype=x.dtype)


@pytest.mark.parametrize("shape", [(6,), (1, 2, 3), (2, 3), (1, 8, 8), (30,)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_libraries_see_unit_pictures_and_the_model_sees_the_data(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    x = -2 + 5 * torch.rand(4, *shape, dtype=dtype)
    target = Remembering()
    unit = UnitInputs(target, x, (-2.0, 3.0), pictures_only=True)
    inside = unit.enter(x)
    assert inside.dtype == torch.float32
    assert inside.ndim == 4
    assert min(inside.shape[2:]) >= 5
    assert ((inside >= 0) & (inside <= 1)).all()
    assert unit(inside).dtype == torch.float32
    assert target.asked.dtype == dtype
    assert torch.allclose(target.asked, x, atol=1e-5)
    assert torch.allclose(unit.leave(inside), x, atol=1e-5)


@pytest.mark.parametrize("name", ["cw", "autoattack", "square"])
def test_library_attacks_need_finite_bounds(name: str) -> None:
    with pytest.raises(RequestError, match="give finite bounds"):
        build_attack(name, norm="l2", bounds=(0.0, float("inf")))


@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        ("cw", {"steps": 0}, "steps must be at least 1"),
        ("cw", {"searches": 0}, "searches must be at least 1"),
        ("deepfool", {"steps": 0}, "steps must be at least 1"),
        ("ddn", {"steps": -1, "norm": "l2"}, "steps must be at least 1"),
        ("ddn", {"norm": "linf"}, "DDN works in l2, not in 'linf'"),
        ("apgd", {"steps": 0}, "steps must be at least 1"),
        ("apgd", {"loss": "hinge"}, "choose ce or dlr"),
        ("apgd", {"norm": "l1"}, "APGD works in l2 or linf"),
        ("apgd-t", {"steps": 0}, "steps must be at least 1"),
        ("fab", {"steps": 0}, "steps must be at least 1"),
        ("square", {"queries": 0}, "queries must be at least 1"),
        ("autoattack", {"steps": 0}, "steps must be at least 1"),
        ("autoattack", {"queries": 0}, "queries must be at least 1"),
        ("autoattack", {"norm": "l1"}, "AutoAttack works in l2 or linf"),
    ],
)
def test_wrong_settings_are_refused(name: str, settings: dict[str, object], sentence: str) -> None:
    pytest.importorskip("torchattacks")
    pytest.importorskip("foolbox")
    with pytest.raises(RequestError, match=sentence):
        build_attack(name, **settings)
