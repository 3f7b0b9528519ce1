"""How many draws, and what may be said after them: one rule for each question that can be asked of votes.

A rule sees, for every input, how often its selected class won among ``t`` draws, and says for which inputs
the question is settled and with what lower bound on the class's probability. Class selection happens on draws
of its own, so the counts here are plain binomial counts.

- `FixedDraws`: the published procedure, one look after a fixed number of draws (Cohen et al. 2019).
- `AtLeast`: is the radius at least so much?  Stops as soon as that is decided.
- `Within`: what is the radius?  Stops as soon as the answer is within a fraction of what the fixed number of
  draws would give.

The two sequential rules split their error: four fifths of alpha go to a confidence sequence, which may be
looked at after every draw, one fifth to one exact bound at the very end. The union bound makes alpha of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hauberk.certify.certificates import Certificate, find_certificate, needed_probability
from hauberk.certify.confidence import clopper_pearson_lower, clopper_pearson_upper
from hauberk.certify.sequential import LONG, SHORT, anytime_lower, is_above, is_below
from hauberk.errors import RequestError

_EARLY = 0.8  # share of alpha for looks on the way; the rest is for the last one
_LAST = 1.0 - _EARLY
_GIVE_UP = 0.01  # how readily "no" is said; a wrong "no" costs a certificate, never a guarantee
_FORESIGHT = 0.01  # how readily a fixed number of draws is predicted to give less


@lru_cache(maxsize=256)
def _needed(certificate: str, radius: float, gain: float) -> float:
    return needed_probability(find_certificate(certificate), radius, gain=gain)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the question is about: a certificate, the gain of the noise, and the error probability."""

    certificate: Certificate
    gain: float
    alpha: float

    def radius(self, lower: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.certificate.radius(lower, gain=self.gain)

    def needed(self, radius: float) -> float:
        """The probability from which on ``radius`` is certified."""
        return _needed(self.certificate.name, radius, self.gain)


@dataclass(frozen=True, kw_only=True)
class Look:
    """Per input: settled or not; if so, the bound on the probability and the radius that follows."""

    settled: NDArray[np.bool_]
    lower: NDArray[np.float64]
    radius: NDArray[np.float64]


class Rule(Protocol):
    """``samples`` is what a fixed number of draws would be; ``selection`` comes before and is not counted."""

    @property
    def samples(self) -> int: ...

    @property
    def selection(self) -> int: ...

    @property
    def question(self) -> str: ...

    def more(self, drawn: int, room: int) -> int:
        """How many further draws until the next look; ``room`` draws per input cost nothing extra."""

    def look(self, votes: NDArray[np.int64], drawn: int, asked: Asked) -> Look: ...


def _check(samples: int, selection: int) -> None:
    if samples < 1 or selection < 1:
        raise RequestError("certification needs at least one draw for selection and one for estimation")


@dataclass(frozen=True, kw_only=True)
class FixedDraws:
    """``samples`` draws for every input, then the exact bound of Clopper and Pearson."""

    samples: int = 1000
    selection: int = 100

    def __post_init__(self) -> None:
        _check(self.samples, self.selection)

    @property
    def question(self) -> str:
        return f"radius from {self.samples:,} draws"

    def more(self, drawn: int, room: int) -> int:
        return self.samples - drawn

    def look(self, votes: NDArray[np.int64], drawn: int, asked: Asked) -> Look:
        lower = clopper_pearson_lower(votes, drawn, asked.alpha)
        return Look(settled=np.ones(len(votes), dtype=np.bool_), lower=lower, radius=asked.radius(lower))


@dataclass(frozen=True, kw_only=True)
class AtLeast:
    """Is the radius at least ``radius``? At most ``samples`` draws, usually some dozens.

    Guarantee: an input is answered with yes although its radius is smaller with probability at most alpha.
    A yes has the radius that was asked for, a no has radius zero; no makes no promise.
    """

    radius: float
    samples: int = 100_000
    selection: int = 20

    def __post_init__(self) -> None:
        _check(self.samples, self.selection)
        if not 0 < self.radius < math.inf:
            raise RequestError(f"ask for a positive radius, got {self.radius:g}")

    @property
    def question(self) -> str:
        return f"radius >= {self.radius:g}"

    def more(self, drawn: int, room: int) -> int:
        return min(max(8, drawn // 8, min(room, drawn // 2)), self.samples - drawn)

    def look(self, votes: NDArray[np.int64], drawn: int, asked: Asked) -> Look:
        needed = asked.needed(self.radius)
        yes = is_above(SHORT, votes, drawn, needed, _EARLY * asked.alpha)
        settled = yes | is_below(SHORT, votes, drawn, needed, _GIVE_UP)
        if drawn >= self.samples:
            yes |= clopper_pearson_lower(votes, drawn, _LAST * asked.alpha) >= needed
            settled[:] = True
        return Look(settled=settled, lower=np.where(yes, needed, 0.0), radius=np.where(yes, self.radius, 0.0))


@dataclass(frozen=True, kw_only=True)
class Within:
    """The radius, to within ``fraction`` of what ``samples`` fixed draws at the same alpha would give.

    Guarantee: the radius is too large with probability at most alpha, whatever the draws. That it is within
    the fraction is a prediction, made by looking 100 times and more (for a few inputs in a hundred the radius
    is smaller than that, by little). Inputs
    whose votes are close stay longest, up to 1.3 ``samples``: there the exact bound with the remaining fifth
    of alpha is as good as that of ``samples`` draws with all of it.
    """

    fraction: float
    samples: int = 100_000
    selection: int = 100

    def __post_init__(self) -> None:
        _check(self.samples, self.selection)
        if not 0 < self.fraction < 1:
            raise RequestError(f"the fraction lies strictly between 0 and 1, got {self.fraction:g}")

    @property
    def question(self) -> str:
        return f"radius within {self.fraction:.3g} of that from {self.samples:,} draws"

    @property
    def _most(self) -> int:
        return math.ceil(1.3 * self.samples)

    def more(self, drawn: int, room: int) -> int:
        return min(max(50, drawn // 25, min(room, drawn // 8)), self._most - drawn)

    def _foreseen(self, votes: NDArray[np.int64], drawn: int, asked: Asked) -> NDArray[np.float64]:
        """The radius that the fixed number of draws would give, if the remaining draws go well."""
        well = clopper_pearson_upper(votes, drawn, _FORESIGHT)
        left = max(0, self.samples - drawn)
        share = (votes + left * well) / (drawn + left)
        counts = np.minimum(np.ceil(share * self.samples), self.samples)
        return asked.radius(clopper_pearson_lower(counts, self.samples, asked.alpha))

    def look(self, votes: NDArray[np.int64], drawn: int, asked: Asked) -> Look:
        different, rows = np.unique(votes, return_inverse=True)  # many inputs have the same votes
        look = self._look(different, drawn, asked)
        return Look(settled=look.settled[rows], lower=look.lower[rows], radius=look.radius[rows])

    def _look(self, votes: NDArray[np.int64], drawn: int, asked: Asked) -> Look:
        lower = anytime_lower(LONG, votes, drawn, _EARLY * asked.alpha)
        if drawn >= self._most:
            lower = np.maximum(lower, clopper_pearson_lower(votes, drawn, _LAST * asked.alpha))
        radius = asked.radius(lower)
        settled = radius >= (1.0 - self.fraction) * self._foreseen(votes, drawn, asked)
        return Look(settled=settled | (drawn >= self._most), lower=lower, radius=radius)


def largest_radius_of(asked: Asked, samples: int) -> float:
    """What unanimous votes would certify: the cap that ``samples`` and alpha put on every radius."""
    lower = clopper_pearson_lower(samples, samples, asked.alpha)
    return float(asked.radius(np.atleast_1d(lower))[0])


def needed_samples(asked: Asked, radius: float) -> int | None:
    """The fewest draws whose unanimous votes certify ``radius``; None if no number of draws does."""
    needed = asked.needed(radius)
    if needed >= 1.0:
        return None
    # unanimous votes bound the probability by alpha^(1/n)
    samples = max(1, math.ceil(math.log(asked.alpha) / math.log(needed)) - 1)
    while largest_radius_of(asked, samples) < radius:
        samples += max(1, samples // 10_000)
        if samples > 10**15:  # rounding has eaten what is left below one
            return None
    return samples
