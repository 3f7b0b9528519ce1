"""The schema: everything public about a set of health records, said before anybody looks at them.

Bounds, levels, horizon and number of steps are *declared*. Scaling by them tells nothing about the patients,
whereas a minimum or maximum taken from the records would release the record it came from. A schema that was
drafted from data says so (``from_data``), and nothing trained with it can have a proven privacy statement.

The privacy unit is one value of the ``patient`` column with all its rows. Every rule of a schema looks at the
rows of one patient alone, so adding or removing a patient changes nobody else's tensors.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from hauberk.errors import RequestError
from hauberk.files import write_text

Unit = Literal["seconds", "minutes", "hours", "days"]
TimeFormat = Literal["number", "timestamp"]
Aggregate = Literal["mean", "last"]
OutOfBounds = Literal["refuse", "clip", "missing"]
Duplicates = Literal["refuse", "aggregate"]

SECONDS: dict[Unit, int] = {"seconds": 1, "minutes": 60, "hours": 3600, "days": 86400}
FINEST_GRID = 2**22  # float32 tells every k / 2^22 in [0, 1] apart with two bits to spare
_MOST_DECIMALS = 6


@dataclass(frozen=True, kw_only=True)
class Numeric:
    """A number between public bounds, kept to a declared number of decimals.

    The decimals make the way back exact: values live on the grid ``low, low + 10^-decimals, ..., high``,
    which is coarse enough for float32 to hold every place of it (``cells`` is at most ``FINEST_GRID``).
    """

    name: str
    low: float
    high: float
    decimals: int = 0
    from_data: bool = False

    def __post_init__(self) -> None:
        _check_name(self.name)
        _check_number(self.low, f"low of feature '{self.name}'")
        _check_number(self.high, f"high of feature '{self.name}'")
        _check_decimals(self.decimals, f"decimals of feature '{self.name}'")
        if self.low >= self.high:
            raise RequestError(
                f"feature '{self.name}' has low {self.low:g} and high {self.high:g}; low must be below high."
            )
        for bound in (self.low, self.high):
            if not math.isclose(bound, round(bound, self.decimals), rel_tol=0, abs_tol=1e-9):
                raise RequestError(
                    f"the bound {bound:g} of feature '{self.name}' has more than {self.decimals} decimals; "
                    "give it as many as its values, or more decimals to the feature."
                )
        if self.cells > FINEST_GRID:
            raise RequestError(
                f"feature '{self.name}' has {self.cells:,} possible values, at most {FINEST_GRID:,} can be "
                "told apart; declare fewer decimals or narrower bounds."
            )

    @property
    def cells(self) -> int:
        """How many steps of ``10^-decimals`` lead from ``low`` to ``high``; scaled values are k / cells."""
        return round((self.high - self.low) * 10.0**self.decimals)

    @property
    def width(self) -> int:
        """Columns of this feature in the vectors of :class:`~hauberk.synthesis.patients.Patients`."""
        return 1


@dataclass(frozen=True, kw_only=True)
class Categorical:
    """One of a public list of levels, each a text; tensors hold the level's place in the list."""

    name: str
    levels: tuple[str, ...]
    from_data: bool = False

    def __post_init__(self) -> None:
        _check_name(self.name)
        object.__setattr__(self, "levels", tuple(self.levels))
        if not self.levels:
            raise RequestError(f"feature '{self.name}' has no levels; declare at least one.")
        for level in self.levels:
            if not isinstance(level, str) or not level or level != level.strip() or not level.isprintable():
                raise RequestError(
                    f"level {level!r} of feature '{self.name}' is not a text without blanks around it; "
                    "write levels as quoted texts."
                )
        if len(set(self.levels)) < len(self.levels):
            raise RequestError(f"feature '{self.name}' names a level twice; name each once.")

    @property
    def cells(self) -> int:
        """The largest index: tensors hold 0 to ``cells``."""
        return len(self.levels) - 1

    @property
    def width(self) -> int:
        """Columns of this feature in the vectors of :class:`~hauberk.synthesis.patients.Patients`."""
        return len(self.levels)


