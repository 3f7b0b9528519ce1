"""The published searches: what they return is feasible, and nothing noticeably larger is."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtr

from hauberk.certify import published_certificates
from hauberk.certify.certificates import CERTIFICATES
from hauberk.certify.published_certificates import hgm_analytic_radius, hgm_radius, pixeldp_radius
from hauberk.mechanisms.extended import extended_multiplier
from hauberk.mechanisms.gaussian import classical_multiplier
from hauberk.mechanisms.gaussian_profile import GaussianProfile

Values = NDArray[np.float64]


def delta_for(name: str, epsilon: Any, mu: Any, functions: Any) -> Any:
    """The delta with which noise hides a shift of ``mu`` standard deviations, according to each theorem."""
    if name == "pixeldp":
        return 1.25 * functions.exp(-((epsilon / mu) ** 2) / 2)
    if name == "hgm":
        k = functions.sqrt(2) * epsilon / mu  # sqrt(s) + sqrt(s + epsilon) = k
        return functions.sqrt(2 / functions.pi) * functions.exp(-(((k * k - epsilon) / (2 * k)) ** 2))
    cdf = ndtr if functions is np else mpmath.ncdf
    return cdf(mu / 2 - epsilon / mu) - functions.exp(epsilon) * cdf(-mu / 2 - epsilon / mu)


def cheapest_budget(name: str, other: float, mu: float) -> tuple[float, float]:
    """(least pA that certifies ``mu``, the epsilon at which it does), by zooming into grids."""
    low, high = 1e-12, 1.0 if name == "pixeldp" else 20.0
    for _ in range(8):
        epsilon = np.linspace(low, high, 2001)
        delta = delta_for(name, epsilon, mu, np)
        usable = (delta < 0.48) & (
            epsilon * math.sqrt(2) / mu > np.sqrt(epsilon) if name == "hgm" else delta < 0.48
        )
        needed = np.where(usable, np.exp(2 * epsilon) * other + (1 + np.exp(epsilon)) * delta, np.inf)
        best = int(needed.argmin())
        low, high = epsilon[max(best - 1, 0)], epsilon[min(best + 1, 2000)]
    return float(needed[best]), float(epsilon[best])


@pytest.mark.parametrize("name", ["hgm", "hgm-analytic", "pixeldp"])
@pytest.mark.parametrize(
    ("top", "other"),
    [
        (0.5001, 0.4999),
        (0.6, 0.4),
        (0.9, 0.1),
        (0.99, 0.01),
        (0.9, 0.001),
        (0.3, 0.05),
        (0.999, 1e-3),
        (0.8, 0.7),
        (0.9998261476696687, 0.006668626585244952),  # two peaks of nearly the same height
    ],
)
def test_published_radii_are_feasible_and_nearly_the_largest(name: str, top: float, other: float) -> None:
    radius = float(CERTIFICATES[name].radius(top, other, gain=1.0))
    _, epsilon = cheapest_budget(name, other, radius)
    with mpmath.workdps(40):  # the published condition, strictly, for the numbers as they are
        eps, mu = mpmath.mpf(epsilon), mpmath.mpf(radius)
        delta = delta_for(name, eps, mu, mpmath)
        assert delta < 0.48
        assert mpmath.mpf(top) > mpmath.exp(2 * eps) * mpmath.mpf(other) + (1 + mpmath.exp(eps)) * delta
    assert cheapest_budget(name, other, radius * (1 + 1e-6))[0] > top


def test_the_published_theorems_hold_for_every_budget_the_search_may_visit() -> None:
    """Asked of the exact profile; SPEC's formulas are those of `hauberk.mechanisms`."""
    for epsilon in [*np.geomspace(1e-6, 1.0, 8), 2.0, 5.0, 18.0]:
        for delta in [*np.geomspace(1e-200, 1e-3, 6), 0.05, 0.2, 0.35, 0.4799]:
            extended = 1 / extended_multiplier(epsilon, delta)
            assert GaussianProfile(mu=extended).delta(epsilon) <= delta
            if epsilon <= 1:
                classical = 1 / classical_multiplier(epsilon, delta)
                assert GaussianProfile(mu=classical).delta(epsilon) <= delta


@pytest.mark.parametrize(
    ("radius", "multiplier"), [(hgm_radius, extended_multiplier), (pixeldp_radius, classical_multiplier)]
)
def test_the_search_uses_the_mechanisms_multipliers(
    radius: Callable[[Values, Values], Values], multiplier: Callable[[float, float], float]
) -> None:
    """No budget in a fine grid, taken through the mechanism's own formula, certifies more."""
    top, other = 0.97, 0.02
    found = float(radius(np.array([top]), np.array([other]))[0])
    largest = 0.0
    for epsilon in np.linspace(0.01, 1.0 if multiplier is classical_multiplier else 1.94, 3000):
        delta = (top - math.exp(2 * epsilon) * other) / (1 + math.exp(epsilon))
        if 0 < delta < 0.48:
            largest = max(largest, 1 / multiplier(float(epsilon), delta))
    assert largest * (1 - 1e-12) <= found <= largest * (1 + 1e-5)


def test_the_analytic_search_agrees_with_the_exact_calibration() -> None:
    """No budget in a grid, taken through the exact profile's own calibration, certifies more."""
    for top, other in ((0.7, 0.3), (0.995, 0.005), (0.9, 0.002)):
        found = float(hgm_analytic_radius(np.array([top]), np.array([other]))[0])
        largest = 0.0
        for epsilon in np.linspace(0.0, math.log(top / other) / 2, 200):
            delta = (top - math.exp(2 * epsilon) * other) / (1 + math.exp(epsilon))
            if 1e-12 < delta < 0.48:
                largest = max(largest, GaussianProfile.calibrate(epsilon=float(epsilon), delta=delta).mu)
        assert largest * (1 - 1e-9) <= found <= largest * (1 + 1e-3)


def test_radii_too_small_for_fast_arithmetic_are_found_by_the_exact_profile() -> None:
    """Close to a tie the best budget has epsilon = 0: twice the quantile of ``(1 + delta)/2``."""
    for excess in (1e-4, 1e-6, 1e-7, 1e-8, 1e-10):
        top, other = 0.5 + excess, 0.5 - excess
        found = float(hgm_analytic_radius(np.array([top]), np.array([other]))[0])
        assert found == pytest.approx(excess * math.sqrt(2 * math.pi), rel=1e-3)
        assert GaussianProfile(mu=found).delta(0.0) < (top - other) / 2


def test_arithmetic_that_promises_too_much_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """What counts is the exact profile, which is asked last."""
    tops, others = np.array([0.6, 0.9, 0.999]), np.array([0.4, 0.05, 1e-4])
    right, fast = hgm_analytic_radius(tops, others), published_certificates._exact_shift
    monkeypatch.setattr(published_certificates, "_exact_shift", lambda e, d: 1.01 * fast(e, d))
    assert hgm_analytic_radius(tops, others) == pytest.approx(right, rel=1e-9)
