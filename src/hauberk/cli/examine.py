"""``hauberk report``, and how a command finds the run that it is about."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from hauberk.cli.screen import output, print_json
from hauberk.cli.train import RUNS
from hauberk.errors import RequestError
from hauberk.methods.verification import read_manifest, update_manifest
from hauberk.report import write_report
from hauberk.training import RunFolder

RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="A run's folder, or its name below runs/.")]


def find_run(name: str) -> Path:
    for path in (Path(name), RUNS / name):
        with suppress(OSError):  # a name too long for a file is no run either
            if (path / "config.json").is_file():
                return path
    raise RequestError(f"there is no run at {name} or {RUNS / name}")


def report_run(
    run: RunArgument, as_json: Annotated[bool, typer.Option("--json", help="Print its path as JSON.")] = False
) -> None:
    """Draw a run's report again from its card."""
    path = find_run(run)
    folder = RunFolder.open(path)
    card = folder.read_card()
    read_manifest(path)
    write_report(card, folder.report)
    update_manifest(path, "report.html")
    if as_json:
        print_json({"report": str(folder.report)})
    else:
        output.print(f"Report: {folder.report}", highlight=False, soft_wrap=True)
