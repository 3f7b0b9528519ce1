"""AdLM, the adaptive Laplace mechanism (Phan et al. 2017), as published: the baseline of 000 and 003.

    split epsilon: relevance, inputs, loss                                             (1 : 1 : 2)
    train a network without protection; from it the relevance of every input, with noise
    draw Laplace noise for every coefficient of the loss, once
    for every step:
        draw one Laplace vector, less of it where an input is relevant; add it to every record of the batch
        the loss is the second Taylor polynomial of the sigmoid cross-entropy, with noisy coefficients
        take an ordinary gradient step, nothing is clipped
    predict without noise

There is no guarantee. The paper claims epsilon (and delta 0) for any number of steps, but all records of a
step get the same noise, which cancels in their differences; the network behind the first layer reads those;
the loss's coefficients are hidden values of a network in training and change with every step, their noise
does not; and the relevance comes from a network that was trained on the records without noise. A sound
variant would be DP-SGD.

Where the text is silent the authors' code decides: the perturbed inputs are cut off at +-10, nothing is added
to biases. Their last hidden layer is normalised over the batch, which takes out what all records of a step
have in common, and bounded to [0, 1]; here the network is the one given, and records do not mix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hauberk.accounting import Event, PrivacyPlan, UnprotectedEvent
from hauberk.certify import evaluation_mode
from hauberk.certify.first_map import find_first_map
from hauberk.errors import RequestError
from hauberk.gradients import ClippedSum, RecordLoss, ScoreLoss
from hauberk.mechanisms.objectives import output_taylor
from hauberk.methods import adaptive_laplace
from hauberk.methods.adaptive_laplace import Budgets, LossNoise, laplace_variables
from hauberk.methods.base import Constants, Given, Method
from hauberk.methods.run import spread
from hauberk.methods.settings import TrainSettings
from hauberk.randomness import Key, Randomness, keyed_normals
from hauberk.training import PrivateTrainer, RecordViews
from hauberk.training.loop import NO_CLIP
from hauberk.training.noise import Released, StepNoise
from hauberk.training.plain import train_plainly

CLAIM = "Phan et al. 2017: epsilon1 + epsilon2 + epsilon3 (delta 0), whatever the number of steps"
SHARED_NOISE = (
    "all records of a step get the same noise, so that their differences reach the network exactly, and the "
    "loss's coefficients change with the weights while their noise stays"
)
PRE_TRAINING_EPOCHS = 2
RELEVANCE_RECORDS = 2000
LARGEST_INPUT = 10.0
"""Perturbed inputs beyond are cut off, as in the authors' code."""
_RELEVANCE_STEP = (1 << 50) + 8  # numbers that no training step has
_LOSS_STEP = (1 << 50) + 9


def _taylor_over_views(scores: Tensor, labels: Tensor) -> Tensor:
    own = torch.arange(scores.shape[-1], device=labels.device) == labels.unsqueeze(-1)
    return output_taylor(scores, own.to(scores.dtype).unsqueeze(1)).mean(1)


taylor_loss = ScoreLoss(_taylor_over_views)
"""Second Taylor polynomial of the sigmoid cross-entropy, one number per record; without noise."""


class AdLM(Method):
    """AdLM. Its noise is made from ``claimed_epsilon``; the plan says sampling, batch and steps, and its own
    noise is not used. Nothing is clipped unless ``clipping`` says so. Other settings: `Method`."""

    name = "adlm"
    claim_source = CLAIM

    def __init__(
        self, model: nn.Module, *, plan: PrivacyPlan, claimed_epsilon: float | None = None, **settings: Any
    ) -> None:
        if claimed_epsilon is None:
            raise RequestError("adlm needs the epsilon that it claims: its noise is made from that")
        self.budgets = Budgets.split(claimed_epsilon)
        settings = {"variant": "paper", "clipping": NO_CLIP, **settings}
        super().__init__(model, plan=plan, claimed_epsilon=claimed_epsilon, **settings)

    @property
    def unprovable(self) -> str:
        return SHARED_NOISE

    @property
    def beforehand(self) -> tuple[Event, ...]:
        return (UnprotectedEvent(),)  # the relevance of a network that was trained without noise

    def settle(self, given: Given) -> Constants:
        shape = given.private.shape
        output = find_output_layer(given.model, shape)  # before anything takes time
        delta2 = adaptive_laplace.first_map_sensitivity(find_first_map(given.model, shape))
        delta3 = adaptive_laplace.loss_sensitivity(hidden=output.in_features, classes=output.out_features)
        shares = adaptive_laplace.input_shares(self._relevance(given))
        width = {"hidden": output.in_features, "classes": output.out_features}
        noise = LossNoise.draw(
            _normals(given.randomness, _LOSS_STEP, LossNoise.coefficients(**width)),
            **width,
            scale=delta3 / self.budgets.loss,
        )
        return {
            "input_scales": (delta2 / (shares * self.budgets.inputs * self.plan.batch)).float(),
            "linear_noise": noise.linear,
            "quadratic_noise": noise.quadratic,
        }

    def _relevance(self, given: Given) -> Tensor:
        train_plainly(
            given.model,
            given.private.x,
            given.private.y,
            epochs=PRE_TRAINING_EPOCHS,
            seed=self.seed,
            stage="pre-training",
            progress=given.progress,
        )
        found = adaptive_laplace.mean_relevance(given.model, spread(given.private, RELEVANCE_RECORDS))
        normals = _normals(given.randomness, _RELEVANCE_STEP, found.numel())
        return adaptive_laplace.noisy_relevance(
            found,
            laplace_variables(normals).view_as(found),
            epsilon=self.budgets.relevance,
            records=self.plan.records,
        )

    def record_views(self, model: nn.Module, shape: tuple[int, ...], constants: Constants) -> RecordViews:
        return SharedLaplaceViews(scales=constants["input_scales"])

    def record_loss(self, shape: tuple[int, ...], classes: int) -> RecordLoss:
        return taylor_loss

    def noise(self, trainer: PrivateTrainer) -> StepNoise:
        return PublishedNoise(trainer)

    @classmethod
    def from_settings(cls, model: nn.Module, settings: TrainSettings, plan: PrivacyPlan) -> AdLM:
        return cls(model, plan=plan, **{**settings.common(), "clipping": NO_CLIP})


