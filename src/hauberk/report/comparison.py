"""Several runs on one page: a comparison, or a sweep with mean and spread over its seeds.

Like the report of a run the page needs nothing else, escapes every string, and forbids itself scripts and
the network; the same runs give the same bytes.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from hauberk.accounting.card import CertifiedAccuracy
from hauberk.files import write_text
from hauberk.methods.comparison import ComparedRun, Comparison
from hauberk.methods.sweeping import CellSummary, Sweep
from hauberk.report.comparison_charts import Line, Point, certified_chart, epsilon_chart, swatch
from hauberk.report.comparison_wording import MISSING, seconds, shared_facts, shown_columns, with_spread
from hauberk.report.printable import printable
from hauberk.report.rounding import at_most, plain

if TYPE_CHECKING:
    from jinja2 import Template


@dataclass(frozen=True, kw_only=True)
class Key:
    """One entry of a legend."""

    place: int
    name: str
    swatch: Markup


@dataclass(frozen=True, kw_only=True)
class Lines:
    """A table: its heads, and one row per run or setting; ``number`` says which columns are numbers."""

    heads: tuple[str, ...]
    number: tuple[bool, ...]
    rows: tuple[tuple[str, ...], ...]


def write_comparison(comparison: Comparison, path: Path) -> None:
    write_text(path, render_comparison(comparison))


def write_sweep(sweep: Sweep, path: Path) -> None:
    write_text(path, render_sweep(sweep))


def render_comparison(comparison: Comparison) -> str:
    """All runs as numbered lines of one table and of the same charts."""
    comparison = printable(comparison)
    runs = comparison.runs
    curves = [(run.norm, run.curve) for run in runs]
    points = [
        Point(place=place, x=run.proven_epsilon, y=run.accuracy)
        for place, run in enumerate(runs)
        if run.proven_epsilon is not None and run.accuracy is not None
    ]
    return _template().render(
        title=f"{len(runs)} {'run' if len(runs) == 1 else 'runs'} side by side",
        kind="Comparison",
        subtitle=_about(runs),
        table=_run_table(comparison),
        shared=shared_facts(comparison),
        keys=_keys([run.name for run in runs]),
        certified=_certified(curves),
        privacy=epsilon_chart(points) if points else None,
        left_out=len(runs) - len(points),
        remarks=comparison.remarks,
        sweep=None,
        runs=None,
        spread=False,
    )


def render_sweep(sweep: Sweep) -> str:
    """One numbered line per setting, mean and spread over its seeds; all runs below."""
    sweep = printable(sweep)
    comparison = sweep.comparison
    runs: tuple[ComparedRun, ...] = () if comparison is None else comparison.runs
    norm = next((run.norm for run in runs if run.curve), "")
    points = [
        Point(place=place, x=cell.proven_epsilon, y=cell.accuracy.mean, spread=cell.accuracy.deviation)
        for place, cell in enumerate(sweep.cells)
        if cell.proven_epsilon is not None and cell.accuracy.mean is not None
    ]
    return _template().render(
        title=f"sweep {sweep.name}",
        kind="Sweep",
        subtitle=_about(runs),
        table=_cell_table(sweep),
        shared="" if comparison is None else shared_facts(comparison),
        keys=_keys([cell.name for cell in sweep.cells]),
        certified=_certified([(norm, cell.curve) for cell in sweep.cells]),
        privacy=epsilon_chart(points) if points else None,
        left_out=len(sweep.cells) - len(points),
        remarks=() if comparison is None else comparison.remarks,
        sweep=sweep,
        runs=None if comparison is None else _run_table(comparison),
        spread=True,
    )


@functools.cache
def _template() -> Template:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(plain=plain, at_most=at_most)
    return environment.get_template("comparison.html.j2")


def _about(runs: Sequence[ComparedRun]) -> str:
    """Methods and data, each named once."""
    if not runs:
        return "no run has finished"
    methods = ", ".join(dict.fromkeys(run.title for run in runs))
    return f"{methods} on {', '.join(dict.fromkeys(run.data for run in runs))}"


def _run_table(comparison: Comparison) -> Lines:
    shown = shown_columns(comparison)
    return Lines(
        heads=tuple(each.name for each in shown),
        number=tuple(each.number for each in shown),
        rows=tuple(zip(*(each.cells for each in shown), strict=True)),
    )


def _cell_table(sweep: Sweep) -> Lines:
    radii = () if sweep.comparison is None else sweep.comparison.radii
    heads = (
        "setting",
        "runs",
        "ε\N{NO-BREAK SPACE}proven",
        "accuracy",
        *(f"certified at {plain(radius)}" for radius in radii),
    )
    heads = (*heads, "average radius", "training\N{NO-BREAK SPACE}s", "certification\N{NO-BREAK SPACE}s")
    return Lines(
        heads=heads,
        number=(False, *(True,) * (len(heads) - 1)),
        rows=tuple(_cell_row(cell) for cell in sweep.cells),
    )


def _cell_row(cell: CellSummary) -> tuple[str, ...]:
    radius = cell.average_certified_radius
    unproven = "none" if cell.finished else MISSING
    return (
        cell.name,
        f"{cell.finished}" + (f", {cell.failed} failed" if cell.failed else ""),
        unproven if cell.proven_epsilon is None else at_most(cell.proven_epsilon),
        with_spread(cell.accuracy.mean, cell.accuracy.deviation, percents=True),
        *(with_spread(each.mean, each.deviation, percents=True) for each in cell.certified),
        with_spread(radius.mean, radius.deviation),
        seconds(cell.training_seconds.mean),
        seconds(cell.certification_seconds.mean),
    )


def _keys(names: Sequence[str]) -> tuple[Key, ...]:
    return tuple(Key(place=place, name=name, swatch=swatch(place)) for place, name in enumerate(names))


def _certified(curves: Sequence[tuple[str, tuple[CertifiedAccuracy, ...]]]) -> tuple[Markup, ...]:
    """One chart per norm: radii of different norms have no common axis."""
    norms = dict.fromkeys(norm for norm, curve in curves if curve)
    return tuple(
        certified_chart(
            f"certified-{place}",
            norm,
            [
                Line(
                    place=run,
                    x=tuple(point.radius for point in curve),
                    y=tuple(point.accuracy for point in curve),
                )
                for run, (its_norm, curve) in enumerate(curves)
                if curve and its_norm == norm
            ],
        )
        for place, norm in enumerate(norms)
    )
