"""Metrics against counting by hand."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy.stats import binomtest

from hauberk.certify import Certificates, measure
from hauberk.certify.metrics import Mean, Share, as_numbers
from hauberk.errors import RequestError


def certified() -> tuple[Certificates, np.ndarray]:
    return (
        Certificates(
            labels=np.array([0, 1, -1, 2, 1]),
            predicted=np.array([0, 1, 2, 2, 1]),
            radii=np.array([0.3, 0.1, 0.0, 0.25, 0.4]),
            votes=np.array([90, 80, 40, 85, 95]),
            draws=np.array([100, 50, 100, 100, 150]),
            samples=100,
            alpha=0.01,
        ),
        np.array([0, 1, 2, 0, 1]),
    )


def test_shares_and_means_by_hand() -> None:
    certificates, truth = certified()
    found = measure(certificates, truth, classes=3, radii=(0.0, 0.2, 0.5))
    assert found.accuracy.value == pytest.approx(0.8)  # the abstention was right, the fourth answer wrong
    assert found.abstained.value == pytest.approx(0.2)
    assert [row.accuracy.value for row in found.certified] == [0.6, 0.4, 0.0]
    gained = [0.3, 0.1, 0.0, 0.0, 0.4]
    assert found.average_certified_radius.value == pytest.approx(np.mean(gained))
    assert found.average_certified_radius.standard_error == pytest.approx(np.std(gained, ddof=1) / 5**0.5)
    assert (found.draws, found.draws_per_input) == (500, 100)
    assert [row.accuracy.value for row in found.per_class] == [0.5, 1.0, 1.0]
    assert [row.certified.value for row in found.per_class] == [0.5, 1.0, 0.0]
    assert [row.accuracy.counted for row in found.per_class] == [2, 2, 1]


def test_intervals_are_the_exact_binomial_ones() -> None:
    share = Share.of(np.array([True] * 7 + [False] * 3))
    exact = binomtest(7, 10).proportion_ci(0.95, method="exact")
    assert (share.low, share.high) == pytest.approx((exact.low, exact.high))
    everyone = Share.of(np.ones(10, dtype=bool))
    assert everyone.high == 1
    assert everyone.low == pytest.approx(0.025 ** (1 / 10))


def test_the_interval_of_a_mean_covers_it_in_19_of_20_cases() -> None:
    dice = np.random.default_rng(0)
    covered = 0
    for _ in range(2000):
        mean = Mean.of(dice.exponential(0.5, 400))
        covered += mean.low <= 0.5 <= mean.high
    assert 0.93 < covered / 2000 < 0.965


def test_the_curve_starts_at_zero_and_ends_at_nothing() -> None:
    certificates, truth = certified()
    curve = measure(certificates, truth, classes=3).certified
    assert curve[0].radius == 0
    assert curve[-1].accuracy.value == 0
    assert curve[-2].accuracy.value > 0  # type: ignore[operator]
    shares = [row.accuracy.value for row in curve]
    assert shares == sorted(shares, reverse=True)  # type: ignore[type-var]


def test_nothing_tested_and_json() -> None:
    empty = np.empty(0, dtype=np.int64)
    nothing = Certificates(
        labels=empty, predicted=empty, radii=np.empty(0), votes=empty, draws=empty, samples=1, alpha=0.1
    )
    found = measure(nothing, empty, classes=2)
    assert found.accuracy.value is None
    assert math.isinf(found.average_certified_radius.standard_error)
    text = json.dumps(as_numbers(found), allow_nan=False)
    assert json.loads(text)["average_certified_radius"]["standard_error"] is None


def test_labels_that_do_not_fit_are_refused() -> None:
    certificates, truth = certified()
    with pytest.raises(RequestError, match="do not fit"):
        measure(certificates, truth[:3], classes=3)
