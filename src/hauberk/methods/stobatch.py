"""StoBatch (003) as it can be proven: distributed, private adversarial training, then a composed certificate.

    for every step, on every trainer:                                                   (003 Alg. 1 and 4)
        sample each record by its own coin
        two views of each: the record, and its adversarial copy (I-FGSM, MIM or PGD, random size mu_t),
            both with fresh noise at the input and after the first map
        average the loss over the views, take its gradient, clip it once per record, add up
    the leader reduces the sums, adds N(0, (z C)^2) once, divides, steps; everybody follows
    verified inference: votes under the same two noises; label and radius               (003 Alg. 3)

Guarantees: training is (epsilon, delta)-differentially private for adding or removing one record of any
trainer (PLD), against everybody but the trainers; the number of trainers changes nothing. Each prediction
comes with an l2 radius within which it cannot change, wrong with probability at most alpha: two Gaussian
noises compose in the gain, ``1 / sqrt(sigma_x^2 + 1 / s^2)`` with s the norm of the whitened first map, the
tight form of 003's composition of robustness.

What 003 publishes is `hauberk.methods.published_stobatch`; of its privacy nothing can be proven.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from hauberk.accounting import PrivacyPlan
from hauberk.certify import NoiseLayers
from hauberk.certify.first_map import find_first_map
from hauberk.errors import RequestError
from hauberk.methods.adversarial_views import AdversarialViews, ensemble
from hauberk.methods.base import Constants
from hauberk.methods.noise_layer import NoiseLayerMethod
from hauberk.methods.settings import TrainSettings
from hauberk.training import LayerNoiseViews, NoiseAfter, RecordViews

ATTACK_SIZE = 0.2
"""Of the training attacks, at most (l_inf). The best of 0.1, 0.2 and 0.3 under PGD on held-out MNIST training
images (`hauberk reproduce stobatch-rivals`; 0.3 is level)."""
LAYER_SHARE = 0.1
"""Noise after the first map over the noise at the input, both in units of what they are added to: enough to
have a say in the certificate, little enough to leave the accuracy to the input noise."""


class StoBatch(NoiseLayerMethod):
    """``sigma``: noise at the input; ``layer_sigma``: after the first map, over that map's norm.
    ``attack_steps`` and ``attack_size`` (l_inf) are those of the training attacks. Other settings:
    `NoiseLayerMethod`."""

    name = "stobatch"

    def __init__(
        self,
        model: nn.Module,
        *,
        plan: PrivacyPlan,
        sigma: float,
        layer_sigma: float | None = None,
        attack_steps: int = 10,
        attack_size: float = ATTACK_SIZE,
        **settings: Any,
    ) -> None:
        if not 0 < sigma < float("inf"):
            raise RequestError(f"sigma must be positive, got {sigma}: without noise there is no certificate")
        if not 0 < attack_size <= 1:
            raise RequestError(f"attack_size must lie in (0, 1], got {attack_size}")
        layer_sigma = LAYER_SHARE * sigma if layer_sigma is None else layer_sigma
        super().__init__(model, plan=plan, sigma=layer_sigma, **settings)
        self.input_sigma, self.attack_size = sigma, attack_size
        self.attacks = ensemble(attack_steps)

    def noise_layers(self, constants: Constants) -> NoiseLayers:
        layer = super().noise_layers(constants)
        return NoiseLayers(at_input=self.input_sigma, after_first_map=layer.after_first_map)

    def record_views(self, model: nn.Module, shape: tuple[int, ...], constants: Constants) -> RecordViews:
        first_map = find_first_map(model, shape)
        noise = LayerNoiseViews(
            at_input=self.input_sigma,
            after_layer=constants["scales"],
            shape=first_map.output_shape,
            views=2,
        )
        return AdversarialViews(
            network=NoiseAfter(model, first_map.name),
            noise=noise,
            attacks=self.attacks,
            size=self.attack_size,
        )

    @classmethod
    def from_settings(cls, model: nn.Module, settings: TrainSettings, plan: PrivacyPlan) -> StoBatch:
        return cls(
            model,
            plan=plan,
            sigma=settings.input_sigma,
            attack_steps=settings.training_attack_steps,
            attack_size=settings.training_attack_size or ATTACK_SIZE,
            **settings.common(),
        )
