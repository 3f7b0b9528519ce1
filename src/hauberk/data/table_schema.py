"""The schema of a table: what is public about its columns, said before anybody looks at the rows.

    label = "diagnosis"          # the column to predict; its levels are the classes
    unit = "patient"             # optional: the column that names the person a row belongs to
    missing = "refuse"           # or "level": a missing value is a level of its own
    ignored = ["comment"]        # columns that are not read

    [[column]]
    name = "age"
    low = 0                      # public bounds: the limits of the instrument, of the form, of nature
    high = 120

    [[column]]
    name = "diagnosis"
    levels = ["healthy", "ill"]  # public levels

Numbers are scaled to [0, 1] by their bounds, levels become one 0/1 input each. Bounds and levels taken from
the rows would release the rows they came from: a schema that was drafted from data says so (``from_data``),
and nothing that was trained with it has a proven privacy statement.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING as REQUIRED
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from hauberk.errors import RequestError

MISSING_TEXTS = ("", "NA", "N/A", "nan", "NaN", "null", "NULL", "?")
"""What a missing value may look like, where no level is called so."""
POLICIES = ("refuse", "level")


class Refused(ValueError):
    """An entry that its column does not allow; the text says what it should have been."""


@dataclass(frozen=True, kw_only=True)
class NumericColumn:
    """A number between public bounds; one input, (value - low) / (high - low)."""

    name: str
    low: float
    high: float
    from_data: bool = False

    def __post_init__(self) -> None:
        _check_name(self.name)
        for bound in ("low", "high"):
            object.__setattr__(self, bound, _finite(getattr(self, bound), self.name))
        if not 0 < self.high - self.low < math.inf:
            raise RequestError(
                f"column '{self.name}' has low {self.low:g} and high {self.high:g}; low must be below high."
            )

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.name,)

    def encode(self, entry: str) -> tuple[float, ...]:
        try:
            number = float(entry)
        except ValueError:
            number = math.nan
        if not math.isfinite(number) or "_" in entry:
            raise Refused("which is not a number")
        if not self.low <= number <= self.high:
            raise Refused(f"which is outside its bounds {self.low:g} to {self.high:g}")
        return (min(max((number - self.low) / (self.high - self.low), 0.0), 1.0),)


@dataclass(frozen=True, kw_only=True)
class CategoricalColumn:
    """One of a public list of levels; one 0/1 input per level."""

    name: str
    levels: tuple[str, ...]
    from_data: bool = False

    def __post_init__(self) -> None:
        _check_name(self.name)
        object.__setattr__(self, "levels", tuple(self.levels))
        for level in self.levels:
            if not isinstance(level, str) or level != level.strip() or not level.isprintable():
                raise RequestError(
                    f"level {level!r} of column '{self.name}' is not a text without blanks around it; "
                    "write levels as quoted texts."
                )
        if not self.levels or len(set(self.levels)) < len(self.levels):
            raise RequestError(f"the levels of column '{self.name}' must be listed, each of them once.")

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(f"{self.name}={level}" for level in self.levels)

    @cached_property
    def _codes(self) -> dict[str, tuple[float, ...]]:
        return {each: tuple(float(each == other) for other in self.levels) for each in self.levels}

    def encode(self, entry: str) -> tuple[float, ...]:
        if entry not in self._codes:
            raise Refused("which is none of its levels")
        return self._codes[entry]


Column = NumericColumn | CategoricalColumn
_Built = TypeVar("_Built", bound="NumericColumn | CategoricalColumn | TableSchema")


@dataclass(frozen=True, kw_only=True)
class TableSchema:
    """What the columns of a table mean; immutable, compared by value. The module's text explains the lines.

    With ``missing = "level"`` every input column gets one more 0/1 input, "missing"; a number that is missing
    is 0 beside it. A label is never missing.
    """

    label: str
    columns: tuple[Column, ...]
    unit: str | None = None
    missing: str = "refuse"
    ignored: tuple[str, ...] = ()
    from_data: bool = False  # whether missing, ignored, or what kind a column is was read from the rows

    def __post_init__(self) -> None:
        if not isinstance(self.from_data, bool):
            raise RequestError(f"from_data must be true or false, got {self.from_data!r}.")
        for group in ("columns", "ignored"):
            object.__setattr__(self, group, tuple(getattr(self, group)))
        if self.missing not in POLICIES:
            raise RequestError(f"missing must be one of {', '.join(POLICIES)}, got {self.missing!r}.")
        named = [each.name for each in self.columns]
        label = next((each for each in self.columns if each.name == self.label), None)
        if not isinstance(label, CategoricalColumn) or len(label.levels) < 2:
            raise RequestError(
                f"the label {self.label!r} is no column with two levels or more; declare it as one."
            )
        if len(named) < 2:
            raise RequestError("there is no column but the label; declare what it is predicted from.")
        every = [*named, *self.ignored, *(() if self.unit is None else (self.unit,))]
        for name in every:
            _check_name(name)
            if every.count(name) > 1:
                raise RequestError(f"the column '{name}' is named twice; name it once.")

    @property
    def classes(self) -> tuple[str, ...]:
        """The label's levels, in order: class 0, class 1, and so on."""
        label = next(each for each in self.columns if each.name == self.label)
        assert isinstance(label, CategoricalColumn)
        return label.levels

    @property
    def predictors(self) -> tuple[Column, ...]:
        """All columns but the label, in the order of the schema."""
        return tuple(each for each in self.columns if each.name != self.label)

    @property
    def inputs(self) -> tuple[str, ...]:
        """What each input of the network means, in order."""
        absent = self.missing == "level"
        return tuple(
            name
            for each in self.predictors
            for name in (*each.inputs, *((f"{each.name} missing",) if absent else ()))
        )

    @property
    def read_from_data(self) -> tuple[str, ...]:
        """Whose bounds or levels were read from the rows and are *not private*; empty is good."""
        return tuple(each.name for each in self.columns if each.from_data)

    @property
    def unprovable(self) -> str | None:
        """Why nothing can be proven about what is trained with this schema, if so."""
        if self.read_from_data:
            names = ", ".join(self.read_from_data)
            return f"the schema's bounds or levels of {names} were read from the private rows"
        if self.from_data:
            return "the schema's columns, and whether values may be missing, were read from the private rows"
        return None

    def encode(self, column: Column, entry: str) -> tuple[float, ...]:
        """The inputs of one entry; `Refused` where the column does not allow it."""
        known = isinstance(column, CategoricalColumn) and entry in column.levels
        absent = entry in MISSING_TEXTS and not known
        if self.missing == "refuse":
            if absent:
                raise Refused("which is a missing value, and the schema refuses those")
            return column.encode(entry)
        return (*(0.0,) * len(column.inputs), 1.0) if absent else (*column.encode(entry), 0.0)

    def class_of(self, entry: str) -> int:
        if entry not in self.classes:
            raise Refused("which is none of its levels")
        return self.classes.index(entry)

    def in_users_units(self, radius: float) -> dict[str, float]:
        """How far each numeric column may move, in its own units, if nothing else moves.

        A certificate says: the answer stays for every change of the inputs of norm at most ``radius``. A
        change of one number by ``d`` is a change of its input by ``d / (high - low)``, in every lp norm; a
        changed level moves two inputs by 1, which no radius below 1 covers.
        """
        return {
            each.name: radius * (each.high - each.low)
            for each in self.predictors
            if isinstance(each, NumericColumn)
        }

    def missing_in(self, row: Sequence[float]) -> frozenset[str]:
        """The columns that an encoded row says are missing."""
        if self.missing == "refuse":
            return frozenset()
        flags = dict(zip(self.inputs, row, strict=True))
        return frozenset(each.name for each in self.predictors if flags[f"{each.name} missing"] == 1.0)

    def to_toml(self) -> str:
        """A TOML file that `from_toml` reads back to an equal schema."""
        lines = [f"label = {_toml(self.label)}"]
        if self.unit is not None:
            lines.append(f"unit = {_toml(self.unit)}")
        lines += [f"missing = {_toml(self.missing)}", f"ignored = {_toml(self.ignored)}"]
        if self.from_data:
            lines.append("from_data = true  # not private: missing, ignored, and which columns are numbers")
        for column in self.columns:
            lines += ["", "[[column]]"]
            for each in fields(column):
                value = getattr(column, each.name)
                if each.name != "from_data":
                    lines.append(f"{each.name} = {_toml(value)}")
                elif value:
                    lines.append("from_data = true  # not private: read from the rows")
        return "\n".join(lines) + "\n"

    @classmethod
    def from_toml(cls, text: str, *, named: str = "the schema") -> TableSchema:
        """Read a schema; everything wrong with it is one sentence that begins with its name."""
        try:
            content = tomllib.loads(text)
        except (ValueError, RecursionError) as error:  # ValueError: also a number of thousands of digits
            raise RequestError(f"{named} is not valid TOML ({str(error).rstrip('.')}).") from error
        try:
            tables = content.pop("column", [])
            if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
                raise RequestError("columns are tables, each written as [[column]].")
            if not isinstance(content.get("ignored", []), list):
                raise RequestError('ignored must be a list, such as ["comment"].')
            columns = tuple(_column(table) for table in tables)
            return _build(cls, {**content, "columns": columns}, "the top level")
        except RequestError as error:
            raise RequestError(f"{named}: {error}") from error

    @classmethod
    def read(cls, path: Path) -> TableSchema:
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise RequestError(f"cannot read {path} ({error.strerror or error}).") from error
        except ValueError as error:
            raise RequestError(f"{path} is not a text in UTF-8; give a schema in TOML.") from error
        return cls.from_toml(text, named=str(path))


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name or name != name.strip() or not name.isprintable():
        raise RequestError(f"{name!r} is not a column's name; write a text without blanks around it.")


