"""Drafted schemas: they read the file they came from, and say of every constant that it is not private."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hauberk.synthesis import Categorical, Numeric, Patients, Schema, decode
from hauberk.synthesis.inspection import MOST_STEPS, draft_schema
from hauberk.synthesis.reading import read_patients
from hauberk.synthesis.ward import WARD, simulate_ward
from hauberk.synthesis.writing import write_patients

Refusal = Callable[[Callable[[], object]], str]
PatientsOf = Callable[[Schema], st.SearchStrategy[Patients]]

VITALS = """subject_id,hour,sex,died,pulse,lactate,note
1,0,f,0,80,1.25,fine
1,1.5,f,0,82,,
2,0,m,1,-3,2,
2,7,,1,120,,worse
"""


@pytest.fixture
def vitals(tmp_path: Path) -> Path:
    path = tmp_path / "vitals.csv"
    path.write_text(VITALS)
    return path


@given(seed=st.integers(0, 10**6), patients=st.integers(20, 40), ending=st.sampled_from([".csv", ".parquet"]))
@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_draft_reads_its_own_file_and_marks_everything(
    seed: int, patients: int, ending: str, tmp_path: Path
) -> None:
    ward = simulate_ward(patients, seed=seed)
    path = tmp_path / f"ward{ending}"
    write_patients(ward, path)
    schema = draft_schema(path, patient="patient").schema
    assert set(schema.read_from_data) == {schema.time.column, *(each.name for each in schema.features)}
    read = read_patients(path, schema)
    assert read.repairs.total == 0
    expected, found = decode(ward), decode(read.patients)
    for name in (feature.name for feature in schema.features):
        assert list(map(str, found[name])) == list(map(str, expected[name])), name


def test_static_and_temporal_numbers_and_levels_are_told_apart(vitals: Path) -> None:
    draft = draft_schema(vitals, outcome="died")
    schema = draft.schema
    assert (schema.patient, schema.time.column, schema.time.unit) == ("subject_id", "hour", "hours")
    assert (schema.time.horizon, schema.time.steps, schema.time.decimals) == (7, 2, 1)
    assert schema.static == (
        Categorical(name="sex", levels=("f", "m"), from_data=True),
        Categorical(name="died", levels=("0", "1"), from_data=True),
    )
    assert schema.temporal == (
        Numeric(name="pulse", low=-3, high=120, from_data=True),
        Numeric(name="lactate", low=1.25, high=2, decimals=2, from_data=True),
        Categorical(name="note", levels=("fine", "worse"), from_data=True),
    )
    assert schema.outcome == "died"


def test_the_file_says_not_private_and_how_to_change_that(vitals: Path) -> None:
    draft = draft_schema(vitals)
    text = draft.to_toml()
    assert text.startswith("# Drafted from vitals.csv: NOT PRIVATE.")
    assert text.count("from_data = true  # not private: read from the data") == 1 + 5
    assert Schema.from_toml(text) == draft.schema


def test_free_text_and_empty_columns_are_ignored_with_a_reason(tmp_path: Path) -> None:
    rows = [f"{i % 2},{i},{60 + i},text {i}," for i in range(60)]
    path = tmp_path / "notes.csv"
    path.write_text("\n".join(["patient,minutes,pulse,comment,blank", *rows]))
    draft = draft_schema(path)
    assert draft.ignored == {"comment": "has 60 different texts", "blank": "holds no value"}
    assert "# Ignored: comment (has 60 different texts)." in draft.to_toml()
    assert draft.schema.time.unit == "minutes"
    assert draft.schema.time.steps == 30 < MOST_STEPS
    assert read_patients(path, draft.schema).repairs.total == 0


def test_long_tables_and_timestamps(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    path.write_text(
        "patient,charttime,feature,value\n"
        + "a,,sex,f\n"
        + "b,,sex,m\n"
        + "a,2030-01-01 10:00:00,pulse,80\n"
        + "a,2030-01-01 10:30:00,pulse,90\n"
        + "a,2030-01-01 10:30:00,pulse,91\n"
        + "b,2030-01-02 10:00:00,temperature,37.2\n"
    )
    schema = draft_schema(path, unit="minutes").schema
    assert [each.name for each in schema.static] == ["sex"]
    assert [each.name for each in schema.temporal] == ["pulse", "temperature"]
    assert (schema.time.format, schema.time.horizon, schema.time.steps) == ("timestamp", 30, 2)
    assert schema.duplicates == "aggregate"
    assert read_patients(path, schema).repairs.merged == 1


def test_what_cannot_be_guessed_is_asked_for(vitals: Path, tmp_path: Path, refusal: Refusal) -> None:
    vitals.write_text(VITALS.replace("subject_id", "who").replace("hour", "when"))
    assert "name it with --patient" in refusal(lambda: draft_schema(vitals))
    assert "name it with --time" in refusal(lambda: draft_schema(vitals, patient="who"))
    assert "no column 'id'" in refusal(lambda: draft_schema(vitals, patient="id"))
    assert draft_schema(vitals, patient="who", time="when", unit="days").schema.time.unit == "days"
    assert "for the outcome" in refusal(
        lambda: draft_schema(vitals, patient="who", time="when", outcome="dead")
    )
    assert "instead of two" in refusal(
        lambda: draft_schema(vitals, patient="who", time="when", outcome="pulse")
    )
    vitals.write_text(VITALS.replace("7,,1", "later,,1"))
    assert "line 2 of" in refusal(
        lambda: draft_schema(vitals)
    )  # not every time is a number, and 0 is no date
    constant = tmp_path / "constant.csv"
    constant.write_text("patient,hour,sex\na,0,f\na,1,f\n")
    assert "changes within a patient" in refusal(lambda: draft_schema(constant))
    further = tmp_path / "further.csv"
    further.write_text("patient,hour,feature,value,ward\na,0,pulse,80,3\n")
    assert "further column 'ward'" in refusal(lambda: draft_schema(further))


def test_the_wards_own_columns_are_found_without_help(tmp_path: Path) -> None:
    path = tmp_path / "ward.csv.gz"
    write_patients(simulate_ward(200, seed=3), path)
    schema = draft_schema(path, outcome="deteriorated").schema
    assert schema.columns == WARD.columns
    assert [type(each) for each in schema.features] == [type(each) for each in WARD.features]
    for drafted, declared in zip(schema.features, WARD.features, strict=True):
        if isinstance(drafted, Numeric) and isinstance(declared, Numeric):
            assert declared.low <= drafted.low < drafted.high <= declared.high
            assert drafted.decimals == declared.decimals


def test_times_that_fall_together_or_before_zero_switch_on_their_repair(tmp_path: Path) -> None:
    path = tmp_path / "offsets.csv"
    rows = ("a,-5,1,7001", "a,100000.00001,2,7002", "a,100000.00002,3,")
    path.write_text("\n".join(["patient,offset,tick,caregiver_id", *rows]))
    draft = draft_schema(path)
    assert draft.ignored == {"caregiver_id": "looks like an identifier"}
    assert (draft.schema.out_of_bounds, draft.schema.duplicates) == ("missing", "aggregate")
    repairs = read_patients(path, draft.schema).repairs
    assert (repairs.late, repairs.merged) == (1, 1)


def test_very_large_numbers_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "large.parquet"
    pd.DataFrame({"patient": [1, 1], "hour": [0, 1], "pulse": [70.0, 71.0], "code": [0.0, 1e12]}).to_parquet(
        path
    )
    assert draft_schema(path).ignored == {"code": "holds numbers too large to scale"}
