"""``hauberk imitate``: networks that make adversarial examples in one pass (004 chapter 5)."""

from __future__ import annotations

import io
import math
import os
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from rich.table import Table

from hauberk.attacks.imitation import AINSettings, Recipe, load_imitation
from hauberk.attacks.imitation.bound import DECAYS
from hauberk.attacks.imitation.classifier import THESIS
from hauberk.attacks.imitation.saved import KINDS, TITLES
from hauberk.attacks.imitation.target import validation_accuracy
from hauberk.cli.imitation_folder import (
    FACTS,
    FILE,
    PICTURE,
    PRESETS,
    QUICK,
    Preset,
    attacked_classifier,
    find_folder,
    measured,
    reopened,
    trained_network,
    write_folder,
)
from hauberk.cli.screen import messages, output, print_json, progress_bars
from hauberk.cli.train import RUNS, check_name
from hauberk.errors import RequestError
from hauberk.files import write_bytes
from hauberk.methods.training import choose_device
from hauberk.randomness import check_seed

imitate_app = typer.Typer(
    help="Networks that make adversarial examples in one pass: AIN, ATN and AdvGAN.", no_args_is_help=True
)


FolderArgument = Annotated[
    str, typer.Argument(metavar="FOLDER", help="What `hauberk imitate train` wrote, or its name below runs/.")
]
DataDir = Annotated[
    Path | None, typer.Option(help="Where data sets lie; else HAUBERK_DATA, else ~/.cache/hauberk/data.")
]
Device = Annotated[str, typer.Option(help="cpu, cuda or auto.")]
Json = Annotated[bool, typer.Option("--json", help="Print the numbers as JSON.")]


