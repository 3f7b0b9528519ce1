"""What an imitation network is trained and judged on: a classifier, and three sets of inputs kept apart.

Inputs for training, a tenth of the training records for validation (which steers Alg. 2), and test inputs,
which nothing looks at before the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from hauberk.attacks.imitation.classifier import (
    THESIS,
    Adversary,
    accuracy,
    fresh_classifier,
    train_classifier,
)
from hauberk.attacks.imitation.saved import Origin
from hauberk.data import Dataset, Split, declare_public, load
from hauberk.errors import RequestError
from hauberk.progress import Progress, silent

_VALIDATION = 10  # one record in so many


@dataclass(frozen=True, kw_only=True, eq=False)
class Inputs:
    """Three sets on one device. ``public``: the words that declare the first two public, if they are."""

    data: str
    classes: int
    train: tuple[Tensor, Tensor]
    validation: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    public: str | None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.test[0].shape[1:])

    def origin(self, *, classifier: str, imitated: str) -> Origin:
        return Origin(
            data=self.data,
            public=self.public,
            classifier=classifier,
            imitated=imitated,
            records=len(self.train[0]) + len(self.validation[0]),
        )


def load_inputs(
    data: str,
    *,
    data_dir: Path | None = None,
    public: str | None = None,
    most: int | None = None,
    most_tests: int | None = None,
    device: torch.device | str = "cpu",
) -> Inputs:
    """By name or path. ``public``: only records that are declared so (`hauberk.data.declare_public`).

    ``most``: so many training records at most, the first ones; ``most_tests`` likewise.
    """
    split = load(data, data_dir=data_dir)
    return inputs_of(split, public=public, data_dir=data_dir, most=most, most_tests=most_tests, device=device)


def declared_words(public: str | None, data: str) -> str | None:
    """How a network remembers what was declared public of a data set."""
    return None if public is None else f"{public} of {data}"


def inputs_of(
    split: Split,
    *,
    public: str | None = None,
    data_dir: Path | None = None,
    most: int | None = None,
    most_tests: int | None = None,
    device: torch.device | str = "cpu",
) -> Inputs:
    records: Dataset = split.train
    words = None
    if public is not None:
        declared = declare_public(split, public, data_dir=data_dir).public
        assert declared is not None  # it was just declared
        records, words = declared, declared_words(public, split.name)
    if most is not None:
        records = records.first(most)
    held = max(1, len(records) // _VALIDATION)
    if len(records) < 2 * held or len(records.shape) != 3:
        raise RequestError(
            f"imitation networks need pictures, at least two of them: data set '{split.name}' has "
            f"{len(records)} inputs of shape {records.shape}"
        )
    test = split.test if most_tests is None else split.test.first(most_tests)
    x, y = records.x.to(device), records.y.to(device)
    return Inputs(
        data=split.name,
        classes=split.classes,
        train=(x[:-held], y[:-held]),
        validation=(x[-held:], y[-held:]),
        test=(test.x.to(device), test.y.to(device)),
        public=words,
    )


def trained_classifier(
    name: str,
    inputs: Inputs,
    *,
    epochs: int,
    batch: int = 128,
    adversary: Adversary | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> nn.Module:
    """`thesis-cnn` or a network of `hauberk.models`, trained without protection of the records.

    To be attacked, or with an ``adversary`` to withstand it.
    """
    x, y = inputs.train
    model = fresh_classifier(name, shape=inputs.shape, classes=inputs.classes, seed=seed).to(x.device)
    train_classifier(
        model,
        x,
        y,
        epochs=epochs,
        batch=batch,
        adversary=adversary,
        shifted=1 if name == THESIS else 0,
        seed=seed,
        progress=progress,
    )
    return model.requires_grad_(False)


def validation_accuracy(model: nn.Module, inputs: Inputs) -> float:
    return accuracy(model, *inputs.validation)
