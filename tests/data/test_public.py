"""Public records are kept apart from the private ones, and every doubtful declaration is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hauberk.data import Dataset, Split, declare_public, default_public, describe_public, load
from hauberk.data.named import NAMED_SETS
from hauberk.data.public import share_records

ROWS, CLASSES = 24, 3
Refusal = Callable[[Callable[[], object]], str]


def numbered(name: str, rows: int, *, start: int = 0) -> Dataset:
    """Record i has the value i / 1000 everywhere, so that every record is known by its value."""
    numbers = torch.arange(start, start + rows)
    x = (numbers / 1000).repeat_interleave(6).reshape(rows, 1, 2, 3)
    return Dataset(name=name, x=x, y=numbers % CLASSES, classes=CLASSES)


def private_set(*, records: int = ROWS, rows: int = ROWS) -> Split:
    return Split(
        name="clinic",
        train=numbered("clinic", rows),
        test=numbered("clinic", 4, start=500),
        records=records,
        classes=CLASSES,
        public_note="Test data are not protected.",
    )


def saved(path: Path, rows: int = ROWS, **arrays: Any) -> str:
    fields: dict[str, Any] = {
        "x": np.arange(rows * 6, dtype=np.float64).reshape(rows, 2, 3) / 1000,
        "y": np.arange(rows) % CLASSES,
    }
    np.savez(path, **(fields | arrays))
    return str(path)


@lru_cache(maxsize=1)
def digits() -> Split:
    return load("digits")


def same(one: Dataset, other: Dataset) -> bool:
    return torch.equal(one.x, other.x) and torch.equal(one.y, other.y) and one.classes == other.classes


# --- a split with a public part ---


def test_nothing_is_public_unless_declared() -> None:
    assert digits().public is None
    assert private_set().public is None


def test_a_changed_split_keeps_its_public_part() -> None:
    public = numbered("hospital", 5, start=100)
    split = replace(private_set(), public=public)
    assert replace(split, records=7).public is public
    assert replace(split, test=split.test.first(1)).public is public


# (what is wrong, public part, part of the sentence)
BAD_PARTS = [
    (
        "shape",
        Dataset(name="tables", x=torch.zeros(5, 7), y=torch.zeros(5, dtype=torch.int64), classes=CLASSES),
        "public records of 'tables' have shape (7,), but training records of data set 'clinic' have (1, 2",
    ),
    (
        "classes",
        replace(numbered("hospital", 5), classes=CLASSES + 1),
        "public records of 'hospital' have 4 classes, but data set 'clinic' declares 3",
    ),
]


@pytest.mark.parametrize(
    ("public", "part"), [row[1:] for row in BAD_PARTS], ids=[row[0] for row in BAD_PARTS]
)
def test_a_public_part_of_another_kind_is_refused(public: Dataset, part: str, refusal: Refusal) -> None:
    assert part in refusal(lambda: replace(private_set(), public=public))


# --- first:N ---


@given(count=st.integers(1, ROWS - 1), records=st.integers(ROWS, 5 * ROWS))
def test_the_cut_parts_the_training_records(count: int, records: int) -> None:
    before = private_set(records=records)
    after = declare_public(before, f"first:{count}")
    assert after.public is not None
    assert torch.equal(torch.cat([after.public.x, after.train.x]), before.train.x)
    assert torch.equal(torch.cat([after.public.y, after.train.y]), before.train.y)
    assert len(after.public) == count
    assert after.records == records - count  # from the declared number, not from the realised one
    assert (after.name, after.classes, after.public_note) == (before.name, before.classes, before.public_note)
    assert after.test is before.test


def test_the_private_set_that_was_cut_is_left_alone() -> None:
    before = private_set()
    declare_public(before, "first:9")
    assert (len(before.train), before.records, before.public) == (ROWS, ROWS, None)


@pytest.mark.parametrize("removed", [10, 15, ROWS - 1])
def test_a_private_record_that_goes_does_not_move_the_cut(removed: int, tmp_path: Path) -> None:
    """Neighbours after the cut: one public part, and private parts that differ in the one record."""
    kept = np.arange(ROWS) != removed
    x, y = np.arange(ROWS * 6).reshape(ROWS, 6) / 1000, np.arange(ROWS) % CLASSES
    test = {"x_test": x[:1], "y_test": y[:1]}
    whole = load(saved(tmp_path / "a.npz", x=x, y=y, **test), records=ROWS, classes=CLASSES)
    less = load(saved(tmp_path / "b.npz", x=x[kept], y=y[kept], **test), records=ROWS, classes=CLASSES)
    whole, less = declare_public(whole, "first:10"), declare_public(less, "first:10")
    assert whole.public is not None
    assert less.public is not None
    assert same(whole.public, less.public)
    assert torch.equal(less.train.x, whole.train.x[torch.from_numpy(kept[10:])])
    assert less.records == whole.records == ROWS - 10


def test_rows_held_out_for_testing_are_not_counted(tmp_path: Path) -> None:
    split = declare_public(load(saved(tmp_path / "own.npz"), records=20, classes=CLASSES), "first:10")
    assert split.public is not None
    rows = [round(float(value) * 1000) // 6 for value in split.public.x[:, 0, 0, 0]]
    assert rows == [1, 2, 3, 4, 5, 6, 7, 8, 9, 11]
    assert split.records == 10


BAD_CUTS = ["", "0", "00", "-3", "+3", "1.5", "1e3", "ten", " 5", "5 ", "5\n", "1_0", "٣", "3:4", "9" * 5_000]


@pytest.mark.parametrize("number", BAD_CUTS, ids=[repr(number)[:12] for number in BAD_CUTS])
def test_a_cut_wants_a_whole_number(number: str, refusal: Refusal) -> None:
    assert "first:N with a whole number N" in refusal(
        lambda: declare_public(private_set(), f"first:{number}")
    )


# (declared, realised, cut)
NOTHING_LEFT = [
    (ROWS, ROWS, ROWS),
    (ROWS, ROWS, ROWS + 1),
    (10, ROWS, 10),
    (100, ROWS, ROWS),
    (ROWS, ROWS, 10**17),
]


@pytest.mark.parametrize(("records", "rows", "count"), NOTHING_LEFT)
def test_a_cut_leaves_private_records(records: int, rows: int, count: int, refusal: Refusal) -> None:
    split = private_set(records=records, rows=rows)
    message = refusal(lambda: declare_public(split, f"first:{count}"))
    assert message.startswith(f"first:{count} leaves no private records")
    assert f"{records} are declared" in message


# --- another data set ---


def test_the_built_in_digits_as_public_data(no_data: Path) -> None:
    mnist_like = digits().train.first(50)
    before = Split(
        name="clinic", train=mnist_like, test=mnist_like, records=50, classes=10, public_note="A note."
    )
    after = declare_public(before, "digits")
    assert after.public is not None
    assert same(after.public, digits().train)
    assert after.train is before.train
    assert (after.records, after.public_note) == (50, "A note.")


def test_a_named_set_is_looked_for_in_the_data_folder(tmp_path: Path, refusal: Refusal) -> None:
    message = refusal(lambda: declare_public(digits(), "fashion_mnist", data_dir=tmp_path))
    assert str(tmp_path / "fashion_mnist") in message


def test_a_named_set_of_another_kind(refusal: Refusal) -> None:
    assert "choose public data of the same shape" in refusal(lambda: declare_public(private_set(), "digits"))


# (private set, public set, part of the sentence)
SHARED_RECORDS = [
    ("digits", "digits", "'digits' is the private data set itself"),
    ("mnist", "mnist", "'mnist' is the private data set itself"),
    ("digits", "mnist", "the private data set 'digits' was taken from 'mnist'"),
    ("mnist", "digits", "'digits' was taken from the private data set 'mnist'"),
]


@pytest.mark.parametrize(("private", "public", "part"), SHARED_RECORDS)
def test_the_private_records_are_not_public(
    private: str, public: str, part: str, no_data: Path, refusal: Refusal
) -> None:
    message = refusal(lambda: declare_public(replace(private_set(), name=private), public))
    assert part in message
    assert "give first:N" in message


def test_every_set_that_is_part_of_another_names_one() -> None:
    assert NAMED_SETS["digits"].part_of == "mnist"
    assert {each.part_of for each in NAMED_SETS.values()} - {None} <= set(NAMED_SETS)


# --- an archive ---


def test_an_archive_as_public_data(tmp_path: Path) -> None:
    """Neither records nor classes need to be declared in it; without test arrays a tenth is held out."""
    before, path = private_set(), saved(tmp_path / "hospital.npz")
    after = declare_public(before, path)
    assert after.public is not None
    assert same(after.public, load(path, records=99, classes=CLASSES).train)
    assert len(after.public) == ROWS - 3
    assert after.train is before.train
    assert (after.records, after.public_note) == (before.records, before.public_note)


def test_an_archive_with_test_data_is_public_in_all_its_training_rows(tmp_path: Path) -> None:
    test = {"x_test": np.zeros((2, 2, 3)), "y_test": np.zeros(2, dtype=int)}
    after = declare_public(private_set(), saved(tmp_path / "hospital.npz", **test))
    assert after.public is not None
    assert len(after.public) == ROWS


# (what is wrong, arrays, part of the sentence)
BAD_ARCHIVES: list[tuple[str, dict[str, Any], str]] = [
    ("shape", {"x": np.zeros((ROWS, 7))}, "choose public data of the same shape"),
    ("labels", {"y": np.full(ROWS, CLASSES)}, "holds the label 3 in row 0"),
    ("values", {"x": np.full((ROWS, 2, 3), 2.0)}, "must lie in [0, 1]"),
    ("lengths", {"y": np.zeros(ROWS - 1, dtype=int)}, "has no partner"),
    ("objects", {"x": np.full((ROWS, 2, 3), None)}, "pickles are never loaded"),
]


@pytest.mark.parametrize(
    ("arrays", "part"), [row[1:] for row in BAD_ARCHIVES], ids=[row[0] for row in BAD_ARCHIVES]
)
def test_a_bad_archive(arrays: dict[str, Any], part: str, tmp_path: Path, refusal: Refusal) -> None:
    path = saved(tmp_path / "hospital.npz", **arrays)
    assert part in refusal(lambda: declare_public(private_set(), path))


def test_an_archive_that_is_missing_or_damaged(tmp_path: Path, refusal: Refusal) -> None:
    assert "cannot open" in refusal(lambda: declare_public(private_set(), str(tmp_path / "none.npz")))
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 and then nothing")
    assert "cannot read" in refusal(lambda: declare_public(private_set(), str(tmp_path / "broken.npz")))


def test_the_private_archive_is_not_public(tmp_path: Path, refusal: Refusal) -> None:
    path = saved(tmp_path / "clinic.npz")
    split = load(path, records=ROWS, classes=CLASSES)
    message = refusal(lambda: declare_public(split, path))
    assert path in message
    assert "give first:N" in message


# --- other requests ---


@pytest.mark.parametrize(
    "source", ["", "minst", "first", "First:3", "5", "notes.txt", ".", "a\nb", "m" * 5_000]
)
def test_a_source_that_does_not_exist(source: str, refusal: Refusal) -> None:
    message = refusal(lambda: declare_public(private_set(), source))
    assert message.startswith(f"there is no public data {source!r}; give first:N")
    assert "fashion_mnist" in message


@pytest.mark.parametrize("source", ["first:2", "digits", "hospital.npz"])
def test_public_records_are_declared_once(source: str, refusal: Refusal) -> None:
    split = declare_public(private_set(), "first:3")
    assert "has public records already" in refusal(lambda: declare_public(split, source))


# --- defaults ---


def test_the_default_of_every_named_set() -> None:
    assert {name: default_public(name) for name in NAMED_SETS} == {
        "digits": "first:4000",
        "mnist": "first:10000",
        "fashion_mnist": "first:10000",
        "cifar10": "first:10000",
        "tiny_imagenet": None,
        "adult": None,
    }


@pytest.mark.parametrize("name", ["clinic.npz", "", "minst"])
def test_the_users_own_data_have_no_default(name: str) -> None:
    assert default_public(name) is None


def test_the_default_of_digits_can_be_declared() -> None:
    source = default_public("digits")
    assert source is not None
    split = declare_public(digits(), source)
    assert split.public is not None
    assert (len(split.public), len(split.train), split.records) == (4_000, 16_000, 16_000)
    assert len(torch.unique(split.public.y)) == len(torch.unique(split.train.y)) == 10


def test_the_default_of_mnist_can_be_declared(shared_data: Path) -> None:
    if NAMED_SETS["mnist"].find(shared_data) is None:
        pytest.skip("the data folder has no mnist")
    source = default_public("mnist")
    assert source is not None
    split = declare_public(load("mnist", data_dir=shared_data), source)
    assert split.public is not None
    assert len(split.public) == 10_000
    assert len(split.train) == split.records == 50_000
    assert len(torch.unique(split.public.y)) == 10


def test_fashion_as_public_data_for_digits(shared_data: Path) -> None:
    if NAMED_SETS["fashion_mnist"].find(shared_data) is None:
        pytest.skip("the data folder has no fashion_mnist")
    split = declare_public(digits(), "fashion_mnist", data_dir=shared_data)
    assert split.public is not None
    assert (len(split.public), split.public.name) == (60_000, "fashion_mnist")
    assert (len(split.train), split.records) == (20_000, 20_000)


# --- the sentence of the card ---


def test_the_sentence_about_a_cut() -> None:
    split = declare_public(private_set(records=5_000), "first:20")
    assert describe_public("first:20", split) == (
        "Public: the first 20 training records of clinic, declared public and not protected; "
        "the privacy statement is about the other 4,980."
    )


def test_the_sentence_about_a_named_set() -> None:
    split = replace(private_set(), public=numbered("fashion_mnist", 5))
    assert describe_public("fashion_mnist", split) == (
        "Public: 5 training records of fashion_mnist, declared public and not protected; "
        "the privacy statement is about the 24 training records of clinic."
    )


def test_the_sentence_about_an_archive_tells_no_folder(tmp_path: Path) -> None:
    path = saved(tmp_path / "hospital.npz", rows=2)
    sentence = describe_public(path, declare_public(private_set(), path))
    assert sentence.startswith("Public: 1 training record of hospital.npz,")
    assert str(tmp_path) not in sentence


def test_there_is_no_sentence_about_nothing(refusal: Refusal) -> None:
    assert "has no public records" in refusal(lambda: describe_public("first:3", private_set()))


def test_which_sets_share_records() -> None:
    assert share_records("mnist", "mnist")
    assert share_records("digits", "mnist")
    assert share_records("mnist", "digits")
    assert not share_records("mnist", "fashion_mnist")
    assert not share_records("mine", "mnist")
    assert share_records("mine", "mine")
