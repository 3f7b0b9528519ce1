"""Methods that protect persons: one record is a person with all images or rows.

A method may train on persons if it takes from its private records nothing but clipped gradients of a loss of
scores. Those that look at records beforehand, or that have a loss of their own, are about single records.

Guarantee: that of the method, for adding or removing one person with all its images.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from hauberk.accounting import Card, PrivacyPlan
from hauberk.data import Dataset
from hauberk.data.persons import ONE_PERSON, PersonDataset
from hauberk.errors import RequestError
from hauberk.gradients import RecordLoss, ScoreLoss
from hauberk.methods.adaclip import AdaClip
from hauberk.methods.base import Constants, Method
from hauberk.methods.catalogue import find_method
from hauberk.methods.directional import Directional
from hauberk.methods.dp_sgd import DPSGD
from hauberk.methods.private_smoothing import PrivateSmoothing
from hauberk.methods.run import AuditSettings, Run
from hauberk.methods.settings import TrainSettings
from hauberk.progress import Progress, silent
from hauberk.training import RecordViews
from hauberk.training.grouped_views import GroupedViews, grouped_loss


class RunByPerson(Run):
    """A run whose card says that persons are protected."""

    def audit(
        self,
        test: Dataset | tuple[Tensor, Tensor],
        *,
        settings: AuditSettings | None = None,
        progress: Progress = silent,
    ) -> Card:
        card = super().audit(test, settings=settings, progress=progress)
        return replace(
            card, privacy=replace(card.privacy, unit=ONE_PERSON, neighbours=f"add or remove {ONE_PERSON}")
        )


class ByPerson(Method):
    """What is different for persons; mixed into a method, before it. `fit` takes a `PersonDataset`."""

    def record_views(self, model: nn.Module, shape: tuple[int, ...], constants: Constants) -> RecordViews:
        return GroupedViews(of_one=super().record_views(model, shape, constants))

    def record_loss(self, shape: tuple[int, ...], classes: int) -> RecordLoss:
        loss = super().record_loss(shape, classes)
        if not isinstance(loss, ScoreLoss):
            raise RequestError(f"{self.name} has no loss for persons: leave out --unit")
        return grouped_loss(loss)

    def fit(self, train: Dataset | tuple[Tensor, Tensor], **settings: Any) -> Run:
        if not isinstance(train, PersonDataset):
            raise RequestError("a method for persons trains on a PersonDataset: see hauberk.data.by_person")
        return RunByPerson(**vars(super().fit(train, **settings)))


class SmoothingByPerson(ByPerson, PrivateSmoothing):
    """`PrivateSmoothing` for persons."""


class DPSGDByPerson(ByPerson, DPSGD):
    """`DPSGD` for persons."""


class AdaClipByPerson(ByPerson, AdaClip):
    """`AdaClip` for persons."""


class DirectionalByPerson(ByPerson, Directional):
    """`Directional` for persons."""


_BY_PERSON: dict[type[Method], Callable[[nn.Module, TrainSettings, PrivacyPlan], Method]] = {
    PrivateSmoothing: SmoothingByPerson.from_settings,
    DPSGD: DPSGDByPerson.from_settings,
    AdaClip: AdaClipByPerson.from_settings,
    Directional: DirectionalByPerson.from_settings,
}
METHODS_BY_PERSON = tuple(each.name for each in _BY_PERSON)


def method_by_person(model: nn.Module, settings: TrainSettings, plan: PrivacyPlan) -> Method:
    """The method of the settings for persons; refused where it cannot be one.

    What the settings make of the method by itself decides: a setting that makes another one of it
    (adversarial copies by an imitation network, say) is not passed over.
    """
    plain = find_method(settings.method, settings.variant).build(model, settings, plan)
    build = _BY_PERSON.get(type(plain))
    if build is None or settings.variant != "sound":
        raise RequestError(
            f"{settings.method} with these settings does not protect persons with several records: choose "
            f"{', '.join(METHODS_BY_PERSON)} in the sound variant, or leave out the unit"
        )
    return build(model, settings, plan)
