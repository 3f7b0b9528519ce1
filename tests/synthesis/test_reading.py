"""Files that are read: every format says the same, and a bad one is told with file, line and column."""

import gzip
import lzma
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hauberk.synthesis import Patients, Repairs, Schema, decode, extra
from hauberk.synthesis.reading import read_patients, validate

Refusal = Callable[[Callable[[], object]], str]

HEADING = "id,hour,age,sex,died,pulse,temperature,rhythm"
ROWS = ("1,0,60,male,no,80,36.5,sinus", "1,2.0,60,male,no,85,,", "2,1,,female,yes,,38.1,paced")
WIDE = "\n".join([HEADING, *ROWS]) + "\n"
LONG = """id,hour,feature,value
1,,age,60
1,,sex,male
1,,died,no
1,0,pulse,80
1,0,temperature,36.5
1,0,rhythm,sinus
1,2,pulse,85
2,,sex,female
2,,died,yes
2,1,temperature,38.1
2,1,rhythm,paced
"""


@pytest.fixture
def wide(tmp_path: Path) -> Path:
    path = tmp_path / "wide.csv"
    path.write_text(WIDE)
    return path


def content(patients: Patients) -> str:
    return decode(patients).to_csv(index=False)


def frame() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "id": [1, 1, 2],
            "hour": [0.0, 2.0, 1.0],
            "age": [60, 60, np.nan],
            "sex": ["male", "male", "female"],
            "died": ["no", "no", "yes"],
            "pulse": [80, 85, np.nan],
            "temperature": np.array([36.5, np.nan, 38.1], dtype=np.float32),
            "rhythm": ["sinus", None, "paced"],
        }
    )


def test_every_format_says_the_same(clinic: Schema, wide: Path, tmp_path: Path) -> None:
    (tmp_path / "long.csv").write_text(LONG)
    (tmp_path / "wide.csv.gz").write_bytes(gzip.compress(WIDE.encode()))
    (tmp_path / "wide.CSV.XZ").write_bytes(lzma.compress(b"\xef\xbb\xbf" + WIDE.encode()))
    (tmp_path / "windows.csv").write_text(WIDE.replace("\n", "\r\n"), newline="")
    frame().to_parquet(tmp_path / "wide.parquet")
    columns = {name: column.fillna("").to_numpy(dtype=str) for name, column in frame().astype(str).items()}
    np.savez(tmp_path / "texts.npz", **{name: np.char.replace(c, "None", "") for name, c in columns.items()})
    long = pd.read_csv(tmp_path / "long.csv")
    np.savez(
        tmp_path / "long.npz",
        id=long["id"].to_numpy(),
        hour=long["hour"].to_numpy(),
        feature=long["feature"].to_numpy(dtype=str),
        value=long["value"].to_numpy(dtype=str),
    )
    expected = content(validate(wide, clinic))
    paths = [path for path in tmp_path.iterdir() if path != wide]
    assert len(paths) == 7
    for path in paths:
        assert content(validate(path, clinic)) == expected, path


def test_static_features_may_stand_in_a_file_of_their_own(clinic: Schema, wide: Path, tmp_path: Path) -> None:
    (tmp_path / "static.csv").write_text("id,died,sex,age\n2,yes,female,\n1,no,male,60\n")
    (tmp_path / "vitals.csv").write_text(
        "hour,id,pulse,temperature,rhythm\n0,1,80,36.5,sinus\n2,1,85,,\n1,2,,38.1,paced\n"
    )
    apart = validate(tmp_path / "vitals.csv", clinic, static_path=tmp_path / "static.csv")
    assert content(apart) == content(validate(wide, clinic))


