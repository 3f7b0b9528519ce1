"""Guessing the canaries' coins from their scores, by rules that were fixed before any coin was looked at."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hauberk.audit.bounds import (
    GaussianEstimate,
    Values,
    check_level,
    gaussian_estimate,
    one_run_epsilon,
)
from hauberk.errors import RequestError


@dataclass(frozen=True, kw_only=True)
class GuessRule:
    """The ``top`` part of the canaries by score is guessed in, the ``bottom`` part out; else no guess."""

    top: float
    bottom: float

    def __post_init__(self) -> None:
        if not (self.top >= 0 and self.bottom >= 0 and 0 < self.top + self.bottom <= 1):
            raise RequestError(
                f"the guessed parts lie in [0, 1] and sum to at most 1, got {self.top} and {self.bottom}."
            )

    def counts(self, canaries: int) -> tuple[int, int]:
        """Guesses in and guesses out, at least one in all."""
        high, low = math.floor(self.top * canaries), math.floor(self.bottom * canaries)
        return (high, low) if high + low else (1, 0)

    def __str__(self) -> str:
        return f"top {self.top:.3g} in, bottom {self.bottom:.3g} out"


RULES = (
    GuessRule(top=0.5, bottom=0.5),
    GuessRule(top=0.25, bottom=0.25),
    GuessRule(top=0.1, bottom=0.1),
    GuessRule(top=0.02, bottom=0.02),
    GuessRule(top=0.1, bottom=0.0),
    GuessRule(top=0.02, bottom=0.0),
)
"""Bold and timid, and for canaries of whom only presence is ever seen: each gets its share of alpha."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The largest of the bounds that were asked for, and what it rests on."""

    epsilon_lower: float
    score: str
    rule: str
    guesses: int
    correct: int
    estimate: GaussianEstimate | None


def best_verdict(
    scores: Mapping[str, Values],
    coins: NDArray[np.bool_],
    *,
    delta: float,
    alpha: float,
    rules: Sequence[GuessRule] = RULES,
) -> Verdict:
    """Guess by every rule and every score, each at its share of ``alpha``; the largest bound counts.

    Guarantee: if training is (epsilon, delta)-private for adding or removing one canary, the bound exceeds
    epsilon with probability at most ``alpha`` over coins and training (`sharp_tail` for each pair of score
    and rule, and a union bound). Equal scores are put in the order of the canaries, which knows no coins.
    """
    check_level(alpha)
    if not (scores and rules):
        raise RequestError("an audit needs at least one score and one rule to guess by.")
    share = alpha / (len(scores) * len(rules))
    best: Verdict | None = None
    for name, values in scores.items():
        order = np.argsort(values, kind="stable")
        estimate = _estimate(order, coins, delta)
        for rule in rules:
            high, low = rule.counts(len(coins))
            correct = int(coins[order[len(order) - high :]].sum() + (~coins[order[:low]]).sum())
            bound = one_run_epsilon(
                canaries=len(coins), guesses=high + low, correct=correct, delta=delta, alpha=share
            )
            if best is None or bound > best.epsilon_lower:
                best = Verdict(
                    epsilon_lower=bound,
                    score=name,
                    rule=str(rule),
                    guesses=high + low,
                    correct=correct,
                    estimate=estimate,
                )
    assert best is not None
    return best


def _estimate(order: NDArray[np.int64], coins: NDArray[np.bool_], delta: float) -> GaussianEstimate | None:
    """From the upper half guessed in; none where all coins fell alike or delta is 0."""
    positives, upper = int(coins.sum()), coins[order[len(order) // 2 :]]
    if not 0 < positives < len(coins) or delta == 0:
        return None
    return gaussian_estimate(
        true_positives=int(upper.sum()),
        positives=positives,
        false_positives=int((~upper).sum()),
        negatives=len(coins) - positives,
        delta=delta,
    )
