"""Membership inference against a finished run: a classifier of `hauberk train`, or a synthesizer.

    pool: training records (members) and as many others, half each
    released model -> threshold, LiRA                                        rates, no epsilon
    shadow models, trained as the run was on coin-chosen parts of the pool   fair coins: a bound on epsilon

All records outside the pool are in every shadow's training set, so that shadows are trained on about as many
records as the run was. The auditor thus knows all but the pool, as differential privacy allows.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from hauberk.audit.bounds import Values
from hauberk.audit.membership import (
    Mask,
    MembershipAudit,
    measure_membership,
    nearness,
    nearness_against_reference,
    scaled_confidences,
)
from hauberk.audit.shadow_models import audit_by_coins, audit_released, train_shadows
from hauberk.data import Dataset
from hauberk.errors import RequestError
from hauberk.methods.base import Method
from hauberk.progress import Progress, silent
from hauberk.synthesis.base import Synthesizer
from hauberk.synthesis.patients import Patients

FEWEST_FOR_A_BOUND = 3  # shadow models
_MOST_SYNTHETIC = 2000


@dataclass(frozen=True, kw_only=True)
class ReleasedMembership:
    """``released``: attacks on the released model itself. ``by_coins``: the same training with fair coins,
    from which epsilon is bounded; None with fewer than three shadow models."""

    released: tuple[MembershipAudit, ...]
    by_coins: MembershipAudit | None

    @property
    def strongest(self) -> MembershipAudit:
        """The attack that names most members at a false-positive rate of 1 %, then at 0.1 %."""
        return max(self.released, key=lambda each: [point.true_positive for point in each.points][::-1])

    def to_json(self) -> dict[str, Any]:
        by_coins = None if self.by_coins is None else self.by_coins.to_json()
        return {"released": [each.to_json() for each in self.released], "by_coins": by_coins}


def audit_classifier_membership(
    model: nn.Module,
    method: Method,
    train: Dataset,
    others: Dataset,
    *,
    shadows: int,
    most: int,
    alpha: float = 0.05,
    seed: int = 0,
    public: Dataset | None = None,
    progress: Progress = silent,
) -> ReleasedMembership:
    """``model`` was trained by ``method`` on ``train``; ``others`` are records that it has never seen.

    ``most``: so many members, and as many others, are drawn at random. ``shadows``: models to train, 0 for a
    threshold on the loss alone. The network itself is attacked, without the noise of a smoothed classifier:
    its weights are released.
    """
    count = _pool_size(len(train), len(others), most)
    rng = np.random.default_rng((seed, 0xA2))
    chosen, strangers = (torch.from_numpy(rng.permutation(len(side))) for side in (train, others))
    rest, inner, outer = chosen[count:], chosen[:count], strangers[:count]
    x = torch.cat([train.x[inner], others.x[outer]])
    y = torch.cat([train.y[inner], others.y[outer]])
    members = np.arange(2 * count) < count

    def fit(inside: Mask, number: int) -> Values:
        rows = torch.from_numpy(np.flatnonzero(inside))
        data = replace(train, x=torch.cat([train.x[rest], x[rows]]), y=torch.cat([train.y[rest], y[rows]]))
        fresh = copy.copy(method)
        fresh.noise_seed = None if method.noise_seed is None else method.noise_seed + 1 + number
        return scaled_confidences(fresh.fit(data, public=public).model, x, y)

    return _audited(
        scaled_confidences(model, x, y),
        members,
        fit,
        plain="loss",
        delta=method.plan.delta,
        shadows=shadows,
        alpha=alpha,
        seed=seed,
        progress=progress,
    )


def audit_synthesizer_membership(
    synthesizer: Synthesizer,
    train: Patients,
    others: Patients,
    *,
    shadows: int,
    most: int,
    alpha: float = 0.05,
    seed: int = 0,
    progress: Progress = silent,
) -> ReleasedMembership:
    """``synthesizer`` learned from ``train``; ``others`` are patients whom it has never seen.

    Patients near to synthetic ones are guessed to be members. Near is relative: to what ``shadows``
    synthesizers of the same settings make with and without the patient, or, with 0 shadows, to the distance
    from reference patients, for which half of ``others`` is set aside.
    """
    rng = np.random.default_rng((seed, 0xA3))
    order = [torch.from_numpy(rng.permutation(len(side))) for side in (train, others)]
    made = min(len(train), _MOST_SYNTHETIC)
    if shadows == 0:
        half = len(others) // 2
        count = _pool_size(len(train), half, most)
        pool = joined(train.select(order[0][:count]), others.select(order[1][:count]))
        synthetic = synthesizer.sample(made, seed=seed, progress=progress)
        reference = others.select(order[1][half:])
        members = np.arange(2 * count) < count
        scores = {
            "distance threshold": nearness(pool, synthetic),
            "distance against reference patients": nearness_against_reference(pool, synthetic, reference),
        }
        found = tuple(
            measure_membership(name, each, members, alpha=alpha, seed=seed) for name, each in scores.items()
        )
        return ReleasedMembership(released=found, by_coins=None)
    count = _pool_size(len(train), len(others), most)
    pool = joined(train.select(order[0][:count]), others.select(order[1][:count]))
    rest, task = train.select(order[0][count:]) if count < len(train) else None, synthesizer.task

    def fit(inside: Mask, number: int) -> Values:
        heads = pool.select(torch.from_numpy(np.flatnonzero(inside)))
        noise_seed = None if task.noise_seed is None else task.noise_seed + 1 + number
        fresh = type(synthesizer)(replace(task, noise_seed=noise_seed), synthesizer.settings)
        fresh.fit(heads if rest is None else joined(rest, heads))
        return nearness(pool, fresh.sample(made, seed=seed + 1 + number))

    return _audited(
        nearness(pool, synthesizer.sample(made, seed=seed)),
        np.arange(2 * count) < count,
        fit,
        plain="distance",
        delta=task.delta,
        shadows=shadows,
        alpha=alpha,
        seed=seed,
        progress=progress,
    )


def _audited(
    released: Values,
    members: Mask,
    fit: Callable[[Mask, int], Values],
    *,
    plain: str,
    delta: float,
    shadows: int,
    alpha: float,
    seed: int,
    progress: Progress,
) -> ReleasedMembership:
    if shadows == 0:
        only = measure_membership(f"{plain} threshold", released, members, alpha=alpha, seed=seed)
        return ReleasedMembership(released=(only,), by_coins=None)
    trained = train_shadows(fit, records=len(members), shadows=shadows, seed=seed, progress=progress)
    return ReleasedMembership(
        released=audit_released(released, members, trained, alpha=alpha, plain=plain, seed=seed),
        by_coins=audit_by_coins(trained, delta=delta, alpha=alpha, seed=seed)
        if shadows >= FEWEST_FOR_A_BOUND
        else None,
    )


def _pool_size(members: int, others: int, most: int) -> int:
    count = min(members, others, most)
    if count < 20:
        raise RequestError(
            f"membership is tested on at least 20 members and 20 others, and there are {count} of each."
        )
    return count


def joined(first: Patients, second: Patients) -> Patients:
    """Both sets, one after the other, numbered anew."""
    if first.schema != second.schema:
        raise RequestError("patients of two schemas cannot be compared: read both by the same one.")
    return Patients(
        schema=first.schema,
        static=torch.cat([first.static, second.static]),
        static_observed=torch.cat([first.static_observed, second.static_observed]),
        increments=torch.cat([first.increments, second.increments]),
        values=torch.cat([first.values, second.values]),
        observed=torch.cat([first.observed, second.observed]),
        lengths=torch.cat([first.lengths, second.lengths]),
    )
