"""From the columns of a table to single values: each is read, repaired or refused where it stands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from hauberk.errors import RequestError
from hauberk.synthesis.extra import pandas
from hauberk.synthesis.schema import Categorical, Feature, Numeric, Schema

Array = np.ndarray[Any, Any]
MISSING_TEXTS = ("", "NA", "N/A", "nan", "NaN", "null", "NULL")
"""What an absent value may look like in a text file."""
LONG_COLUMNS = ("feature", "value")
"""A table with both of these columns has one measurement in each row."""
_TOLERANCE = 1e-3  # of a grid's step: float32 files hold 7.8000002 for 7.8


@dataclass(frozen=True)
class Repairs:
    """How many values the schema's rules changed; counted from the records, so *not private*."""

    sentinels: int = 0
    clipped: int = 0
    removed: int = 0
    rounded: int = 0
    late: int = 0
    moved: int = 0
    merged: int = 0
    cut: int = 0
    dropped: int = 0

    @property
    def total(self) -> int:
        return sum(getattr(self, each.name) for each in fields(self))

    def lines(self) -> list[str]:
        """One line for every kind of repair that was made."""
        told = {
            "sentinels": "sentinels read as missing",
            "clipped": "values clipped to their bounds",
            "removed": "values outside their bounds or levels removed",
            "rounded": "values rounded to their feature's decimals",
            "late": "values at times outside the horizon left out",
            "moved": "values moved to the clock's bins or decimals",
            "merged": "values merged with others of the same time",
            "cut": "values beyond the maximum number of steps cut",
            "dropped": "patients without any measurement left out",
        }
        counts = ((getattr(self, name), words) for name, words in told.items())
        return [f"{count:,} {words} (not private)" for count, words in counts if count]

    def __add__(self, other: Repairs) -> Repairs:
        return Repairs(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))


@dataclass(frozen=True, kw_only=True)
class Source:
    """A table and how messages call its rows: ``line 2 of vitals.csv`` is row 0 with ``first=2``."""

    table: Any
    named: str
    first: int = 1
    word: str = "row"

    def where(self, row: int) -> str:
        return f"{self.word} {row + self.first} of {self.named}"


@dataclass(frozen=True, kw_only=True)
class Cells:
    """Observed values of one kind (static or temporal), one per entry, in the order of the table.

    ``value`` is on the scale of the feature's grid (a level's place, or steps of 10^-decimals above ``low``),
    not yet rounded; ``time`` is in the schema's unit, or for timestamps in microseconds since 1970.
    """

    patient: Array
    feature: Array
    time: Array
    value: Array
    row: Array
    source: Array

    def __len__(self) -> int:
        return len(self.patient)

    def at(self, entries: Array) -> Cells:
        return Cells(**{each.name: getattr(self, each.name)[entries] for each in fields(self)})

    @classmethod
    def join(cls, parts: list[Cells]) -> Cells:
        """All entries, those of one part after those of another."""
        if not parts:
            none = np.zeros(0, dtype=np.int64)
            return cls(patient=none, feature=none, time=none, value=none, row=none, source=none)
        return cls(
            **{
                each.name: np.concatenate([getattr(part, each.name) for part in parts])
                for each in fields(cls)
            }
        )


