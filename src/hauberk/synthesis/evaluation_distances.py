"""How far two sets of patients are apart: feature by feature, pair by pair, in what is missing, in time.

All distances are 0 for two equal sets and, but for the Minkowski sums, at most 1 (2 for a correlation). They
are distances between two *samples*: two honest samples of one population are not at 0 either, which is why a
:class:`Fidelity` of training records against the real ones stands beside that of the synthetic ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hauberk.synthesis.evaluation_clusters import CentreDistance, single_features, whole_records
from hauberk.synthesis.evaluation_courses import courses, time_gaps, trajectory_distance
from hauberk.synthesis.evaluation_features import CLOCK, Mask, Sample, Values, summarize
from hauberk.synthesis.patients import Patients
from hauberk.synthesis.schema import Categorical

FEWEST_FOR_A_CORRELATION = 20


@dataclass(frozen=True, kw_only=True)
class FeatureDistance:
    """One feature. ``marginal``: Kolmogorov distance of numbers, total variation of levels.

    Of a temporal feature all measurements count alike, so a patient who is measured often counts often. The
    missing rate is a share of patients for static features and of steps for temporal ones; ``centres`` are
    of temporal features only.
    """

    name: str
    temporal: bool
    measure: str
    marginal: float
    missing_real: float
    missing_synthetic: float
    centres: CentreDistance | None


@dataclass(frozen=True, kw_only=True)
class Fidelity:
    """One set of patients against the real ones, in numbers of which small is near (cosines: large)."""

    records: CentreDistance
    increments: CentreDistance
    features: tuple[FeatureDistance, ...]
    marginal_distance: float  # mean over features
    length_distance: float  # Kolmogorov, number of steps
    correlation_distance: float | None  # mean absolute difference over pairs; None without a pair
    correlation_pairs: int
    cooccurrence_distance: float | None  # the same for being measured in one step; None for one feature
    missing_rate_error: float  # mean absolute difference over features
    time_gap_distance: float  # Kolmogorov, time between neighbouring steps
    trajectory_distance: float | None  # mean absolute difference of mean courses; None without numbers


def fidelity(real: Sample, other: Sample, *, seed: int) -> Fidelity:
    """All distances of one set from the real one."""
    ours, theirs = real.patients, other.patients
    by_feature = single_features(ours, theirs, seed=seed)
    features = tuple(
        _feature_distance(ours, theirs, name, by_feature)
        for name in (each.name for each in ours.schema.features)
    )
    correlation, pairs = correlation_distance(ours, theirs)
    return Fidelity(
        records=whole_records(ours, theirs, seed=seed),
        increments=by_feature[CLOCK],
        features=features,
        marginal_distance=float(np.mean([each.marginal for each in features])),
        length_distance=kolmogorov(ours.lengths.numpy(), theirs.lengths.numpy()),
        correlation_distance=correlation,
        correlation_pairs=pairs,
        cooccurrence_distance=cooccurrence_distance(ours, theirs),
        missing_rate_error=float(
            np.mean([abs(each.missing_real - each.missing_synthetic) for each in features])
        ),
        time_gap_distance=kolmogorov(time_gaps(ours), time_gaps(theirs)),
        trajectory_distance=trajectory_distance(courses(ours), courses(theirs)),
    )


def kolmogorov(one: NDArray[np.generic], other: NDArray[np.generic]) -> float:
    """The largest difference of the two distribution functions; 1 where only one side has values."""
    if len(one) == 0 or len(other) == 0:
        return float(len(one) != len(other))
    one, other = np.sort(one), np.sort(other)
    points = np.concatenate([one, other])
    below_one = np.searchsorted(one, points, side="right") / len(one)
    below_other = np.searchsorted(other, points, side="right") / len(other)
    return float(np.abs(below_one - below_other).max())


def total_variation(one: NDArray[np.generic], other: NDArray[np.generic], levels: int) -> float:
    """Half the sum of the absolute differences of the levels' shares; 1 where only one side has values."""
    if len(one) == 0 or len(other) == 0:
        return float(len(one) != len(other))
    shares = [np.bincount(side.astype(np.int64), minlength=levels) / len(side) for side in (one, other)]
    return float(np.abs(shares[0] - shares[1]).sum() / 2)


