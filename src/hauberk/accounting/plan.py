"""A privacy plan: sampling, noise and steps as one object, so that they cannot disagree.

Everything in a plan is a *declared public constant*. ``records`` is what the user says about the size of the
data set; it is never read from the data, because the exact size of a private data set is itself private.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

from hauberk.accounting.accountant import FINEST, check_delta, proven_epsilon
from hauberk.accounting.events import Event, GaussianEvent, UnprotectedEvent
from hauberk.errors import RequestError

_RELATIVE_PRECISION = 1e-4  # of the calibrated noise multiplier
_MOST_NOISE = 1e6
_MOST_STEPS = 1e12


def check_target(epsilon: float) -> None:
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise RequestError(f"epsilon must be positive, got {epsilon}")


@functools.lru_cache(maxsize=256)
def _epsilon(events: tuple[Event, ...], delta: float, finest: float) -> float:
    return proven_epsilon(events, delta, finest=finest)


@dataclass(frozen=True, kw_only=True)
class PrivacyPlan:
    """DP-SGD's privacy: ``steps`` Gaussian releases, each from a Poisson sample of the records.

    Each record enters each step's sample by its own coin with probability ``batch / records``. The sum of
    clipped contributions gets Gaussian noise of standard deviation ``noise_multiplier`` times the clipping
    bound (0: no noise, no privacy, and every card says so), and is divided by the constant ``batch``,
    whatever the sample's true size was. ``beforehand`` is what is released before the first step, each from
    a sample of its own.

    Guarantee: releasing all noisy sums and everything beforehand is ``(epsilon(), delta)``-differentially
    private for data sets that differ by adding or removing one record (PLD accounting, rounded up).
    """

    records: int
    batch: int
    epochs: float
    noise_multiplier: float
    delta: float
    beforehand: tuple[GaussianEvent, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.records < 2**63:
            raise RequestError(f"records must be at least 1 and below 2^63, got {self.records}")
        if not 1 <= self.batch <= self.records:
            raise RequestError(f"batch must lie between 1 and records ({self.records}), got {self.batch}")
        if not (math.isfinite(self.epochs) and self.epochs > 0):
            raise RequestError(f"epochs must be positive, got {self.epochs}")
        if not (math.isfinite(self.noise_multiplier) and self.noise_multiplier >= 0):
            raise RequestError(f"noise multiplier must not be negative, got {self.noise_multiplier}")
        if self.epochs * self.records / self.batch > _MOST_STEPS:
            raise RequestError(f"{self.epochs:g} epochs are more steps than anybody can take")
        check_delta(self.delta)

    @property
    def sampling_rate(self) -> float:
        return self.batch / self.records

    @property
    def steps(self) -> int:
        """``ceil(epochs * records / batch)``, with a guard against 2.0000000001 becoming 3."""
        return max(1, math.ceil(self.epochs * self.records / self.batch - 1e-9))

    @property
    def private(self) -> bool:
        """False for a plan without noise, which has an infinite epsilon."""
        return self.noise_multiplier > 0

    def event(self, steps: int | None = None) -> Event:
        """What ``steps`` steps (default: all) release."""
        count = self.steps if steps is None else steps
        if not self.private:
            return UnprotectedEvent(count=count)
        return GaussianEvent(
            noise_multiplier=self.noise_multiplier, sampling_rate=self.sampling_rate, count=count
        )

    def epsilon(self, steps: int | None = None, *, coarse: bool = False) -> float:
        """Proven epsilon at the plan's delta after ``steps`` steps (default: all), with what came before.

        ``coarse`` is ten times faster and a little larger (still a valid bound): for curves.
        """
        events = (*self.beforehand, self.event(steps))
        return _epsilon(events, self.delta, 10 * FINEST if coarse else FINEST)

    @classmethod
    def calibrate(
        cls,
        *,
        epsilon: float,
        delta: float,
        records: int,
        batch: int,
        epochs: float,
        beforehand: tuple[GaussianEvent, ...] = (),
    ) -> PrivacyPlan:
        """The least noise (within 0.01 %) whose proven epsilon does not exceed the target."""
        check_target(epsilon)
        if beforehand and (spent := proven_epsilon(beforehand, delta)) >= epsilon:
            raise RequestError(
                f"what is released before training spends epsilon {spent:.3g} of {epsilon:g}: give it more "
                "noise, or leave it out"
            )

        def plan(noise_multiplier: float) -> PrivacyPlan:
            return cls(
                records=records,
                batch=batch,
                epochs=epochs,
                noise_multiplier=noise_multiplier,
                delta=delta,
                beforehand=beforehand,
            )

        return plan(least_noise(lambda noise: plan(noise).epsilon(), epsilon=epsilon, delta=delta))


def least_noise(epsilon_at: Callable[[float], float], *, epsilon: float, delta: float) -> float:
    """The least noise multiplier (within 0.01 %) whose epsilon, computed here, keeps the target.

    False position in logarithms, where epsilon is nearly a straight line of the noise: a third of the
    evaluations that halving needs. Only values whose own epsilon was seen to keep the target are returned.
    """
    enough = 1.0
    while (kept := epsilon_at(enough)) > epsilon:
        enough *= 2
        if enough > _MOST_NOISE:
            raise RequestError(
                f"no noise reaches epsilon {epsilon} at delta {delta}: take fewer steps or a larger delta"
            )
    too_little = enough / 2
    while (missed := epsilon_at(too_little)) <= epsilon and too_little > 1e-2:
        enough, kept, too_little = too_little, missed, too_little / 2
    if missed <= epsilon:
        return too_little
    while enough - too_little > _RELATIVE_PRECISION * enough and kept < epsilon * (
        1 - _RELATIVE_PRECISION / 2
    ):
        straight = 0 < kept < missed < math.inf
        share = math.log(missed / epsilon) / math.log(missed / kept) if straight else 0.5
        # aim a little to the safe side, and never so close to an end that the bracket stops shrinking
        share = min(0.98, max(0.02, share + 0.001))
        middle = too_little * (enough / too_little) ** share
        if (found := epsilon_at(middle)) <= epsilon:
            enough, kept = middle, found
        else:
            too_little, missed = middle, found
    return enough
