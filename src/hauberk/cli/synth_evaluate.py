"""``hauberk synth evaluate`` and ``hauberk synth report``: what synthetic patients are worth, on one page."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Column, Table

from hauberk.accounting.card import Card
from hauberk.cli.screen import messages, output, print_json, progress_bars
from hauberk.cli.train import RUNS
from hauberk.data.folder import home_expanded
from hauberk.errors import RequestError
from hauberk.files import read_json, write_json
from hauberk.progress import Progress
from hauberk.report.rounding import at_least
from hauberk.report.synthesis_report import write_synthesis_report
from hauberk.report.synthesis_wording import lines, within
from hauberk.synthesis.encode import Encoded
from hauberk.synthesis.evaluation import Evaluation, evaluate
from hauberk.synthesis.presets import PRESETS, find_preset, load_patients
from hauberk.synthesis.reading import FORMATS, read_patients
from hauberk.synthesis.schema import Schema

EVALUATION, REPORT, CARD = "evaluation.json", "report.html", "card.json"


def evaluate_files(
    real: Annotated[
        str,
        typer.Argument(
            metavar="REAL", help="Real patients not used in training: a file, or a preset such as ward:test."
        ),
    ],
    synthetic: Annotated[
        str,
        typer.Argument(metavar="SYNTHETIC", help="Synthetic patients: a file, or a run with synthetic.csv."),
    ],
    schema: Annotated[Path | None, typer.Option(help="The schema of the files (TOML).")] = None,
    data: Annotated[str | None, typer.Option(help="Or: the preset whose schema the files have.")] = None,
    train: Annotated[
        str | None, typer.Option(help="What the synthesizer learned from: a file or a preset with a part.")
    ] = None,
    held_out: Annotated[
        str | None, typer.Option(help="Patients to test membership against, if not REAL.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="A folder for evaluation.json and report.html, made if needed.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of samples, splits and clusters.")] = 0,
    patients: Annotated[int, typer.Option(help="Look at no more of each set than this.")] = 4000,
    alpha: Annotated[float, typer.Option(help="Error level of intervals and of the epsilon bound.")] = 0.05,
    delta: Annotated[float, typer.Option(help="Delta of the privacy statement that is tested.")] = 1e-5,
    data_dir: Annotated[Path | None, typer.Option(help="Where the presets' files are.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an earlier evaluation.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole evaluation as JSON.")] = False,
) -> None:
    """Compare synthetic patients with real ones: nearness, usefulness, and what they tell about members.

    Reads real records without noise: the result is not covered by any privacy guarantee.
    """
    folder = None if out is None else _folder(out, force)
    wanted = {"real": real, "synthetic": synthetic, "train": train, "held-out": held_out}
    named = {name: text for name, text in wanted.items() if text is not None}
    found = _evaluated(
        named,
        _schema(schema, data, named),
        data_dir,
        seed=seed,
        patients=patients,
        alpha=alpha,
        delta=delta,
    )
    if folder is not None:
        _make(folder)
        write_json(folder / EVALUATION, found.to_json())
        _draw(found, folder)
    if as_json:
        print_json(found.to_json())
        return
    _show(found)
    if folder is not None:
        output.print(f"Report: {folder / REPORT}", highlight=False, soft_wrap=True)


def report_evaluation(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="A folder with evaluation.json, or its name below runs/.")
    ],
    real: Annotated[
        str | None,
        typer.Option(help="Evaluate the run's synthetic patients (synthetic.csv, say) against these first."),
    ] = None,
    train: Annotated[str | None, typer.Option(help="With --real: what the synthesizer learned from.")] = None,
    schema: Annotated[Path | None, typer.Option(help="With --real: the schema of the files.")] = None,
    seed: Annotated[int, typer.Option(help="With --real: of samples, splits and clusters.")] = 0,
    data_dir: Annotated[Path | None, typer.Option(help="With --real: where presets' files are.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print its path as JSON.")] = False,
) -> None:
    """Draw the report of an evaluation, with the card of the run if one lies beside it."""
    if real is None and (train is not None or schema is not None):
        raise RequestError("--train and --schema are for an evaluation; add --real to make one.")
    folder = _find(run, EVALUATION if real is None else "synthetic.*")
    if real is None:
        found = Evaluation.from_json(read_json(folder / EVALUATION), where=str(folder / EVALUATION))
    else:
        named = {"real": real, "synthetic": str(folder)} | ({} if train is None else {"train": train})
        found = _evaluated(named, _schema(schema, None, named), data_dir, seed=seed)
        write_json(folder / EVALUATION, found.to_json())
    _draw(found, folder)
    if as_json:
        print_json({"report": str(folder / REPORT)})
    else:
        output.print(f"Report: {folder / REPORT}", highlight=False, soft_wrap=True)


def _evaluated(
    named: dict[str, str], schema: Schema | None, data_dir: Path | None, **settings: Any
) -> Evaluation:
    """Read the sets and evaluate them, with a bar for each, and say what the schema had to repair."""
    with progress_bars() as progress:
        sets = _read(named, schema, data_dir, progress)
        patients = {name: each.patients for name, each in sets.items()}
        found = evaluate(
            patients["real"],
            patients["synthetic"],
            train=patients.get("train"),
            held_out=patients.get("held-out"),
            progress=progress,
            **settings,
        )
    for name, each in sets.items():
        if each.repairs.total and _preset(named[name]) is None:  # those of a preset are part of it
            messages.print(
                f"hauberk: {each.repairs.total:,} values of the {name} set were repaired (not private).",
                style="yellow",
                highlight=False,
                soft_wrap=True,
            )
    return found


def _draw(found: Evaluation, folder: Path) -> None:
    with progress_bars() as progress:
        progress("report", 0, 1)
        write_synthesis_report(found, folder / REPORT, card=_card(folder))
        progress("report", 1, 1)


def _folder(out: Path, force: bool) -> Path:
    """The folder to write into: that it can be made is found out before any work, and it is made after it."""
    folder = home_expanded(out)
    if os.path.exists(folder / EVALUATION) and not force:
        raise RequestError(f"{folder} holds an evaluation already; name another folder or add --force.")
    there = next(each for each in (folder, *folder.absolute().parents) if os.path.lexists(each))
    if not os.path.isdir(there) or not os.access(there, os.W_OK | os.X_OK):
        raise RequestError(f"cannot make the folder {folder}: {there} is no folder that one may write into.")
    return folder


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(f"cannot make the folder {folder}: {error.strerror or error}.") from error


def _schema(path: Path | None, data: str | None, named: dict[str, str]) -> Schema | None:
    """What the files are read by; without an option, the schema of a preset among the sets."""
    if path is not None and data is not None:
        raise RequestError("--schema and --data both name a schema; give one of them.")
    if path is not None:
        return Schema.read(home_expanded(path))
    if data is not None:
        return find_preset(data).schema
    presets = [found[0] for text in named.values() if (found := _preset(text)) is not None]
    return find_preset(presets[0]).schema if presets else None


def _preset(text: str) -> tuple[str, str | None] | None:
    """Name and part if the text names a preset rather than a file."""
    name, _, part = text.partition(":")
    return (name, part or None) if name in PRESETS and not os.path.isfile(text) else None


def _read(
    named: dict[str, str], schema: Schema | None, data_dir: Path | None, progress: Progress
) -> dict[str, Encoded]:
    """All sets, presets under their own name and part, files by the schema."""
    sets: dict[str, Encoded] = {}
    for done, (name, text) in enumerate(named.items()):
        progress("read", done, len(named))
        preset = _preset(text)
        if preset is not None:
            sets[name] = _from_preset(name, *preset, data_dir)
        elif schema is None:
            raise RequestError(
                f"{text} is a file, and nothing says what its columns mean; add --schema or --data."
            )
        else:
            sets[name] = read_patients(_table(text), schema)
    progress("read", len(named), len(named))
    return sets


def _table(text: str) -> Path:
    """A file as it was named; of a run's folder, the synthetic patients in it."""
    path = home_expanded(Path(text))
    if not os.path.isdir(path):
        return path
    found = [path / f"synthetic{ending}" for ending in FORMATS if (path / f"synthetic{ending}").is_file()]
    if len(found) != 1:
        raise RequestError(f"{path} holds {len(found)} files of synthetic patients; name the one you mean.")
    return found[0]