def observed_values(patients: Patients, name: str) -> Values:
    """All values of a feature that were observed, in the order of patients and steps."""
    values, seen = _cells(patients, name)
    return values[seen]


def _cells(patients: Patients, name: str) -> tuple[Values, Mask]:
    """Values and masks of a feature over patients (static) or over patients and real steps (temporal)."""
    for place, feature in enumerate(patients.schema.static):
        if feature.name == name:
            return patients.static[:, place].double().numpy(), patients.static_observed[:, place].numpy()
    place = patients.schema.temporal_place(name)
    real = patients.real_steps
    return patients.values[:, :, place][real].double().numpy(), patients.observed[:, :, place][real].numpy()


def _feature_distance(
    real: Patients, other: Patients, name: str, by_feature: dict[str, CentreDistance]
) -> FeatureDistance:
    feature = next(each for each in real.schema.features if each.name == name)
    (values, seen), (other_values, other_seen) = _cells(real, name), _cells(other, name)
    if isinstance(feature, Categorical):
        marginal = total_variation(values[seen], other_values[other_seen], len(feature.levels))
    else:
        marginal = kolmogorov(values[seen], other_values[other_seen])
    temporal = feature in real.schema.temporal
    return FeatureDistance(
        name=name,
        temporal=temporal,
        measure="total variation" if isinstance(feature, Categorical) else "Kolmogorov",
        marginal=marginal,
        missing_real=1.0 - float(seen.mean()),
        missing_synthetic=1.0 - float(other_seen.mean()),
        centres=by_feature[name] if temporal else None,
    )


def correlation_distance(real: Patients, other: Patients) -> tuple[float | None, int]:
    """Mean absolute difference of correlations between features, and over how many pairs of columns.

    Pearson's, of static values and of each patient's means, over the patients who have both; a column that
    never varies is correlated with nothing. A pair counts if either set has twenty patients with both, and
    a side with fewer then counts as uncorrelated: never to measure two things together is not fidelity.
    """
    ours, theirs = summarize(real).averages(), summarize(other).averages()
    features = np.array(ours.features)
    (one, one_counts), (two, two_counts) = correlations(ours.values), correlations(theirs.values)
    enough = np.maximum(one_counts, two_counts) >= FEWEST_FOR_A_CORRELATION
    counted = np.triu(features[:, None] != features, 1) & enough
    if not counted.any():
        return None, 0
    one = np.where(one_counts >= FEWEST_FOR_A_CORRELATION, one, 0.0)
    two = np.where(two_counts >= FEWEST_FOR_A_CORRELATION, two, 0.0)
    return float(np.abs(one - two)[counted].mean()), int(counted.sum())


def correlations(table: Values) -> tuple[Values, Values]:
    """Pearson's correlation of every two columns over the rows that have both, and how many these are."""
    seen = ~np.isnan(table)
    mask = seen.astype(np.float64)
    middle = np.where(seen, table, 0.0).sum(0) / np.maximum(seen.sum(0), 1)
    centred = np.where(seen, table - middle, 0.0)
    counts = mask.T @ mask
    some = np.maximum(counts, 1.0)
    mean = centred.T @ mask / some  # of the row's column, over the rows that the other column has too
    square = np.square(centred).T @ mask / some
    spread = np.sqrt(np.maximum(square - np.square(mean), 0.0))
    covariance = centred.T @ centred / some - mean * mean.T
    product = spread * spread.T
    found = np.where(product > 1e-12, covariance / np.where(product > 1e-12, product, 1.0), 0.0)
    return np.clip(found, -1.0, 1.0), counts


def cooccurrence_distance(real: Patients, other: Patients) -> float | None:
    """Mean absolute difference, over pairs of features, of the share of steps that measure both."""
    features = len(real.schema.temporal)
    if features < 2:
        return None
    shares = []
    for patients in (real, other):
        seen = patients.observed[patients.real_steps].double()
        shares.append((seen.T @ seen / len(seen)).numpy())
    pairs = np.triu_indices(features, 1)
    return float(np.abs(shares[0] - shares[1])[pairs].mean())
