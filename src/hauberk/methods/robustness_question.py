"""What can be asked about the robustness of a classifier's answers, and how many draws that takes."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from hauberk.certify import AtLeast, FixedDraws, NoiseLayers, Norm, Rule, Within
from hauberk.certify.confidence import bounds_from_scores, bounds_from_votes
from hauberk.certify.rules import Asked, largest_radius_of, needed_samples
from hauberk.certify.smoothed import Bound
from hauberk.errors import RequestError
from hauberk.randomness import check_seed

Variant = Literal["sound", "paper"]

_OF_SCORES = ("hoeffding", "bernstein")
_ANY_RADIUS = sys.float_info.min
_TOO_MANY = 10**15


@dataclass(frozen=True, kw_only=True)
class Question:
    """Without ``radius`` and ``within``: the radius, from a fixed number of draws.

    ``radius``: is the answer robust there? Votes of the sound variant are drawn until that is decided; other
    bounds, and the published radius, need a fixed number of draws, which is then compared. ``within``: the
    radius to within this fraction of what ``samples`` draws would give. ``samples`` defaults to 1,000 where
    it is fixed and to 100,000 where it is the most. ``certificate`` defaults to ``tight`` for Gaussian noise
    and to ``laplace`` for Laplace noise. ``variant="paper"`` puts the published radius beside the sound one.
    """

    norm: Norm = "l2"
    radius: float | None = None
    within: float | None = None
    samples: int | None = None
    alpha: float = 0.001
    certificate: str | None = None
    variant: Variant = "sound"
    bound: Bound = "votes"
    seed: int = 0

    def __post_init__(self) -> None:
        kinds = {"norm": Norm, "variant": Variant, "bound": Bound}
        for name, kind in kinds.items():
            if getattr(self, name) not in get_args(kind):
                choices = ", ".join(get_args(kind))
                raise RequestError(f"there is no {name} '{getattr(self, name)}': choose one of {choices}")
        if self.radius is not None and self.within is not None:
            raise RequestError(
                "ask for a radius (--radius) or to within a fraction (--within), not for both at once"
            )
        if self.radius is not None and not 0 < self.radius < math.inf:
            raise RequestError(f"ask for a positive radius, got {self.radius:g}")
        if self.within is not None and self.bound != "votes":
            raise RequestError(f"the bound {self.bound} needs a fixed number of draws: leave out --within")
        check_seed(self.seed)
        self.rule()

    @property
    def fixed(self) -> bool:
        """Whether the number of draws is fixed before they are made."""
        decided_early = self.radius is not None and self.bound == "votes" and self.variant == "sound"
        return self.within is None and not decided_early

    def rule(self, samples: int | None = None) -> Rule:
        """How many draws, and what is said after them; ``samples`` replaces the question's own number."""
        samples = self.samples if samples is None else samples
        number = {} if samples is None else {"samples": samples}
        if self.within is not None:
            return Within(fraction=self.within, **number)
        if self.radius is not None and not self.fixed:
            return AtLeast(radius=self.radius, **number)
        return FixedDraws(**number)

    def certificate_for(self, noise: NoiseLayers) -> str:
        usual = {"gaussian": "tight", "laplace": "laplace"}[noise.kind]
        return usual if self.certificate is None else self.certificate

    def largest_radius(self, asked: Asked, *, classes: int, samples: int | None = None) -> float:
        """What draws that all agree would certify: the cap that number and alpha put on every radius."""
        rule = self.rule(samples)
        if isinstance(rule, AtLeast):
            return float(rule.look(np.array([rule.samples]), rule.samples, asked).radius[0])
        if self.bound == "votes":
            return largest_radius_of(asked, rule.samples)
        agreeing, first = np.eye(1, classes), np.zeros(1, dtype=np.int64)
        if self.bound in _OF_SCORES:
            variances = np.zeros_like(agreeing) if self.bound == "bernstein" else None
            bounds = bounds_from_scores(agreeing, first, rule.samples, asked.alpha, variances=variances)
        else:
            votes = (rule.samples * agreeing).astype(np.int64)
            bounds = bounds_from_votes(votes, first, rule.samples, asked.alpha)
        radius = asked.certificate.radius(bounds.top_lower, bounds.runner_up_upper, gain=asked.gain)
        return float(radius[0])

    def fewest_draws(self, asked: Asked, *, classes: int, radius: float) -> int | None:
        """The smallest ``samples`` whose draws, all agreeing, certify ``radius``; None if no number does.

        Never below `needed_samples`, which has all of alpha for a single bound and looks only once.
        """
        enough = needed_samples(asked, radius)
        if enough is None or self._suffice(enough, radius, asked, classes):
            return enough
        short = enough
        while not self._suffice(enough, radius, asked, classes):
            short, enough = enough, 2 * enough
            if enough > _TOO_MANY:
                return None
        while enough - short > 1:
            middle = (short + enough) // 2
            if self._suffice(middle, radius, asked, classes):
                enough = middle
            else:
                short = middle
        return enough

    def _suffice(self, samples: int, radius: float, asked: Asked, classes: int) -> bool:
        if self.bound == "bernstein" and samples < 2:
            return False
        return self.largest_radius(asked, classes=classes, samples=samples) >= radius

    def check_draws(self, asked: Asked, *, classes: int) -> str | None:
        """A sentence where the draws cannot certify the radius that was asked for; refused if pointless.

        A fixed number of draws still gives the radius, so it is the user's decision; a yes or no that can
        only be no is not worth a draw, and neither are draws that certify nothing at all.
        """
        samples = self.rule().samples
        largest = self.largest_radius(asked, classes=classes)
        if largest > 0 and (self.radius is None or largest >= self.radius):
            return None
        wanted = _ANY_RADIUS if self.radius is None else self.radius
        what = "anything" if self.radius is None else f"radius {self.radius:g}"
        fewest = self.fewest_draws(asked, classes=classes, radius=wanted)
        begin = f"{samples:,} draws at alpha {asked.alpha:g} cannot certify {what}, even if all agree"
        if fewest is None:
            raise RequestError(f"{begin}, and no number of draws can: ask for less, or train with more noise")
        if largest == 0 or not self.fixed:
            raise RequestError(f"{begin}: take --samples {fewest} or more")
        return f"{begin}: it takes {fewest:,} draws or more."
