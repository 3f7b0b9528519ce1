"""Numbers that were published or agreed on, and the calibrations they come from."""

import logging
import math

import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant, privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from hauberk.errors import RequestError
from hauberk.mechanisms import (
    AnalyticGaussian,
    EpsilonDelta,
    ExtendedGaussian,
    Gaussian,
    GaussianProfile,
    HeterogeneousGaussian,
    MultivariateGaussian,
    OptimizedAdditive,
    redistribution,
    weighted_sensitivity,
)

# (mechanism, epsilon, sigma) for sensitivity 1 and delta 1e-5
SIGMAS = [
    (AnalyticGaussian, 1.0, 3.7306),
    (AnalyticGaussian, 8.0, 0.6002),
    (ExtendedGaussian, 1.0, 4.8542),
    (ExtendedGaussian, 4.0, 1.2851),
    (ExtendedGaussian, 8.0, 0.6851),
    (Gaussian, 1.0, 4.8448),
]


@pytest.mark.parametrize(("kind", "epsilon", "sigma"), SIGMAS)
def test_sigma(kind: type[Gaussian], epsilon: float, sigma: float) -> None:
    mechanism = kind.calibrate(epsilon=epsilon, delta=1e-5, sensitivity=1.0)
    assert mechanism.scale == pytest.approx(sigma, abs=5e-4)


def test_the_classical_theorem_is_refused_above_epsilon_one() -> None:
    with pytest.raises(RequestError, match="up to 1"):
        Gaussian.calibrate(epsilon=1.0001, delta=1e-5, sensitivity=1.0)
    with pytest.raises(RequestError, match="up to 1"):
        MultivariateGaussian.calibrate(epsilon=2.0, delta=1e-5, sensitivity=1.0, covariance=np.eye(2))


def test_the_extended_theorem_is_refused_where_its_proof_stops() -> None:
    with pytest.raises(RequestError, match=r"0\.4839"):
        ExtendedGaussian.calibrate(epsilon=1.0, delta=0.49, sensitivity=1.0)


@given(
    epsilon=st.floats(1e-4, 200), log_delta=st.floats(-30, -0.4), r=st.lists(st.floats(0.01, 1), min_size=1)
)
@settings(max_examples=60, deadline=None)
def test_analytic_calibration_never_needs_more_noise(
    epsilon: float, log_delta: float, r: list[float]
) -> None:
    request = {"epsilon": epsilon, "delta": 10**log_delta, "sensitivity": 1.0}
    shares = np.array(r) / sum(r)
    analytic = HeterogeneousGaussian.calibrate(**request, redistribution=shares)
    extended = HeterogeneousGaussian.calibrate(**request, redistribution=shares, calibration="extended")
    assert (analytic.scale <= extended.scale).all()
    assert extended.delta(epsilon) <= 10**log_delta


@given(epsilon=st.floats(1e-4, 200), log_delta=st.floats(-30, -0.01), coordinates=st.integers(1, 50))
@settings(max_examples=40, deadline=None)
def test_uniform_redistribution_is_the_analytic_mechanism(
    epsilon: float, log_delta: float, coordinates: int
) -> None:
    request = {"epsilon": epsilon, "delta": 10**log_delta, "sensitivity": 3.0}
    spread = HeterogeneousGaussian.calibrate(**request, redistribution=redistribution.uniform(coordinates))
    assert np.allclose(spread.scale, AnalyticGaussian.calibrate(**request).scale, rtol=1e-12)
    assert spread.mu == AnalyticGaussian.calibrate(**request).mu


@given(epsilon=st.floats(1e-3, 1), log_delta=st.floats(-30, -0.001))
@settings(max_examples=100, deadline=None)
def test_the_classical_theorem_holds_up_to_epsilon_one(epsilon: float, log_delta: float) -> None:
    mechanism = Gaussian.calibrate(epsilon=epsilon, delta=10**log_delta, sensitivity=1.0)
    assert mechanism.delta(epsilon) <= 10**log_delta


