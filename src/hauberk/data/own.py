"""A user's own data: a numpy archive (``.npz``) with ``x`` and ``y``, optionally ``x_test`` and ``y_test``.

Axes. (N, d) is a table. (N, H, W) are grey images. Of four axes the last is the channels if its length is
1 or 3 (channels last, as pictures are usually stored); otherwise the second is, (N, C, H, W), and then C must
not exceed H or W, because such an array is more likely channels last with an unusual number of channels.

Values. 8-bit values are divided by the public constant 255. Floats must lie in [0, 1] already: scaling by the
data's own minimum and maximum would release them.

Constants. The number of training records and of classes are *declared*, by the caller or by scalar arrays
``records`` and ``classes`` in the archive: counted from private data they would not be public.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from hauberk.data.dataset import Dataset, Split
from hauberk.data.integrity import read_arrays
from hauberk.data.raw import Array, scaled
from hauberk.data.validation import (
    SCALING_ADVICE,
    check_count,
    check_inputs,
    check_labels,
    check_lengths,
)
from hauberk.errors import RequestError

HELD_OUT_EVERY = 10

_TEST_NOTE = "Test data are not protected: accuracies and pictures in a report show them."
_HELD_OUT_NOTE = (
    f"Rows 0, {HELD_OUT_EVERY}, {2 * HELD_OUT_EVERY}, ... of the file were held out as test data; "
    "the guarantee is about adding or removing one of the other rows, with the held-out rows fixed."
)
_LARGEST_EXACT_FLOAT = 2.0**53


def load_own(path: Path, *, records: int | None, classes: int | None) -> Split:
    """The archive at ``path`` as a checked split; without test arrays every tenth row becomes test data."""
    arrays = read_arrays(path, required=("x", "y"), optional=("x_test", "y_test", "records", "classes"))
    if ("x_test" in arrays) != ("y_test" in arrays):
        raise RequestError(f"{path} has only one of 'x_test' and 'y_test'; save both or neither.")
    records = _declared("records", records, arrays, path=path, at_least=1)
    classes = _declared("classes", classes, arrays, path=path, at_least=2)

    x, y = _records(arrays, "x", "y", classes=classes, path=path)
    if "x_test" in arrays:
        note = _TEST_NOTE
        x_test, y_test = _records(arrays, "x_test", "y_test", classes=classes, path=path)
        if x.shape[1:] != x_test.shape[1:]:
            raise RequestError(
                f"records of array 'x' of {path} have shape {tuple(x.shape[1:])} and those of 'x_test' "
                f"{tuple(x_test.shape[1:])}; save both in the same shape."
            )
    else:
        if len(x) < 2:
            raise RequestError(
                f"{path} has one record and none for testing; give more, or x_test and y_test."
            )
        note = f"{_HELD_OUT_NOTE} {_TEST_NOTE}"
        held_out = torch.arange(len(x)) % HELD_OUT_EVERY == 0
        x, y, x_test, y_test = x[~held_out], y[~held_out], x[held_out], y[held_out]
    name = path.stem
    return Split(
        name=name,
        train=Dataset(name=name, x=x, y=y, classes=classes),
        test=Dataset(name=name, x=x_test, y=y_test, classes=classes),
        records=records,
        classes=classes,
        public_note=note,
    )


def _declared(
    what: str, argument: int | None, arrays: Mapping[str, Array], *, path: Path, at_least: int
) -> int:
    """The public constant, from the caller first and from the archive second, never counted."""
    if argument is not None:
        return check_count(argument, at_least=at_least, named=f"--{what}")
    if what not in arrays:
        meaning = {"records": "training records", "classes": "classes"}[what]
        raise RequestError(
            f"the number of {meaning} of {path} is not declared; pass --{what}, or save a scalar array "
            f"'{what}' in the file, because a number counted from private data would not be public."
        )
    array = arrays[what]
    value = array.item() if array.size == 1 else array.shape
    return check_count(value, at_least=at_least, named=f"array '{what}' of {path}")


def _records(
    arrays: Mapping[str, Array], x_name: str, y_name: str, *, classes: int, path: Path
) -> tuple[torch.Tensor, torch.Tensor]:
    named_x, named_y = f"array '{x_name}' of {path}", f"array '{y_name}' of {path}"
    x = scaled_inputs(arrays[x_name], named=named_x)
    y = _labels(arrays[y_name], named=named_y)
    check_inputs(x, named=named_x)
    check_labels(y, classes=classes, named=named_y)
    check_lengths(x, y, named_x=named_x, named_y=named_y)
    return x, y


def scaled_inputs(array: Array, *, named: str) -> torch.Tensor:
    if array.dtype != np.uint8 and array.dtype.kind != "f":
        raise RequestError(
            f"{named} has type {array.dtype}, but inputs must be 8-bit values (uint8, 0 to 255) or floats in "
            f"[0, 1]; convert it, and if it must shrink, {SCALING_ADVICE}."
        )
    return scaled(_channels_first(array, named=named))


def _channels_first(array: Array, *, named: str) -> Array:
    """The rule of the module's docstring."""
    if array.ndim == 2:
        return array
    if array.ndim == 3:
        return array[:, None]
    if array.ndim != 4:
        raise RequestError(
            f"{named} has shape {array.shape}, but inputs must be a table (N, d) or images (N, H, W), "
            "(N, H, W, C) or (N, C, H, W); reshape it."
        )
    _, second, third, last = array.shape
    if last in (1, 3):
        return array.transpose(0, 3, 1, 2)
    if second > min(third, last):
        raise RequestError(
            f"{named} has shape {array.shape}, in which the channels cannot be told; images with other than "
            "1 or 3 channels must be saved channels first, as (N, C, H, W)."
        )
    return array


def _labels(array: Array, *, named: str) -> torch.Tensor:
    """Whole numbers as int64; floats pass if every one of them is whole."""
    if array.dtype.kind == "f":
        values = array.astype(np.float64)
        whole = (np.abs(values) < _LARGEST_EXACT_FLOAT) & (values == np.rint(values))
        if not whole.all():
            row = int(np.flatnonzero(~whole)[0]) // math.prod(values.shape[1:])
            raise RequestError(
                f"{named} holds the label {values[~whole][0]:g} in row {row}, which is not a class index; "
                "number the classes 0, 1, 2 and so on."
            )
    elif array.dtype.kind not in "iub":
        raise RequestError(
            f"{named} has type {array.dtype}, but labels must be whole numbers; "
            "number the classes 0, 1, 2 and so on."
        )
    return torch.from_numpy(array.astype(np.int64))