Feature = Numeric | Categorical
_Built = TypeVar("_Built", bound="Numeric | Categorical | Clock | Schema")


@dataclass(frozen=True, kw_only=True)
class Clock:
    """How the time of a row is read and kept.

    Times count in ``unit`` from the patient's own zero: a ``number`` is that time itself, a ``timestamp`` is
    counted from the patient's earliest row. They lie between 0 and ``horizon``. With ``bins`` (a width in
    ``unit``) a time falls into bin ``floor(time / bins)`` and is kept as the bin's beginning; without, it is
    kept to ``decimals`` decimals. Either way a time is a whole number of ticks, from 0 to ``ticks``. A
    patient has at most ``steps`` different times; later ones are cut and counted.
    """

    column: str
    unit: Unit
    horizon: float
    steps: int
    bins: float | None = None
    decimals: int = 0
    format: TimeFormat = "number"
    from_data: bool = False

    def __post_init__(self) -> None:
        _check_name(self.column)
        _check_choice(self.unit, Unit, "the time unit")
        _check_choice(self.format, TimeFormat, "the time format")
        _check_number(self.horizon, "the horizon")
        _check_decimals(self.decimals, "decimals of the time")
        if not isinstance(self.steps, int) or isinstance(self.steps, bool) or self.steps < 1:
            raise RequestError(f"steps must be a whole number of at least 1, got {self.steps!r}.")
        if self.horizon <= 0:
            raise RequestError(f"the horizon must be positive, got {self.horizon:g}.")
        if self.bins is not None:
            _check_number(self.bins, "bins")
            if self.bins <= 0 or self.bins > self.horizon:
                raise RequestError(f"bins must lie between 0 and the horizon, got {self.bins:g}.")
            if self.decimals:
                raise RequestError("a time with bins has no decimals; leave one of the two out.")
        if not 1 <= self.ticks <= FINEST_GRID:
            raise RequestError(
                f"the horizon holds {self.ticks:,} possible times, but there must be 1 to {FINEST_GRID:,}; "
                "change the horizon, the bins or the decimals of the time."
            )

    @property
    def ticks(self) -> int:
        """The latest time in ticks; scaled increments are k / ticks."""
        if self.bins is None:
            return math.floor(self.horizon * 10.0**self.decimals + 1e-9)
        return math.floor(self.horizon / self.bins + 1e-9)

    def in_units(self, ticks: Any) -> Any:
        """Ticks as times in ``unit`` (numbers, arrays and tensors alike)."""
        return ticks / 10.0**self.decimals if self.bins is None else ticks * float(self.bins)


