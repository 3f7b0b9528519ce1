"""A first schema for a table, drafted from the table itself, to be corrected by somebody who knows it.

What is read from records tells about records: a maximum is some patient's value. Every bound, level list,
horizon and number of steps of a draft is therefore marked ``from_data`` (*not private*), and as long as one
mark is left nothing can be proven about what is trained with the schema. The way out is to replace the bounds
by public ones (the instrument's range, a textbook's) and to delete the marks.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import numpy as np

from hauberk.errors import RequestError
from hauberk.progress import Progress, silent
from hauberk.synthesis.cells import LONG_COLUMNS, MISSING_TEXTS, Source, text_of
from hauberk.synthesis.encode import is_long
from hauberk.synthesis.extra import pandas
from hauberk.synthesis.reading import read_table
from hauberk.synthesis.schema import FINEST_GRID, SECONDS, Categorical, Clock, Feature, Numeric, Schema, Unit

MOST_LEVELS = 50
MOST_STEPS = 50
_MOST_DECIMALS = 4
_PATIENT_NAMES = ("patient", "patientid", "subject", "subjectid", "person", "personid", "uniquepid", "pid")
_STAY_NAMES = ("recordid", "record", "stayid", "stay", "patientunitstayid", "id")
_TIME_NAMES = ("time", "charttime", "timestamp", "datetime", "date", "offset", "observationoffset")
_UNIT_NAMES: dict[str, Unit] = {
    **dict.fromkeys(("second", "seconds", "sec"), "seconds"),
    **dict.fromkeys(("minute", "minutes", "min"), "minutes"),
    **dict.fromkeys(("hour", "hours"), "hours"),
    **dict.fromkeys(("day", "days"), "days"),
}


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A schema whose every constant is *not private*, and why some columns are ignored in it."""

    schema: Schema
    source: str
    ignored: dict[str, str]

    def to_toml(self) -> str:
        """The schema with a heading that says what must be done before it can be called public."""
        heading = [
            f"Drafted from {self.source}: NOT PRIVATE.",
            "Every table with from_data = true was read from the records. Put public bounds and levels in",
            "its place and delete that line; until the last one is gone, no privacy can be proven.",
            *(f"Ignored: {column} ({reason})." for column, reason in self.ignored.items()),
        ]
        return "\n".join(f"# {line}" for line in heading) + "\n\n" + self.schema.to_toml()


def draft_schema(
    path: Path,
    *,
    patient: str | None = None,
    time: str | None = None,
    unit: Unit | None = None,
    outcome: str | None = None,
    progress: Progress = silent,
) -> Draft:
    """A schema that reads the file it was drafted from; *not private* in every constant.

    A column that never changes within a patient, and is given in all rows or in one, is taken as static.
    Numbers get the bounds and decimals that were seen, other columns the levels that were seen; more than
    ``MOST_LEVELS`` levels are ignored as free text. Patient and time columns are guessed from their names
    where they are not given. Two values at one time, and times before zero, switch on the rules that repair
    them; a patient without any measurement is still refused.
    """
    source = read_table(path)
    columns = [str(column) for column in source.table.columns]
    patient = _found(columns, patient, (*_PATIENT_NAMES, *_STAY_NAMES), "patient", source)
    time = _found(columns, time, (*_TIME_NAMES, *_UNIT_NAMES), "time", source)
    unit = unit or _UNIT_NAMES.get(_plain(time)) or "hours"
    entries = _entries(source, columns, patient, time)
    if outcome is not None and outcome not in entries:
        raise RequestError(f"{source.named} has no column '{outcome}' for the outcome; name another.")
    rows = None if is_long(columns) else source.table[patient].map(text_of).value_counts()
    static: list[Feature] = []
    temporal: list[Feature] = []
    ignored: dict[str, str] = {}
    for done, (name, (owners, column, timed)) in enumerate(entries.items(), start=1):
        feature = _feature(name, column, outcome=name == outcome)
        if isinstance(feature, str):
            ignored[name] = feature
        elif name == outcome or _is_static(owners, column, timed, rows):
            static.append(feature)
        else:
            temporal.append(feature)
        progress("columns", done, len(entries))
    if not temporal:
        raise RequestError(
            f"no column of {source.named} changes within a patient; check that --patient {patient} names the "
            "patient and not the row."
        )
    if outcome in ignored:
        raise RequestError(f"the outcome '{outcome}' is ignored because it {ignored[outcome]}; name another.")
    clock, times = _clock(source, patient, time, unit)
    keys = [patient, *([LONG_COLUMNS[0]] if is_long(columns) else [])]
    ticks = (times * 10.0**clock.decimals).round()
    schema = Schema(
        name=re.sub(r"\W+", "_", path.name.split(".")[0]).strip("_") or "drafted",
        patient=patient,
        time=clock,
        static=tuple(static),
        temporal=tuple(temporal),
        outcome=outcome,
        out_of_bounds="missing" if bool((times < 0).any()) else "refuse",
        duplicates="aggregate" if _has_duplicates(source, keys, ticks, static) else "refuse",
        ignored=tuple(ignored),
    )
    return Draft(schema=schema, source=path.name, ignored=ignored)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z]", "", name.lower())


