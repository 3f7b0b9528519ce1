"""How good adversarial examples are: success, distance, and time per example.

``success`` counts inputs that are answered rightly and are not of the target class already: nothing else can
be attacked. ``as_published`` counts as the thesis does (its code): with a target all inputs that end there,
those of the target class included; without one every wrong answer, those that were wrong before included.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hauberk.attacks.base import Attack
from hauberk.attacks.imitation.saved import Imitation
from hauberk.attacks.outcome import binomial_interval
from hauberk.attacks.projections import sizes
from hauberk.attacks.targets import left_as_it_was
from hauberk.errors import RequestError

_ROWS_AT_ONCE = {"cpu": 256}
_ROWS_AT_ONCE_ON_A_DEVICE = 2048
_TIMINGS = 3

Craft = Callable[[Tensor, Tensor], Tensor]
"""From inputs and labels to adversarial inputs."""


@dataclass(frozen=True, kw_only=True)
class Quality:
    """``distance``: mean over inputs of the l_inf distance; ``seconds``: per example, made in batches."""

    attacked: int
    broken: int
    success: float
    as_published: float
    distance: float
    largest_distance: float
    seconds: float
    accuracy: float  # of the classifier, without any attack

    @property
    def interval(self) -> tuple[float, float]:
        """Exact binomial 95 % interval of the success rate."""
        return binomial_interval(self.broken, self.attacked)


def attack_crafter(
    attack: Attack, classifier: nn.Module, *, radius: float, target: int | None, seed: int = 0
) -> Craft:
    """The points of an attack, all of whose steps are taken as its settings say."""

    def craft(x: Tensor, labels: Tensor) -> Tensor:
        targets = None if target is None else torch.full_like(labels, target)
        return attack.perturb(
            classifier, x, labels, radius=radius, targets=targets, seed=seed, batch_size=len(x) or None
        )

    return craft


def imitation_crafter(imitation: Imitation, *, radius: float, seed: int = 0) -> Craft:
    """One example of an imitation network for each input."""

    def craft(x: Tensor, labels: Tensor) -> Tensor:
        return imitation.craft(x, labels, radius=radius, seed=seed)[:, 0]

    return craft


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def evaluate(
    classifier: nn.Module, x: Tensor, labels: Tensor, craft: Craft, *, target: int | None
) -> Quality:
    """Attack all inputs, and time the making of the examples alone: the median of a few batches, warmed up.

    ``x`` and ``labels`` lie on the classifier's device.
    """
    if not len(x):
        raise RequestError("there is nothing to evaluate: give at least one input")
    at_once = _ROWS_AT_ONCE.get(x.device.type, _ROWS_AT_ONCE_ON_A_DEVICE)
    made = [
        craft(some, classes) for some, classes in zip(x.split(at_once), labels.split(at_once), strict=True)
    ]
    seconds = []
    for _ in range(_TIMINGS):
        first, classes = x[:at_once], labels[:at_once]
        _wait(x.device)
        begun = time.perf_counter()
        craft(first, classes)
        _wait(x.device)
        seconds.append((time.perf_counter() - begun) / len(first))
    return judged(
        classifier, x, labels, torch.cat(made), target=target, seconds=sorted(seconds)[_TIMINGS // 2]
    )


def judged(
    classifier: nn.Module, x: Tensor, labels: Tensor, points: Tensor, *, target: int | None, seconds: float
) -> Quality:
    """Both ways of counting for given points."""
    at_once = _ROWS_AT_ONCE.get(x.device.type, _ROWS_AT_ONCE_ON_A_DEVICE)
    with left_as_it_was(classifier), torch.no_grad():
        before = torch.cat([classifier(some).argmax(1) for some in x.split(at_once)])
        after = torch.cat([classifier(some).argmax(1) for some in points.split(at_once)])
    right = before == labels
    counted = right if target is None else right & (labels != target)
    reached = after != labels if target is None else after == target
    attacked, broken = int(counted.sum()), int((counted & reached).sum())
    distances = sizes(points, x, "linf")
    return Quality(
        attacked=attacked,
        broken=broken,
        success=broken / attacked if attacked else 0.0,
        as_published=float(reached.double().mean()),
        distance=float(distances.mean()),
        largest_distance=float(distances.max()),
        seconds=seconds,
        accuracy=float(right.double().mean()),
    )
