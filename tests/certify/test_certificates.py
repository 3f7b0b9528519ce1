"""One table for all certificates: what every certificate must be, and what is special about each.

That no certificate is ever broken is tested on classifiers whose smoothed answer is known everywhere in
closed form (half-spaces, balls, stripes, terraces): with exact probabilities, then with counted votes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import ndtr
from scipy.stats import binom, laplace, ncx2

from hauberk.certify import clopper_pearson_lower, largest_radius, tight_radius
from hauberk.certify.certificates import CERTIFICATES, Certificate, find_certificate, needed_probability
from hauberk.certify.confidence import (
    bounds_from_scores,
    bounds_from_votes,
    empirical_bernstein_lower,
    hoeffding_lower,
)
from hauberk.errors import RequestError

Values = NDArray[np.float64]
quantile = NormalDist().inv_cdf

for_all = pytest.mark.parametrize("name", CERTIFICATES)

CLOSE = np.geomspace(2**-53, 0.4, 60)
PROBABILITIES = np.unique(
    np.concatenate([np.linspace(0.0, 1.0, 41), CLOSE, 1 - CLOSE, 0.5 + np.geomspace(1e-9, 0.4, 50)])
)
TOPS, OTHERS = (grid.ravel() for grid in np.meshgrid(PROBABILITIES[::3], PROBABILITIES[::4]))
ADDING_UP = TOPS + OTHERS <= 1


# What every certificate must be


@for_all
def test_everything_is_finite_and_a_tie_certifies_nothing(name: str) -> None:
    certificate = CERTIFICATES[name]
    radii = certificate.radius(TOPS, OTHERS, gain=4.0)
    assert np.isfinite(radii).all()
    assert (radii >= 0).all()
    assert (radii[TOPS <= OTHERS] == 0).all()
    assert (radii[TOPS > OTHERS + 1e-9] > 0).all()
    assert certificate.radius([0.0, 0.3, 0.5, np.nan], gain=4.0).tolist() == [0, 0, 0, 0]
    assert certificate.radius([np.nan, 0.7], [0.2, np.nan], gain=4.0).tolist() == [0, 0]
    certain = certificate.radius(1.0, 0.0, gain=4.0)
    assert 0 < certain < 10
    assert certain == certificate.radius(1 - 2**-53, gain=4.0)


@for_all
def test_more_votes_certify_more(name: str) -> None:
    """Increasing in the top class's probability, decreasing in the other's, in both forms."""
    certificate = CERTIFICATES[name]
    table = certificate.radius(PROBABILITIES[:, None], PROBABILITIES[None, ::4], gain=1.0)
    digits = 1e-10 * (1 + table.max())  # a search finds a maximum up to its last digits
    assert (np.diff(table, axis=0) >= -digits).all()
    assert (np.diff(table, axis=1) <= digits).all()
    two_classes = certificate.radius(PROBABILITIES, gain=1.0)
    assert (np.diff(two_classes) >= -digits).all()
    assert (np.diff(two_classes[PROBABILITIES > 0.5001]) > 0).sum() > 30


@for_all
@given(top=st.floats(0.0, 1.0), other=st.floats(0.0, 1.0), gain=st.floats(1e-3, 1e3))
@settings(max_examples=20, deadline=None)
def test_the_radius_scales_with_the_noise(name: str, top: float, other: float, gain: float) -> None:
    certificate = CERTIFICATES[name]
    unit = float(certificate.radius(top, other, gain=1.0))
    assert float(certificate.radius(top, other, gain=gain)) == pytest.approx(unit / gain, rel=1e-12)


@for_all
def test_rows_stay_apart(name: str) -> None:
    """An input's radius does not depend on the company it is certified in; shapes broadcast."""
    certificate = CERTIFICATES[name]
    tops, others = np.array([[0.55], [0.8], [0.999]]), np.array([0.001, 0.1, 0.3, 0.6])
    together = certificate.radius(tops, others, gain=2.0)
    assert together.shape == (3, 4)
    for i, j in np.ndindex(3, 4):
        assert together[i, j] == certificate.radius(tops[i, 0], others[j], gain=2.0)
    assert certificate.radius(np.zeros((0,)), gain=2.0).shape == (0,)
    two_classes = certificate.radius(tops, gain=2.0)
    assert two_classes.tolist() == certificate.radius(tops, 1.0 - tops, gain=2.0).tolist()


