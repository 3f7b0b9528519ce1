"""The proven epsilon of a list of events, by privacy loss distributions (PLD).

dp-accounting discretises each event's privacy loss pessimistically and composes the distributions exactly,
so the epsilon returned is an upper bound, usually tight to the third digit. It is always rounded up.

Its convolutions carry a rounding error near 1e-15 and its arithmetic ends where ``e^loss`` does. A delta
too small for the one, or noise too weak for the other, is answered by two bounds that need no convolution
(Rényi moments, and the releases without their sampling), and the answer names the one that was used.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Literal

import dp_accounting
import numpy as np
from dp_accounting.pld import PLDAccountant, privacy_loss_distribution
from dp_accounting.rdp import RdpAccountant

from hauberk.accounting.events import NEIGHBOURS, Event, GaussianEvent, LaplaceEvent, UnprotectedEvent
from hauberk.errors import RequestError
from hauberk.mechanisms import GaussianProfile

FINEST = 1e-4  # dp-accounting's own default grid of privacy losses
_POINTS = (
    300  # grid points up to epsilon, times sqrt(releases): finer changes the fifth digit, and costs time
)
_ROUND_UP = 1 + 1e-10  # what double precision may have taken from the pessimistic estimate
_SMALLEST_DELTA = 1e-12  # below, the rounding error of the convolutions is no longer small beside delta

_FEW_ORDERS = (2, 3, 4, 6, 8, 16, 32, 64, 256)  # whole orders are fast, and a first look need not be sharp

Protected = GaussianEvent | LaplaceEvent


@dataclass(frozen=True, kw_only=True)
class ProvenEpsilon:
    """An upper bound on epsilon at ``delta``, with what a reader must know to trust it.

    ``rounding`` is always up: the true epsilon of the events is not larger.
    """

    epsilon: float
    delta: float
    accountant: str
    neighbours: str = NEIGHBOURS
    rounding: Literal["up"] = "up"


def accountant_name() -> str:
    return f"PLD (dp-accounting {version('dp-accounting')}, rounded up)"


def check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise RequestError(f"delta must lie strictly between 0 and 1, got {delta}")


def proven_epsilon(events: Iterable[Event], delta: float, *, finest: float = FINEST) -> float:
    """Smallest epsilon that is proven for all events together, add or remove one record.

    Infinite as soon as one release was unprotected. `prove` says the same and names the accountant.
    """
    return prove(events, delta, finest=finest).epsilon


def prove(events: Iterable[Event], delta: float, *, finest: float = FINEST) -> ProvenEpsilon:
    """The proven epsilon of all events together, each on its own sample, in any order.

    Guarantee: whoever sees all releases learns no more than ``(epsilon, delta)``-differential privacy
    allows, for data sets that differ by one record. Releases from the *same* sample are one event
    (`hauberk.accounting.composition.joint_event`); two events would under-count them.

    Any grid gives a valid upper bound; the grid is chosen by a first look without convolutions, so that
    nearly noise-free plans (epsilon in the thousands) do not need gigabytes, and refined afterwards.
    """
    check_delta(delta)
    happened = [event for event in events if event.count > 0]
    protected = [event for event in happened if not isinstance(event, UnprotectedEvent)]
    if len(protected) < len(happened):
        return ProvenEpsilon(epsilon=math.inf, delta=delta, accountant="none: a release had no noise")
    if not protected:
        return ProvenEpsilon(epsilon=0.0, delta=delta, accountant=accountant_name())
    composed = dp_accounting.ComposedDpEvent([event.to_dp_event() for event in protected])
    unsampled = _unsampled_epsilon(protected, delta)
    if delta >= _SMALLEST_DELTA:
        first_look = min(_moments_epsilon(composed, delta, orders=_FEW_ORDERS), unsampled)
        points = _POINTS * math.sqrt(sum(event.count for event in protected))
        epsilon = _pld_epsilon(composed, delta, first_look=first_look, finest=finest, points=points)
        if math.isfinite(epsilon):
            return ProvenEpsilon(epsilon=epsilon, delta=delta, accountant=accountant_name())
    moments = _moments_epsilon(composed, delta)
    name = f"Rényi moments (dp-accounting {version('dp-accounting')}, rounded up)"
    if unsampled <= moments:
        name = "exact profiles without the gain of sampling (rounded up)"
    return ProvenEpsilon(epsilon=min(moments, unsampled), delta=delta, accountant=name)


def optimistic_epsilon(event: GaussianEvent, delta: float, *, interval: float = 1e-3) -> float:
    """A *lower* bound on the true epsilon of a Gaussian event: PLD with all losses rounded down.

    A claim below it is refuted, not merely unproven. The loss of each of ``count`` releases is rounded
    down by up to ``interval``. It bounds the worst pair of neighbours when the whole l2 sensitivity can
    be spent in every release.
    """
    check_delta(delta)
    with _quiet_library():
        losses = privacy_loss_distribution.from_gaussian_mechanism(
            event.noise_multiplier,
            sampling_prob=event.sampling_rate,
            pessimistic_estimate=False,
            use_connect_dots=False,
            value_discretization_interval=interval,
        ).self_compose(event.count)
        # The library cuts tails of 1e-15 off to the pessimistic side; a larger delta takes them back.
        return max(0.0, float(losses.get_epsilon_for_delta(delta + 1e-12)))


def _pld_epsilon(
    event: dp_accounting.DpEvent, delta: float, *, first_look: float, finest: float, points: float
) -> float:
    """PLD on a grid that suits the answer; infinite where the library cannot compute one."""
    epsilon, interval, next_interval = math.inf, math.inf, max(finest, first_look / points)
    while next_interval < interval / 2:
        interval = next_interval
        try:
            with _quiet_library():
                accountant = PLDAccountant(
                    dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE,
                    value_discretization_interval=interval,
                )
                accountant.compose(event)
                epsilon = min(epsilon, max(0.0, float(accountant.get_epsilon(delta))) * _ROUND_UP)
        except OverflowError:
            break
        next_interval = max(finest, epsilon / points)
    return epsilon


def _moments_epsilon(
    event: dp_accounting.DpEvent, delta: float, *, orders: Sequence[float] | None = None
) -> float:
    """Rényi accounting; infinite where it has nothing to say.

    An epsilon of exactly 0 is its answer to a moment that rounding has made negative, hence no answer.
    """
    accountant = RdpAccountant(orders, dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    if not accountant.supports(event):
        return math.inf
    with _quiet_library():
        epsilon = float(accountant.compose(event).get_epsilon(delta))
    return epsilon if epsilon > 0 else math.inf


def _unsampled_epsilon(events: Sequence[Protected], delta: float) -> float:
    """As if every record were in every sample: Gaussian releases exactly, pure ones added.

    Poisson sampling only ever mixes in outputs that do not depend on the record, so this is an upper bound.
    """
    gaussian = [math.sqrt(e.count) / e.noise_multiplier for e in events if isinstance(e, GaussianEvent)]
    pure = math.fsum(e.count / e.noise_multiplier for e in events if isinstance(e, LaplaceEvent))
    epsilon = pure * (1 + 1e-15)
    if gaussian:
        epsilon += GaussianProfile(mu=math.hypot(*gaussian) * (1 + 1e-15)).epsilon(delta)
    return epsilon


@contextmanager
def _quiet_library() -> Iterator[None]:
    """The library reports orders and tails that it leaves out; what it returns is a bound all the same."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        logger.setLevel(level)
