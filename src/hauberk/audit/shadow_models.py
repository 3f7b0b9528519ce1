"""Shadow models: how a record scores when it is in the training set, and when it is not, over many trainings.

Every shadow model is trained as the audited one, on a set that each record of a pool joins by its own fair
coin. From the scores with and without the record, the likelihood ratio attack (LiRA, Carlini et al. 2022)
asks which of the two the audited model's score looks like. *Score* is anything that a training gives a
record: the scaled confidence of a classifier, the nearness of a synthesizer's patients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from hauberk.audit.bounds import Values
from hauberk.audit.membership import MembershipAudit, measure_membership
from hauberk.errors import RequestError
from hauberk.progress import Progress, silent

Mask = NDArray[np.bool_]
Fit = Callable[[Mask, int], Values]
"""``fit(inside, number)``: train on these records of the pool, and on what belongs to every training set;
every record's score under what was trained. ``number`` tells trainings apart."""

_OWN_VARIANCE = 8  # trainings with, and without, a record from which on its own variance is used
_LEAST_SPREAD = 1e-6


@dataclass(frozen=True, kw_only=True, eq=False)
class ShadowScores:
    """``scores[k, i]``: of record i under shadow k, which it joined where ``inside[k, i]``."""

    scores: Values
    inside: Mask

    def __post_init__(self) -> None:
        if self.scores.shape != self.inside.shape or self.scores.ndim != 2 or len(self.scores) < 2:
            raise RequestError("shadow scores are a table, a row for each of at least two shadow models.")
        if not np.isfinite(self.scores).all():
            raise RequestError("a shadow model gave a record no finite score: its training went astray.")

    def __len__(self) -> int:
        return len(self.scores)

    def without(self, shadow: int) -> ShadowScores:
        kept = np.arange(len(self)) != shadow
        return ShadowScores(scores=self.scores[kept], inside=self.inside[kept])

    def ratios(self, target: Values, *, online: bool = True) -> Values:
        """LiRA's score of each record from its score under the audited model.

        Normal distributions are fitted with and without the record; ``online`` is the logarithm of their
        ratio, offline the chance that a training without the record scores lower. Below eight trainings a
        side the spread is that of all records together. A record that no shadow was trained with (or
        without) gets the mean over all records of what training with it adds.
        """
        with_mean, without_mean, with_spread, without_spread = self._fits()
        without = norm.logpdf(target, without_mean, without_spread)
        if not online:
            return np.asarray(norm.logcdf(target, without_mean, without_spread))
        return np.asarray(norm.logpdf(target, with_mean, with_spread) - without)

    def _fits(self) -> tuple[Values, Values, Values, Values]:
        counts, means = [], []
        for side in (self.inside, ~self.inside):
            count = side.sum(0)
            counts.append(count)
            means.append(np.where(side, self.scores, 0.0).sum(0) / np.maximum(count, 1))
        both = (counts[0] > 0) & (counts[1] > 0)
        gap = float((means[0] - means[1])[both].mean()) if both.any() else 0.0
        with_mean = np.where(counts[0] > 0, means[0], means[1] + gap)
        without_mean = np.where(counts[1] > 0, means[1], means[0] - gap)
        spreads = [
            _spread(self.scores, side, mean, count)
            for side, mean, count in (
                (self.inside, with_mean, counts[0]),
                (~self.inside, without_mean, counts[1]),
            )
        ]
        return with_mean, without_mean, spreads[0], spreads[1]


def _spread(scores: Values, side: Mask, mean: Values, count: NDArray[np.int64]) -> Values:
    """Each record's own where there are enough trainings, else that of all records together."""
    squares = np.where(side, (scores - mean) ** 2, 0.0).sum(0)
    degrees = np.maximum(count - 1, 0)
    pooled = squares[degrees > 0].sum() / max(1, int(degrees.sum()))
    own = squares / np.maximum(degrees, 1)
    variance = np.where(count >= _OWN_VARIANCE, own, pooled)
    return np.asarray(np.sqrt(np.maximum(variance, _LEAST_SPREAD**2)))


def train_shadows(
    fit: Fit, *, records: int, shadows: int, seed: int, progress: Progress = silent
) -> ShadowScores:
    """Train ``shadows`` models, each on the records of the pool whose coins for it are heads.

    All coins are fair and independent, of each other and of everything else: any of these models may be taken
    for the audited one, and the others still know nothing about its coins.
    """
    if shadows < 2:
        raise RequestError(f"the likelihood ratio needs at least two shadow models, got {shadows}.")
    coins = np.random.default_rng((seed, 0xA1)).random((shadows, records)) < 0.5
    scores = []
    for number, inside in enumerate(coins):
        progress("shadows", number, shadows)
        scores.append(fit(inside, number))
    progress("shadows", shadows, shadows)
    return ShadowScores(scores=np.stack(scores), inside=coins)


def audit_released(
    released: Values, members: Mask, shadows: ShadowScores, *, alpha: float, plain: str, seed: int = 0
) -> tuple[MembershipAudit, ...]:
    """The plain threshold and LiRA against a model that was released; its members are what they are.

    No epsilon follows: nobody tossed coins for this model. ``plain`` names what is thresholded.
    """
    count = f"{len(shadows)} shadow models"
    attacks = {
        f"{plain} threshold": released,
        f"LiRA, {count}, online": shadows.ratios(released),
        f"LiRA, {count}, offline": shadows.ratios(released, online=False),
    }
    return tuple(
        measure_membership(name, scores, members, alpha=alpha, seed=seed) for name, scores in attacks.items()
    )


def audit_by_coins(shadows: ShadowScores, *, delta: float, alpha: float, seed: int = 0) -> MembershipAudit:
    """LiRA against the first shadow model, by all the others: fair coins, so a bound on epsilon.

    Guarantee: if the training procedure is (epsilon, delta)-private for adding or removing one record,
    ``epsilon_lower`` exceeds epsilon with probability at most ``alpha``. It is about the procedure, run once
    more, and so about the promise that the released model rests on.
    """
    if len(shadows) < 3:
        raise RequestError(
            f"one shadow is audited by at least two others: train 3 or more, got {len(shadows)}."
        )
    others = shadows.without(0)
    return measure_membership(
        f"LiRA, {len(others)} shadow models, online",
        others.ratios(shadows.scores[0]),
        shadows.inside[0],
        alpha=alpha,
        fair_coins=True,
        delta=delta,
        seed=seed,
    )
