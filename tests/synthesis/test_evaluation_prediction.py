"""Areas under curves against scikit-learn, and predictions whose answer is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hauberk.errors import RequestError
from hauberk.synthesis import simulate_ward
from hauberk.synthesis.evaluation_features import Sample, draw
from hauberk.synthesis.evaluation_prediction import (
    Detection,
    Prediction,
    auprc,
    auroc,
    detect,
    predict,
    roc_curve,
)

metrics = pytest.importorskip("sklearn.metrics")

SCORED = st.lists(st.tuples(st.integers(0, 1), st.integers(-3, 3)), min_size=2, max_size=40).filter(
    lambda pairs: 0 < sum(event for event, _ in pairs) < len(pairs)
)


def _ward(count: int, seed: int) -> Sample:
    return draw(simulate_ward(count, seed=seed), 4000, seed=0)


@settings(deadline=None, max_examples=40)
@given(pairs=SCORED, weights=st.lists(st.integers(1, 4), min_size=40, max_size=40))
def test_areas_are_scikit_learns(pairs: list[tuple[int, int]], weights: list[int]) -> None:
    events, scores = np.array(pairs).T
    scores = scores.astype(np.float64)
    assert auroc(events, scores)[0] == pytest.approx(metrics.roc_auc_score(events, scores))
    assert auprc(events, scores)[0] == pytest.approx(metrics.average_precision_score(events, scores))
    weighted = np.array(weights[: len(events)], dtype=np.float64)
    both = np.stack([weighted, np.ones(len(events))])
    assert auroc(events, scores, both) == pytest.approx(
        [
            metrics.roc_auc_score(events, scores, sample_weight=weighted),
            metrics.roc_auc_score(events, scores),
        ]
    )
    assert auprc(events, scores, both)[0] == pytest.approx(
        metrics.average_precision_score(events, scores, sample_weight=weighted)
    )


@given(pairs=SCORED)
def test_the_curve_has_the_area(pairs: list[tuple[int, int]]) -> None:
    events, scores = np.array(pairs).T
    curve = roc_curve(events, scores.astype(np.float64))
    assert (curve.false_positive[0], curve.true_positive[0]) == (0, 0)
    assert (curve.false_positive[-1], curve.true_positive[-1]) == (1, 1)
    area = metrics.auc(curve.false_positive, curve.true_positive)
    assert area == pytest.approx(auroc(events, scores.astype(np.float64))[0], abs=1e-5)


def test_one_kind_has_no_area() -> None:
    with pytest.raises(RequestError, match="some of both"):
        auroc(np.array([1, 1]), np.array([0.1, 0.2]))


def test_the_interval_covers_other_test_sets() -> None:
    """The predictor's area on many fresh patients lies in the interval that few of them gave."""
    train, synthetic = _ward(400, 1), _ward(400, 2)
    few = predict(_ward(300, 3), synthetic, train, alpha=0.01, seed=0)
    many = predict(_ward(2500, 4), synthetic, train, alpha=0.01, seed=0)
    assert isinstance(few, Prediction)
    assert isinstance(many, Prediction)
    assert few.auroc_synthetic.low < many.auroc_synthetic.value < few.auroc_synthetic.high
    assert few.auprc_real.low < many.auprc_real.value < few.auprc_real.high
    narrower = many.auroc_real.high - many.auroc_real.low
    assert narrower < (few.auroc_real.high - few.auroc_real.low) / 2


def test_a_copied_test_patient_never_helps() -> None:
    """Without a training set the halves are those of the content: equal sets give exactly equal areas."""
    both = _ward(200, 5)
    found = predict(both, both, None, alpha=0.05, seed=0)
    assert isinstance(found, Prediction)
    assert found.auroc_synthetic == found.auroc_real
    assert found.tested + found.trained_synthetic == 200


def test_a_constant_shift_is_told_apart() -> None:
    real, synthetic = simulate_ward(300, seed=6), simulate_ward(300, seed=7)
    older = synthetic.static.clone()
    older[:, 0] = 1.0
    shifted = draw(replace(synthetic, static=older), 4000, seed=0)
    found = detect(draw(real, 4000, seed=0), shifted, alpha=0.05, seed=0)
    assert isinstance(found, Detection)
    assert found.score.value > 0.45
    assert found.score.low > 0.4


def test_the_score_is_rarely_significant_by_chance() -> None:
    """Real against real: the interval excludes 0 about as often as alpha says (here 20 tries at 0.01)."""
    excluded = 0
    for seed in range(20):
        found = detect(_ward(60, 2 * seed), _ward(60, 2 * seed + 1), alpha=0.01, seed=seed)
        assert isinstance(found, Detection)
        excluded += not found.score.low <= 0 <= found.score.high
    assert excluded <= 3  # more has probability below 1e-4


def test_what_cannot_be_predicted_is_said() -> None:
    patients = simulate_ward(60, seed=1)
    without = replace(patients, schema=replace(patients.schema, outcome=None))
    said = predict(draw(without, 60, seed=0), draw(without, 60, seed=0), None, alpha=0.05, seed=0)
    assert said == "No outcome was predicted: the schema declares none."
    well = draw(patients.select(patients.outcome == 0), 60, seed=0)
    assert "must have 'deteriorated'" in str(predict(well, well, None, alpha=0.05, seed=0))
