"""The thesis' two comparisons of whole records: matched k-means centres, and the picture by PCA.

004 section 4.3.3: cluster both sets, pair the centres, add up the Minkowski distances of the pairs and
average their cosines. Neither the order of the distance nor the pairing nor the number of clusters of whole
records is printed there. Here: Euclidean distance (order 2), the pairing with the smallest sum, and the three
clusters that the thesis names for single features everywhere.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from hauberk.synthesis.evaluation_features import CLOCK, Sample, record_vectors
from hauberk.synthesis.extra import scikit_learn
from hauberk.synthesis.patients import Patients

Vectors = NDArray[np.float32]

CLUSTERS = 3
_STARTS = 4
_SHOWN = 500  # points of each set in the picture


@dataclass(frozen=True, kw_only=True)
class CentreDistance:
    """How far the matched centres of two clusterings are: 0 and 1 where they coincide."""

    minkowski: float
    cosine: float


def centre_distance(real: NDArray[np.floating], synthetic: NDArray[np.floating]) -> CentreDistance:
    """Sum of the distances, and mean of the cosines, over the pairs with the smallest sum of distances.

    The cosine with a centre that is zero counts as 0, that of two such as 1.
    """
    distances = cdist(real, synthetic)
    rows, columns = linear_sum_assignment(distances)
    cosines = [_cosine(real[row], synthetic[column]) for row, column in zip(rows, columns, strict=True)]
    return CentreDistance(minkowski=float(distances[rows, columns].sum()), cosine=float(np.mean(cosines)))


def _cosine(one: NDArray[np.floating], other: NDArray[np.floating]) -> float:
    if np.array_equal(one, other):
        return 1.0
    lengths = float(np.linalg.norm(one) * np.linalg.norm(other))
    return 0.0 if lengths == 0 else float(np.clip(one @ other / lengths, -1.0, 1.0))


def centres(vectors: Vectors, *, seed: int) -> NDArray[np.float64]:
    """k-means centres, the best of four seeded starts."""
    from_library = scikit_learn("sklearn.cluster").KMeans(CLUSTERS, n_init=_STARTS, random_state=seed % 2**32)
    with warnings.catch_warnings():
        # fewer distinct vectors than clusters (a feature nobody measured) is an answer here, not a mistake
        warnings.simplefilter("ignore", scikit_learn("sklearn.exceptions").ConvergenceWarning)
        found: NDArray[np.float64] = from_library.fit(vectors).cluster_centers_.astype(np.float64)
    return found


def whole_records(real: Patients, synthetic: Patients, *, seed: int) -> CentreDistance:
    """Of the records as vectors, all features and times together (Table 4.1)."""
    return centre_distance(
        centres(record_vectors(real), seed=seed), centres(record_vectors(synthetic), seed=seed)
    )


def single_features(real: Patients, synthetic: Patients, *, seed: int) -> dict[str, CentreDistance]:
    """Of the time increments, and of each temporal feature's values over the steps (Table 4.2)."""
    both = [_courses(real), _courses(synthetic)]
    return {
        name: centre_distance(*(centres(courses[name], seed=seed) for courses in both)) for name in both[0]
    }


def _courses(patients: Patients) -> dict[str, Vectors]:
    vectors, start, courses = patients.step_vectors(), 0, {CLOCK: patients.increments.numpy()}
    for feature in patients.schema.temporal:
        courses[feature.name] = vectors[..., start : start + feature.width].flatten(1).numpy()
        start += feature.width
    return courses


@dataclass(frozen=True, kw_only=True)
class Plane:
    """Both sets in the plane of the real records' two main components; ``explained`` are shares of variance.

    Every point is a patient: this is a picture of records, and as private as they are.
    """

    explained: tuple[float, ...]
    real: tuple[tuple[float, ...], ...]
    synthetic: tuple[tuple[float, ...], ...]


def plane(real: Sample, synthetic: Sample, *, seed: int) -> Plane:
    """PCA of the real record vectors; at most 500 patients of each set are shown."""
    vectors = record_vectors(real.patients)
    analysis = scikit_learn("sklearn.decomposition").PCA(
        2, svd_solver="randomized", random_state=seed % 2**32
    )
    with np.errstate(invalid="ignore"):  # equal records have no variance to explain: shares of 0
        analysis.fit(vectors)
    explained = analysis.explained_variance_ratio_
    return Plane(
        explained=tuple(round(float(share), 4) if np.isfinite(share) else 0.0 for share in explained),
        real=_points(analysis.transform(vectors[:_SHOWN])),
        synthetic=_points(analysis.transform(record_vectors(synthetic.patients.first(_SHOWN)))),
    )


def _points(projected: NDArray[np.floating]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(round(float(value), 4) for value in point) for point in projected)
