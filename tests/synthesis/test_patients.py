"""Patients: whatever a network puts out becomes patients that the schema allows; helpers lose nothing."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hauberk.synthesis import Patients, Schema

Refusal = Callable[[Callable[[], object]], str]
TENSORS = ("static", "static_observed", "increments", "values", "observed", "lengths")


def same(one: Patients, other: Patients) -> bool:
    return all(torch.equal(getattr(one, name), getattr(other, name)) for name in TENSORS)


@pytest.fixture(scope="session")
def some(clinic: Schema) -> Patients:
    chance = torch.Generator().manual_seed(0)
    return Patients.from_vectors(
        clinic,
        static=torch.rand(9, 5, generator=chance),
        static_observed=torch.rand(9, 3, generator=chance) < 0.7,
        increments=torch.rand(9, 5, generator=chance) / 4,
        values=torch.rand(9, 5, 5, generator=chance),
        observed=torch.rand(9, 5, 3, generator=chance) < 0.6,
        lengths=torch.randint(1, 6, (9,), generator=chance),
    )


@given(data=st.data())
@settings(deadline=None, max_examples=60)
def test_settled_patients_stay_as_they_are(
    data: st.DataObject,
    schemas: st.SearchStrategy[Schema],
    patients_of: Callable[[Schema], st.SearchStrategy[Patients]],
) -> None:
    """Vectors of patients give the same patients: nothing is lost on the way to a network and back."""
    schema = data.draw(schemas)
    patients = data.draw(patients_of(schema))
    again = Patients.from_vectors(
        schema,
        static=patients.static_vectors(),
        static_observed=patients.static_observed,
        increments=patients.increments,
        values=patients.step_vectors(),
        observed=patients.observed,
        lengths=patients.lengths,
    )
    assert same(patients, again)


@given(data=st.data())
@settings(deadline=None, max_examples=60)
def test_times_increase_within_the_horizon(
    data: st.DataObject,
    schemas: st.SearchStrategy[Schema],
    patients_of: Callable[[Schema], st.SearchStrategy[Patients]],
) -> None:
    schema = data.draw(schemas)
    patients = data.draw(patients_of(schema))
    for times, length in zip(patients.times, patients.lengths.tolist(), strict=True):
        kept = times[:length]
        assert bool((kept[1:] > kept[:-1]).all())
        assert float(kept[0]) >= 0
        assert float(kept[-1]) <= schema.time.horizon + 1e-9


def test_numbers_are_cut_and_rounded_and_the_largest_level_wins(clinic: Schema) -> None:
    one = Patients.from_vectors(
        clinic,
        static=torch.tensor([[0.5041, 0.2, 0.9, 0.6, 0.4]]),
        static_observed=torch.tensor([[0.5, 0.49, 1.0]]),
        increments=torch.tensor([[0.0, 0.5, 0.001, 0.2, 0.9]]),
        values=torch.tensor([1.7, -3.0, 0.1, 0.2, 0.3]).expand(1, 5, 5),
        observed=torch.ones(1, 5, 3, dtype=torch.bool),
        lengths=torch.tensor([99]),
    )
    assert one.static.tolist() == [[60 / 120, 0, 0]]  # 60.49 years are 60; the sex scored too low to be seen
    assert one.static_observed.tolist() == [[True, False, True]]
    assert one.values[0, 0].tolist() == [1, 0, 2]
    assert one.times[0, :4].tolist() == [0, 24, 25, 35]  # at least one tick; the fifth would be after 48
    assert one.lengths.tolist() == [4]


def test_empty_steps_are_taken_out_and_times_kept(clinic: Schema) -> None:
    observed = torch.zeros(2, 5, 3)
    observed[0, [1, 4], 0] = 1
    observed[1, 3, 2] = 0.2  # the best there is of a patient in whom nothing was observed
    one = Patients.from_vectors(
        clinic,
        static=torch.zeros(2, 5),
        static_observed=torch.zeros(2, 3),
        increments=torch.full((2, 5), 2 / 48),
        values=torch.rand(2, 5, 5),
        observed=observed,
        lengths=torch.tensor([5, 5]),
    )
    assert one.lengths.tolist() == [2, 1]
    assert one.times[0, :2].tolist() == [4, 10]
    assert one.times[1, 0] == 8
    assert one.observed[1, 0].tolist() == [False, False, True]


def test_a_first_time_beyond_the_horizon_is_moved_to_it(clinic: Schema) -> None:
    observed = torch.zeros(1, 5, 3)
    observed[0, 4, 0] = 1
    one = Patients.from_vectors(
        clinic,
        static=torch.zeros(1, 5),
        static_observed=torch.zeros(1, 3),
        increments=torch.full((1, 5), 0.5),
        values=torch.rand(1, 5, 5),
        observed=observed,
        lengths=torch.tensor([5]),
    )
    assert one.times[0, 0] == 48


def test_one_hot_columns_are_zero_where_missing(some: Patients) -> None:
    static, steps = some.static_vectors(), some.step_vectors()
    assert static.shape == (9, 5)
    assert steps.shape == (9, 5, 5)
    assert torch.equal(static[:, 1:3].sum(1), some.static_observed[:, 1].float())
    assert torch.equal(steps[..., 2:].sum(-1), some.observed[..., 2].float())


def test_outcome_is_event_no_event_or_unknown(some: Patients, clinic: Schema, refusal: Refusal) -> None:
    known = some.static_observed[:, 2]
    assert torch.equal(some.outcome == -1, ~known)
    assert torch.equal(some.outcome[known].float(), some.static[known, 2])
    without = replace(some, schema=replace(clinic, outcome=None))
    assert "declares no outcome" in refusal(lambda: without.outcome)


def test_parts_have_all_patients_once(some: Patients) -> None:
    one, other = some.split(0.3, seed=5)
    assert (len(one), len(other)) == (3, 6)
    assert sorted(one.identifiers + other.identifiers) == sorted(some.identifiers)
    again, _ = some.split(0.3, seed=5)
    assert again.identifiers == one.identifiers
    row = some.identifiers.index(one.identifiers[0])
    assert same(one.first(1), some.select([row]))
    assert len(some.first(100)) == 9
    assert len(some.select(torch.arange(9) % 2 == 0)) == 5
    assert same(some.to("cpu"), some)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda p: {"static": p.static.double()}, "static of the patients"),
        (lambda p: {"values": p.values[:, :3]}, "values of the patients"),
        (lambda p: {"identifiers": ("a",) * 9}, "identifier of its own"),
        (lambda p: {"lengths": p.lengths + 9}, "lengths must lie"),
        (lambda p: {"values": p.values + 0.25}, "not 0"),
        (lambda p: {"observed": torch.ones_like(p.observed)}, "padding has"),
        (lambda p: {"increments": p.increments * 0}, "do not increase"),
        (lambda p: {"increments": p.real_steps.float()}, "beyond the horizon"),
        (lambda p: {"increments": p.increments * 1.001}, "whole number of ticks"),
        (lambda p: {"values": p.values * 0.9999}, "off its feature's grid"),
        (lambda p: {"static": p.static * 1.5}, "off its feature's grid"),
        (
            lambda p: {"schema": replace(p.schema, time=replace(p.schema.time, format="timestamp"))},
            "first timestamp",
        ),
    ],
)
def test_tensors_that_break_a_promise_are_refused(
    change: Callable[[Patients], dict[str, object]], said: str, some: Patients, refusal: Refusal
) -> None:
    assert said in refusal(lambda: replace(some, **change(some)))


def test_impossible_requests_are_refused(some: Patients, clinic: Schema, refusal: Refusal) -> None:
    assert "cannot be split" in refusal(lambda: some.split(1.0, seed=0))
    assert "cannot be split" in refusal(lambda: some.first(1).split(0.5, seed=0))
    assert "at least one" in refusal(lambda: some.select(torch.zeros(9, dtype=torch.bool)))
    vectors = {name: getattr(some, name) for name in ("static_observed", "increments", "observed", "lengths")}

    def build(static: torch.Tensor, values: torch.Tensor) -> Patients:
        return Patients.from_vectors(clinic, static=static, values=values, **vectors)

    assert "diverged" in refusal(lambda: build(some.static_vectors() * torch.nan, some.step_vectors()))
    assert "need 5" in refusal(lambda: build(some.static_vectors()[:, :4], some.step_vectors()))
