"""Every synthesizer keeps the promises of all: one catalogue row, and it is tested here."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from hauberk.accounting import prove
from hauberk.errors import RequestError
from hauberk.mechanisms import EpsilonDelta
from hauberk.synthesis import WARD, Patients, simulate_ward, validate, write_patients
from hauberk.synthesis.base import Synthesizer, Task
from hauberk.synthesis.catalogue import SYNTHESIZERS, load_synthesizer
from hauberk.synthesis.neural import NeuralSynthesizer
from hauberk.training.run_folder import RunFolder

BUDGET = EpsilonDelta(epsilon=3.0, delta=1e-3)
PATIENTS = simulate_ward(60, seed=3)

each = pytest.mark.parametrize("name", SYNTHESIZERS)


def build(name: str, *, budget: EpsilonDelta | None = BUDGET, **changes: object) -> Synthesizer:
    task = Task(**{"schema": WARD, "records": 64, "budget": budget, "seed": 1, **changes})
    return SYNTHESIZERS[name].build(task, size="tiny")


def same(one: Patients, other: Patients) -> bool:
    names = ("static", "static_observed", "increments", "values", "observed", "lengths")
    return all(torch.equal(getattr(one, name), getattr(other, name)) for name in names)


@each
def test_private_learning_ends_in_a_proof_and_valid_patients(name: str, tmp_path: Path) -> None:
    model = build(name).fit(PATIENTS)
    card = model.card()
    assert card.method == name
    assert card.privacy.claimed is not None
    assert card.privacy.proven is not None
    executed = prove(model.trained.ledger.events, BUDGET.delta).epsilon
    assert card.privacy.proven.epsilon >= executed
    assert 2.9 < card.privacy.proven.epsilon <= 3.0
    made = model.sample(30, seed=0)
    assert len(made) == 30
    write_patients(made, tmp_path / "made.csv")
    assert same(validate(tmp_path / "made.csv", WARD), made)


@each
def test_without_privacy_nothing_is_claimed_or_proven(name: str) -> None:
    model = build(name, budget=None).fit(PATIENTS)
    privacy = model.card().privacy
    assert (privacy.claimed, privacy.proven) == (None, None)
    assert privacy.reason == "trained without privacy noise"
    assert math.isinf(prove(model.trained.ledger.events, 1e-3).epsilon)
    assert len(model.sample(5, seed=0)) == 5


@each
def test_samples_are_a_function_of_the_seed(name: str) -> None:
    model = build(name).fit(PATIENTS)
    assert same(model.sample(8, seed=5), model.sample(8, seed=5))
    assert not same(model.sample(8, seed=5), model.sample(8, seed=6))


@each
def test_a_saved_one_makes_the_same_patients_and_nothing_is_pickled(name: str, tmp_path: Path) -> None:
    model = build(name).fit(PATIENTS)
    model.save(tmp_path / "run")
    again = load_synthesizer(tmp_path / "run")
    assert type(again) is type(model)
    assert same(again.sample(6, seed=2), model.sample(6, seed=2))
    assert again.card() == model.card()
    assert {path.suffix for path in tmp_path.rglob("*") if path.is_file()} <= {".json", ".safetensors"}
    with pytest.raises(RequestError, match="exists already"):
        model.save(tmp_path / "run")


class _Killed(Exception):
    pass


@each
def test_an_interrupted_run_goes_on_exactly(name: str, tmp_path: Path) -> None:
    whole = build(name, noise_seed=4)
    whole.begin(RunFolder(tmp_path / "whole"))
    whole.fit(PATIENTS, folder=RunFolder(tmp_path / "whole"))

    def kill(stage: str, done: int, total: int) -> None:
        if done == (6 if stage == "training" else 1):
            raise _Killed

    broken = build(name, noise_seed=4)
    broken.begin(RunFolder(tmp_path / "broken"))
    with pytest.raises(_Killed):
        broken.fit(PATIENTS, folder=RunFolder(tmp_path / "broken"), progress=kill)
    assert RunFolder(tmp_path / "broken").begun
    broken = build(name, noise_seed=4)
    broken.fit(PATIENTS, folder=RunFolder(tmp_path / "broken"), resume=True)
    for tensor, expected in whole.trained.tensors.items():
        assert torch.equal(broken.trained.tensors[tensor], expected), tensor
    assert broken.trained.ledger.steps >= whole.trained.ledger.steps
    assert not list((tmp_path / "broken" / "private").glob("checkpoint*"))


@each
def test_a_noise_seed_and_bounds_from_the_data_prove_nothing(name: str) -> None:
    seeded = build(name, noise_seed=0).fit(PATIENTS).card().privacy
    assert seeded.proven is None
    assert seeded.reason == "noise reproducible from a recorded seed"
    drafted = replace(WARD, time=replace(WARD.time, from_data=True))
    patients = replace(PATIENTS, schema=drafted)
    card = build(name, schema=drafted).fit(patients).card()
    assert card.privacy.proven is None
    assert "read from the records" in str(card.privacy.reason)


@each
def test_awkward_schemas_are_learned_too(name: str) -> None:
    """No static feature, no outcome, timestamps, one step, a single level."""
    temporal = (replace(WARD.temporal[0]), replace(WARD.temporal[-1], levels=("only",)))
    clock = replace(WARD.time, steps=1, format="timestamp")
    schema = replace(WARD, static=(), outcome=None, temporal=temporal, time=clock)
    patients = Patients.from_vectors(
        schema,
        static=torch.zeros(40, 0),
        static_observed=torch.zeros(40, 0, dtype=torch.bool),
        increments=torch.zeros(40, 1),
        values=torch.rand(40, 1, 2, generator=torch.Generator().manual_seed(0)),
        observed=torch.ones(40, 1, 2, dtype=torch.bool),
        lengths=torch.ones(40, dtype=torch.int64),
    )
    made = build(name, schema=schema).fit(patients).sample(7, seed=0)
    assert bool((made.lengths == 1).all())


@each
def test_other_patients_than_declared_are_refused(name: str) -> None:
    other = replace(WARD, name="other ward")
    with pytest.raises(RequestError, match="'other ward'"):
        build(name).fit(replace(PATIENTS, schema=other))
    with pytest.raises(RequestError, match="learned nothing yet"):
        build(name).sample(1, seed=0)


@each
def test_the_ledger_holds_what_was_planned(name: str) -> None:
    model = build(name).fit(PATIENTS)
    assert model.trained.ledger.events == model.planned_events()
    if isinstance(model, NeuralSynthesizer):
        # one event for the scales, and one for each step's sample, whatever it gave to how many networks
        assert model.trained.ledger.steps == 1 + model.plan.steps
