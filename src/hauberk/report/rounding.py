"""Numbers as people read them, rounded in the direction that keeps the statement true.

An upper bound (epsilon) is rounded up; a lower bound, a radius and an accuracy are rounded down.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

_SPACE = "\N{NO-BREAK SPACE}"


def _rounded(value: float, places: int, direction: str) -> str:
    if not math.isfinite(value):
        return "∞" if value > 0 else str(value)
    exact = Decimal(repr(float(value)))
    return f"{exact.quantize(Decimal(1).scaleb(-places), rounding=direction):,f}"


def _places(value: float, digits: int) -> int:
    """Decimal places that show ``digits`` significant digits, and at least the whole number."""
    if value == 0 or not math.isfinite(value):
        return digits - 1
    return max(0, digits - 1 - Decimal(repr(float(value))).adjusted())


def at_most(value: float) -> str:
    """An upper bound with three significant digits, never below the value."""
    return _rounded(value, _places(value, 3), ROUND_CEILING)


def at_least(value: float) -> str:
    """A lower bound with three significant digits, never above the value."""
    return _rounded(value, _places(value, 3), ROUND_FLOOR)


def length(value: float) -> str:
    """A radius or the size of a perturbation: three decimals, rounded down."""
    return _rounded(value, 3, ROUND_FLOOR)


def percent(share: float) -> str:
    """A share of 1 as a percentage, rounded down to one decimal."""
    return _percent(share, ROUND_FLOOR)


def percent_at_most(share: float) -> str:
    return _percent(share, ROUND_CEILING)


def _percent(share: float, direction: str) -> str:
    exact = Decimal(repr(float(share))) * 100
    return f"{exact.quantize(Decimal('0.1'), rounding=direction):f}{_SPACE}%"


def plain(value: float) -> str:
    """A constant as it was given: ``1e-5``, ``0.25``, ``3``."""
    mantissa, scientific, exponent = f"{value:g}".partition("e")
    return f"{mantissa}e{int(exponent)}" if scientific else mantissa


def plain_percent(share: float) -> str:
    return f"{plain(100 * share)}{_SPACE}%"


def count(number: int) -> str:
    return f"{number:,}"
