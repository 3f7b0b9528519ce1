"""The adversarial examples that are imitated: made once by attacks of this package, and kept on the device.

004 imitates I-FGSM, and for "AIN w/ C&W" mixes in a few examples of a stronger attack. Any attack will do:

    recipe = Recipe(attacks=("ifgsm", "cw"), shares=(0.9, 0.1))
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Self

import torch
from torch import Tensor, nn

from hauberk.attacks.base import Attack
from hauberk.attacks.catalogue import build_attack, find_attack
from hauberk.attacks.targets import Goal, answers, left_as_it_was
from hauberk.certify import Norm
from hauberk.errors import RequestError
from hauberk.progress import Progress, silent

_ROWS_AT_ONCE = {"cpu": 512}
_ROWS_AT_ONCE_ON_A_DEVICE = 8192


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Which attacks are imitated, each on its share of the inputs, within ``radius``.

    ``steps``: of each attack that takes several. They take all of them, also when an input is broken before:
    a point just behind the border is a poor example to follow.
    """

    attacks: tuple[str, ...] = ("ifgsm",)
    shares: tuple[float, ...] = (1.0,)
    radius: float = 0.2
    steps: int = 50

    def __post_init__(self) -> None:
        if not self.attacks or len(self.attacks) != len(self.shares):
            raise RequestError("imitation needs one share of the inputs for each of its attacks")
        if min(self.shares) < 0 or not sum(self.shares) > 0:
            raise RequestError(f"shares must not be negative, and not all zero, got {self.shares}")
        if not 0 < self.radius <= 1:
            raise RequestError(f"the radius of imitated examples must lie in (0, 1], got {self.radius}")
        if self.steps < 1:
            raise RequestError(f"an attack takes at least one step, got {self.steps}")
        for name in self.attacks:
            find_attack(name)

    @classmethod
    def of(cls, text: str, **settings: Any) -> Self:
        """From words such as ``ifgsm`` or ``ifgsm:0.9,cw:0.1``."""
        pairs = [part.strip().partition(":") for part in text.split(",")]
        try:
            shares = tuple(float(share) if share else 1.0 for _, _, share in pairs)
        except ValueError as error:
            raise RequestError(f"attacks to imitate are written as ifgsm:0.9,cw:0.1, not '{text}'") from error
        return cls(attacks=tuple(name for name, _, _ in pairs), shares=shares, **settings)

    def built(self) -> list[Attack]:
        """In l_inf where the attack knows it; what else an attack finds is held to the l_inf ball anyway."""
        made = []
        for name in self.attacks:
            kind = find_attack(name)
            norm: Norm = "linf" if "linf" in kind.norms else kind.norms[0]
            settings: dict[str, Any] = {"norm": norm, "stop_when_broken": False}
            if "steps" in {field.name for field in fields(kind)} and name != "fgsm":
                settings["steps"] = self.steps
            made.append(build_attack(name, **settings))
        return made


@dataclass(frozen=True, kw_only=True, eq=False)
class Examples:
    """``points`` with the classifier's ``scores`` there, and whether the goal is ``reached``, row by row."""

    points: Tensor
    scores: Tensor
    reached: Tensor


def imitated_examples(
    classifier: nn.Module,
    x: Tensor,
    labels: Tensor,
    *,
    target: int | None,
    recipe: Recipe,
    seed: int = 0,
    progress: Progress = silent,
) -> Examples:
    """An example for every input. Which attack makes which is drawn from ``seed``."""
    shares = torch.tensor(recipe.shares, dtype=torch.float64)
    chance = torch.Generator().manual_seed(seed)
    member = torch.multinomial(shares, len(x), replacement=True, generator=chance).to(x.device)
    points, done = x.clone(), 0
    at_once = _ROWS_AT_ONCE.get(x.device.type, _ROWS_AT_ONCE_ON_A_DEVICE)
    for number, attack in enumerate(recipe.built()):
        for rows in (member == number).nonzero()[:, 0].split(at_once):
            targets = None if target is None else torch.full_like(labels[rows], target)
            points[rows] = attack.perturb(
                classifier, x[rows], labels[rows], radius=recipe.radius, targets=targets, seed=seed
            )
            done += len(rows)
            progress("examples to imitate", done, len(x))
    points = torch.max(torch.min(points, x + recipe.radius), x - recipe.radius).clamp_(0.0, 1.0)
    with torch.no_grad(), left_as_it_was(classifier), torch.no_grad():
        scores = torch.cat([classifier(some) for some in points.split(at_once)])
    goal = Goal(
        classes=labels if target is None else torch.full_like(labels, target), targeted=target is not None
    )
    return Examples(points=points, scores=scores, reached=goal.reached(answers(scores)))
