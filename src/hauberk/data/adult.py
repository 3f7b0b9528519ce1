"""Adult (census income): who earns more than 50,000 dollars, from fourteen columns of the 1994 census.

Every constant below is public: the levels come from the data set's documentation (``adult.names``), the
ranges are declared here, and nothing is estimated from the rows. Numbers are scaled by their range and
clipped into [0, 1]; categories become one 0/1 input per level.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hauberk.data.integrity import check_sha256, read_uncompressed, readable
from hauberk.data.raw import Array, RawSplit
from hauberk.errors import RequestError

ADULT_FILES = (("adult.data", "adult.data.gz"), ("adult.test", "adult.test.gz"))
DATA_SHA256 = "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d"
TEST_SHA256 = "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05"


@dataclass(frozen=True)
class Number:
    """A numeric column with its declared range."""

    low: float
    high: float

    def encode(self, entry: str) -> tuple[float, ...]:
        share = (float(entry) - self.low) / (self.high - self.low)
        if math.isnan(share):
            raise ValueError("not a number")
        return (min(max(share, 0.0), 1.0),)


class Category:
    """A column with documented levels; ``?`` (missing) is the level "unknown" where one is documented."""

    def __init__(self, *levels: str) -> None:
        self.levels = levels
        self._codes = {
            level: tuple(float(level == other) for other in levels) for level in levels
        }  # made once: a table has tens of thousands of rows

    def encode(self, entry: str) -> tuple[float, ...]:
        return self._codes["unknown" if entry == "?" else entry]


COLUMNS: dict[str, Number | Category] = {
    "age": Number(0, 100),
    "workclass": Category(
        *("Private", "Self-emp-not-inc", "Self-emp-inc", "Federal-gov", "Local-gov", "State-gov"),
        *("Without-pay", "Never-worked", "unknown"),
    ),
    "fnlwgt": Number(0, 1.5e6),
    "education": Category(
        *("Bachelors", "Some-college", "11th", "HS-grad", "Prof-school", "Assoc-acdm", "Assoc-voc", "9th"),
        *("7th-8th", "12th", "Masters", "1st-4th", "10th", "Doctorate", "5th-6th", "Preschool"),
    ),
    "education-num": Number(1, 16),
    "marital-status": Category(
        *("Married-civ-spouse", "Divorced", "Never-married", "Separated", "Widowed"),
        *("Married-spouse-absent", "Married-AF-spouse"),
    ),
    "occupation": Category(
        *("Tech-support", "Craft-repair", "Other-service", "Sales", "Exec-managerial", "Prof-specialty"),
        *("Handlers-cleaners", "Machine-op-inspct", "Adm-clerical", "Farming-fishing", "Transport-moving"),
        *("Priv-house-serv", "Protective-serv", "Armed-Forces", "unknown"),
    ),
    "relationship": Category("Wife", "Own-child", "Husband", "Not-in-family", "Other-relative", "Unmarried"),
    "race": Category("White", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other", "Black"),
    "sex": Category("Female", "Male"),
    "capital-gain": Number(0, 99_999),
    "capital-loss": Number(0, 5_000),
    "hours-per-week": Number(0, 100),
    "native-country": Category(
        *("United-States", "Cambodia", "England", "Puerto-Rico", "Canada", "Germany"),
        *("Outlying-US(Guam-USVI-etc)", "India", "Japan", "Greece", "South", "China", "Cuba", "Iran"),
        *("Honduras", "Philippines", "Italy", "Poland", "Jamaica", "Vietnam", "Mexico", "Portugal"),
        *("Ireland", "France", "Dominican-Republic", "Laos", "Ecuador", "Taiwan", "Haiti", "Columbia"),
        *("Hungary", "Guatemala", "Nicaragua", "Scotland", "Thailand", "Yugoslavia", "El-Salvador"),
        *("Trinadad&Tobago", "Peru", "Hong", "Holand-Netherlands", "unknown"),
    ),
}
INCOME = "income"  # the column to predict
INCOME_CLASSES = {"<=50K": 0, ">50K": 1}

FEATURES = tuple(
    feature
    for name, column in COLUMNS.items()
    for feature in ([name] if isinstance(column, Number) else [f"{name}={level}" for level in column.levels])
)
"""What each input of a record means, in order."""


def read_adult(paths: Sequence[Path]) -> RawSplit:
    """``adult.data`` and ``adult.test``, checked and encoded."""
    tables = []
    for path, expected in zip(paths, (DATA_SHA256, TEST_SHA256), strict=True):
        content = read_uncompressed(path)
        check_sha256(content, expected=expected, named=str(path))
        with readable(path):
            tables.append(encode(content.decode("ascii"), named=str(path)))
    (x_train, y_train), (x_test, y_test) = tables
    return RawSplit(x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)


def encode(text: str, *, named: str) -> tuple[Array, Array]:
    """Inputs (N, 108) in [0, 1] and labels of a file's text; blank lines and ``|`` comments are skipped."""
    rows: list[list[float]] = []
    labels: list[int] = []
    for number, fields in enumerate(csv.reader(text.splitlines(), skipinitialspace=True), start=1):
        if not fields or fields[0].startswith("|"):
            continue
        if len(fields) != len(COLUMNS) + 1:
            raise RequestError(
                f"line {number} of {named} has {len(fields)} columns instead of {len(COLUMNS) + 1}; "
                "download the file again."
            )
        *entries, income = fields
        row: list[float] = []
        for (name, column), entry in zip(COLUMNS.items(), entries, strict=True):
            try:
                row.extend(column.encode(entry))
            except (KeyError, ValueError) as error:
                raise _undocumented(entry, column=name, line=number, named=named) from error
        label = INCOME_CLASSES.get(income.removesuffix("."))  # the test file ends its labels in a full stop
        if label is None:
            raise _undocumented(income, column=INCOME, line=number, named=named)
        rows.append(row)
        labels.append(label)
    if not rows:
        raise RequestError(f"{named} holds no rows; download the file again.")
    return np.array(rows, dtype=np.float32), np.array(labels, dtype=np.uint8)


def _undocumented(entry: str, *, column: str, line: int, named: str) -> RequestError:
    return RequestError(
        f"line {line} of {named} holds '{entry}' in column {column}, which the data set's documentation "
        "does not know; download the file again."
    )