class Reader:
    """Reads columns by a schema's rules and counts what it repaired; ``strict`` refuses to repair."""

    def __init__(self, schema: Schema, *, strict: bool) -> None:
        self.schema = schema
        self.strict = strict
        self.repairs = Repairs()
        self._sentinel_numbers = [float(each) for each in schema.sentinels if not isinstance(each, str)]
        self._sentinel_texts = {text_of(each) for each in schema.sentinels}

    def values(self, feature: Feature, column: Any, where: Callable[[int], str]) -> tuple[Array, Array]:
        """Values on the grid's scale, and which of them are observed."""
        if isinstance(feature, Categorical):
            return self._levels(feature, column, where)
        return self._numbers(feature, column, where)

    def _numbers(self, feature: Numeric, column: Any, where: Callable[[int], str]) -> tuple[Array, Array]:
        numbers, missing, sentinel = self._parsed(column)
        sentinel |= np.isin(numbers, self._sentinel_numbers) & ~missing
        steps = (numbers - feature.low) * 10.0**feature.decimals
        asked = ~missing & ~sentinel
        outside = asked & ~((steps >= -_TOLERANCE) & (steps <= feature.cells + _TOLERANCE))  # NaN is outside
        if outside.any():
            rule = self.schema.out_of_bounds
            if self.strict or rule == "refuse":
                bounds = f"but must be a number from {feature.low:g} to {feature.high:g}"
                raise self._refused(column, outside, feature.name, bounds, where)
            clipped = outside & ~np.isnan(steps) if rule == "clip" else np.zeros_like(outside)
            self.repairs += Repairs(clipped=int(clipped.sum()), removed=int((outside & ~clipped).sum()))
            asked &= ~outside | clipped
        off_grid = asked & ~outside & (np.abs(steps - np.rint(steps)) > _TOLERANCE)
        if off_grid.any():
            if self.strict:
                decimals = f"which has more than {feature.decimals} decimals"
                raise self._refused(column, off_grid, feature.name, decimals, where)
            self.repairs += Repairs(rounded=int(off_grid.sum()))
        self.repairs += Repairs(sentinels=int(sentinel.sum()))
        return np.where(asked, np.clip(np.where(asked, steps, 0.0), 0.0, feature.cells), 0.0), asked

    def _levels(self, feature: Categorical, column: Any, where: Callable[[int], str]) -> tuple[Array, Array]:
        codes, uniques = pandas().factorize(column)
        texts = [text_of(each) for each in uniques]
        places = {level: place for place, level in enumerate(feature.levels)}
        known = np.array([places.get(text, -1) for text in texts] + [-1], dtype=np.float64)
        empty = np.array([text in MISSING_TEXTS and text not in places for text in texts] + [True])
        marked = np.array([text in self._sentinel_texts for text in texts] + [False])
        value, missing, sentinel = known[codes], empty[codes], marked[codes]  # code -1 is an absent value
        outside = (value < 0) & ~missing & ~sentinel
        if outside.any():
            if self.strict or self.schema.out_of_bounds == "refuse":
                raise self._refused(column, outside, feature.name, "which is not one of its levels", where)
            self.repairs += Repairs(removed=int(outside.sum()))
        self.repairs += Repairs(sentinels=int(sentinel.sum()))
        asked = (value >= 0) & ~sentinel
        return np.where(asked, value, 0.0), asked

    def _parsed(self, column: Any) -> tuple[Array, Array, Array]:
        """Numbers (NaN where there is none), which entries are absent, and which are sentinels by text."""
        pd = pandas()
        if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
            numbers = column.to_numpy(dtype=np.float64, na_value=np.nan)
            return numbers, np.isnan(numbers), np.zeros(len(numbers), dtype=bool)
        texts = column.astype("str").str.strip()
        missing = (column.isna() | texts.isin(MISSING_TEXTS)).to_numpy(dtype=bool)
        sentinel = texts.isin(self._sentinel_texts).to_numpy(dtype=bool) & ~missing
        numbers = np.full(len(texts), np.nan)
        parsed = pd.to_numeric(texts[~missing], errors="coerce")
        numbers[~missing] = parsed.to_numpy(dtype=np.float64, na_value=np.nan)
        return numbers, missing, sentinel

    def times(self, column: Any, needed: Array, where: Callable[[int], str]) -> Array:
        """The times of a table as :class:`Cells` hold them, NaN where a row needs none and has none."""
        clock, pd = self.schema.time, pandas()
        if clock.format == "number":
            times, missing, _ = self._parsed(column)
            expected = "but must be a time as a number"
        else:
            texts = column.astype("str").str.strip()
            stamps = pd.to_datetime(texts, errors="coerce", format="ISO8601", utc=True)
            times = _microseconds(stamps)
            missing = np.zeros(len(times), dtype=bool)
            expected = "but must be a time such as 2025-01-31 08:30:00"
        bad = needed & (~np.isfinite(times) | missing)
        if bad.any():
            raise self._refused(column, bad, clock.column, expected, where)
        return times

    @staticmethod
    def _refused(
        column: Any, bad: Array, name: str, reason: str, where: Callable[[int], str]
    ) -> RequestError:
        row = int(bad.argmax())
        entry = column.iloc[row]
        held = "nothing" if pandas().isna(entry) or not str(entry).strip() else f"'{text_of(entry)}'"
        return RequestError(f"{where(row)} holds {held} in column {name}, {reason}; {_ADVICE}.")


_ADVICE = "correct the entry or change the schema"


def text_of(entry: object) -> str:
    """How an entry is written in a text file: 1.0 and 1 are both ``1``."""
    if isinstance(entry, float | np.floating) and float(entry).is_integer():
        return str(int(entry))
    return str(entry).strip()


def _microseconds(stamps: Any) -> Array:
    """Timestamps as microseconds since 1970, exact until the year 2255; NaT becomes NaN."""
    microseconds = stamps.to_numpy(dtype="datetime64[us]")
    return np.where(np.isnat(microseconds), np.nan, microseconds.astype(np.int64))
