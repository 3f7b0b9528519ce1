"""The whole evaluation: what it must say of equal, shuffled, copied and fresh sets, in whatever order."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hauberk.errors import RequestError
from hauberk.synthesis import Patients, Schema, simulate_ward
from hauberk.synthesis.evaluation import Evaluation, evaluate
from hauberk.synthesis.evaluation_distances import fidelity
from hauberk.synthesis.evaluation_features import draw

Refusal = Callable[[Callable[[], object]], str]
DISTANCES = (
    "minkowski",
    "marginal_distance",
    "correlation_distance",
    "cooccurrence_distance",
    "missing_rate_error",
    "time_gap_distance",
    "trajectory_distance",
)


@pytest.fixture(scope="module")
def real() -> Patients:
    return simulate_ward(400, seed=1)


@pytest.fixture(scope="module")
def train() -> Patients:
    return simulate_ward(500, seed=2)


@pytest.fixture(scope="module")
def leaked(real: Patients, train: Patients) -> Evaluation:
    """The evaluation of a synthesizer that returns what it learned from."""
    return evaluate(real, train, train=train)


def test_equal_sets_are_at_distance_zero(real: Patients) -> None:
    found = evaluate(real, real)
    row = found.row()
    assert [row[name] for name in DISTANCES] == [0.0] * len(DISTANCES)
    assert row["cosine"] == pytest.approx(1.0)
    assert row["auroc"] == row["auroc_real"]
    assert row["auprc"] == row["auprc_real"]
    assert row["discriminative_score"] == 0.0
    assert found.prediction is not None
    assert found.prediction.auroc_lost.low == found.prediction.auroc_lost.high == 0
    assert found.membership is None
    assert any("training set" in note for note in found.notes)
    for feature in found.fidelity.features:
        assert feature.marginal == 0
        assert feature.missing_real == feature.missing_synthetic


def test_copies_of_the_training_set_are_caught(leaked: Evaluation) -> None:
    row = leaked.row()
    assert row["auroc"] == row["auroc_real"]
    assert row["membership_advantage"] == pytest.approx(1.0)
    assert row["epsilon_lower"] is not None
    assert row["epsilon_lower"] > 3.5
    assert leaked.membership is not None
    assert leaked.membership.neighbours.copies == 500
    assert leaked.membership.neighbours.coincidences == 0
    assert leaked.membership.neighbours.to_training == 0
    assert leaked.membership.neighbours.nearer_to_training > 0.9  # the pool is cut to as many held-out ones
    assert leaked.reference == leaked.fidelity


def test_fresh_patients_are_near_and_tell_nothing(real: Patients, train: Patients) -> None:
    found = evaluate(real, simulate_ward(450, seed=3), train=train, alpha=0.001)
    assert found.membership is not None
    assert found.membership.guesses.epsilon_lower == 0
    assert found.membership.guesses.rates.advantage.low < 0 < found.membership.guesses.rates.advantage.high
    assert found.membership.neighbours.copies == 0
    assert found.detection is not None
    assert found.detection.score.low < 0 < found.detection.score.high
    assert found.prediction is not None
    assert found.prediction.auroc_synthetic.value > 0.7
    assert found.prediction.auroc_lost.low < 0 < found.prediction.auroc_lost.high
    assert found.fidelity.marginal_distance < 0.1


def test_the_order_of_patients_is_nothing(real: Patients, train: Patients) -> None:
    synthetic = simulate_ward(120, seed=4)

    def shuffled(patients: Patients, seed: int) -> Patients:
        return patients.select(torch.randperm(len(patients), generator=torch.Generator().manual_seed(seed)))

    few, trained = real.first(130), train.first(110)
    found = evaluate(few, synthetic, train=trained, patients=100)
    again = evaluate(shuffled(few, 1), shuffled(synthetic, 2), train=shuffled(trained, 3), patients=100)
    assert found == again
    assert found != evaluate(few, synthetic, train=trained, patients=100, seed=1)
    assert len([note for note in found.notes if "100 were looked at" in note]) == 3


def test_a_shuffled_outcome_predicts_nothing(real: Patients, train: Patients) -> None:
    place = train.schema.static_place("deteriorated")
    static = train.static.clone()
    static[:, place] = static[torch.randperm(len(train), generator=torch.Generator().manual_seed(0)), place]
    found = evaluate(real, replace(train, static=static), train=train)
    assert found.prediction is not None
    assert 0.35 < found.prediction.auroc_synthetic.value < 0.65
    assert found.prediction.auroc_real.value > 0.75
    assert found.prediction.auroc_lost.low > 0.1
    assert found.row()["marginal_distance"] == _training_marginal(real, train)


def _training_marginal(real: Patients, train: Patients) -> float:
    """Who has the event changed places, so that every marginal is still the training set's."""
    return fidelity(draw(real, 4000, seed=0), draw(train, 4000, seed=0), seed=0).marginal_distance


