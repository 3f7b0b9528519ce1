"""What an attack found: adversarial inputs, which of them count, and how sure the success rate is.

For a network an input is broken where the attack reached its goal at the point it returns. For a randomised
classifier the answer is the majority over its noise, so a break is a statement about a majority: the rival is
picked on one set of fresh draws, and another set must say by an exact binomial test at level 0.001 that it is
ahead. A lucky draw during the attack is no success. Inputs for which neither side is confirmed are undecided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hauberk.attacks.targets import NO_ANSWER, Goal, Noisy, Target, answers
from hauberk.certify import Norm, Smoothed, clopper_pearson_lower, clopper_pearson_upper, majority_p_value
from hauberk.errors import RequestError

BREAK_LEVEL = 0.001

Mask = NDArray[np.bool_]
Classes = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a classifier answers, row by row, and whether the attack's goal is reached there. On the CPU."""

    answers: Tensor
    broken: Tensor
    undecided: Tensor

    @classmethod
    def of_answers(cls, given: Tensor, goal: Goal) -> Self:
        """The verdict on answers that are facts."""
        broken = goal.reached(given).cpu()
        return cls(answers=given.cpu(), broken=broken, undecided=torch.zeros_like(broken))

    @classmethod
    def joined(cls, parts: Sequence[Verdict]) -> Self:
        none = torch.empty(0, dtype=torch.bool)
        return cls(
            answers=torch.cat([part.answers for part in parts] or [none.long()]),
            broken=torch.cat([part.broken for part in parts] or [none]),
            undecided=torch.cat([part.undecided for part in parts] or [none]),
        )

    def take(self, rows: Tensor) -> Self:
        return replace(
            self, answers=self.answers[rows], broken=self.broken[rows], undecided=self.undecided[rows]
        )

    def replaced(self, rows: Tensor, by: Verdict) -> Self:
        """With the verdicts ``by`` in these rows."""
        return replace(
            self,
            answers=self.answers.index_copy(0, rows, by.answers),
            broken=self.broken.index_copy(0, rows, by.broken),
            undecided=self.undecided.index_copy(0, rows, by.undecided),
        )


@torch.no_grad()
def judge(target: Target, points: Tensor, goal: Goal, *, samples: int, generator: torch.Generator) -> Verdict:
    """The verdict on every point: a network is asked once, a randomised classifier ``samples`` times."""
    if isinstance(target, Noisy):
        return count_and_test(target.smoothed, points, goal, samples=samples, generator=generator)
    return Verdict.of_answers(answers(target.scores(points)), goal)


