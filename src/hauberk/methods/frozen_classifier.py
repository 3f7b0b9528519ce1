"""A classifier that is kept as it is, with a trainable denoiser before it (004 chapter 6).

    input -> denoiser (trained) -> classifier (frozen) -> scores

The classifier is the user's own (a file of weights for the network's name) or is trained here on public
records. It never sees a private one.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from hauberk import models
from hauberk.data import Dataset
from hauberk.errors import RequestError
from hauberk.files import read_tensors
from hauberk.methods.base import Constants, Given
from hauberk.methods.settings import TrainSettings
from hauberk.models.denoiser import denoiser
from hauberk.training.plain import train_plainly

_PREFIX = "classifier/"


def denoised_network(settings: TrainSettings, shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """A fresh denoiser before the named network, whose weights will not be trained."""
    classifier = models.build(settings.model, shape=shape, classes=classes)
    classifier.requires_grad_(False)
    return nn.Sequential(
        OrderedDict(denoiser=denoiser(shape, width=settings.denoiser_width), classifier=classifier)
    )


@dataclass(frozen=True, kw_only=True)
class FrozenClassifier:
    """``weights``: a safetensors file; without one, ``epochs`` passes over public records."""

    weights: str | None
    epochs: int
    seed: int

    @classmethod
    def from_settings(cls, settings: TrainSettings) -> FrozenClassifier | None:
        if not settings.denoised:
            return None
        return cls(weights=settings.classifier, epochs=settings.public_epochs, seed=settings.seed)

    def check(self, model: nn.Module, public: Dataset | None) -> None:
        """Whether there will be a classifier for ``model``."""
        if self.weights is not None:
            _load(copy.deepcopy(model.get_submodule("classifier")), self.weights)
        elif public is None:
            raise RequestError(
                "the classifier is trained on public records: give --public-data, or a trained one by "
                "--classifier"
            )

    def settle(self, given: Given) -> Constants:
        """The classifier's weights; ``given.model`` has them too afterwards."""
        classifier = given.model.get_submodule("classifier")
        if self.weights is not None:
            _load(classifier, self.weights)
        else:
            assert given.public is not None  # checked
            classifier.requires_grad_(True)
            train_plainly(
                classifier,
                given.public.x,
                given.public.y,
                epochs=self.epochs,
                seed=self.seed,
                augment=_shifted if len(given.public.shape) == 3 else None,
                stage="training the classifier on public data",
                progress=given.progress,
            )
            classifier.requires_grad_(False).eval()
        return {f"{_PREFIX}{name}": each.detach().clone() for name, each in classifier.state_dict().items()}

    def furnish(self, model: nn.Module, constants: Constants) -> None:
        own = {
            name.removeprefix(_PREFIX): each for name, each in constants.items() if name.startswith(_PREFIX)
        }
        model.get_submodule("classifier").load_state_dict(own)


def _load(classifier: nn.Module, path: str) -> None:
    try:
        classifier.load_state_dict(read_tensors(Path(path)))
    except (RuntimeError, KeyError) as error:
        raise RequestError(f"the weights in {path} do not fit the network named by --model") from error


def _shifted(x: Tensor, generator: torch.Generator) -> Tensor:
    """Images moved by up to two pixels, all of a batch alike."""
    down, right = torch.randint(-2, 3, (2,), generator=generator).tolist()
    padded = nn.functional.pad(x, (2, 2, 2, 2))
    height, width = x.shape[-2:]
    return padded[..., 2 + down : 2 + down + height, 2 + right : 2 + right + width]
