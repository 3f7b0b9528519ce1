"""The encoding of the census table, on lines written here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hauberk.data.adult import COLUMNS, FEATURES, encode, read_adult

Refusal = Callable[[Callable[[], object]], str]
LINE = (
    "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, "
    "2174, 0, 40, United-States, <=50K"
)


def test_one_line() -> None:
    x, y = encode(LINE + "\n", named="adult.data")
    assert x.shape == (1, 108)
    assert y.tolist() == [0]
    record = dict(zip(FEATURES, x[0].tolist(), strict=True))
    numbers = {
        "age": 0.39,
        "fnlwgt": 77_516 / 1.5e6,
        "education-num": 12 / 15,
        "capital-gain": 2_174 / 99_999,
        "capital-loss": 0,
        "hours-per-week": 0.4,
    }
    for name, value in numbers.items():
        assert record.pop(name) == pytest.approx(value)
    assert {name for name, value in record.items() if value} == {
        "workclass=State-gov",
        "education=Bachelors",
        "marital-status=Never-married",
        "occupation=Adm-clerical",
        "relationship=Not-in-family",
        "race=White",
        "sex=Male",
        "native-country=United-States",
    }


def test_the_test_file_and_its_oddities() -> None:
    x, y = encode(f"|1x3 Cross validator\n{LINE}.\n{LINE.replace('<=', '>')}.\n\n", named="adult.test")
    assert len(x) == 2
    assert y.tolist() == [0, 1]


def test_missing_entries_and_values_beyond_the_range() -> None:
    line = LINE.replace("State-gov", "?").replace("United-States", "?").replace(" 40,", " 250,")
    record = dict(zip(FEATURES, encode(line, named="adult.data")[0][0].tolist(), strict=True))
    assert record["workclass=unknown"] == record["native-country=unknown"] == 1
    assert record["hours-per-week"] == 1
    assert encode(LINE.replace("39,", "-5,"), named="adult.data")[0].min() == 0


# (what is wrong, text, part of the sentence)
BAD = [
    (
        "unknown level",
        f"{LINE}\n{LINE.replace('Bachelors', 'Knight')}",
        "line 2 of adult.data holds 'Knight'",
    ),
    ("missing where it must not", LINE.replace("White", "?"), "'?' in column race"),
    ("no number", LINE.replace("39,", "old,"), "'old' in column age"),
    ("NaN", LINE.replace("39,", "nan,"), "'nan' in column age"),
    ("unknown class", LINE.replace("<=50K", "rich"), "'rich' in column income"),
    ("too few columns", LINE.replace("39, ", ""), "line 1 of adult.data has 14 columns"),
    ("a web page", "<html>not found</html>", "has 1 columns"),
    ("empty", "\n", "holds no rows"),
]


@pytest.mark.parametrize(("text", "part"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_bad_text(text: str, part: str, refusal: Refusal) -> None:
    assert part in refusal(lambda: encode(text, named="adult.data"))


def test_another_table_is_not_the_published_one(tmp_path: Path, refusal: Refusal) -> None:
    path = tmp_path / "adult.data"
    path.write_text(LINE)
    message = refusal(lambda: read_adult([path, path]))
    assert message.startswith(f"{path} is not the published data")


def test_inputs_are_always_in_the_unit_interval() -> None:
    assert len(FEATURES) == len(set(FEATURES)) == 108
    assert len(COLUMNS) == 14
    x, _ = encode("\n".join([LINE] * 3), named="adult.data")
    assert x.dtype == np.float32
    assert 0 <= x.min() <= x.max() <= 1
