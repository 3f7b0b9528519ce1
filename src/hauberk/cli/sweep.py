"""``hauberk sweep``: the same training for several epsilons, sigmas and seeds."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Column, Table

from hauberk.accounting import Event, prove
from hauberk.cli.compare import numbers
from hauberk.cli.screen import messages, output, print_json, progress_bars
from hauberk.cli.train import RUNS, check_name, finish, train
from hauberk.errors import RequestError
from hauberk.files import write_json, write_text
from hauberk.methods.comparison import compare_runs
from hauberk.methods.settings import read_toml
from hauberk.methods.spending import merged, read_spent, spent_together
from hauberk.methods.sweeping import (
    Cell,
    Cost,
    Failure,
    Slot,
    Sweep,
    check_same_settings,
    finished,
    grid,
    run_all,
    slots,
    summarise,
)
from hauberk.methods.training import Prepared, prepare, prepare_resume
from hauberk.methods.verification import write_manifest
from hauberk.report import write_report
from hauberk.report.comparison import write_sweep
from hauberk.report.comparison_wording import MISSING, seconds, with_spread
from hauberk.report.printable import printable
from hauberk.report.rounding import at_most, plain
from hauberk.training import RunFolder

CELL_COMMAND = "sweep-cell"
_WARNING = (
    "Sweeping on private data is not accounted: every card counts its own run alone, but whoever chooses by "
    "the results has seen all of them."
)
_PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True}
CONTEXT: dict[str, Any] = {**_PASSED_ON, "help_option_names": ["-h", "--help"]}
"""Options that the command does not know are those of `hauberk train`."""
_OF_THE_COMMAND = ("name", "force", "quick", "config", "resume", "as_json")


def sweep(
    context: typer.Context,
    epsilon: Annotated[
        str | None, typer.Option(metavar="E1,E2,…", help="Target epsilons (default: the preset's).")
    ] = None,
    sigma: Annotated[
        str | None, typer.Option(metavar="S1,S2,…", help="Noise levels (default: the preset's).")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Runs of each combination, with seeds 0, 1, 2, …")] = 1,
    name: Annotated[str, typer.Option(help="Folder below runs/ that gets a folder per run.")] = "sweep",
    device: Annotated[str, typer.Option(help="cpu, cuda (all devices, a process each) or auto.")] = "auto",
    jobs: Annotated[int | None, typer.Option(help="On the processor: runs at a time (default 1).")] = None,
    force: Annotated[bool, typer.Option("--force", help="Train finished runs again, too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Train every combination of epsilon, sigma and seed; mean and spread over the seeds.

    Every other option is one of `hauberk train` and is passed on: --data, --method, --size, --model, ….
    The same command again keeps finished runs and goes on with the others. Exit code 1 if a run failed.
    """
    check_name(name)
    words, folder = tuple(context.args), RUNS / name
    cells = grid(numbers(epsilon, "--epsilon"), numbers(sigma, "--sigma"), seeds)
    places = slots(device, jobs)
    checked = {cell.setting: _prepared(folder, cell, words) for cell in cells if cell.seed == 0}
    if not force:
        for cell in cells:
            check_same_settings(folder / cell.name, checked[cell.setting], seed=cell.seed)
    _warn(_WARNING)
    for cost in _planned([checked[cell.setting] for cell in cells]):
        _warn(f"If it were: {_cost_sentence(cost)}")
    todo = [cell for cell in cells if force or not finished(folder / cell.name)]
    if len(todo) < len(cells):
        _say(f"Kept: {len(cells) - len(todo)} of {len(cells)} runs are finished already.")
    failures = _trained(todo, places, folder, words, force=force)
    result = _result(name, folder, cells, failures)
    write_sweep(result, folder / "sweep.html")
    write_text(folder / "sweep.csv", result.to_csv())
    write_json(folder / "sweep.json", result.to_json())
    if as_json:
        print_json(result.to_json())
    else:
        _show(result, folder)
    for failure in failures:
        _warn(f"{failure.run} failed: {failure.said.rstrip('.')}; see {failure.log}", style="bold red")
    if failures:
        raise typer.Exit(1)