@for_all
@pytest.mark.parametrize("radius", [1e-3, 0.13, 0.6, 1.5, 6.0])
def test_the_needed_probability_is_the_inverse(name: str, radius: float) -> None:
    certificate = CERTIFICATES[name]
    needed = needed_probability(certificate, radius, gain=1.7)
    assert 0.5 < needed <= 1
    if needed == 1:
        assert certificate.radius(1.0, gain=1.7) < radius
        return
    assert certificate.radius(needed, gain=1.7) >= radius
    assert certificate.radius(needed - 1e-11, gain=1.7) < radius


@for_all
def test_the_needed_probability_at_its_ends(name: str) -> None:
    certificate = CERTIFICATES[name]
    assert needed_probability(certificate, 0.0, gain=2.0) == 0.5
    assert needed_probability(certificate, 1e6, gain=2.0) == 1.0
    certain = float(certificate.radius(1.0, gain=2.0))
    assert 0.99 < needed_probability(certificate, certain, gain=2.0) < 1
    assert needed_probability(certificate, np.nextafter(certain, math.inf), gain=2.0) == 1.0
    assert (
        0.9 - 1e-9
        <= needed_probability(certificate, float(certificate.radius(0.9, gain=2.0)), gain=2.0)
        <= 0.9
    )


@pytest.mark.parametrize("radius", [0.05, 0.25, 1.0, 2.0])
def test_needed_probabilities_that_have_a_closed_form(radius: float) -> None:
    for name, probability in (
        ("tight", NormalDist().cdf(2.0 * radius)),
        ("laplace", 1 - math.exp(-2.0 * radius) / 2),
        ("laplace-l1", 1 - math.exp(-2.0 * radius) / 2),
    ):
        needed = needed_probability(CERTIFICATES[name], radius, gain=2.0)
        assert needed == pytest.approx(probability, rel=1e-13)


@for_all
def test_wrong_requests_are_refused(name: str) -> None:
    certificate = find_certificate(name)
    assert certificate.name == name
    for gain in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(RequestError, match="gain"):
            certificate.radius(0.9, gain=gain)
    with pytest.raises(RequestError, match=r"in \[0, 1\]"):
        certificate.radius(1.1, 0.2, gain=1.0)
    with pytest.raises(RequestError, match=r"in \[0, 1\]"):
        certificate.radius([0.9, 0.9], [0.1, -0.1], gain=1.0)
    with pytest.raises(RequestError, match="radius"):
        needed_probability(certificate, -0.1, gain=1.0)


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(
        RequestError, match="choose one of tight, hgm, hgm-analytic, pixeldp, laplace, laplace-l1"
    ):
        find_certificate("tightest")


@for_all
def test_ten_thousand_inputs_take_little_time(name: str) -> None:
    tops = np.random.default_rng(0).uniform(0.5, 1.0, 10_000)
    begin = time.process_time()
    CERTIFICATES[name].radius(tops, gain=1.0)
    assert time.process_time() - begin < (0.2 if name in {"tight", "laplace", "laplace-l1"} else 5.0)


# How they compare


def test_the_order_of_the_gaussian_certificates() -> None:
    radii = {
        name: c.radius(TOPS, OTHERS, gain=1.0) for name, c in CERTIFICATES.items() if c.kind == "gaussian"
    }
    assert (radii["tight"] >= radii["hgm-analytic"]).all()
    assert (radii["hgm-analytic"] >= radii["hgm"]).all()
    assert (radii["hgm-analytic"] >= radii["pixeldp"]).all()
    apart = TOPS > OTHERS + 1e-9
    assert (radii["tight"] > radii["hgm-analytic"] * (1 + 1e-6))[apart & ADDING_UP].all()


