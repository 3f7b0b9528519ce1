"""What is released before training is part of the plan, of the event list and of the card, exactly once."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hauberk.accounting import GaussianEvent, Ledger, PrivacyPlan, UnprotectedEvent, prove, proven_epsilon
from hauberk.accounting.json_form import from_json
from hauberk.data import Dataset
from hauberk.errors import RequestError
from hauberk.methods import SecureSGD
from hauberk.methods.columns import privacy_columns
from hauberk.training import RunFolder
from hauberk.training.loop import PrivateTrainer

BEFORE = GaussianEvent(noise_multiplier=8.0)
PLAIN = PrivacyPlan(records=64, batch=16, epochs=2, noise_multiplier=2.0, delta=1e-3)
PLAN = replace(PLAIN, beforehand=(BEFORE,))


@settings(max_examples=8, deadline=None)
@given(
    multipliers=st.lists(st.floats(2.0, 50.0), min_size=1, max_size=3),
    noise=st.floats(1.0, 8.0),
    delta=st.sampled_from([1e-6, 1e-3]),
)
def test_epsilon_composes(multipliers: list[float], noise: float, delta: float) -> None:
    before = tuple(GaussianEvent(noise_multiplier=each) for each in multipliers)
    plain = replace(PLAIN, noise_multiplier=noise, delta=delta)
    plan = replace(plain, beforehand=before)
    together = plan.epsilon()
    assert together == prove((*before, plan.event()), delta).epsilon
    assert together > plain.epsilon()
    assert together > proven_epsilon(before, delta)
    assert plan.epsilon(coarse=True) >= together * (1 - 1e-6)
    assert plan.epsilon(0) == pytest.approx(proven_epsilon(before, delta))


def test_the_steps_and_their_event_are_those_of_training_alone() -> None:
    assert PLAN.steps == PLAIN.steps
    assert PLAN.event() == PLAIN.event()
    assert PLAN.private


def test_calibration_keeps_the_target_with_it() -> None:
    wanted = {"epsilon": 1.5, "delta": 1e-5, "records": 1000, "batch": 100, "epochs": 2}
    alone = PrivacyPlan.calibrate(**wanted)
    both = PrivacyPlan.calibrate(**wanted, beforehand=(BEFORE,))
    assert both.beforehand == (BEFORE,)
    assert both.noise_multiplier > alone.noise_multiplier
    assert 1.5 * 0.999 < both.epsilon() <= 1.5
    assert proven_epsilon([BEFORE, both.event()], 1e-5) <= 1.5


@pytest.mark.parametrize("multiplier", [0.5, 1.0])
def test_what_spends_everything_beforehand_is_refused(multiplier: float) -> None:
    with pytest.raises(RequestError, match="before training spends epsilon") as caught:
        PrivacyPlan.calibrate(
            epsilon=1.0,
            delta=1e-5,
            records=1000,
            batch=100,
            epochs=2,
            beforehand=(GaussianEvent(noise_multiplier=multiplier),),
        )
    assert "\n" not in str(caught.value)


def test_a_plan_comes_back_from_a_file() -> None:
    content = json.loads(json.dumps(asdict(PLAN)))
    again = from_json(PrivacyPlan, content, where="plan")
    assert again == PLAN
    assert isinstance(again.beforehand, tuple)
    assert again.epsilon() == PLAN.epsilon()
    del content["beforehand"]  # a file of before there was such a thing
    assert from_json(PrivacyPlan, content, where="plan") == PLAIN


@pytest.mark.parametrize("damage", [5, "x", [5], [{"noise_multiplier": "much"}], [{"sigma": 1.0}], None])
def test_a_damaged_plan_is_refused_in_a_sentence(damage: object) -> None:
    content = {**asdict(PLAIN), "beforehand": damage}
    with pytest.raises(RequestError):
        from_json(PrivacyPlan, content, where="plan")


def test_events_that_leave_something_out_prove_nothing() -> None:
    def proven(*events: GaussianEvent) -> bool:
        return privacy_columns(PLAN, Ledger(events), source="").proven is not None  # type: ignore[arg-type]

    steps = PLAN.event()
    assert isinstance(steps, GaussianEvent)
    assert proven(BEFORE, steps)
    assert proven(BEFORE, replace(steps, count=steps.count + 3))
    assert not proven(BEFORE, replace(steps, count=steps.count - 1))
    assert not proven(steps)  # nobody counted what came before
    assert not proven(BEFORE)


def test_an_unprotected_beginning_proves_nothing() -> None:
    columns = privacy_columns(
        PLAIN, Ledger([UnprotectedEvent(), PLAIN.event()]), source="", unprovable="it leaks"
    )
    assert columns.proven is None
    assert columns.reason == "it leaks"


# --- in a run -----------------------------------------------------------------------------------------------


def data() -> Dataset:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(64, 5, generator=generator)
    return Dataset(name="made up", x=x, y=(x.mean(1) > 0.5).long(), classes=2)


def method(**changes: object) -> SecureSGD:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 6), torch.nn.Tanh(), torch.nn.Linear(6, 2))
    made = {"plan": PLAN, "sigma": 0.3, "source": "private", **changes}
    return SecureSGD(model, **made)  # type: ignore[arg-type]


def folder(path: Path) -> RunFolder:
    made = RunFolder(path)
    made.create()
    made.write_config({})
    return made


def test_the_event_list_holds_it_once_and_from_the_first_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    advance, seen = PrivateTrainer.advance, []

    def watched(self: PrivateTrainer) -> object:
        seen.append(RunFolder(tmp_path / "run").read_events().events)
        return advance(self)

    monkeypatch.setattr(PrivateTrainer, "advance", watched)
    run = method().fit(data(), folder=folder(tmp_path / "run"))
    assert len(seen) == PLAN.steps
    assert all(events[0] == BEFORE for events in seen)
    assert all(events.count(BEFORE) == 1 for events in seen)
    assert run.ledger.events == (BEFORE, PLAN.event())
    assert prove(run.ledger.events, PLAN.delta).epsilon == PLAN.epsilon()
    assert run.curve[-1].epsilon == pytest.approx(PLAN.epsilon(), rel=0.01)


class Killed(BaseException):
    """Nothing catches it."""


@pytest.mark.parametrize("kills", [(0,), (5,), (2, 6), (0, 4)])
def test_after_kills_it_is_still_there_once_and_no_step_is_missing(
    kills: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    advance = PrivateTrainer.advance
    path = tmp_path / "run"
    place = folder(path)
    for number, at in enumerate(kills):

        def dying(self: PrivateTrainer, at: int = at) -> object:
            if self.step >= at:
                raise Killed
            return advance(self)

        monkeypatch.setattr(PrivateTrainer, "advance", dying)
        with pytest.raises(Killed):
            method(noise_seed=3).fit(data(), folder=place, resume=number > 0)
    monkeypatch.setattr(PrivateTrainer, "advance", advance)
    left = RunFolder(path).read_events().events
    assert left[0] == BEFORE
    assert left.count(BEFORE) == 1
    run = method(noise_seed=3).fit(data(), folder=place, resume=True)
    events = run.ledger.events
    assert events[0] == BEFORE
    assert events.count(BEFORE) == 1
    assert sum(event.count for event in events[1:]) >= PLAN.steps
    assert run.ledger.events == RunFolder(path).read_events().events
    whole = method(noise_seed=3).fit(data(), folder=folder(tmp_path / "whole"))
    for one, other in zip(run.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(one, other)
    assert torch.equal(run.noise.after_first_map, whole.noise.after_first_map)


def test_a_kill_before_the_first_reservation_begins_at_the_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first r stays in the private folder: nobody has seen it, and nothing is counted twice for it."""
    write = RunFolder.write_events

    def dying(self: RunFolder, *_: object, **__: object) -> None:
        raise Killed

    place = folder(tmp_path / "run")
    monkeypatch.setattr(RunFolder, "write_events", dying)
    with pytest.raises(Killed):
        method().fit(data(), folder=place)
    assert not place.begun
    assert place.checkpoint.exists()
    monkeypatch.setattr(RunFolder, "write_events", write)
    run = method().fit(data(), folder=place, resume=True)
    assert run.ledger.events == (BEFORE, PLAN.event())
    assert {path.name for path in place.private.iterdir()} <= {"diagnostics.jsonl"}


def test_a_plan_that_does_not_pay_for_a_private_r_is_refused() -> None:
    with pytest.raises(RequestError, match="pays for a private r"):
        method(plan=PLAIN)
    with pytest.raises(RequestError, match="pays for a private r"):
        method(source="public")
    silent = replace(PLAIN, noise_multiplier=0.0)
    with pytest.raises(RequestError, match="without privacy noise"):
        method(plan=silent).fit(data())
    assert math.isinf(silent.epsilon())
