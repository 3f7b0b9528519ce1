"""Adversarial copies of a record as views of it: DP adversarial training at the privacy cost of DP-SGD.

    of every record: the record itself, and the point to which one of several attacks moves it,
    each with fresh noise at the input and after the first map

An attack on a record looks at that record, at released weights and at random numbers keyed by (step, record),
and at nothing else; it takes every step for every record, whatever has happened to the others. So a view
depends on its own record alone, and K views of a record cost what one record costs. The attack passes go
through all records at once and need gradients with respect to inputs only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from hauberk.attacks import IFGSM, MIM, PGD
from hauberk.attacks.iterative import IterativeAttack
from hauberk.attacks.requests import Batch
from hauberk.attacks.targets import Goal, Target, answers
from hauberk.certify import evaluation_mode
from hauberk.randomness import Key, derive_key, keyed_normals

_CHANCES = 1 << 21  # numbers of views that no noise uses
_AT_ONCE = {"cpu": 256}
_AT_ONCE_ON_A_DEVICE = 4096


def ensemble(steps: int) -> tuple[IterativeAttack, ...]:
    """003's training attacks, in l_inf; each takes all of its steps."""
    common = {"steps": steps, "stop_when_broken": False}
    return tuple(kind(norm="linf", **common) for kind in (IFGSM, MIM, PGD))  # type: ignore[arg-type]


class _WithGivenNoise(Target):
    """The network in training under noise that stays as it is: an ordinary function of its input."""

    randomised = False

    def __init__(self, network: nn.Module, input_noise: Tensor, layer_noise: Tensor) -> None:
        self.model, self.device = network, input_noise.device
        self._network, self._input_noise, self._layer_noise = network, input_noise, layer_noise

    def scores(self, x: Tensor) -> Tensor:
        scores: Tensor = self._network(x + self._input_noise, self._layer_noise)
        return scores


class PairedNoise(Protocol):
    """Two copies of each record with noise at the input, and beside them the noise after the first map."""

    def __call__(self, x: Tensor, *, records: Tensor, step: int, key: Key) -> tuple[Tensor, Tensor]: ...


@dataclass(frozen=True, kw_only=True, eq=False)
class AdversarialViews:
    """Each record twice: as it is, and moved by one attack of ``attacks``, within a random part of ``size``.

    ``network`` takes inputs and layer noise (`NoiseAfter`); its present weights are released ones. ``noise``
    makes the noise of both copies and that under which the attack works. The attack moves a record away from
    the network's own answer to it (003: labels are not looked at).
    """

    network: nn.Module
    noise: PairedNoise
    attacks: tuple[IterativeAttack, ...]
    size: float

    def __call__(self, x: Tensor, *, records: Tensor, step: int, key: Key) -> tuple[Tensor, Tensor]:
        inputs, layer_noise = self.noise(x, records=records, step=step, key=key)
        chances = keyed_normals(key, step=step, records=records, views=2, shape=(1,), first_view=_CHANCES)
        uniform = torch.special.ndtr(chances.flatten(1).double())
        member = (uniform[:, 0] * len(self.attacks)).long().clamp_(max=len(self.attacks) - 1)
        moved = x.clone()
        with evaluation_mode(self.network), weights_left_out(self.network):
            for number, attack in enumerate(self.attacks):
                for rows in (member == number).nonzero()[:, 0].split(rows_at_once(x.device)):
                    target = _WithGivenNoise(self.network, inputs[rows, 1] - x[rows], layer_noise[rows, 1])
                    seed = derive_key(f"{key} {step}".encode(), "training attacks")[0]
                    batch = attack_batch(
                        target, x[rows], uniform[rows, 1] * self.size, attack, records[rows], seed
                    )
                    moved[rows] = batch.ball().project_(attack.run(batch).points.nan_to_num(0.5))
        views = torch.stack([inputs[:, 0], inputs[:, 1] + (moved - x)], dim=1)
        return views, layer_noise


def rows_at_once(device: torch.device) -> int:
    return _AT_ONCE.get(device.type, _AT_ONCE_ON_A_DEVICE)


def attack_batch(
    target: Target, x: Tensor, radii: Tensor, attack: IterativeAttack, records: Tensor, seed: int
) -> Batch:
    """Random starts are keyed by the records' identities, not by their places in the sample."""
    with torch.no_grad():
        own = answers(target.scores(x)).clamp_min(0)
    return Batch(
        target=target,
        x=x,
        goal=Goal(classes=own, targeted=False),
        radii=radii,
        norm=attack.norm,
        bounds=attack.bounds,
        rows=records,
        seed=seed,
    )


@contextmanager
def weights_left_out(network: nn.Module) -> Iterator[None]:
    """No gradient is kept for weights while inputs are attacked."""
    wanted = [weight for weight in network.parameters() if weight.requires_grad]
    for weight in wanted:
        weight.requires_grad_(False)
    try:
        with torch.enable_grad():
            yield
    finally:
        for weight in wanted:
            weight.requires_grad_(True)