def test_hgm_and_pixeldp_are_not_ordered() -> None:
    """PixelDP's constant is a little better, HGM may spend more than epsilon = 1."""
    hgm, pixeldp = CERTIFICATES["hgm"], CERTIFICATES["pixeldp"]
    assert hgm.radius(0.999, gain=1.0) > 1.5 * pixeldp.radius(0.999, gain=1.0)
    assert pixeldp.radius(1.0, 0.1, gain=1.0) > 1.001 * hgm.radius(1.0, 0.1, gain=1.0)


def test_the_order_of_the_laplace_certificates() -> None:
    general = CERTIFICATES["laplace"].radius(TOPS, OTHERS, gain=1.0)
    for_l1 = CERTIFICATES["laplace-l1"].radius(TOPS, OTHERS, gain=1.0)
    assert (for_l1 >= general * (1 - 1e-12)).all()
    assert (for_l1 > 1.2 * general)[(TOPS > 0.9) & (OTHERS < 0.01) & (OTHERS > 0)].any()
    two_classes = [CERTIFICATES[name].radius(PROBABILITIES, gain=3.0) for name in ("laplace", "laplace-l1")]
    assert two_classes[0] == pytest.approx(two_classes[1], rel=1e-12)


# The tight radius


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


# Classifiers whose smoothed answer is known everywhere

SCALE = 0.5  # sigma of Gaussian noise, b of Laplace noise
DIMENSION = 4
FIRST = np.eye(DIMENSION)[0]
DIAGONAL = np.ones(DIMENSION) / DIMENSION


def normal_cdf(distance: Values) -> Values:
    return np.asarray(ndtr(distance / SCALE))


def laplace_cdf(distance: Values) -> Values:
    return np.asarray(laplace.cdf(distance / SCALE))


def two_laplace_cdf(distance: Values) -> Values:
    """Distribution of the sum of two independent Laplace variables."""
    size = np.abs(distance) / SCALE
    tail = np.exp(-size) * (2 + size) / 4
    return np.where(distance > 0, 1 - tail, tail)


@dataclass(frozen=True, kw_only=True)
class Toy:
    """``probabilities`` of all classes at (points, dimension); ``worst``: where the answer changes first."""

    name: str
    kind: str
    norm: str
    probabilities: Callable[[Values], Values]
    starts: tuple[Values, ...]
    worst: tuple[Values, ...]  # unit vectors of the norm

    @property
    def gain(self) -> float:
        gaussian = {"l1": 0.0, "l2": 0.0, "linf": 0.5}
        laplacian = {"l1": 0.0, "l2": 0.5, "linf": 1.0}
        grows = (gaussian if self.kind == "gaussian" else laplacian)[self.norm]
        return DIMENSION**grows / SCALE

    @property
    def certificates(self) -> list[Certificate]:
        return [c for c in CERTIFICATES.values() if c.kind == self.kind and self.norm in c.norms]


def half_space(normal: Values, cdf: Callable[[Values], Values]) -> Callable[[Values], Values]:
    def probabilities(points: Values) -> Values:
        inside = cdf(points @ normal)
        return np.stack([inside, 1 - inside], axis=1)

    return probabilities


def terraces(cdf: Callable[[Values], Values]) -> Callable[[Values], Values]:
    """Class 0 where x_1 > 0, class 1 where x_1 < -0.6, class 2 between."""

    def probabilities(points: Values) -> Values:
        above, below = cdf(points[:, 0]), 1 - cdf(points[:, 0] + 0.6)
        return np.stack([above, below, 1 - above - below], axis=1)

    return probabilities


def stripes(cdf: Callable[[Values], Values], classes: int, width: float) -> Callable[[Values], Values]:
    """Class ``floor(x_1 / width) mod classes``."""

    def probabilities(points: Values) -> Values:
        edges = width * np.arange(-60, 61)
        shares = np.diff(cdf(edges[None, :] - points[:, :1]), axis=1)
        numbers = np.arange(-60, 60) % classes
        return np.stack([shares[:, numbers == label].sum(axis=1) for label in range(classes)], axis=1)

    return probabilities