def test_a_bad_static_value_is_told_with_its_own_file(
    clinic: Schema, tmp_path: Path, refusal: Refusal
) -> None:
    static, vitals = tmp_path / "static.csv", tmp_path / "vitals.csv"
    static.write_text("id,died,sex,age\n2,yes,female,\n1,no,male,600\n")
    vitals.write_text("hour,id,pulse,temperature,rhythm\n0,1,80,36.5,sinus\n")
    message = refusal(lambda: read_patients(vitals, clinic, static_path=static))
    assert message.startswith(f"line 3 of {static} holds '600' in column age")
    static.write_text("id,died,sex,age\n2,yes,female,\n1,no,male,60\n")
    message = refusal(lambda: read_patients(vitals, clinic, static_path=static))
    assert message.startswith(f"line 2 of {static} begins patient '2' in column id")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("rhythm", "rythm", "unknown column 'rythm'"),
        ("pulse", "age", "names the column 'age' twice"),
        ("pulse", "", "column without a name"),
        ("85,,", "850,,", "line 3 of {} holds '850' in column pulse"),
        ("sinus", "Sinus", "line 2 of {} holds 'Sinus' in column rhythm"),
        ("1,2.0", "1,noon", "line 3 of {} holds 'noon' in column hour"),
        ("1,2.0", "1,", "line 3 of {} holds nothing in column hour"),
        ("1,2.0", "1,99", "line 3 of {} has the time 99 hours in column hour"),
        ("1,2.0", "1,0", "line 3 of {} holds a second value of the same patient and time in column pulse"),
        ("1,2.0,60", "1,2.0,61", "line 3 of {} holds a second value of the same patient in column age"),
        ("38.1,paced", ",", "line 4 of {} begins patient '2' in column id"),
        ("2,1,,", ",1,,", "line 4 of {} names no patient in column id"),
        ("85,,", "85,", "line 3 of {} has 7 entries"),
        ("85,,", "85,,,", "line 3 of {} has 9 entries"),
        ("\n2,1", "\n\n2,1", "line 4 of {} has 0 entries"),
        ("male,no,80", '"ma\nle",no,80', "line 2 of {} goes on in the next one"),
    ],
)
def test_a_bad_file_is_told_with_line_and_column(
    old: str, new: str, said: str, clinic: Schema, wide: Path, refusal: Refusal
) -> None:
    assert old in WIDE
    wide.write_text(WIDE.replace(old, new, 1))
    message = refusal(lambda: read_patients(wide, clinic))
    assert said.format(wide) in message
    assert str(wide) in message


def test_parquet_files_have_rows(clinic: Schema, tmp_path: Path, refusal: Refusal) -> None:
    path = tmp_path / "wide.parquet"
    frame().assign(pulse=[80, 85, 1000]).to_parquet(path)
    assert f"row 3 of {path} holds '1000' in column pulse" in refusal(lambda: read_patients(path, clinic))


def test_files_that_are_no_tables_are_told(clinic: Schema, tmp_path: Path, refusal: Refusal) -> None:
    def told(name: str, data: bytes) -> str:
        (tmp_path / name).write_bytes(data)
        return refusal(lambda: read_patients(tmp_path / name, clinic))

    assert "save the table as one of these" in told("a.xlsx", b"")
    assert "is empty" in told("a.csv", b"")
    assert "holds no rows" in told("b.csv", HEADING.encode() + b"\n")
    assert "line 2 of" in told("c.csv", HEADING.encode() + b"\n\xff\xff,")
    assert "comma-separated" in told("j.csv", HEADING.encode() + b"\n1," + b"x" * 200_000 + b",,,,,,")
    assert "damaged" in told("d.csv.gz", b"no gzip")
    assert "damaged" in told("e.csv.xz", b"no xz")
    assert "damaged" in told("f.parquet", b"no parquet")
    assert "damaged" in told("g.npz", b"no archive")
    assert "check that it is there" in refusal(lambda: read_patients(tmp_path / "none.csv", clinic))
    np.savez(tmp_path / "h.npz", id=np.zeros(3), hour=np.zeros((3, 2)))
    assert "array 'hour'" in refusal(lambda: read_patients(tmp_path / "h.npz", clinic))
    np.savez(tmp_path / "i.npz", id=np.array([{}, {}], dtype=object))
    assert "damaged" in refusal(lambda: read_patients(tmp_path / "i.npz", clinic))


def test_repairs_are_counted_and_validation_makes_none(clinic: Schema, wide: Path, refusal: Refusal) -> None:
    wide.write_text(WIDE.replace("85,,", "-1,36.77,odd").replace("80", "400"))
    lenient = replace(clinic, sentinels=(-1,), out_of_bounds="clip")
    assert read_patients(wide, lenient).repairs == Repairs(sentinels=1, clipped=1, removed=1, rounded=1)
    assert "line 2" in refusal(lambda: validate(wide, lenient))


def test_without_pandas_one_sentence_says_how_to_get_it(
    clinic: Schema, wide: Path, refusal: Refusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(module: str) -> None:
        raise ImportError(module)

    monkeypatch.setattr(extra.importlib, "import_module", absent)
    assert "pip install 'hauberk[synth]'" in refusal(lambda: read_patients(wide, clinic))
    assert "scikit-learn" in refusal(lambda: extra.scikit_learn("sklearn.cluster"))
