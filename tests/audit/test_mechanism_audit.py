"""The black-box test of mechanisms: all of the table, known epsilons, broken promises, wrong requests."""

import dataclasses
from typing import Any

import dp_accounting
import numpy as np
import pytest
import torch
from dp_accounting.pld import PLDAccountant
from scipy.stats import binom

from hauberk.audit.bounds import Values
from hauberk.audit.mechanism_audit import Game, audit_game, audit_mechanism, release_game, worst_shift
from hauberk.errors import RequestError
from hauberk.mechanisms import MECHANISMS, AnalyticGaussian, Laplace, Mechanism

SEEDED = 1e-6  # error level of a test whose seed is fixed
DELTA = 1e-3
COVARIANCE = np.array([[2.0, 0.6, -0.3], [0.6, 1.0, 0.2], [-0.3, 0.2, 0.5]])

ROWS: list[tuple[str, dict[str, Any], bool]] = [  # name, options, does the paper's promise hold?
    ("gaussian", {}, True),
    ("analytic", {}, True),
    ("extended", {}, True),
    ("heterogeneous", {"redistribution": [0.1, 0.2, 0.3, 0.4]}, True),
    ("heterogeneous", {"redistribution": [0.1, 0.2, 0.3, 0.4], "calibration": "extended"}, True),
    ("multivariate", {"covariance": COVARIANCE}, True),
    ("multivariate", {"covariance": [1.0, 2.0, 0.5, 4.0]}, True),
    ("mixed", {"transformed": 3 * COVARIANCE, "steps": 1}, True),
    ("mixed", {"transformed": 3 * COVARIANCE, "steps": 50}, False),
    ("optimized-additive", {"weights": np.ones(4), "steps": 10, "sampling_rate": 1.0}, True),
    ("optimized-additive", {"weights": [1.0, 0.5, -0.1, 1e-3], "steps": 10, "sampling_rate": 1.0}, False),
    ("optimized-additive", {"weights": [1.0, 0.5, -0.1, 1e-3], "steps": 10, "sampling_rate": 0.5}, False),
    ("laplace", {}, True),
    ("functional", {"neighbours": "replace-one"}, True),
]


def subsampled_epsilon(rate: float, multiplier: float) -> float:
    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(multiplier))
    accountant = PLDAccountant(value_discretization_interval=1e-4).compose(event)
    return float(accountant.get_epsilon(DELTA))


def unit_gaussian(multiplier: float) -> Mechanism:
    return AnalyticGaussian.of_multiplier(noise_multiplier=multiplier, sensitivity=1.0, delta=DELTA)


def test_every_registered_mechanism_has_a_row() -> None:
    assert {name for name, _, _ in ROWS} == set(MECHANISMS)


@pytest.mark.parametrize(("name", "options", "sound"), ROWS, ids=lambda value: str(value)[:40])
def test_every_mechanism_is_audited(name: str, options: dict[str, Any], sound: bool) -> None:
    mechanism = MECHANISMS[name].calibrate(epsilon=1.0, delta=1e-2, sensitivity=1.5, **options)
    audit = audit_mechanism(mechanism, draws=60_000, alpha=SEEDED, seed=1)
    proven = mechanism.epsilon(mechanism.claimed.delta)
    assert audit.epsilon_lower <= proven
    assert audit.epsilon_lower > 0.3 * min(proven, 5)  # it has teeth
    assert (audit.epsilon_lower > mechanism.claimed.epsilon) is not sound
    assert audit.rates.delta(proven) <= mechanism.claimed.delta


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_ten_million_draws_come_within_a_fifth_of_a_gaussian(epsilon: float) -> None:
    mechanism = AnalyticGaussian.calibrate(epsilon=epsilon, delta=DELTA, sensitivity=1.0)
    audit = audit_mechanism(mechanism, draws=10_000_000, alpha=SEEDED, seed=2)
    assert 0.8 * epsilon <= audit.epsilon_lower <= epsilon
    assert audit.estimate is not None
    assert audit.estimate.epsilon == pytest.approx(epsilon, rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "multiplier"), [(0.1, 1.0), (0.5, 1.0), (0.25, 0.5)])
def test_ten_million_draws_come_within_a_fifth_of_a_subsampled_gaussian(
    rate: float, multiplier: float
) -> None:
    truth = subsampled_epsilon(rate, multiplier)
    game = release_game(unit_gaussian(multiplier)).poisson_sampled(rate)
    audit = audit_game(game, delta=DELTA, draws=10_000_000, alpha=SEEDED, seed=3)
    assert 0.8 * truth <= audit.epsilon_lower <= truth