def ball(points: Values) -> Values:
    """Class 0 within 1.3 of the origin."""
    inside = ncx2.cdf((1.3 / SCALE) ** 2, DIMENSION, (points**2).sum(axis=1) / SCALE**2)
    return np.stack([inside, 1 - inside], axis=1)


def along(direction: Values, *distances: float) -> tuple[Values, ...]:
    return tuple(distance * direction for distance in distances)


BOTH_WAYS = (FIRST, -FIRST)
SLANTED = np.array([1.0, -2.0, 0.5, 2.0]) / np.linalg.norm([1.0, -2.0, 0.5, 2.0])
TOYS = {
    toy.name: toy
    for toy in (
        Toy(
            name="half-space, l2",
            kind="gaussian",
            norm="l2",
            probabilities=half_space(SLANTED, normal_cdf),
            starts=along(SLANTED, 0.01, 0.3, 1.0, 2.5),
            worst=(-SLANTED,),
        ),
        Toy(
            name="half-space, l1",
            kind="gaussian",
            norm="l1",
            probabilities=half_space(FIRST, normal_cdf),
            starts=along(FIRST, 0.2, 1.0),
            worst=(-FIRST,),
        ),
        Toy(
            name="half-space, linf",
            kind="gaussian",
            norm="linf",
            probabilities=half_space(DIAGONAL * math.sqrt(DIMENSION), normal_cdf),
            starts=along(DIAGONAL * DIMENSION, 0.1, 0.4),
            worst=(-DIAGONAL * DIMENSION,),
        ),
        Toy(
            name="ball, l2",
            kind="gaussian",
            norm="l2",
            probabilities=ball,
            starts=(*along(FIRST, 0.2, 0.7, 0.9), *along(FIRST, 1.1, 1.5, 2.5)),
            worst=BOTH_WAYS,
        ),
        Toy(
            name="two stripes, l2",
            kind="gaussian",
            norm="l2",
            probabilities=stripes(normal_cdf, 2, 1.5),
            starts=along(FIRST, 0.1, 0.5, 0.75),
            worst=BOTH_WAYS,
        ),
        Toy(
            name="three stripes, l2",
            kind="gaussian",
            norm="l2",
            probabilities=stripes(normal_cdf, 3, 1.1),
            starts=along(FIRST, 0.2, 0.55, 1.9),
            worst=BOTH_WAYS,
        ),
        Toy(
            name="terraces, l2",
            kind="gaussian",
            norm="l2",
            probabilities=terraces(normal_cdf),
            starts=along(FIRST, 0.0, 0.4, 1.2),
            worst=BOTH_WAYS,
        ),
        Toy(
            name="half-space, Laplace, l1",
            kind="laplace",
            norm="l1",
            probabilities=half_space(FIRST, laplace_cdf),
            starts=along(FIRST, 0.01, 0.4, 2.0),
            worst=(-FIRST,),
        ),
        Toy(
            name="slanted half-space, Laplace, l1",
            kind="laplace",
            norm="l1",
            probabilities=half_space(np.array([1.0, 1.0, 0.0, 0.0]), two_laplace_cdf),
            starts=along(FIRST, 0.1, 0.6, 2.0),
            worst=(-FIRST, np.array([-0.5, -0.5, 0.0, 0.0])),
        ),
        Toy(
            name="slanted half-space, Laplace, linf",
            kind="laplace",
            norm="linf",
            probabilities=half_space(np.array([1.0, 1.0, 0.0, 0.0]), two_laplace_cdf),
            starts=along(FIRST, 0.1, 0.6, 2.0),
            worst=(-np.ones(DIMENSION),),
        ),
        Toy(
            name="three stripes, Laplace, l1",
            kind="laplace",
            norm="l1",
            probabilities=stripes(laplace_cdf, 3, 1.6),
            starts=along(FIRST, 0.3, 0.8, 2.9),
            worst=BOTH_WAYS,
        ),
        Toy(
            name="terraces, Laplace, l1",
            kind="laplace",
            norm="l1",
            probabilities=terraces(laplace_cdf),
            starts=along(FIRST, 0.0, 0.4, 1.2),
            worst=BOTH_WAYS,
        ),
    )
}
for_all_toys = pytest.mark.parametrize("toy", TOYS.values(), ids=TOYS)


