"""``hauberk synth``: health records, from a table to a schema."""

from __future__ import annotations

import os
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Column, Table

from hauberk.cli.screen import messages, output, print_json, progress_bars
from hauberk.cli.synth_evaluate import evaluate_files, report_evaluation
from hauberk.cli.synth_train import synth_sample, synth_train
from hauberk.errors import RequestError
from hauberk.files import write_text
from hauberk.synthesis.inspection import Draft, draft_schema
from hauberk.synthesis.schema import Categorical, Feature

synth_app = typer.Typer(
    help="Synthetic health records, with patient-level privacy.", no_args_is_help=True, name="synth"
)


class TimeUnit(StrEnum):
    seconds = "seconds"
    minutes = "minutes"
    hours = "hours"
    days = "days"


def inspect(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A long or wide table: .csv, .csv.gz, .csv.xz, .parquet, .npz."),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Where to write the schema; without it, it is printed.")
    ] = None,
    patient: Annotated[
        str | None, typer.Option(help="The column that names the patient: the privacy unit.")
    ] = None,
    time: Annotated[str | None, typer.Option(help="The column that holds the time.")] = None,
    unit: Annotated[TimeUnit | None, typer.Option(help="The unit of times that are numbers.")] = None,
    outcome: Annotated[
        str | None, typer.Option(help="A static column with two levels, for evaluations to predict.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file named by --out.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Draft a schema from a table, and mark everything that was read from the records as not private.

    A draft is a beginning: put public bounds in place of the marked ones before training privately.
    """
    if out is not None and os.path.exists(out) and not force:
        raise RequestError(f"{out} is there already; name another file or add --force.")
    with progress_bars() as progress:
        draft = draft_schema(
            file,
            patient=patient,
            time=time,
            unit=unit.value if unit else None,
            outcome=outcome,
            progress=progress,
        )
    if out is not None:
        write_text(out, draft.to_toml())
    if as_json:
        print_json(_facts(draft))
    elif out is None:
        print(draft.to_toml(), end="")
    else:
        output.print(_table(draft))
        output.print(f"Schema: {out}", highlight=False, soft_wrap=True)
    messages.print(
        "hauberk: not private: the marked bounds were read from the records; put public ones in their place.",
        style="yellow",
        highlight=False,
        soft_wrap=True,
    )


def _facts(draft: Draft) -> dict[str, object]:
    """The draft for machines; ``not_private`` names whose constants came from the records."""
    return {
        "schema": asdict(draft.schema),
        "not_private": list(draft.schema.read_from_data),
        "ignored": draft.ignored,
    }


def _table(draft: Draft) -> Table:
    schema = draft.schema
    table = Table(Column("column", no_wrap=True), "is", "from the records: not private")
    table.add_row(schema.patient, "patient, the privacy unit", "")
    clock = schema.time
    table.add_row(clock.column, f"time in {clock.unit}", f"0 to {clock.horizon:g}, {clock.steps} steps")
    for kind, features in (("static", schema.static), ("temporal", schema.temporal)):
        for feature in features:
            mark = ", the outcome" if feature.name == schema.outcome else ""
            table.add_row(feature.name, f"{kind}{mark}", _shown(feature))
    for column, reason in draft.ignored.items():
        table.add_row(column, "ignored", reason)
    return table


def _shown(feature: Feature) -> str:
    if isinstance(feature, Categorical):
        return ", ".join(feature.levels)
    decimals = f", {feature.decimals} decimals" if feature.decimals else ""
    return f"{feature.low:g} to {feature.high:g}{decimals}"


synth_app.command("inspect", epilog="Example: hauberk synth inspect vitals.csv --out vitals.toml")(inspect)
synth_app.command("evaluate", epilog="Example: hauberk synth evaluate ward:test made.csv")(evaluate_files)
synth_app.command("report", epilog="Example: hauberk synth report runs/first")(report_evaluation)
synth_app.command("train", epilog="Example: hauberk synth train --synthesizer vae --quick")(synth_train)
synth_app.command("sample", epilog="Example: hauberk synth sample vae-ward --patients 1000")(synth_sample)
