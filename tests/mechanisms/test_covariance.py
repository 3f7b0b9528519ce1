"""Covariances: what is refused, and that the weakest direction is never taken for stronger than it is."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hauberk.errors import RequestError
from hauberk.mechanisms import EpsilonDelta, MixedGaussian, MultivariateGaussian
from hauberk.mechanisms.covariance import certified_smallest_eigenvalue, check_covariance

REQUEST = {"epsilon": 1.0, "delta": 1e-5, "sensitivity": 1.0}


@pytest.mark.parametrize(
    ("covariance", "word"),
    [
        ([[1.0, 2.0], [2.0, 1.0]], "negative eigenvalues"),
        ([[1.0, 0.5], [0.4, 1.0]], "symmetric"),
        ([[1.0, 1.0], [1.0, 1.0]], "positive definite"),
        ([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], "square"),
        ([1.0, -1.0], "negative variance"),
        ([1.0, 0.0], "positive definite"),
        ([math.nan, 1.0], "finite"),
        ([], "non-empty"),
        (3.0, "non-empty"),
    ],
)
def test_what_is_not_a_covariance_is_refused(covariance: object, word: str) -> None:
    with pytest.raises(RequestError, match=word):
        MultivariateGaussian.calibrate(**REQUEST, covariance=covariance)  # type: ignore[arg-type]


@given(seed=st.integers(0, 10**6), size=st.integers(1, 40), log_condition=st.floats(0, 9))
@settings(max_examples=50, deadline=None)
def test_the_smallest_eigenvalue_is_bounded_from_below(seed: int, size: int, log_condition: float) -> None:
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(size, size)))[0]
    values = np.logspace(0, log_condition, size)
    matrix = check_covariance("it", (basis * values) @ basis.T)
    bound = certified_smallest_eigenvalue("it", matrix)
    # The product above is itself rounded, by as much as the margin allows for.
    assert bound <= 1 + 4 * size * 2.3e-16 * values[-1]
    assert bound >= 1 - 10 * size * 2.3e-16 * values[-1]


@given(seed=st.integers(0, 10**6), factor=st.floats(1e-3, 1e3))
@settings(max_examples=25, deadline=None)
def test_a_covariance_counts_up_to_a_factor(seed: int, factor: float) -> None:
    root = np.random.default_rng(seed).normal(size=(5, 5))
    shape = root @ root.T + np.eye(5)
    one, other = (MultivariateGaussian.calibrate(**REQUEST, covariance=c) for c in (shape, factor * shape))
    assert np.allclose(one.covariance, other.covariance, rtol=1e-9)
    assert one.mu == pytest.approx(1 / math.sqrt(2 * math.log(1.25e5)), rel=1e-9)


def test_a_diagonal_and_its_matrix_are_the_same_mechanism() -> None:
    diagonal = np.array([0.5, 2.0, 3.0])
    short = MultivariateGaussian.calibrate(**REQUEST, covariance=diagonal)
    full = MultivariateGaussian.calibrate(**REQUEST, covariance=np.diag(diagonal))
    assert np.allclose(short.scale, full.scale)
    assert short.mu == pytest.approx(full.mu)
    draw = [m.sample((4, 3), torch.Generator().manual_seed(0)) for m in (short, full)]
    assert torch.allclose(*draw, rtol=1e-5)


def test_mixed_noise_fills_what_the_transformed_noise_lacks() -> None:
    """004 Algorithm 3, line 16: three cases."""
    target = math.sqrt(2 * math.log(1.25e5))
    weak = MixedGaussian.calibrate(**REQUEST, transformed=[1.0, 2.0], steps=4)
    assert weak.isotropic == pytest.approx(math.sqrt(target**2 - 4.0))
    assert weak.claimed_mu == pytest.approx(1 / target)
    ignored = MixedGaussian.calibrate(**REQUEST, transformed=[1.0, 2.0], steps=4, ignored_below=2.5)
    assert ignored.isotropic == pytest.approx(target)
    strong = MixedGaussian.calibrate(**REQUEST, transformed=[10.0, 20.0], steps=4)
    assert strong.isotropic == 0.0
    singular = MixedGaussian.calibrate(**REQUEST, transformed=np.ones((3, 3)), steps=1000)
    assert singular.isotropic == pytest.approx(target, rel=1e-6)
    assert singular.mu <= 1 / target * (1 + 1e-9)


def test_no_noise_at_all_is_refused() -> None:
    with pytest.raises(RequestError, match="positive definite"):
        MixedGaussian(
            sensitivity=1.0,
            transformed=np.ones((2, 2)),
            isotropic=0.0,
            steps=1,
            claimed=EpsilonDelta(epsilon=1.0, delta=1e-5),
        )
