"""Attacks by name that a library does well: C&W, DeepFool, DDN, APGD, Square, FAB, AutoAttack.

Losses that compare the third or the fourth largest score (DLR, targeted DLR) do not exist for fewer classes:
a part that needs them is left out there. (The libraries' own AutoAttack fails on such tasks.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch

from hauberk.attacks.adapters import Aim, FoolboxAttack, TorchattacksAttack
from hauberk.attacks.base import Attack, Found
from hauberk.attacks.iterative import PGD
from hauberk.attacks.outcome import judge
from hauberk.attacks.requests import Batch
from hauberk.attacks.targets import Target, generator
from hauberk.certify import Norm
from hauberk.errors import RequestError

_CLASSES_FOR_DLR = 3
_CLASSES_FOR_TARGETED_DLR = 4
_RIVALS = 9  # of a label: AutoAttack aims at the nine likeliest other classes
_DRAWS_BETWEEN_PARTS = 100
_TORCHATTACKS_NORMS = {"linf": "Linf", "l2": "L2"}


def _check_count(what: str, count: int) -> None:
    if count < 1:
        raise RequestError(f"{what} must be at least 1, got {count}")


@dataclass(frozen=True, kw_only=True)
class _OptimisedCarliniWagner(FoolboxAttack):
    title = "C&W"
    norms = ("l2",)
    steps: int
    searches: int

    @property
    def minimal(self) -> bool:
        return True

    def made(self) -> Any:
        attacks = self._module("foolbox").attacks
        return attacks.L2CarliniWagnerAttack(binary_search_steps=self.searches, steps=self.steps)


@dataclass(frozen=True, kw_only=True)
class CarliniWagner(Attack):
    """Carlini and Wagner (2017).

    In l2 their own search for the nearest adversarial input (foolbox): ``searches`` values of the constant
    that weighs distance against success, ``steps`` steps of Adam each. In l_inf and l1, where that search
    does not work well, their loss, the margin, in the projected loop with as many steps (Madry et al. 2018).
    """

    title = "C&W"
    norm: Norm = "l2"
    steps: int = 100
    searches: int = 6

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_count("steps", self.steps)
        _check_count("searches", self.searches)
        self._part()

    def _part(self) -> Attack:
        common = {
            "norm": self.norm,
            "bounds": self.bounds,
            "draws": self.draws,
            "stop_when_broken": self.stop_when_broken,
            "steps": self.steps,
        }
        if self.norm == "l2":
            return _OptimisedCarliniWagner(searches=self.searches, **common)  # type: ignore[arg-type]
        return PGD(loss="margin", **common)  # type: ignore[arg-type]

    @property
    def minimal(self) -> bool:
        return self._part().minimal

    @property
    def name(self) -> str:
        how = (
            f"{self.searches} searches of {self.steps} steps" if self.norm == "l2" else f"{self.steps} steps"
        )
        return f"{self.norm} C&W, {how}"

    def run(self, batch: Batch) -> Found:
        return self._part().run(batch)


@dataclass(frozen=True, kw_only=True)
class DeepFool(FoolboxAttack):
    """Moosavi-Dezfooli et al. (2016), by foolbox: repeated steps to the nearest linearised border."""

    title = "DeepFool"
    norms = ("l2", "linf")
    can_aim = False
    steps: int = 50

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_count("steps", self.steps)

    @property
    def minimal(self) -> bool:
        return True

    def made(self) -> Any:
        attacks = self._module("foolbox").attacks
        attack = attacks.L2DeepFoolAttack if self.norm == "l2" else attacks.LinfDeepFoolAttack
        return attack(steps=self.steps)


@dataclass(frozen=True, kw_only=True)
class DDN(FoolboxAttack):
    """Decoupled direction and norm (Rony et al. 2019), by foolbox; l2 only."""

    title = "DDN"
    norm: Norm = "l2"
    norms = ("l2",)
    steps: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_count("steps", self.steps)

    @property
    def minimal(self) -> bool:
        return True

    def made(self) -> Any:
        return self._module("foolbox").attacks.DDNAttack(steps=self.steps)


@dataclass(frozen=True, kw_only=True)
class APGD(TorchattacksAttack):
    """Auto-PGD (Croce and Hein 2020), by torchattacks; ``loss`` "dlr" needs three classes."""

    title = "APGD"
    norms = ("l2", "linf")
    can_aim = False
    steps: int = 100
    loss: Literal["ce", "dlr"] = "ce"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_count("steps", self.steps)
        if self.loss not in ("ce", "dlr"):
            raise RequestError(f"APGD has no loss '{self.loss}'; choose ce or dlr")

    def refuse(self, target: Target) -> None:
        if self.loss == "dlr" and target.classes < _CLASSES_FOR_DLR:
            raise RequestError("the DLR loss compares three classes, the classifier has fewer: use loss ce")

    def made(self, aim: Aim) -> Any:
        return self._module("torchattacks").APGD(
            aim.model,
            norm=_TORCHATTACKS_NORMS[self.norm],
            eps=aim.radius,
            steps=self.steps,
            seed=aim.seed,
            loss=self.loss,
        )


@dataclass(frozen=True, kw_only=True)
class TargetedAPGD(TorchattacksAttack):
    """APGD at each of the nine likeliest rivals with the targeted DLR loss (APGD-T); needs four classes."""

    title = "APGD-T"
    norms = ("l2", "linf")
    can_aim = False
    steps: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_count("steps", self.steps)

    def refuse(self, target: Target) -> None:
        if target.classes < _CLASSES_FOR_TARGETED_DLR:
            raise RequestError("APGD-T compares four classes, the classifier has fewer: use apgd")

    def made(self, aim: Aim) -> Any:
        return self._module("torchattacks").APGDT(
            aim.model,
            norm=_TORCHATTACKS_NORMS[self.norm],
            eps=aim.radius,
            steps=self.steps,
            seed=aim.seed,
            n_classes=min(aim.class_count, _RIVALS + 1),
        )


@dataclass(frozen=True, kw_only=True)
class FAB(TorchattacksAttack):
    """Fast adaptive boundary attack (Croce and Hein 2020), by torchattacks.

    ``each_rival``: from the label to each of the nine likeliest rivals in turn (FAB-T). The library's l1 form
    stops with an error and its form with given targets returns the inputs: neither is offered.
    """

    title = "FAB"
    norms = ("l2", "linf")
    can_aim = False
    steps: int = 100
    each_rival: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_count("steps", self.steps)

    def made(self, aim: Aim) -> Any:
        return self._module("torchattacks").FAB(
            aim.model,
            norm=_TORCHATTACKS_NORMS[self.norm],
            eps=aim.radius,
            steps=self.steps,
            seed=aim.seed,
            multi_targeted=self.each_rival,
            n_classes=min(aim.class_count, _RIVALS + 1),
        )


@dataclass(frozen=True, kw_only=True)
class Square(TorchattacksAttack):
    """Square attack (Andriushchenko et al. 2020), by torchattacks: random search by scores alone."""

    title = "Square"
    norms = ("l2", "linf")
    queries: int = 5000

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_count("queries", self.queries)

    def made(self, aim: Aim) -> Any:
        return self._module("torchattacks").Square(
            aim.model,
            norm=_TORCHATTACKS_NORMS[self.norm],
            eps=aim.radius,
            n_queries=self.queries,
            seed=aim.seed,
        )


@dataclass(frozen=True, kw_only=True)
class AutoAttack(Attack):
    """The ensemble of Croce and Hein (2020): APGD, APGD-T, FAB-T and Square, each on what the others left.

    With fewer than four classes APGD-T is left out. Against a randomised classifier, as its authors advise,
    APGD with both losses over the classifier's own noise (DLR from three classes on): boundary and random
    search lose their way in noise.
    """

    title = "AutoAttack"
    norms = ("l2", "linf")
    can_aim = False
    steps: int = 100
    queries: int = 5000

    def __post_init__(self) -> None:
        super().__post_init__()
        APGD(norm=self.norm, bounds=self.bounds, steps=self.steps)
        _check_count("queries", self.queries)

    @property
    def name(self) -> str:
        return f"{self.norm} AutoAttack, {self.steps} steps, {self.queries} queries"

    def parts(self, target: Target) -> list[Attack]:
        """What runs against this target."""
        common: dict[str, Any] = {"norm": self.norm, "bounds": self.bounds, "draws": self.draws}
        parts: list[Attack] = [APGD(steps=self.steps, **common)]
        if target.randomised:
            if target.classes >= _CLASSES_FOR_DLR:
                parts.append(APGD(steps=self.steps, loss="dlr", **common))
            return parts
        if target.classes >= _CLASSES_FOR_TARGETED_DLR:
            parts.append(TargetedAPGD(steps=self.steps, **common))
        parts.append(FAB(steps=self.steps, each_rival=True, **common))
        parts.append(Square(queries=self.queries, **common))
        return parts

    def run(self, batch: Batch) -> Found:
        chance = generator(batch.target.device, batch.seed, f"between parts {int(batch.rows[0])}")
        points = batch.x.clone()
        left = torch.arange(len(points), device=points.device)
        for part in self.parts(batch.target):
            attacked = batch.take(left)
            held = self._held(attacked, part.run(attacked)).points
            points[left] = held
            verdict = judge(batch.target, held, attacked.goal, samples=_DRAWS_BETWEEN_PARTS, generator=chance)
            left = left[~verdict.broken.to(left.device)]
            if not len(left):
                break
        return Found(points=points)
