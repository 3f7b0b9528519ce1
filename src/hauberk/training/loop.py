"""The private training loop.

    Poisson sample -> views -> per-record gradients -> clip -> sum -> noise -> divide -> optimizer step

Each step is written into the ledger before its noise is released, so the ledger can only over-count. Several
processes go the same way together (`hauberk.training.distribution`): up to the sum each with its own records,
from the noise on all with the leader's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
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
    Views,
    mean_cross_entropy,
    trainable,
)
from hauberk.gradients.choice import PathChoice
from hauberk.randomness import Key, Randomness
from hauberk.training.distribution import ProcessLost, Ranks
from hauberk.training.noise import StepNoise, SumNoise
from hauberk.training.optimisation import AveragedWeights, Optimisation, ScheduledOptimizer
from hauberk.training.sampling import PoissonSampler, Sampler
from hauberk.training.shaping import Shaping
from hauberk.training.views import RecordViews

NO_CLIP = FlatClip(1e30)
CONSTANTS = "constants/"
AT_A_TIME = 1024  # records of a pass over all of them
RECORD_LIMIT = 2**32  # record identities fill one 32-bit counter of the view noise


@dataclass(frozen=True, kw_only=True)
class StepDone:
    """What an observer is told after a step. ``private`` must stay in the run's private folder."""

    step: int  # steps done so far
    private: ClippedSum  # of all processes' records at the leader, of its own elsewhere


