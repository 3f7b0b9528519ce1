"""The proven epsilon of a list of events, by privacy loss distributions (PLD).

dp-accounting discretises each event's privacy loss pessimistically and composes the distributions exactly,
so the epsilon returned is an upper bound, usually tight to the third digit. It is always rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from importlib.metadata import version

import dp_accounting
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from hauberk.accounting.events import Event, GaussianEvent, UnprotectedEvent
from hauberk.errors import RequestError

FINEST = 1e-4  # dp-accounting's own default grid of privacy losses
_POINTS = 2e4  # grid points up to epsilon itself; finer changes the fifth digit and costs memory


def accountant_name() -> str:
    return f"PLD (dp-accounting {version('dp-accounting')}, rounded up)"


def check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise RequestError(f"delta must lie strictly between 0 and 1, got {delta}")


def _pld_epsilon(event: dp_accounting.DpEvent, delta: float, interval: float) -> float:
    accountant = PLDAccountant(
        dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE, value_discretization_interval=interval
    )
    accountant.compose(event)
    return max(0.0, float(accountant.get_epsilon(delta)))


def proven_epsilon(events: Iterable[Event], delta: float, *, finest: float = FINEST) -> float:
    """Smallest epsilon that PLD proves for all events together, add or remove one record.

    Infinite as soon as one release was unprotected.

    Any grid gives a valid upper bound; the grid is chosen by a first look with Rényi accounting, so that
    nearly noise-free plans (epsilon in the thousands) do not need gigabytes, and refined once.
    """
    check_delta(delta)
    happened = [event for event in events if event.count > 0]
    if any(isinstance(event, UnprotectedEvent) for event in happened):
        return math.inf
    if not happened:
        return 0.0
    event = dp_accounting.ComposedDpEvent(
        [each.to_dp_event() for each in happened if isinstance(each, GaussianEvent)]
    )
    rough = RdpAccountant()
    rough.compose(event)
    interval = max(finest, float(rough.get_epsilon(delta)) / _POINTS)
    epsilon = _pld_epsilon(event, delta, interval)
    finer = max(finest, epsilon / _POINTS)
    if finer < interval / 2:
        epsilon = min(epsilon, _pld_epsilon(event, delta, finer))
    return epsilon
