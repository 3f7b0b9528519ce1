"""TransDenoiser (004 chapter 6): a denoiser before a classifier that is kept as it is, then smoothing.

    z = x + N(0, sigma^2 I)  ->  denoiser g (trained)  ->  classifier h (frozen, public)  ->  a vote

Sound: DP-SGD on the denoiser's weights, with K noisy copies of each record and the loss

    ||g(z) - x||^2  +  stability * cross-entropy(h(g(z)), what h says of x)

whose second term the thesis leaves out for the sake of its analysis, and Salman et al. 2020 found to help.
Guarantees: training is (epsilon, delta)-differentially private for adding or removing one record (PLD); the
classifier has seen public records only. Each prediction has an l2 radius within which it cannot change, wrong
with probability at most alpha (Cohen et al. 2019). Everything of a record, the clean x included, is inside
its clipped gradient.

As published (Algorithm 3) the input noise is counted as noise on the gradient and only what is missing to
xi_up is added: see `hauberk.methods.perturbation_transformation` for what is wrong with that. Nothing can be
proven of it; the certificate holds all the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hauberk.accounting import Event, PrivacyPlan, UnprotectedEvent
from hauberk.certify import NoiseLayers
from hauberk.data import Dataset
from hauberk.errors import RequestError
from hauberk.gradients import ClippedSum, RecordLoss, ScoreLoss
from hauberk.methods.base import Constants, Given, Method
from hauberk.methods.frozen_classifier import FrozenClassifier
from hauberk.methods.perturbation_transformation import (
    SLICE,
    additional_noise,
    reconstruction_losses,
    remainder,
    smallest_singular_values,
    transformation,
)
from hauberk.methods.settings import TrainSettings
from hauberk.randomness import Key
from hauberk.training import NoisyViews, PrivateTrainer, RecordViews
from hauberk.training.noise import Released, StepNoise

UNPROVEN = (
    "noise is chosen from the private records, and counting input noise as noise on the gradient has no proof"
)
CLAIM = "004 Theorem 9 (MMGA): xi_up as the noise of every step"
LOWEST_CREDIT = 0.1
"""xi_low over xi_up: credit below it is not counted (the thesis leaves it open)."""


class TransDenoiser(Method):
    """``sigma`` is the noise of the training copies and of the smoothed classifier; ``stability`` weighs the
    second term of the loss; ``transformed``: records per step from which the published credit is computed.
    ``model`` has the parts ``denoiser`` and ``classifier``. Other settings: `Method`."""

    name = "transdenoiser"

    def __init__(
        self,
        model: nn.Module,
        *,
        plan: PrivacyPlan,
        sigma: float,
        frozen: FrozenClassifier,
        views: int = 1,
        stability: float = 1.0,
        transformed: int = 1,
        **settings: Any,
    ) -> None:
        if not 0 < sigma < float("inf"):
            raise RequestError(f"sigma must be positive, got {sigma}: without noise there is no certificate")
        if {name for name, _ in model.named_children()} != {"denoiser", "classifier"}:
            raise RequestError("transdenoiser takes a network with two parts, denoiser and classifier")
        super().__init__(model, plan=plan, views=NoisyViews(sigma=sigma, views=views), **settings)
        self.sigma, self.frozen, self.transformed = sigma, frozen, transformed
        self.stability = stability

    @property
    def unprovable(self) -> str | None:
        return UNPROVEN if self.variant == "paper" else super().unprovable

    def check(self, public: Dataset | None, *, shape: tuple[int, ...]) -> None:
        self.frozen.check(self.model, public)

    def settle(self, given: Given) -> Constants:
        return self.frozen.settle(given)

    def furnish(self, model: nn.Module, constants: Constants) -> None:
        self.frozen.furnish(model, constants)

    def noise_layers(self, constants: Constants) -> NoiseLayers:
        return NoiseLayers(at_input=self.sigma)

    def in_training(self, model: nn.Module, shape: tuple[int, ...], constants: Constants) -> nn.Module:
        return Compared(model)

    def record_views(self, model: nn.Module, shape: tuple[int, ...], constants: Constants) -> RecordViews:
        return NoisyAndClean(noisy=self.views)

    def record_loss(self, shape: tuple[int, ...], classes: int) -> RecordLoss:
        return ScoreLoss(DenoisingLoss(stability=self.stability, classes=classes))

    def noise(self, trainer: PrivateTrainer) -> StepNoise:
        if self.variant == "sound" or not self.plan.private:
            return trainer.noise
        return PublishedNoise(trainer, sigma=self.sigma, records=self.transformed)

    @classmethod
    def from_settings(cls, model: nn.Module, settings: TrainSettings, plan: PrivacyPlan) -> TransDenoiser:
        paper = settings.variant == "paper"
        frozen = FrozenClassifier.from_settings(settings)
        assert frozen is not None  # the method's own default
        method = cls(
            model,
            plan=plan,
            sigma=settings.input_sigma,
            frozen=frozen,
            views=1 if paper else settings.views,
            stability=0.0 if paper else settings.stability,
            transformed=settings.transformed_records,
            **settings.common(),
        )
        if paper:
            method.claim_source = CLAIM
        return method


@dataclass(frozen=True, kw_only=True)
class NoisyAndClean:
    """Noisy copies of a record, and beside each the record itself, which the loss compares with."""

    noisy: NoisyViews

    def __call__(self, x: Tensor, *, records: Tensor, step: int, key: Key) -> tuple[Tensor, Tensor]:
        views = self.noisy(x, records=records, step=step, key=key)
        return views, x.unsqueeze(1).expand_as(views)


class Compared(nn.Module):
    """``forward(z, x)``: in one row what is left of the noise, g(z) - x, and h's scores of g(z) and of x."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, z: Tensor, x: Tensor) -> Tensor:
        restored = self.network.get_submodule("denoiser")(z)
        classifier = self.network.get_submodule("classifier")
        with torch.no_grad():
            of_clean = classifier(x)
        return torch.cat([(restored - x).flatten(1), classifier(restored), of_clean], dim=1)


