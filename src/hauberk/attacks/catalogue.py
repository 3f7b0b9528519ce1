"""Attacks by name: ``build_attack("pgd", norm="l2", steps=40)``, or a file with an imitation network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from hauberk.attacks.base import Attack
from hauberk.attacks.iterative import FGSM, IFGSM, MIM, PGD
from hauberk.attacks.library import (
    APGD,
    DDN,
    FAB,
    AutoAttack,
    CarliniWagner,
    DeepFool,
    Square,
    TargetedAPGD,
)
from hauberk.errors import RequestError

ATTACKS: Mapping[str, type[Attack]] = {
    "fgsm": FGSM,
    "ifgsm": IFGSM,
    "mim": MIM,
    "pgd": PGD,
    "cw": CarliniWagner,
    "deepfool": DeepFool,
    "ddn": DDN,
    "apgd": APGD,
    "apgd-t": TargetedAPGD,
    "fab": FAB,
    "square": Square,
    "autoattack": AutoAttack,
}


IMITATION_FILES = ".safetensors"


def find_attack(name: str) -> type[Attack]:
    if name.endswith(IMITATION_FILES):
        from hauberk.attacks.imitation.attack import ImitationAttack  # its room finds attacks here

        return ImitationAttack
    if name not in ATTACKS:
        raise RequestError(f"there is no attack '{name}'; choose among {', '.join(ATTACKS)}")
    return ATTACKS[name]


def build_attack(name: str, **settings: object) -> Attack:
    """The attack with these settings; a setting that it does not have is refused."""
    kind = find_attack(name)
    if name.endswith(IMITATION_FILES):
        settings = {**settings, "path": name}
    known = [field.name for field in fields(kind)]
    for setting in settings:
        if setting not in known:
            raise RequestError(f"{name} has no setting '{setting}'; it has {', '.join(known)}")
    return kind(**settings)  # type: ignore[arg-type]
