"""``hauberk predict``: a run's answers to a file's inputs."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from hauberk.cli.examine import RunArgument, find_run
from hauberk.cli.screen import messages, output, print_json, progress_bars
from hauberk.errors import RequestError
from hauberk.files import write_text
from hauberk.methods.prediction import Prediction, Predictions, prepare_prediction
from hauberk.report.rounding import count, length, plain

_MOST_ROWS = 50  # inputs that are shown; all are in --json and --out


def predict(
    run: RunArgument,
    inputs: Annotated[
        Path,
        typer.Argument(metavar="INPUT", help="A .csv table, an .npz file with x, a picture, or a folder."),
    ],
    samples: Annotated[int | None, typer.Option(help="Draws per input (default: as on the card).")] = None,
    alpha: Annotated[
        float | None, typer.Option(help="Error probability per input (default: as on the card).")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write one line per input to this .csv file.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or auto.")] = "auto",
    seed: Annotated[int | None, typer.Option(help="Of the draws (default: the run's own).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Label and certified radius of every input, or that the classifier abstains.

    A table is read by the run's schema (its label may be left out), pictures are brought to the run's size.
    For a table's numbers the radius is also given in their own units.
    """
    if out is not None and (
        out.suffix.lower() != ".csv" or os.path.isdir(out) or not os.path.isdir(out.parent)
    ):
        raise RequestError(f"--out takes a .csv file in a folder that exists, not {out}")
    path = find_run(run)
    request = prepare_prediction(path, inputs, samples=samples, alpha=alpha, seed=seed, device=device)
    for notice in () if request.inference is None else request.inference.notices:
        messages.print(f"hauberk: {notice}", style="yellow", highlight=False, markup=False, soft_wrap=True)
    with progress_bars() as progress:
        answers = request.answer(progress=progress)
    if out is not None:
        write_text(out, answers.to_csv())
    if as_json:
        rows = [asdict(row) for row in answers.rows]
        print_json({"run": str(path), **answers.summary(), "inputs": rows})
        return
    output.print(_table(answers))
    for sentence in _meaning(answers):
        output.print(sentence, highlight=False, markup=False, soft_wrap=True)
    if out is not None:
        output.print(f"Predictions: {out}", highlight=False, markup=False, soft_wrap=True)


def _table(answers: Predictions) -> Table:
    own = tuple(answers.rows[0].in_users_units)
    radius = () if answers.certificate is None else ("radius", *(f"± {escape(name)}" for name in own))
    table = Table("input", "label", *radius, box=None, padding=(0, 2))
    for row in answers.rows[:_MOST_ROWS]:
        table.add_row(*map(escape, _cells(row, own)))
    if len(answers.rows) > _MOST_ROWS:
        table.add_row("…", f"{count(len(answers.rows) - _MOST_ROWS)} more: --out or --json")
    return table


def _cells(row: Prediction, own: tuple[str, ...]) -> list[str]:
    if row.abstain:
        return [row.input, "abstains"]
    assert row.label is not None
    cells = [row.input, row.label]
    if row.radius is not None:
        # rounded down: a radius must not be shown larger than it was certified
        moves = [row.in_users_units[name] for name in own]
        cells += [length(row.radius), *("–" if move is None else length(move) for move in moves)]
    return cells


def _meaning(answers: Predictions) -> list[str]:
    if answers.certificate is None:
        return ["This run's method promises no robustness: labels without a radius."]
    said = (
        f"Radius: {answers.norm}, in inputs as the network gets them, scaled to [0, 1] (of a picture its "
        f"centred square in the run's size); each is wrong with probability at most "
        f"{plain(answers.alpha or 0.0)}, from {count(answers.samples or 0)} draws."
    )
    if not answers.rows[0].in_users_units:
        return [said]
    return [said, "± : how far this column alone may move, in its own units, before the answer may change."]