def test_one_kind_of_outcome_is_a_guess(real: Patients) -> None:
    well = real.select(real.outcome == 0)
    found = evaluate(real.first(300), well, train=simulate_ward(200, seed=8))
    assert found.prediction is not None
    assert found.prediction.auroc_synthetic.value == 0.5
    prevalence = found.prediction.events / found.prediction.tested
    assert found.prediction.auprc_synthetic.value == pytest.approx(prevalence)


def test_json_comes_back(leaked: Evaluation) -> None:
    content = json.loads(json.dumps(leaked.to_json(), allow_nan=False))
    assert Evaluation.from_json(content) == leaked
    content["fidelity"]["records"].pop("cosine")
    with pytest.raises(RequestError, match=r"fidelity\.records lacks the key 'cosine'"):
        Evaluation.from_json(content)


def test_progress_reaches_its_end() -> None:
    told: list[tuple[str, int, int]] = []
    patients = simulate_ward(40, seed=5)
    evaluate(
        patients,
        simulate_ward(40, seed=6),
        progress=lambda stage, done, total: told.append((stage, done, total)),
    )
    assert told[0][1] == 0
    assert told[-1][1] == told[-1][2]


def test_wrong_requests_cost_one_sentence(
    real: Patients, train: Patients, clinic: Schema, refusal: Refusal
) -> None:
    assert "20" in refusal(lambda: evaluate(real, real.first(3)))
    assert "alpha" in refusal(lambda: evaluate(real, train, alpha=0))
    assert "delta" in refusal(lambda: evaluate(real, train, delta=1.5))
    assert "training set" in refusal(lambda: evaluate(train, real, train=train))
    assert "held-out" in refusal(lambda: evaluate(real, real, train=train, held_out=train.first(50)))
    shorter = replace(real.schema, time=replace(real.schema.time, unit="minutes"))
    assert "clock" in refusal(lambda: evaluate(real, replace(train, schema=shorter)))
    other = replace(real.schema, outcome=None)
    assert "features" in refusal(lambda: evaluate(real, replace(train, schema=other)))


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_schema_can_be_evaluated(
    schemas: st.SearchStrategy[Schema],
    patients_of: Callable[[Schema], st.SearchStrategy[Patients]],
    data: st.DataObject,
) -> None:
    schema = data.draw(schemas)
    real, synthetic = (_many(data.draw(patients_of(schema))) for _ in range(2))
    found = evaluate(real, synthetic)
    json.dumps(found.to_json(), allow_nan=False)
    assert 0 <= found.fidelity.marginal_distance <= 1
    equal = evaluate(real, real)
    assert equal.fidelity.marginal_distance == equal.fidelity.records.minkowski == 0


def _many(few: Patients) -> Patients:
    """The same patients over and over, which is the hardest thing for clusters and splits."""
    rows = torch.arange(24) % len(few)
    return Patients(
        schema=few.schema,
        **{
            name: getattr(few, name)[rows]
            for name in ("static", "static_observed", "increments", "values", "observed", "lengths")
        },
    )
