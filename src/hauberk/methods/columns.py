"""Fills the card's columns from what was executed."""

from __future__ import annotations

import math
import platform
from importlib.metadata import version

import numpy as np
import torch
from numpy.typing import NDArray

from hauberk.accounting import NEIGHBOURS, Ledger, PrivacyPlan, prove
from hauberk.accounting.card import (
    CertifiedAccuracy,
    ClassAccuracy,
    PrivacyClaim,
    PrivacyColumns,
    PrivacyProof,
    RobustnessProof,
    Utility,
)
from hauberk.certify import Certificates
from hauberk.certify.metrics import Mean, Share, correct_radii, curve_radii
from hauberk.version import __version__

SEEDED_NOISE = "noise reproducible from a recorded seed"
NO_NOISE = "trained without privacy noise"
NOT_AUDITED = "no privacy audit has been run on this model"
ALWAYS_TRUE = (
    "Test data are not protected: accuracies and radii on this card are computed from them without noise.",
    "Tuning settings by looking at results on private data costs privacy that is not accounted here.",
    "Privacy is proven for real-valued noise; floating-point arithmetic is a known sharp edge.",
)


def _covers(ledger: Ledger, plan: PrivacyPlan) -> bool:
    """Whether everything that the plan releases has been written down."""
    noted = all(event in ledger.events for event in plan.beforehand)
    return noted and ledger.steps >= plan.steps + sum(event.count for event in plan.beforehand)


def privacy_columns(
    plan: PrivacyPlan,
    ledger: Ledger,
    *,
    source: str,
    claimed_epsilon: float | None = None,
    unprovable: str | None = None,
    unit: str = "one record",
) -> PrivacyColumns:
    """Proven from the ledger of executed events; null, with the reason, where nothing can be proven."""
    claimed = proven = None
    reason = NOT_AUDITED
    if not plan.private:
        reason = unprovable or NO_NOISE
    else:
        epsilon = plan.epsilon() if claimed_epsilon is None else claimed_epsilon
        claimed = PrivacyClaim(epsilon=epsilon, delta=plan.delta, source=source)
        if ledger.reproducible:
            reason = SEEDED_NOISE
        else:
            bound = prove(ledger.events, plan.delta)
            if not _covers(ledger, plan):
                reason = "the recorded events are fewer than the steps that were taken"
            elif unprovable is not None or bound.epsilon == float("inf"):
                reason = unprovable or NO_NOISE
            else:
                proven = PrivacyProof(epsilon=bound.epsilon, delta=plan.delta, accountant=bound.accountant)
    return PrivacyColumns(
        unit=unit, neighbours=NEIGHBOURS, claimed=claimed, proven=proven, observed=None, reason=reason
    )


def certified_curve(correct_radii: NDArray[np.float64]) -> tuple[CertifiedAccuracy, ...]:
    """Share of inputs answered correctly and certified at each radius, up to the first radius with none.

    ``correct_radii``: the certified radius where the answer is right, -1 where it is wrong or missing.
    """
    return tuple(
        CertifiedAccuracy(radius=radius, accuracy=float((correct_radii >= radius).mean()))
        for radius in curve_radii(correct_radii)
    )


def robustness_proof(certificates: Certificates, truth: NDArray[np.int64]) -> RobustnessProof:
    """What certificates of clean test inputs prove; wrong answers and abstentions count as radius zero."""
    correct = correct_radii(certificates, truth)
    average = Mean.of(np.maximum(correct, 0.0))
    return RobustnessProof(
        certificate=certificates.certificate,
        alpha=certificates.alpha,
        samples=certificates.samples,
        tested=len(truth),
        average_certified_radius=average.value,
        certified_accuracy=certified_curve(correct),
        standard_error=average.standard_error if math.isfinite(average.standard_error) else None,
        abstained=Share.of(certificates.abstained).value,
        draws=int(certificates.draws.sum()) if len(certificates.draws) else None,
        arithmetic=certificates.arithmetic,
        question=certificates.question or None,
    )


def utility(
    answers: NDArray[np.int64],
    truth: NDArray[np.int64],
    *,
    classes: int,
    base_accuracy: float,
    base_tested: int,
) -> Utility:
    correct = answers == truth
    rows = []
    for label in range(classes):
        members = truth == label
        accuracy = float(correct[members].mean()) if members.any() else None
        rows.append(ClassAccuracy(label=label, tested=int(members.sum()), accuracy=accuracy))
    seen = [row.accuracy for row in rows if row.accuracy is not None]
    return Utility(
        accuracy=float(correct.mean()),
        base_accuracy=base_accuracy,
        balanced_accuracy=float(np.mean(seen)),
        per_class=tuple(rows),
        tested=len(truth),
        base_tested=base_tested,
    )


def versions() -> dict[str, str]:
    return {
        "hauberk": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "dp-accounting": version("dp-accounting"),
    }
