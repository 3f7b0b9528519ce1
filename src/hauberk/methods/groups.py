"""How a run treats groups of test records: accuracy, certified accuracy and radius by the level of a column.

Groups are of *test* records. The model has been released, and whatever is computed from it and from other
records costs its training records nothing more. The test records themselves are not protected.

A column is one that the network reads (told from its inputs), the label, or any other column of the table
that the test records come from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hauberk.certify.metrics import Mean, Share, as_numbers, correct_radii
from hauberk.data import Dataset
from hauberk.data.adult import COLUMNS as ADULT_COLUMNS
from hauberk.data.adult import INCOME, INCOME_CLASSES, Number
from hauberk.data.input_form import InputForm
from hauberk.data.persons import check_share, held_out
from hauberk.data.table import read_csv, read_table
from hauberk.data.table_schema import CategoricalColumn, NumericColumn, TableSchema
from hauberk.errors import RequestError
from hauberk.methods.comparison import as_csv
from hauberk.methods.run import predictions, spread_rows
from hauberk.methods.run_certification import prepare_certification
from hauberk.methods.settings import TrainSettings
from hauberk.methods.training import load_run, load_split, read_form, read_settings
from hauberk.progress import Progress, silent
from hauberk.training import RunFolder

ALL = "all"
MISSING = "missing"
NO_COST = (
    "Groups are of test records: the table costs the training records nothing beyond what the card says, and "
    "the test records are not protected."
)
_BANDS = 4  # of a number's declared range, where no edges are given
_MOST_GROUPS = 60
_USUAL_RADII = (0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Grouping:
    """A column's groups, in order, and the group of every test record."""

    column: str
    names: tuple[str, ...]
    members: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class GroupRow:
    """One group; shares have exact 95 % intervals, the mean radius a normal one.

    ``accuracy``: the class that wins most draws, certified or not. ``guessing``: what the group's own most
    frequent class would get, if it were always answered; an accuracy without it says little.
    ``certified``: answered correctly and certified, at each asked radius. ``average_certified_radius`` counts
    wrong answers and abstentions as zero. Both are None where the method promises no robustness.
    """

    column: str
    group: str
    records: int
    guessing: float | None
    accuracy: Share
    certified: tuple[Share, ...] | None
    average_certified_radius: Mean | None


@dataclass(frozen=True, kw_only=True)
class GroupTable:
    """All groups of all columns, after one row for all tested records."""

    run: str
    radii: tuple[float, ...]
    norm: str | None
    certificate: str | None
    alpha: float | None
    samples: int | None
    rows: tuple[GroupRow, ...]

    def of(self, column: str) -> tuple[GroupRow, ...]:
        return tuple(row for row in self.rows if row.column == column)

    def gap(self, column: str) -> str | None:
        """The largest difference in accuracy between groups, and whether chance explains it."""
        rows = [row for row in self.of(column) if row.accuracy.value is not None]
        if len(rows) < 2:
            return None
        best, worst = (choose(rows, key=lambda row: row.accuracy.value or 0.0) for choose in (max, min))
        apart = best.accuracy.low > worst.accuracy.high
        points = 100 * ((best.accuracy.value or 0.0) - (worst.accuracy.value or 0.0))
        judged = "their intervals do not overlap" if apart else "their intervals overlap"
        return (
            f"{column}: accuracies differ by up to {points:.1f} points ({best.group} over {worst.group}); "
            f"{judged}."
        )

    def flat(self) -> list[dict[str, Any]]:
        """One line per group."""
        lines = []
        for row in self.rows:
            line: dict[str, Any] = {
                name: getattr(row, name) for name in ("column", "group", "records", "guessing")
            }
            shares = {"accuracy": row.accuracy}
            for radius, share in zip(self.radii, row.certified or (), strict=bool(row.certified)):
                shares[f"certified_at_{radius:g}"] = share
            for name, share in shares.items():
                line |= {name: share.value, f"{name}_low": share.low, f"{name}_high": share.high}
            if (mean := row.average_certified_radius) is not None:
                known = bool(row.records)
                line["average_certified_radius"] = mean.value if known else None
                line["average_certified_radius_low"] = mean.low if row.records > 1 else None
                line["average_certified_radius_high"] = mean.high if row.records > 1 else None
            lines.append(line)
        return lines

    def to_csv(self) -> str:
        return as_csv(self.flat())

    def to_json(self) -> dict[str, Any]:
        about = {name: getattr(self, name) for name in ("run", "norm", "certificate", "alpha", "samples")}
        lines = [as_numbers(row) for row in self.rows]
        return {**about, "radii": list(self.radii), "groups": lines, "privacy": NO_COST}