@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_two_hundred_small_audits_exceed_the_truth_no_more_often_than_allowed(rate: float) -> None:
    multiplier, alpha, repetitions = 0.4, 0.05, 200
    truth = subsampled_epsilon(rate, multiplier)
    game = release_game(unit_gaussian(multiplier))
    if rate < 1:
        game = game.poisson_sampled(rate)
    bounds = np.array(
        [
            audit_game(game, delta=DELTA, draws=600, alpha=alpha, seed=seed).epsilon_lower
            for seed in range(repetitions)
        ]
    )
    assert binom.sf(int((bounds > truth).sum()) - 1, repetitions, alpha) >= 1e-6
    assert np.median(bounds) > 0.15 * truth


def test_laplace_is_weakest_along_one_coordinate() -> None:
    mechanism = Laplace.calibrate(epsilon=2.0, sensitivity=2.0)
    along, across = (
        audit_game(release_game(mechanism, shift), delta=0.0, draws=100_000, alpha=SEEDED, seed=4)
        for shift in (worst_shift(mechanism, 3), np.full(3, 2 / 3))
    )
    assert 1.5 < along.epsilon_lower <= 2.0
    assert along.estimate is None  # there is none at delta 0
    assert across.epsilon_lower < along.epsilon_lower


def test_noise_that_depends_on_the_record_is_seen_without_any_shift() -> None:
    def spread(scale: float) -> Any:
        def draw(count: int, generator: torch.Generator) -> Values:
            return scale * torch.randn((count, 2), generator=generator, dtype=torch.float64).numpy()

        return draw

    audit = audit_game(
        Game(inside=spread(3.0), outside=spread(1.0)), delta=1e-5, draws=20_000, alpha=SEEDED, seed=5
    )
    assert audit.score == "learnt ratio"
    assert audit.epsilon_lower > 2


def test_a_direction_without_noise_gives_the_record_away() -> None:
    mechanism = unit_gaussian(1.0)

    def draw(offset: float) -> Any:
        def drawn(count: int, generator: torch.Generator) -> Values:
            noise = mechanism.sample((count, 1), generator).double().numpy()
            return np.hstack([noise, noise + offset])  # the same noise twice: the difference is clean

        return drawn

    audit = audit_game(Game(inside=draw(0.1), outside=draw(0.0)), delta=1e-5, draws=4000, alpha=SEEDED)
    assert audit.epsilon_lower > 4


def test_a_fixed_direction_is_used_as_it_is() -> None:
    mechanism = unit_gaussian(0.5)
    game = release_game(mechanism, np.array([1.0, 0.0]))
    right, wrong = (
        audit_game(game, delta=DELTA, draws=20_000, alpha=SEEDED, direction=np.array(direction), seed=6)
        for direction in ([1.0, 0.0], [0.0, 1.0])
    )
    assert right.score == "fixed direction"
    assert right.epsilon_lower > 1
    assert wrong.epsilon_lower == 0


def test_the_same_seed_gives_the_same_audit() -> None:
    mechanism = unit_gaussian(1.0)
    first, again, other = (audit_mechanism(mechanism, draws=2000, seed=seed) for seed in (7, 7, 8))
    assert dataclasses.asdict(first) == dataclasses.asdict(again)
    assert dataclasses.asdict(first) != dataclasses.asdict(other)


@pytest.mark.parametrize(
    "wrong",
    [{"draws": 100}, {"alpha": 0.0}, {"alpha": 0.7}, {"delta": 1.0}, {"direction": np.ones(3)}],
    ids=str,
)
def test_a_wrong_request_is_refused_in_one_sentence(wrong: dict[str, Any]) -> None:
    request = {"delta": DELTA, "draws": 1000, "alpha": 0.05} | wrong
    with pytest.raises(RequestError) as refusal:
        audit_game(release_game(unit_gaussian(1.0)), **request)
    assert str(refusal.value).endswith(".")
    assert "\n" not in str(refusal.value)


def test_draws_that_are_no_numbers_are_refused() -> None:
    def broken(count: int, generator: torch.Generator) -> Values:
        return np.full((count, 1), np.nan)

    with pytest.raises(RequestError, match="finite"):
        audit_game(Game(inside=broken, outside=broken), delta=DELTA, draws=1000)
