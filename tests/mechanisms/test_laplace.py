"""The Laplace profile: exact in one dimension, and no better for an attacker in many."""

import math

import mpmath
import pytest
from dp_accounting import ComposedDpEvent, LaplaceDpEvent
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from hauberk.errors import RequestError
from hauberk.mechanisms import EpsilonDelta, Laplace

CLAIM = EpsilonDelta(epsilon=1.0, delta=0.0)


def laplace(mu: float) -> Laplace:
    return Laplace(sensitivity=mu, diversity=1.0, claimed=CLAIM)


@given(mu=st.floats(1e-6, 100), share=st.floats(0, 0.999999))
@settings(deadline=None)
def test_delta_agrees_with_fifty_digits_from_above(mu: float, share: float) -> None:
    epsilon = share * mu
    with mpmath.workdps(50):
        truth = -mpmath.expm1((mpmath.mpf(epsilon) - mpmath.mpf(mu)) / 2)
    ours = laplace(mu).delta(epsilon)
    assert truth <= ours <= truth * (1 + mpmath.mpf("1e-9")) + mpmath.mpf("1e-15") * mu


@given(epsilon=st.floats(1e-6, 200), log_sensitivity=st.floats(-6, 6))
@settings(deadline=None)
def test_calibrated_noise_is_pure(epsilon: float, log_sensitivity: float) -> None:
    mechanism = Laplace.calibrate(epsilon=epsilon, sensitivity=10**log_sensitivity)
    assert mechanism.delta(epsilon) == 0.0
    assert mechanism.epsilon(0.0) <= epsilon
    assert mechanism.epsilon(0.0) == pytest.approx(epsilon, rel=1e-12)
    assert mechanism.scale == pytest.approx(math.sqrt(2) * 10**log_sensitivity / epsilon)


def two_coordinates(a: float, b: float, epsilon: float) -> float:
    """Exact delta when one coordinate moves by ``a`` and another by ``b``, by integrating over the second.

    Its loss is ``b`` with probability 1/2, ``-b`` with e^-b / 2, ``b - 2x`` with density e^-x / 2 between.
    """

    def one(e: float) -> float:  # delta of the first coordinate, for a negative epsilon too
        if e >= a:
            return 0.0
        return -math.expm1((e - a) / 2) if e >= -a else -math.expm1(e)

    corners = sorted(x for x in ((b - epsilon - a) / 2, (b - epsilon + a) / 2) if 0 < x < b)
    between, _ = quad(lambda x: 0.5 * math.exp(-x) * one(epsilon - b + 2 * x), 0, b, points=corners or None)
    return 0.5 * one(epsilon - b) + 0.5 * math.exp(-b) * one(epsilon + b) + between


@given(mu=st.floats(0.05, 6), split=st.floats(0.02, 0.98), share=st.floats(0, 1.1))
@settings(max_examples=200, deadline=None)
def test_spreading_the_same_distance_over_two_coordinates_is_never_worse(
    mu: float, split: float, share: float
) -> None:
    spread = two_coordinates(split * mu, (1 - split) * mu, share * mu)
    assert spread <= laplace(mu).delta(share * mu) + 1e-9


def test_the_integral_above_knows_the_extreme_case() -> None:
    for epsilon in (0.0, 0.3, 1.0, 1.9):
        assert two_coordinates(2.0, 1e-9, epsilon) == pytest.approx(laplace(2.0).delta(epsilon), abs=1e-8)


def test_the_accountant_finds_ten_small_coordinates_more_private_than_one() -> None:
    spread = PLDAccountant(value_discretization_interval=1e-3)
    spread.compose(ComposedDpEvent([LaplaceDpEvent(10 / 2.0)] * 10))
    assert spread.get_epsilon(1e-3) < laplace(2.0).epsilon(1e-3)


def test_delta_zero_is_allowed_and_one_is_not() -> None:
    assert laplace(1.0).epsilon(0.0) == pytest.approx(1.0, rel=1e-14)
    assert laplace(1.0).epsilon(0.999) == 0.0
    for delta in (1.0, -0.1, math.nan):
        with pytest.raises(RequestError, match="delta"):
            laplace(1.0).epsilon(delta)
