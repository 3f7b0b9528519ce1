"""Adversarial examples against networks and against randomised classifiers.

``model`` is any torch module that gives class scores, or a `hauberk.certify.Smoothed` classifier; ``x`` lies
in [0, 1] unless the attack is told other ``bounds``:

    from hauberk.attacks import PGD
    found = PGD(norm="linf", steps=40).attack(model, x, y, radius=8 / 255)
    print(f"{found.accuracy:.1%} still right, {found.success_rate:.1%} broken", found.success_interval())

``ATTACKS`` holds all of them by name; a file with an imitation network is one as well.
Those of other libraries need the extra ``hauberk[oracles]``.
"""

from hauberk.attacks.adapters import FromART, FromFoolbox, FromTorchattacks
from hauberk.attacks.base import Attack
from hauberk.attacks.catalogue import ATTACKS, build_attack, find_attack
from hauberk.attacks.imitation.attack import ImitationAttack
from hauberk.attacks.inside_radius import InsideRadius, attack_inside_radius
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
from hauberk.attacks.outcome import Outcome, binomial_interval, worst_case
from hauberk.attacks.pgd import NoisyPGD
from hauberk.attacks.projections import project_l2

__all__ = [
    "APGD",
    "ATTACKS",
    "DDN",
    "FAB",
    "FGSM",
    "IFGSM",
    "MIM",
    "PGD",
    "Attack",
    "AutoAttack",
    "CarliniWagner",
    "DeepFool",
    "FromART",
    "FromFoolbox",
    "FromTorchattacks",
    "ImitationAttack",
    "InsideRadius",
    "NoisyPGD",
    "Outcome",
    "Square",
    "TargetedAPGD",
    "attack_inside_radius",
    "binomial_interval",
    "build_attack",
    "find_attack",
    "project_l2",
    "worst_case",
]