def _finite(bound: object, column: str) -> float:
    try:
        number = float(bound) if isinstance(bound, int | float) else math.nan
    except OverflowError:
        number = math.inf
    if isinstance(bound, bool) or not math.isfinite(number):
        raise RequestError(f"a bound of column '{column}' is not a finite number; write one, such as 120.")
    return number


def _toml(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(_toml(each) for each in value)}]"
    # a JSON text or number is also a TOML one; unprintable characters were refused above
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _column(table: dict[str, Any]) -> Column:
    where = f"column {table.get('name', 'without a name')!r}"
    if not isinstance(table.get("from_data", False), bool):
        raise RequestError(f"from_data of {where} must be true or false.")
    if "levels" not in table:
        return _build(NumericColumn, table, where)
    if not isinstance(table["levels"], list):
        raise RequestError(f"the levels of {where} must be a list of texts.")
    return _build(CategoricalColumn, table, where)


def _build(kind: type[_Built], table: Mapping[str, Any], where: str) -> _Built:
    """A dataclass from a TOML table; a misspelt or missing line is named."""
    known = {each.name: each for each in fields(kind)}
    for key in table:
        if key not in known:
            raise RequestError(f"{where} has an unknown line '{key}'; known are {', '.join(known)}.")
    for key, each in known.items():
        if each.default is REQUIRED and key not in table:
            raise RequestError(f"{where} lacks the line '{key}'; add it.")
    return kind(**table)
