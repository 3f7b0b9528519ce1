"""Privacy as a bound on information, and the least distortion it leaves (002 section 5). All in nats.

The rate-distortion bounds are Shannon's lower bound for *independent* coordinates, filled from below like
water: no mechanism that reveals at most ``rate`` nats of ``g`` has a smaller mean of the distortion
``sum_i w_i^2 (g~_i - g_i)^2``. Correlated coordinates must be whitened first. The bounds are exact
statements when the entropies are; made from entropies estimated from data they are estimates, and say so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import differential_entropy

from hauberk.errors import RequestError
from hauberk.mechanisms import checks
from hauberk.mechanisms.checks import Vector
from hauberk.mechanisms.covariance import certified_smallest_eigenvalue, check_covariance, square_root


def mutual_information_bound(epsilon: float) -> float:
    """``epsilon (e^epsilon - 1) / 2`` (002 Theorem 2): bounds I(g; g~) for *pure* epsilon-privacy.

    Needs all values of ``g`` to be neighbours of each other. An (epsilon, delta) mechanism has no such bound.
    """
    checks.nonnegative("epsilon", epsilon)
    return epsilon * math.expm1(epsilon) / 2 if epsilon < 700 else math.inf


def tight_mutual_information_bound(epsilon: float) -> float:
    """``epsilon tanh(epsilon/2)``: the same statement with the largest divergence that pure privacy allows.

    Two distributions whose densities differ by at most a factor ``e^epsilon`` have the largest
    Kullback-Leibler divergence when they are those of randomised response.
    """
    return checks.nonnegative("epsilon", epsilon) * math.tanh(epsilon / 2)


def gaussian_channel_rate(covariance: ArrayLike, noise_covariance: ArrayLike) -> float:
    """``1/2 ln det(I + Sigma^{-1/2} Cov(g) Sigma^{-1/2})``: bounds I(g; g + N(0, Sigma)).

    Holds for every ``g`` with this covariance, with equality when ``g`` is Gaussian. Vectors are diagonals.
    """
    signal = check_covariance("the covariance of g", covariance)
    noise = check_covariance("the noise covariance", noise_covariance)
    if len(signal) != len(noise):
        raise RequestError(f"g has {len(signal)} coordinates, but the noise has {len(noise)}.")
    certified_smallest_eigenvalue("the noise covariance", noise)
    if signal.ndim == noise.ndim == 1:
        return float(np.log1p(signal / noise).sum()) / 2
    signal, noise = (np.diag(matrix) if matrix.ndim == 1 else matrix for matrix in (signal, noise))
    root = square_root(noise)
    whitened = np.linalg.solve(root, np.linalg.solve(root, signal).T)
    eigenvalues = np.linalg.eigvalsh((whitened + whitened.T) / 2)
    return float(np.log1p(np.maximum(eigenvalues, 0)).sum()) / 2


@dataclass(frozen=True, kw_only=True, eq=False)
class IndependentSource:
    """Differential entropies ``h(g_i)`` of independent coordinates, and whether they are exact."""

    entropies: Vector
    exact: bool
    origin: str

    def __post_init__(self) -> None:
        entropies = checks.array("the entropies", self.entropies)
        if entropies.ndim != 1:
            raise RequestError("the entropies must be a vector, one per coordinate.")
        object.__setattr__(self, "entropies", entropies)


def gaussian_source(deviations: ArrayLike) -> IndependentSource:
    """``h = 1/2 ln(2 pi e s^2)`` for standard deviations ``s``."""
    s = checks.positive_array("the standard deviations", deviations)
    return IndependentSource(
        entropies=np.log(s) + 0.5 * math.log(2 * math.pi * math.e), exact=True, origin="Gaussian"
    )


def laplace_source(diversities: ArrayLike) -> IndependentSource:
    """``h = 1 + ln(2 b)`` for diversities ``b``."""
    b = checks.positive_array("the diversities", diversities)
    return IndependentSource(entropies=1 + np.log(2 * b), exact=True, origin="Laplace")


def uniform_source(widths: ArrayLike) -> IndependentSource:
    """``h = ln(width)``."""
    width = checks.positive_array("the widths", widths)
    return IndependentSource(entropies=np.log(width), exact=True, origin="uniform")


def estimated_source(samples: ArrayLike) -> IndependentSource:
    """Entropies of the columns of ``samples`` by Vasicek's spacing density: an estimate, not a bound.

    It treats the columns as independent, which the data need not be.
    """
    rows = checks.array("the samples", samples)
    if rows.ndim != 2 or len(rows) < 10:
        raise RequestError("the samples must be a matrix with at least 10 rows, one column per coordinate.")
    with np.errstate(divide="ignore"):  # repeated values have density infinity and are refused below
        entropies = np.atleast_1d(differential_entropy(rows, axis=0, method="vasicek"))
    if not np.isfinite(entropies).all():
        raise RequestError("a column of the samples repeats values, so it has no density to estimate.")
    origin = f"Vasicek spacing estimate from {len(rows)} samples"
    return IndependentSource(entropies=entropies, exact=False, origin=origin)


@dataclass(frozen=True, kw_only=True, eq=False)
class WaterFilling:
    """A point of the bound: at least ``distortion`` is left when at most ``rate`` nats are revealed.

    ``per_coordinate`` are the ``D_i = min(level, beta_i)``; ``exact`` is False for a bound made from
    estimated entropies.
    """

    rate: float
    distortion: float
    level: float
    per_coordinate: Vector
    exact: bool


def distortion_rate(
    rate: float, source: IndependentSource, *, weights: ArrayLike | None = None
) -> WaterFilling:
    """``D*(R)`` of 002 Theorem 3 by reverse water-filling: at least this distortion remains at ``rate``."""
    checks.nonnegative("rate", rate)
    logs = _log_beta(source, weights)
    # With the m largest beta under water, R = sum of (ln beta_i - ln level)/2 over them; the right m is the
    # last one whose own beta still lies above the level that it implies.
    ordered = np.sort(logs[np.isfinite(logs)])[::-1]
    levels = (np.cumsum(ordered) - 2 * rate) / np.arange(1, len(ordered) + 1)
    covered = np.flatnonzero(ordered >= levels)[-1]
    return _filled(logs, float(levels[covered]), source)


def rate_distortion(
    distortion: float, source: IndependentSource, *, weights: ArrayLike | None = None
) -> WaterFilling:
    """``R*(D)`` of 002 Lemma 4: at least so many nats are revealed by any mechanism with this ``distortion``.

    From ``sum_i beta_i`` on the bound is 0 and the point returned is that end of the curve.
    """
    checks.positive("distortion", distortion)
    logs = _log_beta(source, weights)
    beta = np.sort(np.exp(logs))
    if distortion >= beta.sum():
        return _filled(logs, float(logs.max()), source)
    # The m smallest beta drown and give all they have; the rest share what is left of D equally.
    remaining = distortion - np.concatenate([[0.0], np.cumsum(beta)[:-1]])
    levels = remaining / np.arange(len(beta), 0, -1)
    first = np.flatnonzero(levels <= beta)[0]
    return _filled(logs, math.log(levels[first]), source)


def _log_beta(source: IndependentSource, weights: ArrayLike | None) -> Vector:
    """``ln beta_i``, ``beta_i = w_i^2 e^{2 h_i} / (2 pi e)``; minus infinity where the weight is 0."""
    w = np.ones_like(source.entropies) if weights is None else np.abs(checks.array("the weights", weights))
    if w.shape != source.entropies.shape or not w.max() > 0:
        raise RequestError(f"the weights must be {len(source.entropies)} numbers, not all zero.")
    with np.errstate(divide="ignore"):
        logs: Vector = 2 * np.log(w) + 2 * source.entropies - math.log(2 * math.pi * math.e)
    return logs


def _filled(log_beta: Vector, log_level: float, source: IndependentSource) -> WaterFilling:
    """The point of the curve at this water level."""
    logs = np.minimum(log_beta, log_level)
    rate = float(np.where(log_beta > log_level, log_beta - log_level, 0.0).sum()) / 2
    parts = np.exp(logs)
    return WaterFilling(
        rate=rate,
        distortion=float(parts.sum()),
        level=math.exp(log_level),
        per_coordinate=parts,
        exact=source.exact,
    )
