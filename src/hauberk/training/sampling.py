"""Poisson sampling: each record joins a step's sample by its own coin.

The sampler yields index tensors and never touches the data; an empty sample is ordinary. The probability
comes from the plan, whose constants are public; the number of coins is the realised number of records, which
changes nothing for the other records when one is added or removed.

Several processes that each sample their own records with the same probability draw one Poisson sample
together: the coins are independent, whoever tosses them.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from hauberk.accounting import PrivacyPlan
from hauberk.randomness import Randomness
from hauberk.training.distribution import Ranks


class Sampler(Protocol):
    """What `PrivateTrainer` asks of a sampler."""

    def sample(self, step: int) -> Tensor:
        """Rows of the held records that are in this step's sample."""


class FixedBatches:
    """A fixed partition of the records, one batch per step in turns, the same in every epoch (003 Alg. 1).

    ``order`` are the places of the held records in a shuffled list of all. Nothing is amplified by such
    sampling: for published variants only.
    """

    def __init__(self, order: Tensor, batches: int) -> None:
        self._order, self._batches = order, batches

    def sample(self, step: int) -> Tensor:
        return (self._order % self._batches == step % self._batches).nonzero().squeeze(1).cpu()


class PoissonSampler:
    """Samples the ``held`` records of one process; ``ranks`` says which records of all they are."""

    def __init__(
        self, plan: PrivacyPlan, *, held: int, randomness: Randomness, ranks: Ranks | None = None
    ) -> None:
        self._rate = plan.sampling_rate
        self._held = held
        self._randomness = randomness
        self._ranks = ranks or Ranks.alone()

    def sample(self, step: int) -> Tensor:
        """Rows of the held records that are in this step's sample."""
        coins = self._randomness.coins(
            step=step,
            count=self._held,
            probability=self._rate,
            first=self._ranks.rank,
            every=self._ranks.count,
        )
        return coins.nonzero().squeeze(1)
