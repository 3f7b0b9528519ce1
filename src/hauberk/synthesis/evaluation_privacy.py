"""Does the synthetic set tell who was in the training set? Nearest neighbours and a membership test.

The attacker has the synthetic set and a pool of patients, some of whom (the members) trained the synthesizer
while the others (held out) did not. Whoever lies near a synthetic patient is guessed to be a member. How near
is fixed on one half of the pool and tried on the other half.

What is guaranteed. Let every patient of the pool have been put into the training set by a fair coin of
their own, and let the synthetic set come from a mechanism that is (epsilon, delta)-differentially private for
adding or removing one patient. Then ``epsilon_lower`` exceeds epsilon with probability at most ``alpha``,
over the coins and the mechanism together, from this *one* run: given the synthetic set and the other coins,
each coin is still so uncertain that the number of right guesses among r is dominated by Binomial(r,
e^epsilon / (1 + e^epsilon)), up to delta (Steinke, Nasr and Jagielski 2023, Theorem 5.2). The logarithm of
the ratio of two error rates with an interval each, the usual bound over *many* runs, would not have this
guarantee here: the members share one training run and are not independent.

What is not. Members and others are cut to equal numbers, a stand-in for coins: after a split of fixed size,
one patient in means another one out, and what is refuted is strictly a statement for replacing one. Sets that
differ in anything else (another hospital, another year) are told apart without any leak, and the bound blames
the synthesizer. It comes from one simple attack on a finite pool: it cannot exceed about the logarithm of the
number of members tested, and a small value proves no privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import binom

from hauberk.certify.confidence import clopper_pearson_lower, clopper_pearson_upper
from hauberk.synthesis.evaluation_courses import Histogram, histogram
from hauberk.synthesis.evaluation_features import Keys, Sample, Scale, Values, first_half, summarize
from hauberk.synthesis.evaluation_prediction import Estimate, auroc
from hauberk.synthesis.extra import scikit_learn

_MOST_THRESHOLDS = 200
_LARGEST_EPSILON = 50.0
_FEWEST = 10  # members, and as many others, in each half


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Shares of the tested members and of the others who were guessed to be members, at one threshold.

    ``advantage`` is their difference. Its interval joins two of Clopper and Pearson, each missing with
    probability alpha / 2 if patients count as independent; with one training run that is an approximation.
    """

    members: int
    others: int
    true_positive: float
    false_positive: float
    advantage: Estimate


@dataclass(frozen=True, kw_only=True)
class Guesses:
    """The membership test on the half of the pool that did not set the thresholds.

    ``epsilon_lower`` is the larger of two bounds at level alpha / 2 each: ``right`` of ``made`` guesses that
    somebody is a member (or is not: ``guessed``) were right. See the module for what it guarantees.
    """

    rates: Rates
    auroc: float
    guessed: str
    made: int
    right: int
    epsilon_lower: float
    alpha: float
    delta: float


@dataclass(frozen=True, kw_only=True)
class Neighbours:
    """From each synthetic patient to the nearest training record and to the nearest held-out one.

    As many records on both sides. ``nearer_to_training`` is the share of synthetic patients whose nearest is
    a training record, a tie counting half: one half where nothing was memorised. ``copies`` are synthetic
    patients equal to a training record in every value, ``coincidences`` those equal to a held-out one.
    """

    compared: int
    to_training: float  # median distance
    to_held_out: float
    nearer_to_training: float
    copies: int
    coincidences: int
    distances: Histogram  # "real" is held-out, "synthetic" is training


@dataclass(frozen=True, kw_only=True)
class Membership:
    guesses: Guesses
    neighbours: Neighbours


def membership(
    synthetic: Sample, train: Sample, held_out: Sample, *, alpha: float, delta: float
) -> Membership | str:
    """Both tests, or a sentence on why there are none.

    Distances are Euclidean between summaries, each column in spreads of the pool.
    """
    count = min(len(train), len(held_out))
    members, others = (_first(sample, count) for sample in (train, held_out))
    pool = [summarize(sample.patients).values for sample in (members, others)]
    scale = Scale.of(np.concatenate(pool))
    member_rows, other_rows = (scale.apply(each) for each in pool)
    rows = scale.apply(summarize(synthetic.patients).values)
    keys = np.concatenate([members.keys, others.keys])
    found = guess_members(
        nearest(np.concatenate([member_rows, other_rows]), rows),
        np.repeat([1, 0], count),
        keys,
        alpha=alpha,
        delta=delta,
    )
    if isinstance(found, str):
        return found
    to_training, to_held_out = nearest(rows, member_rows), nearest(rows, other_rows)
    return Membership(
        guesses=found,
        neighbours=Neighbours(
            compared=count,
            to_training=float(np.median(to_training)),
            to_held_out=float(np.median(to_held_out)),
            nearer_to_training=float(
                (to_training < to_held_out).mean() + (to_training == to_held_out).mean() / 2
            ),
            copies=int(np.isin(synthetic.keys, train.whole).sum()),
            coincidences=int(np.isin(synthetic.keys, held_out.whole).sum()),
            distances=histogram("distance to the nearest", to_held_out, to_training),
        ),
    )


def _first(sample: Sample, count: int) -> Sample:
    return sample.select(np.arange(len(sample)) < count)


