"""SmoothAdv (Salman et al. 2019) as views: a record's noisy copies around the point that fools their mean.

    of every record: K noises; the shift within an l2 ball that moves the copies' mean probability away
    from its own answer; the copies at that point, with the same noises

An attack on a record looks at that record, at released weights and at random numbers keyed by (step, record),
and at nothing else, and takes all of its steps: a view depends on its own record alone, and K of them cost
what one record costs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hauberk.attacks import PGD
from hauberk.attacks.targets import Target
from hauberk.certify import evaluation_mode
from hauberk.errors import RequestError
from hauberk.methods.adversarial_views import attack_batch, rows_at_once, weights_left_out
from hauberk.randomness import Key, derive_key
from hauberk.training import NoisyViews


class _MeanOverCopies(Target):
    """The mean probability over given noises, as scores: an ordinary function of its input."""

    randomised = False

    def __init__(self, network: nn.Module, noise: Tensor) -> None:
        self.model, self.device = network, noise.device
        self._network, self._noise = network, noise

    def scores(self, x: Tensor) -> Tensor:
        copies = x.unsqueeze(1) + self._noise
        every: Tensor = self._network(copies.flatten(0, 1))
        return every.view(*copies.shape[:2], -1).log_softmax(-1).logsumexp(1)


@dataclass(frozen=True, kw_only=True, eq=False)
class SmoothAdversarialViews:
    """``noise`` makes the copies, ``size`` is the attack's l2 radius; ``network`` has released weights."""

    network: nn.Module
    noise: NoisyViews
    size: float
    steps: int

    def __post_init__(self) -> None:
        if self.noise.moves is not None:
            raise RequestError("training attacks and moved copies do not go together: leave out one of them")

    def __call__(self, x: Tensor, *, records: Tensor, step: int, key: Key) -> Tensor:
        noise = self.noise.noise(x, records=records, step=step, key=key)
        attack = PGD(norm="l2", steps=self.steps, random_start=False, stop_when_broken=False)
        seed = derive_key(f"{key} {step}".encode(), "training attacks")[0]
        moved = x.clone()
        with evaluation_mode(self.network), weights_left_out(self.network):
            at_once = max(1, rows_at_once(x.device) // self.noise.views)
            for rows in torch.arange(len(x), device=x.device).split(at_once):
                target = _MeanOverCopies(self.network, noise[rows])
                radii = torch.full((len(rows),), self.size, dtype=torch.float64, device=x.device)
                batch = attack_batch(target, x[rows], radii, attack, records[rows], seed)
                moved[rows] = batch.ball().project_(attack.run(batch).points.nan_to_num(0.5))
        return moved.unsqueeze(1) + noise
