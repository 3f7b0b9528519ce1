"""Tables to tensors and back: exact after the schema's rules, and each rule looks at one patient alone."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hauberk.synthesis import Categorical, Clock, Numeric, Patients, Repairs, Schema, decode, encode

Refusal = Callable[[Callable[[], object]], str]
PatientsOf = Callable[[Schema], st.SearchStrategy[Patients]]
TENSORS = ("static", "static_observed", "increments", "values", "observed", "lengths")


def same(one: Patients, other: Patients) -> bool:
    return one.identifiers == other.identifiers and all(
        torch.equal(getattr(one, name), getattr(other, name)) for name in TENSORS
    )


@st.composite
def messy(draw: st.DrawFn, schema: Schema) -> Any:
    """A wide table of texts as a clinic might have it: unordered, with repeated times and wild values."""
    rows = []
    for patient in range(draw(st.integers(1, 4))):
        static = {each.name: draw(_entry(each)) for each in schema.static}
        for row in range(draw(st.integers(1, 8))):
            time = draw(st.integers(0, 40)) / draw(st.sampled_from([1, 4]))
            if patient == row == 0:
                time = 0.0  # within every horizon: somebody is left
            stamp = str(np.datetime64("2030-05-06") + np.timedelta64(round(time * 60), "s"))
            values = {each.name: draw(_entry(each)) for each in schema.temporal}
            shown = stamp if schema.time.format == "timestamp" else repr(time)
            rows.append({schema.patient: f"p{patient}", schema.time.column: shown, **static, **values})
            if row == 0:
                rows[-1][schema.temporal[0].name] = _sure(schema.temporal[0])
    return pd.DataFrame(draw(st.permutations(rows)))


def _sure(feature: Any) -> str:
    return feature.levels[0] if isinstance(feature, Categorical) else repr(feature.low)


def _entry(feature: Any) -> st.SearchStrategy[str]:
    if isinstance(feature, Categorical):
        return st.sampled_from(["", *feature.levels, "no such level"])
    span = feature.high - feature.low
    numbers = st.integers(-2, 40).map(lambda k: repr(feature.low + k * span / 37))
    return st.one_of(st.just(""), numbers)


@given(data=st.data())
@settings(deadline=None, max_examples=60)
def test_tensors_to_table_to_tensors_is_exact_and_needs_no_repair(
    data: st.DataObject, schemas: st.SearchStrategy[Schema], patients_of: PatientsOf
) -> None:
    schema = data.draw(schemas)
    patients = data.draw(patients_of(schema))
    again = encode(decode(patients), schema, repair=False)
    assert same(again.patients, patients)
    assert again.repairs == Repairs()


@given(data=st.data())
@settings(deadline=None, max_examples=60)
def test_table_to_tensors_to_table_is_exact_after_the_rules(
    data: st.DataObject, schemas: st.SearchStrategy[Schema]
) -> None:
    """Whatever was repaired once stays: the table that comes out gives itself again."""
    schema = replace(
        data.draw(schemas),
        out_of_bounds=data.draw(st.sampled_from(["clip", "missing"])),
        duplicates="aggregate",
    )
    once = decode(encode(data.draw(messy(schema)), schema, empty="drop").patients)
    pd.testing.assert_frame_equal(decode(encode(once, schema, repair=False).patients), once)


@given(data=st.data())
@settings(deadline=None, max_examples=60)
def test_a_patient_is_encoded_the_same_whoever_else_is_there(
    data: st.DataObject, schemas: st.SearchStrategy[Schema]
) -> None:
    schema = replace(data.draw(schemas), out_of_bounds="clip", duplicates="aggregate")
    table = data.draw(messy(schema))
    everybody = encode(table, schema, empty="drop").patients
    for place, identifier in enumerate(everybody.identifiers):
        alone = encode(table[table[schema.patient] == identifier], schema).patients
        assert same(alone, everybody.select([place]))


def test_values_scale_by_the_schema(clinic: Schema) -> None:
    table = pd.DataFrame(
        {
            "id": ["b", "a", "b"],
            "hour": [12, 0, 3],
            "age": [60, None, None],
            "sex": [None, "male", "female"],
            "died": ["no", "yes", None],
            "pulse": [135, 250, None],
            "temperature": [None, 37.5, 30],
            "rhythm": [None, "other", "paced"],
        }
    )
    patients = encode(table, clinic).patients
    assert patients.identifiers == ("b", "a")
    assert patients.lengths.tolist() == [2, 1]
    assert patients.times[0, :2].tolist() == [3, 12]
    assert patients.static.tolist() == [[0.5, 0, 0], [0, 1, 1]]
    assert patients.static_observed.tolist() == [[True, True, True], [False, True, True]]
    assert patients.values[0, :2].tolist() == [[0, 0, 1], [0.5, 0, 0]]
    assert patients.observed[0, :2].tolist() == [[False, True, True], [True, False, False]]
    assert patients.values[1, 0].tolist() == [1, 0.5, 2]
    assert patients.outcome.tolist() == [0, 1]


def test_long_and_wide_tables_say_the_same(clinic: Schema) -> None:
    rows = [
        ("7", None, "age", "60"),
        ("7", None, "sex", "female"),
        ("7", 3, "died", "no"),
        ("7", 3, "pulse", "80"),
        ("7", 5.0, "rhythm", "paced"),
        ("7", 5.0, "pulse", "90"),
    ]
    long = pd.DataFrame(rows, columns=["id", "hour", "feature", "value"])
    wide = pd.DataFrame(
        {
            "id": [7, 7],
            "hour": [3, 5],
            "age": [60, 60],
            "sex": ["female"] * 2,
            "died": ["no"] * 2,
            "pulse": [80, 90],
            "temperature": [None, None],
            "rhythm": [None, "paced"],
        }
    )
    assert same(encode(long, clinic).patients, encode(wide, clinic).patients)


def one_patient(hours: list[Any], pulses: list[Any], **others: Any) -> Any:
    table = {"id": "x", "hour": hours, "age": 50, "sex": "male", "died": "no", "pulse": pulses}
    return pd.DataFrame({**table, "temperature": None, "rhythm": None, **others})


def pulses_of(patients: Patients) -> list[float]:
    return [float(each) for each in decode(patients)["pulse"].to_numpy(dtype=float)]


def binned(clinic: Schema, **rules: Any) -> Schema:
    return replace(clinic, time=replace(clinic.time, bins=6), **rules)


def test_bins_keep_their_beginning_and_aggregate_what_falls_into_them(clinic: Schema) -> None:
    table = one_patient([7, 6.5, 23.9, 24, 11], [100, 70, 80, 90, 60])
    mean = encode(table, binned(clinic))
    assert mean.patients.times[0, :3].tolist() == [6, 18, 24]
    assert pulses_of(mean.patients) == [77, 80, 90]  # 230 / 3, rounded to the feature's decimals
    assert mean.repairs == Repairs(moved=4, merged=2)
    assert pulses_of(encode(table, binned(clinic, aggregate="last")).patients) == [60, 80, 90]


def test_levels_aggregate_to_the_most_frequent_first_listed_among_equals(clinic: Schema) -> None:
    rhythms = ["other", "paced", "paced", "other", "sinus", "paced"]
    table = one_patient([0, 1, 2, 7, 8, 14], [80] * 6, rhythm=rhythms)
    assert decode(encode(table, binned(clinic)).patients)["rhythm"].tolist() == ["paced", "sinus", "paced"]
    last = encode(table, binned(clinic, aggregate="last")).patients
    assert decode(last)["rhythm"].tolist() == ["paced", "sinus", "paced"]


def test_the_last_of_equal_times_is_the_last_in_the_file(clinic: Schema) -> None:
    table = one_patient([3, 3], [80, 70])
    schema = replace(clinic, duplicates="aggregate", aggregate="last")
    assert pulses_of(encode(table, schema).patients) == [70]


def test_duplicates_are_refused_or_aggregated(clinic: Schema, refusal: Refusal) -> None:
    table = one_patient([3, 4, 3], [80, 90, 70])
    message = refusal(lambda: encode(table, clinic))
    assert message.startswith("row 3 of the table holds a second value")
    assert "column pulse" in message
    merged = encode(table, replace(clinic, duplicates="aggregate"))
    assert pulses_of(merged.patients) == [75, 90]
    assert merged.repairs == Repairs(merged=1)
    assert "row 3" in refusal(lambda: encode(table, binned(clinic)))  # bins merge bins, not equal times


def test_rows_of_one_time_with_different_features_are_one_step(clinic: Schema) -> None:
    table = one_patient([3, 3], [80, None], temperature=[None, 37.0])
    assert encode(table, clinic).patients.observed[0, 0].tolist() == [True, True, False]


def test_conflicting_static_values_are_refused_or_aggregated(clinic: Schema, refusal: Refusal) -> None:
    table = one_patient([1, 2, 3], [80] * 3, age=[50, 50, 53], sex=["male", "female", "male"])
    assert "row 2 of the table holds a second value" in refusal(lambda: encode(table, clinic))
    merged = encode(table, replace(clinic, duplicates="aggregate"))
    assert merged.patients.static[0].tolist() == [pytest.approx(51 / 120), 1, 0]
    assert merged.repairs == Repairs(merged=2)
    last = encode(table, replace(clinic, duplicates="aggregate", aggregate="last")).patients
    assert last.static[0].tolist() == [pytest.approx(53 / 120), 1, 0]


def test_wild_values_are_refused_clipped_or_removed(clinic: Schema, refusal: Refusal) -> None:
    table = one_patient([1, 2, 3], ["80", "300", "fast"], rhythm=["paced", "odd", None])
    message = refusal(lambda: encode(table, clinic))
    assert "row 2 of the table holds '300' in column pulse" in message
    clipped = encode(table, replace(clinic, out_of_bounds="clip"))
    assert pulses_of(clipped.patients) == [80, 250]
    assert clipped.repairs == Repairs(clipped=1, removed=2)
    missing = encode(table, replace(clinic, out_of_bounds="missing"))
    assert pulses_of(missing.patients) == [80]
    assert missing.repairs == Repairs(removed=3)


def test_sentinels_are_missing_in_every_feature(clinic: Schema) -> None:
    schema = replace(clinic, sentinels=(-1, "unknown"))
    table = one_patient([1, 2, 3], [-1.0, 80, 90], age="unknown", sex="-1", rhythm=[None, "unknown", "-1"])
    encoded = encode(table, schema)
    assert pulses_of(encoded.patients) == [80, 90]
    assert encoded.patients.static_observed[0].tolist() == [False, False, True]
    assert encoded.repairs == Repairs(sentinels=1 + 3 + 3 + 2)


def test_times_outside_the_horizon_are_refused_or_left_out(clinic: Schema, refusal: Refusal) -> None:
    table = one_patient([1, 49, -1], [80, 90, 70])
    message = refusal(lambda: encode(table, clinic))
    assert "row 2 of the table has the time 49 hours in column hour" in message
    for rule in ("clip", "missing"):
        encoded = encode(table, replace(clinic, out_of_bounds=rule))
        assert pulses_of(encoded.patients) == [80]
        assert encoded.repairs == Repairs(late=2)


def test_more_steps_than_allowed_are_cut_and_counted(clinic: Schema) -> None:
    table = one_patient(list(range(8, 0, -1)), list(range(80, 88)))
    encoded = encode(table, clinic)
    assert encoded.patients.times[0].tolist() == [1, 2, 3, 4, 5]
    assert encoded.repairs == Repairs(cut=3)


def test_timestamps_count_from_the_first_measurement(clinic: Schema, refusal: Refusal) -> None:
    clock = Clock(column="hour", unit="hours", horizon=48, steps=5, format="timestamp")
    schema = replace(clinic, time=clock)
    stamps = ["2031-01-02 03:00:00", "2031-01-01T23:00", "2031-01-01 12:00:00"]
    table = one_patient(stamps, [80, 90, None])  # nothing was measured at noon
    assert encode(table, schema).patients.times[0, :2].tolist() == [0, 4]
    table.loc[1, "hour"] = "2031-01-02 01:00:00+02:00"
    assert encode(table, schema).patients.times[0, :2].tolist() == [0, 4]
    table.loc[1, "hour"] = "yesterday"
    assert "row 2 of the table holds 'yesterday' in column hour" in refusal(lambda: encode(table, schema))


def test_repairs_are_told_and_marked(clinic: Schema) -> None:
    assert Repairs().lines() == []
    assert Repairs(clipped=1234).lines() == ["1,234 values clipped to their bounds (not private)"]
    told = Repairs(*range(1, 10)).lines()
    assert len(told) == 9
    assert all(line.endswith("(not private)") for line in told)
    assert Repairs(*range(1, 10)).total == 45


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (one_patient([1], [80]).drop(columns="id"), "no column 'id'"),
        (one_patient([1], [80]).drop(columns="hour"), "no column 'hour'"),
        (one_patient([1], [80]).drop(columns="age"), "no column 'age'"),
        (one_patient([1], [80], height=3), "unknown column 'height'"),
        (one_patient([1, "noon"], [80, 80]), "row 2 of the table holds 'noon' in column hour"),
        (one_patient([1, None], [80, 80]), "row 2 of the table holds nothing in column hour"),
        (one_patient([1], [None]), "row 1 of the table begins patient 'x' in column id"),
        (one_patient([1], [80]).assign(id=""), "row 1 of the table names no patient"),
        (one_patient([], []), "holds no rows"),
        (
            pd.DataFrame({"id": [1], "hour": [1], "feature": ["height"], "value": [1]}),
            "row 1 of the table holds 'height' in column feature",
        ),
    ],
)
def test_a_bad_table_is_told_with_row_and_column(
    table: Any, said: str, clinic: Schema, refusal: Refusal
) -> None:
    assert said in refusal(lambda: encode(table, clinic))


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (one_patient([1], [80.5]), "row 1 of the table holds '80.5' in column pulse"),
        (one_patient([1.5], [80]), "between two ticks"),
        (one_patient([1, 2], [80, -1]), "row 2 of the table holds '-1' in column pulse"),
        (one_patient(range(9), [80] * 9), "more than 5 steps"),
        (one_patient([1, 1], [80, 81]), "row 2 of the table holds a second value"),
    ],
)
def test_without_repair_every_deviation_is_refused(
    table: Any, said: str, clinic: Schema, refusal: Refusal
) -> None:
    lenient = replace(clinic, out_of_bounds="missing", duplicates="aggregate", sentinels=(-1,))
    assert encode(table, lenient).repairs.total > 0
    assert said in refusal(lambda: encode(table, lenient, repair=False))


def test_patients_without_a_measurement_may_be_left_out(clinic: Schema, refusal: Refusal) -> None:
    table = pd.concat([one_patient([1], [80]), one_patient([1], [None]).assign(id="y")])
    encoded = encode(table, clinic, empty="drop")
    assert encoded.patients.identifiers == ("x",)
    assert encoded.repairs == Repairs(dropped=1)
    assert "no patient of the table" in refusal(
        lambda: encode(one_patient([1], [None]), clinic, empty="drop")
    )


def test_float32_values_are_their_decimals() -> None:
    """7.8 as float32 is 7.80000019: within the bounds, and no repair."""
    schema = Schema(
        name="gas",
        patient="id",
        time=Clock(column="t", unit="hours", horizon=1, steps=1),
        temporal=(Numeric(name="pH", low=6.8, high=7.8, decimals=2),),
    )
    table = pd.DataFrame({"id": [1], "t": [0], "pH": np.array([7.8], dtype=np.float32)})
    encoded = encode(table, schema, repair=False)
    assert decode(encoded.patients)["pH"].tolist() == [7.8]
