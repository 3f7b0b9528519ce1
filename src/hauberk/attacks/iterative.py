"""One projected loop; FGSM, I-FGSM, MIM and Madry's PGD are settings of it.

At every step: look at the scores, take the gradient of the loss with respect to the inputs, turn it into the
norm's steepest direction (after adding momentum, if any), walk a fixed share of the radius, project. The look
that gives the gradient also says which inputs are broken, so knowing it costs nothing; those leave the batch
and the others go on alone. An input counts as broken if any point on its way is, so leaving changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from hauberk.attacks.base import Attack, Found
from hauberk.attacks.outcome import count_and_test
from hauberk.attacks.projections import Ball, per_row, row_norms
from hauberk.attacks.requests import Batch
from hauberk.attacks.targets import LOSSES, Goal, Loss, Network, Noisy, Target, answers
from hauberk.errors import RequestError
from hauberk.randomness import derive_key, keyed_normals

_STEPS_BETWEEN_CHECKS_ON_A_DEVICE = 4  # asking how many inputs are left makes a device wait
_LARGE_BATCH = 2**20  # numbers in a batch whose steps take so long that waiting does not matter
_STEPS_BETWEEN_CHECKS_UNDER_NOISE = 5  # the few draws of a step prove nothing, and a proof takes many
_DRAWS_TO_LEAVE = 100
_WORTH_LEAVING = 1 / 16  # of the batch; copying the others for fewer costs more than it saves


@dataclass(frozen=True, kw_only=True)
class IterativeAttack(Attack):
    """The loop and its settings.

    ``reach``: how many radii all steps together can walk; one step is ``reach / steps`` of an input's radius.
    ``momentum``: decay of the running sum of gradients, each divided by its l1 norm; 0 for none.
    ``restarts``: starts from different random points, of which the best counts. ``compiled`` runs the model
    through ``torch.compile``.
    """

    steps: int = 40
    reach: float = 2.5
    momentum: float = 0.0
    random_start: bool = True
    restarts: int = 1
    loss: Loss = "cross-entropy"
    compiled: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.steps, self.restarts) < 1:
            raise RequestError("an attack needs at least one step, one draw and one start")
        if not 0 < self.reach < float("inf"):
            raise RequestError(f"reach must be a positive number of radii, got {self.reach}")
        if not 0 <= self.momentum < float("inf"):
            raise RequestError(f"momentum must be 0 (none) or positive, got {self.momentum}")
        if self.loss not in LOSSES:
            raise RequestError(f"there is no loss '{self.loss}'; choose one of {', '.join(LOSSES)}")
        if self.restarts > 1 and not self.random_start:
            raise RequestError("several starts need random_start: without it they are all the same")

    @property
    def name(self) -> str:
        parts = [f"{self.norm} {self.title}", "1 step" if self.steps == 1 else f"{self.steps} steps"]
        if self.loss != "cross-entropy":
            parts.append(f"{self.loss} loss")
        if self.restarts > 1:
            parts.append(f"{self.restarts} starts")
        return ", ".join(parts)

    def refuse(self, target: Target) -> None:
        if self.compiled and target.randomised:
            raise RequestError("a smoothed classifier is compiled when it is made: Smoothed(compiled=True)")

    @property
    def sees_the_input(self) -> bool:
        return not self.random_start

    def run(self, batch: Batch) -> Found:
        goal, balls = replace(batch.goal, loss=self.loss), batch.ball()
        target = batch.target
        if self.compiled and isinstance(target, Network):
            target = target.compiled()
        best = self._climb(target, balls, goal, self._start(batch, balls, 0))
        for number in range(1, self.restarts):
            rows = torch.arange(len(batch.x), device=batch.x.device)
            if self.stop_when_broken:
                rows = rows[~best.broken]
            if not len(rows):
                break
            fewer = balls.take(rows)
            start = self._start(batch.take(rows), fewer, number)
            best.improve(rows, self._climb(target, fewer, goal.take(rows), start))
        clean = best.first_answers if self.sees_the_input else None
        return Found(points=best.points, answers=best.answers, clean_answers=clean)

    def _start(self, batch: Batch, balls: Ball, number: int) -> Tensor:
        """The input, or a random point that depends on nothing but seed, input and number of the start."""
        if not self.random_start:
            return batch.x.clone()
        key, shape = derive_key(batch.seed, "random starts"), tuple(batch.x.shape[1:])
        normals = keyed_normals(key, step=number, records=batch.rows, views=1, shape=shape)[:, 0]
        return balls.random_points(normals.to(batch.x))

    def _climb(self, target: Target, balls: Ball, goal: Goal, start: Tensor) -> _Ends:
        """From one start to the last step, or to the first broken point."""
        every = _steps_between_checks(target, start)
        lengths = (balls.radii * (self.reach / self.steps)).to(start.dtype)
        left = _Climbers.at(start, balls, goal, lengths, momentum=self.momentum > 0)
        ends = _Ends.unknown(start)
        for step in range(self.steps):
            given, gradient = _look(target, left.goal, left.points)
            if step == 0:
                ends.first_answers = given
            if not target.randomised:
                left.note(left.goal.reached(given), given)
            if self.stop_when_broken and (step + 1) % every == 0:
                if isinstance(target, Noisy):
                    left.note(_confirmed(target, left, given), given)
                size = _next_batch_size(left, len(start))
                if size <= (1 - _WORTH_LEAVING) * len(left.points):
                    staying = left.broken.to(torch.uint8).argsort(stable=True)[:size]
                    left, gradient = ends.take_from(left, staying), gradient[staying]
                if not size:
                    return ends
            if left.velocity is not None:
                shares = gradient / row_norms(gradient, 1).to(gradient.dtype)
                gradient = left.velocity.mul_(self.momentum).add_(shares.nan_to_num_(0.0, 0.0, 0.0))
            direction = left.balls.steepest(gradient, left.points, left.lengths)
            left.points.addcmul_(direction, left.lengths)
            left.balls.project_(left.points)

        with torch.no_grad():
            scores = target.scores(left.points)
        ends.take_last(
            left,
            answers(scores),
            left.goal.gains(scores),
            believed=not target.randomised,
            first=self.stop_when_broken,
        )
        return ends


@dataclass(frozen=True, kw_only=True)
class FGSM(IterativeAttack):
    """Fast gradient sign method (Goodfellow et al. 2015): one step of the whole radius."""

    title = "FGSM"
    steps: int = 1
    reach: float = 1.0
    random_start: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps != 1:
            raise RequestError(f"FGSM is a single step: for {self.steps} steps use I-FGSM")


@dataclass(frozen=True, kw_only=True)
class IFGSM(IterativeAttack):
    """Iterated FGSM, the basic iterative method (Kurakin et al. 2017): steps of radius / steps."""

    title = "I-FGSM"
    steps: int = 10
    reach: float = 1.0
    random_start: bool = False


@dataclass(frozen=True, kw_only=True)
class MIM(IterativeAttack):
    """Momentum iterative method (Dong et al. 2018): I-FGSM on the running sum of gradients."""

    title = "MIM"
    steps: int = 10
    reach: float = 1.0
    momentum: float = 1.0
    random_start: bool = False


@dataclass(frozen=True, kw_only=True)
class PGD(IterativeAttack):
    """Projected gradient descent from random points (Madry et al. 2018)."""

    title = "PGD"


@dataclass(kw_only=True)
class _Climbers:
    """The inputs still in the batch: where they are, and where they were first seen broken, if so."""

    places: Tensor  # among those that started
    points: Tensor
    balls: Ball
    goal: Goal
    lengths: Tensor
    velocity: Tensor | None
    broken: Tensor
    broken_points: Tensor
    broken_answers: Tensor

    @classmethod
    def at(cls, points: Tensor, balls: Ball, goal: Goal, lengths: Tensor, *, momentum: bool) -> Self:
        places = torch.arange(len(points), device=points.device)
        return cls(
            places=places,
            points=points,
            balls=balls,
            goal=goal,
            lengths=lengths,
            velocity=torch.zeros_like(points) if momentum else None,
            broken=torch.zeros_like(places, dtype=torch.bool),
            broken_points=points.clone(),
            broken_answers=torch.zeros_like(places),
        )

    def note(self, reached: Tensor, given: Tensor) -> None:
        """Keep the points of those that are broken for the first time. No device has to wait for this."""
        newly = reached & ~self.broken
        self.broken_points = torch.where(per_row(newly, self.points), self.points, self.broken_points)
        self.broken_answers = torch.where(newly, given, self.broken_answers)
        self.broken = self.broken | newly

    def take(self, rows: Tensor) -> Self:
        values = vars(self)
        taken = {name: value[rows] for name, value in values.items() if isinstance(value, Tensor)}
        return replace(self, balls=self.balls.take(rows), goal=self.goal.take(rows), **taken)


@dataclass(kw_only=True)
class _Ends:
    """Where the inputs of one start ended, what is answered there, and how near to broken that is."""

    points: Tensor
    answers: Tensor
    broken: Tensor
    gains: Tensor
    first_answers: Tensor

    @classmethod
    def unknown(cls, points: Tensor) -> Self:
        unknown = torch.zeros(len(points), dtype=torch.int64, device=points.device)
        return cls(
            points=points.clone(),
            answers=unknown,
            broken=unknown.bool(),
            gains=torch.full_like(unknown, torch.inf, dtype=points.dtype),
            first_answers=unknown,
        )

    def take_from(self, climbers: _Climbers, staying: Tensor) -> _Climbers:
        """Put down the broken ones where they were first broken; who stays goes on."""
        gone = climbers.take(climbers.broken.nonzero()[:, 0])
        self.points[gone.places], self.answers[gone.places] = gone.broken_points, gone.broken_answers
        self.broken[gone.places] = True
        return climbers.take(staying)

    def take_last(
        self, climbers: _Climbers, given: Tensor, gains: Tensor, *, believed: bool, first: bool
    ) -> None:
        """Put down who is left at the last point, or at the first broken one if only that is broken.

        With ``first`` at the first broken one even so. Under noise the last look is not ``believed``: the
        point that looked best would be the luckiest draw.
        """
        reached = climbers.goal.reached(given) & believed
        last = ~climbers.broken if first else reached | ~climbers.broken
        chosen = torch.where(per_row(last, climbers.points), climbers.points, climbers.broken_points)
        self.points[climbers.places] = chosen
        self.answers[climbers.places] = torch.where(last, given, climbers.broken_answers)
        self.broken[climbers.places] = reached | climbers.broken
        self.gains[climbers.places] = gains

    def improve(self, rows: Tensor, other: _Ends) -> None:
        """With another start's ends in these rows where it broke its input, or came nearer to it."""
        before = self.broken[rows]
        better = torch.where(other.broken == before, other.gains > self.gains[rows], other.broken)
        ours, theirs = rows[better], better.nonzero()[:, 0]
        for mine, new in (
            (self.points, other.points),
            (self.answers, other.answers),
            (self.broken, other.broken),
            (self.gains, other.gains),
        ):
            mine[ours] = new[theirs]


