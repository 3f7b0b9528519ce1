"""Memory: what users may write, what is measured, and that a limit changes no result."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from hauberk.gradients import ClippedGradients, FlatClip, mean_cross_entropy, parse_memory
from hauberk.gradients.fast import FastPath
from hauberk.gradients.general import GeneralPath
from hauberk.gradients.memory import CPU, Comfort, MemoryNeed, measure

GOOD = [
    ("1", 1), ("500MB", 500 * 10**6), ("500 MB", 500 * 10**6), (" 2GB ", 2 * 10**9), ("2gb", 2 * 10**9),
    ("2G", 2 * 10**9), ("1.5GB", 1_500_000_000), ("2GiB", 2**31), ("64KiB", 2**16), ("3MiB", 3 * 2**20),
    ("7K", 7000), ("8KB", 8000), ("9M", 9 * 10**6), ("2e9", 2 * 10**9), ("2E3B", 2000), ("0.5KB", 500),
    (".5KB", 500),
]  # fmt: skip
BAD = [
    "", " ", "GB", "much", "2 XB", "-1GB", "1e-3GB", "1.2.3GB", ".", "nan", "inf", "1e400", "2GB2", "2 G B",
    "1,5GB", "1e308GB",
]  # fmt: skip


@pytest.mark.parametrize(("text", "size"), GOOD)
def test_amounts_of_memory_are_understood(text: str, size: int) -> None:
    assert parse_memory(text) == size


@pytest.mark.parametrize("text", BAD)
def test_anything_else_is_refused_with_an_example(text: str, refusal: Callable[..., str]) -> None:
    assert "500MB" in refusal(lambda: parse_memory(text))


@pytest.mark.parametrize("text", ["0", "0GB", "0.4", "0.0001KB"])
def test_no_memory_at_all_is_refused(text: str, refusal: Callable[..., str]) -> None:
    assert "must be positive" in refusal(lambda: parse_memory(text))


need = st.builds(
    MemoryNeed,
    per_record=st.integers(0, 10**10),
    largest=st.integers(0, 10**9),
    fixed=st.integers(0, 10**10),
    comfort=st.builds(Comfort, together=st.integers(1, 10**10), one_tensor=st.integers(1, 10**10)),
)


@given(need=need, limits=st.tuples(st.integers(1, 10**12), st.integers(1, 10**12)))
def test_more_memory_never_means_fewer_records(need: MemoryNeed, limits: tuple[int, int]) -> None:
    low, high = sorted(limits)
    assert 1 <= need.records_within(low) <= need.records_within(high) <= need.records_within(None)
    if low >= need.fixed + need.per_record:
        assert need.fixed + need.records_within(low) * need.per_record <= low


def test_a_limit_below_one_record_is_refused_with_the_least_that_works(refusal: Callable[..., str]) -> None:
    need = MemoryNeed(per_record=3_000_001, largest=10, fixed=2_000_000, comfort=CPU)
    sentence = refusal(lambda: need.check(1_500_000))
    assert "1.5 MB" in sentence
    assert "at least 6 MB" in sentence
    need.check(6_000_000)
    need.check(5_000_001)


def network() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Tanh(), nn.Flatten(), nn.Linear(64, 3))


@pytest.mark.parametrize("path", [FastPath, GeneralPath])
def test_the_need_is_measured_from_shapes(path: type) -> None:
    model = network()
    labels = torch.zeros(3, dtype=torch.int64)

    def measured(views: Tensor, count: int) -> MemoryNeed:
        return measure(path(model, mean_cross_entropy), model, views, labels, count=count)

    one = measured(torch.rand(3, 1, 1, 6, 6), 1)
    assert one == measured(torch.randn(3, 1, 1, 6, 6) * 1e3, 1)
    weights = sum(weight.numel() for weight in model.parameters())
    assert one.fixed == 8 * weights
    feature_maps = 4 * 4 * 16  # bytes of one layer's output
    assert one.per_record >= 2 * 3 * feature_maps
    many = measured(torch.rand(3, 2, 1, 6, 6), 8)
    assert many.per_record > 4 * (one.per_record - 4 * weights)


def test_the_result_does_not_depend_on_the_limit(flat: Callable[..., Tensor]) -> None:
    model = network()
    x, y = torch.rand(40, 2, 1, 6, 6), torch.randint(0, 3, (40,))
    free = ClippedGradients(model, clipping=FlatClip(0.1))
    whole = free.clipped_sum(x, y)
    taken = set()
    for limit in (20_000, 60_000, 200_000, 10**9):
        engine = ClippedGradients(model, clipping=FlatClip(0.1), memory=limit)
        parts = engine.clipped_sum(x, y)
        taken.add(engine.records_at_a_time())
        torch.testing.assert_close(flat(parts.gradients), flat(whole.gradients), rtol=0, atol=1e-6)
        assert (parts.clipped, parts.records) == (whole.clipped, whole.records)
        assert parts.loss == pytest.approx(whole.loss, rel=1e-5)
    assert min(taken) < 5 < max(taken)
    assert max(taken) == free.records_at_a_time()


def test_an_impossible_limit_is_refused_before_any_record_is_seen(refusal: Callable[..., str]) -> None:
    engine = ClippedGradients(network(), clipping=FlatClip(0.1), memory=100)
    assert "at least 1 MB" in refusal(lambda: engine.prepare(torch.rand(0, 1, 1, 6, 6)))
