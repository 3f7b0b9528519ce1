"""What all attacks have in common, written once: a new attack writes ``run()``.

The base class checks the request, splits the inputs into batches, forces eval mode and restores it, keeps
parameters and their gradients out of it, holds every result to ball and bounds whatever ``run()`` returned,
and asks the classifier for its verdict.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from hauberk.attacks.outcome import Outcome, Verdict, judge
from hauberk.attacks.projections import NORMS, Bounds, sizes
from hauberk.attacks.requests import Batch, Request, check_bounds
from hauberk.attacks.targets import Target, generator, left_as_it_was
from hauberk.certify import Norm, Smoothed
from hauberk.errors import RequestError

Told = Callable[[int], None]


@dataclass(frozen=True, kw_only=True)
class Found:
    """What ``run()`` returns: one point per input, and what it saw on the way, if anything.

    ``answers`` and ``clean_answers`` spare another look at a network that has been looked at already; an
    attack that does not know them leaves them out. For a randomised classifier they are not believed.
    """

    points: Tensor
    answers: Tensor | None = None  # at the points
    clean_answers: Tensor | None = None  # at the inputs themselves


@dataclass(frozen=True, kw_only=True)
class Attack(ABC):
    """An attack and its settings.

    ``bounds`` are those of the data. ``draws``: how many noises an estimate of a randomised classifier's
    scores takes at every step. With ``stop_when_broken`` an input is left alone as soon as it is broken (of a
    randomised classifier: as soon as fresh draws confirm it); without it the same inputs are broken, later.
    """

    norm: Norm = "linf"
    bounds: Bounds = (0.0, 1.0)
    draws: int = 16
    stop_when_broken: bool = True

    title: ClassVar[str]
    norms: ClassVar[tuple[Norm, ...]] = NORMS
    can_aim: ClassVar[bool] = True  # at a target class

    def __post_init__(self) -> None:
        if self.norm not in self.norms:
            raise RequestError(f"{self.title} works in {' or '.join(self.norms)}, not in '{self.norm}'")
        check_bounds(self.bounds)
        if self.draws < 1:
            raise RequestError("an attack needs at least one step, one draw and one start")

    @property
    @abstractmethod
    def name(self) -> str:
        """The attack in words, for reports."""

    @abstractmethod
    def run(self, batch: Batch) -> Found:
        """Look for adversarial inputs. Points may lie anywhere: the base class moves them into the ball."""

    def refuse(self, target: Target) -> None:  # noqa: B027 - most attacks work on all targets
        """Raise, in a sentence, if the attack cannot work on this target."""

    @property
    def minimal(self) -> bool:
        """Whether it looks for the nearest adversarial input: one run then serves all radii."""
        return False

    @property
    def sees_the_input(self) -> bool:
        """Whether ``run()`` looks at the inputs themselves first and reports ``clean_answers``."""
        return False

    def attack(
        self,
        model: nn.Module | Smoothed,
        x: Tensor,
        y: Tensor,
        *,
        radius: float | Tensor,
        targets: Tensor | None = None,
        samples: int = 1000,
        seed: int = 0,
        batch_size: int | None = None,
        progress: Told | None = None,
    ) -> Outcome:
        """Attack the inputs ``x`` with labels ``y``, with one radius for all of them or one for each.

        With ``targets`` an input is broken where the classifier answers with its target. ``samples``: fresh
        draws per input for the verdict on a randomised classifier. ``progress`` is told how many more inputs
        are done. The model is left as it was: weights, buffers, modes and gradients.
        """
        request = self._request(
            model, x, y, targets=targets, radii=[radius], seed=seed, batch_size=batch_size
        )
        return self._outcomes(request, samples, progress)[0]

    def sweep(
        self,
        model: nn.Module | Smoothed,
        x: Tensor,
        y: Tensor,
        *,
        radii: Sequence[float],
        targets: Tensor | None = None,
        samples: int = 1000,
        seed: int = 0,
        batch_size: int | None = None,
        progress: Told | None = None,
    ) -> list[Outcome]:
        """One outcome for each of several radii, in their order.

        What breaks within a small radius breaks within a larger one: it is kept, so that the broken inputs
        of a larger radius include those of a smaller one.
        """
        request = self._request(model, x, y, targets=targets, radii=radii, seed=seed, batch_size=batch_size)
        return self._outcomes(request, samples, progress)

    def perturb(
        self,
        model: nn.Module | Smoothed,
        x: Tensor,
        y: Tensor,
        *,
        radius: float | Tensor,
        targets: Tensor | None = None,
        seed: int = 0,
        batch_size: int | None = None,
    ) -> Tensor:
        """The points alone, within ball and bounds, without any verdict on them."""
        request = self._request(
            model, x, y, targets=targets, radii=[radius], seed=seed, batch_size=batch_size
        )
        points = request.x.clone()
        with left_as_it_was(request.target.model):
            for batch in request.batches():
                moving = batch.take(batch.radii.nonzero()[:, 0])
                if len(moving.x):
                    points[moving.rows.to(x.device)] = self._held(moving, self.run(moving)).points.to(x)
        return points

    def _request(self, model: nn.Module | Smoothed, x: Tensor, y: Tensor, **details: object) -> Request:
        if details["targets"] is not None and not self.can_aim:
            raise RequestError(f"{self.title} cannot aim at a target class: leave the targets out")
        request = Request.checked(
            model,
            x,
            y,
            norm=self.norm,
            bounds=self.bounds,
            draws=self.draws,
            **details,  # type: ignore[arg-type]
        )
        self.refuse(request.target)
        return request

    def _outcomes(self, request: Request, samples: int, progress: Told | None) -> list[Outcome]:
        if samples < 1:
            raise RequestError("a verdict on a randomised classifier needs at least one draw")
        cleans: list[Verdict] = []
        standings: list[list[_Standing]] = [[] for _ in request.radii]
        with left_as_it_was(request.target.model):
            for batch in request.batches():
                radii = [each[batch.rows.cpu()].to(batch.x.device) for each in request.radii]
                clean, results = self._attack_batch(batch, radii, samples)
                cleans.append(clean)
                for collected, result in zip(standings, results, strict=True):
                    collected.append(result)
                if progress is not None:
                    progress(len(batch.x))
        outcomes = []
        clean_answers = Verdict.joined(cleans).answers
        for radii_of_all, collected in zip(request.radii, standings, strict=True):
            points = torch.cat([standing.points for standing in collected] or [request.x]).to(request.x)
            verdict = Verdict.joined([standing.verdict for standing in collected])
            outcomes.append(
                Outcome(
                    attack=self.name,
                    norm=self.norm,
                    radii=radii_of_all.cpu().numpy(),
                    labels=request.labels.cpu().numpy(),
                    targets=None if request.targets is None else request.targets.cpu().numpy(),
                    adversarial=points,
                    clean_answers=clean_answers.numpy(),
                    answers=verdict.answers.numpy(),
                    broken=verdict.broken.numpy(),
                    undecided=verdict.undecided.numpy(),
                    sizes=sizes(points, request.x, self.norm).cpu().numpy(),
                )
            )
        return outcomes

    def _attack_batch(
        self, batch: Batch, radii: Sequence[Tensor], samples: int
    ) -> tuple[Verdict, list[_Standing]]:
        """The verdict on the inputs themselves, and how things stand at every radius."""
        target = batch.target
        chance = generator(target.device, batch.seed, f"verdict {int(batch.rows[0])}")
        believed = not target.randomised

        def judged(where: Batch, points: Tensor, known: Tensor | None) -> Verdict:
            if known is not None and believed:
                return Verdict.of_answers(known, where.goal)
            return judge(target, points, where.goal, samples=samples, generator=chance)

        first_look = self.sees_the_input and believed and all(bool((each > 0).all()) for each in radii)
        clean = None if first_look else judged(batch, batch.x, None)
        standing = None if clean is None else _Standing(points=batch.x, verdict=clean)
        nearest: Tensor | None = None
        results: dict[int, _Standing] = {}
        for place in sorted(range(len(radii)), key=lambda place: float(radii[place].max())):
            wanted = radii[place] > 0
            if self.stop_when_broken and standing is not None:
                wanted = wanted & ~standing.verdict.broken.to(wanted.device)
            chosen = wanted.nonzero()[:, 0]
            if len(chosen):
                attacked = replace(batch, radii=radii[place]).take(chosen)
                if nearest is None:
                    found = self.run(attacked)
                    if self.minimal:
                        nearest = batch.x.index_copy(0, chosen, found.points.detach().to(batch.x))
                else:
                    found = Found(points=nearest[chosen])
                held = self._held(attacked, found)
                if clean is None:
                    clean = judged(batch, batch.x, held.clean_answers)
                    standing = _Standing(points=batch.x, verdict=clean)
                assert standing is not None
                standing = standing.improved(chosen, held.points, judged(attacked, held.points, held.answers))
            assert standing is not None
            results[place] = standing
        assert clean is not None
        return clean, [results[place] for place in range(len(radii))]

    def _held(self, batch: Batch, found: Found) -> Found:
        """Every point within ball and bounds; what was known of points that had to move is forgotten."""
        points = found.points.detach().to(batch.x)
        held = batch.ball().project_(torch.where(points.isfinite(), points, batch.x))
        return replace(found, points=held, answers=found.answers if torch.equal(held, points) else None)


@dataclass(frozen=True, kw_only=True)
class _Standing:
    """The best point so far for every input of a batch, and the verdict on it."""

    points: Tensor
    verdict: Verdict

    def improved(self, rows: Tensor, points: Tensor, verdict: Verdict) -> _Standing:
        """With the new points of these rows, except where only the old one broke its input."""
        places = rows.to(verdict.broken.device)
        taken = (verdict.broken | ~self.verdict.broken[places]).nonzero()[:, 0]
        kept = taken.to(rows.device)
        return _Standing(
            points=self.points.index_copy(0, rows[kept], points[kept]),
            verdict=self.verdict.replaced(places[taken], verdict.take(taken)),
        )
