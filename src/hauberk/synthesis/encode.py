"""Tables to tensors, by the rules of a schema.

Every rule looks at the rows of one patient alone: what becomes of a patient does not depend on who else is in
the table, so neighbouring tables (one patient with all rows added or removed) give tensors that differ in
that patient only. All constants come from the schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch

from hauberk.errors import RequestError
from hauberk.synthesis.cells import LONG_COLUMNS, Array, Cells, Reader, Repairs, Source, text_of
from hauberk.synthesis.extra import pandas
from hauberk.synthesis.grouping import Grouping
from hauberk.synthesis.patients import Patients
from hauberk.synthesis.schema import Feature, Schema

Empty = Literal["refuse", "drop"]


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """Patients, and the counts of what the schema's rules repaired to make them (*not private*)."""

    patients: Patients
    repairs: Repairs


def encode(
    table: Any, schema: Schema, *, named: str = "the table", empty: Empty = "refuse", repair: bool = True
) -> Encoded:
    """A pandas table as patients, in the order in which they first appear.

    A *wide* table has one row per patient and time and a column for each feature; static values may stand in
    any or all rows of a patient, and a row that holds only static values needs no time. A *long* table has
    the columns ``feature`` and ``value`` and one measurement per row. Columns that the schema does not know,
    values and times that it refuses, and patients without a measurement are reported with row and column;
    ``empty="drop"`` leaves such patients out instead and counts them. With ``repair=False`` everything that
    the schema's rules would change is refused as well.
    """
    return encode_sources([Source(table=table, named=named)], schema, empty=empty, repair=repair)


def encode_sources(
    sources: Sequence[Source], schema: Schema, *, empty: Empty = "refuse", repair: bool = True
) -> Encoded:
    """As :func:`encode`, from several tables that are keyed by the same patient column."""
    rules = schema if repair else replace(schema, out_of_bounds="refuse", duplicates="refuse", sentinels=())
    reader = Reader(rules, strict=not repair)
    identifiers, patients_of = _identifiers(sources, schema)
    _check_columns(sources, schema)
    static, temporal = _all_cells(sources, patients_of, schema, reader)
    grouping = Grouping(rules, reader, sources)
    values, observed, increments, lengths = grouping.temporal(temporal, len(identifiers))
    static_values, static_observed = grouping.static(static, len(identifiers))
    kept = lengths > 0
    if not kept.all():
        if empty == "refuse":
            raise _empty_patient(int((~kept).argmax()), identifiers, patients_of, sources, schema)
        reader.repairs += Repairs(dropped=int((~kept).sum()))
        if not kept.any():
            raise RequestError(f"no patient of {sources[0].named} has a measurement; give at least one.")
    patients = Patients(
        schema=schema,
        static=torch.from_numpy(static_values[kept]),
        static_observed=torch.from_numpy(static_observed[kept]),
        increments=torch.from_numpy(increments[kept]),
        values=torch.from_numpy(values[kept]),
        observed=torch.from_numpy(observed[kept]),
        lengths=torch.from_numpy(lengths[kept]),
        identifiers=tuple(identifiers[place] for place in np.flatnonzero(kept)),
    )
    return Encoded(patients=patients, repairs=reader.repairs)


def _identifiers(sources: Sequence[Source], schema: Schema) -> tuple[list[str], list[Array]]:
    """The patients' identifiers in order of appearance, and for every row of every table its patient."""
    pd = pandas()
    columns = []
    for source in sources:
        if schema.patient not in source.table.columns:
            raise RequestError(f"{source.named} has no column '{schema.patient}', which names the patient.")
        codes, uniques = pd.factorize(source.table[schema.patient])
        texts = np.array([*(text_of(each) for each in uniques), ""], dtype=object)[codes]
        blank = texts == ""
        if blank.any():
            where = source.where(int(blank.argmax()))
            raise RequestError(f"{where} names no patient in column {schema.patient}; fill it in.")
        columns.append(texts)
    codes, uniques = pd.factorize(np.concatenate(columns))
    if not len(uniques):
        raise RequestError(f"{sources[0].named} holds no rows; give at least one patient.")
    return list(uniques), np.split(codes, np.cumsum([len(each) for each in columns])[:-1])


