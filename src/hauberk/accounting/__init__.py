"""Privacy plans, events, the accountant, and the guarantee card."""

from hauberk.accounting.accountant import accountant_name, proven_epsilon
from hauberk.accounting.card import Card, Claim, Observation, Proof
from hauberk.accounting.events import NEIGHBOURS, Event, GaussianEvent, Ledger, UnprotectedEvent
from hauberk.accounting.exhibits import CurvePoint, Exhibits, Strip
from hauberk.accounting.plan import PrivacyPlan

__all__ = [
    "NEIGHBOURS",
    "Card",
    "Claim",
    "CurvePoint",
    "Event",
    "Exhibits",
    "GaussianEvent",
    "Ledger",
    "Observation",
    "PrivacyPlan",
    "Proof",
    "Strip",
    "UnprotectedEvent",
    "accountant_name",
    "proven_epsilon",
]
