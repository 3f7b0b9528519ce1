"""``hauberk account``, ``methods`` and ``data list``: answers that need no training."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Column, Table

from hauberk.accounting import NEIGHBOURS, PrivacyPlan, prove
from hauberk.accounting.json_form import from_json
from hauberk.cli.examine import find_run
from hauberk.cli.screen import output, print_json
from hauberk.data import catalog
from hauberk.errors import RequestError
from hauberk.methods import METHODS
from hauberk.methods.spending import read_spent, releases_beforehand, spent_together
from hauberk.report.printable import printable
from hauberk.report.rounding import at_most, count, plain
from hauberk.training import RunFolder

_USUAL_DELTA = 1e-5


def account(
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RUN]...", help="Runs on the same data: what they spent together."),
    ] = None,
    records: Annotated[int | None, typer.Option(help="Training records (a public constant).")] = None,
    batch: Annotated[int | None, typer.Option(help="Expected records per step.")] = None,
    epochs: Annotated[float | None, typer.Option(help="Expected passes over the data.")] = None,
    noise_multiplier: Annotated[float | None, typer.Option(help="Noise over clipping bound.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="Or: the epsilon to calibrate the noise to.")] = None,
    delta: Annotated[
        float | None,
        typer.Option(help="Delta of the statement (default 1e-5; of RUNs the smallest that one states)."),
    ] = None,
    run: Annotated[str | None, typer.Option(help="Or: a run, from the events it recorded.")] = None,
    same_records: Annotated[
        bool,
        typer.Option("--same-records", help="RUNs: count as if one record were in all, whatever they say."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """The proven epsilon of a plan or of a finished run, or the noise that a target epsilon needs.

    Of several RUNs: what everything that they released costs a record that was in all of them, by the
    composition of all their recorded events.
    """
    plan = (records, batch, epochs, noise_multiplier, epsilon)
    if runs:
        if run is not None or any(value is not None for value in plan):
            raise RequestError("runs are accounted from their events: give --delta and --same-records only")
        _account_together(runs, delta, same_records=same_records, as_json=as_json)
        return
    if same_records:
        raise RequestError("--same-records is about several runs: name them, as in `hauberk account a b`")
    delta = _USUAL_DELTA if delta is None else delta
    if run is not None:
        if any(value is not None for value in plan):
            raise RequestError("--run takes everything but --delta from the run's events")
        rows = _account_run(find_run(run), delta)
    else:
        rows = _account_plan(records, batch, epochs, noise_multiplier, epsilon, delta)
    rows |= {"delta": delta, "neighbours": NEIGHBOURS}
    if as_json:
        print_json(rows)
        return
    table = Table(show_header=False, box=None, padding=(0, 2))
    for key, value in rows.items():
        shown = f"{value:.6g}" if isinstance(value, float) else str(value)
        table.add_row(key.replace("_", " "), shown)
    output.print(table)


def _account_together(names: list[str], delta: float | None, *, same_records: bool, as_json: bool) -> None:
    found = spent_together(
        [read_spent(find_run(name)) for name in names], delta=delta, same_records=same_records
    )
    if as_json:
        print_json(found.to_json())
        return
    whole = [Column(name, no_wrap=True) for name in ("method", "data", "epsilon alone", "delta", "steps")]
    table = Table(Column("run", overflow="fold"), *whole, box=None, padding=(0, 2, 0, 0))
    for each in found.runs:
        proven = each.card.privacy.proven
        steps = f"{count(each.steps)}" + (f" + {count(each.beforehand)} before" if each.beforehand else "")
        alone = "unbounded" if proven is None else f"≤ {at_most(proven.epsilon)}"
        data = f"{each.card.data}, {count(each.used.records)}"
        cells = (str(each.path), each.card.method, data, alone, plain(each.delta), steps)
        table.add_row(*(escape(printable(cell)) for cell in cells))
    output.print(table)
    output.print()
    if found.bounded:
        total = f"epsilon ≤ {at_most(found.epsilon)} at delta {plain(found.delta)}"
        _say(f"Together: {total}, by {found.accountant}; {found.unit}, {found.neighbours}.")
    else:
        _say("Together: epsilon is unbounded.")
    for remark in found.remarks:
        _say(remark)


def _say(sentence: str) -> None:
    output.print(printable(sentence), highlight=False, markup=False, soft_wrap=True)


def _account_run(path: Path, delta: float) -> dict[str, Any]:
    folder = RunFolder.open(path)
    ledger = folder.read_events()
    if ledger.reproducible:
        raise RequestError(f"{path} has no proven epsilon: its noise is reproducible from a recorded seed")
    bound = prove(ledger.events, delta)
    if bound.epsilon == float("inf"):
        raise RequestError(f"{path} has no proven epsilon: it trained without privacy noise")
    plan = folder.read_config().get("plan")  # a synthesizer has none
    beforehand = 0
    if plan is not None:
        beforehand = releases_beforehand(ledger, from_json(PrivacyPlan, plan, where="config.json plan"))
    counts = {"steps": ledger.steps - beforehand}
    counts |= {"releases_beforehand": beforehand} if beforehand else {}
    return {"epsilon": bound.epsilon, **counts, "accountant": bound.accountant}


def _account_plan(
    records: int | None,
    batch: int | None,
    epochs: float | None,
    noise_multiplier: float | None,
    epsilon: float | None,
    delta: float,
) -> dict[str, Any]:
    if records is None or batch is None or epochs is None:
        raise RequestError("give --records, --batch and --epochs (or --run, or runs)")
    if (noise_multiplier is None) == (epsilon is None):
        raise RequestError("give exactly one of --noise-multiplier and --epsilon")
    if noise_multiplier is not None and noise_multiplier <= 0:
        raise RequestError(f"--noise-multiplier must be positive, got {noise_multiplier}")
    if noise_multiplier is not None:
        plan = PrivacyPlan(
            records=records, batch=batch, epochs=epochs, noise_multiplier=noise_multiplier, delta=delta
        )
    else:
        assert epsilon is not None
        plan = PrivacyPlan.calibrate(
            records=records, batch=batch, epochs=epochs, epsilon=epsilon, delta=delta
        )
    bound = prove([plan.event()], delta)
    return {
        "epsilon": bound.epsilon,
        "accountant": bound.accountant,
        "noise_multiplier": plan.noise_multiplier,
        "steps": plan.steps,
        "sampling_rate": plan.sampling_rate,
    }


def methods_list(as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False) -> None:
    """The methods, and what each one claims and proves."""
    shown = ("name", "summary", "paper", "variants", "claimed", "proven", "why_not", "private", "certifies")
    rows = [{key: getattr(row, key) for key in shown} for row in METHODS.values()]
    if as_json:
        print_json([{**row, "variants": list(row["variants"])} for row in rows])
        return
    table = Table(Column("method", no_wrap=True), "variants", "what it does", "claimed", "proven")
    for row in rows:
        table.add_row(row["name"], ", ".join(row["variants"]), row["summary"], row["claimed"], row["proven"])
    output.print(table)


def data_list(
    data_dir: Annotated[Path | None, typer.Option(help="Where to look.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """The data sets by name, and where they were found."""
    rows = [asdict(row) for row in catalog(data_dir)]
    if as_json:
        print_json(rows)
        return
    one_line = [Column(name, no_wrap=True) for name in ("name", "shape", "classes", "train", "test")]
    table = Table(*one_line, "licence", Column("where", overflow="fold"))
    for row in rows:
        shape = "x".join(map(str, row["shape"]))
        counts = [f"{row[name]:,}" for name in ("classes", "train", "test")]
        table.add_row(row["name"], shape, *counts, row["licence"], row["where"])
    output.print(table)