def _check_columns(sources: Sequence[Source], schema: Schema) -> None:
    names = {feature.name for feature in schema.features}
    absent = set(names)
    for source in sources:
        columns = list(source.table.columns)
        long = is_long(columns, schema)
        known = {*schema.columns, *schema.ignored, *(LONG_COLUMNS if long else ())}
        for column in columns:
            if column not in known:
                raise RequestError(
                    f"{source.named} has the unknown column '{column}'; remove it, or declare it or list it "
                    f"as ignored in schema '{schema.name}'."
                )
        needs_time = long or any(feature.name in columns for feature in schema.temporal)
        if needs_time and schema.time.column not in columns:
            raise RequestError(f"{source.named} has no column '{schema.time.column}', which holds the time.")
        absent = set() if long else absent - set(columns)
    for feature in schema.features:
        if feature.name in absent:
            raise RequestError(
                f"{sources[0].named} has no column '{feature.name}', which schema '{schema.name}' declares; "
                "add it (empty, if nothing was measured) or remove it from the schema."
            )


def is_long(columns: Sequence[str], schema: Schema | None = None) -> bool:
    """Whether a table with these columns has one measurement per row."""
    names = {feature.name for feature in schema.features} if schema is not None else set()
    return set(LONG_COLUMNS) <= set(columns) and not names & set(LONG_COLUMNS)


def _all_cells(
    sources: Sequence[Source], patients_of: Sequence[Array], schema: Schema, reader: Reader
) -> tuple[Cells, Cells]:
    """Every observed value of all tables: the static ones and the temporal ones, each in file order."""
    groups: dict[bool, list[Cells]] = {False: [], True: []}
    for number, (source, patients) in enumerate(zip(sources, patients_of, strict=True)):
        timed = np.zeros(len(source.table), dtype=bool)
        found = []
        for column in _columns(source, schema):
            value, observed = reader.values(column.feature, column.entries, column.where)
            rows = column.rows[observed]
            found.append((column, rows, value[observed]))
            if column.temporal:
                timed[rows] = True
        times = np.full(len(source.table), np.nan)
        if schema.time.column in source.table.columns:
            times = reader.times(source.table[schema.time.column], timed, source.where)
        for column, rows, value in found:
            groups[column.temporal].append(
                Cells(
                    patient=patients[rows],
                    feature=np.full(len(rows), column.place),
                    time=times[rows],
                    value=value,
                    row=rows,
                    source=np.full(len(rows), number),
                )
            )
    return Cells.join(groups[False]), Cells.join(groups[True])


@dataclass(frozen=True, kw_only=True)
class _Column:
    """The entries of one feature in one table, and the rows in which they stand."""

    feature: Feature
    temporal: bool
    place: int
    rows: Array
    entries: Any
    source: Source

    def where(self, entry: int) -> str:
        return self.source.where(int(self.rows[entry]))


def _columns(source: Source, schema: Schema) -> Iterator[_Column]:
    table = source.table
    long = is_long(list(table.columns), schema)
    measured = _rows_by_feature(source, schema) if long else {}
    for temporal, features in ((False, schema.static), (True, schema.temporal)):
        for place, feature in enumerate(features):
            if feature.name in measured:
                rows = measured[feature.name]
                entries = table[LONG_COLUMNS[1]].iloc[rows]
            elif feature.name in table.columns:
                rows, entries = np.arange(len(table)), table[feature.name]
            else:
                continue
            yield _Column(
                feature=feature, temporal=temporal, place=place, rows=rows, entries=entries, source=source
            )


def _rows_by_feature(source: Source, schema: Schema) -> dict[str, Array]:
    """For each feature the rows of a long table that measure it."""
    column = source.table[LONG_COLUMNS[0]]
    codes, uniques = pandas().factorize(column)
    names = [text_of(each) for each in uniques]
    known = {*(feature.name for feature in schema.features), *schema.ignored}
    strange = np.array([name not in known for name in names] + [True])[codes]
    if strange.any():
        row = int(strange.argmax())
        held = f"'{names[codes[row]]}'" if codes[row] >= 0 else "nothing"
        raise RequestError(
            f"{source.where(row)} holds {held} in column {LONG_COLUMNS[0]}, which is no feature of schema "
            f"'{schema.name}'; remove the row or declare the feature."
        )
    order = np.argsort(codes, kind="stable")
    ends = np.searchsorted(codes[order], np.arange(len(names) + 1))
    return {name: order[ends[code] : ends[code + 1]] for code, name in enumerate(names)}


def _empty_patient(
    place: int,
    identifiers: list[str],
    patients_of: Sequence[Array],
    sources: Sequence[Source],
    schema: Schema,
) -> RequestError:
    source, rows = next(
        (source, patients == place)
        for source, patients in zip(sources, patients_of, strict=True)
        if (patients == place).any()
    )
    return RequestError(
        f"{source.where(int(rows.argmax()))} begins patient '{identifiers[place]}' in column "
        f"{schema.patient}, of whom no measurement is left; remove the patient or add one."
    )
