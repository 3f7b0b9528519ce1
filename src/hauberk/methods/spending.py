"""What several runs spent on the same records together.

Guarantee: whoever sees everything that all of the runs released learns no more about one record that was a
training record of all of them than ``(epsilon, delta)``-differential privacy allows. The runs drew their
samples and their noise independently, so their recorded events compose, in any order, by privacy loss
distributions (`hauberk.accounting.prove`). A record that only some of the runs trained on lost no more.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from hauberk.accounting import Card, Event, Ledger, PrivacyPlan, UnprotectedEvent, prove
from hauberk.accounting.json_form import from_json
from hauberk.errors import RequestError
from hauberk.files import read_json
from hauberk.methods.settings import TrainSettings
from hauberk.methods.training import read_settings
from hauberk.training import RunFolder

SYNTHESIZER = "synthesizer"


@dataclass(frozen=True, kw_only=True)
class RecordsUsed:
    """Which records a run trained on, as far as its settings tell; two that differ may share records."""

    data: str
    records: int
    validation: int | None = None
    holdout: float | None = None
    separate_test: bool = False
    public: str | None = None

    @classmethod
    def of(cls, settings: TrainSettings, plan: PrivacyPlan) -> RecordsUsed:
        public = settings.public_data
        return cls(
            data=os.path.normpath(settings.data),
            records=plan.records,  # after --size has cut the set
            validation=settings.validation,
            holdout=settings.holdout,
            separate_test=settings.test is not None,
            public=public if public is not None and public.startswith("first:") else None,
        )

    def difference(self, other: RecordsUsed) -> str | None:
        """What the settings say differently, in a few words; None if nothing."""
        words = {
            "data": "--data",
            "records": "the number of training records",
            "validation": "--validation",
            "holdout": "--holdout",
            "separate_test": "whether --test was given",
            "public": "--public-data",
        }
        for name, said in words.items():
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                return f"{said} is {_said(mine)} and {_said(theirs)}"
        return None


def _said(value: object) -> str:
    return "not given" if value is None else str(value)


@dataclass(frozen=True, kw_only=True, eq=False)
class SpentRun:
    """A finished run and what it recorded."""

    path: Path
    card: Card
    ledger: Ledger
    delta: float
    used: RecordsUsed
    beforehand: int  # releases before the first step of training

    @property
    def protected(self) -> bool:
        """False for a run that never claimed any privacy: it trained without noise."""
        bare = any(isinstance(event, UnprotectedEvent) for event in self.ledger.events)
        return not (bare and self.card.privacy.claimed is None)

    @property
    def steps(self) -> int:
        """Of training; what was released before it is counted apart."""
        return self.ledger.steps - self.beforehand


def read_spent(path: Path) -> SpentRun:
    """A run of `hauberk train` or `hauberk synth train`; one that has not finished is refused."""
    folder = RunFolder.open(path)
    config, card = folder.read_config(), folder.read_card()
    ledger, delta = folder.read_events(), read_delta(path)
    if config.get("kind") == SYNTHESIZER:
        used, before = RecordsUsed(data=card.data, records=card.records), 0
    else:
        settings, _ = read_settings(folder)
        plan = from_json(PrivacyPlan, config["plan"], where=f"{path / 'config.json'} plan")
        used, before = RecordsUsed.of(settings, plan), releases_beforehand(ledger, plan)
    return SpentRun(path=path, card=card, ledger=ledger, delta=delta, used=used, beforehand=before)


def read_delta(path: Path) -> float:
    """The delta that a run stated when it wrote its events."""
    delta = read_json(path / "events.json").get("delta")
    if not isinstance(delta, float) or not 0 < delta < 1:
        raise RequestError(f"{path / 'events.json'} has no delta between 0 and 1")
    return delta


def releases_beforehand(ledger: Ledger, plan: PrivacyPlan) -> int:
    """Of the events, those that the plan puts before training (Secure-SGD's private r): they are no steps."""
    return min(sum(event.count for event in plan.beforehand), ledger.steps)


@dataclass(frozen=True, kw_only=True, eq=False)
class Spending:
    """``epsilon`` at ``delta`` for all ``runs`` together; infinite where one trained without noise."""

    runs: tuple[SpentRun, ...]
    epsilon: float
    delta: float
    accountant: str
    unit: str
    neighbours: str
    remarks: tuple[str, ...]

    @property
    def bounded(self) -> bool:
        return math.isfinite(self.epsilon)

    def to_json(self) -> dict[str, Any]:
        return {
            "epsilon": self.epsilon if self.bounded else None,
            "unbounded": not self.bounded,
            "delta": self.delta,
            "accountant": self.accountant,
            "unit": self.unit,
            "neighbours": self.neighbours,
            "remarks": list(self.remarks),
            "runs": [
                {
                    "run": str(run.path),
                    "method": run.card.method,
                    "epsilon": None if run.card.privacy.proven is None else run.card.privacy.proven.epsilon,
                    "delta": run.delta,
                    "steps": run.steps,
                    "releases_beforehand": run.beforehand,
                    "data": asdict(run.used),
                }
                for run in self.runs
            ],
        }


def spent_together(
    runs: Sequence[SpentRun], *, delta: float | None = None, same_records: bool = False
) -> Spending:
    """The proven epsilon of all runs together at ``delta`` (default: the smallest that any of them states).

    ``same_records``: count as if one record were in all of them, whatever their settings say. That can only
    over-count. Refused are runs that prove nothing, and runs about different units or neighbours.
    """
    _refuse_twice([run.path for run in runs])
    first = runs[0]
    for run in runs:
        privacy = run.card.privacy
        if run.protected and privacy.proven is None:
            raise RequestError(f"{run.path} has no proven epsilon to add: {privacy.reason}")
        for what in ("unit", "neighbours"):
            mine, theirs = getattr(first.card.privacy, what), getattr(privacy, what)
            if mine != theirs:
                raise RequestError(
                    f"{first.path} and {run.path} protect different things ({what}: {mine}; {theirs}): an "
                    "epsilon for both together has no meaning, account for them one by one"
                )
        difference = first.used.difference(run.used)
        if difference is not None and not same_records:
            raise RequestError(
                f"{first.path} and {run.path} did not train on the same records ({difference}): leave one "
                "out, or say --same-records to count as if one record were in all of them"
            )
    chosen = min(run.delta for run in runs) if delta is None else delta
    bound = prove(merged(event for run in runs for event in run.ledger.events), chosen)
    remarks = _about_delta(runs, given=delta is not None)
    remarks += [f"{run.path} trained without privacy noise." for run in runs if not run.protected]
    if any(first.used != run.used for run in runs):
        remarks.append("The runs' settings name different records; a record is counted as if in all of them.")
    return Spending(
        runs=tuple(runs),
        epsilon=bound.epsilon,
        delta=chosen,
        accountant=bound.accountant,
        unit=first.card.privacy.unit,
        neighbours=first.card.privacy.neighbours,
        remarks=tuple(remarks),
    )


def _about_delta(runs: Sequence[SpentRun], *, given: bool) -> list[str]:
    if given:
        return []
    if len({run.delta for run in runs}) == 1:
        return ["The delta is the one that all runs state."]
    return ["The delta is the smallest that one of the runs states; --delta takes another."]


def _refuse_twice(paths: Sequence[Path]) -> None:
    seen: set[Path] = set()
    for path in paths:
        if path.resolve() in seen:
            raise RequestError(f"{path} is named twice: name every run once")
        seen.add(path.resolve())


def merged(events: Iterable[Event]) -> tuple[Event, ...]:
    """Equal events as one with a larger count: the same composition in fewer convolutions."""
    counts: dict[Event, int] = {}
    for event in events:
        single = replace(event, count=1)
        counts[single] = counts.get(single, 0) + event.count
    return tuple(replace(event, count=count) for event, count in counts.items())
