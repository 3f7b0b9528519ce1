"""The tight radius against its closed form."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hauberk.certify import clopper_pearson_lower, largest_radius, tight_radius

quantile = NormalDist().inv_cdf


@given(top=st.floats(0.5001, 1 - 1e-12), sigma=st.floats(0.01, 10))
def test_two_classes(top: float, sigma: float) -> None:
    """A half-space at distance r has probability Phi(r / sigma); the radius gives r back."""
    radius = float(tight_radius(top, gain=1 / sigma))
    assert radius == pytest.approx(sigma * quantile(top), rel=1e-6, abs=1e-9)
    assert NormalDist().cdf(radius / sigma) == pytest.approx(top, abs=1e-9)


@given(top=st.floats(0.01, 0.999), other=st.floats(0.001, 0.99), gain=st.floats(0.1, 100))
def test_many_classes(top: float, other: float, gain: float) -> None:
    radius = float(tight_radius(top, other, gain=gain))
    if top > other:
        assert radius == pytest.approx((quantile(top) - quantile(other)) / (2 * gain), rel=1e-6, abs=1e-9)
    else:
        assert radius == 0


@pytest.mark.parametrize("top", [0.0, 0.2, 0.5])
def test_a_minority_certifies_nothing(top: float) -> None:
    assert tight_radius(top, gain=4.0) == 0


def test_rows_stay_apart() -> None:
    tops = np.array([0.0, 0.4, 0.9, 0.99])
    assert tight_radius(tops, gain=2.0).tolist() == [float(tight_radius(top, gain=2.0)) for top in tops]
    radii = tight_radius(tops, 0.5, gain=2.0)
    assert (np.diff(radii) >= 0).all()
    assert (radii > 0).tolist() == [False, False, True, True]


@pytest.mark.parametrize(
    ("samples", "alpha"), [(100, 0.001), (1000, 0.001), (100_000, 0.001), (20, 0.5), (1000, 0.999)]
)
def test_the_cap_is_what_unanimous_votes_certify(samples: int, alpha: float) -> None:
    cap = largest_radius(gain=4.0, samples=samples, alpha=alpha)
    assert cap == pytest.approx(0.25 * quantile(alpha ** (1 / samples)), rel=1e-6)
    lower = clopper_pearson_lower(np.arange(samples + 1), samples, alpha)
    assert tight_radius(lower, gain=4.0).max() == cap
    assert math.isfinite(cap)


def test_too_few_draws_certify_nothing() -> None:
    assert largest_radius(gain=4.0, samples=9, alpha=0.001) == 0  # 0.001 ** (1/9) is below one half
    assert largest_radius(gain=4.0, samples=10, alpha=0.001) > 0
