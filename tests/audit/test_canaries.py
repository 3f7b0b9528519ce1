"""Canaries: what is inserted, where it points, and what is refused."""

import pytest
import torch

from hauberk.audit.canaries import GradientCanaries, RecordCanaries, fair_coins
from hauberk.data import Dataset
from hauberk.errors import RequestError

CPU = torch.device("cpu")


@pytest.fixture
def data() -> Dataset:
    generator = torch.Generator().manual_seed(0)
    return Dataset(
        name="toy",
        x=torch.rand(30, 5, generator=generator),
        y=torch.randint(0, 3, (30,), generator=generator),
        classes=3,
    )


def test_coins_are_fair_and_follow_the_seed() -> None:
    coins = fair_coins(10_000, seed=1)
    assert abs(int(coins.sum()) - 5000) < 250
    assert torch.equal(coins, fair_coins(10_000, seed=1))
    assert not torch.equal(coins, fair_coins(10_000, seed=2))


def test_mislabelled_canaries_are_known_records_with_other_labels(data: Dataset) -> None:
    canaries = RecordCanaries.mislabelled(data, count=30, seed=1)
    rows = [int((data.x == x).all(dim=1).nonzero()) for x in canaries.x]
    assert sorted(rows) == list(range(30))
    assert not bool((canaries.y == data.y[rows]).any())
    assert set(canaries.y.tolist()) <= {0, 1, 2}


def test_only_canaries_whose_coin_is_heads_are_inserted(data: Dataset) -> None:
    canaries = RecordCanaries.noise(data, count=6, seed=1)
    coins = torch.tensor([True, False, True, True, False, False])
    together = canaries.inserted(data, coins)
    assert len(together) == 33
    assert torch.equal(together.x[30:], canaries.x[coins])
    assert torch.equal(together.y[30:], canaries.y[coins])


def test_placeholders_do_not_know_the_coins(data: Dataset) -> None:
    together = GradientCanaries.axes(7).placeholders(data)
    assert len(together) == 37
    assert torch.equal(together.x[:30], data.x)
    assert not bool(together.x[30:].any())


def test_axes_are_different_coordinates() -> None:
    placed = GradientCanaries.axes(50, seed=3).placed(60, CPU)
    vector = torch.arange(60.0, dtype=torch.float64)
    assert len(set(placed.products(vector).tolist())) == 50
    total = placed.sum_of(torch.tensor([4, 9]), vector)
    assert total.sum() == 2
    assert total @ vector == placed.products(vector)[[4, 9]].sum()


def test_given_directions_have_length_one() -> None:
    placed = GradientCanaries.along(torch.tensor([[3.0, 4.0, 0.0], [0.0, 0.0, 2.0]])).placed(3, CPU)
    vector = torch.tensor([1.0, 1.0, 1.0], dtype=torch.float64)
    assert placed.products(vector).tolist() == pytest.approx([1.4, 1.0])
    assert placed.sum_of(torch.tensor([0, 1]), vector).tolist() == pytest.approx([0.6, 0.8, 1.0])
    assert GradientCanaries.along(torch.ones(3)).count == 1


def test_wrong_requests_are_refused_in_one_sentence(data: Dataset) -> None:
    wide = Dataset(name="wide", x=torch.rand(3, 9), y=torch.zeros(3, dtype=torch.int64), classes=3)
    for wrong in (
        lambda: RecordCanaries.mislabelled(data, count=31, seed=0),
        lambda: RecordCanaries.noise(data, count=0, seed=0),
        lambda: RecordCanaries.noise(wide, count=2, seed=0).inserted(data, torch.tensor([True, True])),
        lambda: GradientCanaries.axes(0),
        lambda: GradientCanaries.axes(61).placed(60, CPU),
        lambda: GradientCanaries.along(torch.zeros(3)),
        lambda: GradientCanaries.along(torch.ones(3)).placed(4, CPU),
    ):
        with pytest.raises(RequestError) as refusal:
            wrong()
        assert str(refusal.value).endswith(".")
        assert "\n" not in str(refusal.value)
