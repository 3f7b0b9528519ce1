"""What every record must satisfy, checked in one place.

Each check raises :class:`~hauberk.errors.RequestError` with one sentence that names the array, the first bad
row and what to change. ``named`` is how the array is called in that sentence, for example
``array 'x' of clinic.npz``.
"""

from __future__ import annotations

import math
import operator

import torch

from hauberk.errors import RequestError

SCALING_ADVICE = (
    "scale it by a public range, such as the limits of the instrument, "
    "and not by the data's own minimum and maximum, which are private"
)


def check_inputs(x: torch.Tensor, *, named: str) -> None:
    """Records are float32 images (N, C, H, W) or table rows (N, d), at least one, all values in [0, 1]."""
    if x.dtype != torch.float32:
        raise RequestError(f"{named} has type {_type_name(x)}, but inputs must be float32; convert it first.")
    if x.ndim not in (2, 4):
        raise RequestError(
            f"{named} has shape {tuple(x.shape)}, but inputs must be images (N, C, H, W) or "
            "table rows (N, d); reshape it so that the first axis counts the records."
        )
    if x.shape[0] == 0:
        raise RequestError(f"{named} is empty; give at least one record.")
    if x.numel() == 0:
        raise RequestError(
            f"{named} has shape {tuple(x.shape)}, so its records hold no values; save it again."
        )
    smallest, largest = torch.aminmax(x)  # one pass without a copy; NaN comes through as NaN
    if bool((smallest >= 0) & (largest <= 1)):
        return
    rows = x.reshape(len(x), -1)
    row = _first_true(~((rows >= 0) & (rows <= 1)).all(dim=1))
    values = rows[row]
    value = float(values[_first_true(~((values >= 0) & (values <= 1)))])
    if math.isnan(value):
        raise RequestError(
            f"{named} holds NaN in row {row}; fill missing values with a public constant or drop the row."
        )
    if math.isinf(value):
        raise RequestError(f"{named} holds an infinite value in row {row}; repair or drop the row.")
    raise RequestError(
        f"{named} holds the value {value:g} in row {row}, but inputs must lie in [0, 1]; {SCALING_ADVICE}."
    )


def check_labels(y: torch.Tensor, *, classes: int, named: str) -> None:
    """Labels are int64, one per record, from 0 to ``classes - 1``."""
    if y.dtype != torch.int64:
        raise RequestError(f"{named} has type {_type_name(y)}, but labels must be int64; convert it first.")
    if y.ndim != 1:
        raise RequestError(
            f"{named} has shape {tuple(y.shape)}, but labels must be one class index per record, shape (N,); "
            "take the argmax of one-hot labels, flatten a column."
        )
    if len(y) == 0:
        raise RequestError(f"{named} is empty; give one label per record.")
    smallest, largest = torch.aminmax(y)
    if bool((smallest >= 0) & (largest < classes)):
        return
    row = _first_true((y < 0) | (y >= classes))
    raise RequestError(
        f"{named} holds the label {int(y[row])} in row {row}, but {classes} classes were declared, "
        f"so labels run from 0 to {classes - 1}; renumber the labels or declare more classes."
    )


def check_lengths(x: torch.Tensor, y: torch.Tensor, *, named_x: str, named_y: str) -> None:
    """There is exactly one label for every record."""
    if len(x) != len(y):
        raise RequestError(
            f"{named_x} has {len(x)} rows and {named_y} has {len(y)}, "
            f"so row {min(len(x), len(y))} has no partner; save one label per record."
        )


def check_count(value: object, *, at_least: int, named: str) -> int:
    """``value`` as a Python integer that is at least ``at_least``; True is not a number here."""
    try:
        count = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        count = None
    if count is None or isinstance(value, bool) or count < at_least:
        raise RequestError(f"{named} must be a whole number of at least {at_least}, got {value!r}.")
    return count


def _first_true(mask: torch.Tensor) -> int:
    return int(mask.int().argmax())


def _type_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
