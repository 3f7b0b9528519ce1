"""Tables as CSV: a head line, then one row per record, read by a schema and refused with line and column.

The file is UTF-8 with commas, also gzipped. Every entry is checked against the schema before anything is
trained; numbers are scaled by public bounds, levels become 0/1 inputs (`hauberk.data.table_schema`).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from hauberk.data.input_form import ONE_RECORD, DescribedSplit, InputForm
from hauberk.data.integrity import read_uncompressed
from hauberk.data.persons import ONE_PERSON, Labelled, split_by_person
from hauberk.data.table_schema import Refused, TableSchema
from hauberk.errors import RequestError

ENDINGS = (".csv", ".csv.gz")
_BETWEEN = "\x1f"  # entries of a row, where a row is told by its content
_LONGEST_SHOWN = 40


def is_table(path: Path | str) -> bool:
    return str(path).lower().endswith(ENDINGS)


@dataclass(frozen=True, kw_only=True)
class CsvRows:
    """A file's head line, and its rows with their line numbers."""

    path: Path
    header: tuple[str, ...]
    rows: Sequence[tuple[int, tuple[str, ...]]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """Encoded rows: inputs (N, d), labels (N,) where they were asked for, the person or content of a row."""

    x: torch.Tensor
    y: torch.Tensor | None
    owners: tuple[str, ...]
    lines: tuple[int, ...]


def read_csv(path: Path) -> CsvRows:
    """All rows of a file, each as long as its head line, blanks around entries removed."""
    content = read_uncompressed(path)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise RequestError(f"line {line} of {path} is not UTF-8; save the file in that encoding.") from error
    rows = list(_rows(text, path))
    if not rows:
        raise RequestError(f"{path} is empty; give a head line and one row per record.")
    (first, header), body = rows[0], rows[1:]
    for name in header:
        if not name or not name.isprintable() or header.count(name) > 1:
            raise RequestError(
                f"line {first} of {path} names a column {_shown(name)} "
                f"{'twice' if header.count(name) > 1 else 'that is no name'}; give each column one name."
            )
    if not body:
        raise RequestError(f"{path} has a head line and no rows; give at least one.")
    for line, entries in body:
        if len(entries) != len(header):
            raise RequestError(
                f"line {line} of {path} has {len(entries)} entries, but the head line names {len(header)} "
                "columns; give every row as many."
            )
    return CsvRows(path=path, header=header, rows=body)


def _rows(text: str, path: Path) -> Iterator[tuple[int, tuple[str, ...]]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, skipinitialspace=True)
    while True:
        try:
            entries = next(reader, None)
        except csv.Error as error:
            raise RequestError(
                f"line {reader.line_num} of {path} is no line of a CSV file ({str(error).rstrip('.')}); "
                "correct it."
            ) from error
        if entries is None:
            return
        if entries:  # a blank line is none
            yield reader.line_num, tuple(each.strip() for each in entries)


def read_table(path: Path, schema: TableSchema, *, labelled: bool = True) -> Table:
    """The rows of ``path`` by ``schema``; without ``labelled``, label, unit and ignored columns may lack."""
    rows = read_csv(path)
    needed = [each.name for each in schema.predictors]
    beside = [schema.label, *(() if schema.unit is None else (schema.unit,))]
    needed += beside if labelled else []
    for name in rows.header:
        if name not in (*needed, *beside, *schema.ignored):
            raise RequestError(
                f"{path} has a column {_shown(name)} that its schema does not know; declare it there, "
                "or list it as ignored."
            )
    places = {name: place for place, name in enumerate(rows.header)}
    for name in needed:
        if name not in places:
            raise RequestError(f"{path} has no column '{name}', which its schema declares; add it.")
    x, y, owners = [], [], []
    for line, entries in rows.rows:

        def refused(name: str, error: Refused, line: int = line, entries: Sequence[str] = entries) -> str:
            entry = _shown(entries[places[name]])
            return f"line {line} of {path} holds {entry} in column '{name}', {error}; correct it."

        inputs: list[float] = []
        for column in schema.predictors:
            try:
                inputs.extend(schema.encode(column, entries[places[column.name]]))
            except Refused as error:
                raise RequestError(refused(column.name, error)) from error
        x.append(inputs)
        if not labelled:
            continue
        try:
            y.append(schema.class_of(entries[places[schema.label]]))
        except Refused as error:
            raise RequestError(refused(schema.label, error)) from error
        owners.append(_owner(entries, places, schema, line=line, path=path))
    return Table(
        x=torch.tensor(x, dtype=torch.float32),
        y=torch.tensor(y, dtype=torch.int64) if labelled else None,
        owners=tuple(owners),
        lines=tuple(line for line, _ in rows.rows),
    )


def _owner(
    entries: Sequence[str], places: dict[str, int], schema: TableSchema, *, line: int, path: Path
) -> str:
    """The person a row belongs to; a row of nobody is told by what it holds, never by where it stands."""
    if schema.unit is None:
        return _BETWEEN.join(entries[places[column.name]] for column in schema.columns)
    person = entries[places[schema.unit]]
    if not person:
        raise RequestError(
            f"line {line} of {path} names nobody in column '{schema.unit}'; name the person there."
        )
    return person


def load_table(
    path: Path,
    *,
    schema: TableSchema,
    records: int | None,
    test: Path | None = None,
    holdout: float | None = None,
    max_per_unit: int | None = None,
) -> DescribedSplit:
    """The table as a checked split. With a ``unit`` column a record is one person with all rows."""
    persons = schema.unit is not None
    if records is None:
        what = "persons" if persons else "training records"
        raise RequestError(
            f"the number of {what} of {path} is not declared; pass --records, because a number counted from "
            "private data would not be public."
        )
    form = InputForm(
        classes=schema.classes,
        unit=ONE_PERSON if persons else ONE_RECORD,
        unprovable=schema.unprovable,
        schema=schema.to_toml(),
    )
    return split_by_person(
        name=path.stem,
        train=_labelled(read_table(path, schema)),
        test=None if test is None else _labelled(read_table(test, schema)),
        holdout=holdout,
        form=form,
        persons=persons,
        most=max_per_unit,
        records=records,
        note="",
    )


def _labelled(table: Table) -> Labelled:
    assert table.y is not None
    return Labelled(x=table.x, y=table.y, owners=table.owners)


def _shown(entry: str) -> str:
    """As much of an entry as belongs in a sentence."""
    short = entry if len(entry) <= _LONGEST_SHOWN else f"{entry[:_LONGEST_SHOWN]}…"
    return f"'{''.join(each if each.isprintable() else '�' for each in short)}'"
