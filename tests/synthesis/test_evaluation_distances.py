"""Distances against other people's code, and against sets whose distance is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ks_2samp

from hauberk.synthesis import Patients, simulate_ward
from hauberk.synthesis.evaluation_clusters import centre_distance, plane, record_vectors
from hauberk.synthesis.evaluation_courses import courses, histogram, missing_shares, time_gaps
from hauberk.synthesis.evaluation_distances import (
    Fidelity,
    cooccurrence_distance,
    correlation_distance,
    correlations,
    fidelity,
    kolmogorov,
    total_variation,
)
from hauberk.synthesis.evaluation_features import Scale, draw, first_half, summarize

NUMBERS = st.lists(st.integers(-5, 5), min_size=1, max_size=30)


@pytest.fixture(scope="module")
def ward() -> Patients:
    return simulate_ward(150, seed=1)


@given(one=NUMBERS, other=NUMBERS)
def test_kolmogorov_is_scipys(one: list[int], other: list[int]) -> None:
    ours = kolmogorov(np.array(one), np.array(other))
    assert ours == pytest.approx(ks_2samp(one, other, method="asymp").statistic)


def test_distances_at_their_ends() -> None:
    none, some = np.empty(0), np.array([0.0, 1.0])
    assert kolmogorov(none, none) == total_variation(none, none, 2) == 0
    assert kolmogorov(none, some) == total_variation(some, none, 2) == 1
    assert total_variation(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 2]), 3) == pytest.approx(0.25)
    assert total_variation(np.array([0.0]), np.array([2.0]), 3) == 1


def test_correlations_are_pandas(ward: Patients) -> None:
    pandas = pytest.importorskip("pandas")
    table = summarize(ward).averages().values
    ours, counts = correlations(table)
    theirs = pandas.DataFrame(table).corr().to_numpy()
    known = ~np.isnan(theirs)
    np.testing.assert_allclose(ours[known], theirs[known], atol=1e-9)
    assert np.abs(ours[~known]).max(initial=0) == 0
    assert counts[0, 0] == 150


def test_breaking_pairs_is_seen_where_marginals_are_blind(ward: Patients) -> None:
    """Every column of the static features, and the patients' courses, shuffled apart."""
    chance = torch.Generator().manual_seed(0)
    order = torch.randperm(len(ward), generator=chance)
    columns = [ward.static[torch.randperm(len(ward), generator=chance), i] for i in (0, 1)]
    static = ward.static[order].clone()
    static[:, 0], static[:, 1] = columns
    apart = Patients(
        schema=ward.schema,
        static=static,
        static_observed=ward.static_observed[order],
        increments=ward.increments,
        values=ward.values,
        observed=ward.observed,
        lengths=ward.lengths,
    )
    near = fidelity(draw(ward, 1000, seed=0), draw(apart, 1000, seed=0), seed=0)
    assert near.marginal_distance == pytest.approx(0, abs=1e-12)
    assert near.correlation_distance is not None
    assert near.correlation_distance > 0.03
    assert near.cooccurrence_distance == 0


def test_cooccurrence_of_known_masks(ward: Patients) -> None:
    """Without the last feature, pairs with it are never seen together."""
    observed = ward.observed.clone()
    observed[:, :, 5] = False
    without = Patients.from_vectors(
        ward.schema,
        static=ward.static_vectors(),
        static_observed=ward.static_observed,
        increments=ward.increments,
        values=ward.step_vectors(),
        observed=observed,
        lengths=ward.lengths,
    )
    seen = ward.observed[ward.real_steps].double()
    together = (seen[:, :5] * seen[:, 5:]).mean(0).sum() / 15
    assert cooccurrence_distance(ward, without) == pytest.approx(float(together), abs=0.01)
    rates = {each.name: each for each in _fidelity(ward, without).features}
    assert rates["consciousness"].missing_synthetic == 1
    assert rates["consciousness"].marginal == 1
    assert correlation_distance(ward, without)[0] != 0


def _fidelity(one: Patients, other: Patients) -> Fidelity:
    return fidelity(draw(one, 1000, seed=0), draw(other, 1000, seed=0), seed=0)


