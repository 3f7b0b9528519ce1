"""A Dataset or Split that exists is valid; everything else is refused in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest
import torch

from hauberk.data import Dataset, Split

GOOD = Dataset(name="good", x=torch.rand(6, 1, 4, 5), y=torch.arange(6) % 3, classes=3)


def with_value(value: float) -> torch.Tensor:
    x = torch.full((6, 2), 0.5)
    x[4, 1] = value
    return x


def test_what_a_dataset_offers() -> None:
    assert len(GOOD) == 6
    assert GOOD.shape == (1, 4, 5)
    assert len(GOOD.first(4)) == 4
    assert torch.equal(GOOD.first(4).x, GOOD.x[:4])
    assert len(GOOD.first(100)) == 6
    assert GOOD.to("cpu").x.device.type == "cpu"
    with pytest.raises(FrozenInstanceError):
        GOOD.name = "other"  # type: ignore[misc]


# (what is wrong, changed fields, part of the sentence)
BAD_SETS: list[tuple[str, dict[str, Any], str]] = [
    ("NaN", {"x": with_value(float("nan"))}, "NaN in row 4"),
    ("infinite", {"x": with_value(float("inf"))}, "infinite value in row 4"),
    ("minus infinite", {"x": with_value(float("-inf"))}, "infinite value in row 4"),
    ("above one", {"x": with_value(1.5)}, "the value 1.5 in row 4"),
    ("below zero", {"x": with_value(-0.25)}, "the value -0.25 in row 4"),
    ("double precision", {"x": with_value(0.5).double()}, "type float64"),
    ("raw bytes", {"x": torch.zeros(6, 2, dtype=torch.uint8)}, "type uint8"),
    ("one axis", {"x": torch.zeros(6)}, "shape (6,)"),
    ("no channel axis", {"x": torch.zeros(6, 4, 4)}, "shape (6, 4, 4)"),
    ("empty", {"x": torch.zeros(0, 2), "y": torch.zeros(0, dtype=torch.int64)}, "is empty"),
    ("records without values", {"x": torch.zeros(6, 0)}, "hold no values"),
    ("label too large", {"y": torch.tensor([0, 1, 2, 3, 0, 9])}, "the label 3 in row 3"),
    ("label negative", {"y": torch.tensor([0, 1, -1, 0, 0, 0])}, "the label -1 in row 2"),
    ("float labels", {"y": torch.zeros(6)}, "type float32"),
    ("one-hot labels", {"y": torch.zeros(6, 3, dtype=torch.int64)}, "shape (6, 3)"),
    ("no labels", {"y": torch.zeros(0, dtype=torch.int64)}, "'y' of data set 'good' is empty"),
    ("missing labels", {"y": torch.zeros(5, dtype=torch.int64)}, "row 5 has no partner"),
    ("one class", {"classes": 1}, "at least 2"),
    ("classes as a float", {"classes": 3.0}, "whole number"),
]


@pytest.mark.parametrize(("fields", "part"), [row[1:] for row in BAD_SETS], ids=[row[0] for row in BAD_SETS])
def test_a_bad_set_is_refused(
    fields: dict[str, Any], part: str, refusal: Callable[[Callable[[], object]], str]
) -> None:
    message = refusal(lambda: replace(GOOD, **fields))
    assert "'good'" in message
    assert part in message


BAD_SPLITS: list[tuple[str, dict[str, Any], str]] = [
    ("no records", {"records": 0}, "at least 1"),
    ("records as a truth value", {"records": True}, "whole number"),
    ("other test shape", {"test": replace(GOOD, x=torch.zeros(6, 7))}, "(1, 4, 5) and test records (7,)"),
    ("other test classes", {"test": replace(GOOD, classes=4)}, "its test part 4"),
]


@pytest.mark.parametrize(
    ("fields", "part"), [row[1:] for row in BAD_SPLITS], ids=[row[0] for row in BAD_SPLITS]
)
def test_a_bad_split_is_refused(
    fields: dict[str, Any], part: str, refusal: Callable[[Callable[[], object]], str]
) -> None:
    split = Split(name="good", train=GOOD, test=GOOD, records=6, classes=3)
    assert part in refusal(lambda: replace(split, **fields))


def test_first_wants_a_positive_number(refusal: Callable[[Callable[[], object]], str]) -> None:
    assert "at least 1" in refusal(lambda: GOOD.first(0))


def test_declared_records_need_not_be_the_realised_number() -> None:
    assert Split(name="good", train=GOOD, test=GOOD, records=5_000, classes=3).records == 5_000


def test_held_out_records_stand_in_for_the_test_records() -> None:
    whole = Split(name="good", train=GOOD, test=GOOD.first(2), records=6, classes=3)
    split = whole.held_out(2)
    assert torch.equal(split.train.x, GOOD.x[:4])
    assert torch.equal(split.train.y, GOOD.y[:4])
    assert torch.equal(split.test.x, GOOD.x[4:])
    assert torch.equal(split.test.y, GOOD.y[4:])
    assert (split.records, split.classes) == (4, 3)


@pytest.mark.parametrize(("count", "part"), [(0, "at least 1"), (6, "leaves none"), (700, "leaves none")])
def test_holding_out_nothing_or_everything_is_refused(
    count: int, part: str, refusal: Callable[[Callable[[], object]], str]
) -> None:
    whole = Split(name="good", train=GOOD, test=GOOD.first(2), records=6, classes=3)
    assert part in refusal(lambda: whole.held_out(count))
