"""A user's own archive: what is accepted, how it is read, and every way in which it can be wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hauberk.data import load

ROWS = 20
X = np.linspace(0, 1, ROWS * 6, dtype=np.float64).reshape(ROWS, 6)
Y = np.arange(ROWS) % 2
Refusal = Callable[[Callable[[], object]], str]


def saved(folder: Path, **arrays: Any) -> str:
    path = folder / "clinic.npz"
    np.savez(path, **arrays)
    return str(path)


def test_every_tenth_row_is_held_out(tmp_path: Path) -> None:
    split = load(saved(tmp_path, x=X, y=Y), records=5_000, classes=2)
    assert (split.name, split.records, split.classes) == ("clinic", 5_000, 2)
    held_out = np.arange(ROWS) % 10 == 0
    assert torch.equal(split.train.x, torch.tensor(X[~held_out], dtype=torch.float32))
    assert torch.equal(split.test.x, torch.tensor(X[held_out], dtype=torch.float32))
    assert torch.equal(split.train.y, torch.tensor(Y[~held_out]))
    assert split.public_note is not None
    assert "held out" in split.public_note
    assert "not protected" in split.public_note


def test_given_test_data_are_used(tmp_path: Path) -> None:
    split = load(saved(tmp_path, x=X, y=Y, x_test=X[:3], y_test=Y[:3]), records=20, classes=2)
    assert (len(split.train), len(split.test)) == (ROWS, 3)
    assert split.public_note is not None
    assert "held out" not in split.public_note
    assert "not protected" in split.public_note


def test_constants_may_be_declared_in_the_file_and_the_caller_overrules_it(tmp_path: Path) -> None:
    path = saved(tmp_path, x=X, y=Y, records=np.array(700), classes=np.array([3]))
    assert (load(path).records, load(path).classes) == (700, 3)
    split = load(path, records=800, classes=2)
    assert (split.records, split.classes) == (800, 2)


# (saved shape, shape of one record)
SHAPES = [
    ((ROWS, 6), (6,)),
    ((ROWS, 8, 9), (1, 8, 9)),
    ((ROWS, 8, 9, 1), (1, 8, 9)),
    ((ROWS, 8, 9, 3), (3, 8, 9)),
    ((ROWS, 1, 8, 9), (1, 8, 9)),
    ((ROWS, 3, 8, 9), (3, 8, 9)),
    ((ROWS, 5, 8, 9), (5, 8, 9)),
    ((ROWS, 3, 8, 3), (3, 3, 8)),  # the last axis wins
]


@pytest.mark.parametrize(("shape", "record"), SHAPES)
def test_the_rule_for_channels(tmp_path: Path, shape: tuple[int, ...], record: tuple[int, ...]) -> None:
    x = np.arange(np.prod(shape), dtype=np.uint32).reshape(shape).astype(np.uint8)
    split = load(saved(tmp_path, x=x, y=Y, x_test=x, y_test=Y), records=20, classes=2)
    assert split.train.shape == record
    expected = np.moveaxis(x, -1, 1) if len(shape) == 4 and shape[-1] in (1, 3) else x.reshape(ROWS, *record)
    assert torch.equal(split.train.x, torch.from_numpy(expected.astype(np.float32)) / 255)


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "float64", ">f4", "longdouble"])
def test_types_of_inputs(tmp_path: Path, dtype: str) -> None:
    x = np.zeros((ROWS, 6), dtype=dtype)
    x[:, 0] = 255 if dtype == "uint8" else 1
    split = load(saved(tmp_path, x=x, y=Y), records=20, classes=2)
    assert split.train.x.dtype == torch.float32
    assert split.train.x.sum() == len(split.train)


@pytest.mark.parametrize("dtype", ["uint8", "int32", ">i8", "uint64", "bool", "float16", "float64"])
def test_types_of_labels(tmp_path: Path, dtype: str) -> None:
    split = load(saved(tmp_path, x=X, y=Y.astype(dtype)), records=20, classes=2)
    assert split.train.y.tolist() == [label for row, label in enumerate(Y) if row % 10]


def test_arrays_that_are_not_asked_for_do_no_harm(tmp_path: Path) -> None:
    names = np.array(["age", None], dtype=object)
    assert len(load(saved(tmp_path, x=X, y=Y, names=names), records=20, classes=2).train) == 18


def changed(array: np.ndarray, row: int, value: float) -> np.ndarray:
    copy = array.copy()
    copy[row] = value
    return copy


# (what is wrong, arrays to save, part of the sentence)
BAD: list[tuple[str, dict[str, Any], str]] = [
    ("NaN", {"x": changed(X, 7, np.nan), "y": Y}, "array 'x' of {path} holds NaN in row 7"),
    ("infinite", {"x": changed(X, 7, np.inf), "y": Y}, "infinite value in row 7"),
    ("infinite in float32", {"x": changed(X, 7, 1e300), "y": Y}, "infinite value in row 7"),
    ("not scaled", {"x": X * 200, "y": Y}, "not by the data's own minimum and maximum"),
    ("negative", {"x": changed(X, 7, -0.1), "y": Y}, "the value -0.1 in row 7"),
    ("integers", {"x": (X * 9).astype("int64"), "y": Y}, "has type int64"),
    ("text", {"x": X.astype(str), "y": Y}, "has type <U"),
    ("complex", {"x": X.astype(complex), "y": Y}, "has type complex128"),
    ("dates", {"x": np.zeros((ROWS, 2), "datetime64[s]"), "y": Y}, "has type datetime64"),
    ("objects", {"x": X.astype(object), "y": Y}, "pickles are never loaded"),
    ("one axis", {"x": X[:, 0], "y": Y}, "has shape (20,)"),
    ("no axis", {"x": np.array(0.5), "y": Y}, "has shape ()"),
    ("five axes", {"x": np.zeros((ROWS, 1, 2, 2, 2)), "y": Y}, "has shape (20, 1, 2, 2, 2)"),
    ("four channels last", {"x": np.zeros((ROWS, 8, 8, 4)), "y": Y}, "channels cannot be told"),
    ("empty", {"x": X[:0], "y": Y[:0]}, "array 'x' of {path} is empty"),
    ("records without values", {"x": X[:, :0], "y": Y}, "hold no values"),
    ("one record", {"x": X[:1], "y": Y[:1]}, "one record"),
    ("label too large", {"x": X, "y": changed(Y, 3, 2)}, "array 'y' of {path} holds the label 2 in row 3"),
    ("label negative", {"x": X, "y": changed(Y, 3, -1)}, "the label -1 in row 3"),
    ("label not whole", {"x": X, "y": changed(Y * 1.0, 3, 0.5)}, "the label 0.5 in row 3"),
    ("label NaN", {"x": X, "y": changed(Y * 1.0, 3, np.nan)}, "the label nan in row 3"),
    ("label infinite", {"x": X, "y": changed(Y * 1.0, 3, np.inf)}, "the label inf in row 3"),
    ("label is text", {"x": X, "y": np.array(["ill"] * ROWS)}, "has type <U3"),
    ("one-hot labels", {"x": X, "y": np.eye(2)[Y]}, "shape (20, 2)"),
    ("broken one-hot labels", {"x": X, "y": np.full((ROWS, 2), 0.5)}, "the label 0.5 in row 0"),
    ("label is a scalar", {"x": X, "y": np.array(1)}, "shape ()"),
    ("label is half a scalar", {"x": X, "y": np.array(0.5)}, "the label 0.5 in row 0"),
    ("mismatched lengths", {"x": X, "y": Y[:-1]}, "row 19 has no partner"),
    ("x missing", {"X": X, "y": Y}, "no array 'x', it holds X, y"),
    ("y missing", {"x": X}, "no array 'y', it holds x"),
    ("nothing", {}, "it holds nothing"),
    ("x_test alone", {"x": X, "y": Y, "x_test": X}, "only one of 'x_test' and 'y_test'"),
    ("y_test alone", {"x": X, "y": Y, "y_test": Y}, "only one of 'x_test' and 'y_test'"),
    ("test shape", {"x": X, "y": Y, "x_test": X[:, :5], "y_test": Y}, "(6,) and those of 'x_test' (5,)"),
    ("test NaN", {"x": X, "y": Y, "x_test": X * np.nan, "y_test": Y}, "array 'x_test' of {path} holds NaN"),
    ("test label", {"x": X, "y": Y, "x_test": X, "y_test": Y + 1}, "array 'y_test' of {path} holds"),
    ("test empty", {"x": X, "y": Y, "x_test": X[:0], "y_test": Y[:0]}, "array 'x_test' of {path} is empty"),
]


@pytest.mark.parametrize(("arrays", "part"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_bad_data_are_refused(tmp_path: Path, arrays: dict[str, Any], part: str, refusal: Refusal) -> None:
    path = saved(tmp_path, **arrays)
    message = refusal(lambda: load(path, records=20, classes=2))
    assert path in message
    assert part.format(path=path) in message


# (what is wrong, arguments, scalar arrays, part of the sentence)
BAD_CONSTANTS: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("no records", {"classes": 2}, {}, "pass --records"),
    ("no classes", {"records": 20}, {}, "pass --classes"),
    ("zero records", {"records": 0, "classes": 2}, {}, "--records must be a whole number of at least 1"),
    ("negative records", {"records": -3, "classes": 2}, {}, "--records must be"),
    ("one class", {"records": 20, "classes": 1}, {}, "--classes must be a whole number of at least 2"),
    ("fraction in the file", {"classes": 2}, {"records": 1.5}, "array 'records' of {path} must be"),
    ("text in the file", {"records": 20}, {"classes": "two"}, "array 'classes' of {path} must be"),
    ("list in the file", {"classes": 2}, {"records": [1, 2]}, "array 'records' of {path} must be"),
    ("truth in the file", {"classes": 2}, {"records": True}, "array 'records' of {path} must be"),
]


@pytest.mark.parametrize(
    ("arguments", "scalars", "part"),
    [row[1:] for row in BAD_CONSTANTS],
    ids=[row[0] for row in BAD_CONSTANTS],
)
def test_constants_must_be_declared(
    tmp_path: Path, arguments: dict[str, Any], scalars: dict[str, Any], part: str, refusal: Refusal
) -> None:
    path = saved(tmp_path, x=X, y=Y, **scalars)
    assert part.format(path=path) in refusal(lambda: load(path, **arguments))


def test_why_constants_are_declared(tmp_path: Path, refusal: Refusal) -> None:
    path = saved(tmp_path, x=X, y=Y)
    assert "counted from private data would not be public" in refusal(lambda: load(path, classes=2))
