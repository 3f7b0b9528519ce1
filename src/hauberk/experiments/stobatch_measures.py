"""What 003's figures measure of a trained run: accuracy under attacks of two kinds, and certified accuracy.

A run is attacked as it is deployed, with the expectation over its noise and the true labels, and as 003's
code attacks: on the network without any noise, away from its own answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hauberk.attacks import Attack
from hauberk.attacks.outcome import binomial_interval
from hauberk.attacks.targets import generator
from hauberk.certify import Norm
from hauberk.data import Dataset
from hauberk.experiments.parts import remembered, settings_of
from hauberk.experiments.result import Cell, Size
from hauberk.experiments.trained_runs import ALPHA, FigureRun, Votes, joint_gain, trained_run
from hauberk.methods.attack_records import NO_ATTACK
from hauberk.methods.attack_runs import attack_run
from hauberk.methods.catalogue import find_method
from hauberk.methods.run import Run, predictions, spread
from hauberk.methods.shared_noise import SharedNoise
from hauberk.progress import Progress

CLEAN, DEPLOYED, PUBLISHED_WAY = "clean", "attacked", "attacked as published"
BY_CLAIM, BY_PROOF = "certified, claimed", "certified, proven"


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """One number of one run: a share of test inputs, with its 95 % interval over inputs.

    ``attack`` and ``steps`` are None where nothing attacks; ``radius`` is for pixels in [0, 1].
    """

    measure: str
    attack: str | None
    steps: int | None
    norm: Norm | None
    radius: float
    accuracy: float
    low: float
    high: float

    @property
    def radius_of_003(self) -> float:
        """For pixels in [-1, 1]."""
        return 2 * self.radius

    @classmethod
    def of(
        cls,
        right: NDArray[np.bool_],
        *,
        measure: str,
        radius: float,
        attack: str | None = None,
        steps: int | None = None,
        norm: Norm = "linf",
    ) -> Accuracy:
        low, high = binomial_interval(int(right.sum()), len(right))
        return cls(
            measure=measure,
            attack=attack,
            steps=steps,
            norm=norm,
            radius=radius,
            accuracy=float(right.mean()),
            low=low,
            high=high,
        )


@dataclass(frozen=True, kw_only=True)
class Measured:
    """An accuracy and whose it is; ``epsilon`` is None for a method that protects nobody."""

    data: str
    method: str
    variant: str
    epsilon: float | None
    proven: float | None
    seed: int
    found: Accuracy

    @property
    def case(self) -> tuple[str, str]:
        return self.method, self.variant

    def row(self) -> tuple[Cell, ...]:
        own = tuple(getattr(self, name) for name in _OWN)
        return (*own, *(getattr(self.found, name) for name in _FOUND))


_OWN = tuple(each.name for each in fields(Measured) if each.name != "found")
_FOUND = ("measure", "attack", "steps", "norm", "radius", "radius_of_003", "accuracy", "low", "high")
COLUMNS = (*_OWN, *_FOUND)


@dataclass(frozen=True, kw_only=True)
class Training:
    """What all runs of one data set have in common."""

    data: str
    model: str
    batch: int
    epochs: float
    training_attack_steps: int  # of StoBatch


def measured_case(
    figure: str,
    training: Training,
    method: str,
    variant: str,
    *,
    epsilon: float,
    size: Size,
    seed: int,
    measure: Callable[[FigureRun], Iterable[Accuracy]],
    progress: Progress,
) -> list[Measured]:
    """One run and what ``measure`` says of it, which depends on nothing but what else is passed in here.

    Finished cases are kept where parts are kept (`hauberk.experiments.parts`).
    """
    row = find_method(method, variant)
    changes: dict[str, Any] = {"epsilon": epsilon} if row.private else {}
    if method == "stobatch":
        changes["training_attack_steps"] = training.training_attack_steps

    def computed() -> dict[str, Any]:
        trained = trained_run(
            method,
            variant,
            data=training.data,
            size=size,
            seed=seed,
            progress=progress,
            model=training.model,
            batch=training.batch,
            epochs=training.epochs,
            **changes,
        )
        return {"proven": trained.proven, "found": [vars(each) for each in measure(trained)]}

    about = {"figure": figure, "size": size, "method": method, "variant": variant, "seed": seed, **changes}
    kept = remembered({**settings_of(training), **about}, computed)
    return [
        Measured(
            data=training.data,
            method=method,
            variant=variant,
            epsilon=changes.get("epsilon"),
            proven=kept["proven"],
            seed=seed,
            found=Accuracy(**each),
        )
        for each in kept["found"]
    ]


def mean_of(measured: Sequence[Measured], wanted: Callable[[Measured], bool]) -> float:
    """Of the accuracies that are ``wanted``; not a number where there are none."""
    found = [each.found.accuracy for each in measured if wanted(each)]
    return float(np.mean(found)) if found else float("nan")


def attacked(
    trained: FigureRun,
    attacks: Mapping[str, Attack],
    *,
    radii: Sequence[float],
    inputs: int,
    samples: int,
    progress: Progress,
) -> Iterator[Accuracy]:
    """The deployed classifier before and under attacks (linf) that know its noise."""
    table = attack_run(
        trained.run,
        trained.test,
        attacks=list(attacks.values()),
        norm="linf",
        radii=radii,
        limit=inputs,
        samples=samples,
        progress=progress,
    ).table
    short = {attack.name: name for name, attack in attacks.items()}
    for row in table.rows:
        nobody = row.attack == NO_ATTACK
        yield Accuracy(
            measure=CLEAN if nobody else DEPLOYED,
            attack=None if nobody else short.get(row.attack, row.attack),
            steps=None if nobody else row.steps,
            norm="linf",
            radius=row.radius,
            accuracy=row.accuracy,
            low=row.accuracy_low,
            high=row.accuracy_high,
        )


def attacked_as_published(
    trained: FigureRun,
    attacks: Mapping[str, Attack],
    *,
    radii: Sequence[float],
    inputs: int,
    samples: int,
    progress: Progress,
) -> Iterator[Accuracy]:
    """The deployed classifier at points that 003's code would make (linf)."""
    tested = spread(trained.test, inputs)
    for done, ((name, attack), radius) in enumerate(product(attacks.items(), radii), start=1):
        right = right_after_published_attack(trained.run, tested, attack, radius=radius, samples=samples)
        progress("published attacks", done, len(attacks) * len(radii))
        yield Accuracy.of(
            right,
            measure=PUBLISHED_WAY,
            attack=name,
            steps=getattr(attack, "steps", None),
            radius=radius,
        )


