"""Success rates that are right, with intervals that hold, and no success by luck."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import binomtest
from torch import nn

from hauberk.attacks import PGD, Outcome, worst_case
from hauberk.attacks.outcome import binomial_interval, count_and_test
from hauberk.attacks.targets import Goal
from hauberk.certify import Smoothed
from hauberk.errors import RequestError

SIGMA = 0.25
DIRECTION = torch.linspace(-1, 1.5, 16) / torch.linspace(-1, 1.5, 16).norm()


def half_space() -> Smoothed:
    """Class 0 where DIRECTION (x - 1/2) > 0. Its noise is symmetric: the smoothed classifier is the same."""
    layer = nn.Linear(16, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.stack([4 * DIRECTION, -4 * DIRECTION]))
        layer.bias.copy_(torch.stack([-2 * DIRECTION.sum(), 2 * DIRECTION.sum()]))
    return Smoothed(nn.Sequential(nn.Flatten(), layer), sigma=SIGMA, classes=2)


def at_distance(distances: torch.Tensor) -> torch.Tensor:
    return 0.5 + distances[:, None] * DIRECTION


def outcome(**given: object) -> Outcome:
    """Six inputs: wrong from the start, three broken, one held, one undecided."""
    standard = {
        "attack": "test",
        "norm": "l2",
        "radii": np.full(6, 0.1),
        "labels": np.array([0, 0, 0, 0, 0, 0]),
        "targets": None,
        "adversarial": torch.zeros(6, 4),
        "clean_answers": np.array([1, 0, 0, 0, 0, 0]),
        "answers": np.array([1, 1, 1, 1, 0, 0]),
        "broken": np.array([True, True, True, True, False, False]),
        "undecided": np.array([False, False, False, False, False, True]),
        "sizes": np.array([0.0, 0.1, 0.1, 0.1, 0.1, 0.1]),
    }
    return Outcome(**(standard | given))


def test_success_is_among_inputs_that_were_right() -> None:
    found = outcome()
    assert found.success_rate == 3 / 5
    assert found.accuracy == 2 / 6


def test_success_is_among_inputs_that_are_not_yet_of_the_target_class() -> None:
    targets = np.array([1, 1, 1, 0, 1, 1])
    assert outcome(targets=targets).attackable.tolist() == [False, True, True, False, True, True]
    assert outcome(targets=targets).success_rate == 2 / 4


def test_undecided_inputs_widen_the_interval_on_both_sides() -> None:
    low, high = outcome().success_interval(0.9)
    assert low == pytest.approx(binomtest(3, 5).proportion_ci(0.9, method="exact").low)
    assert high == pytest.approx(binomtest(4, 5).proportion_ci(0.9, method="exact").high)
    low, high = outcome().accuracy_interval(0.9)
    assert low == pytest.approx(binomtest(1, 6).proportion_ci(0.9, method="exact").low)
    assert high == pytest.approx(binomtest(2, 6).proportion_ci(0.9, method="exact").high)


@pytest.mark.parametrize(("successes", "trials"), [(0, 10), (10, 10), (3, 17), (1, 1)])
def test_intervals_are_the_exact_binomial_ones(successes: int, trials: int) -> None:
    known = binomtest(successes, trials).proportion_ci(0.95, method="exact")
    assert binomial_interval(successes, trials) == pytest.approx((known.low, known.high), abs=1e-12)


def test_no_trials_no_knowledge() -> None:
    assert binomial_interval(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0, float("nan")])
def test_a_confidence_is_a_probability(confidence: float) -> None:
    with pytest.raises(RequestError, match="strictly between 0 and 1"):
        outcome().success_interval(confidence)


@pytest.mark.parametrize("stop_when_broken", [True, False])
@pytest.mark.parametrize("radius", [0.06, 0.15, 0.24])
def test_the_success_rate_on_a_known_classifier_is_right(radius: float, stop_when_broken: bool) -> None:
    """The smoothed half-space flips exactly beyond the distance: the rate is P(distance < radius)."""
    generator = torch.Generator().manual_seed(3)
    distances = 0.3 * torch.rand(120, generator=generator)  # P(distance < radius) = radius / 0.3
    attack = PGD(norm="l2", steps=10, draws=8, stop_when_broken=stop_when_broken)
    labels = torch.zeros(120, dtype=torch.int64)
    found = attack.attack(half_space(), at_distance(distances), labels, radius=radius, samples=2000)
    low, high = found.success_interval(0.999)
    assert low <= radius / 0.3 <= high
    assert high - low < 0.5
    assert not (found.broken & (distances > radius).numpy()).any()  # each at level 0.001
    clearly = (distances < radius - 0.05).numpy()
    assert found.broken[clearly].all()


def test_a_lucky_draw_is_no_success() -> None:
    """A step's one draw says class 1 for many of these inputs, the smoothed classifier for none."""
    x, labels = at_distance(torch.full((40,), 0.15)), torch.zeros(40, dtype=torch.int64)
    found = PGD(norm="l2", steps=20, draws=1).attack(half_space(), x, labels, radius=0.01, samples=500)
    assert not found.broken.any()
    assert found.accuracy == 1.0
    one_draw = half_space().count_votes(x, 1, torch.Generator().manual_seed(0))
    assert one_draw[:, 1].sum() > 5  # luck there would have been


def test_a_tie_is_undecided() -> None:
    x, labels = torch.full((30, 16), 0.5), torch.zeros(30, dtype=torch.int64)
    verdict = count_and_test(
        half_space(),
        x,
        Goal(classes=labels, targeted=False),
        samples=200,
        generator=torch.Generator().manual_seed(0),
    )
    assert verdict.undecided.sum() >= 29  # each at level 0.001
    targeted = Goal(classes=labels, targeted=True)
    verdict = count_and_test(
        half_space(), x + 0.2 * DIRECTION, targeted, samples=200, generator=torch.Generator().manual_seed(0)
    )
    assert verdict.broken.all()
    assert (verdict.answers == 0).all()


def test_the_worst_case_takes_every_inputs_best_attack() -> None:
    weak = outcome(
        attack="weak",
        answers=np.array([1, 0, 1, 0, 0, 0]),
        broken=np.array([True, False, True, False, False, False]),
        undecided=np.zeros(6, dtype=bool),
        sizes=np.array([0.0, 0.1, 0.05, 0.1, 0.1, 0.1]),
        adversarial=torch.ones(6, 4),
    )
    both = worst_case([weak, outcome()])
    assert both.broken.tolist() == [True, True, True, True, False, False]
    assert both.sizes.tolist() == [0.0, 0.1, 0.05, 0.1, 0.1, 0.1]
    assert both.adversarial[:, 0].tolist() == [1.0, 0.0, 1.0, 0.0, 1.0, 0.0]
    assert both.undecided.tolist() == [False] * 5 + [True]
    assert both.attack == "worst of weak, test"
    assert both.accuracy == min(weak.accuracy, outcome().accuracy)


@pytest.mark.parametrize(
    "different",
    [
        {"radii": np.full(6, 0.2)},
        {"norm": "linf"},
        {"labels": np.ones(6, dtype=np.int64)},
        {"targets": np.ones(6, dtype=np.int64)},
    ],
)
def test_the_worst_case_is_over_the_same_question(different: dict[str, object]) -> None:
    with pytest.raises(RequestError, match="same labels, targets, radii and norm"):
        worst_case([outcome(), replace(outcome(), **different)])


def test_the_worst_of_nothing_is_refused() -> None:
    with pytest.raises(RequestError, match="at least one attack"):
        worst_case([])
