"""A black-box test of a mechanism: draw at two neighbours, learn to tell them apart, test on fresh draws.

Nothing is believed about the noise. A *game* gives draws of what is released with and without one record. On
some of them a score is learnt and a threshold chosen; the others are counted, and the counts bound the
hockey-stick divergence between the two distributions from below.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from hauberk.audit.bounds import (
    GaussianEstimate,
    Rates,
    Threshold,
    Values,
    check_delta,
    check_level,
    choose_threshold,
    gaussian_estimate,
)
from hauberk.errors import RequestError
from hauberk.mechanisms import (
    HeterogeneousGaussian,
    Mechanism,
    MixedGaussian,
    MultivariateGaussian,
    OptimizedAdditive,
    checks,
)
from hauberk.progress import Progress, silent

Draw = Callable[[int, torch.Generator], Values]
"""``draw(n, generator)``: n independent releases, one row each."""

_LEARNT_FROM = 1_000_000  # draws per side beyond which a threshold does not become better
_AT_A_TIME = 1 << 22  # numbers drawn at once
_FEWEST = 100


@dataclass(frozen=True, kw_only=True)
class Game:
    """What is released about a data set with one record more (``inside``) and without it (``outside``)."""

    inside: Draw
    outside: Draw

    def poisson_sampled(self, rate: float) -> Game:
        """The record takes part only if its own coin says so."""
        checks.rate("the sampling rate", rate)

        def sometimes(count: int, generator: torch.Generator) -> Values:
            coins = torch.rand(count, generator=generator, dtype=torch.float64).numpy() < rate
            drawn = self.outside(count, generator)
            drawn[coins] = self.inside(int(coins.sum()), generator)
            return drawn

        return Game(inside=sometimes, outside=self.outside)


def worst_shift(mechanism: Mechanism, coordinates: int | None = None) -> Values:
    """Where a record of full influence moves the answer so that this noise hides it least.

    The coordinate, or the eigenvector of the noise's covariance, with the least noise. Noise that is the same
    everywhere may have any number of ``coordinates`` (default: one).
    """
    sensitivity = getattr(mechanism, "sensitivity", None)
    if sensitivity is None:
        raise RequestError("a mechanism without a sensitivity has no worst shift: play a game of your own.")
    if isinstance(mechanism, MultivariateGaussian | MixedGaussian) and mechanism.covariance.ndim == 2:
        weakest: Values = np.linalg.eigh(mechanism.covariance)[1][:, 0] * sensitivity
        return weakest
    scale = mechanism.scale
    if not isinstance(scale, np.ndarray):
        shift = np.zeros(coordinates or 1)
        shift[0] = sensitivity
        return shift
    shift = np.zeros(scale.size)
    place = int(scale.argmin())
    shift[place] = sensitivity
    if isinstance(mechanism, HeterogeneousGaussian):  # whose sensitivity is in units of sqrt(K r)
        shift[place] *= math.sqrt(scale.size * float(mechanism.redistribution.ravel()[place]))
    return shift


def release_game(mechanism: Mechanism, shift: Values | None = None) -> Game:
    """All that the mechanism's promise is about, for two data sets whose answers differ by ``shift``.

    That is one release, and for `OptimizedAdditive` the lots of a whole training, each with the record's own
    sampling coin. Of the lots the sum is seen, which can only help the mechanism.
    """
    moved = worst_shift(mechanism) if shift is None else np.asarray(shift, dtype=np.float64)
    scale = mechanism.scale
    shape = scale.shape if isinstance(scale, np.ndarray) else moved.shape
    lots, rate = 1, 1.0
    if isinstance(mechanism, OptimizedAdditive):
        lots, rate = mechanism.steps, mechanism.sampling_rate

    def outside(count: int, generator: torch.Generator) -> Values:
        noise = np.zeros((count, moved.size))
        for _ in range(lots):
            noise += mechanism.sample((count, *shape), generator).double().numpy().reshape(count, moved.size)
        return noise

    def inside(count: int, generator: torch.Generator) -> Values:
        times: Values = np.full(count, float(lots))
        if rate < 1:
            coins = torch.rand((lots, count), generator=generator, dtype=torch.float64).numpy() < rate
            times = coins.sum(axis=0).astype(np.float64)
        return outside(count, generator) + times[:, None] * moved.ravel()

    return Game(inside=inside, outside=outside)


@dataclass(frozen=True, kw_only=True, eq=False)
class Score:
    """``linear' x + x' quadratic x``: the log-likelihood ratio of two normal distributions, up to a
    constant."""

    kind: Literal["fixed direction", "learnt direction", "learnt ratio"]
    linear: Values
    quadratic: Values | None = None

    def __call__(self, drawn: Values) -> Values:
        scores: Values = drawn @ self.linear
        if self.quadratic is not None:
            scores = scores + ((drawn @ self.quadratic) * drawn).sum(axis=1)
        return scores

    @classmethod
    def learn_direction(cls, inside: Values, outside: Values) -> Score:
        """Linear discriminant: best where the record moves the noise and does not change its shape."""
        common = (_covariance(inside) + _covariance(outside)) / 2
        linear = _inverse(common) @ (inside.mean(axis=0) - outside.mean(axis=0))
        return cls(kind="learnt direction", linear=linear)

    @classmethod
    def learn_ratio(cls, inside: Values, outside: Values) -> Score:
        """Quadratic discriminant: also sees a record that changes how much noise there is."""
        first, second = _inverse(_covariance(inside)), _inverse(_covariance(outside))
        linear = first @ inside.mean(axis=0) - second @ outside.mean(axis=0)
        return cls(kind="learnt ratio", linear=linear, quadratic=(second - first) / 2)


@dataclass(frozen=True, kw_only=True)
class MechanismAudit:
    """A lower bound on epsilon at ``delta`` from ``draws`` per side, of which ``tested`` were counted.

    Guarantee: if the game is between neighbours of an (epsilon, delta)-private mechanism, ``epsilon_lower``
    exceeds epsilon with probability at most ``1 - confidence``. ``rates`` bounds the whole curve delta(eps)
    from below with the same probability. ``estimate`` is no bound (None at delta 0).
    """

    epsilon_lower: float
    delta: float
    confidence: float
    draws: int
    tested: int
    score: str
    threshold: Threshold
    rates: Rates
    estimate: GaussianEstimate | None


def audit_game(
    game: Game,
    *,
    delta: float,
    draws: int,
    alpha: float = 0.05,
    direction: Values | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> MechanismAudit:
    """Play ``game`` with ``draws`` releases per side.

    Score and threshold come from the first half (or the first million, if that is less), the counts from the
    rest: one fixed test with two exact confidence bounds, half of ``alpha`` each. ``direction`` is a fixed
    projection in place of a learnt score.
    """
    check_delta(delta)
    check_level(alpha)
    if draws < 2 * _FEWEST:
        raise RequestError(f"an audit needs at least {2 * _FEWEST} draws per side, got {draws}.")
    generator = torch.Generator().manual_seed(seed)
    learning = min(draws // 2, _LEARNT_FROM)
    inside = _drawn(game.inside, learning, generator)
    outside = _drawn(game.outside, learning, generator)
    score, threshold = _learn(inside, outside, direction=direction, delta=delta, alpha=alpha)
    tested = draws - learning
    counts = {}
    for done, (name, draw) in enumerate((("inside", game.inside), ("outside", game.outside))):
        counts[name] = 0
        for part, count in _parts(tested, inside.shape[1]):
            counts[name] += int(threshold.says_in(score(_checked(draw(count, generator)))).sum())
            progress("draws", done * tested + part, 2 * tested)
    tally = {
        "true_positives": counts["inside"],
        "positives": tested,
        "false_positives": counts["outside"],
        "negatives": tested,
    }
    rates = Rates.from_counts(**tally, alpha=alpha)
    return MechanismAudit(
        epsilon_lower=rates.epsilon(delta),
        delta=delta,
        confidence=1 - alpha,
        draws=draws,
        tested=tested,
        score=score.kind,
        threshold=threshold,
        rates=rates,
        estimate=gaussian_estimate(**tally, delta=delta) if delta > 0 else None,
    )


def audit_mechanism(
    mechanism: Mechanism,
    *,
    delta: float | None = None,
    draws: int,
    alpha: float = 0.05,
    seed: int = 0,
    progress: Progress = silent,
) -> MechanismAudit:
    """`audit_game` at the neighbours that this mechanism's noise hides least, at the delta it claims."""
    asked = mechanism.claimed.delta if delta is None else delta
    return audit_game(
        release_game(mechanism), delta=asked, draws=draws, alpha=alpha, seed=seed, progress=progress
    )


