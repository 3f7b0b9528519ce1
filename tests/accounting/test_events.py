"""The ledger says everything an auditor needs, and nothing unknown passes."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hauberk.accounting import (
    NEIGHBOURS,
    Event,
    GaussianEvent,
    LaplaceEvent,
    Ledger,
    PrivacyPlan,
    UnprotectedEvent,
    accountant_name,
    proven_epsilon,
)
from hauberk.errors import RequestError
from hauberk.mechanisms import GaussianProfile

noisy_events = st.builds(
    lambda kind, **constants: kind(**constants),
    st.sampled_from([GaussianEvent, LaplaceEvent]),
    noise_multiplier=st.floats(1e-6, 1e6),
    sampling_rate=st.floats(1e-9, 1.0, exclude_min=True),
    count=st.integers(0, 10**9),
)
few_events = st.sampled_from(
    [
        GaussianEvent(noise_multiplier=1.0, sampling_rate=0.1),
        GaussianEvent(noise_multiplier=1.0, sampling_rate=0.2, count=3),
        GaussianEvent(noise_multiplier=2.0, sampling_rate=0.1, count=2),
        UnprotectedEvent(count=2),
    ]
)
events = noisy_events | st.builds(UnprotectedEvent, count=st.integers(0, 10**9)) | few_events


@given(happened=st.lists(events, max_size=8))
def test_a_ledger_survives_json(happened: list[Event]) -> None:
    ledger = Ledger(happened)
    text = json.dumps(ledger.to_json(), allow_nan=False)
    assert Ledger.from_json(json.loads(text)).events == ledger.events


def total(happened: tuple[Event, ...] | list[Event]) -> dict[str, int]:
    """How often each kind of release happened, whatever the order."""
    counts: dict[str, int] = {}
    for event in happened:
        key = repr((type(event), {**vars(event), "count": None}))
        counts[key] = counts.get(key, 0) + event.count
    return counts


@given(happened=st.lists(few_events, max_size=12))
def test_merging_loses_nothing(happened: list[Event]) -> None:
    ledger = Ledger(happened)
    assert total(ledger.events) == total(happened)
    for before, after in zip(ledger.events, ledger.events[1:], strict=False):
        assert {**vars(before), "count": 0} != {**vars(after), "count": 0} or type(before) is not type(after)


def test_only_equal_neighbours_are_merged() -> None:
    a, b = GaussianEvent(noise_multiplier=1.0, count=2), GaussianEvent(noise_multiplier=2.0)
    assert Ledger([a, a, b, a]).events == (GaussianEvent(noise_multiplier=1.0, count=4), b, a)
    ledger = Ledger()
    ledger.record(UnprotectedEvent())
    ledger.record(a)
    assert ledger.events == (UnprotectedEvent(), a)


GOOD = {"kind": "poisson-sampled-gaussian", "noise_multiplier": 1.0, "sampling_rate": 0.5, "count": 3}
# (what is wrong, the row, part of the sentence)
BAD_ROWS: list[tuple[str, Any, str]] = [
    ("unknown kind", {**GOOD, "kind": "laplace"}, "unknown privacy event 'laplace'"),
    ("no kind", {"noise_multiplier": 1.0}, "unknown privacy event None"),
    ("no object", "gaussian", "unknown privacy event None"),
    ("missing field", {**GOOD} | {"kind": "unprotected"}, "a unprotected event has the fields count"),
    ("no count", {key: GOOD[key] for key in GOOD if key != "count"}, "has the fields count, noise"),
    ("extra field", {**GOOD, "epsilon": 0.1}, "has the fields"),
    ("text for a number", {**GOOD, "noise_multiplier": "1.0"}, "numbers only"),
    ("true for a number", {**GOOD, "sampling_rate": True}, "numbers only"),
    ("null", {**GOOD, "noise_multiplier": None}, "numbers only"),
    ("half a count", {**GOOD, "count": 2.5}, "whole count"),
    ("negative count", {**GOOD, "count": -1}, "cannot happen -1 times"),
    ("a number beyond floats", {**GOOD, "noise_multiplier": 10**400}, "numbers only"),
    ("a list as a kind", {"kind": [], "count": 1}, "unknown privacy event"),
    ("an erasing event", {"kind": "unprotected", "count": -5}, "cannot happen -5 times"),
    ("no noise", {**GOOD, "noise_multiplier": 0}, "noise multiplier must be a positive number"),
    ("negative noise", {**GOOD, "noise_multiplier": -1.0}, "noise multiplier must be a positive number"),
    ("NaN noise", {**GOOD, "noise_multiplier": math.nan}, "noise multiplier must be a positive number"),
    ("infinite noise", {**GOOD, "noise_multiplier": math.inf}, "noise multiplier must be a positive number"),
    ("rate zero", {**GOOD, "sampling_rate": 0.0}, r"sampling rate must lie in \(0, 1\]"),
    ("rate above one", {**GOOD, "sampling_rate": 1.01}, r"sampling rate must lie in \(0, 1\]"),
    ("NaN rate", {**GOOD, "sampling_rate": math.nan}, r"sampling rate must lie in \(0, 1\]"),
]


@pytest.mark.parametrize(("wrong", "row", "sentence"), BAD_ROWS, ids=[row[0] for row in BAD_ROWS])
def test_a_damaged_row_is_refused_by_name(wrong: str, row: Any, sentence: str) -> None:
    with pytest.raises(RequestError, match=sentence):
        Ledger.from_json({"neighbours": NEIGHBOURS, "noise": "operating system", "events": [GOOD, row]})


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ([], "no 'events'"),
        ({}, "no 'events'"),
        ({"neighbours": NEIGHBOURS, "events": {}}, "no 'events'"),
        ({"events": []}, "unknown neighbouring relation None"),
        ({"neighbours": NEIGHBOURS, "events": []}, "unknown source of noise None"),
        ({"neighbours": "replace one", "events": []}, "unknown neighbouring relation 'replace one'"),
    ],
)
def test_what_is_no_ledger_is_refused(content: Any, sentence: str) -> None:
    with pytest.raises(RequestError, match=sentence):
        Ledger.from_json(content)


def test_the_ledgers_epsilon_is_the_plans() -> None:
    plan = PrivacyPlan(records=20_000, batch=256, epochs=2, noise_multiplier=1.5, delta=1e-5)
    ledger = Ledger(plan.event(steps=1) for _ in range(plan.steps))
    assert len(ledger.events) == 1
    assert proven_epsilon(ledger.events, plan.delta) == plan.epsilon()
    again = Ledger.from_json(json.loads(json.dumps(ledger.to_json())))
    assert proven_epsilon(again.events, plan.delta) == plan.epsilon()


def test_a_ledger_remembers_that_its_noise_can_be_repeated() -> None:
    plan = PrivacyPlan(records=20_000, batch=256, epochs=2, noise_multiplier=1.5, delta=1e-5)
    for reproducible in (False, True):
        ledger = Ledger([plan.event()], reproducible=reproducible)
        assert Ledger.from_json(ledger.to_json()).reproducible is reproducible


def test_extra_steps_cost_extra() -> None:
    plan = PrivacyPlan(records=20_000, batch=256, epochs=2, noise_multiplier=1.5, delta=1e-5)
    ledger = Ledger([plan.event(), plan.event(steps=30)])
    assert proven_epsilon(ledger.events, plan.delta) > plan.epsilon()


@given(noises=st.lists(st.floats(2.0, 20.0), min_size=1, max_size=4), delta=st.floats(1e-8, 0.1))
@settings(max_examples=10, deadline=None)
def test_different_events_compose(noises: list[float], delta: float) -> None:
    """Unsampled Gaussian releases compose to one whose squared sensitivities add up."""
    happened = [GaussianEvent(noise_multiplier=noise) for noise in noises]
    exact = GaussianProfile(mu=math.sqrt(sum(noise**-2 for noise in noises))).epsilon(delta)
    assert exact - 1e-9 <= proven_epsilon(happened, delta, finest=1e-3) <= exact * 1.02 + 5e-3


@given(happened=st.lists(few_events, max_size=4), place=st.integers(0, 4))
def test_one_unprotected_release_undoes_every_proof(happened: list[Event], place: int) -> None:
    happened.insert(place, UnprotectedEvent())
    assert proven_epsilon(happened, 1e-5) == math.inf
    assert proven_epsilon(Ledger(happened).events, 1e-5) == math.inf


def test_what_did_not_happen_costs_nothing() -> None:
    assert proven_epsilon([], 1e-5) == 0
    assert (
        proven_epsilon([GaussianEvent(noise_multiplier=0.1, count=0), UnprotectedEvent(count=0)], 1e-5) == 0
    )


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, math.nan])
def test_a_wrong_delta_is_refused(delta: float) -> None:
    with pytest.raises(RequestError, match="delta must lie strictly"):
        proven_epsilon([], delta)


def test_the_accountant_has_a_name() -> None:
    assert accountant_name().startswith("PLD (dp-accounting ")
