"""What the commands show: results on standard output, progress and errors on standard error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from hauberk.progress import Progress as Report

output = Console()
messages = Console(stderr=True)


def print_json(content: Any) -> None:
    """For machines: plain, unwrapped, uncoloured."""
    print(json.dumps(content, indent=2, allow_nan=False))


@contextmanager
def progress_bars() -> Iterator[Report]:
    """One bar per stage, drawn only where somebody can see it."""
    with Progress(
        TextColumn("{task.description:>10}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=messages,
        disable=not messages.is_terminal,
    ) as bars:
        tasks: dict[str, TaskID] = {}

        def report(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total)
            bars.update(tasks[stage], completed=done, total=total)

        yield report
