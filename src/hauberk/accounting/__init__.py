"""Privacy plans, events, the accountant, and the guarantee card."""

from hauberk.accounting.accountant import ProvenEpsilon, accountant_name, prove, proven_epsilon
from hauberk.accounting.card import Card, Claim, Observation, Proof
from hauberk.accounting.composition import (
    ComposedPlan,
    GaussianRelease,
    events_of,
    joint_event,
    split_budget,
)
from hauberk.accounting.events import (
    NEIGHBOURS,
    Event,
    GaussianEvent,
    LaplaceEvent,
    Ledger,
    UnprotectedEvent,
)
from hauberk.accounting.exhibits import CurvePoint, Exhibits, Strip
from hauberk.accounting.plan import PrivacyPlan

__all__ = [
    "NEIGHBOURS",
    "Card",
    "Claim",
    "ComposedPlan",
    "CurvePoint",
    "Event",
    "Exhibits",
    "GaussianEvent",
    "GaussianRelease",
    "LaplaceEvent",
    "Ledger",
    "Observation",
    "PrivacyPlan",
    "Proof",
    "ProvenEpsilon",
    "Strip",
    "UnprotectedEvent",
    "accountant_name",
    "events_of",
    "joint_event",
    "prove",
    "proven_epsilon",
    "split_budget",
]
