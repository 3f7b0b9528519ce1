"""Radii by way of differential privacy, as the papers take it: PixelDP, HGM, and HGM with the exact profile.

Suppose a perturbation moves what the noise is added to by at most ``mu`` standard deviations, and that hides
it with (epsilon, delta). Then no class's expected score, computed by whatever follows the noise, can grow
beyond ``e^epsilon`` times itself plus ``delta``, or fall so far that the way back would be longer. The top
class stays on top if (Lecuyer et al. 2019; 000 Eq. 4)

    pA > e^{2 epsilon} pB + (1 + e^epsilon) delta.

epsilon and delta are free, so the certificate is the largest ``mu`` over all budgets that satisfy this. For a
given epsilon the largest admissible delta is best, which leaves a search along epsilon >= 0. **Every budget
that the search visits gives a valid radius**: if it stops short of the best one, that costs radius, never
truth. All radii here are for a whitened gain of one.

`tight` needs no budget and is never smaller: these are here to reproduce and compare.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, erfinv

from hauberk.mechanisms.gaussian_profile import GaussianProfile

Values = NDArray[np.float64]
Shift = Callable[[Values, Values], Values]
"""(epsilon, delta) -> how many standard deviations a perturbation may move the noise's centre."""

_LARGEST_DELTA = (
    0.48  # 000 Eq. 20: from 0.4839 on, HGM's theorem needs another condition than the printed one
)
_SMALLEST_DELTA = 1e-300  # below, a double cannot hold delta with full precision
_ROUNDING = 1e-14  # relative, on both sides of the condition; makes it hold strictly, in real numbers

_GRID = 32
_PEAKS = 2
_REFINEMENTS = 20  # a bracket of 4e-6 around the peak, where what is lost grows with its square
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0

_NEWTON_STEPS = 60
_CONVERGED = 1e-12
_CHECKED_AT = 1.0 - 1e-10  # the exact profile rounds up by 1e-11; stand back further than that


def hgm_radius(top: Values, other: Values) -> Values:
    """000 Eq. 10: ``mu = sqrt(2) epsilon / (sqrt(s) + sqrt(s + epsilon))``, ``s = ln(sqrt(2/pi)/delta)``.

    Any epsilon > 0 and delta < 0.48 (000 Theorem 3). As printed, Eq. 10 divides by epsilon once too often.
    """
    return _best_budget(top, other, _extended_shift)[2]


def pixeldp_radius(top: Values, other: Values) -> Values:
    """000 Eq. 5: ``mu = epsilon / sqrt(2 ln(1.25/delta))`` with epsilon <= 1 (Lecuyer et al. 2019)."""
    return _best_budget(top, other, _classical_shift, largest_epsilon=1.0)[2]


def hgm_analytic_radius(top: Values, other: Values) -> Values:
    """The largest ``mu`` whose exact privacy profile keeps the budget (Balle & Wang 2018).

    What fast arithmetic finds is asked of `GaussianProfile`, which rounds to the safe side, before it counts.
    """
    epsilon, delta, found = _best_budget(top, other, _exact_shift)
    return np.array([_kept(*row) for row in zip(epsilon, delta, found, strict=True)], dtype=np.float64)


def _kept(epsilon: float, delta: float, found: float) -> float:
    if found == 0.0:
        return 0.0
    mu = float(found) * _CHECKED_AT
    if GaussianProfile(mu=mu).delta(float(epsilon)) <= delta:
        return mu
    return GaussianProfile.calibrate(epsilon=float(epsilon), delta=float(delta)).mu


def _extended_shift(epsilon: Values, delta: Values) -> Values:
    s = np.log(math.sqrt(2.0 / math.pi) / delta)
    return np.asarray(math.sqrt(2.0) * epsilon / (np.sqrt(s) + np.sqrt(s + epsilon)) * (1.0 - _ROUNDING))


def _classical_shift(epsilon: Values, delta: Values) -> Values:
    return np.asarray(epsilon / np.sqrt(2.0 * np.log(1.25 / delta)) * (1.0 - _ROUNDING))


def _mills_ratio(t: Values) -> Values:
    return np.asarray(math.sqrt(math.pi / 2.0) * erfcx(t / math.sqrt(2.0)))