def test_a_plain_sensitivity_is_weighted_by_the_weakest_coordinate() -> None:
    r = np.array([0.7, 0.2, 0.1])
    weighted = weighted_sensitivity(1.0, r)
    directions = np.random.default_rng(0).normal(size=(10_000, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    reached = np.linalg.norm(directions / np.sqrt(3 * r), axis=1).max()
    assert reached <= weighted
    assert weighted == pytest.approx(1 / math.sqrt(0.3))
    assert reached > 0.999 * weighted


@pytest.mark.parametrize("r", [[0.5, 0.5, 0.0], [0.5, 0.6], [1.5, -0.5], [], [math.nan, 1.0]])
def test_a_wrong_redistribution_is_refused(r: list[float]) -> None:
    with pytest.raises(RequestError, match="redistribution"):
        HeterogeneousGaussian.calibrate(epsilon=1.0, delta=1e-5, sensitivity=1.0, redistribution=r)


def test_an_unknown_calibration_is_refused() -> None:
    with pytest.raises(RequestError, match="'analytic' or 'extended'"):
        HeterogeneousGaussian.calibrate(
            epsilon=1.0,
            delta=1e-5,
            sensitivity=1.0,
            redistribution=[1.0],
            calibration="magic",  # type: ignore[arg-type]
        )


COORDINATES, LOT, RECORDS, EPOCHS = 61_706, 512, 55_000, 60
HALF_NORMAL = norm.ppf((1 + (np.arange(1, COORDINATES + 1) - 0.5) / COORDINATES) / 2)


def mnist_run(epsilon: float) -> OptimizedAdditive:
    """002's MNIST setting, nothing spent on the weights."""
    return OptimizedAdditive.calibrate(
        epsilon=epsilon,
        delta=1e-5,
        sensitivity=0.1,
        weights=HALF_NORMAL,
        steps=EPOCHS * RECORDS // LOT,
        sampling_rate=LOT / RECORDS,
    )


def test_directional_noise_claims_a_fifth_and_is_proven_at_sixty_two() -> None:
    run = mnist_run(0.2)
    assert run.claimed.epsilon == 0.2
    assert run.epsilon(1e-5) == pytest.approx(61.9, abs=1.0)


def test_directional_noise_claims_one_and_is_proven_at_two_thousand() -> None:
    assert mnist_run(1.0).epsilon(1e-5) == pytest.approx(2030, rel=0.01)


def test_an_independent_accountant_says_the_same() -> None:
    run = mnist_run(0.2)
    accountant = PLDAccountant(value_discretization_interval=1e-3).compose(run.event())
    assert accountant.get_epsilon(1e-5) == pytest.approx(61.9, abs=1.0)


def test_even_the_optimistic_accountant_refutes_the_claim(caplog: pytest.LogCaptureFixture) -> None:
    """A lower bound of the true epsilon is above 50: the claim 0.2 is false, not only unproven."""
    caplog.set_level(logging.ERROR)
    run = mnist_run(0.2)
    optimistic = privacy_loss_distribution.from_gaussian_mechanism(
        1 / run.mu,
        sampling_prob=run.sampling_rate,
        pessimistic_estimate=False,
        use_connect_dots=False,
        value_discretization_interval=1e-3,
    ).self_compose(run.steps)
    assert 50 < optimistic.get_epsilon_for_delta(1e-5) < run.epsilon(1e-5)


def test_equal_weights_in_the_same_setting_are_private_enough() -> None:
    """Dividing the budget by the sampling rate is no theorem; with isotropic noise it does no harm here."""
    run = OptimizedAdditive.calibrate(
        epsilon=0.2,
        delta=1e-5,
        sensitivity=0.1,
        weights=np.ones(10),
        steps=EPOCHS * RECORDS // LOT,
        sampling_rate=LOT / RECORDS,
    )
    assert run.scale == pytest.approx(np.full(10, run.scale[0]))
    assert run.epsilon(1e-5) == pytest.approx(0.11, abs=0.02)


@pytest.mark.parametrize("delta", [0.5, 1e-3, 1e-8, 1e-13, 1e-16, 1e-30, 1e-200])
def test_sampled_training_never_understates_at_any_delta(delta: float) -> None:
    """The accountant cannot see below about 1e-15; the answer stays finite and consistent all the same."""
    run = OptimizedAdditive.calibrate(
        epsilon=1.0,
        delta=1e-5,
        sensitivity=1.0,
        weights=[1.0, 0.3],
        steps=200,
        sampling_rate=0.05,
        weights_budget=EpsilonDelta(epsilon=0.1, delta=1e-6),
    )
    epsilon = run.epsilon(delta)
    assert run.delta(epsilon) <= delta
    assert epsilon <= GaussianProfile(mu=math.hypot(run.mu, run.weights_mu) * math.sqrt(200)).epsilon(delta)
    sampled = PLDAccountant(value_discretization_interval=1e-3).compose(run.event())
    if delta > 1e-12:
        assert epsilon == pytest.approx(sampled.get_epsilon(delta), rel=0.02, abs=1e-3)


def test_a_large_release_is_accounted_without_the_accountant() -> None:
    """Where its arithmetic overflows, the record's lots are taken as known; both ways agree at the border."""
    run = mnist_run(1.0)
    sigma = run.sigma / run.sigma.min() * run.sensitivity
    below, above = (
        OptimizedAdditive(
            sensitivity=run.sensitivity,
            sigma=sigma / mu,
            steps=run.steps,
            sampling_rate=run.sampling_rate,
            claimed=run.claimed,
        )
        for mu in (199.9, 200.1)
    )
    assert below.epsilon(1e-5) == pytest.approx(above.epsilon(1e-5), rel=0.01)
    for epsilon in (1.9e6, 1.95e6):
        assert above.delta(above.epsilon(1e-5)) <= 1e-5
        assert above.delta(epsilon) <= 1
    unsampled = GaussianProfile(mu=above.mu * math.sqrt(run.steps)).epsilon(1e-5)
    assert above.epsilon(1e-5) < unsampled / 50
