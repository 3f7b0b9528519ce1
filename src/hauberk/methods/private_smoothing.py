"""Private smoothing: DP-SGD on noisy copies of each record, then a certified smoothed classifier.

    if there are public records: start from weights trained on noisy copies of those
    for every step:
        sample each record by its own coin
        for every sampled record: K noisy copies of it, moved or attacked if asked for;
            their mean cross-entropy, with terms for their agreement (consistency) and for the certified
            radius (MACER) if asked for; its gradient, clipped once
        add the clipped gradients and Gaussian noise, divide by a constant, take a momentum step
    release the averaged weights; predict by majority vote under the same input noise

Guarantees: training is (epsilon, delta)-differentially private for adding or removing one record (PLD);
copies, moves, attacks and all terms of the loss belong to one record and are clipped with it. Each prediction
comes with an l2 radius within which it cannot change, wrong with probability at most alpha.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from hauberk.accounting import PrivacyPlan
from hauberk.certify import NoiseLayers
from hauberk.data import Dataset
from hauberk.errors import RequestError
from hauberk.gradients import RecordLoss
from hauberk.methods.base import Constants, Given, Method, refuse_other_losses
from hauberk.methods.settings import TrainSettings
from hauberk.methods.smooth_adversarial_views import SmoothAdversarialViews
from hauberk.methods.smoothing_losses import SmoothingLoss
from hauberk.training import Moves, NoisyViews, RecordViews
from hauberk.training.plain import train_plainly

_PRETRAINED = "pretrained/"


class PrivateSmoothing(Method):
    """``sigma`` is both the noise of the training copies and that of the smoothed classifier; ``views``
    copies of a record are averaged before its gradient is clipped, the first without noise if ``clean_copy``.

    ``loss``, any per-record loss (`hauberk.gradients.RecordLoss`) of a record's noisy copies, takes the place
    of cross-entropy and of the terms below; public records cannot be trained on with it.
    ``shift`` and ``flip`` move every copy; ``consistency`` and ``macer`` weigh the terms of `SmoothingLoss`;
    ``attack_size`` (l2) and ``attack_steps`` are those of SmoothAdv. ``public_epochs``: passes over public
    records, if `fit` is given some, that the private training starts from. Other settings: `Method`.
    """

    name = "private-smoothing"

    def __init__(
        self,
        model: nn.Module,
        *,
        plan: PrivacyPlan,
        sigma: float,
        views: int = 1,
        clean_copy: bool = False,
        shift: int = 0,
        flip: bool = False,
        consistency: float = 0.0,
        macer: float = 0.0,
        attack_size: float | None = None,
        attack_steps: int = 10,
        public_epochs: int = 20,
        loss: RecordLoss | None = None,
        **settings: Any,
    ) -> None:
        if not 0 < sigma < float("inf"):
            raise RequestError(f"sigma must be positive, got {sigma}: without noise there is no certificate")
        if attack_size is not None and not 0 < attack_size < float("inf"):
            raise RequestError(f"attack_size must be positive, got {attack_size}")
        if consistency and views < 2:
            raise RequestError("consistency compares copies of a record: give at least 2 views")
        if loss is not None:
            refuse_other_losses(loss)
            if consistency or macer:
                raise RequestError("consistency and macer are terms of the cross-entropy: leave out loss=")
        moves = Moves(shift=shift, flip=flip) if shift or flip else None
        super().__init__(
            model,
            plan=plan,
            views=NoisyViews(sigma=sigma, views=views, moves=moves, clean=clean_copy),
            **settings,
        )
        self.sigma, self.attack_size, self.attack_steps = sigma, attack_size, attack_steps
        terms = SmoothingLoss(sigma=sigma, consistency=consistency, macer=macer)
        self.loss = terms.record_loss() if loss is None else loss
        self._own_loss = loss is not None
        self.public_epochs = public_epochs
        if attack_size is not None:
            self._attacked_views(model)  # refuses what does not go together

    def check(self, public: Dataset | None, *, shape: tuple[int, ...]) -> None:
        if self.views.moves is not None:
            self.views.moves.refuse(shape)
        if self._own_loss and public is not None:
            raise RequestError(
                "public records are trained on with the cross-entropy, not with a loss of your own: train on "
                "them yourself and pass in the trained network"
            )

    def settle(self, given: Given) -> Constants:
        """Weights from public records, trained on noisy copies without any protection."""
        if given.public is None:
            return {}
        train_plainly(
            given.model,
            given.public.x,
            given.public.y,
            epochs=self.public_epochs,
            seed=self.seed,
            augment=self._noisy,
            progress=given.progress,
        )
        return {f"{_PRETRAINED}{name}": each.detach() for name, each in given.model.state_dict().items()}

    def furnish(self, model: nn.Module, constants: Constants) -> None:
        own = {
            name.removeprefix(_PRETRAINED): each
            for name, each in constants.items()
            if name.startswith(_PRETRAINED)
        }
        if own:
            model.load_state_dict(own)

    def noise_layers(self, constants: Constants) -> NoiseLayers:
        return NoiseLayers(at_input=self.sigma)

    def record_views(self, model: nn.Module, shape: tuple[int, ...], constants: Constants) -> RecordViews:
        return self.views if self.attack_size is None else self._attacked_views(model)

    def record_loss(self, shape: tuple[int, ...], classes: int) -> RecordLoss:
        return self.loss

    def _attacked_views(self, model: nn.Module) -> SmoothAdversarialViews:
        assert self.attack_size is not None
        return SmoothAdversarialViews(
            network=model, noise=self.views, size=self.attack_size, steps=self.attack_steps
        )

    def _noisy(self, x: Tensor, generator: torch.Generator) -> Tensor:
        return x + self.sigma * torch.randn(x.shape, generator=generator).to(x.device)

    @classmethod
    def from_settings(cls, model: nn.Module, settings: TrainSettings, plan: PrivacyPlan) -> PrivateSmoothing:
        return cls(
            model,
            plan=plan,
            sigma=settings.input_sigma,
            views=settings.views,
            clean_copy=settings.clean_copy,
            shift=settings.shift,
            flip=settings.flip,
            consistency=settings.consistency,
            macer=settings.macer,
            attack_size=settings.training_attack_size,
            attack_steps=settings.training_attack_steps,
            public_epochs=settings.public_epochs,
            **settings.common(),
        )
