"""A file gives back what was put into it, bit for bit, and nothing else is believed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from hauberk.attacks.imitation import Architecture, Imitation, ImitationNetwork, Origin
from hauberk.attacks.imitation.advgan import AdversarialGenerator
from hauberk.attacks.imitation.saved import load_imitation, save_imitation
from hauberk.errors import RequestError
from hauberk.files import write_tensors


def example(kind: str = "ain", target: int | None = None) -> Imitation:
    torch.manual_seed(3)
    shape = (1, 6, 6)
    made: Any = (
        AdversarialGenerator(shape, 3)
        if kind == "advgan"
        else ImitationNetwork(
            shape, 3, Architecture(widths=(2, 3, 4, 5), noise=0.25, attention=kind == "ain")
        )
    )
    origin = Origin(
        data="digits", public="first:100 of digits", classifier="mlp", imitated="ifgsm", records=7
    )
    return Imitation(kind=kind, network=made, target=target, bound=0.123456789, origin=origin)  # type: ignore[arg-type]


@pytest.mark.parametrize(("kind", "target"), [("ain", None), ("ain", 2), ("atn", 0), ("advgan", None)])
def test_save_and_load_are_exact(kind: str, target: int | None, tmp_path: Path) -> None:
    one = example(kind, target)
    save_imitation(tmp_path / "one.safetensors", one)
    other = load_imitation(tmp_path / "one.safetensors")
    assert (other.kind, other.target, other.bound, other.origin) == (kind, target, one.bound, one.origin)
    for (name, first), second in zip(
        one.network.state_dict().items(), other.network.state_dict().values(), strict=True
    ):
        assert torch.equal(first.view(torch.int32), second.view(torch.int32)), name
    x, labels = torch.rand(3, 1, 6, 6), torch.tensor([0, 1, 2])
    crafted = [each.craft(x, labels, radius=0.2, copies=2, seed=5) for each in (one, other)]
    assert torch.equal(*crafted)
    assert not any(weight.requires_grad for weight in other.network.parameters())


def test_loading_touches_nobodys_random_numbers(tmp_path: Path) -> None:
    save_imitation(tmp_path / "one.safetensors", example())
    before = torch.random.get_rng_state()
    load_imitation(tmp_path / "one.safetensors")
    assert torch.equal(before, torch.random.get_rng_state())


def test_noise_makes_copies_differ_and_a_seed_repeats_them() -> None:
    imitation, x, labels = example(), torch.rand(2, 1, 6, 6), torch.tensor([0, 1])
    made = imitation.craft(x, labels, radius=1.0, copies=3, seed=1)
    assert torch.equal(made, imitation.craft(x, labels, radius=1.0, copies=3, seed=1))
    assert not torch.equal(made, imitation.craft(x, labels, radius=1.0, copies=3, seed=2))
    assert not torch.equal(made[:, 0], made[:, 1])
    without = example("advgan").craft(x, labels, radius=1.0, copies=2)
    assert torch.equal(without[:, 0], without[:, 1])


def test_radii_below_the_final_bound_are_refused() -> None:
    imitation, x = example(), torch.rand(2, 1, 6, 6)
    imitation.craft(x, torch.tensor([0, 1]), radius=0.123456789)
    with pytest.raises(RequestError, match=r"down to a bound of 0\.1235"):
        imitation.craft(x, torch.tensor([0, 1]), radius=0.12)


def test_other_files_are_refused_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    with pytest.raises(RequestError, match="cannot read"):
        load_imitation(path)
    write_tensors(path, {"a": torch.zeros(2)})
    with pytest.raises(RequestError, match="holds no imitation network"):
        load_imitation(path)
    path.write_bytes(b"not a file of tensors")
    with pytest.raises(RequestError, match="damaged or no safetensors"):
        load_imitation(path)
    one = example()
    header = {
        "format": 1,
        "kind": "ain",
        "shape": [1, 6, 6],
        "classes": 3,
        "target": None,
        "bound": 0.1,
        "architecture": {"widths": [2, 3, 4, 9]},
        "origin": {},
    }
    write_tensors(path, one.network.state_dict(), {"hauberk-imitation": json.dumps(header)})
    with pytest.raises(RequestError, match="do not fit together"):
        load_imitation(path)
    write_tensors(path, one.network.state_dict(), {"hauberk-imitation": json.dumps(header | {"format": 9})})
    with pytest.raises(RequestError, match="another version"):
        load_imitation(path)
    write_tensors(path, one.network.state_dict(), {"hauberk-imitation": "{"})
    with pytest.raises(RequestError, match="do not fit together"):
        load_imitation(path)


def test_perturbations_grow_with_the_radius() -> None:
    imitation, x = example("advgan"), torch.full((2, 1, 6, 6), 0.5)
    labels = torch.tensor([0, 1])
    near = imitation.craft(x, labels, radius=imitation.bound)[:, 0] - x
    far = imitation.craft(x, labels, radius=2 * imitation.bound)[:, 0] - x
    assert torch.allclose(far, 2 * near, atol=1e-5)
    assert near.abs().max() > 0
