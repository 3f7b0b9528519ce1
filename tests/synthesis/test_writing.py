"""Files that are written: whole, valid without repair, and the same patients when read again."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hauberk.synthesis import Patients, Schema, decode
from hauberk.synthesis.reading import read_patients, validate
from hauberk.synthesis.writing import WRITTEN_FORMATS, write_patients

Refusal = Callable[[Callable[[], object]], str]
PatientsOf = Callable[[Schema], st.SearchStrategy[Patients]]


def content(patients: Patients) -> dict[str, object]:
    """All that a table says, in an order of columns that survives odd names."""
    return {name: list(map(str, column)) for name, column in decode(patients).items()}


@pytest.mark.parametrize("ending", WRITTEN_FORMATS)
@given(data=st.data())
@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_written_is_read_again_without_repair(
    data: st.DataObject,
    ending: str,
    schemas: st.SearchStrategy[Schema],
    patients_of: PatientsOf,
    tmp_path: Path,
) -> None:
    schema = data.draw(schemas)
    patients = data.draw(patients_of(schema))
    path = tmp_path / f"patients{ending}"
    write_patients(patients, path)
    again = validate(path, schema)
    assert again.identifiers == patients.identifiers
    assert content(again) == content(patients)
    assert read_patients(path, schema).repairs.total == 0


def test_csv_holds_missing_values_irregular_times_and_plain_numbers(clinic: Schema, tmp_path: Path) -> None:
    table = tmp_path / "in.csv"
    table.write_text(
        "hour,id,pulse,rhythm,age,sex,died,temperature\n"
        "17,x,81,,44,female,no,36.70\n"
        "2,x,,paced,44,,no,NA\n"
        "0,y,90.0,sinus,,male,yes,40\n"
    )
    write_patients(validate(table, clinic), tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == (
        "id,hour,age,sex,died,pulse,temperature,rhythm\n"
        "x,2,44,female,no,,,paced\n"
        "x,17,44,female,no,81,36.7,\n"
        "y,0,,male,yes,90,40.0,sinus\n"
    )


@pytest.mark.parametrize("ending", WRITTEN_FORMATS)
def test_equal_patients_give_equal_bytes(clinic: Schema, tmp_path: Path, ending: str) -> None:
    table = tmp_path / "in.csv"
    table.write_text("id,hour,age,sex,died,pulse,temperature,rhythm\nx,2,44,female,no,70,,\n")
    digests = set()
    for name in ("one", "two"):
        write_patients(validate(table, clinic), tmp_path / f"{name}{ending}")
        digests.add(hashlib.sha256((tmp_path / f"{name}{ending}").read_bytes()).hexdigest())
    assert len(digests) == 1


def test_impossible_places_are_refused(clinic: Schema, tmp_path: Path, refusal: Refusal) -> None:
    table = tmp_path / "in.csv"
    table.write_text("id,hour,age,sex,died,pulse,temperature,rhythm\nx,2,44,female,no,70,,\n")
    patients = validate(table, clinic)
    assert "choose one of these endings" in refusal(lambda: write_patients(patients, tmp_path / "a.xlsx"))
    assert "no folder" in refusal(lambda: write_patients(patients, tmp_path / "none" / "a.csv"))
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]
