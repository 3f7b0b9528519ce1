"""Neural synthesizers: the scales, then per-record training of a game, then rows from noise.

    scales (one Gaussian release) -> rows -> Poisson samples -> one loss per record over all networks
    -> one clip -> one noise -> optimizer, critics held -> ... -> rows from noise -> patients

With a budget the scales take ``scales_share`` of it and training gets the rest, calibrated together. Without
one, the same is done with no noise and no clip.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from hauberk.accounting import Event, GaussianEvent, PrivacyPlan, UnprotectedEvent
from hauberk.errors import RequestError
from hauberk.progress import Progress
from hauberk.randomness import Randomness, SystemRandomness, choose_randomness
from hauberk.synthesis.base import Sampler, Synthesizer, Trained
from hauberk.synthesis.bounded_release import noise_multiplier_for
from hauberk.synthesis.game import Game, NoiseBesideRows, game_loss
from hauberk.synthesis.packing import Packing, RowShape
from hauberk.synthesis.patients import Patients
from hauberk.synthesis.scales import Scales, scales_layout
from hauberk.training.checkpoints import (
    read_checkpoint_constants,
    read_checkpoint_facts,
    restore_checkpoint,
)
from hauberk.training.journal import Journal
from hauberk.training.loop import NO_CLIP, PrivateTrainer
from hauberk.training.optimisation import Optimisation
from hauberk.training.run_folder import RunFolder

SCALES, WEIGHTS = "scales/", "weights/"
_BEFORE_TRAINING = 2**40  # the step of the scales' noise: none that training takes


@dataclass(frozen=True, kw_only=True)
class NeuralSettings:
    """Public constants of training. ``clip`` bounds a record's gradient over all networks together.

    ``persistence``: how much of a patient's first deviation from the decoder's mean its later values keep.
    """

    width: int = 128
    latent: int = 16
    batch: int = 128
    epochs: float = 40.0
    lr: float = 2e-3
    averaging: float = 0.97
    clip: float = 1.0
    scales_share: float = 0.1
    persistence: float = 0.6

    def __post_init__(self) -> None:
        if min(self.width, self.latent, self.batch) < 1:
            raise RequestError("width, latent and batch of a synthesizer must be at least 1.")
        if not 0 < self.scales_share < 1:
            raise RequestError(f"scales_share must lie between 0 and 1, got {self.scales_share}.")
        if not 0 <= self.persistence < 1:
            raise RequestError(f"persistence must be at least 0 and below 1, got {self.persistence}.")


@dataclass(frozen=True, kw_only=True)
class AutoencoderSettings(NeuralSettings):
    """``head_weight``: how much the static features, the outcome among them, count beside one step."""

    head_weight: float = 10.0


class NeuralSynthesizer(Synthesizer):
    """A synthesizer that trains a `Game`.

    Guarantee with a budget: the scales are one Gaussian release; every step is one Gaussian release from one
    Poisson sample of the patients, for all networks together. Steps are in the ledger before they happen; the
    scales are in it before anything leaves the run's private folder.
    """

    settings: NeuralSettings
    claim_source = (
        "accounting of the scales' release and of the plan: Poisson sampling of patients, one clip over all "
        "networks, Gaussian noise on the sum"
    )

    @abstractmethod
    def build_game(self, shape: RowShape) -> Game:
        """The networks, with fresh weights."""

    @cached_property
    def scales_noise(self) -> float:
        """The noise multiplier of the scales' release; 0 without a budget."""
        budget = self.task.budget
        if budget is None:
            return 0.0
        return noise_multiplier_for(budget.epsilon, budget.delta, share=self.settings.scales_share)

    @cached_property
    def plan(self) -> PrivacyPlan:
        """Of the training, with the scales beforehand."""
        task, settings = self.task, self.settings
        batch = min(settings.batch, task.records)
        if task.budget is None:
            return PrivacyPlan(
                records=task.records,
                batch=batch,
                epochs=settings.epochs,
                noise_multiplier=0.0,
                delta=task.delta,
            )
        return PrivacyPlan.calibrate(
            epsilon=task.budget.epsilon,
            delta=task.budget.delta,
            records=task.records,
            batch=batch,
            epochs=settings.epochs,
            beforehand=(GaussianEvent(noise_multiplier=self.scales_noise),),
        )

    def planned_events(self) -> tuple[Event, ...]:
        return (*self._beforehand(), self.plan.event())

    def _beforehand(self) -> tuple[Event, ...]:
        return self.plan.beforehand if self.plan.private else (UnprotectedEvent(),)

    def train(
        self, patients: Patients, *, folder: RunFolder | None, resume: bool, progress: Progress
    ) -> Trained:
        randomness = choose_randomness(self.task.noise_seed)
        if resume and folder is not None:
            kept = read_checkpoint_constants(folder.checkpoint)
            scales = self._scales(kept)
            if self.task.noise_seed is None:
                randomness = SystemRandomness(view_key=read_checkpoint_facts(folder.checkpoint)[1])
        else:
            scales = Scales.release(
                patients,
                noise_multiplier=self.scales_noise,
                randomness=randomness,
                step=_BEFORE_TRAINING,
            )
        trainer, game = self.trainer(patients, scales, randomness=randomness)
        journal = Journal(
            trainer,
            folder=folder,
            randomness=randomness,
            evaluate=None,
            scratch=game,
            progress=progress,
            beforehand=self._beforehand(),
        )
        if resume and folder is not None:
            restore_checkpoint(trainer, folder.checkpoint)
            journal.resume(folder.read_events(), folder.read_metrics())
        journal.reserve()
        trainer.run(journal)
        trainer.averaged_model(game)
        trainer.close()
        weights = {f"{WEIGHTS}{name}": value for name, value in game.state_dict().items()}
        counts = {f"{SCALES}{name}": value for name, value in scales.counts.items()}
        return Trained(tensors={**weights, **counts}, ledger=journal.spent)

    def trainer(
        self, patients: Patients, scales: Scales, *, randomness: Randomness
    ) -> tuple[PrivateTrainer, Game]:
        """The training loop before its first step, and the game that it trains."""
        packing, plan, settings = Packing(scales), self.plan, self.settings
        rows = packing.pack(patients)
        game = self._fresh_game(packing.shape)
        game.start_from(scales)
        key = randomness.view_key()
        held: list[PrivateTrainer] = []

        def after_step() -> None:
            game.after_step(step=held[0].step, steps=plan.steps, key=key)

        trainer = PrivateTrainer(
            game,
            rows,
            torch.zeros(len(rows), dtype=torch.int64),
            plan=plan,
            views=NoiseBesideRows(game.noise_width),
            clipping=settings.clip if plan.private else NO_CLIP,
            geometry=game.geometry() if plan.private else None,
            optimisation=Optimisation(lr=settings.lr, optimizer="adam", averaging=settings.averaging),
            randomness=randomness,
            loss=game_loss,
            # what no private step changes: the released scales, and the networks that records do not touch
            constants={
                **{f"{SCALES}{name}": value for name, value in scales.counts.items()},
                **game.untrained_state(),
            },
            after_step=after_step,
        )
        held.append(trainer)
        return trainer, game

    def sampler(self, tensors: Mapping[str, Tensor]) -> Sampler:
        packing = Packing(self._scales(tensors))
        game = self._fresh_game(packing.shape)
        game.load_state_dict(
            {name.removeprefix(WEIGHTS): each for name, each in tensors.items() if name.startswith(WEIGHTS)}
        )

        def make(count: int, generator: torch.Generator) -> Patients:
            latent = torch.randn(count, game.latent, generator=generator)
            noise = torch.randn(count, packing.shape.width, generator=generator)
            return packing.unpack(game.generate(latent, noise))

        return make

    def _fresh_game(self, shape: RowShape) -> Game:
        """Weights from ``seed``; the global generator is left as it was."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.task.seed)
            return self.build_game(shape)

    def _scales(self, tensors: Mapping[str, Tensor]) -> Scales:
        schema = self.task.schema
        names = [block.name for block in scales_layout(schema).blocks]
        counts = {name: tensors[f"{SCALES}{name}"] for name in names if f"{SCALES}{name}" in tensors}
        return Scales(schema, counts, noise_multiplier=self.scales_noise)
