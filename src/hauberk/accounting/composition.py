"""Several releases as one statement: from one sample, one after another, once before training.

Three rules cover all of it. Releases from *one* Poisson sample are one joint event, because the record is
either in the sample for all of them or for none. Releases from *separate* samples are separate events,
which the accountant composes in any order. And a constant that was computed from private data is a release
like any other, however small: it stands in the same list as the training.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import dp_accounting

from hauberk.accounting.accountant import FINEST, ProvenEpsilon, prove
from hauberk.accounting.events import Event, GaussianEvent, LaplaceEvent, UnprotectedEvent
from hauberk.accounting.plan import PrivacyPlan, check_target, least_noise
from hauberk.errors import RequestError
from hauberk.mechanisms import EpsilonDelta

_ROUND_DOWN = 1 - 1e-15


@dataclass(frozen=True, kw_only=True)
class GaussianRelease:
    """A sum with l2 ``sensitivity`` to one record, released with noise of standard ``deviation``."""

    sensitivity: float
    deviation: float

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not (math.isfinite(value) and value > 0):
                raise RequestError(f"the {name} of a release must be a positive number, got {value}")


def joint_event(
    releases: Iterable[GaussianRelease], *, sampling_rate: float = 1.0, count: int = 1
) -> GaussianEvent:
    """Everything that one Poisson sample gave away, as one event; ``count`` such samples.

    Guarantee: the releases together are as private as one Gaussian release with noise multiplier ``z``,
    ``1/z^2 = sum_j (sensitivity_j / deviation_j)^2``: divide each by its deviation and they are one vector
    with unit noise. Per-layer clips, the count of an adaptive clipping bound and several critics belong
    here. Composing them as separately sampled events is wrong: at rate 0.01, noise multiplier 1 each,
    1,000 steps and delta 1e-5 it says 2.58 where 4.48 is true.
    """
    ratios = [release.sensitivity / release.deviation for release in releases]
    if not ratios:
        raise RequestError("a joint event needs at least one release")
    return GaussianEvent(
        noise_multiplier=_ROUND_DOWN / math.hypot(*ratios), sampling_rate=sampling_rate, count=count
    )


def events_of(event: dp_accounting.DpEvent) -> tuple[Event, ...]:
    """A mechanism's ``event()`` (or any event of dp-accounting) in this project's own kinds.

    A sample of several Gaussian releases becomes one joint event. A kind that is not known here is refused
    by name, never left out.
    """
    if isinstance(event, dp_accounting.NoOpDpEvent):
        return ()
    if isinstance(event, dp_accounting.NonPrivateDpEvent):
        return (UnprotectedEvent(),)
    if isinstance(event, dp_accounting.GaussianDpEvent):
        return (GaussianEvent(noise_multiplier=float(event.noise_multiplier)),)
    if isinstance(event, dp_accounting.LaplaceDpEvent):
        return (LaplaceEvent(noise_multiplier=float(event.noise_multiplier)),)
    if isinstance(event, dp_accounting.ComposedDpEvent):
        return tuple(inner for part in event.events for inner in events_of(part))
    if isinstance(event, dp_accounting.SelfComposedDpEvent):
        return tuple(replace(inner, count=inner.count * int(event.count)) for inner in events_of(event.event))
    if isinstance(event, dp_accounting.PoissonSampledDpEvent):
        return (_sampled(events_of(event.event), float(event.sampling_probability)),)
    raise RequestError(f"cannot account for the unknown event {type(event).__name__}")


def _sampled(inner: tuple[Event, ...], rate: float) -> Event:
    """All of ``inner`` from one sample of the records."""
    if any(isinstance(event, UnprotectedEvent) for event in inner):
        return UnprotectedEvent()
    if len(inner) == 1:
        only = inner[0]
        if not isinstance(only, UnprotectedEvent) and only.count == 1 and only.sampling_rate == 1:
            return replace(only, sampling_rate=rate)
    gaussian = [event for event in inner if isinstance(event, GaussianEvent) and event.sampling_rate == 1]
    if not gaussian or len(gaussian) < len(inner):
        raise RequestError(
            "from one Poisson sample only Gaussian releases, or one Laplace release, can be accounted for"
        )
    return joint_event(
        [
            GaussianRelease(sensitivity=math.sqrt(event.count), deviation=event.noise_multiplier)
            for event in gaussian
        ],
        sampling_rate=rate,
    )


def split_budget(total: EpsilonDelta, *, share: float = 1 / 8) -> tuple[EpsilonDelta, EpsilonDelta]:
    """``share`` of the budget, and the rest; 002 spends an eighth on the weights and the rest on gradients.

    By basic composition both parts together keep ``total``: their sums do not exceed it. It is how a paper
    divides its *claim*. What both releases prove together is `prove` of their events, and is usually less.
    """
    if not 0 < share < 1:
        raise RequestError(f"the share must lie strictly between 0 and 1, got {share}")
    part = EpsilonDelta(epsilon=total.epsilon * share, delta=total.delta * share)
    rest = EpsilonDelta(epsilon=_rest(total.epsilon, part.epsilon), delta=_rest(total.delta, part.delta))
    return part, rest


def _rest(total: float, part: float) -> float:
    rest = total - part
    return rest if part + rest <= total else math.nextafter(rest, 0.0)


@dataclass(frozen=True, kw_only=True)
class ComposedPlan:
    """A training plan and the private releases that happen ``once``, before it: one epsilon for everything.

    ``once`` holds a private redistribution vector, a private clipping bound, private weights. Guarantee:
    all of it together is ``(epsilon(), plan.delta)``-differentially private for data sets that differ by
    adding or removing one record (rounded up; `proof` names the accountant).
    """

    plan: PrivacyPlan
    once: tuple[Event, ...]

    def events(self, steps: int | None = None) -> tuple[Event, ...]:
        """What has been released after ``steps`` steps of training (default: all)."""
        return (*self.once, self.plan.event(steps))

    def proof(self, steps: int | None = None, *, coarse: bool = False) -> ProvenEpsilon:
        """``coarse`` is faster and a little larger (still a valid bound): for curves."""
        finest = 10 * FINEST if coarse else FINEST
        return prove(self.events(steps), self.plan.delta, finest=finest)

    def epsilon(self, steps: int | None = None, *, coarse: bool = False) -> float:
        return self.proof(steps, coarse=coarse).epsilon

    @classmethod
    def calibrate(
        cls,
        *,
        epsilon: float,
        delta: float,
        records: int,
        batch: int,
        epochs: float,
        once: Iterable[Event],
    ) -> ComposedPlan:
        """The least training noise (within 0.01 %) for which everything together keeps ``epsilon``.

        The releases in ``once`` are given; training gets what they leave. They are refused when they leave
        nothing.
        """
        check_target(epsilon)
        before = tuple(once)
        spent = prove(before, delta).epsilon
        if spent >= epsilon:
            raise RequestError(
                f"the releases before training cost epsilon {spent:.4g} already, which leaves nothing of "
                f"{epsilon:g}: give them more noise"
            )

        def composed(noise: float) -> ComposedPlan:
            plan = PrivacyPlan(
                records=records, batch=batch, epochs=epochs, noise_multiplier=noise, delta=delta
            )
            return cls(plan=plan, once=before)

        noise = least_noise(lambda noise: composed(noise).epsilon(), epsilon=epsilon, delta=delta)
        return composed(noise)
