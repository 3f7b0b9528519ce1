"""What a synthesizer is told and what it refuses, whichever it is."""

from collections.abc import Callable
from pathlib import Path

import pytest

from hauberk.errors import RequestError
from hauberk.files import read_json, write_json
from hauberk.mechanisms import EpsilonDelta
from hauberk.synthesis import WARD, simulate_ward
from hauberk.synthesis.base import Task
from hauberk.synthesis.cards import TOO_FEW_EVENTS, privacy_columns
from hauberk.synthesis.catalogue import find_synthesizer, load_synthesizer
from hauberk.synthesis.class_marginals import MarginalsSettings
from hauberk.synthesis.marginals import Marginals
from hauberk.synthesis.vae import VAE
from hauberk.training.run_folder import RunFolder

BUDGET = EpsilonDelta(epsilon=1.0, delta=1e-5)
PATIENTS = simulate_ward(40, seed=0)


def fitted() -> Marginals:
    return Marginals(Task(schema=WARD, records=40, budget=BUDGET)).fit(PATIENTS)


def test_wrong_requests_are_one_sentence(refusal: Callable[[Callable[[], object]], str]) -> None:
    assert "whole number" in refusal(lambda: Task(schema=WARD, records=0, budget=None))
    nothing = EpsilonDelta(epsilon=0.0, delta=1e-5)
    assert "positive" in refusal(lambda: Task(schema=WARD, records=9, budget=nothing))
    assert "igamtt" in refusal(lambda: find_synthesizer("igamtt"))
    task = Task(schema=WARD, records=9, budget=None)
    assert "VaeSettings" in refusal(lambda: VAE(task, MarginalsSettings()))
    assert "window" in refusal(lambda: MarginalsSettings(windows=0))
    assert "whole number" in refusal(lambda: fitted().sample(0, seed=0))


def test_a_ledger_with_fewer_events_than_planned_proves_nothing() -> None:
    model = fitted()
    planned = model.planned_events()
    columns = privacy_columns(
        (*planned, *planned),
        model.trained.ledger,
        schema=WARD,
        budget=BUDGET,
        source="a test",
        unit="one patient",
    )
    assert columns.proven is None
    assert columns.reason == TOO_FEW_EVENTS


def test_learning_twice_is_refused_because_it_would_cost_twice(tmp_path: Path) -> None:
    model = fitted()
    with pytest.raises(RequestError, match="a second time would cost again"):
        model.fit(PATIENTS)
    folder = RunFolder(tmp_path / "run")
    folder.create()
    Marginals(model.task).fit(PATIENTS, folder=folder)
    with pytest.raises(RequestError, match="releases of an earlier training"):
        Marginals(model.task).fit(PATIENTS, folder=folder)


def test_many_samples_do_not_depend_on_how_they_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fitted()
    made = model.sample(25, seed=0)
    assert made.identifiers == tuple(str(place + 1) for place in range(25))
    monkeypatch.setattr("hauberk.synthesis.base._PATIENTS_AT_ONCE", 10)
    told: list[tuple[str, int, int]] = []
    assert len(model.sample(25, seed=0, progress=lambda *words: told.append(words))) == 25
    assert told == [("sampling", 10, 25), ("sampling", 20, 25), ("sampling", 25, 25)]


def test_a_damaged_or_foreign_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="no run folder"):
        load_synthesizer(tmp_path)
    write_json(tmp_path / "config.json", {"method": "dp-sgd"})
    with pytest.raises(RequestError, match="something else"):
        load_synthesizer(tmp_path)
    fitted().save(tmp_path / "run")
    config = read_json(tmp_path / "run" / "config.json")
    for change, complaint in (
        ({"schema": None}, "another form"),
        ({"settings": {"windows": "two"}}, "windows"),
        ({"synthesizer": "vae"}, "settings"),
    ):
        write_json(tmp_path / "run" / "config.json", {**config, **change})
        with pytest.raises(RequestError, match=complaint):
            load_synthesizer(tmp_path / "run")


def test_an_unfinished_run_makes_no_patients(tmp_path: Path) -> None:
    model = fitted()
    model.save(tmp_path / "run")
    (tmp_path / "run" / "model.safetensors").unlink()
    with pytest.raises(RequestError, match="not finished"):
        load_synthesizer(tmp_path / "run")
