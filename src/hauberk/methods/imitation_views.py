"""Private adversarial training with an imitation network (004 section 5.3.4): its examples as views.

    of every record: the record itself, and the point to which the imitation network moves it,
    with the noise of (step, record) in its centre

Guarantee: a view depends on its own record, on released weights (whose answer to the record stands in for its
label) and on a fixed network. If that network was made from public records alone, and so was the classifier
that it was trained against, K views of a record cost what one record costs, and training is as private as
DP-SGD. If not, the network may hold anything about the private records, and nothing can be proven: the card
says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hauberk.accounting import PrivacyPlan
from hauberk.attacks.imitation.saved import TITLES, Imitation, check_pictures, load_imitation
from hauberk.attacks.imitation.target import declared_words
from hauberk.attacks.projections import ball
from hauberk.certify import evaluation_mode
from hauberk.data import Dataset
from hauberk.data.public import share_records
from hauberk.errors import RequestError
from hauberk.methods.base import Constants, Method
from hauberk.methods.settings import TrainSettings
from hauberk.randomness import Key, keyed_normals
from hauberk.training import RecordViews

_AT_ONCE = {"cpu": 256}
_AT_ONCE_ON_A_DEVICE = 4096
NOT_PUBLIC = (
    "the imitation network behind the adversarial copies was not made from public records alone: it may hold "
    "anything about the private ones"
)


@dataclass(frozen=True, kw_only=True, eq=False)
class ImitationViews:
    """Each record twice: as it is, and moved within ``size`` (l_inf) by ``imitation``.

    ``network`` is the one in training; its present weights are released ones, and its answer to a record is
    the label that the imitation network gets to see.
    """

    network: nn.Module
    imitation: Imitation
    size: float

    @torch.no_grad()
    def __call__(self, x: Tensor, *, records: Tensor, step: int, key: Key) -> Tensor:
        moved = x.clone()
        at_once = _AT_ONCE.get(x.device.type, _AT_ONCE_ON_A_DEVICE)
        places = torch.arange(len(x), device=x.device)
        with evaluation_mode(self.network), evaluation_mode(self.imitation.network):
            for rows in places.split(at_once):
                moved[rows] = self._moved(x[rows], records[rows], step, key)
        return torch.stack([x, moved], dim=1)

    def _moved(self, x: Tensor, records: Tensor, step: int, key: Key) -> Tensor:
        own = self.network(x).nan_to_num().argmax(1)
        made, noise = self.imitation.network, None
        if made.noise_shape is not None:
            noise = keyed_normals(key, step=step, records=records, views=1, shape=made.noise_shape)[:, 0]
        points, _ = made.moved(x, own, noise, self.size, stretch=self.imitation.stretch(self.size))
        radii = torch.full((len(x),), self.size, dtype=torch.float64, device=x.device)
        return ball("linf", x, radii, (0.0, 1.0)).project_(points)


class ImitationTraining(Method):
    """DP-SGD on every record and its adversarial copy. ``size``: of the copies (l_inf), not below the
    network's final bound. ``seen``: whether the network may have seen records of the private set although
    they were once declared public. Other settings: `Method`."""

    name = "dp-sgd"

    def __init__(
        self,
        model: nn.Module,
        *,
        plan: PrivacyPlan,
        imitation: Imitation,
        size: float,
        seen: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__(model, plan=plan, **settings)
        imitation.check_radius(size)
        if imitation.target is not None:
            raise RequestError(
                f"this {TITLES[imitation.kind]} aims at class {imitation.target}: adversarial training "
                "needs one without a target"
            )
        self.imitation, self.size, self.seen = imitation, size, seen

    def check(self, public: Dataset | None, *, shape: tuple[int, ...]) -> None:
        check_pictures(self.imitation, torch.zeros(1, *shape))

    def record_views(self, model: nn.Module, shape: tuple[int, ...], constants: Constants) -> RecordViews:
        device = next(model.parameters()).device
        return ImitationViews(network=model, imitation=self.imitation.to(device), size=self.size)

    @property
    def unprovable(self) -> str | None:
        if self.imitation.origin.public is None or self.seen:
            return NOT_PUBLIC
        return super().unprovable

    @classmethod
    def from_settings(cls, model: nn.Module, settings: TrainSettings, plan: PrivacyPlan) -> ImitationTraining:
        """A network made from this data set is public only as far as this run declares the same records
        public, and so leaves them out."""
        assert settings.imitation is not None
        imitation = load_imitation(Path(settings.imitation))
        name = Path(settings.data).stem
        same = imitation.origin.public == declared_words(settings.public_data, name)
        return cls(
            model,
            plan=plan,
            imitation=imitation,
            size=settings.training_attack_size or imitation.bound,
            seen=share_records(imitation.origin.data, name) and not same,
            **settings.common(),
        )
