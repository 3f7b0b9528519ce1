"""``hauberk verify``: is a run what its card says?"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from hauberk.cli.examine import RunArgument, find_run
from hauberk.cli.screen import output, print_json
from hauberk.methods.verification import verify_run


def verify(
    run: RunArgument,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Check a run's files against their hashes, and its card against its recorded events.

    The proven epsilon is computed again. Exit code 1 if anything differs.
    """
    found = verify_run(find_run(run))
    if as_json:
        print_json(found.to_json())
    else:
        table = Table(show_header=False, box=None, padding=(0, 2))
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")  # a path must not be cut
        for check in found.checks:
            table.add_row("as it should be" if check.passed else "WRONG", check.name, escape(check.found))
        output.print(table)
    if not found.passed:
        raise typer.Exit(1)
