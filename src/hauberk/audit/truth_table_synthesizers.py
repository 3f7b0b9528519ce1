"""Rows of the truth table that make health records: train on the ward, prove, attack.

A published form is attacked by the refutation that was made for it. Networks are audited by gradient canaries
in one training under the row's own plan, as classifiers are; the release of histograms by many releases with
one patient and without. Radii and accuracy are left out: a synthesizer classifies nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from hauberk.audit.canaries import GradientCanaries, fair_coins
from hauberk.audit.guesses import best_verdict
from hauberk.audit.refutations import Stakes, refutations_of
from hauberk.audit.refutations.base import FEWEST_GAMES, observed_epsilon
from hauberk.audit.truth_table_methods import GUESSES, with_observed
from hauberk.audit.truth_table_rows import (
    DELTA,
    EPSILON,
    Finding,
    Inquiry,
    Size,
    Subject,
    TruthRow,
    judged,
    privacy_of,
)
from hauberk.audit.white_box import CanarySampler, GradientCanaryNoise, matched_scores, spread_scores
from hauberk.gradients import trainable
from hauberk.mechanisms import EpsilonDelta
from hauberk.progress import Progress, silent
from hauberk.randomness import Randomness, choose_randomness
from hauberk.synthesis.base import Task
from hauberk.synthesis.catalogue import Size as Amount
from hauberk.synthesis.catalogue import find_synthesizer
from hauberk.synthesis.class_marginals import ClassMarginals, class_layout
from hauberk.synthesis.marginals import COUNTS, SCALES, Marginals
from hauberk.synthesis.neural import NeuralSettings, NeuralSynthesizer
from hauberk.synthesis.patients import Patients
from hauberk.synthesis.scales import Scales, scales_layout
from hauberk.synthesis.ward import WARD, simulate_ward

NOTHING_CLASSIFIED = "a synthesizer classifies nothing"
_BEFORE = 2**40  # the step of the scales' noise: none that training takes
_ATTACKED_PATIENTS = 6  # of a release of histograms


@dataclass(frozen=True, kw_only=True)
class Effort:
    """``held``: patients in the audited training, whose plan is the row's own all the same."""

    patients: int
    amount: Amount
    epochs: float | None  # None: as many as the amount says
    canaries: int
    held: int
    games: float

    def changes(self, subject: Subject) -> dict[str, Any]:
        """Of the settings, for the sake of time."""
        if self.epochs is None:
            return {}
        lighter = _LIGHTER.get(subject.name, {}) if self.amount == "quick" else {}
        return {"epochs": self.epochs, **lighter}


_LIGHTER: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {"igamt:paper": {"epochs": 1.0, "width": 32, "latent": 32}}
)

EFFORTS: Mapping[Size, Effort] = MappingProxyType(
    {
        "tiny": Effort(patients=32, amount="tiny", epochs=1.0, canaries=40, held=8, games=0.34),
        "quick": Effort(patients=1000, amount="quick", epochs=4.0, canaries=20_000, held=64, games=1.0),
        "full": Effort(patients=4000, amount="full", epochs=None, canaries=20_000, held=256, games=4.0),
    }
)
_RELEASES = 60


def synthesizer_finding(subject: Subject, inquiry: Inquiry, progress: Progress) -> Finding:
    """Train, prove, attack."""
    effort = EFFORTS[inquiry.size]
    patients = simulate_ward(effort.patients, seed=inquiry.seed)
    row = find_synthesizer(subject.method)
    task = Task(
        schema=WARD,
        records=effort.patients,
        budget=EpsilonDelta(epsilon=EPSILON, delta=DELTA),
        seed=inquiry.seed,
        data="ward",
    )
    settings = row.settings(effort.amount, private=True, variant=subject.variant)
    if isinstance(settings, NeuralSettings):
        settings = replace(settings, **effort.changes(subject))
    model = row.kind(task, settings).fit(patients, progress=progress)
    truth, missing = privacy_of(
        TruthRow(method=subject.method, variant=subject.variant), model.card().privacy
    )
    found = Finding(row=truth, attacks=())
    because: tuple[str, ...] = ()
    made = refutations_of(subject.method, about="privacy") if subject.variant == "paper" else ()
    if made:
        stakes = Stakes(epsilon=EPSILON, delta=DELTA, alpha=inquiry.level, seed=inquiry.seed)
        games = max(FEWEST_GAMES, round(effort.games * made[0].games))
        result = made[0].play(subject.method, "paper", stakes, games=games)
        found = with_observed(found, result.observed_epsilon, f"{result.attack}, {games:,} games")
        because = (result.reason,) if result.refuted else ()
    elif isinstance(model, NeuralSynthesizer):
        observed, canaries = canary_epsilon(model, effort, inquiry)
        found = with_observed(
            found, observed, f"white-box, one run, gradients along axes, {canaries:,} canaries"
        )
    elif isinstance(model, Marginals):
        observed = release_epsilon(task, inquiry)
        found = with_observed(
            found, observed, f"likelihood ratio of one patient, {_RELEASES:,} releases a side"
        )
    return judged(found, refuted_because=because, missing=(*(() if because else missing), NOTHING_CLASSIFIED))


