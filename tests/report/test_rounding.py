"""Rounding never makes a bound say more than is true."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hauberk.report import rounding

POSITIVE = st.floats(1e-9, 1e6)


def _number(text: str) -> float:
    return float(text.replace(",", "").removesuffix("%").strip())


@given(value=POSITIVE)
def test_an_upper_bound_is_rounded_up_and_a_lower_bound_down(value: float) -> None:
    assert _number(rounding.at_least(value)) <= value <= _number(rounding.at_most(value))


@given(value=POSITIVE)
def test_three_digits_are_enough_to_be_close(value: float) -> None:
    assert _number(rounding.at_most(value)) == pytest.approx(value, rel=0.0101)
    assert _number(rounding.at_least(value)) == pytest.approx(value, rel=0.0101)


@given(share=st.floats(0, 1))
def test_a_percentage_is_rounded_down(share: float) -> None:
    assert _number(rounding.percent(share)) <= 100 * share * (1 + 1e-15)
    assert _number(rounding.percent_at_most(share)) >= 100 * share * (1 - 1e-15)


@given(small=st.floats(0, 10), large=st.floats(0, 10))
def test_lengths_keep_their_order(small: float, large: float) -> None:
    small, large = sorted((small, large))
    assert _number(rounding.length(small)) <= _number(rounding.length(large))


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (rounding.at_most(2.9861), "2.99"),
        (rounding.at_most(2.9901), "3.00"),
        (rounding.at_most(3.0), "3.00"),
        (rounding.at_most(0.0), "0.00"),
        (rounding.at_most(12345.6), "12,346"),
        (rounding.at_most(math.inf), "∞"),
        (rounding.at_least(0.4127), "0.412"),
        (rounding.length(0.61499), "0.614"),
        (rounding.percent(0.957), "95.7\N{NO-BREAK SPACE}%"),
        (rounding.percent(0.99999), "99.9\N{NO-BREAK SPACE}%"),
        (rounding.percent(1.0), "100.0\N{NO-BREAK SPACE}%"),
        (rounding.plain(1e-5), "1e-5"),
        (rounding.plain(0.25), "0.25"),
        (rounding.plain_percent(0.95), "95\N{NO-BREAK SPACE}%"),
        (rounding.count(20_000), "20,000"),
    ],
)
def test_known_values(said: str, expected: str) -> None:
    assert said == expected