@dataclass(frozen=True, kw_only=True)
class Schema:
    """What the columns of a table of health records mean; immutable, compared by value.

    ``static`` features have one value per patient, ``temporal`` features one per patient and time; any value
    may be missing. ``outcome`` names a static categorical feature with two levels, of which the second is the
    event (a death, an admission); evaluations predict it. Rules for what a file holds:

    - ``sentinels``: numbers or texts that stand for *missing* in every feature;
    - ``out_of_bounds``: a number outside its bounds, a level that is not listed or a time outside 0..horizon
      is refused, or repaired. ``clip`` moves a number to the nearer bound, ``missing`` removes it. A level
      has no nearer one, and a row no nearer time: both repairs remove the level, and leave out the row;
    - ``duplicates``: two values of one feature of one patient at one time are refused, or aggregated;
    - ``aggregate``: what becomes of several values in one bin (or at one time): the ``mean`` (of levels the
      most frequent one, the first listed among equals) or the ``last`` in time, then in the file;
    - ``ignored``: columns (of a long table: features) that are not read; any other unknown one is refused.
    """

    name: str
    patient: str
    time: Clock
    static: tuple[Feature, ...] = ()
    temporal: tuple[Feature, ...]
    outcome: str | None = None
    aggregate: Aggregate = "mean"
    out_of_bounds: OutOfBounds = "refuse"
    duplicates: Duplicates = "refuse"
    sentinels: tuple[float | str, ...] = ()
    ignored: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for group in ("static", "temporal", "sentinels", "ignored"):
            object.__setattr__(self, group, tuple(getattr(self, group)))
        _check_name(self.name)
        _check_name(self.patient)
        _check_choice(self.aggregate, Aggregate, "aggregate")
        _check_choice(self.out_of_bounds, OutOfBounds, "out_of_bounds")
        _check_choice(self.duplicates, Duplicates, "duplicates")
        if not self.temporal:
            raise RequestError(f"schema '{self.name}' has no temporal feature; declare at least one.")
        names = [*self.columns, *self.ignored]
        for name in names:
            _check_name(name)
            if names.count(name) > 1:
                raise RequestError(f"schema '{self.name}' uses the name '{name}' twice; rename one.")
        if self.outcome is not None:
            self._check_outcome(self.outcome)
        for sentinel in self.sentinels:
            self._check_sentinel(sentinel)

    @property
    def features(self) -> tuple[Feature, ...]:
        """Static features first, then temporal ones."""
        return self.static + self.temporal

    @property
    def static_width(self) -> int:
        return sum(feature.width for feature in self.static)

    @property
    def temporal_width(self) -> int:
        return sum(feature.width for feature in self.temporal)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a wide table, in the order in which it is written."""
        return (self.patient, self.time.column, *(feature.name for feature in self.features))

    @property
    def read_from_data(self) -> tuple[str, ...]:
        """Whose bounds or levels were read from data and are therefore *not private*; empty is good."""
        clock = (self.time.column,) if self.time.from_data else ()
        return clock + tuple(feature.name for feature in self.features if feature.from_data)

    def static_place(self, name: str) -> int:
        """The column of a static feature in ``Patients.static``."""
        return _place(name, self.static, "static")

    def temporal_place(self, name: str) -> int:
        """The column of a temporal feature in ``Patients.values``."""
        return _place(name, self.temporal, "temporal")

    def _check_outcome(self, outcome: str) -> None:
        feature = next((each for each in self.static if each.name == outcome), None)
        if not isinstance(feature, Categorical) or len(feature.levels) != 2:
            raise RequestError(
                f"the outcome '{outcome}' is no static categorical feature with two levels; "
                "declare it as one, the event second."
            )

    def _check_sentinel(self, sentinel: float | str) -> None:
        """A sentinel that could be a value would silently delete that value."""
        if isinstance(sentinel, str):
            if any(isinstance(each, Categorical) and sentinel in each.levels for each in self.features):
                raise RequestError(f"the sentinel '{sentinel}' is also a level; remove one of the two.")
            return
        _check_number(sentinel, "a sentinel")
        for feature in self.features:
            if isinstance(feature, Numeric) and feature.low <= sentinel <= feature.high:
                raise RequestError(
                    f"the sentinel {sentinel:g} lies within the bounds of feature '{feature.name}'; "
                    "narrow the bounds or remove the sentinel."
                )

    def to_toml(self) -> str:
        """The schema as a TOML file that :meth:`from_toml` reads back to an equal schema."""
        lines = [f"{each.name} = {_toml(getattr(self, each.name))}" for each in _plain_fields(self)]
        lines += ["", "[time]", *_toml_fields(self.time)]
        for group in ("static", "temporal"):
            for feature in getattr(self, group):
                lines += ["", f"[[{group}]]", *_toml_fields(feature)]
        return "\n".join(lines) + "\n"

    @classmethod
    def from_toml(cls, text: str, *, named: str = "the schema") -> Schema:
        """Read a schema; everything wrong with it is one sentence that begins with its name."""
        try:
            content = tomllib.loads(text)
        except (ValueError, RecursionError) as error:  # ValueError: also a number of thousands of digits
            raise RequestError(f"{named} is not valid TOML: {str(error).rstrip('.')}.") from error
        try:
            for group in ("static", "temporal"):
                content[group] = tuple(_feature(table) for table in _tables(content, group))
            if not isinstance(content.get("time"), dict):
                raise RequestError("there is no table [time]; add it.")
            content["time"] = _build(Clock, content["time"], "[time]")
            for line, example in (("sentinels", "[-1]"), ("ignored", '["comment"]')):
                if not isinstance(content.get(line, []), list):
                    raise RequestError(f"{line} must be a list, such as {example}.")
            return _build(cls, content, "the top level")
        except RequestError as error:
            raise RequestError(f"{named}: {error}") from error

    def write(self, path: Path) -> None:
        write_text(path, self.to_toml())

    @classmethod
    def read(cls, path: Path) -> Schema:
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise RequestError(f"cannot read {path}: {error.strerror or error}.") from error
        except UnicodeDecodeError as error:
            raise RequestError(f"{path} is not a text file; give a schema in TOML.") from error
        return cls.from_toml(text, named=str(path))


def _place(name: str, features: tuple[Feature, ...], kind: str) -> int:
    for place, feature in enumerate(features):
        if feature.name == name:
            return place
    listed = ", ".join(feature.name for feature in features) or "none"
    raise RequestError(f"there is no {kind} feature '{name}'; the schema has {listed}.")


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name or name != name.strip() or not name.isprintable():
        raise RequestError(f"{name!r} is not a name; write a text without blanks around it.")


def _check_number(value: object, named: str) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise RequestError(f"{named} must be a finite number, got {value!r}.")


def _check_decimals(value: object, named: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MOST_DECIMALS:
        raise RequestError(f"{named} must be a whole number from 0 to {_MOST_DECIMALS}, got {value!r}.")


def _check_choice(value: object, choices: Any, named: str) -> None:
    if value not in get_args(choices):
        raise RequestError(f"{named} must be one of {', '.join(get_args(choices))}, got {value!r}.")


def _plain_fields(schema: Schema) -> list[Any]:
    nested = ("time", "static", "temporal")
    return [each for each in fields(schema) if each.name not in nested and _worth_writing(schema, each)]


def _worth_writing(owner: object, each: Any) -> bool:
    """Rules are always written, so that a reader sees them; None and False are the absence of a line."""
    return getattr(owner, each.name) not in (None, False) or each.default is MISSING


def _toml_fields(owner: Feature | Clock) -> list[str]:
    lines = []
    for each in fields(owner):
        if _worth_writing(owner, each):
            note = "  # not private: read from the data" if each.name == "from_data" else ""
            lines.append(f"{each.name} = {_toml(getattr(owner, each.name))}{note}")
    return lines


def _toml(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(_toml(each) for each in value)}]"
    # a JSON text, number or boolean is also a TOML one; unprintable characters were refused above
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _tables(content: Mapping[str, Any], group: str) -> list[dict[str, Any]]:
    tables = content.get(group, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise RequestError(f"{group} features are tables; write each as [[{group}]].")
    return tables


def _feature(table: dict[str, Any]) -> Feature:
    where = f"feature {table.get('name', 'without a name')!r}"
    if "levels" not in table:
        return _build(Numeric, table, where)
    if not isinstance(table["levels"], list):
        raise RequestError(f"the levels of {where} must be a list of texts.")
    return _build(Categorical, table, where)


def _build(kind: type[_Built], table: Mapping[str, Any], where: str) -> _Built:
    """A dataclass from a TOML table, with every misspelt, missing or mistyped line named."""
    known = {each.name: each for each in fields(kind)}
    for key in table:
        if key not in known:
            raise RequestError(f"{where} has an unknown line '{key}'; known are {', '.join(known)}.")
    for key, each in known.items():
        if each.default is MISSING and key not in table:
            raise RequestError(f"{where} lacks the line '{key}'; add it.")
    if not isinstance(table.get("from_data", False), bool):
        raise RequestError(f"from_data of {where} must be true or false.")
    return kind(**table)
