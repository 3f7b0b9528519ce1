"""How the bound B of the perturbations falls during training (004 Eqs. 5.7-5.9 and Alg. 2).

Training begins with a loose bound, within which adversarial examples are easy to find, and tightens it. With
``adaptive`` the attack's success on validation inputs decides how fast (Alg. 2):

    r = (S0 - S1) / S1                     S0, S1: success before and after this epoch
    r > T_up:   back to the weights and the bound before this epoch, and slower:   rate <- (1 - gamma1) rate
    r < T_low:  faster:                                                          rate <- (1 + gamma2) rate
    else:       as before

Two things are repaired. Printed is ``(1 + gamma1) d`` for slower, which with d < 0 is faster: ``rate`` here
is the speed, a positive number. And S0 = 1 before the first epoch, as printed, would roll the first epoch
back whatever it learnt: there is nothing to go back to, so it is kept. Where the success cannot be held at
any smaller bound the printed rule never ends; after ``most_rollbacks`` in a row an epoch is kept as it is
(the authors' code has the same limit), and the rate stays within a factor of ``range`` of the given one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from hauberk.errors import RequestError

Decay = Literal["exponential", "step", "time", "none"]
DECAYS: tuple[Decay, ...] = get_args(Decay)

Verdict = Literal["kept", "rolled back"]


@dataclass(frozen=True, kw_only=True)
class BoundSchedule:
    """``rate`` is the speed of each decay as the thesis writes it, without its sign: ``-d`` of Eq. 5.8, ``d``
    of Eq. 5.9, and ``-ln(d) / v`` of Eq. 5.7, whose steps come every ``every`` epochs. ``none`` stays at the
    final bound from the start (004's non-progressive training)."""

    decay: Decay = "exponential"
    initial: float = 0.8
    final: float = 0.2
    rate: float = 0.02
    every: int = 1
    adaptive: bool = True
    upper: float = 1e-4  # T_up
    lower: float = 1e-5  # T_low
    slower: float = 0.5  # gamma1
    faster: float = 0.5  # gamma2
    most_rollbacks: int = 4
    range: float = 4.0

    def __post_init__(self) -> None:
        if self.decay not in DECAYS:
            raise RequestError(f"there is no decay '{self.decay}'; choose one of {', '.join(DECAYS)}")
        if not 0 < self.final <= self.initial <= 1:
            raise RequestError(
                f"bounds fall from an initial to a smaller final one within (0, 1], not from {self.initial} "
                f"to {self.final}"
            )
        if not 0 < self.rate < math.inf or self.every < 1:
            raise RequestError("a bound falls by a positive rate, in steps of at least one epoch")
        if not 0 <= self.lower < self.upper:
            raise RequestError("the lower threshold must lie below the upper one, and not below 0")
        if not (0 < self.slower < 1 and 0 < self.faster < math.inf):
            raise RequestError("slower must lie strictly between 0 and 1, and faster above 0")
        if self.most_rollbacks < 0 or not self.range >= 1:
            raise RequestError("most_rollbacks must not be negative, and range not below 1")

    def at(self, epoch: int) -> float:
        """The bound of this epoch by Eqs. 5.7-5.9, without adaptation."""
        if self.decay == "none":
            return self.final
        if self.decay == "step":
            fallen = self.initial * math.exp(-self.rate * self.every) ** (epoch // self.every)
        elif self.decay == "exponential":
            fallen = self.initial * math.exp(-self.rate * epoch)
        else:
            fallen = self.initial / (1 + self.rate * epoch)
        return max(fallen, self.final)

    def after(self, bound: float, rate: float, kept: int) -> float:
        """The bound that follows ``bound``, when ``kept`` epochs have been kept."""
        if self.decay == "none":
            return self.final
        if self.decay == "step":
            fallen = bound * math.exp(-rate * self.every) if kept % self.every == 0 else bound
        elif self.decay == "exponential":
            fallen = bound * math.exp(-rate)
        else:
            fallen = self.initial / (self.initial / bound + rate)
        return max(fallen, self.final)


class BoundWalk:
    """The state of Alg. 2 between epochs: train at ``bound``, then tell ``advance`` the success."""

    def __init__(self, schedule: BoundSchedule) -> None:
        self.schedule = schedule
        self.bound, self.rate = schedule.at(0), schedule.rate
        self.kept = self.rollbacks = 0  # epochs kept; roll-backs since then
        self._before: float | None = None  # the bound of the last epoch that was kept
        self._success: float | None = None  # at that bound

    @property
    def finished(self) -> bool:
        """Whether the final bound is reached: from then on nothing is rolled back."""
        return self.bound <= self.schedule.final

    def advance(self, success: float) -> Verdict:
        """Decide about the epoch that was trained at ``bound``, and set the next bound."""
        schedule, before = self.schedule, self._success
        change = 0.0 if before is None else _relative_fall(before, success)
        adapting = schedule.adaptive and before is not None and not self.finished
        if adapting and change > schedule.upper and self.rollbacks < schedule.most_rollbacks:
            assert self._before is not None
            self.rollbacks += 1
            self._change_rate(1 - schedule.slower)
            self.bound = schedule.after(self._before, self.rate, self.kept)
            return "rolled back"
        if adapting and change < schedule.lower:
            self._change_rate(1 + schedule.faster)
        self.kept, self.rollbacks = self.kept + 1, 0
        self._before, self._success = self.bound, success
        self.bound = schedule.after(self.bound, self.rate, self.kept)
        return "kept"

    def _change_rate(self, factor: float) -> None:
        given, reach = self.schedule.rate, self.schedule.range
        self.rate = min(max(self.rate * factor, given / reach), given * reach)


def _relative_fall(before: float, now: float) -> float:
    if now > 0:
        return (before - now) / now
    return math.inf if before > 0 else 0.0
