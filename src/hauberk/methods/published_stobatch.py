"""StoBatch (003, Phan et al. 2020) as published: two functional objectives under one draw of Laplace noise.

    draw chi_1, chi_2, chi_3, once                                                      (Alg. 1, line 1)
    perturb all records: x + chi_1 / m;   first layer: theta_1' x + 2 chi_2 / m         (lines 2 and 3)
    for every step:
        take a batch; adversarial copies by I-FGSM, MIM or PGD, from the perturbed inputs, away from the
            network's own answers, by a random size mu_t                                (lines 6 to 11)
        theta_1 descends the reconstruction R, theta_2 the loss L with chi_3            (line 12)
    verified inference: votes under chi_1 and 2 chi_2 plus fresh noise over psi         (Alg. 3, appendix N)

There is no guarantee of privacy. Claimed is ``epsilon_1 (1 + 1/gamma_x + 1/gamma) + epsilon_2`` for any
number of steps (Theorem 4). But one noise vector is added to every record, and cancels in the difference of
any two; the layers behind the first read every record through it, again and again; the coefficients of both
polynomials are values of a network in training, and change with every step while their noise stays; and
gamma_x and gamma take the sensitivity of a batch to be one, or the norm of theta_1, where a record moves it
by up to twice the number of its inputs.

The certificate: 003 bounds the loss by noise that it then divides by psi before the draws, adds up the losses
of the two noises (Corollary 1) and takes the gain of one feature map. Proven on the card is the radius for
the noise that is drawn, in l1, where the loss of Laplace noise at the input is exact.

Where this differs from the text: batches are Poisson samples and not a fixed partition; the adversarial copy
of a record stands beside its benign one in the same batch, and mu_t is drawn for each record; votes are of
one pass with both noises in place of the product of two passes with one each. Inputs lie in [0, 1], where
Lemma 2 holds, and not in [-1, 1]: the noise is the printed one, mu_t the authors' in pixels of [0, 1].
The authors' code feeds the adversarial copies without noise and draws differently at many places; it is not
followed. Their hidden layer is normalised over the batch, here records do not mix.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hauberk.accounting import Event, PrivacyPlan, UnprotectedEvent
from hauberk.certify import Certificates, NoiseLayers, Norm, Smoothed, clopper_pearson_lower
from hauberk.certify.first_map import find_first_map
from hauberk.errors import RequestError
from hauberk.gradients import ClippedSum, RecordLoss, ScoreLoss
from hauberk.methods.adaptive_laplace import laplace_variables
from hauberk.methods.adversarial_views import AdversarialViews, ensemble
from hauberk.methods.base import Constants, Given, Method
from hauberk.methods.claims import PublishedRadius
from hauberk.methods.functional_objectives import (
    AdversarialObjective,
    FunctionalBudgets,
    TwoObjectives,
    first_map_norm,
    label_sensitivity,
    reconstruction_sensitivity,
)
from hauberk.methods.settings import TrainSettings
from hauberk.methods.shared_noise import FromPerturbed, SharedNoise
from hauberk.randomness import Key
from hauberk.training import PrivateTrainer, RecordViews
from hauberk.training.loop import NO_CLIP
from hauberk.training.noise import Released, StepNoise
from hauberk.training.sampling import FixedBatches, Sampler

CLAIM = "003 Theorem 4: epsilon1 (1 + 1/gamma_x + 1/gamma) + epsilon2 (delta 0), whatever the number of steps"
ONE_DRAW = (
    "one noise vector is shared by all records, so that their differences reach the network exactly, and the "
    "objectives' coefficients change with the weights while their noise stays"
)
LESS_NOISE = (
    "the published radius is computed for more noise than is drawn and for one feature map: what holds is "
    "the proven one"
)
LABEL_SHARE = 0.5
"""epsilon_2 over epsilon: the authors' at their smallest budgets, 0.1 of 0.2 for MNIST and 1 of 2 for
CIFAR-10."""
LARGEST_ATTACK = 0.5
"""mu_t is at most 1 for pixels in [-1, 1]."""
_DRAW_STEP = (1 << 50) + 10  # numbers that no training step has


class PublishedStoBatch(Method):
    """StoBatch as published. Its noise is made from ``claimed_epsilon``; the plan says sampling, batch and
    steps, and its own noise is not used. Nothing is clipped unless ``clipping`` says so.

    ``model`` is a `SharedNoise` network. ``attack_steps`` (T_mu) and ``attack_size`` (the largest mu_t,
    l_inf) are those of the attacks in training, ``adversarial_weight`` is xi, ``test_divisor`` is psi;
    defaults are the paper's for MNIST. Other settings: `Method`.
    """

    name = "stobatch"
    claim_source = CLAIM
    remarks = ("As published, for pixels in [0, 1] in place of 003's [-1, 1], where its Lemma 2 holds.",)
    released_constants = ("scales",)

    def __init__(
        self,
        model: nn.Module,
        *,
        plan: PrivacyPlan,
        claimed_epsilon: float | None = None,
        attack_steps: int = 10,
        attack_size: float = LARGEST_ATTACK,
        adversarial_weight: float = 1.0,
        test_divisor: float = 2.0,
        **settings: Any,
    ) -> None:
        if claimed_epsilon is None:
            raise RequestError(
                "stobatch as published needs the epsilon that it claims: its noise is made from that"
            )
        if not isinstance(model, SharedNoise):
            raise RequestError(
                "stobatch as published deploys its draws with the network: pass SharedNoise(network, "
                "shape=...)"
            )
        if not 0 < attack_size <= 1:
            raise RequestError(f"attack_size must lie in (0, 1], got {attack_size}")
        if not 0 <= adversarial_weight < float("inf"):
            raise RequestError(f"adversarial_weight must not be negative, got {adversarial_weight}")
        if not 1 <= test_divisor < float("inf"):
            raise RequestError(f"test_divisor must be at least 1, got {test_divisor}")
        settings = {"variant": "paper", "clipping": NO_CLIP, **settings}
        super().__init__(model, plan=plan, claimed_epsilon=claimed_epsilon, **settings)
        self.epsilon, self.attacks, self.attack_size = claimed_epsilon, ensemble(attack_steps), attack_size
        self.adversarial_weight, self.test_divisor = adversarial_weight, test_divisor
        self.published_radius = EquationThirteen(divisor=test_divisor)

    @property
    def unprovable(self) -> str:
        return ONE_DRAW

    def budgets(self, shape: tuple[int, ...]) -> FunctionalBudgets:
        """epsilon_1 and epsilon_2, from the weights before training."""
        first_map = find_first_map(self.model, shape)
        return FunctionalBudgets.split(
            self.epsilon,
            label_share=LABEL_SHARE,
            batch=self.plan.batch,
            sensitivity=reconstruction_sensitivity(first_map),
            norm=first_map_norm(first_map),
        )

    def settle(self, given: Given) -> Constants:
        shape, model = given.private.shape, _shared(given.model)
        budgets, weight = self.budgets(shape), model.output.weight
        sensitivity = reconstruction_sensitivity(find_first_map(model, shape))
        at_input = sensitivity / (budgets.reconstruction * self.plan.batch)
        sizes = {
            "input_noise": (model.input_noise, at_input),
            "layer_noise": (model.layer_noise, 2 * at_input),
            "label_noise": (weight, label_sensitivity(weight.shape[1]) / budgets.labels),
        }
        count = sum(like.numel() for like, _ in sizes.values())
        normals = given.randomness.normals(step=_DRAW_STEP, count=4 * count, device=torch.device("cpu"))
        drawn = laplace_variables(normals.view(4, count)).split([like.numel() for like, _ in sizes.values()])
        noises = {
            name: (scale * each.view(like.shape)).to(like.dtype)
            for (name, (like, scale)), each in zip(sizes.items(), drawn, strict=True)
        }
        shuffled = given.randomness.normals(
            step=_DRAW_STEP + 1, count=len(given.private), device=torch.device("cpu")
        )
        return {
            "order": shuffled.argsort(),
            "scales": torch.tensor([at_input, 2 * at_input], dtype=torch.float64),
            **noises,
        }

    def furnish(self, model: nn.Module, constants: Constants) -> None:
        _shared(model).put(at_input=constants["input_noise"], after_first=constants["layer_noise"])

    def noise_layers(self, constants: Constants) -> NoiseLayers:
        at_input, after_first = (constants["scales"] / self.test_divisor).tolist()
        return NoiseLayers(kind="laplace", at_input=at_input, after_first_map=after_first)

    def in_training(self, model: nn.Module, shape: tuple[int, ...], constants: Constants) -> nn.Module:
        return TwoObjectives(_shared(model))

    def record_views(self, model: nn.Module, shape: tuple[int, ...], constants: Constants) -> RecordViews:
        shared = SharedDraw(input_noise=constants["input_noise"], layer_noise=constants["layer_noise"])
        return PerturbedPairs(
            adversarial=AdversarialViews(
                network=FromPerturbed(_shared(model)),
                noise=shared,
                attacks=self.attacks,
                size=self.attack_size,
            )
        )

    def record_loss(self, shape: tuple[int, ...], classes: int) -> RecordLoss:
        return ScoreLoss(AdversarialObjective(adversarial_weight=self.adversarial_weight))

    def sampler(self, trainer: PrivateTrainer) -> Sampler:
        batches = -(-self.plan.records // self.plan.batch)
        return FixedBatches(trainer.constants["order"][trainer.ranks.shard], batches)

    def noise(self, trainer: PrivateTrainer) -> StepNoise:
        return LabelNoise(trainer)

    @classmethod
    def from_settings(cls, model: nn.Module, settings: TrainSettings, plan: PrivacyPlan) -> PublishedStoBatch:
        return cls(
            model,
            plan=plan,
            attack_steps=settings.training_attack_steps,
            attack_size=settings.training_attack_size or LARGEST_ATTACK,
            adversarial_weight=settings.adversarial_weight,
            test_divisor=settings.test_divisor,
            **{**settings.common(), "clipping": NO_CLIP},
        )


def _shared(model: nn.Module) -> SharedNoise:
    assert isinstance(model, SharedNoise)  # a copy of the one that was passed in
    return model


@dataclass(frozen=True, kw_only=True, eq=False)
class SharedDraw:
    """Each record twice, plus one and the same draw for all records and all steps; beside it the draw that
    follows the first map."""

    input_noise: Tensor = field(repr=False)  # several processes compare settings before they share the draws
    layer_noise: Tensor = field(repr=False)

    def __call__(self, x: Tensor, *, records: Tensor, step: int, key: Key) -> tuple[Tensor, Tensor]:
        perturbed = (x + self.input_noise.to(x)).unsqueeze(1)
        after_first = self.layer_noise.to(x)
        return perturbed.expand(-1, 2, *x.shape[1:]), after_first.expand(len(x), 2, *after_first.shape)


@dataclass(frozen=True, kw_only=True, eq=False)
class PerturbedPairs:
    """A perturbed record and its perturbed adversarial copy; the draw after the first map is in the
    network."""

    adversarial: AdversarialViews

    def __call__(self, x: Tensor, *, records: Tensor, step: int, key: Key) -> Tensor:
        return self.adversarial(x, records=records, step=step, key=key)[0]


class LabelNoise:
    """``chi_3``, on the coefficients that touch the labels: in the sum of gradients it is subtracted, once,
    at every step the same. Nothing is protected by it."""

    looks_at_records = False

    def __init__(self, trainer: PrivateTrainer) -> None:
        assert isinstance(trainer.model, TwoObjectives)
        weight = trainer.model.shared.output.weight
        self._noise = trainer.constants["label_noise"]
        self._name = next(name for name, each in trainer.model.named_parameters() if each is weight)

    def events(self, steps: int) -> tuple[Event, ...]:
        return (UnprotectedEvent(count=steps),)

    def deviation(self, sensitivity: float) -> float:
        """Of the last layer's weights; the others get none."""
        return float(self._noise.square().mean().sqrt())

    def release(self, clipped: ClippedSum, step: int) -> Released:
        noisy = clipped.gradients[self._name] - self._noise
        return Released(gradients={**clipped.gradients, self._name: noisy}, count_normal=None)

    def state(self) -> dict[str, Tensor]:
        return {}  # the noise is among the trainer's constants


@dataclass(frozen=True, kw_only=True)
class EquationThirteen(PublishedRadius):
    """003 Eq. 13: ``1/2 ln(pA/pB)`` over the added losses of both noises, *before* they were divided.

    As printed mu is in the sensitivities already and is asked for once more; here it is counted once. No
    guarantee follows.
    """

    divisor: float  # psi
    certificate: str = "laplace"
    one_map: bool = True
    source: str = "003 Eq. 13, one feature map, noise before it is divided by psi"
    reason: str | None = LESS_NOISE

    def gain(self, classifier: Smoothed, norm: Norm, shape: tuple[int, ...]) -> float:
        return super().gain(classifier, norm, shape) / self.divisor

    def radii(
        self, certificates: Certificates, classifier: Smoothed, shape: tuple[int, ...]
    ) -> NDArray[np.float64]:
        lower = clopper_pearson_lower(certificates.votes, certificates.samples, certificates.alpha)
        even = np.where(certificates.abstained, 0.5, np.maximum(lower, 0.5))
        loss = np.log(even / (1 - even)) / 2
        return np.asarray(loss / self.gain(classifier, certificates.norm, shape))