def group_table(
    path: Path,
    columns: Sequence[str],
    *,
    radii: Sequence[float] | None = None,
    samples: int | None = None,
    alpha: float | None = None,
    limit: int | None = None,
    seed: int | None = None,
    device: str = "auto",
    progress: Progress = silent,
) -> GroupTable:
    """Certify the test records of a run, all of them or ``limit`` spread evenly, and count by group.

    ``columns``: names, for a number with the edges of its bands, such as ``age:25:45:65``.
    """
    settings, config = read_settings(RunFolder.open(path))
    test = load_split(settings).test
    groupings = find_groupings(columns, settings, read_form(config), test)
    for radius in radii or ():
        if not 0 <= radius < math.inf:
            raise RequestError(f"a radius is a number that is not negative, got {radius:g}")
    run = load_run(path, device=device)
    if run.noise is None:
        if radii is not None or samples is not None or alpha is not None or seed is not None:
            raise RequestError(
                f"{run.method} promises no robustness: leave out --radius, --samples, --alpha and --seed"
            )
        rows = spread_rows(len(test), len(test) if limit is None else _positive(limit))
        truth = test.y.numpy()[rows]
        right = predictions(run.model, test)[rows] == truth
        about: dict[str, Any] = dict.fromkeys(("norm", "certificate", "alpha", "samples"))
        return _table(path, groupings, rows, truth=truth, right=right, correct=None, radii=(), about=about)
    request = prepare_certification(
        path,
        options={"samples": samples, "alpha": alpha, "seed": seed},
        limit=len(test) if limit is None else limit,
        device=device,
    )
    kept = request.kept()
    verdicts = request.answer(kept=kept, progress=progress)
    kept.remove()
    assert verdicts is not None  # alone, one leads
    assert request.truth is not None  # asked about test data
    found, truth = verdicts.certificates, request.truth
    correct = correct_radii(found, truth)
    chosen = _usual_radii(correct) if radii is None else tuple(sorted(set(radii)))
    about = {name: getattr(found, name) for name in ("norm", "certificate", "alpha", "samples")}
    right = np.asarray(found.predicted == truth)
    return _table(
        path, groupings, request.rows, truth=truth, right=right, correct=correct, radii=chosen, about=about
    )


def _positive(limit: int) -> int:
    if limit < 1:
        raise RequestError(f"--limit must be at least 1, got {limit}")
    return limit


def _usual_radii(correct: NDArray[np.float64]) -> tuple[float, ...]:
    reached = [radius for radius in _USUAL_RADII if radius <= correct.max(initial=0.0)]
    return tuple(reached[-2:])


def _table(
    path: Path,
    groupings: Sequence[Grouping],
    rows: NDArray[np.int64],
    *,
    truth: NDArray[np.int64],
    right: NDArray[np.bool_],
    correct: NDArray[np.float64] | None,
    radii: tuple[float, ...],
    about: dict[str, Any],
) -> GroupTable:
    def counted(column: str, group: str, members: NDArray[np.bool_]) -> GroupRow:
        mine = None if correct is None else correct[members]
        return GroupRow(
            column=column,
            group=group,
            records=int(members.sum()),
            guessing=float(np.bincount(truth[members]).max() / members.sum()) if members.any() else None,
            accuracy=Share.of(right[members]),
            certified=None if mine is None else tuple(Share.of(mine >= radius) for radius in radii),
            average_certified_radius=None if mine is None else Mean.of(np.maximum(mine, 0.0)),
        )

    lines = [counted(ALL, ALL, np.ones(len(rows), dtype=np.bool_))]
    for grouping in groupings:
        members = grouping.members[rows]
        lines += [counted(grouping.column, name, members == i) for i, name in enumerate(grouping.names)]
    return GroupTable(run=str(path), radii=radii, rows=tuple(lines), **about)


def find_groupings(
    asked: Sequence[str], settings: TrainSettings, form: InputForm | None, test: Dataset
) -> tuple[Grouping, ...]:
    """The groups of every test record by each of the columns; what cannot be found is refused with a list."""
    schema, label = _schema_of(settings, form)
    found = []
    for each in asked:
        name, *edges = (each,) if each in _names(schema) else each.split(":")
        if name == label:
            _refuse_edges(name, edges)
            found.append(Grouping(column=name, names=schema.classes, members=test.y.numpy()))
        elif (column := next((one for one in schema.predictors if one.name == name), None)) is not None:
            found.append(_of_inputs(column, edges, schema, test.x.numpy()))
        else:
            _refuse_edges(name, edges)
            found.append(_of_file(name, settings, form, schema, count=len(test)))
    if len({each.column for each in found}) < len(found):
        raise RequestError("a column is named twice: name each once")
    return tuple(found)


