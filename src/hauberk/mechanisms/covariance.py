"""What a covariance matrix must be, and its smallest eigenvalue from below."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from hauberk.errors import RequestError
from hauberk.mechanisms import checks
from hauberk.mechanisms.checks import Vector


def check_covariance(name: str, covariance: ArrayLike) -> Vector:
    """A read-only copy; a vector is a diagonal, a matrix must be symmetric, neither clearly negative."""
    matrix = checks.array(name, covariance)
    if matrix.ndim == 1:
        if matrix.min() < 0:
            raise RequestError(f"{name} has a negative variance, {matrix.min():.3g}.")
        return matrix
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise RequestError(
            f"{name} must be a square matrix or the vector of its diagonal, its shape is {matrix.shape}."
        )
    if not np.allclose(matrix, matrix.T, rtol=1e-9, atol=1e-12 * float(np.abs(matrix).max())):
        raise RequestError(f"{name} must be symmetric.")
    symmetric: Vector = (matrix + matrix.T) / 2
    values = np.linalg.eigvalsh(symmetric)
    if values[0] < -1e-9 * max(float(values[-1]), 0.0) or values[-1] < 0:
        raise RequestError(f"{name} must not have negative eigenvalues, its smallest is {values[0]:.3g}.")
    symmetric.setflags(write=False)
    return symmetric


def smallest_eigenvalue(covariance: Vector) -> float:
    """Smallest eigenvalue as computed, not below zero; for a diagonal it is exact."""
    if covariance.ndim == 1:
        return float(covariance.min())
    return max(0.0, float(np.linalg.eigvalsh(covariance)[0]))


def certified_smallest_eigenvalue(name: str, covariance: Vector) -> float:
    """A lower bound of the smallest eigenvalue: the computed one less the solver's backward error.

    The bound, not the computed value, goes into a privacy statement; a matrix that is singular up to
    rounding is refused, because nothing can be said of its weakest direction.
    """
    if covariance.ndim == 1:
        smallest = float(covariance.min())
    else:
        values = np.linalg.eigvalsh(covariance)
        smallest = float(values[0] - 4 * len(values) * np.finfo(np.float64).eps * abs(values[-1]))
    if not (math.isfinite(smallest) and smallest > 0):
        raise RequestError(f"{name} must be positive definite, its smallest eigenvalue is {smallest:.3g}.")
    return smallest


def square_root(covariance: Vector) -> Vector:
    """``L`` with ``L L' = covariance``: lower triangular, or the standard deviations of a diagonal."""
    if covariance.ndim == 1:
        return np.sqrt(covariance)
    return np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)


def standard_deviations(covariance: Vector) -> Vector:
    """Per-coordinate standard deviations."""
    return np.sqrt(covariance if covariance.ndim == 1 else np.diagonal(covariance))
