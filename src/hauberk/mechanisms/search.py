"""Bisection that keeps its promise at every step."""

from __future__ import annotations

from collections.abc import Callable


def last_true(holds: Callable[[float], bool], *, true_at: float, false_at: float) -> float:
    """The point where a monotone ``holds`` is still true, next to where it is false, up to one double.

    Faster root finders return a point near the root, on either side of it; a privacy statement needs the
    side on which it was checked, and what is returned here was checked.
    """
    while True:
        middle = true_at + (false_at - true_at) / 2
        if middle in (true_at, false_at):
            return true_at
        if holds(middle):
            true_at = middle
        else:
            false_at = middle