def _learn(
    inside: Values, outside: Values, *, direction: Values | None, delta: float, alpha: float
) -> tuple[Score, Threshold]:
    """The score and threshold with the largest bound on the learning draws."""
    if direction is not None:
        fixed = np.asarray(direction, dtype=np.float64).ravel()
        if fixed.size != inside.shape[1]:
            raise RequestError(f"the direction has {fixed.size} coordinates, a release {inside.shape[1]}.")
        scores = [Score(kind="fixed direction", linear=fixed)]
    else:
        scores = [Score.learn_direction(inside, outside), Score.learn_ratio(inside, outside)]
    best: tuple[float, Score, Threshold] | None = None
    for score in scores:
        high, low = score(inside), score(outside)
        threshold = choose_threshold(high, low, delta=delta, alpha=alpha)
        bound = threshold.rates(high, low, alpha=alpha).epsilon(delta)
        if best is None or bound > best[0]:
            best = bound, score, threshold
    assert best is not None
    return best[1], best[2]


def _drawn(draw: Draw, count: int, generator: torch.Generator) -> Values:
    first = _checked(draw(1, generator))
    rest = [_checked(draw(some, generator)) for _, some in _parts(count - 1, first.shape[1])]
    return np.concatenate([first, *rest])


def _parts(count: int, width: int) -> list[tuple[int, int]]:
    """(draws done, draws of this part) for all parts."""
    most = max(1, _AT_A_TIME // max(1, width))
    starts = range(0, count, most)
    return [(min(start + most, count), min(most, count - start)) for start in starts]


def _checked(drawn: Values) -> Values:
    if drawn.ndim != 2 or not np.isfinite(drawn).all():
        raise RequestError("a game draws finite numbers, one row per release.")
    return drawn


def _covariance(drawn: Values) -> Values:
    return np.atleast_2d(np.cov(drawn, rowvar=False))


def _inverse(covariance: Values) -> Values:
    """With a little added where there is no noise at all: a direction that gives the record away."""
    floor = 1e-9 * max(float(np.trace(covariance)) / len(covariance), np.finfo(np.float64).tiny)
    return np.asarray(np.linalg.inv(covariance + floor * np.eye(len(covariance))), dtype=np.float64)
