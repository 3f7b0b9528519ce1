"""Questions every request is asked; a wrong answer becomes one sentence for the user."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hauberk.errors import RequestError

Vector = NDArray[np.float64]

SMALLEST_DELTA = 1e-300
"""Below this a double can no longer hold delta with full precision."""


def positive(name: str, value: float) -> float:
    """``value`` as a float, if it is finite and above zero."""
    if not (math.isfinite(value) and value > 0):
        raise RequestError(f"{name} must be a positive number, got {value}.")
    return float(value)


def nonnegative(name: str, value: float) -> float:
    """``value`` as a float, if it is finite and not below zero."""
    if not (math.isfinite(value) and value >= 0):
        raise RequestError(f"{name} must be a number that is not negative, got {value}.")
    return float(value)


def count(name: str, value: int) -> int:
    """``value``, if it is a whole number of at least one."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise RequestError(f"{name} must be a whole number of at least 1, got {value}.")
    return int(value)


def probability(name: str, value: float) -> float:
    """``value`` as a float, if it lies strictly between 0 and 1 and is large enough to compute with."""
    if not SMALLEST_DELTA <= value < 1:
        raise RequestError(
            f"{name} must lie strictly between 0 and 1 (at least {SMALLEST_DELTA}), got {value}."
        )
    return float(value)


def rate(name: str, value: float) -> float:
    """``value`` as a float, if it lies in (0, 1]."""
    if not 0 < value <= 1:
        raise RequestError(f"{name} must lie above 0 and not above 1, got {value}.")
    return float(value)


def array(name: str, values: Any) -> Vector:
    """A read-only copy of ``values`` in double precision, if it is not empty and all entries are finite."""
    try:
        copy = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise RequestError(f"{name} must be an array of numbers.") from None
    if copy.ndim == 0 or copy.size == 0 or not np.isfinite(copy).all():
        raise RequestError(f"{name} must be a non-empty array of finite numbers.")
    copy.setflags(write=False)
    return copy


def positive_array(name: str, values: Any) -> Vector:
    """As `array`, and every entry is above zero."""
    copy = array(name, values)
    if not (copy > 0).all():
        raise RequestError(f"every entry of {name} must be positive, the smallest is {copy.min()}.")
    return copy


def trailing_shape(shape: Sequence[int], wanted: tuple[int, ...]) -> None:
    """Noise with one scale per coordinate can only fill tensors whose last axes are those coordinates."""
    if tuple(shape)[len(shape) - len(wanted) :] != wanted:
        raise RequestError(
            f"this noise has coordinates of shape {wanted}, which do not end the shape {tuple(shape)}."
        )
