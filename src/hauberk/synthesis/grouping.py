"""Single values into the arrays of patients: horizon, ticks, duplicates, aggregation, steps.

All sorting and counting is within groups that begin with the patient, so that no patient's arrays depend on
another's values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hauberk.errors import RequestError
from hauberk.synthesis.cells import Array, Cells, Reader, Repairs, Source
from hauberk.synthesis.schema import SECONDS, Categorical, Feature, Schema


class Grouping:
    """Brings cells into arrays; a group is all values of one feature of one patient in one tick."""

    def __init__(self, schema: Schema, reader: Reader, sources: Sequence[Source]) -> None:
        self.schema = schema
        self.reader = reader
        self.sources = sources

    def static(self, cells: Cells, patients: int) -> tuple[Array, Array]:
        """(patients, S) values and which are observed; the same value given many times counts once."""
        features = self.schema.static
        values = np.zeros((patients, len(features)), dtype=np.float32)
        observed = np.zeros((patients, len(features)), dtype=bool)
        if len(cells) == 0:
            return values, observed
        cells = replace(cells, time=np.zeros(len(cells)))
        order, begins = _runs(cells.patient * len(features) + cells.feature, cells.value)
        different = cells.at(np.sort(order[begins]))
        self._check_duplicates(different, different.time, features)
        patient, _, feature, value = self._grouped(cells, np.zeros(len(cells), dtype=np.int64), features)
        self.reader.repairs += Repairs(merged=len(different) - len(patient))
        values[patient, feature] = _scaled(value, feature, features)
        observed[patient, feature] = True
        return values, observed

    def temporal(self, cells: Cells, patients: int) -> tuple[Array, Array, Array, Array]:
        """(patients, T, F) values and which are observed, (patients, T) increments, (patients,) lengths."""
        clock, features = self.schema.time, self.schema.temporal
        values = np.zeros((patients, clock.steps, len(features)), dtype=np.float32)
        observed = np.zeros(values.shape, dtype=bool)
        increments = np.zeros((patients, clock.steps), dtype=np.float32)
        lengths = np.zeros(patients, dtype=np.int64)
        cells = self._within_horizon(cells, patients)
        if len(cells) == 0:
            return values, observed, increments, lengths
        ticks = self._ticks(cells)
        self._check_duplicates(cells, cells.time if clock.bins is not None else ticks, features)
        patient, tick, feature, value = self._grouped(cells, ticks, features)
        self.reader.repairs += Repairs(merged=len(cells) - len(patient))
        # groups come sorted by patient and tick: a step begins where either changes
        begins = np.r_[True, (patient[1:] != patient[:-1]) | (tick[1:] != tick[:-1])]
        step_patient, step_tick = patient[begins], tick[begins]
        starts = np.searchsorted(step_patient, np.arange(patients))
        number = np.arange(len(step_patient)) - starts[step_patient]
        step = number[np.cumsum(begins) - 1]
        kept = step < clock.steps
        self._count_cut(~kept)
        patient, step, feature, value = patient[kept], step[kept], feature[kept], value[kept]
        values[patient, step, feature] = _scaled(value, feature, features)
        observed[patient, step, feature] = True
        within = number < clock.steps
        before = np.r_[0, step_tick[:-1]]
        gaps = np.where(number == 0, step_tick, step_tick - before)
        increments[step_patient[within], number[within]] = (gaps[within] / clock.ticks).astype(np.float32)
        np.add.at(lengths, step_patient[within], 1)
        return values, observed, increments, lengths

    def _within_horizon(self, cells: Cells, patients: int) -> Cells:
        clock = self.schema.time
        if clock.format == "timestamp":
            zero = np.full(patients, np.inf)
            np.minimum.at(zero, cells.patient, cells.time)
            # the difference first: it is exact in whole microseconds
            cells = replace(cells, time=(cells.time - zero[cells.patient]) / (1e6 * SECONDS[clock.unit]))
        outside = (cells.time < 0) | (cells.time > clock.horizon + 1e-9)
        if not outside.any():
            return cells
        if self.reader.strict or self.schema.out_of_bounds == "refuse":
            worst = int(outside.argmax())
            raise RequestError(
                f"{self._where(cells, worst)} has the time {cells.time[worst]:g} {clock.unit} in column "
                f"{clock.column}, but times must lie from 0 to {clock.horizon:g}; "
                "correct the entry or change the schema."
            )
        self.reader.repairs += Repairs(late=int(outside.sum()))
        return cells.at(np.flatnonzero(~outside))

    def _ticks(self, cells: Cells) -> Array:
        clock = self.schema.time
        exact = cells.time / clock.bins if clock.bins is not None else cells.time * 10.0**clock.decimals
        # a time may miss its whole number by a rounding error: 0.3 / 0.1, or a third of a second
        nearest = np.rint(exact)
        whole = np.abs(exact - nearest) < 1e-5
        ticks = nearest if clock.bins is None else np.where(whole, nearest, np.floor(exact))
        moved = ~whole
        if moved.any():
            if self.reader.strict:
                worst = int(moved.argmax())
                raise RequestError(
                    f"{self._where(cells, worst)} has the time {cells.time[worst]:g} {clock.unit} in column "
                    f"{clock.column}, which is between two ticks of the schema's clock; round it."
                )
            self.reader.repairs += Repairs(moved=int(moved.sum()))
        bounded: Array = np.minimum(ticks, clock.ticks).astype(np.int64)
        return bounded

    def _check_duplicates(self, cells: Cells, moment: Array, features: tuple[Feature, ...]) -> None:
        """Two values of one feature of one patient at one time are refused unless the schema merges them."""
        if self.schema.duplicates == "aggregate":
            return
        order = np.lexsort((moment, cells.feature, cells.patient))
        same = np.ones(len(order) - 1, dtype=bool)
        for part in (moment, cells.feature, cells.patient):
            same &= part[order][1:] == part[order][:-1]
        if not same.any():
            return
        later = order[1:][same]  # the sort is stable: of two equal entries the later one in the file
        second = int(later[np.lexsort((cells.row[later], cells.source[later]))[0]])
        feature = features[int(cells.feature[second])]
        shared = "patient and time" if feature in self.schema.temporal else "patient"
        raise RequestError(
            f"{self._where(cells, second)} holds a second value of the same {shared} in column "
            f"{feature.name}; remove one of them or set duplicates to aggregate in the schema."
        )

    def _grouped(
        self, cells: Cells, ticks: Array, features: tuple[Feature, ...]
    ) -> tuple[Array, Array, Array, Array]:
        """Patient, tick, feature and aggregated value of every group, sorted in this order."""
        key = (cells.patient * (int(ticks.max()) + 1) + ticks) * len(features) + cells.feature
        if self.schema.aggregate == "last":
            order = np.lexsort((cells.time, key))
            ends = np.r_[key[order][1:] != key[order][:-1], True]
            chosen = order[ends]
            value = cells.value[chosen]
        else:
            levels = np.array([isinstance(feature, Categorical) for feature in features])[cells.feature]
            # the values of a group in their own order: a sum must not depend on where in a file they stood
            order = np.lexsort((cells.value, key))
            starts = np.flatnonzero(np.r_[True, key[order][1:] != key[order][:-1]])
            chosen = order[starts]
            counts = np.diff(np.r_[starts, len(order)])
            value = np.add.reduceat(cells.value[order], starts) / counts
            categorical = levels[chosen]
            if categorical.any():
                value[categorical] = _most_frequent(key[levels], cells.value[levels])
        return cells.patient[chosen], ticks[chosen], cells.feature[chosen], np.rint(value)

    def _count_cut(self, cut: Array) -> None:
        if cut.any() and self.reader.strict:
            raise RequestError(
                f"a patient of {self.sources[0].named} has more than {self.schema.time.steps} steps; "
                "remove the later ones or allow more in the schema."
            )
        self.reader.repairs += Repairs(cut=int(cut.sum()))

    def _where(self, cells: Cells, entry: int) -> str:
        return self.sources[int(cells.source[entry])].where(int(cells.row[entry]))


def _runs(key: Array, value: Array) -> tuple[Array, Array]:
    """An order by key and value, stable, and the places in it at which a new pair of the two begins."""
    order = np.lexsort((value, key))
    key, value = key[order], value[order]
    return order, np.flatnonzero(np.r_[True, (key[1:] != key[:-1]) | (value[1:] != value[:-1])])


def _most_frequent(key: Array, level: Array) -> Array:
    """For every key, in increasing order, its most frequent level; the first listed among equals."""
    order, begins = _runs(key, level)
    counts = np.diff(np.r_[begins, len(order)])
    key, level = key[order][begins], level[order][begins]
    best = np.lexsort((level, -counts, key))
    frequent: Array = level[best][np.r_[True, key[best][1:] != key[best][:-1]]]
    return frequent


def _scaled(value: Array, feature: Array, features: tuple[Feature, ...]) -> Array:
    """Grid places as tensors hold them: numbers divided by their feature's cells, levels as they are."""
    cells = np.array([1 if isinstance(each, Categorical) else each.cells for each in features])
    scaled: Array = (value / cells[feature]).astype(np.float32)
    return scaled
