"""Several releases as one statement: joint events, sequences, one-time releases before training."""

import json
import math

import dp_accounting
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from hauberk.accounting import (
    NEIGHBOURS,
    ComposedPlan,
    GaussianEvent,
    GaussianRelease,
    LaplaceEvent,
    Ledger,
    PrivacyPlan,
    UnprotectedEvent,
    accountant_name,
    events_of,
    joint_event,
    prove,
    proven_epsilon,
    split_budget,
)
from hauberk.accounting.accountant import optimistic_epsilon
from hauberk.errors import RequestError
from hauberk.mechanisms import (
    EpsilonDelta,
    GaussianProfile,
    HeterogeneousGaussian,
    Laplace,
    OptimizedAdditive,
)

UNIT = GaussianRelease(sensitivity=1.0, deviation=1.0)


def numeric_epsilon(z: float, *, rate: float, steps: int, delta: float) -> float:
    """An independent computation: both directions of the privacy loss on a grid, composed by FFT."""
    width, size = 2e-3, 2**15
    x = np.linspace(-12 * z, 1 + 12 * z, 400_001)
    without = norm.pdf(x, scale=z)
    mixed = (1 - rate) * without + rate * norm.pdf(x, loc=1, scale=z)
    largest = 0.0
    for p, q in ((mixed, without), (without, mixed)):
        loss = np.log(p) - np.log(q)
        bins = np.rint(loss / width).astype(int)
        mass = np.bincount(bins % size, weights=p, minlength=size)
        composed = np.fft.irfft(np.fft.rfft(mass / mass.sum()) ** steps, size)
        losses = np.where(np.arange(size) < size // 2, np.arange(size), np.arange(size) - size) * width

        def excess(epsilon: float, composed: np.ndarray = composed, losses: np.ndarray = losses) -> float:
            above = losses > epsilon
            return float((composed[above] * -np.expm1(epsilon - losses[above])).sum())

        low, high = 0.0, 30.0
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (low, middle) if excess(middle) <= delta else (middle, high)
        largest = max(largest, high)
    return largest


# --- releases from one sample ---------------------------------------------------------------------------


def test_two_releases_from_the_same_sample_cost_4_48_and_not_2_58() -> None:
    joint = joint_event([UNIT, UNIT], sampling_rate=0.01, count=1000)
    assert joint.noise_multiplier == pytest.approx(1 / math.sqrt(2))
    assert proven_epsilon([joint], 1e-5) == pytest.approx(4.48, abs=0.05)
    separate = GaussianEvent(noise_multiplier=1.0, sampling_rate=0.01, count=1000)
    assert proven_epsilon([separate, separate], 1e-5) == pytest.approx(2.58, abs=0.05)


@pytest.mark.parametrize(
    ("z", "rate", "steps", "delta"),
    [
        (1 / math.sqrt(2), 0.01, 1000, 1e-5),
        (1.0, 0.01, 2000, 1e-5),
        (0.8, 0.2, 20, 1e-6),
        (2.0, 0.05, 100, 1e-4),
    ],
)
def test_an_independent_computation_agrees_from_below(
    z: float, rate: float, steps: int, delta: float
) -> None:
    proven = proven_epsilon([GaussianEvent(noise_multiplier=z, sampling_rate=rate, count=steps)], delta)
    independent = numeric_epsilon(z, rate=rate, steps=steps, delta=delta)
    assert independent * (1 - 2e-3) <= proven <= independent * 1.01


def test_a_joint_event_is_one_whitened_release() -> None:
    """Per-layer clips and the count of an adaptive clipping bound (sensitivity 1/2)."""
    releases = [
        GaussianRelease(sensitivity=0.3, deviation=0.6),
        GaussianRelease(sensitivity=2.0, deviation=5.0),
        GaussianRelease(sensitivity=0.5, deviation=10.0),
    ]
    wanted = 1 / math.sqrt(0.5**2 + 0.4**2 + 0.05**2)
    event = joint_event(releases, sampling_rate=0.1, count=7)
    assert event.noise_multiplier == pytest.approx(wanted, rel=1e-12)
    assert event.noise_multiplier <= wanted
    assert (event.sampling_rate, event.count) == (0.1, 7)


deviations = st.lists(st.floats(0.5, 20), min_size=1, max_size=4)


@given(deviations=deviations, seed=st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_joint_laws_of_the_noise_multiplier(deviations: list[float], seed: object) -> None:
    releases = [GaussianRelease(sensitivity=1.0, deviation=deviation) for deviation in deviations]
    joint = joint_event(releases).noise_multiplier
    assert joint_event(releases[:1]).noise_multiplier == pytest.approx(deviations[0])
    assert joint == pytest.approx(joint_event(releases[::-1]).noise_multiplier)
    assert joint <= min(deviations) * (1 + 1e-12)
    assert joint_event([*releases, UNIT]).noise_multiplier < joint


@given(deviations=deviations, rate=st.sampled_from([0.01, 0.3, 1.0]))
@settings(max_examples=4, deadline=None)
def test_a_joint_release_is_never_cheaper_than_its_largest_part(deviations: list[float], rate: float) -> None:
    releases = [GaussianRelease(sensitivity=1.0, deviation=deviation) for deviation in deviations]

    def cost(part: list[GaussianRelease]) -> float:
        return proven_epsilon([joint_event(part, sampling_rate=rate, count=20)], 1e-5, finest=1e-3)

    together = cost(releases)
    assert together >= max(cost([release]) for release in releases) - 1e-3
    assert cost([*releases, UNIT]) >= together - 1e-3
    single = GaussianEvent(noise_multiplier=deviations[0], sampling_rate=rate, count=20)
    assert cost(releases[:1]) == pytest.approx(proven_epsilon([single], 1e-5, finest=1e-3), rel=1e-6)


@pytest.mark.parametrize("wrong", [{"sensitivity": 0.0}, {"deviation": -1.0}, {"deviation": math.inf}])
def test_an_impossible_release_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(RequestError, match="positive"):
        GaussianRelease(**{"sensitivity": 1.0, "deviation": 1.0} | wrong)


def test_an_empty_joint_event_is_refused() -> None:
    with pytest.raises(RequestError, match="at least one"):
        joint_event([])


# --- sequences ------------------------------------------------------------------------------------------

MIXTURE = [
    GaussianEvent(noise_multiplier=1.1, sampling_rate=0.02, count=300),
    GaussianEvent(noise_multiplier=6.0),
    LaplaceEvent(noise_multiplier=10.0),
    LaplaceEvent(noise_multiplier=2.0, sampling_rate=0.05, count=10),
]


def test_the_order_does_not_matter_and_every_release_costs() -> None:
    whole = proven_epsilon(MIXTURE, 1e-5, finest=1e-3)
    assert proven_epsilon(MIXTURE[::-1], 1e-5, finest=1e-3) == pytest.approx(whole, abs=1e-6)
    for left_out in range(len(MIXTURE)):
        rest = MIXTURE[:left_out] + MIXTURE[left_out + 1 :]
        assert proven_epsilon(rest, 1e-5, finest=1e-3) < whole


def test_unsampled_gaussian_releases_add_like_squares() -> None:
    events = [GaussianEvent(noise_multiplier=2.0, count=3), GaussianEvent(noise_multiplier=5.0)]
    exact = GaussianProfile(mu=math.sqrt(3 / 4 + 1 / 25)).epsilon(1e-5)
    assert exact <= proven_epsilon(events, 1e-5) <= exact + 1e-3


def test_laplace_alone_is_its_exact_profile() -> None:
    exact = Laplace.calibrate(epsilon=0.5, sensitivity=1.0)
    events = events_of(exact.event())
    assert events == (LaplaceEvent(noise_multiplier=exact.diversity),)
    assert exact.epsilon(1e-3) - 1e-9 <= proven_epsilon(events, 1e-3) <= exact.epsilon(1e-3) + 1e-3


def test_a_proof_says_by_whom_for_whom_and_how_it_was_rounded() -> None:
    proof = prove(MIXTURE[:1], 1e-5)
    assert proof.accountant == accountant_name()
    assert proof.neighbours == NEIGHBOURS
    assert (proof.rounding, proof.delta) == ("up", 1e-5)
    assert proof.epsilon == proven_epsilon(MIXTURE[:1], 1e-5)


def test_nothing_released_costs_nothing_and_an_unprotected_release_everything() -> None:
    assert prove([], 1e-5).epsilon == 0
    assert prove([GaussianEvent(noise_multiplier=1.0, count=0)], 1e-5).epsilon == 0
    assert prove([*MIXTURE, UnprotectedEvent()], 1e-5).epsilon == math.inf


@pytest.mark.parametrize("delta", [1e-10, 1e-13, 1e-20, 1e-100])
@pytest.mark.parametrize(("z", "rate", "steps"), [(1.0, 1.0, 1), (1.0, 0.01, 1000), (1e4, 0.01, 1000)])
def test_a_tiny_delta_has_a_finite_answer_too(delta: float, z: float, rate: float, steps: int) -> None:
    """The convolutions end near 1e-15; beyond them other bounds answer, under their own names."""
    proof = prove([GaussianEvent(noise_multiplier=z, sampling_rate=rate, count=steps)], delta)
    no_gain = GaussianProfile(mu=math.sqrt(steps) / z).epsilon(delta)
    assert 0 < proof.epsilon <= no_gain * 1.01 + 1e-3
    assert (proof.accountant == accountant_name()) == (delta >= 1e-12)
    if rate == 1:
        assert proof.epsilon >= no_gain * (1 - 1e-9)


def test_a_tiny_delta_is_answered_for_every_kind_of_event() -> None:
    gaussian, laplace = MIXTURE[:2], MIXTURE[2:]
    pure = sum(event.count / event.noise_multiplier for event in laplace)
    together = proven_epsilon(MIXTURE, 1e-20)
    assert proven_epsilon(gaussian, 1e-20) < together < math.inf
    assert pure < together


@pytest.mark.parametrize("z", [0.2, 0.02, 0.005, 0.001])
@pytest.mark.parametrize("rate", [0.01, 1.0])
def test_hardly_any_noise_has_a_finite_answer_too(z: float, rate: float) -> None:
    """From epsilon 10 to 10 million; whoever is in one lot for certain bounds it from below."""
    proven = proven_epsilon([GaussianEvent(noise_multiplier=z, sampling_rate=rate, count=100)], 1e-5)
    in_one_lot = GaussianProfile(mu=1 / z).epsilon(1e-5 / rate) if rate == 1 else 0.4 / z**2
    assert in_one_lot * (1 - 1e-9) <= proven
    assert proven <= GaussianProfile(mu=10 / z).epsilon(1e-5) * 1.001


def test_the_optimistic_epsilon_lies_below_the_proven_one() -> None:
    event = GaussianEvent(noise_multiplier=0.8, sampling_rate=0.05, count=200)
    proven, optimistic = proven_epsilon([event], 1e-5), optimistic_epsilon(event, 1e-5)
    independent = numeric_epsilon(0.8, rate=0.05, steps=200, delta=1e-5)
    assert optimistic < independent < proven
    assert optimistic > 0.9 * proven


# --- events of other hands ------------------------------------------------------------------------------


def test_a_sample_of_several_releases_becomes_one_joint_event() -> None:
    both = dp_accounting.ComposedDpEvent(
        [dp_accounting.GaussianDpEvent(1.0), dp_accounting.GaussianDpEvent(1.0)]
    )
    sampled = dp_accounting.SelfComposedDpEvent(dp_accounting.PoissonSampledDpEvent(0.01, both), 1000)
    (event,) = events_of(sampled)
    assert event == joint_event([UNIT, UNIT], sampling_rate=0.01, count=1000)


def test_the_events_of_mechanisms_are_understood() -> None:
    run = OptimizedAdditive.calibrate(
        epsilon=1.0,
        delta=1e-5,
        sensitivity=1.0,
        weights=[1.0, 0.5],
        steps=10,
        sampling_rate=0.1,
        weights_budget=split_budget(EpsilonDelta(epsilon=1.0, delta=1e-5))[0],
    )
    gradients, weights = events_of(run.event())
    assert gradients == GaussianEvent(noise_multiplier=1 / run.mu, sampling_rate=0.1, count=10)
    assert weights == GaussianEvent(noise_multiplier=1 / run.weights_mu, count=10)
    assert proven_epsilon([gradients, weights], 1e-5) == pytest.approx(run.epsilon(1e-5), rel=1e-2)
    assert events_of(dp_accounting.NoOpDpEvent()) == ()
    assert events_of(dp_accounting.NonPrivateDpEvent()) == (UnprotectedEvent(),)


@pytest.mark.parametrize(
    ("event", "word"),
    [
        (dp_accounting.ZCDpEvent(0.1), "ZCDpEvent"),
        (
            dp_accounting.PoissonSampledDpEvent(
                0.1,
                dp_accounting.ComposedDpEvent(
                    [dp_accounting.GaussianDpEvent(1.0), dp_accounting.LaplaceDpEvent(1.0)]
                ),
            ),
            "one Poisson sample",
        ),
    ],
)
def test_what_is_not_understood_is_refused_by_name(event: object, word: str) -> None:
    with pytest.raises(RequestError, match=word):
        events_of(event)


def test_a_ledger_with_laplace_survives_json() -> None:
    ledger = Ledger([*MIXTURE, UnprotectedEvent(count=2)])
    assert Ledger.from_json(json.loads(json.dumps(ledger.to_json()))).events == ledger.events


# --- budget split, and a release before training ----------------------------------------------------------


@given(epsilon=st.floats(1e-3, 100), log_delta=st.floats(-30, -0.01), share=st.floats(1e-3, 0.999))
def test_both_parts_of_a_budget_never_exceed_it(epsilon: float, log_delta: float, share: float) -> None:
    total = EpsilonDelta(epsilon=epsilon, delta=10**log_delta)
    part, rest = split_budget(total, share=share)
    assert part.epsilon + rest.epsilon <= total.epsilon
    assert part.delta + rest.delta <= total.delta
    assert part.epsilon == pytest.approx(share * epsilon)
    assert part.epsilon + rest.epsilon == pytest.approx(epsilon)


def test_002_spends_an_eighth_and_impossible_shares_are_refused() -> None:
    part, rest = split_budget(EpsilonDelta(epsilon=8.0, delta=8e-5))
    assert (part.epsilon, rest.epsilon) == (1.0, 7.0)
    assert part.delta == pytest.approx(1e-5)
    for share in (0.0, 1.0, math.nan):
        with pytest.raises(RequestError, match="share"):
            split_budget(part, share=share)


TRAINING = {"delta": 1e-5, "records": 10_000, "batch": 500, "epochs": 2.0}


def test_a_private_r_is_paid_for_by_the_training() -> None:
    r = HeterogeneousGaussian.calibrate(
        epsilon=0.5, delta=1e-5, sensitivity=1.0, redistribution=[0.25, 0.25, 0.5]
    )
    private_r = events_of(r.event())
    composed = ComposedPlan.calibrate(epsilon=2.0, once=private_r, **TRAINING)
    alone = PrivacyPlan.calibrate(epsilon=2.0, **TRAINING)
    assert 1.99 < composed.epsilon() <= 2.0
    assert composed.plan.noise_multiplier > alone.noise_multiplier
    assert ComposedPlan(plan=alone, once=private_r).epsilon() > 2.0
    assert composed.events(3) == (*private_r, composed.plan.event(3))
    assert composed.epsilon(0) == pytest.approx(0.5, abs=1e-2)
    assert composed.epsilon(20) < composed.epsilon()
    assert composed.epsilon(coarse=True) >= composed.epsilon() - 1e-6
    assert composed.proof().accountant == accountant_name()


def test_nothing_beforehand_is_the_plan_itself() -> None:
    composed = ComposedPlan.calibrate(epsilon=1.0, once=(), **TRAINING)
    assert composed.epsilon() == composed.plan.epsilon()
    assert composed.plan.noise_multiplier == pytest.approx(
        PrivacyPlan.calibrate(epsilon=1.0, **TRAINING).noise_multiplier, rel=1e-3
    )


def test_a_release_that_leaves_nothing_is_refused() -> None:
    with pytest.raises(RequestError, match="leaves nothing"):
        ComposedPlan.calibrate(epsilon=0.5, once=[LaplaceEvent(noise_multiplier=1.0)], **TRAINING)
    with pytest.raises(RequestError, match="positive"):
        ComposedPlan.calibrate(epsilon=-1.0, once=(), **TRAINING)