class PrivateTrainer:
    """Trains ``model`` in place by DP-SGD under ``plan``.

    Guarantee: the sequence of all weights it produces is ``plan.epsilon()``, ``plan.delta`` differentially
    private for adding or removing one record, if ``randomness`` is unknown to the adversary (Abadi et al.
    2016, Algorithm 1, with Poisson sampling, a noisy sum and a constant divisor).

    ``clipping`` is one of `hauberk.gradients` or a number, the bound of a flat clip. ``geometry`` shapes
    clipping and noise, once and for all; ``shaping`` does so by what has been released before. ``memory``
    (bytes) limits the working memory of a step. ``x`` and ``y`` are the records of this process of ``ranks``;
    the guarantee is about the records of all processes, and against everybody but these processes.

    ``constants`` are tensors that views or noise read and that a checkpoint must keep; ``after_step`` may
    change the model's weights after a step, by a rule that looks at nothing but released values. Neither is
    covered by the guarantee: whoever computes them from records accounts for that.
    """

    def __init__(
        self,
        model: nn.Module,
        x: Tensor,
        y: Tensor,
        *,
        plan: PrivacyPlan,
        views: RecordViews,
        clipping: Clipping | float,
        optimisation: Optimisation,
        randomness: Randomness,
        geometry: Geometry | None = None,
        shaping: Shaping | None = None,
        loss: RecordLoss = mean_cross_entropy,
        memory: int | None = None,
        path: PathChoice = "auto",
        ranks: Ranks | None = None,
        constants: Mapping[str, Tensor] | None = None,
        after_step: Callable[[], None] | None = None,
    ) -> None:
        self.ranks = ranks or Ranks.alone()
        self.constants = dict(constants or {})
        self._after_step = after_step
        if len(x) != len(y) or len(x) * self.ranks.count >= RECORD_LIMIT:
            raise RequestError(f"{len(x)} inputs and {len(y)} labels do not make a training set")
        self.model, self.plan, self.ledger, self.step = model, plan, Ledger(), 0
        self.clipping = FlatClip(float(clipping)) if isinstance(clipping, int | float) else clipping
        self._x, self._y, self._views, self.randomness = x, y, views, randomness
        self._device = next(iter(trainable(model).values()), torch.empty(0)).device
        if shaping is not None and geometry is not None:
            raise RequestError("give a geometry or a shaping, which has one of its own, not both")
        self.shaping = shaping
        geometry = geometry if shaping is None else shaping.geometry
        self._gradients = ClippedGradients(
            model, loss, clipping=self.clipping, geometry=geometry, memory=memory, path=path
        )
        self._unclipped = ClippedGradients(model, loss, clipping=NO_CLIP, memory=memory, path=path)
        # a model that cannot work is told apart from a bug before the first record is touched
        blank = torch.zeros(1, *x.shape[1:], device=self._device)
        nobody = torch.zeros(1, dtype=torch.int64, device=self._device)
        self._gradients.prepare(views(blank, records=nobody, step=0, key=(0, 0)))
        self.noise: StepNoise = SumNoise(plan, self.clipping, randomness)
        self.sampler: Sampler = PoissonSampler(plan, held=len(x), randomness=randomness, ranks=self.ranks)
        self.optimizer = ScheduledOptimizer(optimisation, model, steps=plan.steps)
        self.average = AveragedWeights(trainable(model), optimisation.averaging)
        self._view_key: Key | None = None  # known once the processes have gathered
        self._rows = torch.empty(0, dtype=torch.int64)  # of the sample that the present step has drawn

    def _clipped_sum(self) -> ClippedSum:
        """Of this process's records."""
        self._gather()
        self._rows = self.sampler.sample(self.step)
        return self._sum_over(self._rows, self._gradients)

    def sampled(self) -> tuple[Tensor, Views, Tensor]:
        """The present step's sample, for published variants whose noise looks at it: private."""
        return self._seen(self._rows)

    def _seen(self, rows: Tensor) -> tuple[Tensor, Views, Tensor]:
        """Records, their views and their labels."""
        records = self.ranks.records(rows).to(self._device)
        x, y = (each[rows.to(each.device)].to(self._device) for each in (self._x, self._y))
        return x, self._views(x, records=records, step=self.step, key=self._gather()), y

    def _sum_over(self, rows: Tensor, gradients: ClippedGradients) -> ClippedSum:
        _, views, y = self._seen(rows)
        cuda = [self._device] if self._device.type == "cuda" else []
        with torch.random.fork_rng(devices=cuda):
            # processes hold different records: their layers draw differently
            torch.manual_seed((self.randomness.layer_seed(step=self.step) + self.ranks.rank) % 2**32)
            return gradients.clipped_sum(views, y)

    def mean_gradient(self) -> Tensor:
        """Over all of this process's records, as one long vector: private, neither clipped nor noisy."""
        parts = torch.arange(len(self._y)).split(AT_A_TIME)
        sums = [self._sum_over(rows, self._unclipped).gradients.values() for rows in parts]
        flat = [torch.cat([part.flatten() for part in each]) for each in sums]
        return torch.stack(flat).sum(0) / max(1, len(self._y))

    def _released(self, clipped: ClippedSum) -> dict[str, Tensor]:
        """The noisy sum. The leader alone draws noise, for all records once, and moves an adaptive bound."""
        gradients = clipped.gradients
        if self.ranks.leader:
            released = self.noise.release(clipped, self.step)
            gradients = released.gradients
            if isinstance(self.clipping, AdaptiveClip) and released.count_normal is not None:
                self.clipping.follow(
                    records=clipped.records,
                    clipped=clipped.clipped,
                    normal=released.count_normal,
                    batch=self.plan.batch,
                )
        if isinstance(self.clipping, AdaptiveClip):
            self.clipping.bound = self.ranks.number_from_leader(self.clipping.bound)
        return self.ranks.from_leader(gradients)

    def advance(self) -> StepDone:
        """One step."""
        clipped = self.ranks.sum_at_leader(self._clipped_sum())
        for event in self.noise.events(1):
            self.ledger.record(event)
        released = self._released(clipped)
        divided = torch._foreach_div(list(released.values()), self.plan.batch)
        means = dict(zip(released, divided, strict=True))
        if self._gradients.geometry is not None:
            means = self._gradients.geometry.restored(means)
        applied = means if self.shaping is None else self.shaping.applied(means)
        self.optimizer.apply(applied, self.step)
        if self._after_step is not None:
            self._after_step()
        if self.shaping is not None:
            self.shaping.observe(means, self.noise.deviation(clipped.sensitivity) / self.plan.batch)
        self.average.update(trainable(self.model), self.step)
        self.step += 1
        return StepDone(step=self.step, private=clipped)

    def run(self, observe: Callable[[StepDone], None]) -> None:
        """All remaining steps of the plan; ``observe`` hears of each."""
        epoch = math.ceil(self.plan.records / self.plan.batch)
        try:
            while self.step < self.plan.steps:
                done = self.advance()
                if self.step % epoch == 0 or self.step == self.plan.steps:
                    self.ranks.check_equal(trainable(self.model), self.step)
                observe(done)
        except ProcessLost as lost:
            raise lost.at(step=self.step) from lost

    def close(self) -> None:
        """Training is over: give back the device memory that only steps need."""
        self._gradients.close()
        self._unclipped.close()

    def _gather(self) -> Key:
        """The key of the view noise; the first call brings all processes to the leader's state."""
        if self._view_key is None:
            if self.ranks.count > 1:
                if self.noise.looks_at_records:  # and here it sees a part of them
                    raise RequestError("this published variant trains in one process: leave out torchrun")
                self.ranks.check_same(self._settings())
                self._follow_leader()
            self._view_key = self.ranks.key_from_leader(self.randomness.view_key())
        return self._view_key

    def _settings(self) -> str:
        """What must be equal for every record to be sampled and clipped alike, wherever it lives."""
        adaptive = isinstance(self.clipping, AdaptiveClip)  # its bound is part of the state
        bound = None if adaptive else self.clipping.sensitivity
        kinds = [type(each).__name__ for each in (self.clipping, self.shaping, self.noise)]
        shapes = {name: (tuple(each.shape), each.dtype) for name, each in self.model.state_dict().items()}
        return repr((self.plan, self._views, kinds, bound, self.randomness.reproducible, shapes))

    def _follow_leader(self) -> None:
        trained = trainable(self.model)
        fixed = {name: each for name, each in self.model.state_dict().items() if name not in trained}
        for name, value in self.ranks.state_from_leader(fixed).items():
            fixed[name].copy_(value)
        state = self.ranks.state_from_leader(self.state() if self.ranks.leader else {})
        if not self.ranks.leader:
            self.restore(state)

    def state(self) -> dict[str, Tensor]:
        """What the next step starts from, as named tensors; the ledger has a file of its own."""
        state = {f"weights/{name}": weight for name, weight in trainable(self.model).items()}
        state |= {f"average/{name}": weight for name, weight in self.average.values.items()}
        state |= {f"optimizer/{name}": value for name, value in self.optimizer.state().items()}
        if self.shaping is not None:
            state |= {f"shaping/{name}": value for name, value in self.shaping.state().items()}
        state |= {f"noise/{name}": value for name, value in self.noise.state().items()}
        state |= {f"{CONSTANTS}{name}": value for name, value in self.constants.items()}
        if isinstance(self.clipping, AdaptiveClip):
            state["clipping/bound"] = torch.tensor(self.clipping.bound, dtype=torch.float64)
        return {**state, "step": torch.tensor(self.step)}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go on from `state`; a KeyError or RuntimeError says that it belongs to another model."""
        for name, weight in trainable(self.model).items():
            weight.copy_(state[f"weights/{name}"])  # detached views of the parameters: written in place
            self.average.values[name].copy_(state[f"average/{name}"])
        prefix = "optimizer/"
        self.optimizer.restore(
            {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
        )
        if self.shaping is not None:
            for name, value in self.shaping.state().items():
                value.copy_(state[f"shaping/{name}"])
        for name, value in self.noise.state().items():
            value.copy_(state[f"noise/{name}"])
        for name, value in self.constants.items():
            value.copy_(state[f"{CONSTANTS}{name}"])
        if isinstance(self.clipping, AdaptiveClip):
            self.clipping.bound = float(state["clipping/bound"])
        self.step = int(state["step"])

    def averaged_model(self, into: nn.Module) -> nn.Module:
        """Copy the averaged weights (a function of released weights only) into ``into``."""
        into.load_state_dict(self.model.state_dict())
        for name, weight in into.named_parameters():  # by parameter, so that tied weights count once
            if name in self.average.values:
                weight.data.copy_(self.average.values[name])
        return into
