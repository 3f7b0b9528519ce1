"""Drafted schemas: they read their own file, and everything in them is marked."""

from collections.abc import Callable
from pathlib import Path

import pytest

from hauberk.data.table import read_table
from hauberk.data.table_inspection import draft_table_schema
from hauberk.data.table_schema import CategoricalColumn, NumericColumn, TableSchema

Refusal = Callable[[Callable[[], object]], str]


@pytest.fixture
def patients(tmp_path: Path) -> Path:
    path = tmp_path / "patients.csv"
    path.write_text(
        "who,age,pulse,smoker,flag,note,ill\n"
        + "".join(
            f"p{i // 2},{20 + i},{60 + i / 4},{('yes', '', 'no')[i % 3]},{i % 2},n{i},{'ab'[i % 2]}\n"
            for i in range(60)
        )
    )
    return path


def test_a_draft_reads_its_own_file_and_is_marked_in_every_column(patients: Path) -> None:
    draft = draft_table_schema(patients, unit="who")
    schema = draft.schema
    assert schema.label == "ill"  # the last column
    assert schema.unit == "who"
    kinds = {column.name: type(column) for column in schema.columns}
    assert kinds == {
        "age": NumericColumn,
        "pulse": NumericColumn,
        "smoker": CategoricalColumn,
        "flag": CategoricalColumn,  # two numbers only
        "ill": CategoricalColumn,
    }
    assert draft.ignored == {"note": "has 60 different texts"}
    assert schema.missing == "level"
    assert set(schema.read_from_data) == set(kinds)
    again = TableSchema.from_toml(draft.to_toml())
    assert again == schema
    assert "NOT PRIVATE" in draft.to_toml()
    assert draft.to_toml().count("from_data = true  # not private") == len(kinds) + 1
    table = read_table(patients, again)
    assert len(table.x) == 60
    assert float(table.x[:, 0].min()) == 0.0
    assert float(table.x[:, 0].max()) == 1.0


def test_another_label(patients: Path) -> None:
    assert draft_table_schema(patients, label="smoker").schema.classes == ("no", "yes")


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"label": "height"}, "has no column 'height' for --label"),
        ({"unit": "height"}, "has no column 'height' for --unit"),
        ({"label": "note"}, "the label 'note' of"),
        ({"label": "who", "unit": "who"}, "has no column 'who' for --label"),
    ],
)
def test_wrong_columns(patients: Path, options: dict[str, str], part: str, refusal: Refusal) -> None:
    assert part in refusal(lambda: draft_table_schema(patients, **options))


def test_a_label_with_one_level_and_a_column_without_values(tmp_path: Path, refusal: Refusal) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b,c\n1,,x\n2,,x\n3,,x\n")
    assert "has one level only" in refusal(lambda: draft_table_schema(path))
    assert draft_table_schema(path, label="a").ignored == {"b": "holds no value"}


def test_a_draft_proves_nothing_until_its_own_mark_is_gone_too(patients: Path) -> None:
    """Whether values may be missing, and what kind a column is, was read from the rows like the bounds."""
    text = draft_table_schema(patients, unit="who").to_toml()
    mark = "from_data = true  # not private"
    columns_done = [line for line in text.splitlines() if not line.startswith(f"{mark}: read")]
    schema = TableSchema.from_toml("\n".join(columns_done))
    assert not schema.read_from_data
    assert "whether values may be missing" in (schema.unprovable or "")
    all_done = [line for line in columns_done if not line.startswith(mark)]
    assert TableSchema.from_toml("\n".join(all_done)).unprovable is None
