"""Keeps the run folder up to date while training goes on.

Events are *reserved*: before a step begins, the event list on disk already counts it. A run that is killed at
any moment therefore never under-counts what it released. Before the first reservation there is a checkpoint,
so that whatever has an event list can be gone on with.

Order matters. Metrics before the checkpoint: who goes on from it finds the curve up to it. The checkpoint
before the next reservation: a kill between the two counts nothing twice.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from torch import nn

from hauberk.accounting import CurvePoint, Event, Ledger, proven_epsilon
from hauberk.errors import RequestError
from hauberk.progress import Progress
from hauberk.randomness import Randomness
from hauberk.training.checkpoints import save_checkpoint
from hauberk.training.loop import PrivateTrainer, StepDone
from hauberk.training.run_folder import RunFolder

COARSE = 1e-3  # grid of privacy losses for the curve: faster, a little larger, still a bound
ACCOUNTING_SHARE = 0.02  # of the time, at most, for the curve's epsilons; the first and the last are sure
CHECKPOINT_SECONDS = 60.0  # between checkpoints within an epoch; each epoch's end has one in any case
CHECKPOINT_SHARE = 0.05  # of the time, at most, for writing those within an epoch
RESERVED_STEPS = 200  # at most so many steps are counted that a kill keeps from running

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
        beforehand: Iterable[Event] = (),
    ) -> None:
        """``beforehand``: what was released before the first step; the first event list counts it."""
        self._trainer, self._folder, self._randomness = trainer, folder, randomness
        self._evaluate, self._scratch, self._progress = evaluate, scratch, progress
        plan = trainer.plan
        self._epoch_steps = max(1, math.ceil(plan.records / plan.batch))
        # what the folder's event list says; it grows ahead of the trainer's own ledger
        self.spent = Ledger(beforehand, reproducible=randomness.reproducible)
        self.curve: list[CurvePoint] = []
        self._diagnostics: list[dict[str, float]] = []
        self._since_last: list[StepDone] = []
        self._reserved = 0  # the event list counts the steps up to this one
        self._next_checkpoint = self._next_epsilon = 0.0  # on the clock of time.monotonic
        self._to_come_back_to = False  # whether there is a checkpoint
        if folder is not None:
            folder.claim()

    def resume(self, spent: Ledger, curve: tuple[CurvePoint, ...]) -> None:
        """Go on from what an interrupted run left; all that it had reserved stays counted."""
        self.spent = spent
        # a run whose noise is known for some of its steps proves nothing about any
        spent.reproducible = spent.reproducible or self._randomness.reproducible
        step = self._trainer.step
        self.curve = [point for point in curve if point.step <= step]
        if self._folder is not None:
            self._diagnostics = [row for row in self._folder.read_diagnostics() if row["step"] <= step]
        self._to_come_back_to = True
        self._next_checkpoint = time.monotonic() + CHECKPOINT_SECONDS

    def reserve(self) -> None:
        """Count the next steps, durably, before the first of them runs."""
        if not self._to_come_back_to:
            self._refuse_earlier_events()
            self._save_checkpoint()
        done, total = self._trainer.step, self._trainer.plan.steps
        ahead = min(RESERVED_STEPS, self._epoch_steps - done % self._epoch_steps, total - done)
        self._reserved = done + ahead
        if ahead > 0:
            for event in self._trainer.noise.events(ahead):
                self.spent.record(event)
            if self._folder is not None:
                with self._ending_in_a_sentence():
                    self._folder.write_events(self.spent, delta=self._trainer.plan.delta)

    def _refuse_earlier_events(self) -> None:
        """A new event list in the place of an earlier one would forget what that one counts."""
        if self._folder is not None and self._folder.begun:
            raise RequestError(
                f"{self._folder.path} counts the events of an earlier run: resume it, or use --force"
            )

    def __call__(self, done: StepDone) -> None:
        plan = self._trainer.plan
        self._progress("training", done.step, plan.steps)
        self._since_last.append(done)
        epoch_ends = done.step % self._epoch_steps == 0 or done.step == plan.steps
        if epoch_ends:
            self._note_metrics(done.step)
            self._note_diagnostics(done.step)
        if epoch_ends or time.monotonic() >= self._next_checkpoint:
            self._save_checkpoint()
        if done.step >= self._reserved:
            self.reserve()

    def _save_checkpoint(self) -> None:
        if self._folder is None:
            return
        begin = time.monotonic()
        with self._ending_in_a_sentence():
            save_checkpoint(self._trainer, self._folder.checkpoint, view_key=self._randomness.view_key())
        end = time.monotonic()
        self._next_checkpoint = end + max(CHECKPOINT_SECONDS, (end - begin) / CHECKPOINT_SHARE)
        self._to_come_back_to = True

    @contextmanager
    def _ending_in_a_sentence(self) -> Iterator[None]:
        """A full disk or a lost permission ends the run; say what has become of it."""
        try:
            yield
        except RequestError as error:
            if not isinstance(error.__cause__, OSError):
                raise
            sentence = (
                f"{error}; every step that ran is counted, and the run can be resumed when that is mended"
            )
            raise RequestError(sentence) from error.__cause__

    def _note_metrics(self, step: int) -> None:
        plan = self._trainer.plan
        accuracy = None
        if self._evaluate is not None:
            accuracy = self._evaluate(self._trainer.averaged_model(self._scratch))
        point = CurvePoint(
            step=step,
            epoch=step * plan.sampling_rate,
            epsilon=self._epsilon_so_far(step),
            test_accuracy=accuracy,
        )
        self.curve.append(point)
        if self._folder is not None:
            with self._ending_in_a_sentence():
                self._folder.write_metrics(self.curve)

    def _epsilon_so_far(self, step: int) -> float | None:
        """Of everything counted so far, steps repeated after an interruption included.

        None where nothing can be proven, and where the last one was a moment ago: computing it takes a tenth
        of a second, on a GPU a quarter of a small network's epoch.
        """
        plan, begin = self._trainer.plan, time.monotonic()
        provable = plan.private and not self.spent.reproducible
        if not provable or (begin < self._next_epsilon and step < plan.steps):
            return None
        epsilon = proven_epsilon(self.spent.events, plan.delta, finest=COARSE)
        end = time.monotonic()
        self._next_epsilon = end + (end - begin) / ACCOUNTING_SHARE
        return epsilon if math.isfinite(epsilon) else None

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
            with self._ending_in_a_sentence():
                self._folder.write_diagnostics(self._diagnostics)