def nearest(rows: Values, among: Values) -> Values:
    """The distance of each row to the nearest of the others; equal rows are at exactly 0."""
    metrics = scikit_learn("sklearn.metrics")
    distances: Values = metrics.pairwise_distances_argmin_min(rows, among)[1]
    return distances.round(5)  # its formula leaves about 1e-7 between equal rows


def guess_members(
    distances: Values, member: NDArray[np.int64], keys: Keys, *, alpha: float, delta: float
) -> Guesses | str:
    """Guess from distances who is a member: thresholds from one half, everything reported from the other."""
    fitting = first_half(keys, of=keys)
    fitted, tested = (distances[fitting], member[fitting]), (distances[~fitting], member[~fitting])
    if min(min(int((side == kind).sum()) for kind in (0, 1)) for _, side in (fitted, tested)) < _FEWEST:
        return "No membership test: there are too few training or held-out patients for one."
    thresholds = _thresholds(fitted[0])
    inside = fitted[0][:, None] <= thresholds
    hits, false_hits = (inside & (fitted[1] == kind)[:, None] for kind in (1, 0))
    hit_counts, false_counts = hits.sum(0), false_hits.sum(0)
    members, others = int(fitted[1].sum()), int((1 - fitted[1]).sum())
    best = thresholds[int(np.argmax(hit_counts / members - false_counts / others))]
    for_members = _surest(hit_counts, hit_counts + false_counts, alpha / 2)
    misses, right_misses = members - hit_counts, others - false_counts
    for_others = _surest(right_misses, misses + right_misses, alpha / 2)
    near = tested[0] <= thresholds[for_members]
    far = tested[0] > thresholds[for_others]
    bounds = []
    for guessed, made, kind in (("member", near, 1), ("not a member", far, 0)):
        right, guesses = int((tested[1][made] == kind).sum()), int(made.sum())
        bound = epsilon_lower_bound(right, guesses, pool=len(tested[1]), alpha=alpha / 2, delta=delta)
        bounds.append((bound, guessed, guesses, right))
    bound, guessed, guesses, right = max(bounds, key=lambda each: each[0])
    return Guesses(
        rates=_rates(tested[0] <= best, tested[1], alpha),
        auroc=float(auroc(tested[1], -tested[0])[0]),
        guessed=guessed,
        made=guesses,
        right=right,
        epsilon_lower=bound,
        alpha=alpha,
        delta=delta,
    )


def _thresholds(distances: Values) -> Values:
    """Between neighbouring distances, at most 200 of them, so that rounding decides nothing."""
    places = np.unique(distances)
    between = np.concatenate([(places[1:] + places[:-1]) / 2, places[-1:] + 1.0])
    if len(between) <= _MOST_THRESHOLDS:
        return between
    return between[np.linspace(0, len(between) - 1, _MOST_THRESHOLDS).round().astype(np.int64)]


def _surest(right: NDArray[np.int64], made: NDArray[np.int64], alpha: float) -> int:
    """The threshold at which the share of right guesses has the highest lower bound."""
    return int(np.argmax(clopper_pearson_lower(right, np.maximum(made, 1), alpha)))


def _rates(guessed: NDArray[np.bool_], member: NDArray[np.int64], alpha: float) -> Rates:
    members, others = int(member.sum()), int((1 - member).sum())
    hits, false_hits = int(guessed[member == 1].sum()), int(guessed[member == 0].sum())
    (hit_low, hit_high), (false_low, false_high) = (
        (float(clopper_pearson_lower(*side, alpha / 4)), float(clopper_pearson_upper(*side, alpha / 4)))
        for side in ((hits, members), (false_hits, others))
    )
    return Rates(
        members=members,
        others=others,
        true_positive=hits / members,
        false_positive=false_hits / others,
        advantage=Estimate(
            value=hits / members - false_hits / others, low=hit_low - false_high, high=hit_high - false_low
        ),
    )


def epsilon_lower_bound(right: int, made: int, *, pool: int, alpha: float, delta: float) -> float:
    """The largest epsilon that ``right`` of ``made`` guesses about ``pool`` coins refute at level ``alpha``.

    0 where even epsilon = 0 is not refuted. Guarantee: see the module.
    """

    def chance(epsilon: float) -> float:
        return chance_of_guesses(right, made, pool=pool, epsilon=epsilon, delta=delta) - alpha

    if made == 0 or chance(0.0) >= 0:
        return 0.0
    if chance(_LARGEST_EPSILON) < 0:
        return _LARGEST_EPSILON
    # the root is found to 1e-9 from either side; one step back keeps it a lower bound
    return max(0.0, float(brentq(chance, 0.0, _LARGEST_EPSILON, xtol=1e-9)) - 2e-9)


def chance_of_guesses(right: int, made: int, *, pool: int, epsilon: float, delta: float) -> float:
    """At most this is the chance of so many right guesses against an (epsilon, delta)-private mechanism.

    beta + 2 pool delta a, with beta = P(B >= right), a = max over i of P(right - i <= B < right) / i, and
    B ~ Binomial(made, e^epsilon / (1 + e^epsilon)).
    """
    share = 1.0 / (1.0 + math.exp(-epsilon))
    beta = float(binom.sf(right - 1, made, share))
    if right == 0 or delta == 0:
        return min(beta, 1.0)
    below = np.cumsum(binom.pmf(np.arange(right - 1, -1, -1), made, share))
    slope = float((below / np.arange(1, right + 1)).max())
    return min(beta + 2 * pool * delta * slope, 1.0)
