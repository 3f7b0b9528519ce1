"""Factors of every clipping, and the count that an adaptive bound releases."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hauberk.accounting import GaussianRelease, joint_event
from hauberk.gradients import AdaptiveClip, AutomaticClip, Clipping, FlatClip, PerLayerClip, check_bound

LAYERS = {"stem.weight": "stem", "stem.bias": "stem", "head.weight": "head", "scale": ""}

CLIPPINGS: dict[str, Callable[[], Clipping]] = {
    "flat": lambda: FlatClip(0.3),
    "per layer, shared": lambda: PerLayerClip(0.3),
    "per layer, each": lambda: PerLayerClip({"stem": 0.1, "head": 0.2, "": 0.05}),
    "automatic": lambda: AutomaticClip(0.3),
    "adaptive": lambda: AdaptiveClip(bound=0.3),
}

norm = st.one_of(
    st.floats(0, 2.0**100, width=32), st.sampled_from([0.0, 1e-30, 1e-13, 0.3, math.inf, math.nan, 3e38])
)


@pytest.mark.parametrize("name", CLIPPINGS)
@settings(max_examples=100, deadline=None)
@given(drawn=st.lists(st.tuples(norm, norm, norm, norm), min_size=1, max_size=5))
def test_clipped_norms_stay_within_the_sensitivity(name: str, drawn: list[tuple[float, ...]]) -> None:
    clipping = CLIPPINGS[name]()
    norms = {
        parameter: torch.tensor([record[index] for record in drawn], dtype=torch.float32)
        for index, parameter in enumerate(LAYERS)
    }
    factors = clipping.factors(norms)
    assert set(factors) == set(norms)
    for row, record in enumerate(drawn):
        mine = [float(factors[parameter][row]) for parameter in LAYERS]
        assert all(math.isfinite(factor) and factor >= 0 for factor in mine)
        if all(math.isfinite(each) for each in record):
            clipped = math.hypot(*(factor * each for factor, each in zip(mine, record, strict=True)))
            assert clipped <= clipping.sensitivity * (1 + 1e-5)
        else:
            assert mine == [0.0] * len(mine)


@pytest.mark.parametrize("name", [name for name in CLIPPINGS if name != "automatic"])
def test_small_gradients_are_left_alone(name: str) -> None:
    norms = {parameter: torch.tensor([1e-3, 0.0]) for parameter in LAYERS}
    assert all(bool((factor == 1).all()) for factor in CLIPPINGS[name]().factors(norms).values())


def test_automatic_clipping_stretches_small_gradients_and_shortens_large_ones() -> None:
    factors = AutomaticClip(2.0, 0.01).factors({"w": torch.tensor([0.0, 0.09, 3.99])})["w"]
    torch.testing.assert_close(factors, torch.tensor([200.0, 20.0, 0.5]))


def test_each_layer_is_clipped_to_its_own_bound() -> None:
    norms = {
        "stem.weight": torch.tensor([3.0]),
        "stem.bias": torch.tensor([4.0]),
        "head.weight": torch.tensor([1.0]),
    }
    factors = PerLayerClip({"stem": 1.0, "head": 2.0}).factors(norms)
    assert {name: round(float(factor), 6) for name, factor in factors.items()} == {
        "stem.weight": 0.2, "stem.bias": 0.2, "head.weight": 1.0,
    }  # fmt: skip
    assert PerLayerClip({"stem": 3.0, "head": 4.0}).sensitivity == 5.0


def test_one_number_is_shared_equally_by_the_layers() -> None:
    norms = {f"{layer}.weight": torch.tensor([10.0]) for layer in "abcd"}
    factors = PerLayerClip(2.0).factors(norms)
    torch.testing.assert_close(torch.cat(list(factors.values())), torch.full((4,), 0.1))


def test_a_layer_without_a_bound_is_refused_by_name(refusal: Callable[..., str]) -> None:
    sentence = refusal(lambda: PerLayerClip({"stem": 1.0}).factors({"head.weight": torch.ones(2)}))
    assert "'head'" in sentence
    assert "stem" in sentence


BAD_BOUNDS = [0.0, -1.0, 1e-30, math.inf, math.nan]


@pytest.mark.parametrize("bound", BAD_BOUNDS)
@pytest.mark.parametrize(
    "make",
    [
        check_bound,
        FlatClip,
        AutomaticClip,
        PerLayerClip,
        lambda bound: PerLayerClip({"stem": 1.0, "head": bound}),
    ],
)
def test_a_bound_that_float32_cannot_hold_is_refused(
    make: Callable[[float], object], bound: float, refusal: Callable[..., str]
) -> None:
    assert "clip must be positive" in refusal(lambda: make(bound))


@pytest.mark.parametrize("stability", [0.0, -1.0, math.inf, math.nan, 1e-30, 1e-45])
def test_a_stability_below_what_norms_can_hold_is_refused(
    stability: float, refusal: Callable[..., str]
) -> None:
    """A gradient of 1e-25 has norm 0 in float32: divided by a stability of 1e-30 it would be 100,000."""
    assert "stability" in refusal(lambda: AutomaticClip(1.0, stability))


ADAPTIVE = [
    ({"bound": 0.0}, "the bound must lie in"),
    ({"bound": math.nan}, "the bound must lie in"),
    ({"bound": 2e6}, "the bound must lie in"),
    ({"bound": 1.0, "largest": math.inf}, "the bound must lie in"),
    ({"bound": 1.0, "smallest": 0.0}, "clip must be positive"),
    ({"bound": 1.0, "quantile": 0.0}, "quantile"),
    ({"bound": 1.0, "quantile": 1.0}, "quantile"),
    ({"bound": 1.0, "quantile": math.nan}, "quantile"),
    ({"bound": 1.0, "rate": 0.0}, "rate and count deviation"),
    ({"bound": 1.0, "rate": math.inf}, "rate and count deviation"),
    ({"bound": 1.0, "count_deviation": -1.0}, "rate and count deviation"),
    ({"bound": 1.0, "count_deviation": math.nan}, "rate and count deviation"),
]


@pytest.mark.parametrize(("options", "sentence"), ADAPTIVE)
def test_adaptive_clipping_refuses_what_makes_no_sense(
    options: dict[str, float], sentence: str, refusal: Callable[..., str]
) -> None:
    assert sentence in refusal(lambda: AdaptiveClip(**options))


# ------------------------------------------------------------------------------------ the count's release


@settings(max_examples=100, deadline=None)
@given(
    deviation=st.floats(0.6, 100),
    joint=st.floats(0.3, 1.1),
    rate=st.floats(0.001, 1.0),
    bound=st.floats(0.01, 10),
)
def test_gradient_and_count_together_cost_what_the_plan_says(
    deviation: float, joint: float, rate: float, bound: float
) -> None:
    """Cross-checked with the accountant: two releases from one sample."""
    clip = AdaptiveClip(bound=bound, count_deviation=deviation)
    mine = clip.gradient_noise_multiplier(joint)
    assert mine > joint
    assert 1 / mine**2 + (0.5 / deviation) ** 2 == pytest.approx(1 / joint**2, rel=1e-9)
    releases = [
        GaussianRelease(sensitivity=clip.sensitivity, deviation=mine * clip.sensitivity),
        GaussianRelease(sensitivity=0.5, deviation=deviation),
    ]
    event = joint_event(releases, sampling_rate=rate)
    assert event.noise_multiplier == pytest.approx(joint, rel=1e-9)


@pytest.mark.parametrize("deviation", [0.1, 0.5])
def test_a_count_that_would_spend_everything_is_refused(
    deviation: float, refusal: Callable[..., str]
) -> None:
    clip = AdaptiveClip(bound=1.0, count_deviation=deviation)
    assert "it must exceed 0.5" in refusal(lambda: clip.gradient_noise_multiplier(1.0))


@settings(max_examples=100, deadline=None)
@given(
    records=st.integers(0, 30), clipped=st.integers(0, 30), added=st.booleans(), normal=st.floats(-3, 3),
    bound=st.floats(1e-3, 1e3),
)  # fmt: skip
def test_one_record_moves_the_released_count_by_half(
    records: int, clipped: int, added: bool, normal: float, bound: float
) -> None:
    """The bound after a step is a function of the release alone; what is released is read from it."""
    clipped = min(clipped, records)

    def released(records: int, clipped: int) -> float:
        clip = AdaptiveClip(bound=bound, rate=1.0, count_deviation=1.0)
        clip.follow(records=records, clipped=clipped, normal=normal, batch=1000)
        return 1000 * (-math.log(clip.bound / bound) + clip.quantile - 0.5)

    moved = released(records + 1, clipped + int(added)) - released(records, clipped)
    assert abs(moved) == pytest.approx(0.5, rel=1e-6)


@pytest.mark.parametrize(("start", "quantile"), [(1e-4, 0.5), (300.0, 0.5), (1.0, 0.8), (1.0, 0.2)])
def test_the_bound_converges_to_the_quantile_of_the_norms(start: float, quantile: float) -> None:
    torch.manual_seed(1)
    norms = torch.randn(4000).exp() * 3
    clip = AdaptiveClip(bound=start, quantile=quantile, rate=0.2, count_deviation=10.0)
    tail = []
    for step in range(250):
        batch = norms[torch.rand(len(norms)) < 0.1]
        factors = clip.factors({"w": batch})["w"]
        clip.follow(
            records=len(batch), clipped=int((factors < 1).sum()), normal=float(torch.randn(())), batch=400
        )
        if step >= 200:
            tail.append(clip.bound)
    assert sum(tail) / len(tail) == pytest.approx(float(norms.quantile(quantile)), rel=0.15)


@pytest.mark.parametrize(("normal", "expected"), [(1e12, 0.5), (-1e12, 2.0)])
def test_the_bound_stays_within_its_limits(normal: float, expected: float) -> None:
    clip = AdaptiveClip(bound=1.0, rate=50.0, smallest=0.5, largest=2.0)
    clip.follow(records=5, clipped=2, normal=normal, batch=10)
    assert clip.bound == clip.sensitivity == expected


def test_factors_follow_the_bound() -> None:
    clip = AdaptiveClip(bound=1.0)
    before: Tensor = clip.factors({"w": torch.tensor([4.0])})["w"]
    clip.bound = 2.0
    assert float(before) == 0.25
    assert float(clip.factors({"w": torch.tensor([4.0])})["w"]) == 0.5
