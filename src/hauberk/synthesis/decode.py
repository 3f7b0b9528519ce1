"""Tensors back to a table from which :func:`~hauberk.synthesis.encode.encode` reads the same tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from hauberk.synthesis.cells import Array
from hauberk.synthesis.extra import pandas
from hauberk.synthesis.patients import Patients
from hauberk.synthesis.schema import SECONDS, Categorical, Clock, Feature

ZERO = "2000-01-01"
"""Where timestamps of written tables begin: the schema keeps times since a patient's zero, no dates."""


def decode(patients: Patients) -> Any:
    """A wide pandas table with the columns ``schema.columns`` and one row per patient and real step.

    Static values are repeated in every row of a patient; what was not observed is missing. Every number is
    the decimal one of its grid, whole numbers are integers, levels are their texts. Valid against the schema
    without repair, and encoded again it gives these patients bit for bit.
    """
    schema = patients.schema
    real = patients.real_steps.cpu().numpy()
    owner = np.nonzero(real)[0]
    columns: dict[str, Any] = {
        schema.patient: np.array(patients.identifiers, dtype=object)[owner],
        schema.time.column: _times(patients, real),
    }
    static, seen = patients.static.cpu().numpy()[owner], patients.static_observed.cpu().numpy()[owner]
    for place, feature in enumerate(schema.static):
        columns[feature.name] = _entries(feature, static[:, place], seen[:, place])
    values, observed = patients.values.cpu().numpy()[real], patients.observed.cpu().numpy()[real]
    for place, feature in enumerate(schema.temporal):
        columns[feature.name] = _entries(feature, values[:, place], observed[:, place])
    return pandas().DataFrame(columns)


def _times(patients: Patients, real: Array) -> Any:
    clock = patients.schema.time
    times = patients.times.cpu().numpy()[real]
    if clock.format == "timestamp":
        microseconds = np.rint(times * (1e6 * SECONDS[clock.unit])).astype("timedelta64[us]")
        return np.datetime64(ZERO, "us") + microseconds
    return np.rint(times).astype(np.int64) if _whole(clock) else np.round(times, 9)  # 0.3, not 3 * 0.1


def _whole(clock: Clock) -> bool:
    return clock.decimals == 0 if clock.bins is None else float(clock.bins).is_integer()


def _entries(feature: Feature, tensor: Array, observed: Array) -> Any:
    pd = pandas()
    if isinstance(feature, Categorical):
        entries = np.array([*feature.levels, None], dtype=object)
        return entries[np.where(observed, tensor.astype(np.int64), len(feature.levels))]
    scale = 10.0**feature.decimals
    # whole steps from zero divided by a power of ten: the double nearest to the decimal number
    steps = round(feature.low * scale) + np.rint(tensor.astype(np.float64) * feature.cells)
    if feature.decimals:
        return np.where(observed, steps / scale, np.nan)
    return pd.array(np.where(observed, steps, np.nan), dtype="Int64")
