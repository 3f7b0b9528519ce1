"""Where the heterogeneous mechanism of 000 puts its noise: choices of the redistribution vector ``r``.

``r`` is positive and sums to one; coordinate ``k`` of ``K`` gets variance ``sigma^2 K r_k``, so every
``r`` spends the same noise energy. A choice that looks at private data must be paid for by whoever makes
it.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from hauberk.errors import RequestError
from hauberk.mechanisms import checks
from hauberk.mechanisms.checks import Vector

Norm = Literal["l1", "l2", "linf"]


def _normalised(shares: Vector, floor: float) -> Vector:
    """``shares`` scaled to sum to one and mixed with ``floor`` parts of uniform, so that r_k >= floor / K."""
    if not 0 <= floor <= 1:
        raise RequestError(f"floor must lie between 0 and 1, got {floor}.")
    r: Vector = (1 - floor) * (shares / shares.sum()) + floor / shares.size
    return r


def uniform(coordinates: int) -> Vector:
    """``r_k = 1/K``: the isotropic mechanism."""
    size = checks.count("coordinates", coordinates)
    return np.full(size, 1 / size)


def from_vulnerability(derivatives: ArrayLike, *, inflation: float = 1.0, floor: float = 1e-3) -> Vector:
    """More noise where the loss reacts more (000 Eq. 7).

    ``r`` is proportional to the mean of ``|derivative|^inflation``. ``derivatives`` has one row per
    example, or is a single row. 000 holds that using private examples here leaks nothing; it does, so
    give it public ones or noisy ones. ``floor`` keeps coordinates without a derivative from being
    released without noise.
    """
    rows = np.abs(np.atleast_2d(checks.array("the derivatives", derivatives)))
    checks.positive("inflation", inflation)
    if rows.ndim > 2 or not rows.max() > 0:
        raise RequestError("the derivatives must be a matrix, one row per example, and not all zero.")
    relative = rows / rows.max()  # so that a large inflation rate cannot overflow
    return _normalised((relative**inflation).mean(axis=0), floor)


def random(coordinates: int, generator: np.random.Generator, *, floor: float = 1e-3) -> Vector:
    """A uniformly random point of the simplex, mixed with ``floor`` parts of the uniform vector."""
    return _normalised(generator.exponential(size=checks.count("coordinates", coordinates)), floor)


def gain(weights: ArrayLike, redistribution: ArrayLike, norm: Norm) -> float:
    """Largest ``||W a / sqrt(K r)||_2`` over ``||a||_p <= 1`` (000 Eq. 6).

    The weighted sensitivity of ``h = W a`` to an input that moves by one. For l1 and l2 it is exact,
    rounded up; for linf it is the row bound ``sqrt(sum_k ||w_k||_1^2 / (K r_k))``. Divide by sigma
    for the whitened gain.
    """
    matrix = _linear_map(weights)
    r = checks.positive_array("the redistribution vector r", redistribution)
    if len(r) != len(matrix):
        raise RequestError(f"the map has {len(matrix)} outputs, but r has {len(r)} entries.")
    squared = _squared_gain(matrix, r, norm)
    # The rounding error of an eigenvalue is relative to the trace, not to the eigenvalue itself.
    largest = max(squared, float((matrix**2 / r[:, None]).sum()))
    rounding = (len(matrix) + 4 * matrix.shape[1]) * np.finfo(np.float64).eps * largest
    return float(np.sqrt((squared + rounding) / len(r)))


def optimal(
    weights: ArrayLike,
    norm: Norm,
    *,
    floor: float = 1e-3,
    tolerance: float = 1e-3,
    iterations: int = 10_000,
) -> Vector:
    """The ``r`` with the smallest `gain` for the linear map ``h = W a`` (rows ``w_k``) at fixed noise energy.

    The problem is convex, and its optimum is known by these conditions:

    - l2: minimise ``lambda_max(W' diag(r)^{-1} W)``; ``r_k`` proportional to ``sqrt(w_k X w_k')`` for
      some ``X >= 0`` of unit trace on the top eigenspace;
    - l1: minimise ``max_j sum_k W_kj^2 / r_k``; the same with ``X`` diagonal;
    - linf (row bound): ``r_k`` proportional to ``||w_k||_1``.

    For l1 and l2 every ``X`` bounds the optimum from below by ``(sum_k sqrt(w_k X w_k'))^2`` (exchange
    min and max), so the search stops when the squared gain is within ``tolerance`` of a bound it has in
    hand, and says so if it does not get there. ``floor`` then costs at most a factor ``1 / (1 - floor)``
    of the squared gain.
    """
    matrix = _linear_map(weights)
    if norm == "linf":
        return _normalised(np.abs(matrix).sum(axis=1), floor)
    if norm not in ("l1", "l2"):
        raise RequestError(f"norm must be 'l1', 'l2' or 'linf', got {norm!r}.")
    columns = matrix.shape[1]
    root = np.full(columns, columns**-0.5) if norm == "l1" else np.eye(columns) * columns**-0.5  # of X
    best, least, bound = np.zeros(0), np.inf, 0.0
    for _ in range(checks.count("iterations", iterations)):
        projected = matrix * root if norm == "l1" else matrix @ root
        shares = np.linalg.norm(projected, axis=1)  # sqrt(w_k X w_k')
        bound = max(bound, float(shares.sum()) ** 2)
        r = _normalised(shares, 1e-12)  # rows of zeros would divide by zero below
        value = _squared_gain(matrix, r, norm)
        if value < least:
            best, least = r, value
        if least <= bound * (1 + tolerance):
            return _normalised(best, floor)
        # The bound is a convex function of X^{1/2}: the power method climbs it and never steps down.
        climb = np.divide(projected, shares[:, None], out=np.zeros_like(projected), where=shares[:, None] > 0)
        root = (matrix * climb).sum(axis=0) if norm == "l1" else matrix.T @ climb
        root /= np.linalg.norm(root)
    raise RequestError(
        f"no r within {tolerance:g} of the optimum after {iterations} iterations, the gap is "
        f"{least / bound - 1:.2g}; allow a larger tolerance or more iterations."
    )


def _linear_map(weights: ArrayLike) -> Vector:
    matrix = checks.array("the linear map", weights)
    if matrix.ndim != 2 or not np.abs(matrix).max() > 0:
        raise RequestError("the linear map must be a matrix that is not zero, one row per output.")
    return matrix


def _squared_gain(matrix: Vector, r: Vector, norm: Norm) -> float:
    """`gain` squared, for variances ``r`` (without the factor ``K``)."""
    if norm == "linf":
        return float((np.abs(matrix).sum(axis=1) ** 2 / r).sum())
    if norm == "l1":
        return float((matrix**2 / r[:, None]).sum(axis=0).max())
    if norm == "l2":
        return float(np.linalg.eigvalsh(matrix.T @ (matrix / r[:, None]))[-1])
    raise RequestError(f"norm must be 'l1', 'l2' or 'linf', got {norm!r}.")
