"""The vector r: what one record can do to it, what noise it gets, and the noise layer that follows."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from hauberk.accounting import GaussianEvent
from hauberk.certify.first_map import find_first_map
from hauberk.data import Dataset
from hauberk.mechanisms import GaussianProfile
from hauberk.methods.redistribution import (
    FLOOR,
    SHARE,
    USUAL_NOISE,
    mean_vulnerability,
    private_event,
    private_vulnerability,
    scales,
    vulnerabilities,
)
from hauberk.randomness import SeededRandomness, SystemRandomness

SHAPE, HIDDEN, CLASSES = (1, 4, 4), (2, 4, 4), 3
EVENT = GaussianEvent(noise_multiplier=3.0)


def network(seed: int = 0, gain: float = 1.0) -> nn.Sequential:
    torch.manual_seed(seed)
    made = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(32, CLASSES))
    with torch.no_grad():
        made[3].weight *= gain
    return made


def records(count: int, seed: int = 0) -> Dataset:
    generator = torch.Generator().manual_seed(seed)
    return Dataset(
        name="made up",
        x=torch.rand(count, *SHAPE, generator=generator),
        y=torch.randint(0, CLASSES, (count,), generator=generator),
        classes=CLASSES,
    )


def joined(first: Dataset, x: Tensor, y: Tensor) -> Dataset:
    """A data set may hold only ordinary numbers; records behind its back are what a sharp eye tries."""
    return _Raw(torch.cat([first.x, x]), torch.cat([first.y, y]))  # type: ignore[return-value]


class _Raw:
    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.y)


class Silent(SeededRandomness):
    """No noise: what is left is the sum."""

    def normals(self, *, step: int, count: int, device: torch.device) -> Tensor:
        return torch.zeros(count, dtype=torch.float64)


def released(data: Dataset, *, model: nn.Module | None = None, inflation: float = 1.0) -> Tensor:
    model = network() if model is None else model
    layer = find_first_map(model, SHAPE)
    return private_vulnerability(
        model,
        layer.name,
        layer.output_shape,
        data,
        inflation=inflation,
        event=EVENT,
        randomness=Silent(0),
    )


def test_the_rows_are_the_derivatives_of_each_records_loss() -> None:
    model, data = network(), records(5)
    found = vulnerabilities(model, "0", HIDDEN, data.x, data.y, inflation=1.7)
    for row in range(5):
        hidden = model[0](data.x[row : row + 1]).detach().requires_grad_()
        loss = nn.functional.cross_entropy(model[1:](hidden), data.y[row : row + 1])
        (derivative,) = torch.autograd.grad(loss, hidden)
        assert torch.allclose(found[row], derivative.flatten().double().abs() ** 1.7, rtol=1e-4, atol=1e-12)


def test_the_public_mean_is_the_mean_and_does_not_mind_the_parts() -> None:
    data = records(600)
    whole = vulnerabilities(network(), "0", HIDDEN, data.x, data.y, inflation=1.0).mean(0)
    assert torch.allclose(mean_vulnerability(network(), "0", HIDDEN, data, inflation=1.0), whole, rtol=1e-6)


# --- sensitivity --------------------------------------------------------------------------------------------

EXTREMES = [0.0, 1.0, -1.0, 1e-30, 1e-38, 1e-44, 1e10, -1e20, 1e30, 3e38, math.inf, -math.inf, math.nan]


def norm(vector: Tensor) -> float:
    """Without squares that round to nothing or to infinity."""
    largest = float(vector.abs().max())
    return largest * float((vector / largest).norm()) if largest else 0.0


@settings(max_examples=40, deadline=None)
@given(
    values=st.lists(st.sampled_from(EXTREMES) | st.floats(-3, 3, width=32), min_size=16, max_size=16),
    label=st.integers(0, CLASSES - 1),
    others=st.integers(1, 300),
    inflation=st.sampled_from([0.5, 1.0, 2.0, 5.0, 30.0, 1e300]),
    gain=st.sampled_from([1.0, 1e-30, 1e-40, 1e20, 0.0]),
)
def test_no_record_moves_the_sum_by_more_than_one(
    values: list[float], label: int, others: int, inflation: float, gain: float
) -> None:
    model, base = network(gain=gain), records(others)
    x, y = torch.tensor(values).view(1, *SHAPE), torch.tensor([label])
    without = released(base, model=model, inflation=inflation)
    with_it = released(joined(base, x, y), model=model, inflation=inflation)
    assert torch.isfinite(with_it).all()
    # rows of the others may differ by rounding in float32, in parts of another size
    assert norm(with_it - without) <= 1 + 1e-5
    alone = released(_Raw(x, y), model=model, inflation=inflation)  # type: ignore[arg-type]
    assert norm(alone) <= 1


class TinySlopes(nn.Module):
    """The loss reacts to hidden output ``k`` by half of ``slopes[k]``."""

    def __init__(self, slopes: Tensor) -> None:
        super().__init__()
        self.first, self.slopes = nn.Linear(2, len(slopes)), nn.Parameter(slopes)

    def forward(self, x: Tensor) -> Tensor:
        score = (self.first(x) * self.slopes).sum(1)
        return torch.stack([score, torch.zeros_like(score)], 1)


@pytest.mark.parametrize("inflation", np.linspace(4.9, 5.3, 9))
def test_squares_that_round_to_nothing_do_not_loosen_the_bound(inflation: float) -> None:
    """2,000 derivatives whose squares vanish beside one whose square does not."""
    slopes = torch.full((2000,), 1.5e-32)
    slopes[0] = 2.22e-32
    model = TinySlopes(slopes)
    one = _Raw(torch.rand(1, 2), torch.zeros(1, dtype=torch.int64))
    found = private_vulnerability(
        model,
        "first",
        (2000,),
        one,  # type: ignore[arg-type]
        inflation=float(inflation),
        event=EVENT,
        randomness=Silent(0),
    )
    assert norm(found) <= 1
    assert norm(found) > 0.9 or not found.any()


def test_a_record_that_overflows_gives_nothing() -> None:
    base = records(20)
    bad = torch.stack([torch.full(SHAPE, each) for each in (math.inf, math.nan, -math.inf)])
    with_them = released(joined(base, bad, torch.zeros(3, dtype=torch.int64)))
    assert torch.allclose(with_them, released(base), rtol=1e-6)


def test_an_empty_set_is_released_like_any_other() -> None:
    nobody = _Raw(torch.zeros(0, *SHAPE), torch.zeros(0, dtype=torch.int64))
    found = released(nobody)  # type: ignore[arg-type]
    assert found.shape == (32,)
    assert not found.any()


# --- noise --------------------------------------------------------------------------------------------------


def test_the_release_is_the_sum_with_the_events_noise() -> None:
    data, model = records(400), network()
    randomness = SeededRandomness(5)
    found = private_vulnerability(model, "0", HIDDEN, data, inflation=1.0, event=EVENT, randomness=randomness)
    again = randomness.normals(step=1 << 50, count=32, device=torch.device("cpu"))
    assert torch.allclose(found, (released(data) + 3.0 * again).clamp_min(0))
    assert not torch.equal(again, randomness.normals(step=0, count=32, device=torch.device("cpu")))


def test_the_noise_has_the_events_deviation() -> None:
    """Around a sum so large that nothing is cut off at zero."""
    data, model = records(400), network()
    total = released(data)
    assert total.min() > 5 * 0.5
    event = GaussianEvent(noise_multiplier=0.5)
    drawn = torch.stack(
        [
            private_vulnerability(
                model, "0", HIDDEN, data, inflation=1.0, event=event, randomness=SystemRandomness()
            )
            - total
            for _ in range(40)
        ]
    )
    assert abs(float(drawn.mean())) < 6 * 0.5 / drawn.numel() ** 0.5
    assert abs(float(drawn.var()) / 0.25 - 1) < 6 * (2 / drawn.numel()) ** 0.5


def test_nothing_negative_is_released() -> None:
    assert (
        private_vulnerability(
            network(),
            "0",
            HIDDEN,
            records(2),
            inflation=1.0,
            event=GaussianEvent(noise_multiplier=100.0),
            randomness=SystemRandomness(),
        ).min()
        >= 0
    )


def test_the_event_costs_its_share_of_epsilon() -> None:
    for epsilon, delta in ((1.0, 1e-5), (8.0, 1e-6), (0.1, 1e-3)):
        event = private_event(epsilon=epsilon, delta=delta)
        assert (event.sampling_rate, event.count) == (1.0, 1)
        spent = GaussianProfile(mu=1 / event.noise_multiplier).delta(SHARE * epsilon)
        assert spent == pytest.approx(delta, rel=1e-3)
    assert private_event(epsilon=None, delta=1e-5).noise_multiplier == USUAL_NOISE


# --- scales -------------------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(
    vulnerability=st.lists(st.just(0.0) | st.floats(0, 1e200), min_size=1, max_size=20),
    sigma=st.floats(1e-3, 1e3),
    floor=st.sampled_from([1e-3, 0.1, FLOOR, 1.0]),
)
def test_scales_keep_the_energy_and_the_floor(vulnerability: list[float], sigma: float, floor: float) -> None:
    given_ = torch.tensor(vulnerability, dtype=torch.float64)
    found = scales(given_, (len(vulnerability),), sigma=sigma, floor=floor).double()
    assert (found > 0).all()
    assert float(found.square().mean()) == pytest.approx(sigma**2, rel=1e-5)
    assert float(found.min()) >= sigma * math.sqrt(floor) * (1 - 1e-6)
    order = given_.argsort()
    assert (found[order].diff() >= -1e-6 * sigma).all()  # more noise where the loss reacts more
    if not given_.any():
        assert torch.allclose(found, torch.full_like(found, sigma), rtol=1e-6)


def test_scales_have_the_shape_of_the_layer() -> None:
    found = scales(torch.arange(32.0, dtype=torch.float64), HIDDEN, sigma=1.0, floor=FLOOR)
    assert found.shape == HIDDEN
    assert found.dtype == torch.float32
    assert torch.equal(found.flatten(), found.flatten().sort().values)
