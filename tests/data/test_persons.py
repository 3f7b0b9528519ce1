"""Persons as records: nobody's part depends on anybody else."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hauberk.data.persons import ABSENT, PersonDataset, by_person, held_out

Refusal = Callable[[Callable[[], object]], str]
NAMES = st.text("abcdef", min_size=1, max_size=3)


def grouped(owners: list[str], *, most: int = 2) -> PersonDataset:
    x = torch.stack([_row_of(place) for place in range(len(owners))])
    return by_person(name="p", x=x, y=torch.arange(len(owners)) % 3, owners=owners, most=most, classes=3)


def _row_of(place: int) -> torch.Tensor:
    return torch.tensor([place / 1000, 1.0])


def test_a_person_has_its_first_records_and_padding() -> None:
    data = grouped(["b", "a", "b", "b", "c"])
    assert len(data) == 3
    assert data.shape == (2,)
    assert data.y.tolist() == [[1, ABSENT], [0, 2], [1, ABSENT]]
    assert data.x[1, :, 0].tolist() == pytest.approx([0.0, 0.002])
    assert data.x[0, 1].tolist() == [0.0, 0.0]
    assert data.most == 2


@given(st.lists(NAMES, min_size=1, max_size=12), NAMES)
def test_removing_a_person_changes_nobody_else(owners: list[str], gone: str) -> None:
    everybody = grouped(owners)
    kept = [place for place, owner in enumerate(owners) if owner != gone]
    if not kept:
        return
    others = by_person(
        name="p",
        x=torch.stack([_row_of(place) for place in kept]),
        y=torch.tensor(kept) % 3,
        owners=[owners[place] for place in kept],
        most=2,
        classes=3,
    )
    rows = [row for row, owner in enumerate(sorted(set(owners))) if owner != gone]
    assert torch.equal(everybody.x[rows], others.x)
    assert torch.equal(everybody.y[rows], others.y)
    assert len(everybody) - len(others) == (gone in owners)  # one record, whatever number of images


@given(NAMES, st.floats(0.01, 0.9), st.floats(0.01, 0.9))
def test_a_larger_share_keeps_those_held_out_before(name: str, one: float, other: float) -> None:
    smaller, larger = sorted((one, other))
    assert held_out(name, smaller) <= held_out(name, larger)


def test_about_the_share_is_held_out() -> None:
    count = sum(held_out(f"person {number}", 0.2) for number in range(10_000))
    assert 1_800 < count < 2_200


def test_the_first_persons_and_another_device() -> None:
    data = grouped(["a", "b", "c"])
    assert isinstance(data.first(2), PersonDataset)
    assert len(data.first(2)) == 2
    assert data.to("cpu").shape == (2,)


def test_what_are_no_persons(refusal: Refusal) -> None:
    data = grouped(["a", "b"])
    assert "int64 labels (persons, most)" in refusal(lambda: replace(data, y=data.y[:, 0]))
    assert "has no image at all" in refusal(lambda: replace(data, y=torch.full_like(data.y, ABSENT)))
    assert "labels outside -1 to 2" in refusal(lambda: replace(data, y=data.y + 3))
    assert "must lie in [0, 1]" in refusal(lambda: replace(data, x=data.x + 1))
    assert "--max-per-unit must be" in refusal(lambda: grouped(["a"], most=0))