@imitate_app.command("train", epilog="Example: hauberk imitate train --preset small --quick --bound 0.3")
def train(
    kind: Annotated[str, typer.Option(help=f"One of: {', '.join(KINDS)}.")] = "ain",
    preset: Annotated[
        Preset, typer.Option(help="Minutes on two cores, or the thesis' setting.")
    ] = Preset.small,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer records and epochs.")] = False,
    data: Annotated[
        str | None, typer.Option(help="A data set's name or an .npz file; default digits.")
    ] = None,
    data_dir: DataDir = None,
    public_data: Annotated[
        str | None,
        typer.Option(
            help="Use public records only, such as first:10000: private training may use the AIN then."
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Attack the network of this finished run; else one is trained."),
    ] = None,
    network: Annotated[
        str | None,
        typer.Option(help=f"The classifier to train: {THESIS} or a name of `hauberk train --model`."),
    ] = None,
    aim: Annotated[
        int | None,
        typer.Option("--class", metavar="CLASS", help="Make every input this class; else any other."),
    ] = None,
    bound: Annotated[float | None, typer.Option(help="Final l_inf bound, pixels in [0, 1].")] = None,
    imitate: Annotated[
        str | None, typer.Option(help="AIN: attacks to imitate with their shares, such as ifgsm:0.9,cw:0.1.")
    ] = None,
    decay: Annotated[str | None, typer.Option(help=f"AIN: how the bound falls: {', '.join(DECAYS)}.")] = None,
    no_adaptation: Annotated[
        bool, typer.Option("--no-adaptation", help="AIN: the bound falls by the formula, no roll-back.")
    ] = False,
    no_noise: Annotated[bool, typer.Option("--no-noise", help="AIN: one example per input.")] = False,
    start: Annotated[
        Path | None, typer.Option(help="AIN: begin with an earlier one (a .safetensors file).")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Of the imitation network.")] = None,
    name: Annotated[str | None, typer.Option(help="Folder below runs/; default imitate-KIND-DATA.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over an earlier one of this name.")] = False,
    seed: Annotated[int, typer.Option(help="Of weights, order and noise.")] = 0,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Train a network that makes adversarial examples, against a classifier that is trained here or a run.

    Writes the network, the classifier, pictures and numbers below runs/, and
    prints success, distance and time on test inputs beside I-FGSM. The file
    is an attack: hauberk attack RUN --attacks FILE --radius 0.3
    """
    if kind not in KINDS:
        raise RequestError(f"there is no imitation network '{kind}'; choose one of {', '.join(KINDS)}")
    settings = _settings(PRESETS[preset][0], quick, bound, imitate, decay, no_adaptation, no_noise, epochs)
    _refuse_unread(
        kind, {"--imitate": imitate, "--decay": decay, "--start": start}, no_adaptation or no_noise
    )
    check_name(name)
    if kind == "atn" and aim is None:
        raise RequestError("ATN needs a class to aim at: give --class")
    check_seed(seed)
    chosen = choose_device(device)
    data_words = "digits" if data is None else data
    folder = RUNS / (name or f"imitate-{kind}-{Path(target or data_words).stem}")
    if os.path.exists(folder / FACTS) and not force:
        raise RequestError(f"{folder} exists already: give another --name, or --force")
    earlier = None if start is None else load_imitation(start, device=chosen)
    if earlier is not None:  # it need not begin with a loose bound again
        first = max(settings.schedule.final, min(settings.schedule.initial, earlier.bound))
        settings = replace(settings, schedule=replace(settings.schedule, initial=first))
    with progress_bars() as progress:
        most, tests = (QUICK["records"], QUICK["tests"]) if quick else (None, None)
        attacked = attacked_classifier(
            target, data, data_dir, public_data, network, preset, most, tests, quick, seed, chosen, progress
        )
        begun = time.perf_counter()
        made, history = trained_network(
            kind,
            attacked,
            settings,
            aim,
            earlier,
            QUICK["attacked"] if quick else None,
            seed,
            progress,
        )
        seconds = time.perf_counter() - begun
        radius = max(settings.schedule.final, made.bound)
        rows = measured(attacked, made, [radius], ["ifgsm"], seed, progress)
    facts = {
        "kind": kind,
        "class": aim,
        "bound": made.bound,
        "data": attacked.inputs.data,
        "source": data_words,
        "public": attacked.inputs.public,
        "network": attacked.network,
        "run": attacked.run,
        "data_dir": None if data_dir is None else str(data_dir),
        "quick": quick,
        "seed": seed,
        "classifier_accuracy": validation_accuracy(attacked.model, attacked.inputs),
        "training_seconds": seconds,
        "history": [asdict(each) for each in history],
        "rows": rows,
    }
    write_folder(folder, attacked, made, facts, radius)
    _show(facts, rows, folder, as_json=as_json)


@imitate_app.command("attack", epilog="Example: hauberk imitate attack imitate-ain-digits --copies 3")
def attack(
    folder: FolderArgument,
    radius: Annotated[float | None, typer.Option(help="l_inf radius (default: the network's bound).")] = None,
    copies: Annotated[
        int, typer.Option(help="Different examples of every input, by the network's noise.")
    ] = 1,
    limit: Annotated[int, typer.Option(help="So many test inputs, the first ones.")] = 100,
    out: Annotated[
        Path | None, typer.Option(help="Archive to write; default adversarial.npz in the folder.")
    ] = None,
    data_dir: DataDir = None,
    seed: Annotated[int, typer.Option(help="Of the network's noise.")] = 0,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Make adversarial examples of test inputs: an .npz archive with x, y, adversarial and answers."""
    if limit < 1 or copies < 1:
        raise RequestError("--limit and --copies must be at least 1")
    check_seed(seed)
    path = find_folder(folder)
    attacked, made = reopened(path, data_dir, choose_device(device))
    radius = made.bound if radius is None else radius
    x, y = attacked.inputs.test[0][:limit], attacked.inputs.test[1][:limit]
    points = made.craft(x, y, radius=radius, copies=copies, seed=seed)
    with torch.no_grad():
        answers = attacked.model(points.flatten(0, 1)).argmax(1).view(len(x), copies)
    archive = path / "adversarial.npz" if out is None else out
    arrays = {"x": x, "y": y, "adversarial": points, "answers": answers}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **{name: each.cpu().numpy() for name, each in arrays.items()})
    write_bytes(archive, buffer.getvalue())
    reached = (answers == made.target) if made.target is not None else (answers != y.view(-1, 1))
    facts = {"archive": str(archive), "inputs": len(x), "copies": copies, "radius": radius}
    facts["reached"] = float(reached.double().mean())
    if as_json:
        print_json(facts)
        return
    _line(
        f"{len(x)} inputs, {copies} examples each within {radius:g}; {facts['reached']:.1%} reach their goal"
    )
    _line(f"Archive: {archive}")


@imitate_app.command(
    "evaluate",
    epilog="Example: hauberk imitate evaluate imitate-ain-digits --radius 0.3,0.4 --beside ifgsm,pgd",
)
def evaluate_folder(
    folder: FolderArgument,
    radius: Annotated[
        str | None, typer.Option(metavar="R,...", help="l_inf radii (default: the network's bound).")
    ] = None,
    beside: Annotated[str, typer.Option(metavar="NAME,...", help="Attacks to compare with.")] = "ifgsm",
    at_least: Annotated[
        float | None, typer.Option(help="Exit with 1 if the success at any radius is below this share.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="So many test inputs, the first ones.")] = None,
    data_dir: DataDir = None,
    seed: Annotated[int, typer.Option(help="Of noise and random starts.")] = 0,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Success, distance and time per example on test inputs, beside other attacks.

    Success counts inputs that are answered rightly and are not of the
    target class already; "as published" counts all inputs, as the thesis does.
    """
    if limit is not None and limit < 1:
        raise RequestError(f"--limit must be at least 1, got {limit}")
    if at_least is not None and not 0 <= at_least < math.inf:
        raise RequestError(f"--at-least is a share such as 0.9, got {at_least:g}")
    check_seed(seed)
    path = find_folder(folder)
    attacked, made = reopened(path, data_dir, choose_device(device))
    if limit is not None:
        x, y = attacked.inputs.test
        attacked = replace(attacked, inputs=replace(attacked.inputs, test=(x[:limit], y[:limit])))
    radii = [made.bound] if radius is None else _numbers(radius)
    for each in radii:
        made.check_radius(each)
    others = [word.strip() for word in beside.split(",") if word.strip()]
    with progress_bars() as progress:
        rows = measured(attacked, made, radii, others, seed, progress)
    if as_json:
        print_json({"folder": str(path), "class": made.target, "rows": rows})
    else:
        output.print(_table(rows))
    ours = [row for row in rows if row["attack"] == TITLES[made.kind]]
    if at_least is not None and any(row["success"] < at_least for row in ours):
        messages.print(f"success is below {at_least:.1%}.", style="bold red", highlight=False)
        raise typer.Exit(1)


def _settings(
    settings: AINSettings,
    quick: bool,
    bound: float | None,
    imitate: str | None,
    decay: str | None,
    no_adaptation: bool,
    no_noise: bool,
    epochs: int | None,
) -> AINSettings:
    if quick:
        settings = replace(settings, epochs=min(settings.epochs, QUICK["epochs"]))
    if epochs is not None:
        settings = replace(settings, epochs=epochs)
    if bound is not None:
        settings = settings.within(bound)
    if imitate is not None:
        recipe = Recipe.of(imitate, radius=settings.recipe.radius, steps=settings.recipe.steps)
        settings = replace(settings, recipe=recipe)
    if decay is not None or no_adaptation:
        schedule = replace(settings.schedule, adaptive=settings.schedule.adaptive and not no_adaptation)
        if decay is not None:
            schedule = replace(schedule, decay=decay)  # type: ignore[arg-type]
        settings = replace(settings, schedule=schedule)
    if no_noise:
        settings = replace(settings, architecture=replace(settings.architecture, noise=0.0))
    return settings


def _refuse_unread(kind: str, given: dict[str, object], more: bool) -> None:
    if kind == "ain":
        return
    words = [option for option, value in given.items() if value is not None]
    if words or more:
        named = words[0] if words else "--no-adaptation or --no-noise"
        raise RequestError(f"{TITLES[kind]} does not use {named}: leave it out")  # type: ignore[index]


def _show(facts: dict[str, Any], rows: list[dict[str, Any]], folder: Path, *, as_json: bool) -> None:
    if as_json:
        print_json({**facts, "folder": str(folder), "file": str(folder / FILE)})
        return
    goal = "any other class" if facts["class"] is None else f"class {facts['class']}"
    _line(
        f"{TITLES[facts['kind']]} to {goal}, bound {facts['bound']:.3g}, trained in "
        f"{facts['training_seconds']:.0f} s; the classifier is right on "
        f"{facts['classifier_accuracy']:.1%} of the validation inputs"
    )
    output.print(_table(rows))
    if facts["public"] is None:
        _line("Not made from public records alone: private training with it proves nothing.")
    for label, path in (("Attack", FILE), ("Pictures", PICTURE), ("Numbers", FACTS)):
        _line(f"{label}: {folder / path}")


def _table(rows: list[dict[str, Any]]) -> Table:
    shown = Table(
        "attack", "radius", "success", "95 % interval", "as published", "mean distance", "ms per example",
        box=None, padding=(0, 2),
    )  # fmt: skip
    for row in rows:
        shown.add_row(
            row["attack"],
            f"{row['radius']:g}",
            f"{row['success']:.1%}",
            f"{row['success_low']:.1%} to {row['success_high']:.1%}",
            f"{row['as_published']:.1%}",
            f"{row['distance']:.3f}",
            f"{1000 * row['seconds']:.3f}",
        )
    return shown


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise RequestError(
            f"--radius takes numbers separated by commas, such as 0.2,0.3, not '{text}'"
        ) from error


def _line(text: str) -> None:
    output.print(text, highlight=False, markup=False, soft_wrap=True)
