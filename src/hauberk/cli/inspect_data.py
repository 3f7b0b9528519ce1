"""``hauberk data inspect``: a first schema of one's own table."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Column, Table

from hauberk.cli.screen import messages, output, print_json
from hauberk.data.table_inspection import TableDraft, draft_table_schema
from hauberk.data.table_schema import CategoricalColumn
from hauberk.data.table_schema import Column as SchemaColumn
from hauberk.errors import RequestError
from hauberk.files import write_text


def data_inspect(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A table: .csv or .csv.gz, with a head line.")],
    label: Annotated[str | None, typer.Option(help="The column to predict (default: the last one).")] = None,
    unit: Annotated[
        str | None, typer.Option(help="The column that names the person a row belongs to.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where to write the schema; without it, it is printed.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file named by --out.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Draft a schema from a table, and mark everything that was read from the rows as not private.

    A draft is a beginning: put public bounds and levels in place of the marked ones before training.
    """
    if out is not None and os.path.exists(out) and not force:
        raise RequestError(f"{out} is there already; name another file or add --force.")
    draft = draft_table_schema(file, label=label, unit=unit)
    if out is not None:
        write_text(out, draft.to_toml())
    if as_json:
        print_json(_facts(draft))
    elif out is None:
        print(draft.to_toml(), end="")
    else:
        output.print(_table(draft))
        output.print(f"Schema: {out}", highlight=False, markup=False, soft_wrap=True)
    messages.print(
        "hauberk: not private: the marked bounds were read from the rows; put public ones in their place.",
        style="yellow",
        highlight=False,
        soft_wrap=True,
    )


def _facts(draft: TableDraft) -> dict[str, Any]:
    schema = draft.schema
    return {
        "label": schema.label,
        "unit": schema.unit,
        "missing": schema.missing,
        "columns": {column.name: _range(column) for column in schema.columns},
        "not_private": list(schema.read_from_data),
        "ignored": draft.ignored,
    }


def _range(column: SchemaColumn) -> dict[str, Any]:
    if isinstance(column, CategoricalColumn):
        return {"levels": list(column.levels)}
    return {"low": column.low, "high": column.high}


def _table(draft: TableDraft) -> Table:
    schema = draft.schema
    table = Table(Column("column", no_wrap=True), "is", "read from the rows: not private")
    if schema.unit is not None:
        table.add_row(escape(schema.unit), "unit: the person who is protected", "")
    for column in schema.columns:
        kind = "levels" if isinstance(column, CategoricalColumn) else "number"
        facts = _range(column)
        seen = ", ".join(facts["levels"]) if kind == "levels" else f"{facts['low']:g} to {facts['high']:g}"
        table.add_row(escape(column.name), "label" if column.name == schema.label else kind, escape(seen))
    for name, reason in draft.ignored.items():
        table.add_row(escape(name), "ignored", reason)
    return table
