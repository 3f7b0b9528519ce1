"""A file with an imitation network is an attack like any other (the table test has its laws)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from hauberk.attacks import build_attack, find_attack
from hauberk.attacks.imitation import ImitationAttack, TrainedAIN, save_imitation, train_ain
from hauberk.errors import RequestError


@pytest.fixture(scope="module")
def files(
    world: Any, untargeted: TrainedAIN, tmp_path_factory: pytest.TempPathFactory
) -> dict[int | None, str]:
    folder, made = tmp_path_factory.mktemp("imitations"), {}
    targeted = train_ain(
        world.classifier,
        world.x,
        world.labels,
        validation=world.validation,
        classes=3,
        target=1,
        settings=world.settings,
    )
    for each in (untargeted.imitation, targeted.imitation):
        made[each.target] = str(folder / f"ain-{each.target}.safetensors")
        save_imitation(Path(made[each.target]), each)
    return made


def test_a_path_is_a_name(world: Any, files: dict[int | None, str]) -> None:
    assert find_attack(files[None]) is ImitationAttack
    attack = build_attack(files[None])
    assert attack.name == "linf AIN untargeted, ain-None.safetensors"
    found = attack.attack(world.classifier, world.x, world.labels, radius=0.3)
    assert found.success_rate > 0.9
    assert (found.sizes <= 0.3).all()


def test_a_targeted_network_wants_its_own_target(world: Any, files: dict[int | None, str]) -> None:
    attack, ones = build_attack(files[1]), torch.ones_like(world.labels)
    found = attack.attack(world.classifier, world.x, world.labels, radius=0.4, targets=ones)
    assert found.success_rate > 0.9
    for targets in (None, 0 * ones):
        with pytest.raises(RequestError, match="aims at class 1"):
            attack.attack(world.classifier, world.x, world.labels, radius=0.3, targets=targets)
    with pytest.raises(RequestError, match="cannot aim"):
        build_attack(files[None]).attack(world.classifier, world.x, world.labels, radius=0.3, targets=ones)


def test_more_copies_break_no_less(world: Any, files: dict[int | None, str]) -> None:
    few, many = (
        build_attack(files[None], copies=copies).attack(world.classifier, world.x, world.labels, radius=0.3)
        for copies in (1, 8)
    )
    assert many.broken.sum() >= few.broken.sum()


def test_what_does_not_fit_is_refused(world: Any, files: dict[int | None, str], tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="cannot read"):
        build_attack(str(tmp_path / "none.safetensors"))
    with pytest.raises(RequestError, match="no setting 'steps'"):
        build_attack(files[None], steps=3)
    with pytest.raises(RequestError, match="works in linf"):
        build_attack(files[None], norm="l2")
    with pytest.raises(RequestError, match="at least one example"):
        build_attack(files[None], copies=0)
    with pytest.raises(RequestError, match="finite bounds"):
        build_attack(files[None], bounds=(0.0, float("inf")))
    with pytest.raises(RequestError, match=r"down to a bound of 0\.3"):
        build_attack(files[None]).attack(world.classifier, world.x, world.labels, radius=0.2)


def test_a_file_that_changes_is_read_again(world: Any, files: dict[int | None, str], tmp_path: Path) -> None:
    from hauberk.attacks.imitation import load_imitation

    path = tmp_path / "one.safetensors"
    save_imitation(path, load_imitation(files[None]))
    attack = build_attack(str(path))
    assert "untargeted" in attack.name
    save_imitation(path, replace(load_imitation(files[None]), target=2))
    assert "at class 2" in attack.name
