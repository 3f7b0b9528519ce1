"""Attack certified inputs just inside their certified radius: the doubt a certificate must survive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hauberk.attacks.outcome import Verdict, count_and_test
from hauberk.attacks.pgd import NoisyPGD
from hauberk.attacks.projections import sizes
from hauberk.attacks.targets import Goal
from hauberk.certify import Certificates, Norm, Smoothed


@dataclass(frozen=True, kw_only=True)
class InsideRadius:
    """Outcome of attacking certified inputs at ``fraction`` of their certified radii."""

    attack: str
    norm: Norm
    fraction: float
    rows: NDArray[np.int64]  # which inputs were attacked
    attempts: Tensor
    sizes: NDArray[np.float64]  # distance of each attempt in the norm
    answers: NDArray[np.int64]  # the class on top at the attempt, among fresh draws
    broken: NDArray[np.bool_]


def attack_inside_radius(
    target: Smoothed,
    x: Tensor,
    certificates: Certificates,
    *,
    limit: int,
    attack: NoisyPGD | None = None,
    fraction: float = 0.99,
    samples: int = 1000,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> InsideRadius:
    """Attack up to ``limit`` certified inputs, spread evenly over the certified ones.

    The certificates' radii are taken in the attack's norm. A break: the rival class is picked on one set of
    fresh draws, and another set says by an exact binomial test at level 0.001 that it beats the certified
    class at the attacked point. A lucky draw is no break.
    """
    attack = attack or NoisyPGD()
    certified = np.flatnonzero(certificates.radii > 0)
    count = min(limit, len(certified))
    rows = certified[np.linspace(0, len(certified) - 1, count).astype(np.int64)] if count else certified[:0]
    inputs = x[torch.from_numpy(rows)]
    labels = torch.from_numpy(certificates.labels[rows])
    radii = torch.from_numpy(fraction * certificates.radii[rows])

    attempts, verdicts = [], []
    generator = torch.Generator(device=target.device).manual_seed(seed + 1)
    for part in torch.arange(count).split(32) if count else []:
        points = attack.run(target, inputs[part], labels[part], radii[part], seed=seed + 2 + int(part[0]))
        goal = Goal(classes=labels[part], targeted=False)
        verdicts.append(count_and_test(target, points, goal, samples=samples, generator=generator))
        attempts.append(points)
        if progress is not None:
            progress(len(part))
    points, verdict = torch.cat(attempts) if attempts else inputs, Verdict.joined(verdicts)
    return InsideRadius(
        attack=attack.name,
        norm=attack.norm,
        fraction=fraction,
        rows=rows,
        attempts=points,
        sizes=sizes(points, inputs, attack.norm).numpy() if count else np.empty(0),
        answers=verdict.answers.numpy(),
        broken=verdict.broken.numpy(),
    )
