"""What the pictures show: mean courses over a stay, time gaps, missing values, marginals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hauberk.synthesis.evaluation_features import Mask, Values
from hauberk.synthesis.patients import Patients
from hauberk.synthesis.schema import Categorical, Numeric

_MOST_PERIODS = 24
_BARS = 30
FEWEST_IN_A_PERIOD = 5


@dataclass(frozen=True, kw_only=True, eq=False)
class Courses:
    """Of every numeric temporal feature the mean and spread in each period of the horizon, on [0, 1].

    NaN where a period has fewer than five measurements.
    """

    names: tuple[str, ...]
    means: Values  # (features, periods)
    spreads: Values


def courses(patients: Patients) -> Courses:
    """Measurements averaged in up to 24 equal periods of the horizon, all patients together."""
    schema = patients.schema
    periods = min(_MOST_PERIODS, schema.time.steps)
    real = patients.real_steps
    share = patients.increments.double().cumsum(1)[real].numpy()
    place = np.minimum((share * periods + 1e-6).astype(np.int64), periods - 1)  # float32 sums fall just short
    values, observed = patients.values[real].double().numpy(), patients.observed[real].numpy()
    names, means, spreads = [], [], []
    for column, feature in enumerate(schema.temporal):
        if isinstance(feature, Numeric):
            mean, spread = _in_periods(values[:, column], observed[:, column], place, periods)
            names.append(feature.name)
            means.append(mean)
            spreads.append(spread)
    empty = np.empty((0, periods))
    return Courses(
        names=tuple(names),
        means=np.stack(means) if means else empty,
        spreads=np.stack(spreads) if spreads else empty,
    )


def _in_periods(values: Values, seen: Mask, place: NDArray[np.int64], periods: int) -> tuple[Values, Values]:
    where, numbers = place[seen], values[seen]
    counts = np.bincount(where, minlength=periods)
    some = np.maximum(counts, 1)
    mean = np.bincount(where, numbers, periods) / some
    spread = np.sqrt(np.bincount(where, np.square(numbers - mean[where]), periods) / some)
    enough = counts >= FEWEST_IN_A_PERIOD
    return np.where(enough, mean, np.nan), np.where(enough, spread, np.nan)


def trajectory_distance(real: Courses, other: Courses) -> float | None:
    """Mean absolute difference of the mean courses, over features and the periods that the real ones have.

    A period in which the other set is empty counts as the whole scale, 1. None where there is no such period.
    """
    there = ~np.isnan(real.means)
    if not there.any():
        return None
    gaps = np.abs(real.means - other.means)[there]
    return float(np.nan_to_num(gaps, nan=1.0).mean())


def time_gaps(patients: Patients) -> Values:
    """The times between neighbouring steps in the schema's unit, of all patients."""
    times = patients.times.numpy()
    gaps: Values = np.diff(times, axis=1)[patients.real_steps[:, 1:].numpy()]
    return gaps.round(9)


def missing_shares(patients: Patients) -> Values:
    """For every patient the share of the cells in the real steps that are empty."""
    cells = patients.lengths.double() * len(patients.schema.temporal)
    shares: Values = (1 - patients.observed.flatten(1).sum(1) / cells).numpy()
    return shares


@dataclass(frozen=True, kw_only=True)
class Histogram:
    """Shares of each set in bars with these edges, or with these labels for levels; what lies beyond the
    last edge is in the last bar."""

    name: str
    edges: tuple[float, ...]
    labels: tuple[str, ...]
    real: tuple[float, ...]
    synthetic: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Trajectory:
    """A feature's mean course in its own unit, ``times`` being the middles of the periods."""

    name: str
    times: tuple[float, ...]
    real: tuple[float | None, ...]
    real_spread: tuple[float | None, ...]
    synthetic: tuple[float | None, ...]
    synthetic_spread: tuple[float | None, ...]


def histogram(name: str, real: Values, synthetic: Values, *, whole: bool = False) -> Histogram:
    """Thirty bars from the least value up to where 99.5 % of either set lie; ``whole`` numbers get their own.

    The bars of two sets of which one is empty are those of the other; of two empty ones there is none.
    """
    both = [side for side in (real, synthetic) if len(side)]
    if not both:
        return Histogram(name=name, edges=(0.0, 1.0), labels=(), real=(0.0,), synthetic=(0.0,))
    low = min(float(side.min()) for side in both)
    high = max(float(np.quantile(side, 0.995)) for side in both)
    if whole and high - low <= 2 * _BARS:
        edges = np.arange(round(low), round(high) + 2, dtype=np.float64) - 0.5
    else:
        edges = low + (high - low if high > low else 1.0) * np.arange(_BARS + 1) / _BARS
    shares = [_shares(side, edges) for side in (real, synthetic)]
    return Histogram(
        name=name, edges=_short(edges), labels=(), real=_short(shares[0]), synthetic=_short(shares[1])
    )


def _shares(values: Values, edges: Values) -> Values:
    counts = np.histogram(np.clip(values, edges[0], edges[-1]), edges)[0]
    shares: Values = counts / max(len(values), 1)
    return shares


def marginal(feature: Numeric | Categorical, real: Values, synthetic: Values) -> Histogram:
    """A feature's observed values in both sets, numbers in their own unit."""
    if isinstance(feature, Numeric):
        width = feature.high - feature.low
        in_units = [feature.low + width * side for side in (real, synthetic)]
        return histogram(feature.name, *in_units)
    shares = [
        np.bincount(side.astype(np.int64), minlength=len(feature.levels)) / max(len(side), 1)
        for side in (real, synthetic)
    ]
    return Histogram(
        name=feature.name,
        edges=(),
        labels=feature.levels,
        real=_short(shares[0]),
        synthetic=_short(shares[1]),
    )


def trajectories(real: Patients, synthetic: Patients) -> tuple[Trajectory, ...]:
    """The mean courses of both sets for the pictures."""
    ours, theirs = courses(real), courses(synthetic)
    periods = ours.means.shape[1]
    times = (np.arange(periods) + 0.5) * real.schema.time.horizon / periods
    numbers = {each.name: each for each in real.schema.temporal if isinstance(each, Numeric)}
    found = []
    for row, name in enumerate(ours.names):
        low, width = numbers[name].low, numbers[name].high - numbers[name].low
        found.append(
            Trajectory(
                name=name,
                times=_short(times),
                real=_or_none(low + width * ours.means[row]),
                real_spread=_or_none(width * ours.spreads[row]),
                synthetic=_or_none(low + width * theirs.means[row]),
                synthetic_spread=_or_none(width * theirs.spreads[row]),
            )
        )
    return tuple(found)


def _short(values: Sequence[float] | Values) -> tuple[float, ...]:
    """Six digits are enough for a picture, and a file of them stays small."""
    return tuple(float(f"{value:.6g}") for value in values)


def _or_none(values: Values) -> tuple[float | None, ...]:
    return tuple(None if np.isnan(value) else float(f"{value:.6g}") for value in values)