def unit_vectors(toy: Toy, count: int) -> Values:
    """Random directions of norm one, the worst ones and the axes among them."""
    draws = np.random.default_rng(1).laplace(size=(count, DIMENSION))
    draws = np.concatenate([draws, np.eye(DIMENSION), -np.eye(DIMENSION), *(w[None] for w in toy.worst)])
    order = {"l1": 1, "l2": 2, "linf": np.inf}[toy.norm]
    return np.asarray(draws / np.linalg.norm(draws, ord=order, axis=1, keepdims=True))


def leads(toy: Toy, label: int, points: Values) -> NDArray[np.bool_]:
    probabilities = toy.probabilities(points)
    return np.asarray(probabilities[:, label] >= np.delete(probabilities, label, axis=1).max(axis=1) - 1e-12)


def true_radius(toy: Toy, start: Values, label: int) -> float:
    """How far the answer really stays ``label``: the first change along the worst directions."""
    radii = []
    for direction in toy.worst:
        steps = np.linspace(0.0, 6.0, 601)
        changed = ~leads(toy, label, start + steps[:, None] * direction)
        if changed.any():
            first = int(changed.argmax())
            low, high = steps[max(first - 1, 0)], steps[first]
            for _ in range(50):
                middle = (low + high) / 2
                stays = leads(toy, label, (start + middle * direction)[None])[0]
                low, high = (middle, high) if stays else (low, middle)
            radii.append(high)
    return float(min(radii))


@for_all_toys
def test_no_certificate_is_broken_where_probabilities_are_exact(toy: Toy) -> None:
    directions = unit_vectors(toy, 300)
    for start in toy.starts:
        probabilities = toy.probabilities(start[None])[0]
        assert probabilities.sum() == pytest.approx(1, abs=1e-12)
        label = int(probabilities.argmax())
        top, other = probabilities[label], np.delete(probabilities, label).max()
        truth = true_radius(toy, start, label)
        assert truth > 0
        for certificate in toy.certificates:
            radius = float(certificate.radius(top, other, gain=toy.gain))
            assert 0 < radius <= truth * (1 + 1e-9)
            assert certificate.radius(top, gain=toy.gain) <= radius * (1 + 1e-9)
            for fraction in (0.4, 0.8, 1 - 1e-9):
                assert leads(toy, label, start + fraction * radius * directions).all()


@pytest.mark.parametrize(
    ("name", "toy"),
    [
        ("tight", "half-space, l2"),
        ("tight", "half-space, l1"),
        ("tight", "half-space, linf"),
        ("tight", "terraces, l2"),
        ("laplace", "half-space, Laplace, l1"),
        ("laplace-l1", "half-space, Laplace, l1"),
        ("laplace-l1", "terraces, Laplace, l1"),
    ],
)
def test_no_larger_radius_is_true(name: str, toy: str) -> None:
    """These certificates are attained, by half-spaces and, with many classes, by terraces."""
    setting = TOYS[toy]
    for start in setting.starts:
        probabilities = setting.probabilities(start[None])[0]
        label = int(probabilities.argmax())
        assert label == 0
        # on a terrace the class at the far end is the rival that the bound is about
        rival = probabilities[1]
        radius = float(CERTIFICATES[name].radius(probabilities[0], rival, gain=setting.gain))
        moved = setting.probabilities((start + radius * setting.worst[-1])[None])[0]
        assert moved[0] == pytest.approx(moved[1], abs=1e-9)


# With counted votes: the error rate stays at or below alpha

REPETITIONS = 10_000


def most_errors(alpha: float) -> int:
    """More would happen by chance with probability 1e-6 at most, if the error rate is alpha."""
    return int(binom.isf(1e-6, REPETITIONS, alpha))


