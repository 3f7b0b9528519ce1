"""An evaluation of synthetic health records that a clinic would accept.

Four questions: how near are the synthetic patients to the real ones (:class:`Fidelity`), can they be told
apart (:class:`Detection`), are they good for training a predictor (:class:`Prediction`), and do they tell who
was in the training set (:class:`Membership`). What could not be measured is ``None``, and ``notes`` says why.

An evaluation reads real records and adds no noise: its numbers and pictures are *not* covered by any privacy
guarantee of the synthesizer. Use real patients whose statistics may be shown to whoever reads the report.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hauberk.accounting.json_form import from_json, to_json
from hauberk.data.validation import check_count
from hauberk.errors import RequestError
from hauberk.progress import Progress, silent
from hauberk.randomness import check_seed
from hauberk.synthesis.evaluation_clusters import Plane, plane
from hauberk.synthesis.evaluation_courses import (
    Histogram,
    Trajectory,
    histogram,
    marginal,
    missing_shares,
    time_gaps,
    trajectories,
)
from hauberk.synthesis.evaluation_distances import Fidelity, fidelity, observed_values
from hauberk.synthesis.evaluation_features import Sample, draw
from hauberk.synthesis.evaluation_prediction import Detection, Prediction, detect, predict
from hauberk.synthesis.evaluation_privacy import Membership, membership
from hauberk.synthesis.patients import Patients
from hauberk.synthesis.schema import Schema

FEWEST = 20
_STAGE = "evaluate"


@dataclass(frozen=True, kw_only=True)
class Used:
    """How many patients of a set there were, and how many of them were looked at."""

    given: int
    used: int


@dataclass(frozen=True, kw_only=True)
class Pictures:
    """What the report draws."""

    plane: Plane
    trajectories: tuple[Trajectory, ...]
    missing: Histogram
    gaps: Histogram
    lengths: Histogram
    marginals: tuple[Histogram, ...]


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """One synthetic set against real patients. ``reference`` is the training set measured in the same way.

    ``alpha`` is the error level of every interval and of the bound on epsilon, each by itself.
    """

    schema: str
    time_unit: str
    seed: int
    alpha: float
    sets: dict[str, Used]
    fidelity: Fidelity
    reference: Fidelity | None
    detection: Detection | None
    prediction: Prediction | None
    membership: Membership | None
    pictures: Pictures
    notes: tuple[str, ...]

    def row(self) -> dict[str, float | None]:
        """The numbers of a line in a table; None where something was not measured."""
        near, seen, used = self.fidelity, self.detection, self.prediction
        guesses = None if self.membership is None else self.membership.guesses
        return {
            "minkowski": near.records.minkowski,
            "cosine": near.records.cosine,
            "marginal_distance": near.marginal_distance,
            "correlation_distance": near.correlation_distance,
            "cooccurrence_distance": near.cooccurrence_distance,
            "missing_rate_error": near.missing_rate_error,
            "time_gap_distance": near.time_gap_distance,
            "trajectory_distance": near.trajectory_distance,
            "discriminative_score": None if seen is None else seen.score.value,
            "auroc": None if used is None else used.auroc_synthetic.value,
            "auprc": None if used is None else used.auprc_synthetic.value,
            "auroc_real": None if used is None else used.auroc_real.value,
            "auprc_real": None if used is None else used.auprc_real.value,
            "membership_advantage": None if guesses is None else guesses.rates.advantage.value,
            "epsilon_lower": None if guesses is None else guesses.epsilon_lower,
        }

    def to_json(self) -> dict[str, Any]:
        content: dict[str, Any] = to_json(self)
        return content

    @classmethod
    def from_json(cls, content: Any, *, where: str = "evaluation") -> Evaluation:
        """What :meth:`to_json` gave; a missing, unknown or ill-typed key is named in the error."""
        return from_json(cls, content, where=where)


def evaluate(
    real: Patients,
    synthetic: Patients,
    *,
    train: Patients | None = None,
    held_out: Patients | None = None,
    seed: int = 0,
    patients: int = 4000,
    alpha: float = 0.05,
    delta: float = 1e-5,
    progress: Progress = silent,
) -> Evaluation:
    """Evaluate ``synthetic`` against ``real`` patients that the synthesizer has not seen.

    ``train`` is what the synthesizer learned from: with it the comparisons "trained on real" and "real
    against real" are made with those records, and members can be guessed; without it ``real`` is cut in half
    for the former, and the latter two are left out. ``held_out`` are the patients that membership is tested
    against, ``real`` unless given; they must come from where ``train`` comes from.

    Bounded in time: at most ``patients`` of each set are looked at, and ``notes`` says which set was cut.
    Equal sets and an equal seed give an equal evaluation, in whatever order the patients stand.
    """
    _check(alpha, delta, patients)
    check_seed(seed)
    given = {"real": real, "synthetic": synthetic, "train": train, "held_out": held_out}
    for name, each in given.items():
        if each is not None:
            _check_set(each, name, real.schema)
    report = _Stages(progress)
    samples = {name: draw(each, patients, seed=seed) for name, each in given.items() if each is not None}
    report.next()
    ours, theirs, trained = samples["real"], samples["synthetic"], samples.get("train")
    _check_apart(ours, trained, "REAL")
    _check_apart(samples.get("held_out"), trained, "the held-out set")
    near = fidelity(ours, theirs, seed=seed)
    report.next()
    reference = None if trained is None else fidelity(ours, trained, seed=seed)
    report.next()
    detection = detect(ours, theirs, alpha=alpha, seed=seed)
    report.next()
    prediction = predict(ours, theirs, trained, alpha=alpha, seed=seed)
    report.next()
    guessed: Membership | str = "No membership test: it needs the training set."
    if trained is not None:
        non_members = samples.get("held_out", ours)
        guessed = membership(theirs, trained, non_members, alpha=alpha, delta=delta)
    report.next()
    pictures = _pictures(ours, theirs, seed=seed)
    report.next()
    reasons = [each for each in (detection, prediction, guessed) if isinstance(each, str)]
    return Evaluation(
        schema=real.schema.name,
        time_unit=real.schema.time.unit,
        seed=seed,
        alpha=alpha,
        sets={name: Used(given=len(each.whole), used=len(each)) for name, each in samples.items()},
        fidelity=near,
        reference=reference,
        detection=None if isinstance(detection, str) else detection,
        prediction=None if isinstance(prediction, str) else prediction,
        membership=None if isinstance(guessed, str) else guessed,
        pictures=pictures,
        notes=(*_cut(samples), *_shared(ours, trained), *reasons),
    )


class _Stages:
    """Tells the watcher that another of the seven parts is done."""

    def __init__(self, progress: Progress) -> None:
        self.progress, self.done = progress, 0
        progress(_STAGE, 0, 7)

    def next(self) -> None:
        self.done += 1
        self.progress(_STAGE, self.done, 7)


def _check(alpha: float, delta: float, patients: int) -> None:
    check_count(patients, at_least=FEWEST, named="the most patients of a set")
    if not 0 < alpha < 1:
        raise RequestError(f"alpha must lie strictly between 0 and 1, got {alpha}.")
    if not 0 <= delta < 1:
        raise RequestError(f"delta must lie between 0 and 1, got {delta}.")


def _check_set(patients: Patients, name: str, schema: Schema) -> None:
    words = name.replace("_", "-")
    if len(patients) < FEWEST:
        raise RequestError(
            f"the {words} set has {len(patients)} patients, but an evaluation needs {FEWEST}; give more."
        )
    theirs = patients.schema
    if (theirs.static, theirs.temporal, theirs.outcome) != (schema.static, schema.temporal, schema.outcome):
        raise RequestError(f"the {words} set has other features than the real one; use one schema for both.")
    if theirs.time != schema.time:
        raise RequestError(f"the {words} set has another clock than the real one; use one schema for both.")


def _check_apart(sample: Sample | None, train: Sample | None, named: str) -> None:
    """Testing on the training set measures nothing: it would be a leak that is nobody's."""
    if sample is not None and train is not None and np.isin(sample.whole, train.whole).all():
        raise RequestError(
            f"{named} holds only patients of the training set; give patients it does not hold."
        )


