"""`hauberk data inspect`: a schema to begin with, marked as not private."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from hauberk.data.table_schema import TableSchema

Run = Callable[..., object]


@pytest.fixture
def people(workplace: Path) -> Path:
    path = workplace / "people.csv"
    path.write_text(
        "who,age,[x],ill\n" + "".join(f"p{i},{i},{'ab'[i % 2]},{'ny'[i % 2]}\n" for i in range(9))
    )
    return path


def test_the_draft_is_printed_and_is_a_schema(hauberk: Run, people: Path) -> None:
    done = hauberk("data", "inspect", people, "--unit", "who")
    assert done.code == 0, done.err
    schema = TableSchema.from_toml(done.out)
    assert schema.read_from_data == ("age", "[x]", "ill")
    assert "NOT PRIVATE" in done.out
    assert "not private" in done.err


def test_for_machines_and_into_a_file(hauberk: Run, people: Path, workplace: Path) -> None:
    said = json.loads(hauberk("data", "inspect", people, "--unit", "who", "--label", "[x]", "--json").out)
    assert said["label"] == "[x]"
    assert said["columns"]["age"] == {"low": 0.0, "high": 8.0}
    assert said["not_private"] == ["age", "[x]", "ill"]
    done = hauberk("data", "inspect", people, "--out", "people.toml")
    assert done.code == 0, done.err
    assert "[x]" in done.out  # not taken for a colour
    assert TableSchema.read(workplace / "people.toml").unit is None
    assert hauberk("data", "inspect", people, "--out", "people.toml").code == 2
    assert hauberk("data", "inspect", people, "--out", "people.toml", "--force").code == 0


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"", "is empty"),
        (b"a,b\n1\n", "line 2 of"),
        (b"a,b\n\xff,1\n", "line 2 of"),
        (b"a,b\n1,1\n2,1\n", "has one level only"),
        (b"\x1f\x8bdamaged", "cannot read"),
        (None, "cannot open"),
    ],
)
def test_a_bad_file_costs_one_sentence_and_nothing_is_written(
    hauberk: Run, workplace: Path, content: bytes | None, part: str
) -> None:
    if content is not None:
        (workplace / "bad.csv").write_bytes(content)
    done = hauberk("data", "inspect", "bad.csv", "--out", "bad.toml")
    assert done.code == 2
    assert part in done.err
    assert done.err.count("\n") == 1
    assert not (workplace / "bad.toml").exists()