def count_and_test(
    smoothed: Smoothed,
    points: Tensor,
    goal: Goal,
    *,
    samples: int,
    generator: torch.Generator,
    level: float = BREAK_LEVEL,
) -> Verdict:
    """The verdict on a smoothed classifier's answers, each input at ``level`` for either error.

    Untargeted: the label against its strongest rival. Targeted: the target against the strongest other class.
    """
    selection = smoothed.count_votes(points, max(100, samples // 10), generator)
    votes = smoothed.count_votes(points, samples, generator)
    rows, own = np.arange(len(points)), goal.classes.cpu().numpy()
    selection[rows, own] = -1
    ours, theirs = votes[rows, own], votes[rows, selection.argmax(1)]
    p_values = [majority_p_value(int(max(pair)), int(min(pair))) for pair in zip(ours, theirs, strict=True)]
    certain = np.asarray(p_values, dtype=np.float64) <= level
    ahead = ours > theirs if goal.targeted else theirs > ours
    given = np.where(votes.sum(1) > 0, votes.argmax(1), NO_ANSWER)
    return Verdict(
        answers=torch.from_numpy(given),
        broken=torch.from_numpy(certain & ahead),
        undecided=torch.from_numpy(~certain),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Outcome:
    """One attack at one radius (or one radius per input), row by row.

    Every row of ``adversarial`` lies within its ball and the bounds; a row of radius zero is the input bit
    for bit. ``broken``: the goal is reached there, confirmed. Without targets that includes inputs that were
    wrong from the start, so that ``accuracy`` is what an adversary leaves of it.
    """

    attack: str
    norm: Norm
    radii: NDArray[np.float64]
    labels: Classes
    targets: Classes | None
    adversarial: Tensor
    clean_answers: Classes  # at the inputs themselves
    answers: Classes  # at the adversarial inputs
    broken: Mask
    undecided: Mask  # randomised classifiers only: no majority is confirmed
    sizes: NDArray[np.float64]  # of the perturbations, in the norm

    @property
    def attackable(self) -> Mask:
        """Answered rightly, and not yet with the target: where success means something."""
        right: Mask = np.equal(self.clean_answers, self.labels)
        return right if self.targets is None else right & (self.clean_answers != self.targets)

    @property
    def success_rate(self) -> float:
        """Share of the attackable inputs that were broken; nan where there are none."""
        return _share(int((self.broken & self.attackable).sum()), int(self.attackable.sum()))

    def success_interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Exact binomial (Clopper–Pearson) interval of the success rate.

        Covers the rate over the population of the inputs with at least this probability. Undecided inputs
        count as held at the lower end and as broken at the upper end.
        """
        among = self.attackable
        return binomial_interval(
            int((self.broken & among).sum()),
            int(among.sum()),
            confidence,
            at_most=int(((self.broken | self.undecided) & among).sum()),
        )

    @property
    def accuracy(self) -> float:
        """Share of all inputs that are still answered rightly at their adversarial point."""
        return _share(int((self.answers == self.labels).sum()), len(self.labels))

    def accuracy_interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Exact binomial interval of the accuracy, undecided inputs counted against either side."""
        right = self.answers == self.labels
        return binomial_interval(
            int((right & ~self.undecided).sum()),
            len(self.labels),
            confidence,
            at_most=int((right | self.undecided).sum()),
        )


def _share(count: int, total: int) -> float:
    return count / total if total else float("nan")


def binomial_interval(
    successes: int, trials: int, confidence: float = 0.95, *, at_most: int | None = None
) -> tuple[float, float]:
    """Exact two-sided interval for a probability; where the count itself is uncertain, up to ``at_most``."""
    if not 0 < confidence < 1:
        raise RequestError(f"the confidence must lie strictly between 0 and 1, got {confidence}")
    if trials == 0:
        return 0.0, 1.0
    alpha = (1 - confidence) / 2
    most = successes if at_most is None else at_most
    lower = float(clopper_pearson_lower(successes, trials, alpha))
    return lower, float(clopper_pearson_upper(most, trials, alpha))


def _or_none(targets: Classes | None) -> Classes:
    return np.empty(0, dtype=np.int64) if targets is None else targets


def worst_case(outcomes: Sequence[Outcome]) -> Outcome:
    """The best attack for every input: broken if any of them broke it, then by the smallest step.

    Of attacks that did not break it, one that leaves a wrong answer: the accuracy is never above any of
    theirs.

    All must be attacks of the same inputs with the same radii, norm and targets.
    """
    if not outcomes:
        raise RequestError("the worst case needs at least one attack")
    first = outcomes[0]
    for other in outcomes[1:]:
        same = (
            other.norm == first.norm
            and np.array_equal(other.labels, first.labels)
            and np.array_equal(other.radii, first.radii)
            and np.array_equal(_or_none(other.targets), _or_none(first.targets))
        )
        if not same:
            raise RequestError(
                "the worst case is over attacks of the same inputs: give all of them the same labels, "
                "targets, radii and norm"
            )
    broken = np.stack([outcome.broken for outcome in outcomes])
    undecided = np.stack([outcome.undecided for outcome in outcomes])
    steps = np.stack([outcome.sizes for outcome in outcomes])
    wrong = np.stack([outcome.answers != outcome.labels for outcome in outcomes])
    unbroken = np.where(
        wrong, 1e299, np.where(undecided, 1e300, np.inf)
    )  # a wrong answer is worse than doubt
    best = np.where(broken, steps, unbroken).argmin(0)
    rows = np.arange(len(first.labels))

    def chosen(name: str) -> NDArray[np.generic]:
        values: NDArray[np.generic] = np.stack([getattr(outcome, name) for outcome in outcomes])[best, rows]
        return values

    points = torch.stack([outcome.adversarial for outcome in outcomes])
    picked = {name: chosen(name) for name in ("answers", "broken", "undecided", "sizes")}
    return replace(
        first,
        attack="worst of " + ", ".join(outcome.attack for outcome in outcomes),
        adversarial=points[torch.from_numpy(best).to(points.device), torch.arange(len(rows))],
        **picked,  # type: ignore[arg-type]
    )
