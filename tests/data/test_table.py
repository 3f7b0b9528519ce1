"""Tables from CSV files: what is read, how it is split, and every bad file refused with line and column."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hauberk.data import load
from hauberk.data.input_form import DescribedSplit
from hauberk.data.persons import PersonDataset
from hauberk.data.table import read_table
from hauberk.data.table_schema import TableSchema
from hauberk.errors import RequestError

Refusal = Callable[[Callable[[], object]], str]
SCHEMA = TableSchema.from_toml(
    'label = "ill"\nignored = ["note"]\n[[column]]\nname = "age"\nlow = 0\nhigh = 100\n'
    '[[column]]\nname = "sex"\nlevels = ["f", "m"]\n[[column]]\nname = "ill"\nlevels = ["no", "yes"]\n'
)
OF_PERSONS = TableSchema.from_toml('unit = "who"\n' + SCHEMA.to_toml())
HEAD = "age,sex,ill\n"


def rows(count: int) -> str:
    return "".join(f"{i % 100},{'fm'[i % 2]},{('no', 'yes')[i % 3 == 0]}\n" for i in range(count))


def written(folder: Path, text: str) -> Path:
    path = folder / "people.csv"
    path.write_text(text)
    return path


def test_rows_become_inputs_and_labels(tmp_path: Path) -> None:
    path = written(tmp_path, 'note,ill,sex,age\n"a, b\nc",yes,m,25\n\n,no,f, 100 \n')
    table = read_table(path, SCHEMA)
    assert table.x.tolist() == [[0.25, 0.0, 1.0], [1.0, 1.0, 0.0]]
    assert table.y is not None
    assert table.y.tolist() == [1, 0]
    assert table.lines == (3, 5)  # of the file: an entry may go over two lines


def test_a_compressed_table_and_one_with_a_byte_order_mark(tmp_path: Path) -> None:
    plain = read_table(written(tmp_path, HEAD + rows(5)), SCHEMA)
    packed = tmp_path / "people.csv.gz"
    packed.write_bytes(gzip.compress(b"\xef\xbb\xbf" + (HEAD + rows(5)).encode()))
    assert torch.equal(read_table(packed, SCHEMA).x, plain.x)


def test_for_prediction_label_unit_and_ignored_columns_may_lack(tmp_path: Path) -> None:
    table = read_table(written(tmp_path, "sex,age\nf,50\n"), OF_PERSONS, labelled=False)
    assert table.x.tolist() == [[0.5, 1.0, 0.0]]
    assert table.y is None


BAD = [
    (
        "unknown column",
        "age,sex,ill,height\n1,f,no,2\n",
        "has a column 'height' that its schema does not know",
    ),
    ("lacking column", "age,ill\n1,no\n", "has no column 'sex'"),
    ("column twice", "age,age,sex,ill\n1,1,f,no\n", "line 1 of {path} names a column 'age' twice"),
    ("no head line", "1,f,no\n2,m,yes\n", "has a column '1' that its schema does not know"),
    (
        "bad number",
        HEAD + "1,f,no\nold,f,no\n",
        "line 3 of {path} holds 'old' in column 'age', which is not a",
    ),
    ("out of bounds", HEAD + "101,f,no\n", "line 2 of {path} holds '101' in column 'age', which is outside"),
    ("unknown level", HEAD + "1,x,no\n", "line 2 of {path} holds 'x' in column 'sex', which is none of its"),
    ("unknown class", HEAD + "1,f,maybe\n", "line 2 of {path} holds 'maybe' in column 'ill'"),
    ("missing label", HEAD + "1,f,\n", "line 2 of {path} holds '' in column 'ill'"),
    (
        "missing value",
        HEAD + ",f,no\n",
        "line 2 of {path} holds '' in column 'age', which is a missing value",
    ),
    ("short row", HEAD + "1,f,no\n1,f\n", "line 3 of {path} has 2 entries, but the head line names 3"),
    ("long row", HEAD + "1,f,no,5\n", "line 2 of {path} has 4 entries"),
    ("semicolons", "age;sex;ill\n1;f;no\n", "has a column 'age;sex;ill' that its schema does not know"),
    ("empty", "", "is empty"),
    ("blank lines", "\n\n", "is empty"),
    ("head line only", HEAD, "has a head line and no rows"),
    ("open quote", HEAD + '1,"f,no\n', "is no line of a CSV file"),
    (
        "huge field",
        HEAD + "1," + "f" * 200_000 + ",no\n",
        "line 2 of {path} is no line of a CSV file (field larger",
    ),
    ("unprintable", HEAD + "1,\x07,no\n", "line 2 of {path} holds '�' in column 'sex'"),
]


@pytest.mark.parametrize(("text", "part"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_a_bad_file(text: str, part: str, tmp_path: Path, refusal: Refusal) -> None:
    path = written(tmp_path, text)
    message = refusal(lambda: read_table(path, SCHEMA))
    assert part.format(path=path) in message
    assert str(path) in message
    assert len(message) < 400  # a long entry is cut


def test_another_encoding_is_refused_with_its_line(tmp_path: Path, refusal: Refusal) -> None:
    (tmp_path / "people.csv").write_bytes(b"age,sex,ill\n1,f,no\n2,f,\xe4\n")
    assert "line 3 of" in refusal(lambda: read_table(tmp_path / "people.csv", SCHEMA))
    (tmp_path / "people.csv").write_bytes((HEAD + rows(3)).encode("utf-16"))
    assert "is not UTF-8" in refusal(lambda: read_table(tmp_path / "people.csv", SCHEMA))


def test_a_damaged_archive_a_folder_and_nothing_at_all(tmp_path: Path, refusal: Refusal) -> None:
    packed = tmp_path / "people.csv.gz"
    packed.write_bytes(gzip.compress((HEAD + rows(500)).encode())[:-20])
    assert str(packed) in refusal(lambda: read_table(packed, SCHEMA))
    (tmp_path / "folder.csv").mkdir()
    assert "folder.csv" in refusal(lambda: read_table(tmp_path / "folder.csv", SCHEMA))
    assert "No such file" in refusal(lambda: read_table(tmp_path / "none.csv", SCHEMA))


@given(st.binary(max_size=80))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_a_table_or_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "people.csv").write_bytes(HEAD.encode() + content)
    try:
        read_table(tmp_path / "people.csv", SCHEMA)
    except RequestError as error:
        assert "people.csv" in str(error)  # noqa: PT017


# --- as data of a run ---


def test_load_gives_a_split_that_knows_its_form(tmp_path: Path) -> None:
    split = load(str(written(tmp_path, HEAD + rows(200))), schema=SCHEMA, records=180)
    assert isinstance(split, DescribedSplit)
    assert (split.records, split.classes, split.train.shape) == (180, 2, (3,))
    assert len(split.train) + len(split.test) == 200
    assert split.form.classes == ("no", "yes")
    assert split.form.unit == "one record"
    assert split.form.table == SCHEMA


def test_a_row_that_comes_or_goes_moves_no_other_across_the_split(tmp_path: Path) -> None:
    text = [f"{i},{'fm'[i % 2]},no\n" for i in range(100)]

    def sides(lines: list[str]) -> tuple[set[float], set[float]]:
        split = load(str(written(tmp_path, HEAD + "".join(lines))), schema=SCHEMA, records=80, holdout=0.3)
        return set(split.train.x[:, 0].tolist()), set(split.test.x[:, 0].tolist())

    train, test = sides(text)
    fewer_train, fewer_test = sides(text[:17] + text[18:])
    assert fewer_train <= train
    assert fewer_test <= test
    assert len(train) + len(test) - len(fewer_train) - len(fewer_test) == 1
    assert 15 < len(test) < 45


def test_rows_of_a_person_are_one_record(tmp_path: Path) -> None:
    lines = "".join(
        f"p{i},{10 * i},f,no\np{i},{10 * i + 1},m,yes\np{i},{10 * i + 2},m,no\n" for i in range(9)
    )
    split = load(
        str(written(tmp_path, "who,age,sex,ill\n" + lines)),
        schema=OF_PERSONS,
        records=8,
        holdout=0.3,
        max_per_unit=2,
    )
    assert isinstance(split.train, PersonDataset)
    assert isinstance(split, DescribedSplit)
    assert split.form.unit == "one person"
    assert split.train.y.tolist() == [[0, 1]] * len(split.train)  # the first two rows of each
    assert split.train.x.shape[1:] == (2, 3)
    assert len(split.test) == 3 * (9 - len(split.train))  # test rows stay single rows


def test_a_person_on_both_sides_is_refused(tmp_path: Path, refusal: Refusal) -> None:
    head = "who,age,sex,ill\n"
    train, test = written(tmp_path, head + "a,1,f,no\nb,2,f,no\n"), tmp_path / "test.csv"
    test.write_text(head + "b,3,f,no\n")
    message = refusal(lambda: load(str(train), schema=OF_PERSONS, records=2, test=test))
    assert "the person 'b' is in the training data and in the test data" in message
    test.write_text(head + "c,3,f,no\n")
    assert len(load(str(train), schema=OF_PERSONS, records=2, test=test).test) == 1


REQUESTS = [
    ("no schema", {"records": 5}, "without a schema"),
    ("no records", {"schema": SCHEMA}, "pass --records"),
    ("no such schema", {"schema": "none.toml", "records": 5}, "none.toml"),
    ("wrong classes", {"schema": SCHEMA, "records": 5, "classes": 3}, "--classes says 3"),
    ("pictures' option", {"schema": SCHEMA, "records": 5, "image_size": 8}, "--image-size does not go with"),
    ("unit elsewhere", {"schema": SCHEMA, "records": 5, "unit": "who"}, "--unit does not go with a table"),
    ("share", {"schema": SCHEMA, "records": 5, "holdout": 1.0}, "a share between 0 and 1"),
    ("no share", {"schema": SCHEMA, "records": 5, "holdout": float("nan")}, "a share between 0 and 1"),
    (
        "most of nobody",
        {"schema": SCHEMA, "records": 5, "max_per_unit": 2},
        "--max-per-unit is about persons",
    ),
    ("nothing left", {"schema": SCHEMA, "records": 5, "holdout": 1e-9}, "leaves none for testing"),
    ("records", {"schema": SCHEMA, "records": 0}, "--records must be a whole number"),
    ("both", {"schema": SCHEMA, "records": 5, "test": "people.csv", "holdout": 0.1}, "leave out --holdout"),
]


@pytest.mark.parametrize(("options", "part"), [row[1:] for row in REQUESTS], ids=[row[0] for row in REQUESTS])
def test_a_wrong_request(
    options: dict[str, object], part: str, tmp_path: Path, refusal: Refusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, HEAD + rows(20))
    assert part in refusal(lambda: load("people.csv", **options))


def test_tables_options_do_not_go_with_other_data(refusal: Refusal) -> None:
    assert "--schema does not go with the named data set" in refusal(lambda: load("digits", schema=SCHEMA))
    assert "--test does not go with an .npz" in refusal(lambda: load("a.npz", test="b.npz"))
