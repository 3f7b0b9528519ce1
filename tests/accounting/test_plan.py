"""The plan's epsilon against independent computations, and the laws that any epsilon obeys."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, replace
from typing import Any

import dp_accounting
import pytest
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from hauberk.accounting import GaussianEvent, PrivacyPlan, UnprotectedEvent
from hauberk.accounting import plan as plan_module
from hauberk.errors import RequestError
from hauberk.mechanisms import GaussianProfile

PUBLISHED = PrivacyPlan(records=60_000, batch=512, noise_multiplier=1.23, epochs=40, delta=1e-6)

plans = st.builds(
    PrivacyPlan,
    records=st.integers(1_000, 100_000),
    batch=st.integers(1, 20),  # sampling rates below 2 %: the accountant's fast region
    noise_multiplier=st.floats(0.7, 8.0),
    epochs=st.floats(0.001, 0.2),
    delta=st.floats(1e-9, 1e-2),
)

# A coarse epsilon is a bound, not the value: two of them may stand in the wrong order by what the grid adds.
GRID = 2e-3


def by_dp_accounting(plan: PrivacyPlan, *, interval: float = 1e-4) -> float:
    """The same plan, written down again and accounted by the field's reference."""
    event: dp_accounting.DpEvent = dp_accounting.GaussianDpEvent(plan.noise_multiplier)
    if plan.batch < plan.records:
        event = dp_accounting.PoissonSampledDpEvent(plan.batch / plan.records, event)
    accountant = PLDAccountant(value_discretization_interval=interval)  # add or remove one is its default
    accountant.compose(event, math.ceil(plan.epochs * plan.records / plan.batch))
    return float(accountant.get_epsilon(plan.delta))


def test_the_published_number() -> None:
    assert PUBLISHED.epsilon() == pytest.approx(2.68, abs=0.02)


@pytest.mark.parametrize(
    "plan",
    [
        PUBLISHED,
        PrivacyPlan(records=20_000, batch=1024, noise_multiplier=2.0, epochs=5, delta=1e-5),
        PrivacyPlan(records=500, batch=500, noise_multiplier=3.0, epochs=4, delta=1e-5),
        PrivacyPlan(records=1_000, batch=1, noise_multiplier=2.0, epochs=0.1, delta=1e-4),
    ],
    ids=["published", "digits", "whole set", "single records"],
)
def test_epsilon_is_that_of_the_reference_accountant(plan: PrivacyPlan) -> None:
    assert plan.epsilon() == pytest.approx(by_dp_accounting(plan), rel=1e-3)


@given(plan=plans)
@settings(max_examples=8, deadline=None)
def test_epsilon_is_that_of_the_reference_accountant_anywhere(plan: PrivacyPlan) -> None:
    assert plan.epsilon(coarse=True) == pytest.approx(
        by_dp_accounting(plan, interval=1e-3), rel=0.02, abs=GRID
    )


@pytest.mark.parametrize(("noise", "steps"), [(1.0, 1), (4.0, 3), (10.0, 40), (0.2, 1)])
def test_without_sampling_epsilon_is_the_exact_gaussian_one_from_above(noise: float, steps: int) -> None:
    plan = PrivacyPlan(records=80, batch=80, noise_multiplier=noise, epochs=steps, delta=1e-5)
    exact = GaussianProfile(mu=math.sqrt(steps) / noise).epsilon(1e-5)
    assert plan.steps == steps
    assert exact * (1 - 1e-9) <= plan.epsilon() <= exact * 1.001  # the reference composes in double precision


@given(plan=plans, factor=st.floats(1.05, 3.0))
@settings(max_examples=10, deadline=None)
def test_more_noise_is_more_private(plan: PrivacyPlan, factor: float) -> None:
    less, more = plan, replace(plan, noise_multiplier=plan.noise_multiplier * factor)
    assert 0 <= more.epsilon(coarse=True) <= less.epsilon(coarse=True) + GRID < math.inf
    if less.epsilon(coarse=True) > 0.1:
        assert more.epsilon(coarse=True) < less.epsilon(coarse=True)


@given(plan=plans, more=st.integers(1, 400))
@settings(max_examples=10, deadline=None)
def test_more_steps_are_less_private(plan: PrivacyPlan, more: int) -> None:
    few, many = plan.epsilon(plan.steps, coarse=True), plan.epsilon(plan.steps + more, coarse=True)
    assert 0 <= few <= many + GRID
    assert plan.epsilon(0) == 0


def test_epsilon_strictly_grows_with_steps() -> None:
    epsilons = [PUBLISHED.epsilon(steps, coarse=True) for steps in (50, 500, 2000, PUBLISHED.steps)]
    assert epsilons == sorted(set(epsilons))
    assert epsilons[-1] == PUBLISHED.epsilon(coarse=True)


def test_a_coarse_epsilon_is_a_bound_too() -> None:
    fine, coarse = PUBLISHED.epsilon(), PUBLISHED.epsilon(coarse=True)
    assert fine <= coarse <= fine * 1.01


@pytest.mark.parametrize(
    ("epsilon", "batch", "epochs"), [(1.0, 20_000, 2), (0.3, 512, 0.25), (9.0, 20_000, 20)]
)
def test_calibration_never_overshoots_and_wastes_nothing(epsilon: float, batch: int, epochs: float) -> None:
    plan = PrivacyPlan.calibrate(epsilon=epsilon, delta=1e-5, records=20_000, batch=batch, epochs=epochs)
    assert (plan.records, plan.batch, plan.epochs, plan.delta) == (20_000, batch, epochs, 1e-5)
    assert plan.epsilon() <= epsilon
    assert replace(plan, noise_multiplier=plan.noise_multiplier / 1.001).epsilon() > epsilon
    assert by_dp_accounting(plan) <= epsilon * (1 + 1e-6)