@for_all_toys
@pytest.mark.parametrize(("samples", "alpha"), [(200, 0.05), (500, 0.001)])
def test_counted_votes_break_no_certificate_beyond_alpha(toy: Toy, samples: int, alpha: float) -> None:
    start = toy.starts[len(toy.starts) // 2]
    probabilities = toy.probabilities(start[None])[0]
    label = int(probabilities.argmax())
    truth = true_radius(toy, start, label)
    votes = np.random.default_rng(samples).multinomial(
        samples, probabilities / probabilities.sum(), REPETITIONS
    )
    two_classes = clopper_pearson_lower(votes[:, label], samples, alpha)
    top, other = bounds_from_votes(votes, np.full(REPETITIONS, label), samples, alpha)
    for certificate in toy.certificates:
        for radii in (
            certificate.radius(two_classes, gain=toy.gain),
            certificate.radius(top, other, gain=toy.gain),
        ):
            assert (radii > truth * (1 + 1e-9)).sum() <= most_errors(alpha)
            assert (radii > 0).any()


@pytest.mark.parametrize("distance", [0.0, 0.2, 0.7])
def test_where_the_bound_is_exact_the_errors_do_come(distance: float) -> None:
    """The test above can fail: at a half-space, errors happen about as often as alpha says."""
    alpha, samples, gain = 0.05, 1000, 1 / SCALE
    counts = np.random.default_rng(3).binomial(samples, ndtr(distance / SCALE), REPETITIONS)
    for name in ("tight", "laplace-l1"):
        if name == "laplace-l1":
            counts = np.random.default_rng(4).binomial(samples, laplace.cdf(distance / SCALE), REPETITIONS)
        radii = CERTIFICATES[name].radius(clopper_pearson_lower(counts, samples, alpha), gain=gain)
        errors = int((radii > distance * (1 + 1e-9)).sum())
        assert 0.5 * alpha * REPETITIONS < errors <= most_errors(alpha)


@pytest.mark.parametrize("alpha", [0.05, 0.001])
def test_a_wrongly_selected_class_is_rarely_certified(alpha: float) -> None:
    """Selection may err; then every positive radius is an error, and still alpha bounds it."""
    probabilities = np.array([0.495, 0.505, 0.0])
    votes = np.random.default_rng(5).multinomial(300, probabilities, REPETITIONS)
    top, other = bounds_from_votes(votes, np.zeros(REPETITIONS, dtype=int), 300, alpha)
    for certificate in CERTIFICATES.values():
        assert (certificate.radius(top, other, gain=1.0) > 0).sum() <= most_errors(alpha)


@pytest.mark.parametrize("kind", ["hoeffding", "empirical-bernstein"])
@pytest.mark.parametrize("steepness", [0.5, 8.0])
def test_mean_scores_break_no_certificate_beyond_alpha(kind: str, steepness: float) -> None:
    """The score ``Phi(k x_1)`` has the mean ``Phi(k x_1 / sqrt(1 + k^2 sigma^2))``, one half at x_1 = 0."""
    alpha, samples, distance = 0.05, 150, 0.3
    noise = np.random.default_rng(6).normal(0.0, SCALE, (REPETITIONS, samples))
    scores = ndtr(steepness * (distance + noise))
    mean, variance = scores.mean(axis=1), scores.var(axis=1, ddof=1)
    assert mean.mean() == pytest.approx(
        ndtr(steepness * distance / math.hypot(1, steepness * SCALE)), abs=0.002
    )
    means, variances = np.stack([mean, 1 - mean], axis=1), np.stack([variance, variance], axis=1)
    selected = np.zeros(REPETITIONS, dtype=int)
    if kind == "hoeffding":
        lower, both = (
            hoeffding_lower(mean, samples, alpha),
            bounds_from_scores(means, selected, samples, alpha),
        )
    else:
        lower = empirical_bernstein_lower(mean, variance, samples, alpha)
        both = bounds_from_scores(means, selected, samples, alpha, variances=variances)
    for certificate in CERTIFICATES.values():
        if certificate.kind == "gaussian":
            for radii in (
                certificate.radius(lower, gain=1 / SCALE),
                certificate.radius(both.top_lower, both.runner_up_upper, gain=1 / SCALE),
            ):
                assert (radii > distance).sum() <= most_errors(alpha)
                assert (radii > 0).any() or steepness < 1