def _found(columns: list[str], given: str | None, usual: tuple[str, ...], what: str, source: Source) -> str:
    if given is not None:
        if given not in columns:
            raise RequestError(f"{source.named} has no column '{given}'; it has {', '.join(columns)}.")
        return given
    by_name = {_plain(column): column for column in reversed(columns)}
    found = next((by_name[name] for name in usual if name in by_name), None)
    if found is None:
        raise RequestError(
            f"the {what} column of {source.named} cannot be told from {', '.join(columns)}; "
            f"name it with --{what}."
        )
    return found


def _entries(source: Source, columns: list[str], patient: str, time: str) -> dict[str, tuple[Any, Any, Any]]:
    """For each feature its patients, its entries that are not missing, and whether they have a time."""
    table = source.table
    names = table[patient].map(text_of)
    timed = ~_missing(table[time])
    if is_long(columns):
        features = table[LONG_COLUMNS[0]].map(text_of)
        parts = {str(name): features == name for name in features.unique()}
        values = dict.fromkeys(parts, table[LONG_COLUMNS[1]])
        for column in columns:
            if column not in (patient, time, *LONG_COLUMNS):
                raise RequestError(
                    f"{source.named} has one measurement per row and the further column '{column}'; "
                    "remove it."
                )
    else:
        everything = np.ones(len(table), dtype=bool)
        parts = {column: everything for column in columns if column not in (patient, time)}
        values = {column: table[column] for column in parts}
    entries = {}
    for name, rows in parts.items():
        kept = rows & ~_missing(values[name])
        entries[name] = (names[kept], values[name][kept], timed[kept])
    return entries


def _missing(column: Any) -> Any:
    pd = pandas()
    if pd.api.types.is_numeric_dtype(column):
        return column.isna()
    return column.isna() | column.astype("str").str.strip().isin(MISSING_TEXTS)


def _is_static(owners: Any, column: Any, timed: Any, rows: Any) -> bool:
    """It never changes within a patient, and is not merely measured now and then.

    A static value is repeated in all rows of a patient or given once (``rows`` counts a patient's rows, None
    in a long table), and at least for one patient it is repeated or stands without a time.
    """
    grouped = column.map(text_of).groupby(owners.to_numpy())
    given = grouped.size()
    if int(grouped.nunique().max()) > 1:
        return False
    if rows is not None and not bool(((given == 1) | (given == rows.loc[given.index])).all()):
        return False
    return int(given.max()) > 1 or not bool(timed.all())


