"""Small worlds in which a published system is run many times: few records, small pictures, its own code."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from hauberk.audit.refutations.base import Stakes
from hauberk.data import Dataset
from hauberk.gradients import ClippedSum
from hauberk.methods.base import Constants, Given, Method
from hauberk.methods.catalogue import find_method, named_network
from hauberk.methods.settings import TrainSettings
from hauberk.progress import silent
from hauberk.randomness import Randomness, SeededRandomness
from hauberk.training import PrivateTrainer
from hauberk.training.distribution import Ranks
from hauberk.training.noise import Released, StepNoise

CLASSES = 3
_COUNTED = (
    1 << 33
)  # the games in which the attacks were tried out, and their rules found, had smaller numbers


def pictures(count: int, *, side: int, seed: int) -> Dataset:
    """Made-up grey pictures, a little brighter from class to class."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(0, CLASSES, (count,), generator=generator)
    x = 0.4 * torch.rand(count, 1, side, side, generator=generator) + 0.2 * y.view(-1, 1, 1, 1)
    return Dataset(name="made-up pictures", x=x, y=y, classes=CLASSES)


def method_of(
    name: str, variant: str, stakes: Stakes, *, shape: tuple[int, ...], records: int, **settings: Any
) -> Method:
    """A method of the catalogue as it promises ``stakes``, for so many declared records of ``shape``."""
    row = find_method(name, variant)
    chosen = TrainSettings(
        **{
            "method": name,
            "variant": variant,
            "epsilon": stakes.epsilon,
            "delta": stakes.delta,
            **row.settings,
            **(row.paper_settings if variant == "paper" else {}),
            **settings,
        }
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stakes.seed)
        network: nn.Module = named_network(chosen, shape, CLASSES)
    return row.build(network, chosen, row.plan(chosen, records=records))


def fresh_randomness(stakes: Stakes, game: int) -> Randomness:
    """Of one game; no two games share a random number."""
    return SeededRandomness(_COUNTED + stakes.seed * 1_000_003 + game)


def settled(
    method: Method, data: Dataset, randomness: Randomness, *, public: Dataset | None = None
) -> Constants:
    """What the method computes before its first step; the model is a copy."""
    return method.settle(
        Given(
            model=copy.deepcopy(method.model),
            private=data,
            public=public,
            randomness=randomness,
            ranks=Ranks.alone(),
            progress=silent,
        )
    )


class RepeatedStep:
    """One step of a trainer from the same state, as often as one likes; no two share a random number."""

    def __init__(self, trainer: PrivateTrainer) -> None:
        self._trainer, self.noise = trainer, trainer.noise
        trainer.noise = self._seen = _SeenRelease(trainer.noise)
        self._start = {name: value.clone() for name, value in trainer.state().items()}

    def released(self, game: int) -> dict[str, Tensor]:
        """What the step gives away, by parameter."""
        self._trainer.restore({**self._start, "step": torch.tensor(game)})
        self._trainer.advance()
        return self._seen.last


class _SeenRelease:
    """A method's own noise, with somebody who keeps the last release."""

    def __init__(self, inner: StepNoise) -> None:
        self._inner = inner
        self.looks_at_records = inner.looks_at_records
        self.events, self.deviation, self.state = inner.events, inner.deviation, inner.state
        self.last: dict[str, Tensor] = {}

    def release(self, clipped: ClippedSum, step: int) -> Released:
        released = self._inner.release(clipped, step)
        self.last = released.gradients
        return released


def flat(parts: Iterable[Tensor]) -> Tensor:
    """One long vector in float64."""
    return torch.cat([part.detach().flatten() for part in parts]).double()
