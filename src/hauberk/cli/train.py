"""``hauberk train`` and ``hauberk demo``."""

from __future__ import annotations

import shlex
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from hauberk import models
from hauberk.accounting import Card
from hauberk.cli.screen import messages, output, print_json, progress_bars
from hauberk.errors import RequestError
from hauberk.gradients import GeneralPathNotice
from hauberk.methods.settings import CLIPPINGS, REDISTRIBUTIONS, read_toml
from hauberk.methods.training import Prepared, follow, prepare, prepare_resume
from hauberk.methods.training import train as train_prepared
from hauberk.methods.verification import write_manifest
from hauberk.report import card_table, write_report
from hauberk.training.distribution import ProcessLost, Ranks
from hauberk.training.optimisation import OPTIMIZERS, SCHEDULES

RUNS = Path("runs")


class Variant(StrEnum):
    sound = "sound"
    paper = "paper"


class Size(StrEnum):
    tiny = "tiny"
    quick = "quick"
    full = "full"


def check_name(name: str | None) -> None:
    if name is not None and (Path(name).name != name or name in ("", ".", "..") or len(name) > 100):
        raise RequestError(f"--name is a plain folder name below runs/, not {name!r}")


def _command_line() -> str:
    return " ".join(["hauberk", *map(shlex.quote, sys.argv[1:])])


@contextmanager
def _processes() -> Iterator[Ranks]:
    """Those that torchrun started, until training has ended; only the leader has anything to say."""
    with Ranks.from_environment() as ranks:
        if not ranks.leader:
            warnings.simplefilter("ignore", GeneralPathNotice)
        try:
            yield ranks
        except ProcessLost as lost:
            if ranks.leader or lost.step:
                raise
            raise typer.Exit(2) from lost  # before the first step the leader says what was wrong


def finish(
    prepared: Prepared, *, command: str, resume: bool, as_json: bool, ranks: Ranks | None = None
) -> None:
    """Train what was prepared, write card and report, and show the card."""
    if ranks is not None and not ranks.leader:
        follow(prepared, ranks)
        return
    with progress_bars() as progress:
        _, card = train_prepared(prepared, command=command, resume=resume, progress=progress, ranks=ranks)
    write_report(card, prepared.folder.report)
    write_manifest(prepared.folder.path)
    show_card(card, prepared.folder.report, as_json=as_json)


def show_card(card: Card, report: Path, *, as_json: bool) -> None:
    if as_json:
        print_json(card.to_json())
        return
    output.print(card_table(card))
    output.print(f"Report: {report}", highlight=False, soft_wrap=True)


