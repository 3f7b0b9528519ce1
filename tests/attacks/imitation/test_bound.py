"""Bounds fall as Eqs. 5.7-5.9 say, and Alg. 2 slows down, speeds up and rolls back where it should."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hauberk.attacks.imitation.bound import BoundSchedule, BoundWalk, Decay
from hauberk.errors import RequestError


def walked(schedule: BoundSchedule, successes: list[float]) -> list[float]:
    walk = BoundWalk(schedule)
    bounds = [walk.bound]
    for success in successes:
        walk.advance(success)
        bounds.append(walk.bound)
    return bounds


@pytest.mark.parametrize(
    ("decay", "every", "formula"),
    [
        ("exponential", 1, lambda i: 0.8 * math.exp(-0.05 * i)),
        ("time", 1, lambda i: 0.8 / (1 + 0.05 * i)),
        ("step", 4, lambda i: 0.8 * math.exp(-0.05 * 4) ** (i // 4)),
        ("none", 1, lambda i: 0.1),
    ],
)
def test_without_adaptation_bounds_follow_the_formulas(decay: Decay, every: int, formula: object) -> None:
    schedule = BoundSchedule(decay=decay, initial=0.8, final=0.1, rate=0.05, every=every, adaptive=False)
    expected = [max(0.1, formula(epoch)) for epoch in range(31)]  # type: ignore[operator]
    assert walked(schedule, [0.5] * 30) == pytest.approx(expected)
    assert [schedule.at(epoch) for epoch in range(31)] == pytest.approx(expected)


def test_success_that_holds_speeds_up() -> None:
    walk = BoundWalk(BoundSchedule(initial=0.8, final=0.01, rate=0.01, range=100.0))
    for _ in range(6):
        assert walk.advance(0.9) == "kept"
    assert walk.rate == pytest.approx(0.01 * 1.5**5)  # the first epoch has nothing to be compared with


def test_success_that_falls_rolls_back_and_slows_down() -> None:
    schedule = BoundSchedule(initial=0.8, final=0.01, rate=0.02)
    walk = BoundWalk(schedule)
    walk.advance(0.9)
    before, tried = 0.8, walk.bound
    assert tried == pytest.approx(0.8 * math.exp(-0.02))
    assert walk.advance(0.8) == "rolled back"
    assert walk.rate == pytest.approx(0.01)  # slower means a smaller speed: the misprint is repaired
    assert tried < walk.bound < before  # back, and then forth by less
    assert walk.bound == pytest.approx(0.8 * math.exp(-0.01))
    assert walk.kept == 1
    assert walk.advance(0.9) == "kept"  # compared with what was kept, not with what was rolled back
    assert walk.bound < tried


def test_a_fall_between_the_thresholds_changes_nothing() -> None:
    walk = BoundWalk(BoundSchedule(rate=0.02, upper=0.1, lower=0.01))
    walk.advance(0.9)
    assert walk.advance(0.86) == "kept"
    assert walk.rate == 0.02


def test_a_scripted_curve_is_walked_back_and_forth() -> None:
    """Success holds down to 0.3 and cannot be held below: fast before, slow after, and never stuck."""
    schedule = BoundSchedule(initial=0.8, final=0.2, rate=0.02, most_rollbacks=2)
    walk, bounds, rates, verdicts = BoundWalk(schedule), [], [], []
    while not walk.finished:
        bounds.append(walk.bound)
        rates.append(walk.rate)
        verdicts.append(walk.advance(1.0 if walk.bound > 0.3 else walk.bound / 0.3))
        assert len(bounds) < 300
    above = [rate for bound, rate in zip(bounds, rates, strict=True) if bound > 0.3]
    below = [rate for bound, rate in zip(bounds, rates, strict=True) if bound <= 0.3]
    assert max(above) == pytest.approx(0.08)  # four times the given rate, the end of its range
    assert min(below) == pytest.approx(0.005)
    assert "rolled back" not in [v for v, b in zip(verdicts, bounds, strict=True) if b > 0.3]
    assert verdicts.count("rolled back") > 3
    back = [later > earlier for earlier, later in pairwise(bounds)]
    assert any(back)
    assert max(_runs(verdicts)) <= 2


def _runs(verdicts: list[str]) -> list[int]:
    runs, length = [0], 0
    for verdict in verdicts:
        length = length + 1 if verdict == "rolled back" else 0
        runs.append(length)
    return runs


@given(
    successes=st.lists(st.floats(0, 1), min_size=1, max_size=60),
    decay=st.sampled_from(["exponential", "step", "time"]),
    most=st.integers(0, 3),
)
def test_the_bound_stays_between_its_ends_and_always_gets_there(
    successes: list[float], decay: Decay, most: int
) -> None:
    schedule = BoundSchedule(
        decay=decay, initial=0.8, final=0.2, rate=0.1, every=2, most_rollbacks=most, range=2.0
    )
    assert all(0.2 <= bound <= 0.8 for bound in walked(schedule, successes))
    at_worst = (1 + most) * 4 * 65  # the slowest rate, and every epoch rolled back as often as may be
    falling = [0.999**epoch for epoch in range(at_worst)]
    assert walked(schedule, falling)[-1] == 0.2


def test_nothing_is_rolled_back_at_the_final_bound_or_at_once() -> None:
    walk = BoundWalk(BoundSchedule(initial=0.3, final=0.3))
    assert [walk.advance(success) for success in (0.9, 0.1, 0.0, 0.5)] == ["kept"] * 4
    assert BoundWalk(BoundSchedule()).advance(0.01) == "kept"  # as printed, S0 = 1 would undo this epoch


def test_wrong_schedules_are_refused() -> None:
    for wrong in (
        {"decay": "linear"},
        {"initial": 0.1, "final": 0.2},
        {"final": 0.0},
        {"rate": 0.0},
        {"every": 0},
        {"upper": 1e-6},
        {"slower": 1.0},
        {"most_rollbacks": -1},
    ):
        with pytest.raises(RequestError):
            BoundSchedule(**wrong)  # type: ignore[arg-type]