def canary_epsilon(model: NeuralSynthesizer, effort: Effort, inquiry: Inquiry) -> tuple[float, int]:
    """The one-run bound of `hauberk.audit.training_audit` for a synthesizer's training, and the canaries."""
    randomness = choose_randomness(None)
    coordinates = _coordinates(model, randomness)
    canaries = GradientCanaries.axes(min(effort.canaries, coordinates), seed=inquiry.seed)
    coins = fair_coins(canaries.count, seed=inquiry.seed)
    # canaries have places among the patients, of which nothing else is read
    everybody = simulate_ward(effort.held + canaries.count, seed=inquiry.seed + 1)
    scales = Scales.release(
        everybody.first(effort.held),
        noise_multiplier=model.scales_noise,
        randomness=randomness,
        step=_BEFORE,
    )
    trainer, _ = model.trainer(everybody, scales, randomness=randomness)
    placed = canaries.placed(coordinates, torch.device("cpu"))
    sampler = CanarySampler(trainer.sampler, records=effort.held, coins=coins)
    trainer.sampler = sampler
    trainer.noise = watched = GradientCanaryNoise(trainer.noise, sampler, placed)
    trainer.run(lambda done: None)
    trainer.close()
    scores = {
        "matched": matched_scores(watched.sightings, sampling_rate=model.plan.sampling_rate),
        "spread": spread_scores(watched.sightings),
    }
    verdict = best_verdict(scores, coins.numpy(), delta=DELTA, alpha=inquiry.level, rules=GUESSES)
    return verdict.epsilon_lower, canaries.count


def _coordinates(model: NeuralSynthesizer, randomness: Randomness) -> int:
    """Trained numbers, told from networks that see nobody's records."""
    anybody = simulate_ward(1, seed=0)
    scales = Scales.release(anybody, noise_multiplier=model.scales_noise, randomness=randomness, step=_BEFORE)
    game = model.trainer(anybody, scales, randomness=randomness)[1]
    return sum(each.numel() for each in trainable(game).values())


def release_epsilon(task: Task, inquiry: Inquiry) -> float:
    """The many-run bound for the two releases of `Marginals`, by an adversary who knows all other patients.

    It says "in" where the likelihood ratio of both releases together is above 1: fixed beforehand.
    """
    ward = simulate_ward(_ATTACKED_PATIENTS, seed=inquiry.seed)
    target = ward.select(torch.tensor([_ATTACKED_PATIENTS - 1]))
    others = ward.first(_ATTACKED_PATIENTS - 1)
    model = Marginals(task)
    stakes = Stakes(epsilon=EPSILON, delta=DELTA, alpha=inquiry.level, games=_RELEASES)

    def play(inside: bool, game: int) -> bool:
        released = model.train(ward if inside else others, folder=None, resume=False, progress=silent)
        return _log_ratio(model, released.tensors, others, target) > 0

    return observed_epsilon(play, stakes)


def _log_ratio(model: Marginals, tensors: Mapping[str, Tensor], others: Patients, target: Patients) -> float:
    """Of what was released, with the target against without."""
    first, second = model.noise_multipliers
    counts = {name.removeprefix(SCALES): each for name, each in tensors.items() if name.startswith(SCALES)}
    scales = Scales(model.task.schema, counts, noise_multiplier=first)
    by_class = {name.removeprefix(COUNTS): each for name, each in tensors.items() if name.startswith(COUNTS)}
    bare = choose_randomness(0)  # nothing is drawn: without noise

    def scales_of(patients: Patients) -> Mapping[str, Tensor]:
        return Scales.release(patients, noise_multiplier=0.0, randomness=bare, step=0).counts

    def marginals_of(patients: Patients) -> Mapping[str, Tensor]:
        return ClassMarginals.release(
            patients, scales, settings=model.settings, noise_multiplier=0.0, randomness=bare, step=0
        ).counts

    total = 0.0
    for released, exact, layout, noise in (
        (counts, scales_of, scales_layout(model.task.schema), first),
        (by_class, marginals_of, class_layout(scales, model.settings), second),
    ):
        known, own = exact(others), exact(target)
        for block in layout.blocks:
            weight = layout.weight(block.name)
            seen = weight * (released[block.name] - known[block.name]).flatten()
            moved = weight * own[block.name].flatten()
            total += float(seen @ moved - moved @ moved / 2) / noise**2
    return total
