"""Directional noise (002) as published: a record that moves the weakest coordinate is hardly hidden.

002 shapes its noise by the sensitivity w of the cost and says that every lot is private for any two
neighbours, given any w (Theorem 1). The noise meets the theorem's own constraint only for neighbours that
differ along w; where |w_i| is small there is almost none.

The game. The method trains once, and of every lot the noise of each coordinate is recorded as it was drawn
for the w~ of that lot. Then lots are drawn anew, many trainings' worth: the target is in a lot by the
method's own sampling coin and moves the coordinate with the least noise by the clipping bound, which every
clipped gradient may do. The score is the likelihood ratio over the lots. Its threshold is chosen on the
first half of the trainings; the second half is counted.

The bound is about the lots given w~, which the proof covers in either variant; what w~ itself gives away
comes on top.
"""

from __future__ import annotations

import numpy as np

from hauberk.audit.bounds import Values, choose_threshold
from hauberk.audit.refutations.base import Refutation, Stakes
from hauberk.audit.refutations.small_worlds import fresh_randomness, method_of, pictures
from hauberk.audit.white_box import Sighting, matched_scores
from hauberk.gradients import ClippedSum
from hauberk.methods.base import Method
from hauberk.training.noise import Released, StepNoise

REASON = (
    "the noise meets its own constraint only for records that differ along w: the coordinate with the least "
    "noise shows whether a record was there"
)
_SIDE, _HELD, _DECLARED, _BATCH, _EPOCHS = 14, 32, 8192, 1024, 3.0


def refute(method: str, variant: str, stakes: Stakes) -> Refutation:
    """``stakes.games`` trainings on each side are counted, and as many more choose the threshold.

    In the sound variant all coordinates have the noise that the plan proves, and the same game stays within
    the promise.
    """
    world = pictures(_HELD, side=_SIDE, seed=stakes.seed)
    directional = method_of(
        method, variant, stakes, shape=world.shape, records=_DECLARED, batch=_BATCH, epochs=_EPOCHS
    )
    trainer = directional.trainer(world, randomness=fresh_randomness(stakes, 0))
    trainer.noise = recorder = RecordedNoise(trainer.noise)
    trainer.run(lambda done: None)
    trainer.close()
    rng = np.random.default_rng((stakes.seed, 0xD1))
    inside, outside = (
        _scores(recorder.least, directional, games=2 * stakes.games, inside=side, rng=rng)
        for side in (True, False)
    )
    half = stakes.games
    threshold = choose_threshold(inside[:half], outside[:half], delta=stakes.delta, alpha=stakes.alpha)
    rates = threshold.rates(inside[half:], outside[half:], alpha=stakes.alpha)
    return Refutation(
        name="directional noise",
        method=method,
        variant=variant,
        attack="likelihood ratio of the recorded noise along the weakest coordinate of every lot",
        reason=REASON,
        confidence=1 - stakes.alpha,
        claimed_epsilon=stakes.epsilon,
        observed_epsilon=rates.epsilon(stakes.delta),
        delta=stakes.delta,
        games=stakes.games,
    )


class RecordedNoise:
    """A method's own noise; ``least`` is, lot by lot, the least deviation of any coordinate in units of the
    clipping bound."""

    def __init__(self, inner: StepNoise) -> None:
        self._inner = inner
        self.looks_at_records = inner.looks_at_records
        self.events, self.deviation, self.state = inner.events, inner.deviation, inner.state
        self.least: list[float] = []

    def release(self, clipped: ClippedSum, step: int) -> Released:
        released = self._inner.release(clipped, step)
        own = self._inner.state().get("deviations")
        least = self._inner.deviation(clipped.sensitivity) if own is None else float(own.min())
        self.least.append(least / clipped.sensitivity)
        return released


def _scores(
    least: list[float], method: Method, *, games: int, inside: bool, rng: np.random.Generator
) -> Values:
    rate = method.plan.sampling_rate
    ones = np.ones(games)
    sightings = []
    for noise in least:
        products = noise * rng.standard_normal(games)
        if inside:
            products += rng.random(games) < rate
        sightings.append(Sighting(products=products, lengths=ones, noise=noise))
    return matched_scores(sightings, sampling_rate=rate)