def _feature(name: str, column: Any, *, outcome: bool) -> Feature | str:
    """The feature as it looks in the data, or the reason for which the column is ignored."""
    texts = sorted({text_of(each) for each in column.unique()})
    if not texts:
        return "holds no value"
    numbers = _decimals(texts)
    if numbers is not None and name.lower().endswith("id") and all(_like_an_identifier(n) for n in numbers):
        return "looks like an identifier"
    if numbers is None or outcome or (set(texts) <= {"0", "1"}):
        if outcome and len(texts) != 2:
            return f"has {len(texts)} levels instead of two"
        if len(texts) > MOST_LEVELS:
            return f"has {len(texts)} different texts"
        if not all(text.isprintable() for text in texts):
            return "holds unprintable texts"
        return Categorical(name=name, levels=tuple(texts), from_data=True)
    return _numeric(name, numbers)


def _like_an_identifier(number: Decimal) -> bool:
    return number >= 1000 and number == number.to_integral_value()


def _decimals(texts: list[str]) -> list[Decimal] | None:
    try:
        numbers = [Decimal(text) for text in texts]
    except InvalidOperation:
        return None
    return numbers if all(number.is_finite() for number in numbers) else None


def _numeric(name: str, numbers: list[Decimal]) -> Numeric | str:
    low, high = min(numbers), max(numbers)
    places = max(-int(number.normalize().as_tuple().exponent) for number in numbers)
    for decimals in range(min(max(places, 0), _MOST_DECIMALS), -1, -1):
        scale = 10**decimals
        first, last = math.floor(low * scale), math.ceil(high * scale)
        if last - first < FINEST_GRID:
            last = max(last, first + 1)
            if decimals == 0:
                return Numeric(name=name, low=first, high=last, from_data=True)
            return Numeric(name=name, low=first / scale, high=last / scale, decimals=decimals, from_data=True)
    return "holds numbers too large to scale"


def _clock(source: Source, patient: str, time: str, unit: Unit) -> tuple[Clock, Any]:
    """The clock as it looks in the data (the latest time, the most times of any patient), and all times."""
    pd = pandas()
    column = source.table[time]
    present = ~_missing(column)
    owners, column = source.table[patient][present].map(text_of), column[present].astype("str").str.strip()
    numbers = pd.to_numeric(column, errors="coerce")
    timestamp = bool(numbers.isna().any())
    if timestamp:
        stamps = pd.to_datetime(column, errors="coerce", format="ISO8601", utc=True)
        if bool(stamps.isna().any()):
            row = int(np.flatnonzero(present)[int(stamps.isna().to_numpy().argmax())])
            raise RequestError(
                f"{source.where(row)} holds '{source.table[time].iloc[row]}' in column {time}, which is "
                "neither a number nor a time such as 2025-01-31 08:30:00; correct it."
            )
        since = stamps - stamps.groupby(owners).transform("min")
        numbers = since.dt.total_seconds() / SECONDS[unit]
    latest = float(numbers.max()) if len(numbers) else 0.0
    decimals = _time_decimals(numbers.to_numpy(dtype=np.float64), latest)
    steps = int(numbers.groupby(owners).nunique().max()) if len(numbers) else 1
    clock = Clock(
        column=time,
        unit=unit,
        horizon=max(math.ceil(latest), 1),
        steps=max(min(steps, MOST_STEPS), 1),
        decimals=decimals,
        format="timestamp" if timestamp else "number",
        from_data=True,
    )
    return clock, numbers


def _time_decimals(times: Any, latest: float) -> int:
    for decimals in range(_MOST_DECIMALS):
        scaled = times * 10.0**decimals
        if (
            np.abs(scaled - np.rint(scaled)).max(initial=0) < 1e-6
            or latest * 10 ** (decimals + 1) > FINEST_GRID / 2
        ):
            return decimals
    return _MOST_DECIMALS - 1


def _has_duplicates(source: Source, keys: list[str], ticks: Any, static: list[Feature]) -> bool:
    """Whether a patient has two rows in one tick of the clock (in a long table: of one feature too)."""
    table = source.table.loc[ticks.index, keys]
    if LONG_COLUMNS[0] in keys:
        table = table[~table[LONG_COLUMNS[0]].map(text_of).isin([feature.name for feature in static])]
    table = pandas().concat([table, ticks.loc[table.index]], axis=1, ignore_index=True)  # whatever the names
    return bool(table.duplicated().any())
