"""A recorded pass hears what it should, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hauberk.errors import RequestError
from hauberk.gradients import ClippedGradients, FlatClip, mean_cross_entropy
from hauberk.gradients.fast import FastPath
from hauberk.gradients.recording import layers_to_listen_to
from hauberk.gradients.rules import UnfitLayer


def network() -> nn.Sequential:
    """Its second convolution has a single position: norms without gradients in memory."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2),
        nn.ReLU(inplace=True),
        nn.Dropout(0.0),
        nn.Conv2d(16, 16, 2),
        nn.Flatten(),
        nn.Linear(16, 3),
    )


def batch() -> tuple[Tensor, Tensor]:
    return torch.rand(4, 2, 1, 6, 6), torch.tensor([0, 1, 2, 0])


def hooks(model: nn.Module) -> int:
    kinds = "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"
    return sum(len(getattr(layer, kind)) for layer in model.modules() for kind in kinds)


@pytest.mark.parametrize("path", ["fast", "general"])
def test_a_sum_leaves_no_trace_on_the_model(path: Any) -> None:
    model = network()
    model[2].eval()
    model[0].bias.requires_grad_(False)
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [layer.training for layer in model.modules()]
    asked = [weight.requires_grad for weight in model.parameters()]
    engine = ClippedGradients(model, clipping=FlatClip(0.1), path=path)
    x, y = batch()
    total = engine.clipped_sum(x, y)
    assert hooks(model) == 0
    assert all(weight.grad is None for weight in model.parameters())
    assert [layer.training for layer in model.modules()] == modes
    assert [weight.requires_grad for weight in model.parameters()] == asked
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    assert not x.requires_grad
    assert x.grad is None
    assert not any(each.requires_grad for each in total.gradients.values())


@pytest.mark.parametrize("path", ["fast", "general"])
def test_choosing_a_path_draws_no_random_number(path: Any) -> None:
    engine = ClippedGradients(network(), clipping=FlatClip(0.1), path=path)
    views, _ = batch()
    before = torch.get_rng_state()
    engine.prepare(views)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("path", ["fast", "general"])
def test_attacks_evaluations_and_penalties_between_sums_change_nothing(
    path: Any, flat: Callable[..., Tensor]
) -> None:
    model = network()
    x, y = batch()
    engine = ClippedGradients(model, clipping=FlatClip(0.1), path=path)
    before = flat(engine.clipped_sum(x, y).gradients)
    probe = x[:, 0].clone().requires_grad_(True)
    nn.functional.cross_entropy(model(probe), y).backward()
    (slope,) = torch.autograd.grad(model(probe).sum(), probe, create_graph=True)
    slope.square().sum().backward()
    with torch.no_grad():
        model(x[:, 0])
    assert torch.equal(flat(engine.clipped_sum(x, y).gradients), before)
    with torch.no_grad():
        assert torch.equal(flat(engine.clipped_sum(x, y).gradients), before)


class Stumbling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.stumbles = False

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer(x)
        if self.stumbles:
            raise KeyError("stumbled")
        return x


def test_an_exception_in_the_model_leaves_no_hooks_and_no_mode_behind() -> None:
    model = Stumbling()
    engine = ClippedGradients(model, clipping=FlatClip(0.1), path="fast")
    x, y = torch.rand(2, 1, 4), torch.tensor([0, 1])
    engine.prepare(x)
    model.stumbles = True
    with pytest.raises(KeyError, match="stumbled"):
        engine.clipped_sum(x, y)
    assert hooks(model) == 0
    fresh = ClippedGradients(model, clipping=FlatClip(0.1))
    with pytest.raises(RequestError, match="stumbled"):
        fresh.prepare(x)
    assert hooks(model) == 0
    assert model.training
    model.stumbles = False
    engine.clipped_sum(x, y)


def test_hooks_of_the_user_stay_and_are_called() -> None:
    model, seen = network(), []
    model[0].register_forward_hook(lambda *_: seen.append(1))
    FastPath(model, mean_cross_entropy).gradients(*batch())
    assert seen == [1]
    assert hooks(model) == 1


# ------------------------------------------------------------------------------------------ what is heard


def test_layers_with_a_rule_are_listened_to_one_by_one() -> None:
    model = network()
    heard = layers_to_listen_to(model)
    assert [(each.path, each.general) for each in heard] == [("0", False), ("3", False), ("5", False)]
    assert heard[0].names == {"weight": "0.weight", "bias": "0.bias"}


def test_frozen_layers_are_not_listened_to() -> None:
    model = network()
    model[0].requires_grad_(False)
    model[3].requires_grad_(False)
    model[5].bias.requires_grad_(False)
    heard = layers_to_listen_to(model)
    assert [each.names for each in heard] == [{"weight": "5.weight"}]
    gradients, _ = FastPath(model, mean_cross_entropy).gradients(*batch())
    assert set(gradients) == {"5.weight"}


def test_a_layer_without_a_rule_is_taken_whole() -> None:
    model = nn.Sequential(nn.MultiheadAttention(8, 2), nn.Linear(8, 3))
    heard = layers_to_listen_to(model)
    assert [(each.path, each.general) for each in heard] == [("0", True), ("1", False)]
    assert set(heard[0].names) == {"in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"}


def test_a_model_that_owns_a_parameter_itself_is_taken_whole() -> None:
    class Root(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shift = nn.Parameter(torch.zeros(4))
            self.layer = nn.Linear(4, 3)

    heard = layers_to_listen_to(Root())
    assert [(each.path, sorted(each.names)) for each in heard] == [
        ("", ["layer.bias", "layer.weight", "shift"])
    ]


def test_one_parameter_in_two_layers_has_one_name() -> None:
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    second.weight = first.weight
    heard = layers_to_listen_to(nn.Sequential(first, second))
    assert [each.names["weight"] for each in heard] == ["0.weight", "0.weight"]


class ChangesItsInput(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.layer = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.sin(self.stem(x))
        out = self.layer(x.detach())
        x.detach().mul_(2.0)
        return out


def test_an_input_that_was_changed_in_place_after_its_use_is_noticed() -> None:
    with pytest.raises(UnfitLayer, match="changed in place"):
        FastPath(ChangesItsInput(), mean_cross_entropy).gradients(torch.rand(2, 1, 4), torch.tensor([0, 1]))