def _look(target: Target, goal: Goal, points: Tensor) -> tuple[Tensor, Tensor]:
    """Answers at the points, and the direction in which the loss grows; zero where that is no number."""
    points = points.detach().requires_grad_(True)
    scores = target.scores(points)
    if not scores.requires_grad:
        raise RequestError(
            "the model's scores have no gradient with respect to its inputs: a gradient attack cannot work"
        )
    (gradient,) = torch.autograd.grad(goal.gains(scores).sum(), points)
    return answers(scores.detach()), gradient.nan_to_num(0.0, 0.0, 0.0)


def _steps_between_checks(target: Target, start: Tensor) -> int:
    if target.randomised:
        return _STEPS_BETWEEN_CHECKS_UNDER_NOISE
    if target.device.type == "cpu" or start.numel() >= _LARGE_BATCH:
        return 1
    return _STEPS_BETWEEN_CHECKS_ON_A_DEVICE


def _next_batch_size(climbers: _Climbers, started: int) -> int:
    """How many of the batch go on: those that are not broken.

    On a device some broken ones stay, up to the next eighth of the batch that started: every new size has its
    convolutions planned anew there, which takes longer than a few rows.
    """
    staying = int((~climbers.broken).sum())
    if climbers.points.device.type == "cpu":
        return staying
    eighth = -(-started // 8)
    return -(-staying // eighth) * eighth


def _confirmed(target: Noisy, climbers: _Climbers, given: Tensor) -> Tensor:
    """Which inputs that look broken are so on fresh draws, by the test of the verdict."""
    reached = climbers.goal.reached(given)
    rows = reached.nonzero()[:, 0]
    if len(rows):
        verdict = count_and_test(
            target.smoothed,
            climbers.points[rows],
            climbers.goal.take(rows),
            samples=_DRAWS_TO_LEAVE,
            generator=target.generator,
        )
        reached[rows] = verdict.broken.to(reached.device)
    return reached
