"""A first schema of a table, drafted from its rows: *not private* in every constant.

A draft shows which columns there are and what they hold. Before it can be called public, somebody who knows
the instruments and the forms puts public bounds and levels in place of those that were read from the rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hauberk.data.table import CsvRows, read_csv
from hauberk.data.table_schema import (
    MISSING_TEXTS,
    CategoricalColumn,
    Column,
    NumericColumn,
    Refused,
    TableSchema,
)
from hauberk.errors import RequestError

MOST_LEVELS = 50
_FEW = 2
"""A column of so few different numbers is a yes or no rather than a quantity."""


@dataclass(frozen=True, kw_only=True)
class TableDraft:
    """A schema that reads the file it was drafted from, and why some columns are ignored in it."""

    schema: TableSchema
    source: str
    ignored: dict[str, str]

    def to_toml(self) -> str:
        """The schema under a heading that says what must be done before it can be called public."""
        heading = [
            f"Drafted from {self.source}: NOT PRIVATE.",
            "Every column with from_data = true was read from the rows. Put public bounds and levels in",
            "its place and delete that line. The first from_data is about missing and ignored, and about",
            "which columns are numbers: settle them by what is publicly known, then delete it too.",
            "Until the last one is gone, no privacy can be proven.",
            *(f"Ignored: {column} ({reason})." for column, reason in self.ignored.items()),
        ]
        return "\n".join(f"# {line}" for line in heading) + "\n\n" + self.schema.to_toml()


def draft_table_schema(path: Path, *, label: str | None = None, unit: str | None = None) -> TableDraft:
    """Numbers get the bounds that were seen, other columns the levels that were seen.

    ``label`` defaults to the last column, ``unit`` to nobody. A column with more than ``MOST_LEVELS``
    different texts is ignored as free text. Where a value is missing, missing becomes a level.
    """
    rows = read_csv(path)
    names = [name for name in rows.header if name != unit]
    if unit is not None and unit not in rows.header:
        raise RequestError(f"{path} has no column '{unit}' for --unit; it has {', '.join(rows.header)}.")
    if label is None and not names:
        raise RequestError(f"{path} has no column but that of --unit; give one to predict and one more.")
    label = names[-1] if label is None else label
    if label not in names:
        raise RequestError(f"{path} has no column '{label}' for --label; it has {', '.join(names)}.")
    columns: list[Column] = []
    ignored: dict[str, str] = {}
    absent = False
    for name in names:
        seen = _seen(rows, name)
        present = [each for each in seen if each not in MISSING_TEXTS]
        column = _column(name, present, label=name == label)
        if isinstance(column, str):
            ignored[name] = column
            continue
        columns.append(column)
        absent = absent or (len(present) < len(seen) and name != label)
    if label in ignored:
        raise RequestError(f"the label '{label}' of {path} {ignored[label]}; name another with --label.")
    schema = TableSchema(
        label=label,
        columns=tuple(columns),
        unit=unit,
        missing="level" if absent else "refuse",
        ignored=tuple(ignored),
        from_data=True,
    )
    return TableDraft(schema=schema, source=path.name, ignored=ignored)


def _seen(rows: CsvRows, name: str) -> list[str]:
    place = rows.header.index(name)
    return sorted({entries[place] for _, entries in rows.rows})


def _column(name: str, seen: Sequence[str], *, label: bool) -> Column | str:
    """The column as it looks in the rows, or the reason for which it is ignored."""
    if not seen:
        return "holds no value"
    if label and len(seen) < 2:
        return "has one level only"
    numbers = [_number(each) for each in seen]
    known = [each for each in numbers if each is not None]
    if len(known) == len(seen) and len(seen) > _FEW and not label:
        low, high = min(known), max(known)
        if math.isfinite(high - low):
            return NumericColumn(name=name, low=low, high=high, from_data=True)
        return "holds numbers too large to scale"
    if len(seen) > MOST_LEVELS:
        return f"has {len(seen)} different texts"
    if not all(each.isprintable() for each in seen):
        return "holds unprintable texts"
    return CategoricalColumn(name=name, levels=tuple(seen), from_data=True)


_ANY_NUMBER = NumericColumn(name="any", low=-1e300, high=1e300)


def _number(entry: str) -> float | None:
    """By the rule that will read it."""
    try:
        _ANY_NUMBER.encode(entry)
    except Refused:
        return None
    return float(entry)
