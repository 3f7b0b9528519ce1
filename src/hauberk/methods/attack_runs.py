"""Attack a finished run's deployed classifier at given radii.

The deployed classifier is the smoothed one where the run has noise: attacks then take the expectation over
that noise, and an input counts as broken only where fresh draws confirm another majority
(`hauberk.attacks.outcome`). A run without noise is attacked as the network that it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hauberk.attacks import FGSM, Attack, Outcome, build_attack, find_attack, worst_case
from hauberk.attacks.projections import NORMS
from hauberk.certify import Norm, Smoothed
from hauberk.data import Dataset
from hauberk.errors import RequestError
from hauberk.methods.attack_records import (
    NO_ATTACK,
    WORST_CASE,
    AttackPictures,
    AttackRecord,
    AttackRow,
    AttackTable,
)
from hauberk.methods.run import Run, as_dataset, spread
from hauberk.progress import Progress, silent
from hauberk.randomness import check_seed

CONFIDENCE = 0.95
DRAWS = 16
_PICTURES = 9
_INPUTS_AT_ONCE = 32  # on a CPU, where larger batches gain little and hide how far the work is


@dataclass(frozen=True, kw_only=True, eq=False)
class RunAttacks:
    """All outcomes, row by row, and the table made of them."""

    table: AttackTable
    radii: tuple[float, ...]
    tested: Dataset
    outcomes: Mapping[str, tuple[Outcome, ...]]  # by attack, one for each radius
    worst: tuple[Outcome, ...]  # one for each radius

    def pictures(self) -> AttackPictures | None:
        """Inputs that were answered rightly come first; tables of numbers have nothing to show."""
        if len(self.tested.shape) != 3 or self.tested.shape[0] not in (1, 3):
            return None
        rows = np.argsort(~self.worst[0].attackable, kind="stable")[:_PICTURES]
        chosen = [self._shown(row) for row in rows.tolist()]

        def column(name: str) -> NDArray[Any]:
            return np.array(
                [getattr(outcome, name)[row] for (_, outcome, _), row in zip(chosen, rows, strict=True)]
            )

        points = [outcome.adversarial[row] for (_, outcome, _), row in zip(chosen, rows, strict=True)]
        return AttackPictures(
            images=self.tested.x[torch.from_numpy(rows)].cpu().numpy(),
            attempts=torch.stack(points).cpu().numpy(),
            radii=np.array([radius for *_, radius in chosen]),
            attacks=np.array([name for name, *_ in chosen]),
            **{
                name: column(name)
                for name in ("labels", "clean_answers", "answers", "broken", "undecided", "sizes")
            },
        )

    def _shown(self, row: int) -> tuple[str, Outcome, float]:
        last = len(self.radii) - 1
        place = next((place for place, worst in enumerate(self.worst) if worst.broken[row]), last)
        best = min(
            self.outcomes,
            key=lambda name: (
                not self.outcomes[name][place].broken[row],
                not self.outcomes[name][place].undecided[row],
                self.outcomes[name][place].sizes[row],
            ),
        )
        return best, self.outcomes[best][place], self.radii[place]

    def record(self) -> AttackRecord:
        """What is worth keeping: ``record().write(folder)``."""
        return AttackRecord(table=self.table, pictures=self.pictures())


def attack_run(
    run: Run,
    data: Dataset | tuple[Tensor, Tensor],
    *,
    attacks: str | Sequence[str | Attack] = "pgd",
    norm: Norm = "linf",
    radii: Sequence[float],
    steps: int | None = None,
    draws: int | None = None,
    limit: int | None = None,
    target: int | None = None,
    samples: int = 1000,
    seed: int | None = None,
    progress: Progress = silent,
) -> RunAttacks:
    """Attack the run's deployed classifier on test data, every attack at every radius.

    ``attacks``: names (`hauberk.attacks.ATTACKS`), as a list or with commas, or attacks of one's own, which
    keep their own settings. ``steps``: of each named attack that takes several (default: its own). ``draws``:
    noises per step. ``limit``: so many inputs, spread evenly. ``target``: break an input only by that class.
    ``samples``: fresh draws per verdict. ``seed``: the run's own unless given.

    An input of a smoothed classifier that in truth holds at every point that was tried is called broken with
    probability at most 0.001 for each attack and radius. What attacks do not break is not proven to hold.
    """
    model = run.model if run.noise is None else run.classifier
    smoothed = isinstance(model, Smoothed)
    if draws is not None and not smoothed:
        raise RequestError(f"{run.method} answers without noise, there is nothing to draw: leave out draws")
    built = _built(attacks, norm=norm, steps=steps, draws=DRAWS if draws is None else draws)
    asked = _checked_radii(radii)
    seed = run.seed if seed is None else seed
    check_seed(seed)
    if limit is not None and limit < 1:
        raise RequestError(f"the limit must be at least 1 input, got {limit}")
    tested = as_dataset(data, classes=run.classes)
    tested = spread(tested, len(tested) if limit is None else limit)
    shooting = _Shooting(model, tested, target, samples=samples, seed=seed)
    for attack in built.values():
        shooting.try_out(attack, asked[-1])
    with_zero = sorted({0.0, *asked})  # what stands before any attack is judged like everything else
    found = {name: shooting.sweep(name, attack, with_zero, progress) for name, attack in built.items()}
    clean = next(iter(found.values()))[0]
    outcomes = {
        name: tuple(each[with_zero.index(radius)] for radius in asked) for name, each in found.items()
    }
    worst = tuple(worst_case([each[place] for each in outcomes.values()]) for place in range(len(asked)))

    rows = [
        _row(NO_ATTACK, clean, 0.0, steps=0, draws=None),
        *_rows(outcomes, built, asked, smoothed=smoothed),
        *(_row(WORST_CASE, each, at, steps=None, draws=None) for each, at in zip(worst, asked, strict=True)),
    ]
    table = AttackTable(
        data=run.data,
        classifier="the network" if run.noise is None else f"smoothed with {run.noise.words}",
        norm=norm,
        target=target,
        samples=samples if smoothed else None,
        seed=seed,
        confidence=CONFIDENCE,
        attacks={name: attack.name for name, attack in built.items()},
        rows=tuple(rows),
    )
    return RunAttacks(table=table, radii=asked, tested=tested, outcomes=outcomes, worst=worst)


class _Shooting:
    """What all attacks of one table have in common: the target, the inputs, the seed."""

    def __init__(
        self, model: nn.Module | Smoothed, tested: Dataset, target: int | None, *, samples: int, seed: int
    ) -> None:
        if target is not None and not 0 <= target < tested.classes:
            raise RequestError(f"there is no class {target}: there are the classes 0 to {tested.classes - 1}")
        self.model, self.tested, self.samples, self.seed = model, tested, samples, seed
        self.targets = None if target is None else torch.full_like(tested.y, target)
        device = model.device if isinstance(model, Smoothed) else next(model.parameters()).device
        few_at_once = device.type == "cpu" and not isinstance(model, Smoothed)
        self.batch_size = _INPUTS_AT_ONCE if few_at_once else None

    def try_out(self, attack: Attack, radius: float) -> None:
        """One step against one input: what cannot work is refused before minutes of what can."""
        known = {field.name for field in fields(attack)}
        shorter: dict[str, Any] = dict.fromkeys({"steps", "queries"} & known, 1)
        short = replace(attack, **shorter)
        targets = None if self.targets is None else self.targets[:1]
        short.perturb(self.model, self.tested.x[:1], self.tested.y[:1], radius=radius, targets=targets)

    def sweep(self, name: str, attack: Attack, radii: Sequence[float], progress: Progress) -> list[Outcome]:
        return attack.sweep(
            self.model,
            self.tested.x,
            self.tested.y,
            radii=radii,
            targets=self.targets,
            samples=self.samples,
            seed=self.seed,
            batch_size=self.batch_size,
            progress=_counting(progress, name, len(self.tested)),
        )


def _counting(progress: Progress, stage: str, total: int) -> Callable[[int], None]:
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        progress(stage, done, total)

    advance(0)
    return advance


def _built(
    attacks: str | Sequence[str | Attack], *, norm: Norm, steps: int | None, draws: int
) -> dict[str, Attack]:
    """The attacks by name, in their order, each once."""
    if norm not in NORMS:
        raise RequestError(f"there is no norm '{norm}'; choose one of {', '.join(NORMS)}")
    given = attacks.split(",") if isinstance(attacks, str) else attacks
    built: dict[str, Attack] = {}
    takes_steps = False
    for each in given:
        if isinstance(each, Attack):
            if each.norm != norm:
                raise RequestError(
                    f"all attacks of a table are in one norm, and {each.name} is not in {norm}"
                )
            built[each.name] = each
            continue
        kind = find_attack(each.strip())
        settings: dict[str, Any] = {"norm": norm, "draws": draws}
        if steps is not None and kind is not FGSM and "steps" in {field.name for field in fields(kind)}:
            settings["steps"] = steps
            takes_steps = True
        built[each.strip()] = build_attack(each.strip(), **settings)
    if not built:
        raise RequestError("there is no attack to try: name at least one")
    if steps is not None and not takes_steps:
        raise RequestError(f"{' and '.join(built)} cannot be told how many steps to take: leave out steps")
    return built


def _checked_radii(radii: Sequence[float]) -> tuple[float, ...]:
    """In ascending order, each once."""
    if not len(radii):
        raise RequestError("there is no radius to attack at: give at least one")
    for radius in radii:
        if not 0 <= radius < math.inf:
            raise RequestError(
                f"a radius must be a number that is not negative and not infinite, got {radius}"
            )
    return tuple(sorted({float(radius) for radius in radii}))


def _rows(
    outcomes: Mapping[str, tuple[Outcome, ...]],
    built: Mapping[str, Attack],
    radii: Sequence[float],
    *,
    smoothed: bool,
) -> list[AttackRow]:
    rows = []
    for name, attack in built.items():
        steps: int | None = getattr(attack, "steps", getattr(attack, "queries", None))
        draws = attack.draws if smoothed else None
        for outcome, radius in zip(outcomes[name], radii, strict=True):
            rows.append(_row(name, outcome, radius, steps=steps, draws=draws))
    return rows


def _row(name: str, outcome: Outcome, radius: float, *, steps: int | None, draws: int | None) -> AttackRow:
    low, high = outcome.accuracy_interval(CONFIDENCE)
    success = outcome.success_rate
    return AttackRow(
        attack=name,
        norm=outcome.norm,
        radius=radius,
        tested=len(outcome.labels),
        accuracy=outcome.accuracy,
        accuracy_low=low,
        accuracy_high=high,
        success=None if math.isnan(success) else success,
        steps=steps,
        draws=draws,
    )
