"""IGAMT (004 chapter 4) as published: networks that patients move without any noise.

Algorithm 1 perturbs the critics and the last layer of the decoder. The encoder, the rest of the decoder and
the imitator step by the mean gradient of the sampled patients as it is; the imitator's loss compares its rows
with those of real patients (Eq. 4.5). The imitator is what is released.

The game. One data set holds a single patient, the target; the other holds nobody. One step is run as the
synthesizer runs it. The adversary sees by how much the step moves the imitator and says "in" where it moves
at all. The rule was fixed beforehand; nothing is learnt.

What is attacked is an `UpdateOf`, a function that plays one step with the target or without it. A sound form
moves nothing by records without noise; there the noisy update is looked at, and it never stands still.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor

from hauberk.audit.refutations.base import Refutation, Stakes, observed_epsilon
from hauberk.audit.refutations.small_worlds import RepeatedStep, flat, fresh_randomness
from hauberk.audit.white_box import CanarySampler
from hauberk.errors import RequestError
from hauberk.mechanisms import EpsilonDelta
from hauberk.synthesis.base import Task
from hauberk.synthesis.catalogue import find_synthesizer
from hauberk.synthesis.igamt_settings import IgamtSettings
from hauberk.synthesis.neural import NeuralSynthesizer
from hauberk.synthesis.scales import Scales
from hauberk.synthesis.ward import WARD, simulate_ward

REASON = (
    "encoder, decoder and imitator step by the mean gradient of the patients without any noise: one step of "
    "the imitator's weights shows whether a patient was there"
)
RELEASED_PART = "imitator."
_RECORDS = 1  # declared; the one patient is in every step
_NEVER = 2**40
_BEFORE = 2**40  # the step of the scales' noise: none that training takes


class UpdateOf(Protocol):
    """By how much one step moves weights that are released, as one long vector."""

    def __call__(self, inside: bool, game: int) -> Tensor: ...


def refute(method: str, variant: str, stakes: Stakes) -> Refutation:
    """``method``: a synthesizer of the catalogue; the published form of IGAMT is what this was made for."""
    return refute_update(updates_of(method, variant, stakes), method=method, variant=variant, stakes=stakes)


def refute_update(update: UpdateOf, *, method: str, variant: str, stakes: Stakes) -> Refutation:
    def play(inside: bool, game: int) -> bool:
        return bool(update(inside, game).any())

    return Refutation(
        name="unprotected update",
        method=method,
        variant=variant,
        attack="membership from one step of the imitator",
        reason=REASON,
        confidence=1 - stakes.alpha,
        claimed_epsilon=stakes.epsilon,
        observed_epsilon=observed_epsilon(play, stakes),
        delta=stakes.delta,
        games=stakes.games,
    )


def updates_of(name: str, variant: str, stakes: Stakes) -> UpdateOf:
    """One step of a synthesizer at its tiny size, with the target among the patients and without."""
    ward = simulate_ward(_RECORDS, seed=stakes.seed)
    task = Task(
        schema=WARD,
        records=_RECORDS,
        budget=EpsilonDelta(epsilon=stakes.epsilon, delta=stakes.delta),
        seed=stakes.seed,
    )
    row = find_synthesizer(name)
    settings = row.settings("tiny", private=True, variant=variant)
    if isinstance(settings, IgamtSettings):
        settings = replace(settings, refresh=_NEVER)  # what is made after a step is not looked at
    synthesizer = row.kind(task, settings)
    if not isinstance(synthesizer, NeuralSynthesizer):
        raise RequestError(f"{name} does not train by steps: this attack has nothing to look at.")
    randomness = fresh_randomness(stakes, 0)
    scales = Scales.release(
        ward, noise_multiplier=synthesizer.scales_noise, randomness=randomness, step=_BEFORE
    )

    def step_of(patients: int) -> RepeatedStep:
        trainer, _ = synthesizer.trainer(ward, scales, randomness=randomness)
        # an empty set of patients is the sampler that draws none of them
        trainer.sampler = CanarySampler(
            trainer.sampler, records=patients, coins=torch.zeros(_RECORDS, dtype=torch.bool)
        )
        return RepeatedStep(trainer)

    steps = {True: step_of(_RECORDS), False: step_of(0)}

    def update(inside: bool, game: int) -> Tensor:
        released = steps[inside].released(game)
        bare = getattr(steps[inside].noise, "unprotected", None)
        if bare is None:
            return flat(released.values())
        return flat(part for part_name, part in bare.items() if part_name.startswith(RELEASED_PART))

    return update