def train(
    method: Annotated[
        str | None, typer.Option(help="See `hauberk methods`; default private-smoothing.")
    ] = None,
    variant: Annotated[
        Variant | None, typer.Option(help="As proven (sound, the default) or as published (paper).")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="A name from `hauberk data list`, an .npz file with x and y, a .csv table, or a folder of "
            "pictures."
        ),
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Where data sets lie; else HAUBERK_DATA, else ~/.cache/hauberk/data.")
    ] = None,
    records: Annotated[
        int | None, typer.Option(help="Own data: number of training records, a public constant you declare.")
    ] = None,
    classes: Annotated[int | None, typer.Option(help="Own data: number of classes, likewise.")] = None,
    schema: Annotated[
        Path | None, typer.Option(help="Table: TOML file with public bounds, levels, label and unit.")
    ] = None,
    image_size: Annotated[
        int | None, typer.Option(help="Pictures: pixels a side; the centre is cut out and resized.")
    ] = None,
    grey: Annotated[bool, typer.Option("--grey", help="Pictures: make all of them grey.")] = False,
    unit: Annotated[
        str | None,
        typer.Option(help="Pictures: who is protected, `folder` (CLASS/PERSON/…) or a table file,person."),
    ] = None,
    max_per_unit: Annotated[
        int | None, typer.Option(help="Pictures or rows of a person that are used at most (default 4).")
    ] = None,
    test: Annotated[
        Path | None, typer.Option(help="Table or pictures: test data of the same form, not protected.")
    ] = None,
    holdout: Annotated[
        float | None,
        typer.Option(help="Or: share of the persons or records that is held out for tests (default 0.1)."),
    ] = None,
    validation: Annotated[
        int | None,
        typer.Option(help="Hold out the last N training records and test on them, to choose settings."),
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Target epsilon; the noise is calibrated to it.")
    ] = None,
    delta: Annotated[float | None, typer.Option(help="Delta of the privacy statement.")] = None,
    noise_multiplier: Annotated[
        float | None, typer.Option(help="Noise over clipping bound, instead of --epsilon.")
    ] = None,
    no_privacy: Annotated[bool, typer.Option("--no-privacy", help="Train without privacy noise.")] = False,
    clip: Annotated[float | None, typer.Option(help="l2 bound on each record's gradient.")] = None,
    clipping: Annotated[str | None, typer.Option(help=f"One of: {', '.join(CLIPPINGS)}.")] = None,
    sigma: Annotated[
        float | None,
        typer.Option(help="Noise of training copies and classifier, at the input or after the first map."),
    ] = None,
    robust_epsilon: Annotated[
        float | None, typer.Option(help="Noise layers: epsilon_r that calibrates sigma.")
    ] = None,
    robust_delta: Annotated[float | None, typer.Option(help="Noise layers: delta_r, likewise.")] = None,
    robust_size: Annotated[
        float | None,
        typer.Option(help="Noise layers: l2 size of the attack that (epsilon_r, delta_r) covers."),
    ] = None,
    redistribution: Annotated[
        str | None,
        typer.Option(help=f"secure-sgd: where its noise vector r comes from: {', '.join(REDISTRIBUTIONS)}."),
    ] = None,
    inflation: Annotated[
        float | None, typer.Option(help="secure-sgd, hgm-pixeldp: the exponent beta of r.")
    ] = None,
    public_data: Annotated[
        str | None,
        typer.Option(
            help="Records that need no protection: first:10000, a data set's name, or an .npz file."
        ),
    ] = None,
    public_epochs: Annotated[
        int | None, typer.Option(help="Passes over the public data that train a classifier.")
    ] = None,
    denoised: Annotated[
        bool, typer.Option("--denoised", help="secure-sgd: train a denoiser before a frozen classifier.")
    ] = False,
    denoiser_width: Annotated[
        int | None, typer.Option(help="Channels of the denoiser's first layer.")
    ] = None,
    classifier: Annotated[
        Path | None, typer.Option(help="Your own frozen classifier: safetensors weights of --model.")
    ] = None,
    training_attack_steps: Annotated[
        int | None, typer.Option(help="stobatch, private-smoothing: steps of the attacks in training.")
    ] = None,
    training_attack_size: Annotated[
        float | None,
        typer.Option(
            help="Size of attacks in training: stobatch and --imitation l_inf, private-smoothing l2."
        ),
    ] = None,
    adversarial_weight: Annotated[
        float | None, typer.Option(help="stobatch --variant paper: xi, the weight of adversarial copies.")
    ] = None,
    test_divisor: Annotated[
        float | None,
        typer.Option(help="stobatch --variant paper: psi, which divides the noise after training."),
    ] = None,
    transformed_records: Annotated[
        int | None,
        typer.Option(
            help="transdenoiser --variant paper: records per step that its credit is computed from."
        ),
    ] = None,
    stability: Annotated[
        float | None, typer.Option(help="transdenoiser: weight of the stability loss (0: MSE alone).")
    ] = None,
    pruned: Annotated[
        float | None, typer.Option(help="Part of the coordinates that a step leaves out, in [0, 1).")
    ] = None,
    share: Annotated[
        float | None, typer.Option(help="directional --variant paper: budget for the directions (0: w = 1).")
    ] = None,
    views: Annotated[int | None, typer.Option(help="Noisy copies per record and step.")] = None,
    imitation: Annotated[
        Path | None,
        typer.Option(help="dp-sgd: an imitation network (.safetensors) that makes adversarial copies."),
    ] = None,
    clean_copy: Annotated[
        bool, typer.Option("--clean-copy", help="private-smoothing: one of the copies has no noise.")
    ] = False,
    shift: Annotated[
        int | None, typer.Option(help="private-smoothing: move each copy by up to so many pixels.")
    ] = None,
    flip: Annotated[
        bool, typer.Option("--flip", help="private-smoothing: mirror half of the copies.")
    ] = False,
    consistency: Annotated[
        float | None, typer.Option(help="private-smoothing: weight of the copies' agreement in the loss.")
    ] = None,
    macer: Annotated[
        float | None, typer.Option(help="private-smoothing: weight of the certified radius in the loss.")
    ] = None,
    epochs: Annotated[float | None, typer.Option(help="Expected passes over the data.")] = None,
    batch: Annotated[int | None, typer.Option(help="Expected records per step, and the divisor.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate.")] = None,
    optimizer: Annotated[str | None, typer.Option(help=f"One of: {', '.join(OPTIMIZERS)}.")] = None,
    schedule: Annotated[
        str | None, typer.Option(help=f"Of the learning rate, one of: {', '.join(SCHEDULES)}.")
    ] = None,
    memory: Annotated[
        str | None, typer.Option(help="Limit on the working memory of a step, say 500MB; same result.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help=f"One of: {', '.join(models.names())}; or your own, module:factory."),
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(help="Public weights that the network begins with (.safetensors).")
    ] = None,
    train_only: Annotated[
        list[str] | None,
        typer.Option(help="Train the weights with such names ('head.*'), freeze all others; repeatable."),
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda or auto.")] = None,
    name: Annotated[str | None, typer.Option(help="Folder below runs/ (default: method and data).")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an earlier run of that name.")] = False,
    seed: Annotated[int | None, typer.Option(help="Initial weights and evaluation.")] = None,
    noise_seed: Annotated[
        int | None, typer.Option(help="Repeatable privacy noise: nothing is proven about such a run.")
    ] = None,
    size: Annotated[Size | None, typer.Option(help="How much data and work.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="The same as --size quick.")] = False,
    config: Annotated[
        Path | None, typer.Option(help="TOML file with these settings; the command line wins over it.")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with an interrupted run (its folder).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the card as JSON.")] = False,
) -> None:
    """Train a private model, certify it, attack it, and write its guarantee card."""
    if resume is not None:
        _refuse_others_beside_resume()
        with _processes() as ranks:
            prepared, command = prepare_resume(resume, ranks)
            finish(prepared, command=command, resume=True, as_json=as_json, ranks=ranks)
        return
    check_name(name)
    if quick and size not in (None, Size.quick):
        raise RequestError(f"--quick means --size quick, but --size {size} was given as well")
    options: dict[str, Any] = {
        "method": method,
        "variant": None if variant is None else variant.value,
        "data": data,
        "data_dir": None if data_dir is None else str(data_dir),
        "records": records,
        "classes": classes,
        "schema": None if schema is None else str(schema),
        "image_size": image_size,
        "grey": True if grey else None,
        "unit": unit,
        "max_per_unit": max_per_unit,
        "test": None if test is None else str(test),
        "holdout": holdout,
        "validation": validation,
        "epsilon": epsilon,
        "delta": delta,
        "noise_multiplier": noise_multiplier,
        "no_privacy": True if no_privacy else None,
        "clip": clip,
        "clipping": clipping,
        "sigma": sigma,
        "robust_epsilon": robust_epsilon,
        "robust_delta": robust_delta,
        "robust_size": robust_size,
        "redistribution": redistribution,
        "inflation": inflation,
        "public_data": public_data,
        "public_epochs": public_epochs,
        "denoised": True if denoised else None,
        "denoiser_width": denoiser_width,
        "classifier": None if classifier is None else str(classifier),
        "stability": stability,
        "transformed_records": transformed_records,
        "training_attack_steps": training_attack_steps,
        "training_attack_size": training_attack_size,
        "adversarial_weight": adversarial_weight,
        "test_divisor": test_divisor,
        "share": share,
        "pruned": pruned,
        "views": views,
        "imitation": None if imitation is None else str(imitation),
        "clean_copy": True if clean_copy else None,
        "shift": shift,
        "flip": True if flip else None,
        "consistency": consistency,
        "macer": macer,
        "epochs": epochs,
        "batch": batch,
        "lr": lr,
        "optimizer": optimizer,
        "schedule": schedule,
        "memory": memory,
        "model": model,
        "weights": None if weights is None else str(weights),
        "train_only": train_only or None,
        "device": device,
        "seed": seed,
        "noise_seed": noise_seed,
        "size": "quick" if quick else (None if size is None else size.value),
    }
    settings = {} if config is None else read_toml(config)
    with _processes() as ranks:
        prepared = prepare(root=RUNS, name=name, force=force, config=settings, options=options, ranks=ranks)
        finish(prepared, command=_command_line(), resume=False, as_json=as_json, ranks=ranks)


def _refuse_others_beside_resume() -> None:
    others = [
        word
        for word in sys.argv[2:]
        if word.startswith("--") and word.split("=")[0] not in ("--resume", "--json")
    ]
    if others:
        raise RequestError(f"--resume goes on with the run's own settings; leave out {others[0]}")


def demo(
    name: Annotated[str, typer.Option(help="Folder below runs/.")] = "demo",
    force: Annotated[bool, typer.Option("--force", help="Overwrite an earlier demo.")] = False,
    seed: Annotated[int, typer.Option(help="Initial weights and evaluation.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the card as JSON.")] = False,
) -> None:
    """Train on 20,000 embedded digits at epsilon 3, certify and attack them: about three minutes."""
    check_name(name)
    prepared = prepare(root=RUNS, name=name, force=force, config={}, options={"data": "digits", "seed": seed})
    plan = prepared.method.plan
    messages.print(
        f"Training on {plan.records} digits, {plan.steps} steps; the training loss is private and not shown.",
        highlight=False,
    )
    finish(prepared, command=_command_line(), resume=False, as_json=as_json)
