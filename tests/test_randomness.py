"""The generators against published answers, and against the laws that the privacy proof leans on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, kstest, norm

from hauberk.randomness import (
    Key,
    Randomness,
    SeededRandomness,
    SystemRandomness,
    choose_randomness,
    derive_key,
    keyed_normals,
    philox,
)

CPU = torch.device("cpu")
KEY = derive_key(5, "test")
LEVEL = 1e-9  # of tests whose random numbers come from the operating system: they never fail by chance

ones = 0xFFFFFFFF
# (key, counter, answer): the known answers that Philox's authors publish (Random123, kat_vectors)
KNOWN: list[tuple[Key, list[int], list[int]]] = [
    ((0, 0), [0, 0, 0, 0], [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ((ones, ones), [ones] * 4, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        (0xA4093822, 0x299F31D0),
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]


def looks_standard_normal(values: torch.Tensor, *, level: float = LEVEL) -> bool:
    return bool(kstest(values.double().flatten().numpy(), norm.cdf).pvalue > level)


def uncorrelated(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Six standard deviations of the correlation of independent normals."""
    a, b = a.double().flatten(), b.double().flatten()
    return abs(float((a * b).mean())) < 6 / len(a) ** 0.5


@pytest.mark.parametrize(("key", "counter", "answer"), KNOWN, ids=["zeros", "ones", "pi"])
def test_philox_known_answers(key: Key, counter: list[int], answer: list[int]) -> None:
    words = philox(key, [torch.tensor([word]) for word in counter])
    assert [int(word) for word in words] == answer


def test_philox_treats_every_counter_by_itself() -> None:
    counters = torch.stack([torch.tensor(counter) for _, counter, _ in KNOWN])
    together = torch.stack(philox((3, 4), counters.unbind(1)), dim=1)
    alone = torch.stack([torch.stack(philox((3, 4), row.unbind())) for row in counters])
    assert torch.equal(together, alone)


def test_keys_differ_by_seed_and_purpose() -> None:
    keys = {derive_key(seed, purpose) for seed in (-1, 0, 1, 10**30, b"0") for purpose in ("a", "b")}
    assert len(keys) == 8  # b"0" and 0 are the same material
    assert all(0 <= word <= ones for key in keys for word in key)


records_lists = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=6, unique=True)


@given(
    records=records_lists,
    others=records_lists,
    step=st.integers(0, 2**31),
    views=st.integers(1, 3),
    shape=st.lists(st.integers(1, 5), max_size=3).map(tuple),
    data=st.data(),
)
@settings(max_examples=60, deadline=None)
def test_a_records_noise_ignores_the_rest_of_the_batch(
    records: list[int], others: list[int], step: int, views: int, shape: tuple[int, ...], data: st.DataObject
) -> None:
    batch = torch.tensor(records)
    noise = keyed_normals(KEY, step=step, records=batch, views=views, shape=shape)
    assert noise.shape == (len(records), views, *shape)
    assert noise.dtype == torch.float32
    position = data.draw(st.integers(0, len(records) - 1))
    mixed = torch.tensor([*others, records[position]])
    again = keyed_normals(KEY, step=step, records=mixed, views=views, shape=shape)
    assert torch.equal(again[-1], noise[position])
    fewer = keyed_normals(KEY, step=step, records=batch, views=1, shape=shape)
    assert torch.equal(fewer[:, 0], noise[:, 0])  # nor does a view see how many others there are


def test_keyed_normals_are_standard_normal_in_every_place() -> None:
    noise = keyed_normals(KEY, step=3, records=torch.arange(3000), views=2, shape=(5, 3))
    assert noise.isfinite().all()
    assert looks_standard_normal(noise, level=1e-6)
    assert noise.mean().abs() < 6 / noise.numel() ** 0.5
    assert (noise.double().square().mean() - 1).abs() < 6 * (2 / noise.numel()) ** 0.5
    for place in noise.flatten(1).unbind(1):  # the four words of a block, and the cut-off last block
        assert looks_standard_normal(place, level=1e-6)


def test_keyed_normals_are_independent_across_steps_records_views_places_and_keys() -> None:
    def draw(step: int = 0, first: int = 0, key: Key = KEY) -> torch.Tensor:
        return keyed_normals(key, step=step, records=torch.arange(first, first + 3000), views=2, shape=(2, 4))

    noise = draw()
    assert uncorrelated(noise, draw(step=1))
    assert uncorrelated(noise, draw(first=3000))
    assert uncorrelated(noise, draw(key=derive_key(6, "test")))
    assert uncorrelated(noise[1:], noise[:-1])
    assert uncorrelated(noise[:, 0], noise[:, 1])
    places = noise.flatten(1).double()
    correlations = (places.T @ places) / len(places) - torch.eye(places.shape[1])
    assert correlations.abs().max() < 6 * (2 / len(places)) ** 0.5
    # steps and records lie on different axes of the counter: step 1 of record 0 is not record 1 of step 0
    assert not torch.equal(draw(step=1)[0], draw(first=1)[0])


def test_no_records_no_noise() -> None:
    empty = torch.empty(0, dtype=torch.int64)
    assert keyed_normals(KEY, step=0, records=empty, views=2, shape=(3, 3)).shape == (0, 2, 3, 3)


MAKERS: list[Callable[[], Randomness]] = [SystemRandomness, lambda: SeededRandomness(11)]
both_kinds = pytest.mark.parametrize("make", MAKERS, ids=["system", "seeded"])


