"""Information bounds: against channels of known information, and mechanisms above the distortion bound."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.integrate import trapezoid

from hauberk.errors import RequestError
from hauberk.mechanisms import Laplace, information
from hauberk.mechanisms.checks import Vector


def mutual_information(channel: Vector, prior: Vector) -> float:
    """I(X; Y) in nats for a discrete channel with rows p(y | x)."""
    joint = prior[:, None] * channel
    independent = prior[:, None] * joint.sum(axis=0)
    return float(np.sum(joint * np.log(joint / independent)))


@given(seed=st.integers(0, 10**6), epsilon=st.floats(0.01, 5), inputs=st.integers(2, 6))
@settings(max_examples=100, deadline=None)
def test_pure_privacy_bounds_information(seed: int, epsilon: float, inputs: int) -> None:
    """Random epsilon-private channels, all of whose inputs are neighbours."""
    rng = np.random.default_rng(seed)
    weights = np.exp(epsilon * rng.integers(0, 2, size=(inputs, 7)))
    base = rng.dirichlet(np.ones(7))
    channel = weights * base
    channel /= channel.sum(axis=1, keepdims=True)
    ratio = np.log(channel[:, None, :] / channel[None, :, :]).max()  # at most 2 epsilon: the exact level
    information_revealed = mutual_information(channel, rng.dirichlet(np.ones(inputs)))
    assert information_revealed <= information.tight_mutual_information_bound(ratio) + 1e-12
    assert information.tight_mutual_information_bound(ratio) <= information.mutual_information_bound(ratio)


def test_the_tight_bound_is_the_divergence_of_randomised_response() -> None:
    for epsilon in (0.1, 1.0, 4.0):
        p = math.exp(epsilon) / (1 + math.exp(epsilon))
        divergence = p * epsilon - (1 - p) * epsilon
        assert information.tight_mutual_information_bound(epsilon) == pytest.approx(divergence)
    assert information.mutual_information_bound(1.0) == pytest.approx((math.e - 1) / 2)
    assert information.mutual_information_bound(1000.0) == math.inf


def test_the_gaussian_rate_is_shannons() -> None:
    assert information.gaussian_channel_rate([4.0], [1.0]) == pytest.approx(0.5 * math.log(5))
    rng = np.random.default_rng(0)
    a, b = (root @ root.T + np.eye(4) for root in rng.normal(size=(2, 4, 4)))
    exact = 0.5 * (np.linalg.slogdet(a + b)[1] - np.linalg.slogdet(b)[1])
    assert information.gaussian_channel_rate(a, b) == pytest.approx(exact)
    assert information.gaussian_channel_rate(np.diag(np.diag(a)), np.diag(b)) == pytest.approx(
        information.gaussian_channel_rate(np.diag(a), np.diag(b))
    )
    singular = np.ones((4, 4))  # a constant direction carries no information
    assert information.gaussian_channel_rate(singular, np.eye(4)) == pytest.approx(0.5 * math.log(5))


def test_the_gaussian_rate_bounds_other_sources() -> None:
    """A fair sign through Gaussian noise: its information by integration, against the rate."""
    y = np.linspace(-12, 12, 20_001)
    mixture = 0.5 * (stats.norm.pdf(y, 1, 0.8) + stats.norm.pdf(y, -1, 0.8))
    entropy = -trapezoid(mixture * np.log(mixture), y)
    revealed = entropy - stats.norm(scale=0.8).entropy()
    assert revealed <= information.gaussian_channel_rate([1.0], [0.64])


@given(seed=st.integers(0, 10**6), size=st.integers(1, 8), rate=st.floats(0, 12))
@settings(max_examples=100, deadline=None)
def test_gaussian_sources_meet_their_distortion_rate(seed: int, size: int, rate: float) -> None:
    """For Gaussian coordinates the bound is the truth; water levels are checked against a direct search."""
    rng = np.random.default_rng(seed)
    deviations, weights = np.exp(rng.normal(size=(2, size)))
    point = information.distortion_rate(rate, information.gaussian_source(deviations), weights=weights)
    beta = (weights * deviations) ** 2
    assert point.exact
    assert point.rate == pytest.approx(rate, abs=1e-9)
    assert point.per_coordinate == pytest.approx(np.minimum(point.level, beta))
    assert 0.5 * np.log(beta / point.per_coordinate).sum() == pytest.approx(rate, abs=1e-9)
    assert point.distortion == pytest.approx(point.per_coordinate.sum())


@given(seed=st.integers(0, 10**6), size=st.integers(1, 8), rate=st.floats(0.01, 12))
@settings(max_examples=50, deadline=None)
def test_the_two_curves_are_inverse(seed: int, size: int, rate: float) -> None:
    rng = np.random.default_rng(seed)
    source = information.laplace_source(np.exp(rng.normal(size=size)))
    weights = np.exp(rng.normal(size=size))
    there = information.distortion_rate(rate, source, weights=weights)
    back = information.rate_distortion(there.distortion, source, weights=weights)
    assert back.rate == pytest.approx(rate, rel=1e-6, abs=1e-9)


def test_equal_coordinates_share_the_distortion_equally() -> None:
    point = information.rate_distortion(0.5, information.gaussian_source([1.0, 1.0]))
    assert point.per_coordinate == pytest.approx([0.25, 0.25])
    assert point.rate == pytest.approx(math.log(4))


def test_a_generous_distortion_needs_no_rate() -> None:
    point = information.rate_distortion(100.0, information.gaussian_source([1.0, 2.0]))
    assert point.rate == 0.0
    assert point.distortion == pytest.approx(5.0)


def test_a_weightless_coordinate_does_not_matter() -> None:
    with_it = information.distortion_rate(1.0, information.gaussian_source([1.0, 5.0]), weights=[1.0, 0.0])
    without = information.distortion_rate(1.0, information.gaussian_source([1.0]))
    assert with_it.distortion == pytest.approx(without.distortion)


def test_entropies_agree_with_scipy() -> None:
    assert information.gaussian_source([2.0]).entropies[0] == pytest.approx(stats.norm(scale=2).entropy())
    assert information.laplace_source([0.3]).entropies[0] == pytest.approx(stats.laplace(scale=0.3).entropy())
    assert information.uniform_source([5.0]).entropies[0] == pytest.approx(stats.uniform(scale=5).entropy())


@pytest.mark.parametrize("make", ["gaussian", "laplace", "uniform"])
def test_noisy_releases_lie_above_the_bound(make: str) -> None:
    """Gaussian noise on a source of any of the three shapes: its distortion, at a rate it does not exceed."""
    source, variance = {
        "gaussian": (information.gaussian_source([1.5]), 2.25),
        "laplace": (information.laplace_source([0.7]), 2 * 0.49),
        "uniform": (information.uniform_source([3.0]), 9 / 12),
    }[make]
    for noise in (0.01, 0.1, 1.0, 10.0):
        rate = information.gaussian_channel_rate([variance], [noise])
        assert information.distortion_rate(rate, source).distortion <= noise


def test_pure_private_noise_lies_above_the_bound() -> None:
    """002 section 5 as meant: g uniform on [0, 1], all of it neighbouring, released with Laplace noise."""
    source = information.uniform_source([1.0])
    for epsilon in (0.5, 1.0, 3.0, 10.0):
        mechanism = Laplace.calibrate(epsilon=epsilon, sensitivity=1.0)
        tight = information.distortion_rate(information.tight_mutual_information_bound(epsilon), source)
        published = information.distortion_rate(information.mutual_information_bound(epsilon), source)
        assert published.distortion <= tight.distortion <= mechanism.scale**2


def test_an_estimate_is_labelled_and_close() -> None:
    samples = np.random.default_rng(0).normal(size=(20_000, 2)) * np.array([1.0, 3.0])
    source = information.estimated_source(samples)
    assert not source.exact
    assert "Vasicek" in source.origin
    assert source.entropies == pytest.approx(information.gaussian_source([1.0, 3.0]).entropies, abs=0.03)
    assert not information.distortion_rate(1.0, source).exact


def test_wrong_requests_are_refused() -> None:
    source = information.gaussian_source([1.0, 2.0])
    with pytest.raises(RequestError, match="weights"):
        information.distortion_rate(1.0, source, weights=[1.0])
    with pytest.raises(RequestError, match="rate"):
        information.distortion_rate(-1.0, source)
    with pytest.raises(RequestError, match="distortion"):
        information.rate_distortion(0.0, source)
    with pytest.raises(RequestError, match="positive"):
        information.gaussian_source([0.0])
    with pytest.raises(RequestError, match="coordinates"):
        information.gaussian_channel_rate([1.0], [1.0, 1.0])
    with pytest.raises(RequestError, match="positive definite"):
        information.gaussian_channel_rate(np.eye(2), np.ones((2, 2)))
    with pytest.raises(RequestError, match="at least 10 rows"):
        information.estimated_source([[1.0], [2.0]])
    with pytest.raises(RequestError, match="repeats values"):
        information.estimated_source(np.zeros((100, 1)))
    with pytest.raises(RequestError, match="vector"):
        information.IndependentSource(entropies=np.zeros((2, 2)), exact=True, origin="test")
