"""What was released, as frozen events, and the ledger that a run keeps of them.

An event says which mechanism ran, on which sample, how often. The ledger is all that an auditor needs to
compute the privacy of a run again; it contains nothing else about the data.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import dp_accounting

from hauberk.errors import RequestError

NEIGHBOURS = "add or remove one record"


@dataclass(frozen=True, kw_only=True)
class _NoisyEvent:
    """``count`` noisy releases, each from a fresh Poisson sample; rate 1 means the whole data set."""

    noise_multiplier: float
    sampling_rate: float = 1.0
    count: int = 1

    def __post_init__(self) -> None:
        if not (math.isfinite(self.noise_multiplier) and self.noise_multiplier > 0):
            raise RequestError(f"noise multiplier must be a positive number, got {self.noise_multiplier}")
        if not 0 < self.sampling_rate <= 1:
            raise RequestError(f"sampling rate must lie in (0, 1], got {self.sampling_rate}")
        if self.count < 0:
            raise RequestError(f"an event cannot happen {self.count} times")

    def _repeated(self, release: dp_accounting.DpEvent) -> dp_accounting.DpEvent:
        if self.sampling_rate < 1:
            release = dp_accounting.PoissonSampledDpEvent(self.sampling_rate, release)
        return dp_accounting.SelfComposedDpEvent(release, self.count)


@dataclass(frozen=True, kw_only=True)
class GaussianEvent(_NoisyEvent):
    """``count`` releases of a sum with Gaussian noise, each from a fresh Poisson sample.

    ``noise_multiplier`` is the noise's standard deviation over the l2 sensitivity of everything released
    from one sample *together*.
    """

    def to_dp_event(self) -> dp_accounting.DpEvent:
        return self._repeated(dp_accounting.GaussianDpEvent(self.noise_multiplier))


@dataclass(frozen=True, kw_only=True)
class LaplaceEvent(_NoisyEvent):
    """``count`` releases of a sum with Laplace noise, each from a fresh Poisson sample.

    ``noise_multiplier`` is the noise's diversity (its ``b``, not its standard deviation) over the l1
    sensitivity of everything released from one sample *together*.
    """

    def to_dp_event(self) -> dp_accounting.DpEvent:
        return self._repeated(dp_accounting.LaplaceDpEvent(self.noise_multiplier))


@dataclass(frozen=True, kw_only=True)
class UnprotectedEvent:
    """``count`` releases without any noise: whatever else happened, nothing can be proven afterwards."""

    count: int = 1

    def __post_init__(self) -> None:
        if self.count < 0:
            raise RequestError(f"an event cannot happen {self.count} times")


Event = GaussianEvent | LaplaceEvent | UnprotectedEvent
_KINDS: dict[str, type[Event]] = {
    "poisson-sampled-gaussian": GaussianEvent,
    "poisson-sampled-laplace": LaplaceEvent,
    "unprotected": UnprotectedEvent,
}


_NOISE_SOURCES = {False: "operating system", True: "recorded seed"}


def _kind(event: Event) -> str:
    return next(name for name, cls in _KINDS.items() if type(event) is cls)


class Ledger:
    """The events of one run, in order; equal neighbours in the list are merged by adding their counts.

    ``reproducible`` says that the noise came from a recorded seed: the events then prove nothing.
    """

    def __init__(self, events: Iterable[Event] = (), *, reproducible: bool = False) -> None:
        self.reproducible = reproducible
        self._events: list[Event] = []
        for event in events:
            self.record(event)

    @property
    def events(self) -> tuple[Event, ...]:
        return tuple(self._events)

    @property
    def steps(self) -> int:
        return sum(event.count for event in self._events)

    def record(self, event: Event) -> None:
        """Write the event down. Called *before* its noise is released: a ledger may only over-count."""
        if self._events and replace(self._events[-1], count=event.count) == event:
            event = replace(event, count=event.count + self._events.pop().count)
        self._events.append(event)

    def to_json(self) -> dict[str, Any]:
        return {
            "neighbours": NEIGHBOURS,
            "noise": _NOISE_SOURCES[self.reproducible],
            "events": [{"kind": _kind(event), **asdict(event)} for event in self._events],
        }

    @classmethod
    def from_json(cls, content: Any) -> Ledger:
        if not isinstance(content, dict) or not isinstance(content.get("events"), list):
            raise RequestError("this is no event list: it has no 'events'")
        if content.get("neighbours") != NEIGHBOURS:
            raise RequestError(f"unknown neighbouring relation {content.get('neighbours')!r}")
        if content.get("noise") not in _NOISE_SOURCES.values():
            raise RequestError(f"unknown source of noise {content.get('noise')!r} in the event list")
        events = []
        for row in content["events"]:
            kind = row.get("kind") if isinstance(row, dict) else None
            if not isinstance(kind, str) or kind not in _KINDS:
                raise RequestError(f"unknown privacy event {kind!r}; known: {', '.join(_KINDS)}")
            wanted = {field.name for field in fields(_KINDS[kind])}
            if set(row) - {"kind"} != wanted:
                raise RequestError(f"a {kind} event has the fields {', '.join(sorted(wanted))}")
            numbers = all(type(row[name]) in (int, float) for name in wanted)
            numbers = numbers and all(type(row[name]) is float or abs(row[name]) < 2**63 for name in wanted)
            if not numbers or type(row["count"]) is not int:
                raise RequestError(f"a {kind} event holds numbers only, with a whole count")
            events.append(_KINDS[kind](**{name: row[name] for name in wanted}))
        return cls(events, reproducible=content["noise"] == _NOISE_SOURCES[True])
