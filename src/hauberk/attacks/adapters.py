"""Attacks of torchattacks, foolbox and the adversarial-robustness-toolbox (ART), behind the base class.

Each library sees an ordinary torch module on inputs in [0, 1]: a smoothed classifier appears as its scores
over fresh draws (``log E softmax``), other bounds are scaled, tables are laid out as pictures where a library
knows only those, and its random numbers come from the seed, leaving everybody else's alone. What comes back
is held to ball and bounds and judged anew by the base class: a library's own idea of success is not asked
for.

The libraries are imported when an attack of theirs runs; none is needed for the attacks of
`hauberk.attacks.iterative`. Any object of theirs can be used:

    FromFoolbox(wrapped=foolbox.attacks.L2BasicIterativeAttack(), norm="l2")
    FromTorchattacks(make=lambda model, radius: torchattacks.TIFGSM(model, eps=radius), norm="linf")
    FromART(make=lambda classifier, radius, targeted: ElasticNet(classifier, targeted=targeted), norm="l1",
            nearest=True)
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import math
import random
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from hauberk.attacks.base import Attack, Found
from hauberk.attacks.projections import Bounds
from hauberk.attacks.requests import Batch
from hauberk.attacks.targets import Target
from hauberk.errors import RequestError
from hauberk.randomness import derive_key

_INSTALL = {
    "foolbox": "pip install 'hauberk[oracles]'",
    "art": "pip install 'hauberk[oracles]'",
    "torchattacks": "pip install --no-deps torchattacks==3.5.1",
}
_NAMES = {"foolbox": "foolbox", "art": "adversarial-robustness-toolbox", "torchattacks": "torchattacks"}
_SMALLEST_PICTURE = 5  # the side from which every picture attack can cut its squares


@dataclass(frozen=True, kw_only=True)
class Aim:
    """What one call of a library attacks: inputs in [0, 1] that share a radius."""

    model: nn.Module
    x: Tensor
    classes: Tensor  # labels, or targets when targeted
    targeted: bool
    radius: float
    class_count: int
    seed: int


@dataclass(frozen=True, kw_only=True)
class LibraryAttack(Attack):
    """An attack by a library; a new one writes ``craft()``."""

    library: ClassVar[str]
    pictures_only: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all(math.isfinite(bound) for bound in self.bounds):
            raise RequestError(f"{self.title} works on bounded data: give finite bounds")
        if importlib.util.find_spec(self.library) is None:
            raise RequestError(
                f"{self.title} is an attack of {_NAMES[self.library]}, which is not installed: "
                f"{_INSTALL[self.library]}"
            )

    @property
    def name(self) -> str:
        return f"{self.norm} {self.title} ({_NAMES[self.library]})"

    @abstractmethod
    def craft(self, aim: Aim) -> Tensor:
        """The library's adversarial inputs in [0, 1]; not more than asked for, not better than it can."""

    def run(self, batch: Batch) -> Found:
        unit = UnitInputs(batch.target, batch.x, batch.bounds, pictures_only=self.pictures_only)
        x = unit.enter(batch.x)
        points = x.clone()
        radii = batch.radii / (batch.bounds[1] - batch.bounds[0])
        groups = radii.amax().view(1) if self.minimal else radii.unique()
        for radius in groups.tolist():
            rows = (
                torch.arange(len(x), device=x.device) if self.minimal else (radii == radius).nonzero()[:, 0]
            )
            seed = derive_key(batch.seed, f"{self.title} {int(batch.rows[rows[0]])} {radius!r}")[0]
            aim = Aim(
                model=unit,
                x=x[rows],
                classes=batch.goal.classes[rows],
                targeted=batch.goal.targeted,
                radius=radius,
                class_count=batch.target.classes,
                seed=seed,
            )
            with _own_chance(seed, x.device):
                points[rows] = self.craft(aim).detach().to(x)
        return Found(points=unit.leave(points))

    def _module(self, path: str) -> Any:
        return importlib.import_module(path)


class UnitInputs(nn.Module):
    """A target as a torch module whose inputs lie in [0, 1], in float32."""

    def __init__(self, target: Target, x: Tensor, bounds: Bounds, *, pictures_only: bool) -> None:
        super().__init__()
        self.model = target.model  # its parameters tell libraries the device
        self._scores, self._dtype, self._shape = target.scores, x.dtype, x.shape[1:]
        self._low, self._width = bounds[0], bounds[1] - bounds[0]
        self._side = 0
        if pictures_only and (len(self._shape) != 3 or min(self._shape[1:]) < _SMALLEST_PICTURE):
            self._side = max(_SMALLEST_PICTURE, math.ceil(math.sqrt(self._shape.numel())))
        self.eval()

    def enter(self, x: Tensor) -> Tensor:
        """From data to [0, 1]; what is no picture, or too small, is laid out in a square with idle pixels."""
        unit = ((x - self._low) / self._width).float().clamp_(0.0, 1.0)
        if not self._side:
            return unit
        idle = self._side**2 - self._shape.numel()
        return nn.functional.pad(unit.flatten(1), (0, idle)).view(-1, 1, self._side, self._side)

    def leave(self, unit: Tensor) -> Tensor:
        """From [0, 1] back to data."""
        if self._side:
            unit = unit.flatten(1)[:, : self._shape.numel()]
        return unit.reshape(-1, *self._shape).to(self._dtype) * self._width + self._low

    def forward(self, unit: Tensor) -> Tensor:
        scores: Tensor = self._scores(self.leave(unit))
        return scores.float()


