"""Keeps the run folder up to date while training goes on.

Events are *reserved*: before the steps of an epoch begin, the event list on disk already counts them. A run
that is killed at any moment therefore never under-counts what it released.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import nn

from hauberk.accounting import CurvePoint, Ledger, proven_epsilon
from hauberk.progress import Progress
from hauberk.randomness import Randomness
from hauberk.training.checkpoints import save_checkpoint
from hauberk.training.loop import PrivateTrainer, StepDone
from hauberk.training.run_folder import RunFolder

COARSE = 1e-3  # grid of privacy losses for the curve: faster, a little larger, still a bound

Evaluate = Callable[[nn.Module], float]
"""Accuracy of a released model on test data."""


class Journal:
    """Observer of a :class:`PrivateTrainer`; with ``folder=None`` it only collects the curve."""

    def __init__(
        self,
        trainer: PrivateTrainer,
        *,
        folder: RunFolder | None,
        randomness: Randomness,
        evaluate: Evaluate | None,
        scratch: nn.Module,
        progress: Progress,
    ) -> None:
        self._trainer, self._folder, self._randomness = trainer, folder, randomness
        self._evaluate, self._scratch, self._progress = evaluate, scratch, progress
        plan = trainer.plan
        self._epoch_steps = max(1, math.ceil(plan.records / plan.batch))
        # what the folder's event list says; it grows ahead of the trainer's own ledger
        self.spent = Ledger(reproducible=randomness.reproducible)
        self.curve: list[CurvePoint] = []
        self._diagnostics: list[dict[str, float]] = []
        self._since_last: list[StepDone] = []

    def resume(self, spent: Ledger, curve: tuple[CurvePoint, ...]) -> None:
        """Go on from what an interrupted run left; all that it had reserved stays counted."""
        self.spent = spent
        self.curve = [point for point in curve if point.step <= self._trainer.step]

    def reserve(self) -> None:
        """Count the steps up to the next epoch's end, durably, before the first of them runs."""
        done, total = self._trainer.step, self._trainer.plan.steps
        ahead = min(self._epoch_steps - done % self._epoch_steps, total - done)
        if ahead > 0:
            self.spent.record(self._trainer.plan.event(steps=ahead))
            if self._folder is not None:
                self._folder.write_events(self.spent, delta=self._trainer.plan.delta)

    def __call__(self, done: StepDone) -> None:
        plan = self._trainer.plan
        self._progress("training", done.step, plan.steps)
        self._since_last.append(done)
        if done.step % self._epoch_steps and done.step < plan.steps:
            return
        self._note_metrics(done.step)
        self._note_diagnostics(done.step)
        if self._folder is not None and done.step < plan.steps:
            save_checkpoint(self._trainer, self._folder.checkpoint, view_key=self._randomness.view_key())
        self.reserve()

    def _note_metrics(self, step: int) -> None:
        plan = self._trainer.plan
        accuracy = None
        if self._evaluate is not None:
            accuracy = self._evaluate(self._trainer.averaged_model(self._scratch))
        provable = plan.private and not self._randomness.reproducible
        # of everything counted so far, steps repeated after an interruption included
        epsilon = proven_epsilon(self.spent.events, plan.delta, finest=COARSE) if provable else None
        point = CurvePoint(
            step=step, epoch=step * plan.sampling_rate, epsilon=epsilon, test_accuracy=accuracy
        )
        self.curve.append(point)
        if self._folder is not None:
            self._folder.write_metrics(self.curve)

    def _note_diagnostics(self, step: int) -> None:
        steps, self._since_last = self._since_last, []
        records = sum(each.private.records for each in steps)
        self._diagnostics.append(
            {
                "step": step,
                "mean_batch": records / len(steps),
                "clipped_share": sum(each.private.clipped for each in steps) / max(1, records),
                "loss": sum(each.private.loss * each.private.records for each in steps) / max(1, records),
            }
        )
        if self._folder is not None:
            self._folder.write_diagnostics(self._diagnostics)
