"""The rules' errors, exactly where the walk is short and by 10,000 repetitions where it is long."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import binom, norm
from torch import Tensor

from hauberk.certify.certificates import find_certificate, needed_probability
from hauberk.certify.confidence import clopper_pearson_lower
from hauberk.certify.rules import (
    Asked,
    AtLeast,
    FixedDraws,
    Rule,
    Within,
    largest_radius_of,
    needed_samples,
)
from hauberk.certify.voting import settle
from hauberk.errors import RequestError

TIGHT = find_certificate("tight")
GAIN = 4.0


def asked(alpha: float) -> Asked:
    return Asked(certificate=TIGHT, gain=GAIN, alpha=alpha)


@dataclass
class Coins:
    """A block of inputs whose class 0 wins each draw with a known probability."""

    probabilities: NDArray[np.float64]
    dice: np.random.Generator

    def __len__(self) -> int:
        return len(self.probabilities)

    def take(self, rows: Tensor) -> Coins:
        return Coins(self.probabilities[rows.numpy()], self.dice)

    def votes(self, draws: int, generator: torch.Generator) -> NDArray[np.int64]:
        wins = self.dice.binomial(draws, self.probabilities)
        return np.stack((wins, draws - wins), axis=1)


@dataclass
class Streams:
    """The same with all draws made beforehand, so that one can see what more of them would have said."""

    wins: NDArray[np.int64]  # running sums, one row per input
    used: int = 0

    def __len__(self) -> int:
        return len(self.wins)

    def take(self, rows: Tensor) -> Streams:
        return Streams(self.wins[rows.numpy()], self.used)

    def votes(self, draws: int, generator: torch.Generator) -> NDArray[np.int64]:
        before, self.used = self.used, self.used + draws
        wins = self.wins[:, self.used] - self.wins[:, before]
        return np.stack((wins, draws - wins), axis=1)


RULES: list[Rule] = [
    FixedDraws(samples=2000),
    AtLeast(radius=0.25, samples=2000),
    AtLeast(radius=0.7, samples=2000),
    Within(fraction=0.1, samples=2000),
    Within(fraction=0.05, samples=2000),
]


def chance_of_error(rule: Rule, probability: float, alpha: float) -> float:
    """That the rule certifies more than the truth allows, exactly: the walk from look to look."""
    truth = float(TIGHT.radius(np.array([probability]), gain=GAIN)[0])
    alive, drawn, error = np.array([1.0]), 0, 0.0
    while alive.sum() > 1e-15:
        ahead = rule.more(drawn, 0)
        drawn += ahead
        alive = np.convolve(alive, binom.pmf(np.arange(ahead + 1), ahead, probability))
        look = rule.look(np.arange(drawn + 1), drawn, asked(alpha))
        error += float(alive[look.settled & (look.radius > truth)].sum())
        alive = np.where(look.settled, 0.0, alive)
    return error


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.question)
def test_error_is_at_most_alpha_at_every_probability(rule: Rule) -> None:
    thresholds = [0.5, 0.6, norm.cdf(GAIN * 0.25) - 1e-9, norm.cdf(GAIN * 0.7) - 1e-9, 0.999]
    chances = [chance_of_error(rule, probability, 0.05) for probability in thresholds]
    assert max(chances) <= 0.05
    assert max(chances) > 0.001


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.question)
def test_ten_thousand_repetitions_keep_the_error_rate(rule: Rule) -> None:
    """Half-spaces: a point at distance d from the plane has probability Phi(d L), and radius d exactly."""
    alpha, repetitions = 0.01, 10_000
    for distance in (0.1, 0.2499, 0.6999):
        coins = Coins(np.full(repetitions, norm.cdf(GAIN * distance)), np.random.default_rng(7))
        outcome = settle(coins, rule, asked(alpha), torch.Generator())
        wrong = int((outcome.radii[outcome.selected == 0] > distance).sum())
        wrong += int((outcome.radii[outcome.selected == 1] > 0).sum())
        assert binom.sf(wrong - 1, repetitions, alpha) > 1e-4


def test_fixed_draws_are_the_published_procedure() -> None:
    counts = np.arange(1001)
    look = FixedDraws(samples=1000).look(counts, 1000, asked(0.001))
    lower = clopper_pearson_lower(counts, 1000, 0.001)
    expected = np.where(lower > 0.5, norm.ppf(np.maximum(lower, 0.5)) / GAIN, 0.0)
    assert look.radius == pytest.approx(expected, rel=1e-9)
    assert look.settled.all()


@pytest.mark.parametrize("fraction", [0.05, 0.1, 0.3])
def test_within_is_within_and_saves_draws(fraction: float) -> None:
    dice = np.random.default_rng(3)
    distances = np.concatenate((np.full(100, 2.0), dice.uniform(0.02, 0.9, 400)))
    probabilities = norm.cdf(GAIN * distances)
    samples, rule = 20_000, Within(fraction=fraction, samples=20_000)
    most = rule.selection + math.ceil(1.3 * samples)
    wins = dice.random((len(distances), most), dtype=np.float32) < probabilities[:, None]
    sums = np.cumsum(np.insert(wins, 0, False, axis=1), axis=1, dtype=np.int32)
    outcome = settle(Streams(sums), rule, asked(0.001), torch.Generator())
    counted = sums[:, rule.selection + samples] - sums[:, rule.selection]
    fixed = TIGHT.radius(clopper_pearson_lower(counted, samples, 0.001), gain=GAIN)
    near = outcome.radii >= (1 - fraction) * fixed - 1e-12
    assert near[:100].all()  # unanimous votes leave no doubt about what more of them would give
    assert near.mean() > 0.93
    assert (outcome.draws <= 1.3 * samples).all()
    least = {0.05: 1.55, 0.1: 2.8, 0.3: 15.0}[fraction]
    assert samples / outcome.draws[:100].mean() > least


def test_at_least_needs_dozens_of_draws_and_says_no_quickly() -> None:
    rule, question = AtLeast(radius=0.25, samples=100_000), asked(0.001)
    dice = np.random.default_rng(0)
    outcome = settle(Coins(np.full(500, 0.99), dice), rule, question, torch.Generator())
    assert (outcome.radii == 0.25).all()
    assert outcome.draws.mean() < 75
    outcome = settle(Coins(np.full(500, 0.6), dice), rule, question, torch.Generator())
    assert (outcome.radii == 0).all()
    assert outcome.draws.mean() < 75


def test_at_least_seldom_loses_what_fixed_draws_would_certify() -> None:
    """Close to the threshold, where the last look matters."""
    needed = needed_probability(TIGHT, 0.25, gain=GAIN)
    probability = needed + 5 * math.sqrt(needed * (1 - needed) / 20_000)
    dice = np.random.default_rng(1)
    rule = AtLeast(radius=0.25, samples=20_000)
    outcome = settle(Coins(np.full(2000, probability), dice), rule, asked(0.001), torch.Generator())
    fixed = clopper_pearson_lower(dice.binomial(20_000, np.full(2000, probability)), 20_000, 0.001) >= needed
    assert (outcome.radii > 0).mean() > fixed.mean() - 0.12


@pytest.mark.parametrize("room", [0, 7, 10**6])
def test_every_rule_ends_at_its_last_look(room: int) -> None:
    for rule in RULES:
        drawn = 0
        while not rule.look(np.array([drawn * 6 // 10]), drawn, asked(0.001)).settled[0] or drawn == 0:
            step = rule.more(drawn, room)
            assert step > 0
            drawn += step
        assert drawn <= math.ceil(1.3 * rule.samples)


def test_how_many_draws_a_radius_needs() -> None:
    for radius in (0.1, 0.5, 0.9):
        samples = needed_samples(asked(0.001), radius)
        assert samples is not None
        assert largest_radius_of(asked(0.001), samples) >= radius
        assert largest_radius_of(asked(0.001), samples - 1 - samples // 5_000) < radius
    assert needed_samples(asked(0.001), 100.0) is None


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: FixedDraws(samples=0), "at least one draw"),
        (lambda: AtLeast(radius=0.1, selection=0), "at least one draw"),
        (lambda: AtLeast(radius=0.0), "positive radius"),
        (lambda: AtLeast(radius=math.nan), "positive radius"),
        (lambda: Within(fraction=0.0), "between 0 and 1"),
        (lambda: Within(fraction=1.0), "between 0 and 1"),
    ],
)
def test_wrong_requests(make, sentence: str) -> None:
    with pytest.raises(RequestError, match=sentence):
        make()
