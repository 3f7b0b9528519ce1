"""A classifier that is kept as it is: whose weights it has, and what is said where it cannot be had."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from hauberk import models
from hauberk.data import Dataset
from hauberk.errors import RequestError
from hauberk.files import write_tensors
from hauberk.methods.base import Given
from hauberk.methods.frozen_classifier import FrozenClassifier, denoised_network
from hauberk.methods.settings import TrainSettings
from hauberk.progress import silent
from hauberk.randomness import SystemRandomness
from hauberk.training.distribution import Ranks

SHAPE = (1, 8, 8)
SETTINGS = TrainSettings(
    method="transdenoiser", model="mlp", denoised=True, denoiser_width=2, public_epochs=2
)


def data(seed: int, rows: int = 48) -> Dataset:
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 2, (rows,), generator=generator)
    x = 0.4 * torch.rand(rows, *SHAPE, generator=generator) + 0.5 * y.view(-1, 1, 1, 1)
    return Dataset(name="made up", x=x, y=y, classes=2)


def network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return denoised_network(SETTINGS, SHAPE, 2)


def given(*, public: Dataset | None, private: int = 1) -> Given:
    return Given(
        model=network(),
        private=data(private),
        public=public,
        randomness=SystemRandomness(),
        ranks=Ranks.alone(),
        progress=silent,
    )


def frozen(weights: object = None, **changes: int) -> FrozenClassifier:
    return FrozenClassifier(
        weights=None if weights is None else str(weights), **{"epochs": 2, "seed": 0, **changes}
    )


def test_only_the_denoiser_is_trained() -> None:
    made = network()
    assert all(each.requires_grad for each in made.denoiser.parameters())
    assert not any(each.requires_grad for each in made.classifier.parameters())
    assert [name for name, _ in made.named_children()] == ["denoiser", "classifier"]


def test_public_records_train_it_and_private_ones_never_reach_it() -> None:
    public = data(2)
    first = frozen().settle(given(public=public, private=1))
    second = frozen().settle(given(public=public, private=7))
    assert set(first) == {f"classifier/{name}" for name in network().classifier.state_dict()}
    for name, value in first.items():
        assert torch.equal(value, second[name])
    other = frozen().settle(given(public=data(3)))
    assert any(not torch.equal(first[name], other[name]) for name in first)
    before = network().classifier.state_dict()
    assert any(not torch.equal(first[f"classifier/{name}"], value) for name, value in before.items())


def test_it_learns_and_leaves_the_denoiser_alone() -> None:
    asked = given(public=data(2, rows=256))
    before = [each.clone() for each in asked.model.denoiser.parameters()]
    settled = frozen(epochs=8).settle(asked)
    assert all(
        torch.equal(one, two) for one, two in zip(before, asked.model.denoiser.parameters(), strict=True)
    )
    model = network(seed=9)
    frozen().furnish(model, settled)
    test = data(4, rows=200)
    assert (model.classifier(test.x).argmax(1) == test.y).double().mean() > 0.9
    assert not any(each.requires_grad for each in asked.model.classifier.parameters())
    # the constants are copies: nothing that happens to the network moves them
    saved = {name: value.clone() for name, value in settled.items()}
    with torch.no_grad():
        for each in asked.model.classifier.parameters():
            each.add_(1)
    assert all(torch.equal(saved[name], settled[name]) for name in saved)


def test_a_file_of_weights_is_taken_as_it_is(tmp_path: Path) -> None:
    torch.manual_seed(5)
    own = models.build("mlp", shape=SHAPE, classes=2)
    write_tensors(tmp_path / "own.safetensors", own.state_dict())
    settled = frozen(tmp_path / "own.safetensors").settle(given(public=None))
    for name, value in own.state_dict().items():
        assert torch.equal(settled[f"classifier/{name}"], value)
    model = network()
    frozen().furnish(model, settled)
    x = data(4).x
    assert torch.equal(model.classifier(x), own(x))
    # public records are not needed then, and not looked at
    again = frozen(tmp_path / "own.safetensors").settle(given(public=data(3)))
    assert all(torch.equal(settled[name], again[name]) for name in settled)


def refused(weights: object, *, public: Dataset | None = None) -> str:
    with pytest.raises(RequestError) as caught:
        frozen(weights).check(given(public=None).model, public)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_cannot_be_had_costs_a_sentence(tmp_path: Path) -> None:
    assert "nowhere.safetensors" in refused(tmp_path / "nowhere.safetensors")
    (tmp_path / "text").write_text("not weights at all")
    assert "text" in refused(tmp_path / "text")
    (tmp_path / "empty").write_bytes(b"")
    assert "empty" in refused(tmp_path / "empty")
    assert str(tmp_path) in refused(tmp_path)  # a folder
    other = models.build("mlp", shape=SHAPE, classes=3)
    write_tensors(tmp_path / "three", other.state_dict())
    assert "--model" in refused(tmp_path / "three")
    write_tensors(tmp_path / "logistic", models.build("logistic", shape=SHAPE, classes=2).state_dict())
    assert "--model" in refused(tmp_path / "logistic")
    write_tensors(tmp_path / "less", dict(list(other.state_dict().items())[:1]))
    assert "--model" in refused(tmp_path / "less")


def test_without_public_records_and_without_weights_both_ways_out_are_named() -> None:
    sentence = refused(None)
    assert "--public-data" in sentence
    assert "--classifier" in sentence


def test_it_is_there_where_a_denoiser_is_asked_for() -> None:
    assert FrozenClassifier.from_settings(SETTINGS) == FrozenClassifier(weights=None, epochs=2, seed=0)
    assert FrozenClassifier.from_settings(TrainSettings(method="secure-sgd")) is None
