"""The private training loop.

    Poisson sample -> views -> per-record gradients -> clip -> sum -> noise -> divide -> optimizer step

Each step is written into the ledger before its noise is released, so the ledger can only over-count.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hauberk.accounting import Ledger, PrivacyPlan
from hauberk.errors import RequestError
from hauberk.gradients import (
    AdaptiveClip,
    ClippedGradients,
    ClippedSum,
    Clipping,
    FlatClip,
    Geometry,
    RecordLoss,
    mean_cross_entropy,
    trainable,
)
from hauberk.gradients.choice import PathChoice
from hauberk.randomness import Randomness
from hauberk.training.noise import SumNoise
from hauberk.training.optimisation import AveragedWeights, Optimisation, ScheduledOptimizer
from hauberk.training.sampling import PoissonSampler
from hauberk.training.shaping import Shaping
from hauberk.training.views import NoisyViews

RECORD_LIMIT = 2**32  # record identities fill one 32-bit counter of the view noise


@dataclass(frozen=True, kw_only=True)
class StepDone:
    """What an observer is told after a step. ``private`` must stay in the run's private folder."""

    step: int  # steps done so far
    private: ClippedSum


class PrivateTrainer:
    """Trains ``model`` in place by DP-SGD under ``plan``.

    Guarantee: the sequence of all weights it produces is ``plan.epsilon()``, ``plan.delta`` differentially
    private for adding or removing one record, if ``randomness`` is unknown to the adversary (Abadi et al.
    2016, Algorithm 1, with Poisson sampling, a noisy sum and a constant divisor).

    ``clipping`` is one of `hauberk.gradients` or a number, the bound of a flat clip. ``geometry`` shapes
    clipping and noise, once and for all; ``shaping`` does so by what has been released before. ``memory``
    (bytes) limits the working memory of a step.
    """

    def __init__(
        self,
        model: nn.Module,
        x: Tensor,
        y: Tensor,
        *,
        plan: PrivacyPlan,
        views: NoisyViews,
        clipping: Clipping | float,
        optimisation: Optimisation,
        randomness: Randomness,
        geometry: Geometry | None = None,
        shaping: Shaping | None = None,
        loss: RecordLoss = mean_cross_entropy,
        memory: int | None = None,
        path: PathChoice = "auto",
    ) -> None:
        if len(x) != len(y) or len(x) >= RECORD_LIMIT:
            raise RequestError(f"{len(x)} inputs and {len(y)} labels do not make a training set")
        self.model, self.plan, self.ledger, self.step = model, plan, Ledger(), 0
        self.clipping = FlatClip(float(clipping)) if isinstance(clipping, int | float) else clipping
        self._x, self._y, self._views, self._randomness = x, y, views, randomness
        self._device = next(iter(trainable(model).values()), torch.empty(0)).device
        if shaping is not None and geometry is not None:
            raise RequestError("give a geometry or a shaping, which has one of its own, not both")
        self.shaping = shaping
        geometry = geometry if shaping is None else shaping.geometry
        self._gradients = ClippedGradients(
            model, loss, clipping=self.clipping, geometry=geometry, memory=memory, path=path
        )
        # a model that cannot work is told apart from a bug before the first record is touched
        self._gradients.prepare(torch.zeros(1, views.views, *x.shape[1:], device=self._device))
        self._noise = SumNoise(plan, self.clipping, randomness)
        self._sampler = PoissonSampler(plan, held=len(x), randomness=randomness)
        self.optimizer = ScheduledOptimizer(optimisation, model, steps=plan.steps)
        self.average = AveragedWeights(trainable(model), optimisation.averaging)

    def _clipped_sum(self) -> ClippedSum:
        chosen = self._sampler.sample(self.step).to(self._x.device)
        x, y = self._x[chosen].to(self._device), self._y[chosen].to(self._device)
        views = self._views(
            x, records=chosen.to(self._device), step=self.step, key=self._randomness.view_key()
        )
        cuda = [self._device] if self._device.type == "cuda" else []
        with torch.random.fork_rng(devices=cuda):
            torch.manual_seed(self._randomness.layer_seed(step=self.step))
            return self._gradients.clipped_sum(views, y)

    def advance(self) -> StepDone:
        """One step."""
        clipped = self._clipped_sum()
        self.ledger.record(self.plan.event(steps=1))
        released = self._noise.release(clipped, self.step)
        divided = torch._foreach_div(list(released.gradients.values()), self.plan.batch)
        means = dict(zip(released.gradients, divided, strict=True))
        if self._gradients.geometry is not None:
            means = self._gradients.geometry.restored(means)
        self.optimizer.apply(means, self.step)
        if self.shaping is not None:
            self.shaping.observe(means, self._noise.deviation(clipped.sensitivity) / self.plan.batch)
        if isinstance(self.clipping, AdaptiveClip) and released.count_normal is not None:
            self.clipping.follow(
                records=clipped.records,
                clipped=clipped.clipped,
                normal=released.count_normal,
                batch=self.plan.batch,
            )
        self.average.update(trainable(self.model), self.step)
        self.step += 1
        return StepDone(step=self.step, private=clipped)

    def run(self, observe: Callable[[StepDone], None]) -> None:
        """All remaining steps of the plan; ``observe`` hears of each."""
        while self.step < self.plan.steps:
            observe(self.advance())

    def averaged_model(self, into: nn.Module) -> nn.Module:
        """Copy the averaged weights (a function of released weights only) into ``into``."""
        into.load_state_dict(self.model.state_dict())
        for name, weight in into.named_parameters():  # by parameter, so that tied weights count once
            if name in self.average.values:
                weight.data.copy_(self.average.values[name])
        return into