@given(
    epsilon=st.floats(0.2, 8.0),
    delta=st.floats(1e-8, 1e-2),
    records=st.integers(100, 1_000),
    batch=st.integers(20, 100),
    epochs=st.floats(0.1, 1.0),
)
@settings(max_examples=5, deadline=None)
def test_calibration_never_overshoots_anywhere(
    epsilon: float, delta: float, records: int, batch: int, epochs: float
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan_module, "FINEST", 5e-3)  # much faster, and the law holds on any grid
        plan = PrivacyPlan.calibrate(
            epsilon=epsilon, delta=delta, records=records, batch=batch, epochs=epochs
        )
        assert plan.epsilon() <= epsilon
        assert plan.noise_multiplier < 0.01 or (
            replace(plan, noise_multiplier=plan.noise_multiplier / 1.001).epsilon() > epsilon
        )


def test_an_epsilon_out_of_reach_is_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_module, "_MOST_NOISE", 4.0)
    with pytest.raises(RequestError, match=r"no noise reaches epsilon 0\.001"):
        PrivacyPlan.calibrate(epsilon=0.001, delta=1e-5, records=100, batch=100, epochs=1)


@given(
    records=st.integers(1, 10**6),
    batch_share=st.floats(0, 1),
    epochs=st.integers(1, 100) | st.sampled_from([0.1, 0.25, 0.5, 1.5, 2.75]),
)
def test_steps_cover_the_epochs(records: int, batch_share: float, epochs: float) -> None:
    batch = max(1, round(records * batch_share))
    plan = PrivacyPlan(records=records, batch=batch, epochs=epochs, noise_multiplier=1.0, delta=1e-5)
    if isinstance(epochs, int):
        assert plan.steps == -(-epochs * records // batch)  # exact whole-number ceiling
    assert plan.steps >= 1
    assert (plan.steps - 1) * batch < epochs * records + 1e-6
    assert plan.steps * batch >= epochs * records - 1e-3


@pytest.mark.parametrize(
    ("records", "batch", "epochs", "steps"),
    [(60_000, 512, 40, 4688), (100, 100, 3, 3), (100, 33, 1, 4), (10, 10, 0.01, 1), (3, 1, 1.1, 4)],
)
def test_known_steps(records: int, batch: int, epochs: float, steps: int) -> None:
    plan = PrivacyPlan(records=records, batch=batch, epochs=epochs, noise_multiplier=1, delta=1e-5)
    assert plan.steps == steps


def test_a_plan_yields_its_own_event() -> None:
    event = PUBLISHED.event()
    assert event == GaussianEvent(noise_multiplier=1.23, sampling_rate=512 / 60_000, count=4688)
    assert PUBLISHED.event(steps=3) == replace(event, count=3)
    assert PUBLISHED.private


def test_the_whole_set_as_a_batch() -> None:
    plan = PrivacyPlan(records=7, batch=7, epochs=2, noise_multiplier=5.0, delta=1e-5)
    assert plan.sampling_rate == 1
    assert plan.steps == 2
    assert 0 < plan.epsilon() < 5


def test_without_noise_nothing_is_private() -> None:
    plan = PrivacyPlan(records=100, batch=10, epochs=1, noise_multiplier=0.0, delta=1e-5)
    assert not plan.private
    assert plan.event() == UnprotectedEvent(count=10)
    assert plan.epsilon() == math.inf
    assert plan.epsilon(0) == 0


GOOD: dict[str, Any] = {"records": 100, "batch": 10, "epochs": 2, "noise_multiplier": 1.0, "delta": 1e-5}
nan, inf = math.nan, math.inf
# (argument, bad values, part of the sentence)
WRONG: list[tuple[str, list[float], str]] = [
    ("records", [0, -5], "records must be at least 1"),
    ("batch", [0, -1, 101, nan], r"batch must lie between 1 and records \(100\)"),
    ("epochs", [0, -1, nan, inf], "epochs must be positive"),
    ("noise_multiplier", [-0.1, nan, inf], "noise multiplier must not be negative"),
    ("delta", [0, 1, -1e-5, 1.5, nan, inf], "delta must lie strictly between 0 and 1"),
]
rows = [(name, value, sentence) for name, values, sentence in WRONG for value in values]
every_wrong = pytest.mark.parametrize(
    ("name", "value", "sentence"), rows, ids=[f"{row[0]} {row[1]}" for row in rows]
)


@every_wrong
def test_a_wrong_plan_is_refused(name: str, value: float, sentence: str) -> None:
    with pytest.raises(RequestError, match=sentence):
        PrivacyPlan(**{**GOOD, name: value})


@every_wrong
def test_a_wrong_calibration_is_refused(name: str, value: float, sentence: str) -> None:
    if name == "noise_multiplier":
        name, sentence = "epsilon", "epsilon must be positive"
    given_ = {**GOOD, "epsilon": 1.0, name: value}
    del given_["noise_multiplier"]
    with pytest.raises(RequestError, match=sentence):
        PrivacyPlan.calibrate(**given_)


def test_a_plan_is_frozen_and_takes_names_only() -> None:
    plan = PrivacyPlan(**GOOD)
    with pytest.raises(FrozenInstanceError):
        plan.noise_multiplier = 0.0  # type: ignore[misc]
    with pytest.raises(TypeError):
        PrivacyPlan(100, 10, 2, 1.0, 1e-5)  # type: ignore[misc]
