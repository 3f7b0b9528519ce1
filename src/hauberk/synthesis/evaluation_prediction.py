"""Is the synthetic set good for something, and can it be told from the real one?

*Train on synthetic, test on real*: a logistic regression learns the schema's outcome from the summaries of
synthetic patients and is tested on real ones it has nothing to do with, beside the same regression trained on
real patients. *Discriminative score*: how much better than a coin a classifier of boosted trees tells real
patients from synthetic ones on patients it has not seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hauberk.certify.confidence import clopper_pearson_lower, clopper_pearson_upper
from hauberk.errors import RequestError
from hauberk.synthesis.evaluation_features import Sample, Scale, Summary, Values, first_half, summarize
from hauberk.synthesis.extra import scikit_learn

Labels = NDArray[np.int64]

RESAMPLES = 500
# of the regression's squared coefficients, on standardised columns; the best of six from 0.001 to 1 by
# five-fold cross-validation within set a of physionet2012
_INVERSE_PENALTY = 0.01
_TREES = 60
_FEWEST = 5  # patients of each kind on each side, below which a classifier says nothing
_CURVE_POINTS = 200


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A number with an interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A receiver operating characteristic, thinned for drawing."""

    false_positive: tuple[float, ...]
    true_positive: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """Predicting the outcome on ``tested`` real patients, ``events`` of whom had it.

    Intervals: percentiles of 500 resamplings of the tested patients, events and others apart, at confidence
    ``1 - alpha``. They are approximate, and tell about other test patients of the same kind, not about
    another synthetic set. ``auroc_lost`` is real minus synthetic on the same resamplings.
    """

    outcome: str
    tested: int
    events: int
    trained_real: int
    trained_synthetic: int
    auroc_real: Estimate
    auroc_synthetic: Estimate
    auprc_real: Estimate
    auprc_synthetic: Estimate
    auroc_lost: Estimate
    curve_real: Curve
    curve_synthetic: Curve


@dataclass(frozen=True, kw_only=True)
class Detection:
    """Real against synthetic, as many of each, on ``tested`` patients the classifier has not seen.

    ``score`` is its accuracy minus one half: 0 for a set that this classifier cannot tell from the real one,
    0.5 for one it always can. The interval (Clopper and Pearson) holds the score of *this* classifier with
    probability at least ``1 - alpha`` over the tested patients; another classifier may do better.
    """

    trained: int
    tested: int
    score: Estimate
    auroc: float


def auroc(events: Labels, scores: Values, weights: Values | None = None) -> Values:
    """The chance that an event scores above a non-event, equal scores counting half.

    ``weights`` (resamplings, patients) gives one value each; without it there is one, unweighted.
    """
    positive, negative = _grouped(events, scores, weights)
    below = np.cumsum(negative, axis=1) - negative
    won = (positive * (below + negative / 2)).sum(1)
    area: Values = won / (positive.sum(1) * negative.sum(1))
    return area


def auprc(events: Labels, scores: Values, weights: Values | None = None) -> Values:
    """Average precision: over the thresholds from above, precision times the recall that each adds."""
    positive, negative = (side[:, ::-1] for side in _grouped(events, scores, weights))
    found, wrong = np.cumsum(positive, axis=1), np.cumsum(negative, axis=1)
    precision = found / np.maximum(found + wrong, 1e-300)
    average: Values = (precision * positive).sum(1) / found[:, -1]
    return average


