"""IGAMT: an imitative transformer for health records (004 chapter 4), as published and private for real.

    records -> Enc -> z                     G -> z~ -> Dec -> x~
               z -> Dec -> x^                    z~ -> Dec_i, last layer of Dec -> x-
    D_x, D_m: x against x^, x~, x-          D_z: z against z~

What records touch, and what follows:

    without a budget          all but G and Dec_i; nothing is promised
    protect="joint"           the same, by one clipped gradient per patient and one noise a step
    protect="critics"         D_x, D_m and the outcome's head alone; all else is post-processing
    variant="paper"           everything, as Algorithm 1 prints; nothing is proven (`igamt_paper`)
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from hauberk.accounting import NEIGHBOURS, PrivacyPlan
from hauberk.accounting.card import PrivacyClaim, PrivacyColumns
from hauberk.errors import RequestError
from hauberk.randomness import Randomness
from hauberk.synthesis.base import Task
from hauberk.synthesis.game import Game
from hauberk.synthesis.igamt_critics_only import CriticsGame
from hauberk.synthesis.igamt_game import ImitativeGame
from hauberk.synthesis.igamt_paper import (
    CLAIM_SOURCE,
    NOTES,
    REASON,
    PublishedGame,
    PublishedNoise,
    published_optimisation,
)
from hauberk.synthesis.igamt_settings import IgamtSettings
from hauberk.synthesis.neural import NeuralSynthesizer
from hauberk.synthesis.packing import RowShape
from hauberk.synthesis.patients import Patients
from hauberk.synthesis.scales import Scales
from hauberk.training.loop import PrivateTrainer
from hauberk.training.optimisation import ScheduledOptimizer


class IGAMT(NeuralSynthesizer):
    """Trains an `ImitativeGame`, a `CriticsGame` or a `PublishedGame`.

    Guarantee of the sound forms with a budget: that of `NeuralSynthesizer`, one event for the scales and one
    for each step's sample. The published form needs a budget too, the epsilon that its paper would claim, and
    proves nothing.
    """

    name = "igamt"
    settings_kind = IgamtSettings
    settings: IgamtSettings

    def __init__(self, task: Task, settings: Any = None) -> None:
        super().__init__(task, settings)
        if self.settings.published and task.budget is None:
            raise RequestError(
                "variant paper needs an epsilon to claim; without privacy take the sound variant, its equal."
            )

    @property
    def variant(self) -> str:
        return self.settings.variant

    def build_game(self, shape: RowShape) -> Game:
        if self.settings.published:
            return PublishedGame(shape, self.settings)
        kind = CriticsGame if self.settings.protect == "critics" else ImitativeGame
        return kind(shape, self.settings)

    @cached_property
    def scales_noise(self) -> float:
        """None in the published form: its minima and maxima have none either."""
        return 0.0 if self.settings.published else super().scales_noise

    @cached_property
    def plan(self) -> PrivacyPlan:
        """Of the training; that of the published form has no noise, because none of it protects anybody."""
        if not self.settings.published:
            return super().plan
        claimed = self.claimed_plan
        return PrivacyPlan(
            records=claimed.records,
            batch=claimed.batch,
            epochs=claimed.epochs,
            noise_multiplier=0.0,
            delta=claimed.delta,
        )

    @cached_property
    def claimed_plan(self) -> PrivacyPlan:
        """What the published form says it does; its noise multiplier is the sigma of Algorithm 1."""
        budget = self.task.budget
        assert budget is not None
        return PrivacyPlan.calibrate(
            epsilon=budget.epsilon,
            delta=budget.delta,
            records=self.task.records,
            batch=min(self.settings.batch, self.task.records),
            epochs=self.settings.epochs,
        )

    def trainer(
        self, patients: Patients, scales: Scales, *, randomness: Randomness
    ) -> tuple[PrivateTrainer, Game]:
        """As of all games; the published form has its own noise and optimizer.

        After each step of the published form ``trainer.noise.unprotected`` holds the mean gradients of the
        sampled patients that were applied without noise, those of ``imitator.*`` among them.
        """
        trainer, game = super().trainer(patients, scales, randomness=randomness)
        if self.settings.published:
            assert isinstance(game, PublishedGame)
            trainer.noise = PublishedNoise(
                trainer.plan, self.settings, sigma=self.claimed_plan.noise_multiplier, randomness=randomness
            )
            optimisation = published_optimisation(game, self.settings, trainer.plan)
            trainer.optimizer = ScheduledOptimizer(optimisation, game, steps=trainer.plan.steps)
        return trainer, game

    def privacy(self) -> PrivacyColumns:
        if not self.settings.published:
            return super().privacy()
        claimed = PrivacyClaim(
            epsilon=self.claimed_plan.epsilon(), delta=self.task.delta, source=CLAIM_SOURCE
        )
        return PrivacyColumns(
            unit=self.task.unit,
            neighbours=NEIGHBOURS,
            claimed=claimed,
            proven=None,
            observed=None,
            reason=REASON,
        )

    def notes(self) -> tuple[str, ...]:
        return NOTES if self.settings.published else ()
