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
    ClippedSum,
    PerRecordGradients,
    RecordLoss,
    check_bound,
    mean_cross_entropy,
    trainable,
)
from hauberk.randomness import Randomness
from hauberk.training.optimisation import AveragedWeights, Optimisation
from hauberk.training.sampling import PoissonSampler
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
    """

    def __init__(
        self,
        model: nn.Module,
        x: Tensor,
        y: Tensor,
        *,
        plan: PrivacyPlan,
        views: NoisyViews,
        clip: float,
        optimisation: Optimisation,
        randomness: Randomness,
        loss: RecordLoss = mean_cross_entropy,
    ) -> None:
        check_bound(clip)
        if len(x) != len(y) or len(x) >= RECORD_LIMIT:
            raise RequestError(f"{len(x)} inputs and {len(y)} labels do not make a training set")
        self.model, self.plan, self.ledger, self.step = model, plan, Ledger(), 0
        self._x, self._y, self._views, self._clip = x, y, views, clip
        self._optimisation, self._randomness = optimisation, randomness
        self._device = next(iter(trainable(model).values()), torch.empty(0)).device
        self._gradients = PerRecordGradients(model, loss)
        self._refuse_unfit_model()
        self._sampler = PoissonSampler(plan, held=len(x), randomness=randomness)
        self.optimizer = optimisation.optimizer(model)
        self.average = AveragedWeights(trainable(model), optimisation.averaging)

    def _refuse_unfit_model(self) -> None:
        """Try the per-record gradient on zeros, so that a model that cannot work is told apart from a bug."""
        blank = torch.zeros(1, self._views.views, *self._x.shape[1:], device=self._device)
        try:
            self._gradients.per_record(blank, torch.zeros(1, dtype=torch.int64, device=self._device))
        except (RuntimeError, IndexError, ValueError, TypeError) as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise RequestError(f"this model has no per-record gradient here: {reason}") from error

    def _noisy_sum(self, clipped: ClippedSum) -> dict[str, Tensor]:
        """Add N(0, (noise multiplier * sensitivity)^2) to every coordinate of the sum."""
        if not self.plan.private:
            return clipped.gradients
        deviation = self.plan.noise_multiplier * clipped.sensitivity
        count = sum(gradient.numel() for gradient in clipped.gradients.values())
        noise = self._randomness.normals(step=self.step, count=count, device=self._device)
        parts = noise.split([gradient.numel() for gradient in clipped.gradients.values()])
        return {
            name: (gradient.double() + deviation * part.view_as(gradient)).to(gradient.dtype)
            for (name, gradient), part in zip(clipped.gradients.items(), parts, strict=True)
        }

    def _clipped_sum(self) -> ClippedSum:
        chosen = self._sampler.sample(self.step).to(self._x.device)
        x, y = self._x[chosen].to(self._device), self._y[chosen].to(self._device)
        views = self._views(
            x, records=chosen.to(self._device), step=self.step, key=self._randomness.view_key()
        )
        cuda = [self._device] if self._device.type == "cuda" else []
        with torch.random.fork_rng(devices=cuda):
            torch.manual_seed(self._randomness.layer_seed(step=self.step))
            return self._gradients.clipped_sum(views, y, bound=self._clip)

    def advance(self) -> StepDone:
        """One step."""
        clipped = self._clipped_sum()
        self.ledger.record(self.plan.event(steps=1))
        noisy = self._noisy_sum(clipped)
        for name, weight in self.model.named_parameters():
            if name in noisy:
                weight.grad = noisy[name] / self.plan.batch
        for group in self.optimizer.param_groups:
            group["lr"] = self._optimisation.lr_at(self.step, self.plan.steps)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
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