def _grouped(events: Labels, scores: Values, weights: Values | None) -> tuple[Values, Values]:
    """Weight of events and of others at each distinct score, from below."""
    if not 0 < int(events.sum()) < len(events):
        raise RequestError("this area needs patients with and without the event; give some of both.")
    weights = np.ones((1, len(events))) if weights is None else weights
    order = np.argsort(scores, kind="stable")
    ordered = scores[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    happened = events[order] == 1
    sides = (np.where(happened, weights[:, order], 0.0), np.where(happened, 0.0, weights[:, order]))
    return np.add.reduceat(sides[0], starts, axis=1), np.add.reduceat(sides[1], starts, axis=1)


def roc_curve(events: Labels, scores: Values) -> Curve:
    """Shares of non-events and of events at or above each threshold, from none to all."""
    positive, negative = (side[0, ::-1] for side in _grouped(events, scores, None))
    shares = [np.concatenate([[0.0], np.cumsum(side) / side.sum()]) for side in (negative, positive)]
    kept = np.unique(np.linspace(0, len(shares[0]) - 1, _CURVE_POINTS).round().astype(np.int64))
    false_positive, true_positive = (tuple(side[kept].round(6).tolist()) for side in shares)
    return Curve(false_positive=false_positive, true_positive=true_positive)


def predict(
    real: Sample, synthetic: Sample, train: Sample | None, *, alpha: float, seed: int
) -> Prediction | str:
    """Train on synthetic, test on real; or a sentence on why this cannot be done.

    With ``train``, all of ``real`` is for testing. Without, one half of it trains the comparison and the
    other half tests; of the synthetic patients the corresponding half is used, so that one that equals a
    test patient never helps.
    """
    outcome = real.patients.schema.outcome
    if outcome is None:
        return "No outcome was predicted: the schema declares none."
    if train is None:
        everybody = np.concatenate([real.keys, synthetic.keys])
        first = first_half(real.keys, of=everybody)
        second_synthetic = ~first_half(synthetic.keys, of=everybody)
        if first.all() or not first.any() or not second_synthetic.any():
            return "No outcome was predicted: there are too few patients to set some aside for testing."
        train, real, synthetic = real.select(~first), real.select(first), synthetic.select(second_synthetic)
    table, events = _known(real, outcome)
    if min(int(events.sum()), int((1 - events).sum())) < _FEWEST:
        return f"No outcome was predicted: {_FEWEST} test patients must have '{outcome}', and {_FEWEST} not."
    trained = [_known(each, outcome) for each in (train, synthetic)]
    if not len(trained[0][1]):
        return f"No outcome was predicted: '{outcome}' is unknown for all patients to train on."
    scores = [_risk(rows, labels, table) for rows, labels in trained]
    weights = _resamplings(events, seed=seed)
    areas = [(auroc(events, each, weights), auprc(events, each, weights)) for each in scores]
    return Prediction(
        outcome=outcome,
        tested=len(events),
        events=int(events.sum()),
        trained_real=len(trained[0][1]),
        trained_synthetic=len(trained[1][1]),
        auroc_real=_estimate(float(auroc(events, scores[0])[0]), areas[0][0], alpha),
        auroc_synthetic=_estimate(float(auroc(events, scores[1])[0]), areas[1][0], alpha),
        auprc_real=_estimate(float(auprc(events, scores[0])[0]), areas[0][1], alpha),
        auprc_synthetic=_estimate(float(auprc(events, scores[1])[0]), areas[1][1], alpha),
        auroc_lost=_estimate(
            float(auroc(events, scores[0])[0] - auroc(events, scores[1])[0]), areas[0][0] - areas[1][0], alpha
        ),
        curve_real=roc_curve(events, scores[0]),
        curve_synthetic=roc_curve(events, scores[1]),
    )


def _known(sample: Sample, outcome: str) -> tuple[Values, Labels]:
    """Summaries without the outcome's own columns, and the outcome, of the patients for whom it is known."""
    events = sample.patients.outcome.numpy()
    table: Summary = summarize(sample.patients).without(outcome)
    return table.values[events >= 0], events[events >= 0]


def _risk(rows: Values, labels: Labels, tested: Values) -> Values:
    """Scores of the tested rows by a regression on the others; all equal where there is nothing to learn."""
    if len(np.unique(labels)) < 2:
        return np.zeros(len(tested))
    scale = Scale.of(rows)
    model = scikit_learn("sklearn.linear_model").LogisticRegression(C=_INVERSE_PENALTY, max_iter=1000)
    model.fit(scale.apply(rows), labels)
    scores: Values = model.decision_function(scale.apply(tested))
    return scores


def _resamplings(events: Labels, *, seed: int) -> Values:
    """How often each patient is drawn, for every resampling; events and others keep their numbers."""
    chance = np.random.default_rng(seed)
    weights = np.zeros((RESAMPLES, len(events)))
    for kind in (0, 1):
        places = np.flatnonzero(events == kind)
        even = np.full(len(places), 1.0 / len(places))
        weights[:, places] = chance.multinomial(len(places), even, RESAMPLES)
    return weights


def _estimate(value: float, resampled: Values, alpha: float) -> Estimate:
    low, high = np.quantile(resampled, [alpha / 2, 1 - alpha / 2])
    return Estimate(value=value, low=min(float(low), value), high=max(float(high), value))


def detect(real: Sample, synthetic: Sample, *, alpha: float, seed: int) -> Detection | str:
    """The discriminative score, or a sentence on why there is none.

    Half of the patients, by their keys, train the classifier and the others test it. In each half both kinds
    are cut to the same number, so that a classifier that knows nothing is right half the time.
    """
    everybody = np.concatenate([real.keys, synthetic.keys])
    # a value no feature has: trees split it off as they would NaN, of which whole columns are refused
    tables = [np.nan_to_num(summarize(each.patients).values, nan=-1.0) for each in (real, synthetic)]
    halves = [first_half(sample.keys, of=everybody) for sample in (real, synthetic)]
    sides = []
    for wanted in (True, False):
        rows = [table[half == wanted] for table, half in zip(tables, halves, strict=True)]
        count = min(len(rows[0]), len(rows[1]))
        if count < _FEWEST:
            return "No discriminative score: there are too few patients to train and test a classifier."
        sides.append((np.concatenate([rows[0][:count], rows[1][:count]]), np.repeat([0, 1], count)))
    (rows_trained, kinds_trained), (rows_tested, kinds) = sides
    model = scikit_learn("sklearn.ensemble").HistGradientBoostingClassifier(
        max_iter=_TREES, max_leaf_nodes=15, early_stopping=False, random_state=seed % 2**32
    )
    scores = model.fit(rows_trained, kinds_trained).predict_proba(rows_tested)[:, 1]
    right, tested = int(((scores > 0.5) == kinds).sum()), len(kinds)
    return Detection(
        trained=len(kinds_trained),
        tested=tested,
        score=Estimate(
            value=right / tested - 0.5,
            low=float(clopper_pearson_lower(right, tested, alpha / 2)) - 0.5,
            high=float(clopper_pearson_upper(right, tested, alpha / 2)) - 0.5,
        ),
        auroc=float(auroc(kinds, scores)[0]),
    )
