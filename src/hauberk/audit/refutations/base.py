"""What every refutation hands back, and the two statements it may rest on: counts of games, counts of breaks.

A refutation is an attack made for one published claim. It plays a game of its own design, and what it says is
a statement of statistics all the same: score and threshold are fixed beforehand or chosen on other games than
those that are counted. An attack that never fails is worth no more than the number of games that it was
played: the bound is Clopper and Pearson's, and never infinite.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from scipy.stats import binom

from hauberk.audit.bounds import check_delta, check_level, many_run_epsilon
from hauberk.errors import RequestError

FEWEST_GAMES = 25


@dataclass(frozen=True, kw_only=True)
class Stakes:
    """What a refutation is played for: the promise that is made, and how often it may be wronged.

    ``epsilon`` and ``delta`` are claimed; ``alpha`` is the probability with which a promise that holds may be
    refuted; ``games`` are played on each side (with the record, and without it), or inputs are attacked.
    """

    epsilon: float = 1.0
    delta: float = 1e-7
    alpha: float = 1e-3
    games: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        check_delta(self.delta)
        check_level(self.alpha)
        if not self.epsilon > 0:
            raise RequestError(f"the claimed epsilon must be positive, got {self.epsilon}.")
        if self.games < FEWEST_GAMES:
            raise RequestError(f"a refutation needs at least {FEWEST_GAMES} games a side, got {self.games}.")


@dataclass(frozen=True, kw_only=True)
class Refutation:
    """One claim under one attack.

    Guarantee: if the claim holds, ``refuted`` is true with probability at most ``1 - confidence`` over the
    games. A claim of privacy is refuted by ``observed_epsilon`` above ``claimed_epsilon`` (both at
    ``delta``); a claim of robustness by more ``broken`` certificates among ``tested`` than their own error
    ``certificate_alpha`` explains. ``claimed_radius`` and ``proven_radius`` are means over the tested inputs.
    ``reason`` says in one sentence why the claim cannot hold.
    """

    name: str
    method: str
    variant: str
    attack: str
    reason: str
    confidence: float
    claimed_epsilon: float | None = None
    observed_epsilon: float | None = None
    delta: float | None = None
    games: int | None = None  # counted, on each side
    claimed_radius: float | None = None
    proven_radius: float | None = None
    tested: int | None = None
    broken: int | None = None
    certificate_alpha: float | None = None

    @property
    def privacy_refuted(self) -> bool:
        if self.claimed_epsilon is None or self.observed_epsilon is None:
            return False
        return self.observed_epsilon > self.claimed_epsilon

    @property
    def robustness_refuted(self) -> bool:
        if not self.tested or not self.broken or self.certificate_alpha is None:
            return False
        chance = float(binom.sf(self.broken - 1, self.tested, self.certificate_alpha))
        return chance <= (1 - self.confidence) / 2  # the other half is for the tests of the breaks

    @property
    def refuted(self) -> bool:
        return self.privacy_refuted or self.robustness_refuted

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "refuted": self.refuted}


Play = Callable[[bool, int], bool]
"""``play(inside, game)``: run the mechanism with the record or without it; does the adversary say "in"?

The adversary is not told ``inside``, and its rule was fixed before the first game. ``game`` numbers the games
of both sides together: no two share a random number.
"""


def observed_epsilon(play: Play, stakes: Stakes) -> float:
    """The bound from ``stakes.games`` independent games with the record and as many without it."""
    said = {
        inside: sum(play(inside, 2 * game + inside) for game in range(stakes.games))
        for inside in (True, False)
    }
    return many_run_epsilon(
        true_positives=said[True],
        positives=stakes.games,
        false_positives=said[False],
        negatives=stakes.games,
        delta=stakes.delta,
        alpha=stakes.alpha,
    )
