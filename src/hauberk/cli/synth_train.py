"""``hauberk synth train`` and ``hauberk synth sample``: from patients to a run, and from it to new ones."""

from __future__ import annotations

import os
import shlex
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from hauberk.accounting import Card
from hauberk.cli.screen import messages, output, print_json, progress_bars
from hauberk.cli.train import RUNS, Size, Variant, check_name, show_card
from hauberk.data.folder import home_expanded
from hauberk.errors import RequestError
from hauberk.mechanisms import EpsilonDelta
from hauberk.report import write_report
from hauberk.synthesis.base import Synthesizer, Task
from hauberk.synthesis.catalogue import SYNTHESIZERS, find_synthesizer, load_synthesizer
from hauberk.synthesis.catalogue import Size as Amount
from hauberk.synthesis.encode import Encoded
from hauberk.synthesis.igamt_settings import ABLATIONS, PROTECTIONS
from hauberk.synthesis.patients import Patients
from hauberk.synthesis.presets import PRESETS, find_preset, load_patients
from hauberk.synthesis.reading import read_patients
from hauberk.synthesis.schema import Schema
from hauberk.synthesis.writing import check_writable, write_patients
from hauberk.training.run_folder import RunFolder

EPSILON, DELTA = 3.0, 1e-5
SAMPLED = "synthetic.csv"
TINY_PATIENTS = 64  # size tiny is for tests


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where the patients come from: a preset with its part, or a file with its schema."""

    data: str
    data_dir: str | None
    schema: Schema
    records: int | None  # declared: by the preset, or by the user
    unit: str

    @property
    def preset(self) -> tuple[str, str] | None:
        return _preset(self.data)

    def read(self, schema: Schema) -> Encoded:
        if self.preset is not None:
            name, part = self.preset
            folder = None if self.data_dir is None else Path(self.data_dir)
            return load_patients(name, data_dir=folder, part=part)
        return read_patients(home_expanded(Path(self.data)), schema)


def synth_train(
    synthesizer: Annotated[str, typer.Option(help=f"One of: {', '.join(SYNTHESIZERS)}.")] = "marginals",
    data: Annotated[
        str, typer.Option(help=f"{', '.join(PRESETS)} (a part as ward:test), or a file of patients.")
    ] = "ward",
    schema: Annotated[Path | None, typer.Option(help="The schema of the file (TOML).")] = None,
    records: Annotated[
        int | None, typer.Option(help="File: number of patients, a public constant you declare.")
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Where data sets lie; else HAUBERK_DATA, else ~/.cache/hauberk/data.")
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help=f"Of the guarantee, default {EPSILON:g}.")] = None,
    delta: Annotated[float | None, typer.Option(help=f"Of the guarantee, default {DELTA:g}.")] = None,
    no_privacy: Annotated[bool, typer.Option("--no-privacy", help="Train without privacy noise.")] = False,
    variant: Annotated[
        Variant, typer.Option(help="sound, or paper: as published, where nothing is proven (igamt).")
    ] = Variant.sound,
    protect: Annotated[
        str | None, typer.Option(help=f"igamt: what records touch, {' or '.join(PROTECTIONS)}.")
    ] = None,
    ablation: Annotated[
        str | None, typer.Option(help=f"igamt: leave parts out, one of {', '.join(ABLATIONS)}.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Folder below runs/ (default: names of both).")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an earlier run of that name.")] = False,
    seed: Annotated[int, typer.Option(help="Initial weights.")] = 0,
    noise_seed: Annotated[
        int | None, typer.Option(help="Repeatable privacy noise: nothing is proven about such a run.")
    ] = None,
    size: Annotated[Size | None, typer.Option(help="How much work (default full).")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="The same as --size quick.")] = False,
    resume: Annotated[Path | None, typer.Option(help="Go on with an interrupted run (its folder).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the card as JSON.")] = False,
) -> None:
    """Train a synthesizer of health records, by default with patient-level privacy, and write its card."""
    if resume is not None:
        _refuse_others_beside_resume()
        _resume(resume, as_json=as_json)
        return
    check_name(name)
    if quick and size not in (None, Size.quick):
        raise RequestError(f"--quick means --size quick, but --size {size} was given as well.")
    if no_privacy and (epsilon is not None or delta is not None):
        raise RequestError("--no-privacy has no epsilon and no delta; leave them out, or --no-privacy.")
    row = find_synthesizer(synthesizer)
    # a wrong choice is told before anything is read
    row.settings("full", private=not no_privacy, variant=variant.value, protect=protect, ablation=ablation)
    if variant is Variant.paper and no_privacy:
        raise RequestError("--variant paper claims an epsilon; leave out --no-privacy, or --variant.")
    source = _source(data, schema, records, data_dir)
    _refuse_unknown_size(source, private=not no_privacy)
    plain_name = Path(data.replace(":", "-")).name.partition(".")[0]
    folder = RunFolder.check_free(RUNS / (name or f"{synthesizer}-{plain_name}"), force=force)
    budget = None
    if not no_privacy:
        budget = EpsilonDelta(
            epsilon=EPSILON if epsilon is None else epsilon, delta=DELTA if delta is None else delta
        )
    command = " ".join(["hauberk", *map(shlex.quote, sys.argv[1:])])
    with progress_bars() as progress:
        progress("reading", 0, 1)
        encoded = source.read(source.schema)
        progress("reading", 1, 1)
        chosen: Amount = "quick" if quick else "full" if size is None else size.value
        if chosen == "tiny" and budget is not None and not source.preset:
            raise RequestError(
                "--size tiny takes the first patients of a file, and who is first is private: take --quick"
            )
        patients = cut_to_size(encoded.patients, chosen)
        # counted only where nobody is protected: `_refuse_unknown_size`
        records = len(patients) if source.records is None else source.records
        task = Task(
            schema=patients.schema,
            records=min(records, TINY_PATIENTS) if chosen == "tiny" else records,
            budget=budget,
            seed=seed,
            noise_seed=noise_seed,
            data=data if source.preset else Path(data).name,
            unit=source.unit,
            notes=_notes(chosen, private=budget is not None),
        )
        model = row.build(task, size=chosen, variant=variant.value, protect=protect, ablation=ablation)
        model.begin(
            folder,
            source={"data": source.data, "data_dir": source.data_dir, "size": chosen},
            command=command,
        )
        model.fit(patients, folder=folder, progress=progress)
    for line in encoded.repairs.lines():
        messages.print(f"hauberk: {line}", style="yellow", highlight=False, markup=False, soft_wrap=True)
    _finish(model, folder, command=command, as_json=as_json)


def synth_sample(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run of `synth train`, or its name.")],
    patients: Annotated[int, typer.Option(help="How many to make.")] = 1000,
    out: Annotated[
        Path | None, typer.Option(help=f".csv, .csv.gz, .csv.xz or .parquet (default: {SAMPLED} in RUN).")
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed makes the same patients.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")] = False,
) -> None:
    """Make synthetic patients with a trained synthesizer: costs no further privacy, however many."""
    folder = _find(run)
    path = check_writable(folder / SAMPLED if out is None else out)
    if os.path.exists(path) and not force:
        raise RequestError(f"{path} is there already; name another file or add --force.")
    model = load_synthesizer(folder)
    with progress_bars() as progress:
        made = model.sample(patients, seed=seed, progress=progress)
        progress("writing", 0, 1)
        write_patients(made, path)
        progress("writing", 1, 1)
    if as_json:
        print_json({"file": str(path), "patients": len(made), "synthesizer": model.name, "seed": seed})
    else:
        output.print(f"{len(made):,} patients: {path}", highlight=False, soft_wrap=True)


def _resume(path: Path, *, as_json: bool) -> None:
    folder = RunFolder.open(path)
    config = folder.read_config()
    row = find_synthesizer(str(config.get("synthesizer")))
    model = row.kind.from_config(config, where=str(path / "config.json"))
    if folder.trained:
        raise RequestError(f"{path} has finished; sample from it, or train again under another name.")
    kept = config.get("source")
    if not isinstance(kept, dict) or not isinstance(kept.get("data"), str):
        raise RequestError(f"{path} does not say where its patients came from; train again.")
    source = Source(
        data=kept["data"],
        data_dir=kept.get("data_dir"),
        schema=model.task.schema,
        records=model.task.records,
        unit=model.task.unit,
    )
    with progress_bars() as progress:
        progress("reading", 0, 1)
        encoded = source.read(model.task.schema)
        progress("reading", 1, 1)
        patients = cut_to_size(encoded.patients, str(kept.get("size")))
        model.fit(patients, folder=folder, resume=True, progress=progress)
    _finish(model, folder, command=str(config.get("command", "python")), as_json=as_json)


def _finish(model: Synthesizer, folder: RunFolder, *, command: str, as_json: bool) -> None:
    card: Card = model.card(command=command)
    card = replace(card, exhibits=replace(card.exhibits, curve=folder.read_metrics()))
    folder.write_card(card)
    write_report(card, folder.report)
    show_card(card, folder.report, as_json=as_json)


def _preset(data: str) -> tuple[str, str] | None:
    """Name and part, if ``data`` names a preset rather than a file."""
    name, _, part = data.partition(":")
    if name not in PRESETS or os.path.isfile(data):
        return None
    return name, part or next(iter(find_preset(name).parts))


def _source(data: str, schema: Path | None, records: int | None, data_dir: Path | None) -> Source:
    """What the request says about the patients, checked before anything is read."""
    kept_dir = None if data_dir is None else str(data_dir)
    chosen = _preset(data)
    if chosen is None:
        path = home_expanded(Path(data))
        if not os.path.isfile(path):
            raise RequestError(
                f"there are no patients '{data}'; choose one of {', '.join(PRESETS)} or give a file."
            )
        if schema is None:
            raise RequestError(f"{data} is a file, and nothing says what its columns mean; add --schema.")
        return Source(
            data=str(path),
            data_dir=kept_dir,
            schema=Schema.read(home_expanded(schema)),
            records=records,
            unit="one patient",
        )
    for option, value in (("--schema", schema), ("--records", records)):
        if value is not None:
            raise RequestError(f"{data} has its own; {option} is for files.")
    name, part = chosen
    preset = find_preset(name)
    if part not in preset.parts:
        raise RequestError(f"{name} has no part '{part}'; choose one of {', '.join(preset.parts)}.")
    found = preset.parts[part]
    return Source(data=data, data_dir=kept_dir, schema=preset.schema, records=found.records, unit=found.unit)


def _refuse_unknown_size(source: Source, *, private: bool) -> None:
    if private and source.records is None:
        raise RequestError(
            "the exact number of patients is private; declare about how many there are with --records."
        )


def cut_to_size(patients: Patients, size: str) -> Patients:
    """The first patients, for tests; the cut set *is* the private set then."""
    return patients.first(TINY_PATIENTS) if size == "tiny" else patients


def _notes(size: Amount, *, private: bool) -> tuple[str, ...]:
    if size == "tiny":
        return (
            f"Size tiny: the first {TINY_PATIENTS} patients were used; the privacy statement is about these.",
        )
    if size == "full":
        return ()
    spent = " The whole budget is spent all the same." if private else ""
    return (f"Size quick: fewer steps than a full training takes.{spent}",)


def _refuse_others_beside_resume() -> None:
    others = [
        word
        for word in sys.argv[3:]
        if word.startswith("--") and word.split("=")[0] not in ("--resume", "--json")
    ]
    if others:
        raise RequestError(f"--resume goes on with the run's own settings; leave out {others[0]}.")


def _find(run: str) -> Path:
    for folder in (home_expanded(Path(run)), RUNS / run):
        with suppress(OSError):  # a name too long for a file is no run either
            if (folder / "config.json").is_file():
                return folder
    raise RequestError(f"there is no run {run} or {RUNS / run}; make one with hauberk synth train.")
