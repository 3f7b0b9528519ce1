"""Schemas of tables: TOML there and back, public scaling, and every wrong line named."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hauberk.data.table_schema import CategoricalColumn, NumericColumn, Refused, TableSchema
from hauberk.errors import RequestError

Refusal = Callable[[Callable[[], object]], str]
AGE = NumericColumn(name="age", low=20, high=120)
SEX = CategoricalColumn(name="sex", levels=("female", "male"))
ILL = CategoricalColumn(name="ill", levels=("no", "yes"))


def schema(**changes: object) -> TableSchema:
    return TableSchema(**{"label": "ill", "columns": (AGE, SEX, ILL), **changes})


def test_numbers_are_scaled_by_their_bounds_and_levels_become_one_input_each() -> None:
    plain = schema()
    assert plain.inputs == ("age", "sex=female", "sex=male")
    assert plain.encode(AGE, "45") == (0.25,)
    assert plain.encode(SEX, "male") == (0.0, 1.0)
    assert plain.classes == ("no", "yes")
    assert plain.class_of("yes") == 1


def test_a_missing_value_is_refused_or_a_level_of_its_own() -> None:
    with pytest.raises(Refused, match="missing value"):
        schema().encode(AGE, "")
    levels = schema(missing="level")
    assert levels.inputs == ("age", "age missing", "sex=female", "sex=male", "sex missing")
    assert levels.encode(AGE, "NA") == (0.0, 1.0)
    assert levels.encode(AGE, "20") == (0.0, 0.0)  # the lowest number is not a missing one
    assert levels.encode(SEX, "") == (0.0, 0.0, 1.0)
    assert levels.missing_in((0.0, 1.0, 1.0, 0.0, 0.0)) == {"age"}
    assert levels.missing_in((0.3, 0.0, 1.0, 0.0, 0.0)) == set()
    assert schema().missing_in((0.0, 0.0, 1.0)) == set()


def test_a_level_called_like_a_missing_value_is_a_level() -> None:
    unknown = CategoricalColumn(name="sex", levels=("female", "?"))
    assert schema(columns=(AGE, unknown, ILL)).encode(unknown, "?") == (0.0, 1.0)


@pytest.mark.parametrize("entry", ["old", "inf", "nan1", "1_0", "0x10", "1,5"])
def test_what_is_no_number_is_refused(entry: str) -> None:
    with pytest.raises(Refused, match="not a number"):
        AGE.encode(entry)


@pytest.mark.parametrize("entry", ["19.999", "121", "-5", "1e9"])
def test_a_number_outside_its_bounds_is_refused(entry: str) -> None:
    with pytest.raises(Refused, match="outside its bounds 20 to 120"):
        AGE.encode(entry)


@given(st.floats(20, 120))
def test_every_number_within_the_bounds_lies_in_zero_to_one_and_comes_back(value: float) -> None:
    (scaled,) = AGE.encode(repr(value))
    assert 0 <= scaled <= 1
    assert scaled * 100 + 20 == pytest.approx(value)


def test_a_radius_in_the_users_units_moves_the_input_by_the_radius() -> None:
    (moved,) = AGE.encode(str(40 + schema().in_users_units(0.07)["age"]))
    assert moved - AGE.encode("40")[0] == pytest.approx(0.07)
    assert set(schema().in_users_units(0.07)) == {"age"}  # levels have no units


def test_toml_there_and_back() -> None:
    full = schema(unit="patient", missing="level", ignored=("a note", 'quoted "name"'))
    assert TableSchema.from_toml(full.to_toml()) == full


def test_what_was_read_from_rows_proves_nothing() -> None:
    drafted = schema(columns=(NumericColumn(name="age", low=1, high=2, from_data=True), ILL))
    assert drafted.read_from_data == ("age",)
    assert "age were read from the private rows" in str(drafted.unprovable)
    assert TableSchema.from_toml(drafted.to_toml()) == drafted
    assert schema().unprovable is None


WRONG = [
    ("not TOML", "label = ", "is not valid TOML"),
    ("no label", '[[column]]\nname = "a"\nlow = 0\nhigh = 1', "lacks the line 'label'"),
    ("unknown line", 'label = "ill"\nlabels = 3', "unknown line 'labels'"),
    (
        "numeric label",
        'label = "a"\n[[column]]\nname = "a"\nlow = 0\nhigh = 1',
        "is no column with two levels",
    ),
    ("bounds", 'label = "a"\n[[column]]\nname = "b"\nlow = 1\nhigh = 1', "low must be below high"),
    ("infinite bound", 'label = "a"\n[[column]]\nname = "b"\nlow = -inf\nhigh = 1', "not a finite number"),
    (
        "huge range",
        'label = "a"\n[[column]]\nname = "b"\nlow = -1e308\nhigh = 1e308',
        "low must be below high",
    ),
    (
        "huge bound",
        f'label = "a"\n[[column]]\nname = "b"\nlow = 0\nhigh = 1{"0" * 400}',
        "not a finite number",
    ),
    ("endless bound", f'label = "a"\n[[column]]\nname = "b"\nhigh = 1{"0" * 5000}', "is not valid TOML"),
    ("true bound", 'label = "a"\n[[column]]\nname = "b"\nlow = false\nhigh = 1', "not a finite number"),
    ("text bound", 'label = "a"\n[[column]]\nname = "b"\nlow = "0"\nhigh = 1', "not a finite number"),
    ("levels", 'label = "a"\n[[column]]\nname = "a"\nlevels = "x"', "must be a list of texts"),
    ("number level", 'label = "a"\n[[column]]\nname = "a"\nlevels = [1, 2]', "level 1 of column 'a'"),
    ("level twice", 'label = "a"\n[[column]]\nname = "a"\nlevels = ["x", "x"]', "each of them once"),
    ("label alone", 'label = "a"\n[[column]]\nname = "a"\nlevels = ["x", "y"]', "no column but the label"),
    ("columns", 'label = "a"\ncolumn = 3', "each written as [[column]]"),
    ("from_data", 'label = "a"\n[[column]]\nname = "a"\nlevels = ["x"]\nfrom_data = 1', "true or false"),
    ("no name", 'label = "a"\n[[column]]\nname = 7\nlow = 0\nhigh = 1', "7 is not a column's name"),
    ("ignored", 'label = "a"\nignored = "b"', "ignored must be a list"),
]


@pytest.mark.parametrize(("text", "part"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_a_wrong_schema(text: str, part: str, refusal: Refusal) -> None:
    message = refusal(lambda: TableSchema.from_toml(text, named="clinic.toml"))
    assert message.startswith("clinic.toml")
    assert part in message


def test_a_name_used_twice_and_an_unknown_policy(refusal: Refusal) -> None:
    assert "'sex' is named twice" in refusal(lambda: schema(unit="sex"))
    assert "refuse, level" in refusal(lambda: schema(missing="guess"))


def test_a_file_that_cannot_be_read(tmp_path: Path, refusal: Refusal) -> None:
    assert "No such file" in refusal(lambda: TableSchema.read(tmp_path / "none.toml"))
    (tmp_path / "latin.toml").write_bytes(b'label = "\xe4"')
    assert "not a text in UTF-8" in refusal(lambda: TableSchema.read(tmp_path / "latin.toml"))


@given(st.text(max_size=60))
def test_any_text_is_a_schema_or_refused(text: str) -> None:
    try:
        TableSchema.from_toml(text)
    except RequestError as error:
        assert "\n" not in str(error)  # noqa: PT017
