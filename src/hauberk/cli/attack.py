"""``hauberk attack``: at radii of one's choice, or certified inputs just inside their certified radius."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from hauberk.accounting import Card
from hauberk.accounting.json_form import to_json
from hauberk.attacks import ATTACKS
from hauberk.cli.examine import RunArgument, find_run
from hauberk.cli.screen import messages, output, print_json, progress_bars
from hauberk.cli.train import show_card
from hauberk.errors import RequestError
from hauberk.methods import load_run
from hauberk.methods.attack_records import WORST_CASE, AttackTable
from hauberk.methods.attack_runs import DRAWS, attack_run
from hauberk.methods.training import audit_settings_of, load_split, read_settings
from hauberk.methods.verification import read_manifest, update_manifest
from hauberk.report import write_report
from hauberk.report.attack_wording import attack_cell, shown_rows, title_of, what_was_attacked
from hauberk.report.rounding import count, plain, plain_percent
from hauberk.training import RunFolder

_STEPS_INSIDE = 20
_RADII = "numbers separated by commas, such as 0.05,0.1 or 8/255"


def attack(
    run: RunArgument,
    attacks: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...",
            help=f"Attacks, of: {', '.join(ATTACKS)} (default with --radius: pgd), or the .safetensors "
            "file of an imitation network.",
        ),
    ] = None,
    norm: Annotated[
        str | None, typer.Option(metavar="linf|l2|l1", help="Norm of --radius (default: linf).")
    ] = None,
    radius: Annotated[
        str | None, typer.Option(metavar="R,...", help=f"Radii to attack at, {_RADII}; pixels are in [0, 1].")
    ] = None,
    targeted: Annotated[
        int | None,
        typer.Option(metavar="CLASS", help="With --radius: an input is broken by this answer only."),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(help="Steps of each attack (default: its own; inside certified radii 20)."),
    ] = None,
    draws: Annotated[
        int | None,
        typer.Option(help="Noise draws per step, for the expectation over the noise (default: 16)."),
    ] = None,
    limit: Annotated[int, typer.Option(help="Inputs to attack, spread evenly over the test set.")] = 100,
    seed: Annotated[
        int | None, typer.Option(help="With --radius: of starts and draws (default: the run's own).")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or auto.")] = "auto",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the rows, or without --radius the card, as JSON.")
    ] = False,
) -> None:
    """Attack a run's deployed classifier, in one of two ways.

    At radii of your choice (--radius, --attacks): test inputs, every attack
    at every radius. Prints the accuracy that is left, for each attack and for
    the worst case over them, with exact 95 % intervals; writes attacks.json
    and a section of the report.

    Without --radius: certified inputs just inside their own certified radius,
    by PGD in its norm. Updates the card's observed column; exit code 1 if a certified
    input was broken. As in: hauberk attack runs/demo --steps 100 --limit 300

    A smoothed classifier is attacked through its noise, and counts as broken
    only where fresh draws confirm another majority. A run without noise is
    attacked as the network that it is.
    """
    path = find_run(run)
    if limit < 1:
        raise RequestError(f"--limit must be at least 1, got {limit}")
    read_manifest(path)
    if radius is not None:
        options = {
            "attacks": "pgd" if attacks is None else attacks,
            "norm": "linf" if norm is None else norm,
            "radii": _numbers(radius),
            "target": targeted,
            "steps": steps,
            "draws": draws,
            "limit": limit,
            "seed": seed,
        }
        _attack_at(path, options, device, as_json=as_json)
        return
    if attacks is not None:
        raise RequestError("--attacks needs the radii to attack at, for instance --radius 0.05,0.1")
    for option, value in (("--norm", norm), ("--targeted", targeted), ("--seed", seed)):
        if value is not None:
            raise RequestError(
                f"{option} goes with --radius: without it, certified inputs are attacked inside their own"
            )
    steps = _STEPS_INSIDE if steps is None else steps
    draws = DRAWS if draws is None else draws
    _attack_inside(path, limit, steps, draws, device, as_json=as_json)


def _numbers(text: str) -> list[float]:
    try:
        return [_number(part) for part in text.split(",")]
    except (ValueError, ZeroDivisionError) as error:
        raise RequestError(f"--radius takes {_RADII}, not '{text}'") from error


def _number(text: str) -> float:
    above, slash, below = text.partition("/")
    return float(above) / float(below) if slash else float(above)


def _attack_at(path: Path, options: dict[str, Any], device: str, *, as_json: bool) -> None:
    """Every attack at every radius; table, file and report."""
    folder = RunFolder.open(path)
    card, samples = folder.read_card(), audit_settings_of(path).samples
    loaded = load_run(path, device=device)
    test = load_split(read_settings(folder)[0]).test
    with progress_bars() as progress:
        found = attack_run(loaded, test, samples=samples, progress=progress, **options)
    table = found.record().write(path)
    write_report(card, folder.report)
    update_manifest(path, "attacks.json", "attacks.npz", "report.html")
    if as_json:
        print_json({"run": str(path), **to_json(table)})
        return
    inputs = f"{count(len(found.tested))} of {count(len(test))}"
    _line(f"Inputs: {inputs}; {what_was_attacked(table)}")
    output.print(_table(table))
    _line(f"Attacks: {path / 'attacks.json'}")
    _line(f"Report: {folder.report}")


def _line(text: str) -> None:
    output.print(text, highlight=False, markup=False, soft_wrap=True)


def _table(table: AttackTable) -> Table:
    interval = f"{plain_percent(table.confidence)} interval"
    shown = Table("attack", "steps", "radius", "accuracy", interval, "broken", box=None, padding=(0, 2))
    for row in shown_rows(table):
        cell = attack_cell(row)
        steps = "" if row.steps is None else count(row.steps)
        shown.add_row(
            title_of(row),
            steps,
            plain(row.radius),
            cell.accuracy,
            cell.interval,
            cell.broken,
            style="bold" if row.attack == WORST_CASE else None,
        )
    return shown


def _attack_inside(path: Path, limit: int, steps: int, draws: int, device: str, *, as_json: bool) -> None:
    """Audit again with this attack, and put the new card and report in place of the old."""
    settings = replace(audit_settings_of(path), attacked=limit, attack_steps=steps, attack_draws=draws)
    folder = RunFolder.open(path)
    loaded = load_run(path, device=device)
    if loaded.noise is None:
        raise RequestError(
            f"{loaded.method} certifies nothing that could be attacked inside its radius: "
            "give radii to attack at, for instance --radius 0.05,0.1"
        )
    split = load_split(read_settings(folder)[0])
    with progress_bars() as progress:
        card: Card = loaded.audit(split.test, settings=settings, progress=progress)
    folder.write_card(card)
    write_report(card, folder.report)
    update_manifest(path, "card.json", "strip.npz", "report.html")
    show_card(card, folder.report, as_json=as_json)
    observed = card.robustness.observed
    if observed is not None and observed.broken:
        inputs = "input was" if observed.broken == 1 else "inputs were"
        messages.print(f"{observed.broken} certified {inputs} broken.", style="bold red")
        raise typer.Exit(1)