def right_after_published_attack(
    run: Run, tested: Dataset, attack: Attack, *, radius: float, samples: int
) -> NDArray[np.bool_]:
    """Where the deployed classifier is right at points that move away from the network's own answers.

    The network is the one without any noise, that of the published variant without its one draw: the
    classifier that is asked afterwards is another function, and the attack has never met it.
    """
    network = run.model.network if isinstance(run.model, SharedNoise) else run.model
    own = torch.from_numpy(predictions(network, tested))
    attack = replace(attack, stop_when_broken=False)
    moved = replace(tested, x=attack.perturb(network, tested.x, own, radius=radius, seed=run.seed))
    if run.noise is None:
        answers = predictions(run.model, moved)
    else:
        classifier = run.classifier
        draws = generator(classifier.device, run.seed, "verdict on published attacks")
        answers = classifier.count_votes(moved.x.to(classifier.device), samples, draws).argmax(1)
    right: NDArray[np.bool_] = np.equal(answers, tested.y.numpy())
    return right


def certified(
    trained: FigureRun,
    radii: Mapping[Norm, Sequence[float]],
    *,
    inputs: int,
    samples: int,
    progress: Progress,
) -> Iterator[Accuracy]:
    """By the method's own formula and by proof, from the same votes; nothing where nothing is promised."""
    run = trained.run
    if run.noise is None:
        return
    tested = spread(trained.test, inputs)
    norm_of_card, certificate = run.card_radius
    certificates = trained.classifier.certify(
        tested.x, samples=samples, alpha=ALPHA, norm=norm_of_card, certificate=certificate, seed=run.seed
    )
    progress("certifying", len(tested), len(tested))
    votes = Votes.of(certificates, tested.y.numpy())
    for norm, sizes in radii.items():
        proven = votes.certified(certificate, gain=joint_gain(trained, norm))
        claimed = proven
        if run.published_radius is not None:
            by_formula = run.published_radius.radii(
                replace(certificates, norm=norm), trained.classifier, trained.test.shape
            )
            claimed = np.where(votes.right, by_formula, -1.0)
        for (measure, reached), radius in product(((BY_CLAIM, claimed), (BY_PROOF, proven)), sizes):
            yield Accuracy.of(reached >= radius, measure=measure, radius=radius, norm=norm)
