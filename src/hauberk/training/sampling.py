"""Poisson sampling: each record joins a step's sample by its own coin.

The sampler yields index tensors and never touches the data; an empty sample is ordinary. The probability
comes from the plan, whose constants are public; the number of coins is the realised number of records, which
changes nothing for the other records when one is added or removed.
"""

from __future__ import annotations

from torch import Tensor

from hauberk.accounting import PrivacyPlan
from hauberk.randomness import Randomness


class PoissonSampler:
    def __init__(self, plan: PrivacyPlan, *, held: int, randomness: Randomness) -> None:
        self._rate = plan.sampling_rate
        self._held = held
        self._randomness = randomness

    def sample(self, step: int) -> Tensor:
        """Indices of the records in this step's sample."""
        coins = self._randomness.coins(step=step, count=self._held, probability=self._rate)
        return coins.nonzero().squeeze(1)
