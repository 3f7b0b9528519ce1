"""Membership inference: who was in the training set of a released model, or of a released synthesizer?

An attack gives every record a score, larger for likelier members; here scores become rates. Everything is
counted on records of which the auditor knows the truth:

- **true-positive rate at a low false-positive rate**: how many members can be named while hardly anybody is
  named wrongly. The threshold is a score of a non-member, so members' hits at it are plain binomial counts;
- **advantage**: true-positive less false-positive rate, threshold from one half, counted on the other;
- **a lower bound on epsilon**, where every record was put into the training set by a fair coin of its own,
  and only there. Members and others whom somebody chose, or whom a split of fixed size made, are no coins.

Intervals are about records drawn like these, the model held fixed. Members shaped the model together, so for
them independence is an approximation; for the bound on epsilon nothing of the kind is assumed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata
from torch import Tensor, nn

from hauberk.accounting.card import PrivacyObservation
from hauberk.audit.bounds import Values, check_delta, check_level
from hauberk.audit.guesses import RULES, GuessRule, best_verdict
from hauberk.certify import clopper_pearson_lower, clopper_pearson_upper, evaluation_mode
from hauberk.errors import RequestError
from hauberk.synthesis.evaluation_features import Scale, summarize
from hauberk.synthesis.evaluation_privacy import nearest
from hauberk.synthesis.patients import Patients

Mask = NDArray[np.bool_]

LEVELS = (1e-3, 1e-2)
FIXED_SETS = (
    "who is a member was fixed and not decided by fair, independent coins: rates of fixed sets bound no "
    "epsilon"
)
_FEWEST = 10
_ROC_POINTS = 101
_AT_A_TIME = 512
_NO_DISTANCE = 1e-3  # in spreads: patients nearer than this count as equal


@dataclass(frozen=True, kw_only=True)
class OperatingPoint:
    """Guess "member" above ``threshold``, a non-member's score: ``false_positives`` of them lie above it.

    The threshold's true false-positive rate is below ``false_positive_high`` with the stated confidence
    (one-sided; the score of rank k + 1 has the distribution that Clopper and Pearson's bound inverts), and
    the exact interval of its true-positive rate covers with the same (two-sided). With fewer than 1 /
    ``level`` non-members no false positive is allowed.
    """

    level: float
    threshold: float
    false_positives: int
    nonmembers: int
    false_positive_high: float
    true_positives: int
    members: int
    true_positive: float
    true_positive_low: float
    true_positive_high: float


@dataclass(frozen=True, kw_only=True)
class Advantage:
    """True-positive less false-positive rate of one threshold, on records that did not choose it.

    The interval joins two exact ones, each missing with half of the error.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class MembershipAudit:
    """How well one attack tells members from others.

    Guarantee of ``epsilon_lower``, where it is not None: if the training is (epsilon, delta)-private for
    adding or removing one record, it exceeds epsilon with probability at most ``1 - confidence`` over coins
    and training (`hauberk.audit.guesses.best_verdict`). Where it is None, ``reason`` says why.
    """

    attack: str
    members: int
    nonmembers: int
    confidence: float
    points: tuple[OperatingPoint, ...]
    auroc: float
    advantage: Advantage
    roc: tuple[tuple[float, float], ...]  # false-positive rate, true-positive rate
    epsilon_lower: float | None
    delta: float | None
    guesses: int | None
    correct: int | None
    reason: str | None

    def at(self, level: float) -> OperatingPoint:
        for point in self.points:
            if point.level == level:
                return point
        raise RequestError(f"no threshold was set for a false-positive rate of {level}: name it in levels.")

    def observation(self) -> PrivacyObservation | None:
        """For the guarantee card, where there is a bound."""
        if self.epsilon_lower is None:
            return None
        return PrivacyObservation(
            epsilon_lower=self.epsilon_lower,
            confidence=self.confidence,
            attack=f"black-box, one run, {self.attack}",
            canaries=self.members + self.nonmembers,
        )

    def to_json(self) -> dict[str, Any]:
        content = asdict(self)
        content["points"] = [asdict(point) for point in self.points]
        content["roc"] = [list(point) for point in self.roc]
        return content


def measure_membership(
    attack: str,
    scores: Values,
    members: Mask,
    *,
    alpha: float = 0.05,
    levels: Sequence[float] = LEVELS,
    fair_coins: bool = False,
    delta: float | None = None,
    rules: Sequence[GuessRule] = RULES,
    seed: int = 0,
) -> MembershipAudit:
    """From the scores of records whose membership is known to rates, and to a bound where there are coins.

    ``fair_coins``: every record was in or out by a fair coin of its own, and the score saw no coin; then
    ``delta`` says at which delta epsilon is bounded. Each interval has level ``alpha`` by itself, and so has
    the bound. ``seed`` halves the records for the advantage.
    """
    check_level(alpha)
    values, inside = np.asarray(scores, dtype=np.float64), np.asarray(members, dtype=np.bool_)
    if values.shape != inside.shape or values.ndim != 1:
        raise RequestError(f"{values.size} scores do not fit {inside.size} records: give one for each.")
    if np.isnan(values).any():
        raise RequestError("scores must be numbers: NaN says nothing about a record.")
    high, low = values[inside], values[~inside]
    if min(len(high), len(low)) < _FEWEST:
        raise RequestError(f"membership is counted on at least {_FEWEST} members and as many others.")
    if fair_coins and delta is None:
        raise RequestError("epsilon is bounded at a delta: say which.")
    verdict = None
    if fair_coins and delta is not None:
        verdict = best_verdict({attack: values}, inside, delta=check_delta(delta), alpha=alpha, rules=rules)
    return MembershipAudit(
        attack=attack,
        members=len(high),
        nonmembers=len(low),
        confidence=1 - alpha,
        points=tuple(_operating_point(high, low, level, alpha) for level in levels),
        auroc=_auroc(high, low),
        advantage=_advantage(values, inside, alpha, seed),
        roc=_roc(high, low),
        epsilon_lower=None if verdict is None else verdict.epsilon_lower,
        delta=delta if fair_coins else None,
        guesses=None if verdict is None else verdict.guesses,
        correct=None if verdict is None else verdict.correct,
        reason=None if fair_coins else FIXED_SETS,
    )


def _operating_point(high: Values, low: Values, level: float, alpha: float) -> OperatingPoint:
    if not 0 < level < 1:
        raise RequestError(f"a false-positive rate to aim at lies strictly between 0 and 1, got {level}.")
    allowed = math.floor(level * len(low))
    threshold = float(np.sort(low)[len(low) - 1 - allowed])
    hits, mistakes = int((high > threshold).sum()), int((low > threshold).sum())
    return OperatingPoint(
        level=level,
        threshold=threshold,
        false_positives=mistakes,
        nonmembers=len(low),
        false_positive_high=float(clopper_pearson_upper(allowed, len(low), alpha)),
        true_positives=hits,
        members=len(high),
        true_positive=hits / len(high),
        true_positive_low=float(clopper_pearson_lower(hits, len(high), alpha / 2)),
        true_positive_high=float(clopper_pearson_upper(hits, len(high), alpha / 2)),
    )


def _auroc(high: Values, low: Values) -> float:
    """The chance that a member scores above another record, equal scores counting half."""
    ranks = rankdata(np.concatenate([high, low]))
    won = ranks[: len(high)].sum() - len(high) * (len(high) + 1) / 2
    return float(won / (len(high) * len(low)))


def _advantage(values: Values, inside: Mask, alpha: float, seed: int) -> Advantage:
    fitting = np.zeros(len(values), dtype=np.bool_)
    rng = np.random.default_rng((seed, 0xA0))
    for side in (np.flatnonzero(inside), np.flatnonzero(~inside)):
        fitting[rng.permutation(side)[: len(side) // 2]] = True
    candidates = np.unique(values[fitting])
    high, low = (np.sort(values[fitting & side]) for side in (inside, ~inside))
    found = 1 - np.searchsorted(high, candidates, side="left") / len(high)
    mistaken = 1 - np.searchsorted(low, candidates, side="left") / len(low)
    threshold = candidates[int((found - mistaken).argmax())]
    counts = [
        (int((values[~fitting & side] >= threshold).sum()), int((~fitting & side).sum()))
        for side in (inside, ~inside)
    ]
    (hits, members), (mistakes, others) = counts
    bounds = [
        (float(clopper_pearson_lower(*each, alpha / 4)), float(clopper_pearson_upper(*each, alpha / 4)))
        for each in counts
    ]
    return Advantage(
        value=hits / members - mistakes / others,
        low=bounds[0][0] - bounds[1][1],
        high=bounds[0][1] - bounds[1][0],
    )


def _roc(high: Values, low: Values) -> tuple[tuple[float, float], ...]:
    """The curve from no guess to all, at no more than about a hundred thresholds."""
    descending = np.unique(np.concatenate([high, low]))[::-1]
    if len(descending) > _ROC_POINTS:
        descending = descending[np.linspace(0, len(descending) - 1, _ROC_POINTS).astype(np.int64)]
    rows = [(0.0, 0.0)]
    rows += [(float((low >= each).mean()), float((high >= each).mean())) for each in descending]
    return tuple(rows)


@torch.no_grad()
def scaled_confidences(model: nn.Module, x: Tensor, y: Tensor) -> Values:
    """``ln(p_y / (1 - p_y))`` of every record's own label: nearly normal over trainings (Carlini 2022).

    Computed from the scores, ``s_y - ln sum_{j != y} e^{s_j}``, so that sure answers keep their digits.
    """
    device = next(model.parameters()).device
    found = []
    with evaluation_mode(model):
        for some, labels in zip(x.split(_AT_A_TIME), y.split(_AT_A_TIME), strict=True):
            scores = model(some.to(device)).double()
            own = labels.to(device).view(-1, 1)
            others = scores.scatter(1, own, -torch.inf).logsumexp(1)
            found.append((scores.gather(1, own).squeeze(1) - others).cpu())
    confidences: Values = torch.cat(found).numpy()
    return confidences


def loss_scores_of(model: nn.Module, x: Tensor, y: Tensor) -> Values:
    """Minus the cross-entropy: the threshold on the loss (Yeom et al. 2018) as a score."""
    return -np.logaddexp(0.0, -scaled_confidences(model, x, y))


def nearness(pool: Patients, synthetic: Patients) -> Values:
    """Minus the logarithm of every patient's distance to the nearest synthetic one.

    Euclidean between summaries, each column in spreads of the pool.
    """
    rows = summarize(pool).values
    scale = Scale.of(rows)
    distances = nearest(scale.apply(rows), scale.apply(summarize(synthetic).values))
    return -np.log(distances + _NO_DISTANCE)


def nearness_against_reference(pool: Patients, synthetic: Patients, reference: Patients) -> Values:
    """By how much nearer synthetic patients are than ``reference`` ones, whom the synthesizer never saw.

    The logarithm of the ratio of the two distances: somebody who lies where everybody lies is near to both.
    """
    return nearness(pool, synthetic) - nearness(pool, reference)
