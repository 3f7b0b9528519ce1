"""Draws for a whole batch of inputs until every question is settled.

Inputs go in blocks. All inputs of a block are drawn for together, so that the device stays full; who is
settled leaves, and the rest goes on. A block has a seed of its own, made of the seed and of where the block
begins, so that a long test set can be interrupted or shared among processes without changing a draw.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hauberk.certify.rules import Asked, Rule
from hauberk.randomness import derive_key

BLOCK = 256
BLOCK_ON_A_DEVICE = 1024


class Started(Protocol):
    """Inputs whose first-layer work is done, where the noise comes after it."""

    def __len__(self) -> int: ...

    def take(self, rows: Tensor) -> Started: ...

    def votes(self, draws: int, generator: torch.Generator) -> NDArray[np.int64]:
        """Votes per class, ``(inputs, classes)``, from fresh draws."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Per input: the selected class, its votes among ``draws``, the bound on its probability, the radius."""

    selected: NDArray[np.int64]
    leading: NDArray[np.int64]  # the class with most votes of all draws, selection included
    votes: NDArray[np.int64]
    draws: NDArray[np.int64]
    lower: NDArray[np.float64]
    radii: NDArray[np.float64]


def block_size(device: torch.device) -> int:
    return BLOCK if device.type == "cpu" else BLOCK_ON_A_DEVICE


def block_generator(device: torch.device, seed: int, first: int) -> torch.Generator:
    """Torch's CPU generator keeps 32 bits of its seed, so it gets 32."""
    return torch.Generator(device=device).manual_seed(derive_key(seed, f"certify from {first}")[0])


def settle(
    block: Started,
    rule: Rule,
    asked: Asked,
    generator: torch.Generator,
    *,
    room: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Outcome:
    """Draw until the rule has settled every input of the block.

    The class is selected on draws of its own. Guarantee, for each input on its own: with probability at least
    ``1 - alpha``, the selected class's probability is at least ``lower``. ``room``: rows that cost nothing
    extra, because the device would idle; a few inputs that are left over take larger strides then.
    """
    inputs = len(block)
    all_votes = block.votes(rule.selection, generator)
    selected = all_votes.argmax(1)
    votes, draws = np.zeros(inputs, dtype=np.int64), np.zeros(inputs, dtype=np.int64)
    lower, radii = np.zeros(inputs), np.zeros(inputs)
    left, drawn = np.arange(inputs), 0
    while len(left):
        ahead = rule.more(drawn, room // len(left))
        counted = block.votes(ahead, generator)
        drawn += ahead
        all_votes[left] += counted
        votes[left] += counted[np.arange(len(left)), selected[left]]
        look = rule.look(votes[left], drawn, asked)
        done = left[look.settled]
        draws[done] = drawn
        lower[done], radii[done] = look.lower[look.settled], look.radius[look.settled]
        if progress is not None and len(done):
            progress(len(done))
        stay = np.flatnonzero(~look.settled)
        if len(stay) < len(left):
            left, block = left[stay], block.take(torch.from_numpy(stay))
    return Outcome(
        selected=selected,
        leading=all_votes.argmax(1),
        votes=votes,
        draws=draws,
        lower=lower,
        radii=radii,
    )