@dataclass(frozen=True, kw_only=True)
class DenoisingLoss:
    """Squared error and stability of each record, from rows of `Compared`, averaged over its views."""

    stability: float
    classes: int

    def __call__(self, rows: Tensor, labels: Tensor) -> Tensor:
        left, scores, of_clean = rows.split(
            [rows.shape[-1] - 2 * self.classes, self.classes, self.classes], dim=-1
        )
        loss: Tensor = left.square().sum(-1).mean(1)
        if self.stability:
            said = of_clean.detach().argmax(-1).flatten()
            unstable = nn.functional.cross_entropy(scores.flatten(0, 1), said, reduction="none")
            loss = loss + self.stability * unstable.view(scores.shape[:2]).mean(1)
        return loss


class PublishedNoise:
    """Algorithm 3, lines 8 to 22, on the sum of the sampled records' clipped gradients.

    ``xi_up`` is the plan's noise multiplier; all deviations are in units of the clipping bound. The
    non-negative cases of a step get the noise that their input noise is not counted for, slice by slice; the
    negative cases get xi_up. The credit is computed from ``records`` of the non-negative cases, which
    under-states it.
    """

    looks_at_records = True

    def __init__(self, trainer: PrivateTrainer, *, sigma: float, records: int) -> None:
        self._trainer, self._sigma, self._records = trainer, sigma, records
        self._up = trainer.plan.noise_multiplier

    def events(self, steps: int) -> tuple[Event, ...]:
        return (UnprotectedEvent(count=steps),)

    def deviation(self, sensitivity: float) -> float:
        return self._up * sensitivity

    def state(self) -> dict[str, Tensor]:
        return {}

    def release(self, clipped: ClippedSum, step: int) -> Released:
        sums = list(clipped.gradients.values())
        size = sum(part.numel() for part in sums)
        normals = self._trainer.randomness.normals(step=step, count=2 * size, device=sums[0].device)
        noise = self._noise(clipped.sensitivity, normals[:size], normals[size:])
        return Released.with_noise(clipped, clipped.sensitivity * noise)

    def _noise(self, bound: float, of_some: Tensor, of_others: Tensor) -> Tensor:
        """The noise of both groups, in units of the clipping bound."""
        x, (z, _), _ = self._trainer.sampled()
        z = z[:, 0]
        denoiser = self._trainer.model.get_submodule("network.denoiser")
        credited = remainder(lambda inputs: reconstruction_losses(denoiser, inputs, x), z, x) >= 0
        noise: Tensor = torch.zeros_like(of_some)
        if bool(credited.any()):
            missing = self._missing(denoiser, x[credited], z[credited], bound)
            noise += missing.repeat_interleave(SLICE)[: len(noise)] * of_some
        if not bool(credited.all()):
            noise += self._up * of_others
        return noise

    def _missing(self, denoiser: nn.Module, x: Tensor, z: Tensor, bound: float) -> Tensor:
        """Of the sum's noise, slice by slice; clipping shortens a record's transformed noise as well."""
        chosen = slice(0, self._records)
        matrices = transformation(denoiser, x[chosen])
        for matrix, one, clean in zip(matrices, z[chosen], x[chosen], strict=True):
            matrix *= self._factor(denoiser, one, clean, bound) / bound
        batch = max(len(x), self._records)
        of_sum = smallest_singular_values(matrices, batch) * batch**2
        return additional_noise(
            of_sum,
            sigma=self._sigma,
            steps=self._trainer.plan.steps,
            low=LOWEST_CREDIT * self._up,
            up=self._up,
        )

    @staticmethod
    def _factor(denoiser: nn.Module, z: Tensor, x: Tensor, bound: float) -> float:
        with torch.enable_grad():
            loss = reconstruction_losses(denoiser, z.unsqueeze(0), x.unsqueeze(0)).sum()
            gradients = torch.autograd.grad(loss, [w for w in denoiser.parameters() if w.requires_grad])
        norm = torch.cat([each.flatten() for each in gradients]).norm()
        return float((bound / norm).clamp(max=1.0))