def _cut(samples: dict[str, Sample]) -> tuple[str, ...]:
    return tuple(
        f"Of {len(each.whole):,} {name.replace('_', '-')} patients {len(each):,} were looked at, by chance."
        for name, each in samples.items()
        if len(each) < len(each.whole)
    )


def _shared(real: Sample, train: Sample | None) -> tuple[str, ...]:
    shared = 0 if train is None else int(np.isin(real.whole, train.whole).sum())
    if shared == 0:
        return ()
    return (f"{shared:,} of the real patients are also in the training set, in every value.",)


def _pictures(real: Sample, synthetic: Sample, *, seed: int) -> Pictures:
    ours, theirs = real.patients, synthetic.patients
    clock = ours.schema.time
    whole = clock.decimals == 0
    return Pictures(
        plane=plane(real, synthetic, seed=seed),
        trajectories=trajectories(ours, theirs),
        missing=histogram("share of missing values", missing_shares(ours), missing_shares(theirs)),
        gaps=histogram(f"{clock.unit} between steps", time_gaps(ours), time_gaps(theirs), whole=whole),
        lengths=histogram(
            "number of steps", ours.lengths.double().numpy(), theirs.lengths.double().numpy(), whole=True
        ),
        marginals=tuple(
            marginal(each, observed_values(ours, each.name), observed_values(theirs, each.name))
            for each in ours.schema.features
        ),
    )