def sweep_cell(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(help="The sweep's folder.")],
    cell: Annotated[str, typer.Argument(help="The run's folder in it.")],
    force: Annotated[bool, typer.Option("--force", help="Train it again.")] = False,
) -> None:
    """One run of a sweep, gone on with if it was interrupted; `hauberk sweep` calls this."""
    words, path = tuple(context.args), folder / cell
    command = shlex.join(["hauberk", "train", *words])
    if not force and (path / "card.json").is_file():  # killed after its card: the model counts as seen
        run = RunFolder.open(path)
        write_report(run.read_card(), run.report)
        write_manifest(path)
        return
    if not force and (path / "config.json").is_file():
        try:
            prepared, command = prepare_resume(path)
        except RequestError as error:  # nothing to go on from: it was killed before its first checkpoint
            _say(f"starting again: {error}")
        else:
            finish(prepared, command=command, resume=True, as_json=True)
            return
    config, options = _train_options(words)
    prepared = prepare(root=folder, name=cell, force=True, config=config, options=options)
    finish(prepared, command=command, resume=False, as_json=True)


def _train_options(words: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Words of `hauberk train` as its settings: those of --config, and those of the command line."""
    alone = typer.Typer(add_completion=False)
    alone.command()(train)
    context = typer.main.get_command(alone).make_context("hauberk train", list(words))
    given = dict(context.params)
    if given["resume"] is not None:
        raise RequestError("a sweep that is given again goes on by itself: leave out --resume")
    settings: dict[str, Any] = {}
    for option, value in given.items():
        if option in _OF_THE_COMMAND or value is None or value is False or value in ((), []):
            continue
        settings[option] = _plain(value)
    if given["quick"]:
        if settings.get("size", "quick") != "quick":
            raise RequestError(f"--quick means --size quick, but --size {settings['size']} was given as well")
        settings["size"] = "quick"
    return ({} if given["config"] is None else read_toml(given["config"])), settings


def _plain(value: Any) -> Any:
    """As it would stand in a TOML file."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Path):
        return str(value)
    return list(value) if isinstance(value, tuple) else value


def _prepared(folder: Path, cell: Cell, words: Sequence[str]) -> Prepared:
    """Everything that can be wrong with a combination is found here, before anything is trained."""
    if any(word.split("=")[0] == "--seed" for word in words):
        raise RequestError("a sweep gives every run its own seed: say --seeds N instead of --seed")
    config, options = _train_options((*words, *cell.words(), "--device", "cpu"))
    return prepare(root=folder, name=cell.name, force=True, config=config, options=options)


def _planned(runs: Sequence[Prepared]) -> list[Cost]:
    """What the plans would cost together, at each delta that one of them states."""
    events: list[Event] = [
        event for run in runs for event in (*run.method.plan.beforehand, run.method.plan.event())
    ]
    for run in runs:
        if run.method.unprovable is not None or run.settings.noise_seed is not None:
            why = run.method.unprovable or "the noise is reproducible from a recorded seed"
            return [Cost(delta=run.method.plan.delta, epsilon=None, runs=len(runs), reason=why)]
    costs = []
    for delta in sorted({run.method.plan.delta for run in runs}):
        total = prove(merged(events), delta).epsilon
        bounded = math.isfinite(total)
        costs.append(
            Cost(
                delta=delta,
                epsilon=total if bounded else None,
                runs=len(runs),
                reason=None if bounded else "trained without privacy noise",
            )
        )
    return costs


def _spent(paths: Sequence[Path]) -> tuple[Cost, ...]:
    """The same from the events that the finished runs recorded."""
    runs = [read_spent(path) for path in paths]
    costs = []
    for delta in sorted({run.delta for run in runs}):
        try:
            total = spent_together(runs, delta=delta)
        except RequestError as error:
            return (Cost(delta=delta, epsilon=None, runs=len(runs), reason=str(error)),)
        reason = None if total.bounded else "trained without privacy noise"
        epsilon = total.epsilon if total.bounded else None
        costs.append(Cost(delta=delta, epsilon=epsilon, runs=len(runs), reason=reason))
    return tuple(costs)


def _cost_sentence(cost: Cost) -> str:
    many = "the run costs" if cost.runs == 1 else f"all {cost.runs} runs together cost"
    if cost.epsilon is None:
        return f"what {many} is not bounded ({cost.reason})."
    return f"{many} one record epsilon ≤ {at_most(cost.epsilon)} at delta {plain(cost.delta)}."


def _trained(
    todo: Sequence[Cell], places: Sequence[Slot], folder: Path, words: Sequence[str], *, force: bool
) -> tuple[Failure, ...]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(f"cannot create {folder}: {error.strerror or error}") from error

    def command(cell: Cell, slot: Slot) -> list[str]:
        again = ["--force"] if force else []
        return [CELL_COMMAND, *again, str(folder), cell.name, *words, *cell.words(), "--device", slot.device]

    with progress_bars() as progress:
        return run_all(
            todo, places, folder=folder, command=command, done=lambda n: progress("runs", n, len(todo))
        )


def _result(name: str, folder: Path, cells: Sequence[Cell], failures: tuple[Failure, ...]) -> Sweep:
    failed = {failure.run for failure in failures}
    done = [cell for cell in cells if cell.name not in failed and finished(folder / cell.name)]
    paths = [folder / cell.name for cell in done]
    comparison = compare_runs(paths) if paths else None
    runs = {} if comparison is None else dict(zip([cell.name for cell in done], comparison.runs, strict=True))
    return Sweep(
        name=name,
        cells=summarise(cells, runs, () if comparison is None else comparison.radii),
        comparison=comparison,
        failures=failures,
        costs=_spent(paths),
    )


def _show(result: Sweep, folder: Path) -> None:
    radii = () if result.comparison is None else result.comparison.radii
    names = ["epsilon", "sigma", "runs", "ε proven", "accuracy"]
    names += [*(f"certified at {plain(radius)}" for radius in radii), "average radius", "training s"]
    rows = [
        (
            *(MISSING if each is None else plain(each) for each in cell.setting),
            str(cell.finished) + (f" ({cell.failed} failed)" if cell.failed else ""),
            "none" if cell.proven_epsilon is None else at_most(cell.proven_epsilon),
            with_spread(cell.accuracy.mean, cell.accuracy.deviation, percents=True),
            *(with_spread(at.mean, at.deviation, percents=True) for at in cell.certified),
            with_spread(cell.average_certified_radius.mean, cell.average_certified_radius.deviation),
            seconds(cell.training_seconds.mean),
        )
        for cell in result.cells
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]  # heads may break, numbers not
    heads = (
        Column(each, justify="right", min_width=width) for each, width in zip(names, widths, strict=True)
    )
    table = Table(*heads, box=None, padding=(0, 2, 0, 0))
    for row in rows:
        table.add_row(*row)
    output.print(table)
    said = ["Mean ± sample standard deviation over seeds."]
    said += [f"Not accounted. If it were: {_cost_sentence(cost)}" for cost in result.costs]
    said += [] if result.comparison is None else list(result.comparison.remarks)
    said.append(f"Report: {folder / 'sweep.html'}, sweep.csv and sweep.json beside it")
    for sentence in said:
        output.print(printable(sentence), highlight=False, markup=False, soft_wrap=True)


def _warn(sentence: str, style: str = "yellow") -> None:
    messages.print(
        f"hauberk: {printable(sentence)}", style=style, highlight=False, markup=False, soft_wrap=True
    )


def _say(sentence: str) -> None:
    messages.print(printable(sentence), highlight=False, markup=False, soft_wrap=True)
