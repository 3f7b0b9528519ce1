"""Several runs in words and cells, for paper and terminal alike.

Upper bounds (epsilon) are rounded up; lower bounds, radii and accuracies down; a mean over seeds is neither
and is shown with its spread. What is the same for all runs is said once and gets no column.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hauberk.methods.comparison import ComparedRun, Comparison
from hauberk.report.rounding import at_least, at_most, count, length, percent, plain

MISSING = "–"


@dataclass(frozen=True, kw_only=True)
class CompareColumn:
    """A column of the table; ``shared`` where all runs say the same, and there is more than one."""

    name: str
    cells: tuple[str, ...]
    number: bool = True
    shareable: bool = False

    @property
    def shared(self) -> bool:
        return self.shareable and len(set(self.cells)) == 1 and len(self.cells) > 1

    @property
    def empty(self) -> bool:
        return all(cell == MISSING for cell in self.cells)


def columns(comparison: Comparison) -> tuple[CompareColumn, ...]:
    """All columns, whether shared or empty or not; the first two name the run and its method."""
    runs = comparison.runs

    def of(name: str, cell: Callable[[ComparedRun], str], **kinds: bool) -> CompareColumn:
        return CompareColumn(name=name, cells=tuple(cell(run) for run in runs), **kinds)

    def words(name: str, cell: Callable[[ComparedRun], str]) -> CompareColumn:
        return of(name, cell, number=False, shareable=True)

    def certified(radius: float) -> CompareColumn:
        return of(f"certified at {plain(radius)}", lambda run: _share(run.certified_at(radius)))

    return (
        of("run", lambda run: run.name, number=False),
        words("method", lambda run: run.title),
        words("model", lambda run: run.model),
        words("data", lambda run: f"{run.data}, {count(run.records)} records"),
        of("sigma", lambda run: "preset" if run.sigma is None else plain(run.sigma), shareable=True),
        of("ε\N{NO-BREAK SPACE}claimed", lambda run: _upper(run.claimed_epsilon)),
        of(
            "ε\N{NO-BREAK SPACE}proven",
            lambda run: "none" if run.proven_epsilon is None else _upper(run.proven_epsilon),
        ),
        of("ε\N{NO-BREAK SPACE}observed", lambda run: _lower(run.observed_epsilon)),
        of("δ", _delta, shareable=True),
        words("unit", lambda run: run.unit),
        words("neighbours", lambda run: run.neighbours),
        of("accuracy", lambda run: _share(run.accuracy)),
        *map(certified, comparison.radii),
        of("average radius", lambda run: _length(run.average_certified_radius)),
        words("norm", lambda run: run.norm if run.curve else MISSING),
        of("training\N{NO-BREAK SPACE}s", lambda run: seconds(run.training_seconds)),
        of("certification\N{NO-BREAK SPACE}s", lambda run: seconds(run.certification_seconds)),
        words("device", lambda run: run.device),
    )


def shown_columns(comparison: Comparison) -> tuple[CompareColumn, ...]:
    return tuple(each for each in columns(comparison) if not each.shared and not each.empty)


def shared_facts(comparison: Comparison) -> str:
    """What all runs have in common, in a line; empty for a single run."""
    shared = [each for each in columns(comparison) if each.shared and not each.empty]
    return "; ".join(f"{each.name} {each.cells[0]}" for each in shared)


def with_spread(mean: float | None, spread: float | None, *, percents: bool = False) -> str:
    """A mean over seeds and its standard deviation, to the nearest digit: neither bounds anything."""
    if mean is None:
        return MISSING
    factor, digits = (100, 1) if percents else (1, 3)
    unit = "\N{NO-BREAK SPACE}%" if percents else ""
    plus = "" if spread is None else f" ± {factor * spread:.{digits}f}"
    return f"{factor * mean:.{digits}f}{plus}{unit}"


def seconds(value: float | None) -> str:
    if value is None:
        return MISSING
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def _delta(run: ComparedRun) -> str:
    delta = run.claimed_delta if run.proven_delta is None else run.proven_delta
    return MISSING if delta is None else plain(delta)


def _upper(epsilon: float | None) -> str:
    return MISSING if epsilon is None else at_most(epsilon)


def _lower(epsilon: float | None) -> str:
    return MISSING if epsilon is None else f"≥ {at_least(epsilon)}"


def _share(share: float | None) -> str:
    return MISSING if share is None else percent(share)


def _length(value: float | None) -> str:
    return MISSING if value is None else length(value)