@both_kinds
@pytest.mark.parametrize("probability", [0.001, 0.0512, 0.5, 0.97])
def test_coins_fall_at_the_declared_rate(make: Callable[[], Randomness], probability: float) -> None:
    coins = make().coins(step=4, count=50_000, probability=probability)
    assert coins.dtype == torch.bool
    assert coins.device == CPU
    assert binomtest(int(coins.sum()), len(coins), probability).pvalue > LEVEL
    runs = int((coins[1:] & coins[:-1]).sum())  # neighbours do not share a coin
    assert binomtest(runs, len(coins) - 1, probability**2).pvalue > LEVEL


@both_kinds
def test_coins_at_the_edges(make: Callable[[], Randomness]) -> None:
    randomness = make()
    assert randomness.coins(step=0, count=1000, probability=1.0).all()
    assert not randomness.coins(step=0, count=1000, probability=0.0).any()
    assert not randomness.coins(step=0, count=1000, probability=1e-300).any()
    assert randomness.coins(step=0, count=1000, probability=1 - 2**-53).all()
    for probability in (0.0, 0.3, 1.0):
        assert randomness.coins(step=0, count=0, probability=probability).shape == (0,)


@both_kinds
@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_normals_come_in_the_number_asked_for(make: Callable[[], Randomness], count: int) -> None:
    noise = make().normals(step=0, count=count, device=CPU)
    assert noise.shape == (count,)
    assert noise.dtype == torch.float64


@both_kinds
def test_privacy_noise_is_standard_normal(make: Callable[[], Randomness]) -> None:
    noise = make().normals(step=2, count=50_001, device=CPU)
    assert noise.isfinite().all()
    assert looks_standard_normal(noise)
    assert abs(float(noise.square().mean()) - 1) < 7 * (2 / len(noise)) ** 0.5
    assert uncorrelated(noise[1:], noise[:-1])
    half = len(noise) // 2
    assert uncorrelated(noise[:half], noise[half : 2 * half])  # the two halves of Box and Muller


def test_the_operating_systems_noise_never_repeats() -> None:
    randomness = SystemRandomness()
    assert not randomness.reproducible
    first = randomness.normals(step=0, count=64, device=CPU)
    assert not np.isin(first, randomness.normals(step=0, count=64, device=CPU)).any()
    coins = [randomness.coins(step=0, count=256, probability=0.5) for _ in range(2)]
    assert not torch.equal(*coins)
    assert len({randomness.layer_seed(step=0) for _ in range(8)}) > 1
    assert randomness.view_key() == randomness.view_key()
    assert randomness.view_key() != SystemRandomness().view_key()
    assert SystemRandomness(view_key=(0, 0)).view_key() == (0, 0)


def test_an_accelerator_stretches_a_fresh_key_at_every_call() -> None:
    class Accelerator:  # stands in for a torch.device that this machine may lack
        type = "accelerator"

    seeds: list[int] = []

    class Noting:
        def __init__(self, device: object) -> None:
            assert isinstance(device, Accelerator)

        def manual_seed(self, seed: int) -> None:
            seeds.append(seed)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hauberk.randomness.torch.Generator", Noting)
        patch.setattr("hauberk.randomness.torch.randn", lambda count, **_: torch.zeros(count))
        for _ in range(64):
            SystemRandomness().normals(step=0, count=2, device=Accelerator())  # type: ignore[arg-type]
    assert len(set(seeds)) == 64
    assert max(seeds) >= 2**63  # all 64 bits are drawn (misses with probability 2^-64)


def test_a_seed_repeats_everything_at_every_step() -> None:
    one, same, other = SeededRandomness(3), SeededRandomness(3), SeededRandomness(4)
    assert one.reproducible
    assert one.view_key() == same.view_key() != other.view_key()
    for step in (0, 1, 1000):
        noise = one.normals(step=step, count=9, device=CPU)
        assert torch.equal(noise, same.normals(step=step, count=9, device=CPU))
        assert not torch.equal(noise, other.normals(step=step, count=9, device=CPU))
        assert not torch.equal(noise, one.normals(step=step + 1, count=9, device=CPU))
        coins = one.coins(step=step, count=99, probability=0.5)
        assert torch.equal(coins, same.coins(step=step, count=99, probability=0.5))
        assert not torch.equal(coins, other.coins(step=step, count=99, probability=0.5))
        assert not torch.equal(coins, one.coins(step=step + 1, count=99, probability=0.5))
        assert one.layer_seed(step=step) == same.layer_seed(step=step) != one.layer_seed(step=step + 1)


def test_a_seeds_purposes_are_independent() -> None:
    randomness, count = SeededRandomness(3), 20_000
    noise = randomness.normals(step=0, count=count, device=CPU)
    coins = randomness.coins(step=0, count=count, probability=0.5).double() * 2 - 1
    views = keyed_normals(
        randomness.view_key(), step=0, records=torch.arange(count), views=1, shape=(2,)
    ).double()
    assert uncorrelated(noise, coins)
    assert uncorrelated(noise, views[..., 0])
    # coin and view of a record have the same counter: from the same key, they would share their bits
    assert uncorrelated(coins, (views.square().sum(-1) - 2) / 2)
    assert uncorrelated(noise, randomness.normals(step=1, count=count, device=CPU))


def test_who_asks_for_no_seed_gets_the_operating_systems_noise() -> None:
    assert isinstance(choose_randomness(None), SystemRandomness)
    assert isinstance(choose_randomness(0), SeededRandomness)
