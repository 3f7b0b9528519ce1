"""``hauberk attack`` and ``report``: look at a finished run again."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from hauberk.accounting import Card
from hauberk.cli.screen import messages, output, print_json, progress_bars
from hauberk.cli.train import RUNS, show_card
from hauberk.errors import RequestError
from hauberk.methods import AuditSettings, load_run
from hauberk.methods.training import audit_settings_of, load_split, read_settings
from hauberk.report import write_report
from hauberk.training import RunFolder

RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="A run's folder, or its name below runs/.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the card as JSON.")]


def find_run(name: str) -> Path:
    for path in (Path(name), RUNS / name):
        with suppress(OSError):  # a name too long for a file is no run either
            if (path / "config.json").is_file():
                return path
    raise RequestError(f"there is no run at {name} or {RUNS / name}")


def _audit(path: Path, settings: AuditSettings) -> Card:
    """Audit again with other settings, and put the new card and report in place of the old."""
    folder = RunFolder.open(path)
    run = load_run(path)
    split = load_split(read_settings(folder)[0])
    with progress_bars() as progress:
        card = run.audit(split.test, settings=settings, progress=progress)
    folder.write_card(card)
    write_report(card, folder.report)
    return card


def attack_run(
    run: RunArgument,
    steps: Annotated[int, typer.Option(help="Steps of projected gradient descent.")] = 20,
    draws: Annotated[int, typer.Option(help="Noise draws per step (expectation over the noise).")] = 16,
    limit: Annotated[int, typer.Option(help="Certified inputs to attack.")] = 100,
    as_json: JsonOption = False,
) -> None:
    """Attack certified test inputs just inside their certified radius."""
    path = find_run(run)
    if limit < 1:
        raise RequestError(f"--limit must be at least 1, got {limit}")
    settings = _override(audit_settings_of(path), attacked=limit, attack_steps=steps, attack_draws=draws)
    card = _audit(path, settings)
    show_card(card, path / "report.html", as_json=as_json)
    observed = card.robustness.observed
    if observed is not None and observed.broken:
        messages.print(f"{observed.broken} certified inputs were broken.", style="bold red")
        raise typer.Exit(1)


def report_run(run: RunArgument, as_json: JsonOption = False) -> None:
    """Draw a run's report again from its card."""
    path = find_run(run)
    folder = RunFolder.open(path)
    card = folder.read_card()
    write_report(card, folder.report)
    if as_json:
        print_json({"report": str(folder.report)})
    else:
        output.print(f"Report: {folder.report}", highlight=False, soft_wrap=True)


def _override(settings: AuditSettings, **changes: Any) -> AuditSettings:
    return replace(settings, **{key: value for key, value in changes.items() if value is not None})
