"""The profile against fifty digits, and its promise to round to the safe side."""

import math
import sys

import mpmath
import pytest
from dp_accounting import GaussianDpEvent
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from hauberk.errors import RequestError
from hauberk.mechanisms import GaussianProfile

EPSILONS = [0.0, 1e-4, 1e-2, 0.1, 0.5, 1.0, 3.0, 8.0, 30.0, 200.0]
DELTAS = [1e-30, 1e-20, 1e-12, 1e-8, 1e-5, 1e-3, 0.05, 0.3, 0.7, 0.99]
MUS = [1e-9, 1e-6, 1e-4, 1e-2, 0.1, 0.3, 0.499999, 0.5, 0.7, 1.0, 2.0, 5.0, 12.0, 40.0, 200.0, 1e3]


def exact_delta(mu: float, epsilon: float) -> mpmath.mpf:
    """The definition, in fifty digits."""
    with mpmath.workdps(50):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)


@pytest.mark.parametrize("mu", MUS)
def test_delta_agrees_with_fifty_digits_from_above(mu: float) -> None:
    tails = [mu * (t + mu / 2) for t in (-8.0, -3.0, -1.0, 0.0, 1.0, 5.0, 11.0, 25.0, 36.0)]
    checked = 0
    for epsilon in EPSILONS + [e for e in tails if e >= 0]:
        truth = exact_delta(mu, epsilon)
        if truth < 1e-300:
            continue
        ours = GaussianProfile(mu=mu).delta(epsilon)
        assert truth <= ours <= truth * (1 + mpmath.mpf("1e-8")), (mu, epsilon)
        checked += 1
    assert checked >= 7


@pytest.mark.parametrize("epsilon", EPSILONS[1:])
@pytest.mark.parametrize("delta", DELTAS)
def test_calibration_never_overshoots_and_wastes_nothing(epsilon: float, delta: float) -> None:
    mu = GaussianProfile.calibrate(epsilon=epsilon, delta=delta).mu
    assert exact_delta(mu, epsilon) <= delta
    assert exact_delta(mu * (1 + 1e-9), epsilon) > delta


@pytest.mark.parametrize("mu", [*MUS, 1e6, 1e9])
@pytest.mark.parametrize("delta", DELTAS)
def test_epsilon_never_understates_and_wastes_nothing(mu: float, delta: float) -> None:
    epsilon = GaussianProfile(mu=mu).epsilon(delta)
    if mu <= 1e6:  # beyond, fifty digits are no longer enough
        assert exact_delta(mu, epsilon) <= delta
        assert epsilon == 0 or exact_delta(mu, epsilon * (1 - 1e-8)) > delta
    assert GaussianProfile(mu=mu).delta(epsilon) <= delta


@given(log_mu=st.floats(-9, 5), t=st.floats(-10, 36.5))
@settings(max_examples=300, deadline=None)
def test_random_points_agree_with_fifty_digits_from_above(log_mu: float, t: float) -> None:
    mu = 10**log_mu
    epsilon = max(0.0, mu * (t + mu / 2))
    truth = exact_delta(mu, epsilon)
    ours = GaussianProfile(mu=mu).delta(epsilon)
    assert truth <= ours
    if mu <= 1e3:
        assert ours <= truth * (1 + mpmath.mpf("1e-8"))


@given(mu=st.floats(1e-6, 1e3), delta=st.floats(1e-30, 0.999))
@settings(max_examples=100, deadline=None)
def test_epsilon_and_delta_are_inverse(mu: float, delta: float) -> None:
    profile = GaussianProfile(mu=mu)
    epsilon = profile.epsilon(delta)
    assert profile.delta(epsilon) <= delta
    # One step of epsilon's last digit moves delta by about t = epsilon/mu of its own last digits.
    assert epsilon == 0 or math.isclose(profile.delta(epsilon), delta, rel_tol=1e-8)


@given(mu=st.floats(1e-3, 50), epsilon=st.floats(0, 100), more=st.floats(1.001, 3))
@settings(deadline=None)
def test_delta_falls_in_epsilon_and_grows_in_mu(mu: float, epsilon: float, more: float) -> None:
    here = GaussianProfile(mu=mu).delta(epsilon)
    assert GaussianProfile(mu=mu).delta(epsilon * more + 1e-3) <= here
    assert GaussianProfile(mu=mu * more).delta(epsilon) >= here


@given(mu=st.floats(1e-3, 30))
@settings(deadline=None)
def test_at_epsilon_zero_it_is_the_total_variation_distance(mu: float) -> None:
    assert GaussianProfile(mu=mu).delta(0.0) == pytest.approx(math.erf(mu / math.sqrt(8)), rel=1e-9)


def test_releases_add_in_squares() -> None:
    """Two releases, composed numerically by the accountant, are one with ``mu^2 = 0.6^2 + 0.8^2``."""
    accountant = PLDAccountant(value_discretization_interval=1e-3)
    accountant.compose(GaussianDpEvent(1 / 0.6)).compose(GaussianDpEvent(1 / 0.8))
    for delta in (1e-2, 1e-5, 1e-8):
        exact = GaussianProfile(mu=1.0).epsilon(delta)
        assert exact <= accountant.get_epsilon(delta) <= exact + 2e-3


def test_extremes_neither_overflow_nor_read_as_zero() -> None:
    assert GaussianProfile(mu=1e-12).delta(200.0) == sys.float_info.min
    assert GaussianProfile(mu=5e-324).delta(200.0) == sys.float_info.min
    assert GaussianProfile(mu=1e100).delta(200.0) == 1.0
    assert GaussianProfile(mu=1e15).epsilon(1e-200) == pytest.approx(5e29)
    assert GaussianProfile(mu=1e-300).epsilon(1e-30) == 0.0
    assert GaussianProfile(mu=1e3).epsilon(1e-30) == pytest.approx(511_460.6, rel=1e-5)
    assert GaussianProfile.calibrate(epsilon=0.0, delta=1e-30).mu == pytest.approx(
        1e-30 * math.sqrt(2 * math.pi), rel=1e-9
    )


@pytest.mark.parametrize("mu", [0.0, -1.0, math.nan, math.inf])
def test_a_wrong_mu_is_refused(mu: float) -> None:
    with pytest.raises(RequestError, match="positive"):
        GaussianProfile(mu=mu)


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, 1.5, math.nan, 1e-320])
def test_a_wrong_delta_is_refused(delta: float) -> None:
    with pytest.raises(RequestError, match="strictly between 0 and 1"):
        GaussianProfile(mu=1.0).epsilon(delta)
    with pytest.raises(RequestError, match="strictly between 0 and 1"):
        GaussianProfile.calibrate(epsilon=1.0, delta=delta)


@pytest.mark.parametrize("epsilon", [-1e-9, math.nan, math.inf])
def test_a_wrong_epsilon_is_refused(epsilon: float) -> None:
    with pytest.raises(RequestError, match="epsilon"):
        GaussianProfile(mu=1.0).delta(epsilon)