def test_centres_are_paired_for_the_smallest_sum() -> None:
    real = np.array([[0.0, 1.0], [1.0, 0.0], [3.0, 4.0]])
    found = centre_distance(real, real[[2, 0, 1]] + np.array([0.0, 0.1]))
    assert found.minkowski == pytest.approx(0.3)
    assert 0.98 < found.cosine < 1
    zero = np.zeros((1, 2))
    assert centre_distance(zero, zero).cosine == 1
    assert centre_distance(zero, real[:1]).cosine == 0


def test_time_gaps_and_missing_shares_by_hand(ward: Patients) -> None:
    first = ward.first(1)
    steps = int(first.lengths[0])
    np.testing.assert_allclose(time_gaps(first), np.diff(first.times[0, :steps].numpy()))
    assert missing_shares(first)[0] == pytest.approx(1 - first.observed.sum().item() / (6 * steps))


def test_courses_are_means_in_periods(ward: Patients) -> None:
    found = courses(ward)
    assert found.names[0] == "heart_rate"
    assert found.means.shape == (5, 24)
    hours, seen = ward.times, ward.observed[:, :, 0]
    early = seen & (hours < 2)
    assert found.means[0, 0] == pytest.approx(float(ward.values[:, :, 0][early].double().mean()))


def test_histograms_hold_everybody() -> None:
    values = np.random.default_rng(0).exponential(size=1000)
    bars = histogram("x", values, values[:1], whole=False)
    assert sum(bars.real) == pytest.approx(1)
    assert len(bars.real) == len(bars.edges) - 1 == 30
    whole = histogram("x", np.array([1.0, 2.0, 2.0]), np.array([3.0]), whole=True)
    assert whole.edges == (0.5, 1.5, 2.5, 3.5)
    assert whole.real == pytest.approx((1 / 3, 2 / 3, 0), abs=1e-5)
    assert histogram("x", np.empty(0), np.empty(0)).real == (0,)


def test_the_plane_is_that_of_the_real_records(ward: Patients) -> None:
    sample = draw(ward, 1000, seed=0)
    found = plane(sample, draw(simulate_ward(30, seed=3), 1000, seed=0), seed=0)
    vectors = record_vectors(sample.patients).astype(np.float64)
    singular = np.linalg.svd(vectors - vectors.mean(0), compute_uv=False)
    assert found.explained == pytest.approx(tuple((singular**2 / (singular**2).sum())[:2]), abs=1e-3)
    assert (len(found.real), len(found.synthetic)) == (150, 30)


def test_summaries_by_hand(ward: Patients) -> None:
    table = summarize(ward)
    place = table.columns.index("heart_rate last")
    for row in range(5):
        seen = ward.values[row, :, 0][ward.observed[row, :, 0]]
        assert table.values[row, place] == pytest.approx(float(seen[-1]))
        assert table.values[row, place - 3] == pytest.approx(float(seen.double().mean()))
        assert table.values[row, place - 2] == float(seen.min())
        assert table.values[row, place - 1] == float(seen.max())
        assert table.values[row, place + 1] == len(seen) / 24
    shares = [
        table.columns.index(f"consciousness = {level}") for level in ("alert", "confused", "unresponsive")
    ]
    total = table.values[:, shares].sum(1)
    assert np.nanmax(np.abs(total - 1)) < 1e-12
    assert "deteriorated" not in table.without("deteriorated").features


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(-(2**40), 2**40), count=st.integers(1, 40))
def test_samples_do_not_know_the_order(seed: int, count: int) -> None:
    patients = simulate_ward(40, seed=5)
    turned = patients.select(torch.arange(39, -1, -1))
    one, other = draw(patients, count, seed=seed), draw(turned, count, seed=seed)
    assert set(one.patients.identifiers) == set(other.patients.identifiers)
    assert len(one) == count
    halves = first_half(one.whole, of=one.whole)
    assert halves.sum() == 20
    assert not (set(one.whole[halves]) & set(one.whole[~halves]))


def test_a_scale_fills_and_bounds() -> None:
    table = np.array([[0.0, np.nan], [2.0, 1.0], [4.0, 1.0]])
    scaled = Scale.of(table).apply(table)
    np.testing.assert_allclose(scaled[:, 0], [-np.sqrt(1.5), 0, np.sqrt(1.5)])
    np.testing.assert_allclose(scaled[:, 1], 0)
    assert Scale.of(table).apply(np.array([[1e6, -1e6]])).tolist() == [[5.0, -5.0]]