def _from_preset(use: str, name: str, part: str | None, data_dir: Path | None) -> Encoded:
    """A preset's part; where none is named, the first one for training, and the one for testing else."""
    chosen = part if part is not None or use == "train" else find_preset(name).held_out
    return load_patients(name, data_dir=data_dir, part=chosen)


def _card(folder: Path) -> Card | str | None:
    """The card beside an evaluation, or why it cannot be shown, without saying where it lay."""
    if not (folder / CARD).is_file():
        return None
    try:
        return Card.from_json(read_json(folder / CARD), where=CARD)
    except RequestError as error:
        return str(error).replace(f"{folder}/", "")


def _find(name: str, wanted: str) -> Path:
    for folder in (home_expanded(Path(name)), RUNS / name):
        with suppress(OSError):  # a name too long for a file is no run either
            if any(folder.glob(wanted)):
                return folder
    raise RequestError(
        f"there is no {wanted} in {name} or {RUNS / name}; make it with hauberk synth evaluate or sample."
    )


def _show(found: Evaluation) -> None:
    table = Table(Column("measure", no_wrap=True), "synthetic", "real, for comparison")
    for line in lines(found):
        table.add_row(line.name, line.synthetic, line.reference)
    if found.detection is not None:
        table.add_row("Discriminative score", within(found.detection.score), "–")
    used = found.prediction
    if used is not None:
        table.add_row("AUROC, trained on", within(used.auroc_synthetic), within(used.auroc_real))
        table.add_row("AUPRC, trained on", within(used.auprc_synthetic), within(used.auprc_real))
    if found.membership is not None:
        guesses = found.membership.guesses
        table.add_row("Membership advantage", within(guesses.rates.advantage), "–")
        table.add_row(f"Epsilon at least, level {guesses.alpha:g}", at_least(guesses.epsilon_lower), "–")
    output.print(table)
    for note in found.notes:
        output.print(note, highlight=False, soft_wrap=True, markup=False)