@contextlib.contextmanager
def _own_chance(seed: int, device: torch.device) -> Iterator[None]:
    """Random numbers of torch, numpy and Python from the seed inside, and as they were afterwards."""
    numpy_state, python_state = np.random.get_state(), random.getstate()  # noqa: NPY002
    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(seed)
            np.random.seed(seed)  # noqa: NPY002
            random.seed(seed)
            yield
    finally:
        np.random.set_state(numpy_state)  # noqa: NPY002
        random.setstate(python_state)


@dataclass(frozen=True, kw_only=True)
class FoolboxAttack(LibraryAttack):
    """An attack of foolbox; ``made()`` gives the object."""

    library = "foolbox"

    @abstractmethod
    def made(self) -> Any:
        """The foolbox attack."""

    def craft(self, aim: Aim) -> Tensor:
        foolbox = self._module("foolbox")
        model = foolbox.PyTorchModel(aim.model, bounds=(0, 1), device=aim.x.device)
        goal = (
            foolbox.criteria.TargetedMisclassification if aim.targeted else foolbox.criteria.Misclassification
        )
        epsilons = None if self.minimal else aim.radius
        points, _, _ = self.made()(model, aim.x, goal(aim.classes), epsilons=epsilons)
        found: Tensor = points
        return found


@dataclass(frozen=True, kw_only=True)
class TorchattacksAttack(LibraryAttack):
    """An attack of torchattacks; ``made()`` gives the object for a model and a radius."""

    library = "torchattacks"
    pictures_only = True

    @abstractmethod
    def made(self, aim: Aim) -> Any:
        """The torchattacks attack."""

    def craft(self, aim: Aim) -> Tensor:
        attack = self.made(aim)
        if aim.targeted:
            attack.set_mode_targeted_by_label(quiet=True)
        found: Tensor = attack(aim.x, aim.classes)
        return found


@dataclass(frozen=True, kw_only=True)
class ARTAttack(LibraryAttack):
    """An attack of the adversarial-robustness-toolbox; ``made()`` gives the object for a classifier."""

    library = "art"

    @abstractmethod
    def made(self, classifier: Any, aim: Aim) -> Any:
        """The ART attack."""

    def craft(self, aim: Aim) -> Tensor:
        classifier = self._module("art.estimators.classification").PyTorchClassifier(
            model=aim.model,
            loss=nn.CrossEntropyLoss(),
            input_shape=tuple(aim.x.shape[1:]),
            nb_classes=aim.class_count,
            clip_values=(0.0, 1.0),
            device_type="gpu" if aim.x.device.type == "cuda" else "cpu",
        )
        found = self.made(classifier, aim).generate(x=aim.x.cpu().numpy(), y=aim.classes.cpu().numpy())
        return torch.from_numpy(np.asarray(found))


@dataclass(frozen=True, kw_only=True)
class FromFoolbox(FoolboxAttack):
    """A foolbox attack of the user's own."""

    title = "a foolbox attack"
    wrapped: Any

    @property
    def minimal(self) -> bool:
        return isinstance(self.wrapped, self._module("foolbox.attacks.base").MinimizationAttack)

    @property
    def name(self) -> str:
        return f"{self.norm} {type(self.wrapped).__name__} (foolbox)"

    def made(self) -> Any:
        return self.wrapped


@dataclass(frozen=True, kw_only=True)
class FromTorchattacks(TorchattacksAttack):
    """A torchattacks attack of the user's own, made for a model on [0, 1] and a radius."""

    title = "a torchattacks attack"
    make: Callable[[nn.Module, float], Any]

    def made(self, aim: Aim) -> Any:
        return self.make(aim.model, aim.radius)


@dataclass(frozen=True, kw_only=True)
class FromART(ARTAttack):
    """An ART attack of the user's own, made for a classifier on [0, 1], a radius and whether it is targeted.

    ``nearest``: the attack looks for the nearest adversarial input and does not need the radius.
    """

    title = "an ART attack"
    make: Callable[[Any, float, bool], Any]
    nearest: bool = False

    @property
    def minimal(self) -> bool:
        return self.nearest

    def made(self, classifier: Any, aim: Aim) -> Any:
        return self.make(classifier, aim.radius, aim.targeted)