def published_plan(settings: TrainSettings, *, records: int) -> PrivacyPlan:
    """DP-SGD's plan for the epsilon that the paper would claim; AdLM adds its own noise in place of the
    plan's, and its event list says that nothing was protected."""
    if settings.epsilon is None:
        raise RequestError("--variant paper needs --epsilon, the epsilon that the paper would claim")
    return settings.plan(records=records)


@dataclass(frozen=True, kw_only=True, eq=False)
class SharedLaplaceViews:
    """Each record once, plus one Laplace vector per step, *the same for all records*; cut off at +-10.

    ``scales`` are the vector's, one per input. The noise is a function of the step and the run's key.
    """

    scales: Tensor

    def __call__(self, x: Tensor, *, records: Tensor, step: int, key: Key) -> Tensor:
        everybody = torch.zeros(1, dtype=torch.int64, device=x.device)
        shape = tuple(x.shape[1:])
        (normals,) = keyed_normals(key, step=step, records=everybody, views=4, shape=shape)
        noise = self.scales.to(x) * laplace_variables(normals).to(x)
        return (x + noise).clamp(-LARGEST_INPUT, LARGEST_INPUT).unsqueeze(1)


class PublishedNoise:
    """The noise of the loss's coefficients: its gradient is added to the sum of the records' gradients.

    The objective of a batch is ``(sum of the records' polynomials + noise term) / L``, and the trainer
    divides by L. Nothing is protected by it.
    """

    looks_at_records = False

    def __init__(self, trainer: PrivateTrainer) -> None:
        constants = trainer.constants
        self._noise = LossNoise(linear=constants["linear_noise"], quadratic=constants["quadratic_noise"])
        self._weight = find_output_layer(trainer.model, tuple(constants["input_scales"].shape)).weight
        self._name = next(name for name, each in trainer.model.named_parameters() if each is self._weight)

    def events(self, steps: int) -> tuple[Event, ...]:
        return (UnprotectedEvent(count=steps),)

    def deviation(self, sensitivity: float) -> float:
        """Of the linear coefficients' noise; the quadratic ones' grows with the weights."""
        return float(self._noise.linear.square().mean().sqrt())

    def release(self, clipped: ClippedSum, step: int) -> Released:
        noisy = clipped.gradients[self._name] + self._noise.gradient(self._weight.detach())
        return Released(gradients={**clipped.gradients, self._name: noisy}, count_normal=None)

    def state(self) -> dict[str, Tensor]:
        return {}  # the noise is among the trainer's constants


def find_output_layer(model: nn.Module, shape: tuple[int, ...]) -> nn.Linear:
    """The Linear layer whose output is the network's answer, tried on made-up inputs."""
    last: list[tuple[nn.Linear, Tensor]] = []

    def note(layer: nn.Linear, _: object, output: Tensor) -> None:
        last[:] = [(layer, output)]

    hooks = [each.register_forward_hook(note) for each in model.modules() if isinstance(each, nn.Linear)]
    device = next(model.parameters()).device
    probes = torch.rand(4, *shape, generator=torch.Generator().manual_seed(0)).to(device)
    try:
        with torch.no_grad(), evaluation_mode(model):
            answer = model(probes)
    finally:
        for hook in hooks:
            hook.remove()
    if not last or not torch.equal(last[0][1], answer) or not last[0][0].weight.requires_grad:
        raise RequestError(
            "this method approximates the loss of a last Linear layer: use a network that ends in one"
        )
    return last[0][0]


def _normals(randomness: Randomness, step: int, variables: int) -> Tensor:
    """Standard normals for so many Laplace variables, ``(4, variables)``."""
    return randomness.normals(step=step, count=4 * variables, device=torch.device("cpu")).view(4, -1)