def _names(schema: TableSchema) -> tuple[str, ...]:
    return tuple(column.name for column in schema.columns)


def _schema_of(settings: TrainSettings, form: InputForm | None) -> tuple[TableSchema, str]:
    """Of a table of the user's own, or of adult, whose columns are as public as a schema."""
    if form is not None and (schema := form.table) is not None:
        return schema, schema.label
    if settings.data != "adult":
        raise RequestError(
            f"{settings.data} is no table: groups are told by the columns of one (--data adult, or a .csv "
            "file with its schema)"
        )
    columns: list[NumericColumn | CategoricalColumn] = [
        NumericColumn(name=name, low=column.low, high=column.high)
        if isinstance(column, Number)
        else CategoricalColumn(name=name, levels=column.levels)
        for name, column in ADULT_COLUMNS.items()
    ]
    columns.append(CategoricalColumn(name=INCOME, levels=tuple(INCOME_CLASSES)))
    return TableSchema(label=INCOME, columns=tuple(columns)), INCOME


def _refuse_edges(name: str, edges: Sequence[str]) -> None:
    if edges:
        raise RequestError(f"{name} has no bands: edges such as :{edges[0]} are for numbers that are read")


def _of_inputs(
    column: NumericColumn | CategoricalColumn,
    edges: Sequence[str],
    schema: TableSchema,
    x: NDArray[np.float32],
) -> Grouping:
    """From what the network reads: 0/1 inputs of levels, or a scaled number between edges."""
    first = schema.inputs.index(column.inputs[0])
    if isinstance(column, CategoricalColumn):
        _refuse_edges(column.name, edges)
        names: tuple[str, ...] = column.levels
        members = x[:, first : first + len(names)].argmax(1).astype(np.int64)
    else:
        bounds = _edges(column, edges)
        # scaled and rounded as the records were, so that a number at an edge is on its own side of it
        scaled = [np.float32((bound - column.low) / (column.high - column.low)) for bound in bounds]
        members = np.digitize(x[:, first], np.array(scaled, dtype=np.float32)).astype(np.int64)
        names = _band_names(bounds)
    if schema.missing == "level":
        absent = x[:, first + len(column.inputs)] == 1.0
        if absent.any():
            members = np.where(absent, len(names), members)
            names = (*names, MISSING)
    return Grouping(column=column.name, names=names, members=members)


def _edges(column: NumericColumn, edges: Sequence[str]) -> tuple[float, ...]:
    if not edges:
        step = (column.high - column.low) / _BANDS
        return tuple(column.low + step * place for place in range(1, _BANDS))
    try:
        bounds = tuple(float(edge) for edge in edges)
    except ValueError:
        bounds = (math.nan,)
    inside = all(column.low < bound <= column.high for bound in bounds)
    if not inside or any(one >= other for one, other in pairwise(bounds)):
        raise RequestError(
            f"the edges of {column.name} are rising numbers between {column.low:g} and {column.high:g}, such "
            f"as {column.name}:{column.low + (column.high - column.low) / 2:g}"
        )
    return bounds


def _band_names(bounds: Sequence[float]) -> tuple[str, ...]:
    between = [f"{low:g} to below {high:g}" for low, high in pairwise(bounds)]
    return (f"below {bounds[0]:g}", *between, f"{bounds[-1]:g} or more")


def _of_file(
    name: str, settings: TrainSettings, form: InputForm | None, schema: TableSchema, *, count: int
) -> Grouping:
    """From a column that the network does not read, in the order in which test records were taken."""
    if form is None or settings.validation is not None:
        raise RequestError(
            f"there is no column {name!r} to group by: choose from {', '.join(_names(schema))}"
        )
    path = Path(settings.data if settings.test is None else settings.test)
    rows = read_csv(path)
    if name not in rows.header:
        raise RequestError(f"{path} has no column {name!r} to group by: choose from {', '.join(rows.header)}")
    entries = [cells[rows.header.index(name)] for _, cells in rows.rows]
    if settings.test is None:
        share = check_share(settings.holdout)
        owners = read_table(path, schema).owners
        entries = [entry for entry, owner in zip(entries, owners, strict=True) if held_out(owner, share)]
    entries = [entry or MISSING for entry in entries[:count]]
    names = tuple(sorted(set(entries)))
    if len(names) > _MOST_GROUPS:
        raise RequestError(
            f"column {name!r} has more than {_MOST_GROUPS} different entries: choose one with fewer"
        )
    places = {each: place for place, each in enumerate(names)}
    return Grouping(column=name, names=names, members=np.array([places[entry] for entry in entries]))
