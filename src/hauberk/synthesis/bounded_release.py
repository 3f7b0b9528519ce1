"""One Gaussian release of what patients contribute, each at most one unit: histograms of anything.

A *layout* lists blocks. A patient puts into each block a vector of l2 norm at most 1 (a one-hot place, or a
histogram of the patient's own values that sums to 1), and a block's weight says how much of the patient's one
unit it gets: the weights' squares add up to 1.

Proof of the sensitivity. Let ``c_b`` be a patient's vector in block ``b`` with ``||c_b|| <= 1`` and weight
``w_b``. The patient's whole contribution ``v = (w_b c_b)_b`` has ``||v||^2 = sum_b w_b^2 ||c_b||^2 <= sum_b
w_b^2 = 1``. It depends on this patient alone, so adding or removing the patient moves the sum over patients
by exactly ``v``: the sum has l2 sensitivity 1. (A vector that came out longer, whatever the reason, is
shortened to 1 first; the tests look for neighbours that move the sum further.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from hauberk.mechanisms import GaussianProfile
from hauberk.randomness import Randomness
from hauberk.synthesis.patients import Patients

_PATIENTS_AT_ONCE = 512

Contribute = Callable[[Patients], Mapping[str, Tensor]]
"""For n patients and every block an ``(n, width)`` tensor; a row looks at its own patient alone."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """``importance`` is relative: twice as much means half the noise on its counts."""

    name: str
    width: int
    importance: float = 1.0


class Layout:
    """Blocks one after the other in one long vector."""

    def __init__(self, blocks: Iterable[Block]) -> None:
        self.blocks = tuple(blocks)
        total = math.hypot(*(block.importance for block in self.blocks))
        self._weights = {block.name: block.importance / total for block in self.blocks}

    @property
    def width(self) -> int:
        return sum(block.width for block in self.blocks)

    def weight(self, name: str) -> float:
        """The block's share of a patient's one unit; the noise on its counts is the release's over this."""
        return self._weights[name]

    def contributions(self, patients: Patients, contribute: Contribute) -> Tensor:
        """(n, width) float64: every patient's whole contribution, of l2 norm at most 1."""
        parts = contribute(patients)
        rows = torch.cat(
            [parts[block.name].double() * self.weight(block.name) for block in self.blocks], dim=1
        )
        norms = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
        # what rounding adds to a vector of norm 1 goes, too: nobody has more than one unit
        bounded: Tensor = rows / (norms * (1 + 1e-12)).clamp_min(1.0)
        return bounded

    def split(self, released: Tensor) -> dict[str, Tensor]:
        """The released vector as counts by block: what the weights had scaled is scaled back."""
        parts = released.split([block.width for block in self.blocks])
        return {
            block.name: part / self.weight(block.name) for block, part in zip(self.blocks, parts, strict=True)
        }


def release(
    patients: Patients,
    layout: Layout,
    contribute: Contribute,
    *,
    noise_multiplier: float,
    randomness: Randomness,
    step: int,
) -> dict[str, Tensor]:
    """The sum over patients with noise of standard deviation ``noise_multiplier``, as counts by block.

    Guarantee: one Gaussian release with that noise multiplier for adding or removing one patient (module
    docstring); with multiplier 0 the plain sum and no privacy. ``step`` tells releases of one run apart.
    """
    total = torch.zeros(layout.width, dtype=torch.float64)
    for rows in torch.arange(len(patients)).split(_PATIENTS_AT_ONCE):
        total += layout.contributions(patients.select(rows), contribute).sum(0)
    if noise_multiplier > 0:
        normals = randomness.normals(step=step, count=layout.width, device=torch.device("cpu"))
        total += noise_multiplier * normals
    return layout.split(total)


def noise_multiplier_for(epsilon: float, delta: float, *, share: float = 1.0) -> float:
    """Of a release that takes ``share`` of what (epsilon, delta) allows Gaussian releases together.

    Exact: releases with whitened sensitivities ``mu_j`` are together one with ``mu^2 = sum_j mu_j^2``, and
    ``share`` is this release's part of the largest ``mu^2`` whose profile keeps the pair.
    """
    return 1 / (GaussianProfile.calibrate(epsilon=epsilon, delta=delta).mu * math.sqrt(share))
