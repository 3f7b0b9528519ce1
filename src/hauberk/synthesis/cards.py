"""The guarantee card of a synthesizer: the classifiers' card, filled from what was executed."""

from __future__ import annotations

import math
import platform
from collections.abc import Iterable
from importlib.metadata import version

import numpy as np
import torch

from hauberk.accounting import NEIGHBOURS, Event, Ledger, prove
from hauberk.accounting.card import PrivacyClaim, PrivacyColumns, PrivacyProof, RobustnessColumns
from hauberk.mechanisms import EpsilonDelta
from hauberk.synthesis.schema import Schema
from hauberk.version import __version__

SEEDED_NOISE = "noise reproducible from a recorded seed"
NO_NOISE = "trained without privacy noise"
NOT_AUDITED = "no membership test has been run on this synthesizer"
TOO_FEW_EVENTS = "the recorded events are fewer than what was released"
NO_ROBUSTNESS = RobustnessColumns(
    norm="l2",
    claimed=None,
    proven=None,
    observed=None,
    reason="a synthesizer classifies nothing: there is no robustness to promise",
)
ALWAYS_TRUE = (
    "Synthetic patients are made from what was released, which costs no further privacy, however many.",
    "Tuning settings by looking at results on private data costs privacy that is not accounted here.",
    "Privacy is proven for real-valued noise; floating-point arithmetic is a known sharp edge.",
)


def bounds_from_data(schema: Schema) -> str | None:
    """Why nothing can be proven with a schema that was drafted from the records."""
    if not schema.read_from_data:
        return None
    names = ", ".join(schema.read_from_data)
    return f"the schema's bounds of {names} were read from the records"


def privacy_columns(
    planned: Iterable[Event],
    ledger: Ledger,
    *,
    schema: Schema,
    budget: EpsilonDelta | None,
    source: str,
    unit: str,
) -> PrivacyColumns:
    """Claimed: the accounting of what was planned. Proven: that of the ledger of executed events.

    Nothing is proven, and the reason says why, without a budget, with a recorded noise seed, with bounds that
    were read from the records, or if the ledger holds less than what was planned.
    """
    planned = tuple(planned)
    claimed = proven = None
    reason: str = NOT_AUDITED
    if budget is None:
        reason = NO_NOISE
    else:
        claim = prove(planned, budget.delta)
        claimed = PrivacyClaim(epsilon=claim.epsilon, delta=budget.delta, source=source)
        bound = prove(ledger.events, budget.delta)
        unprovable = bounds_from_data(schema)
        if ledger.reproducible:
            reason = SEEDED_NOISE
        elif unprovable is not None:
            reason = unprovable
        elif not math.isfinite(bound.epsilon):
            reason = NO_NOISE
        elif bound.epsilon < claim.epsilon * (1 - 1e-9):
            reason = TOO_FEW_EVENTS
        else:
            proven = PrivacyProof(epsilon=bound.epsilon, delta=budget.delta, accountant=bound.accountant)
    return PrivacyColumns(
        unit=unit, neighbours=NEIGHBOURS, claimed=claimed, proven=proven, observed=None, reason=reason
    )


def versions() -> dict[str, str]:
    return {
        "hauberk": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "dp-accounting": version("dp-accounting"),
    }