def _exact_shift(epsilon: Values, delta: Values) -> Values:
    """Where the exact profile ``phi(t) (R(t) - R(t + mu))``, ``t = epsilon/mu - mu/2``, equals ``delta``.

    Newton's method for the profile's logarithm, whose derivative in ``mu`` is ``1 / (R(t) - R(t + mu))``. The
    Mills ratio ``R`` falls and is convex, so the difference grows with ``mu`` and the logarithm is concave:
    steps that start below the solution stay below it. The extended theorem's ``mu`` is below, and so is the
    solution for epsilon = 0, ``erf(mu/sqrt(8)) = delta``. An entry stops by itself, so that no entry depends
    on its neighbours.
    """
    mu: Values = np.maximum(_extended_shift(epsilon, delta), 2.0 * math.sqrt(2.0) * erfinv(delta))
    for _ in range(_NEWTON_STEPS):
        t = epsilon / mu - mu / 2.0
        difference = np.maximum(_mills_ratio(t) - _mills_ratio(t + mu), np.finfo(np.float64).tiny)
        missing = np.log(delta * math.sqrt(2.0 * math.pi)) + t * t / 2.0 - np.log(difference)
        step = difference * missing
        moving = step > _CONVERGED * mu
        if not moving.any():
            break
        mu = np.where(moving, mu + step, mu)
    return mu


def _largest_delta(top: Values, other: Values, epsilon: Values) -> Values:
    """The delta that the condition leaves for this epsilon, a little less than that; not positive if none."""
    spare = top * (1.0 - _ROUNDING) - np.exp(2.0 * epsilon) * other * (1.0 + _ROUNDING)
    delta = spare / (1.0 + np.exp(epsilon)) * (1.0 - _ROUNDING)
    return np.asarray(np.minimum(delta, np.nextafter(_LARGEST_DELTA, 0.0)))


def _best_budget(
    top: Values, other: Values, shift: Shift, *, largest_epsilon: float = math.inf
) -> tuple[Values, Values, Values]:
    """(epsilon, delta, mu) per pair, with the largest ``mu`` found; zero if rounding leaves no budget.

    ``0 < other < top`` in one axis. A grid over all epsilons, ends included, then a golden section search
    around each of its two highest peaks (the bound on delta gives the analytic certificate a second one).
    """
    most = np.minimum(np.log(top / other) / 2.0, largest_epsilon)

    def evaluate(fraction: Values) -> Values:
        epsilon = fraction * most
        delta = _largest_delta(top, other, epsilon)
        some, value = delta >= _SMALLEST_DELTA, np.zeros_like(top)
        value[some] = shift(epsilon[some], delta[some])
        return value

    grid = np.linspace(0.0, 1.0, _GRID + 1)
    values = np.stack([evaluate(np.full_like(top, fraction)) for fraction in grid])
    edge = np.full_like(top, -1.0)
    is_peak = (values >= np.vstack([edge, values[:-1]])) & (values >= np.vstack([values[1:], edge]))
    peaks = np.argsort(np.where(is_peak, values, edge), axis=0)[-_PEAKS:]
    candidates = [(grid[peaks[-1]], values.max(axis=0))]
    candidates += [_climb(evaluate, grid[peak]) for peak in peaks]
    fractions, shifts = (np.stack(column) for column in zip(*candidates, strict=True))
    best = shifts.argmax(axis=0)[None]
    epsilon = np.take_along_axis(fractions, best, 0)[0] * most
    return epsilon, _largest_delta(top, other, epsilon), np.take_along_axis(shifts, best, 0)[0]


def _climb(evaluate: Callable[[Values], Values], start: Values) -> tuple[Values, Values]:
    """Golden section search for a maximum within one cell of the grid around ``start``: (where, how high)."""
    low, high = np.maximum(start - 1.0 / _GRID, 0.0), np.minimum(start + 1.0 / _GRID, 1.0)
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = evaluate(left), evaluate(right)
    for _ in range(_REFINEMENTS):
        leftwards = at_left >= at_right
        low, high = np.where(leftwards, low, left), np.where(leftwards, right, high)
        new = np.where(leftwards, high - _GOLDEN * (high - low), low + _GOLDEN * (high - low))
        at_new = evaluate(new)
        left, right = np.where(leftwards, new, right), np.where(leftwards, left, new)
        at_left, at_right = np.where(leftwards, at_new, at_right), np.where(leftwards, at_left, at_new)
    return np.where(at_left >= at_right, left, right), np.maximum(at_left, at_right)
