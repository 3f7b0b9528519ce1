"""The fast path where it fits, and the way it is found out where it does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import hauberk.models
from hauberk.gradients import (
    ClippedGradients,
    FlatClip,
    LayerCall,
    Materialised,
    PerRecordGradient,
    ScoreLoss,
    mean_cross_entropy,
)
from hauberk.gradients.fast import FastPath
from hauberk.gradients.general import GeneralPath
from hauberk.gradients.rules import UnfitLayer, registry

CLASSES = 3

# ---------------------------------------------------------------------------------- models that do not fit


class TimeMajor(nn.Module):
    """Positions in the first axis, records in the second."""

    def __init__(self) -> None:
        super().__init__()
        self.each, self.head = nn.Linear(5, 6), nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.each(x.transpose(0, 1))).mean(0))


class TimeMajorTokens(TimeMajor):
    """Made-up tokens are all alike: records that are mixed up look as if they were not."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 5)

    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(self.table(tokens))


class Recurrent(nn.Module):
    """A step function called once per position of a time-major batch that was folded."""

    def __init__(self) -> None:
        super().__init__()
        self.step, self.head = nn.Linear(5, 6), nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        folded = self.step(x.transpose(0, 1).reshape(-1, 5)).reshape(x.shape[1], len(x), 6)
        return self.head(torch.tanh(folded).sum(0))


class BesidesItself(nn.Module):
    """Uses a layer's weight outside the layer as well."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + torch.tanh(functional.linear(x, self.layer.weight))


class Centred(nn.Module):
    """Subtracts a little of the batch's mean; within a record's views alone it would be harmless."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share
        self.layer, self.head = nn.Linear(5, 5), nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer(x)
        return self.head(torch.tanh(x - self.share * x.mean(0, keepdim=True)))


class CentredInTraining(Centred):
    """Mixes records in training mode only, as a functional batch normalisation does."""

    def __init__(self) -> None:
        super().__init__(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if self.training else self.head(torch.tanh(self.layer(x)))


class CentredInputs(Centred):
    """Mixes records before any layer has seen them."""

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.layer(x - self.share * x.mean(0, keepdim=True))))


def quiet_head(model: nn.Module) -> nn.Module:
    """Before the first step no gradient passes a head of zeros: nothing behind it can be compared."""
    nn.init.zeros_(model.head.weight)
    return model


MISFITS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Tensor]]] = {
    "time-major": (TimeMajor, lambda records: torch.randn(records, 1, 6, 5)),
    "time-major, positions do not divide": (TimeMajor, lambda records: torch.randn(records, 1, 4, 5)),
    "time-major tokens": (TimeMajorTokens, lambda records: torch.randint(0, 10, (records, 1, 6))),
    "folded in the wrong order": (Recurrent, lambda records: torch.randn(records, 1, 6, 5)),
    "weight used beside its layer": (BesidesItself, lambda records: torch.randn(records, 1, 5)),
    "batch mean": (lambda: Centred(0.5), lambda records: torch.randn(records, 1, 5)),
    "a little of the batch mean": (lambda: Centred(1e-4), lambda records: torch.randn(records, 1, 5)),
    "batch mean in training": (CentredInTraining, lambda records: torch.randn(records, 1, 5)),
    "a little of the inputs' mean": (lambda: CentredInputs(1e-4), lambda records: torch.randn(records, 1, 5)),
    "time-major behind a head of zeros": (
        lambda: quiet_head(TimeMajor()),
        lambda records: torch.randn(records, 1, 6, 5),
    ),
    "weight used beside its layer, twice": (
        lambda: nn.Sequential(nn.Linear(5, 5), BesidesItself()),
        lambda records: torch.randn(records, 1, 5),
    ),
}


@pytest.mark.parametrize("name", MISFITS)
def test_a_model_that_does_not_fit_goes_the_general_path_with_one_notice(
    name: str, notices: Callable[..., list[str]], refusal: Callable[..., str], flat: Callable[..., Tensor]
) -> None:
    build, draw = MISFITS[name]
    model = build()
    views, labels = draw(6), torch.tensor([0, 1, 2, 0, 1, 2])
    engine = ClippedGradients(model, clipping=FlatClip(0.1))
    told = notices(lambda: engine.prepare(views))
    assert engine.path == "general"
    assert len(told) == 1
    assert "general path" in told[0]
    assert notices(lambda: engine.clipped_sum(views, labels)) == []
    strict = ClippedGradients(model, clipping=FlatClip(0.1), path="fast")
    assert "cannot go the fast path" in refusal(lambda: strict.prepare(views))

    for weight in model.parameters():  # some training later
        weight.data += 0.3 * torch.randn_like(weight)
    views[2] = views[2] * 1000 if views.is_floating_point() else views[2]
    total = flat(engine.clipped_sum(views, labels).gradients)
    reference, _ = GeneralPath(model, mean_cross_entropy).gradients(views, labels)
    norms = torch.stack([each.norms() for each in reference.values()]).norm(dim=0)
    expected = flat({key: each.weighted_sum((0.1 / norms).clamp_max(1)) for key, each in reference.items()})
    torch.testing.assert_close(total, expected, rtol=0, atol=1e-5)
    others = torch.arange(6) != 2
    without = flat(engine.clipped_sum(views[others], labels[others]).gradients)
    assert float((total - without).norm()) <= 0.1 * (1 + 1e-3)


def wrong_sum(call: LayerCall) -> dict[str, PerRecordGradient]:
    return {"gain": Materialised(call.per_record(call.output_gradient).sum(1))}


def wrong_shape(call: LayerCall) -> dict[str, PerRecordGradient]:
    return {"gain": Materialised(call.per_record(call.output_gradient))}


def broken(call: LayerCall) -> dict[str, PerRecordGradient]:
    raise AttributeError("a mistake in a rule")


def forgetful(call: LayerCall) -> dict[str, PerRecordGradient]:
    return {}


class Gain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(5))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gain


@pytest.mark.parametrize("rule", [wrong_sum, wrong_shape, broken, forgetful])
@pytest.mark.parametrize("silent", [False, True], ids=["", "head of zeros"])
def test_a_wrong_rule_does_no_harm(
    rule: Any, silent: bool, monkeypatch: pytest.MonkeyPatch, notices: Callable[..., list[str]]
) -> None:
    monkeypatch.setitem(registry._RULES, Gain, rule)
    model = nn.Sequential(Gain(), nn.Linear(5, CLASSES))
    if silent:
        nn.init.zeros_(model[1].weight)
    engine = ClippedGradients(model, clipping=FlatClip(0.1))
    told = notices(lambda: engine.prepare(torch.randn(2, 2, 5)))
    assert engine.path == "general"
    assert len(told) == 1


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.stem, self.inner, self.head = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, CLASSES)
        self.reentrant = reentrant

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(checkpoint(self.inner, self.stem(x), use_reentrant=self.reentrant)))


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpoints_are_refused_in_a_sentence(
    reentrant: bool, refusal: Callable[..., str]
) -> None:
    """torch.func knows no checkpoints, so there is no reference to hold the fast path against."""
    engine = ClippedGradients(Checkpointed(reentrant), clipping=FlatClip(0.1))
    assert "no per-record gradient" in refusal(lambda: engine.prepare(torch.randn(2, 1, 5)))


def test_a_loss_that_looks_at_more_than_scores_goes_the_general_path(
    notices: Callable[..., list[str]], refusal: Callable[..., str]
) -> None:
    def with_penalty(predict: Callable[[Tensor], Tensor], views: Tensor, label: Tensor) -> Tensor:
        return mean_cross_entropy(predict, views, label) + views.square().sum()

    model, views = nn.Linear(4, CLASSES), torch.randn(2, 1, 4)
    engine = ClippedGradients(model, with_penalty, clipping=FlatClip(0.1))
    (told,) = notices(lambda: engine.prepare(views))
    assert "ScoreLoss" in told
    assert engine.path == "general"
    strict = ClippedGradients(model, with_penalty, clipping=FlatClip(0.1), path="fast")
    assert "ScoreLoss" in refusal(lambda: strict.prepare(views))


def test_the_general_path_can_be_asked_for_without_a_notice(notices: Callable[..., list[str]]) -> None:
    engine = ClippedGradients(nn.Linear(4, CLASSES), clipping=FlatClip(0.1), path="general")
    assert engine.path == "undecided"
    assert notices(lambda: engine.prepare(torch.randn(2, 1, 4))) == []
    assert engine.path == "general"


def test_a_layer_without_a_rule_is_named_once(notices: Callable[..., list[str]]) -> None:
    model = nn.Sequential(nn.Linear(4, 5), Gain(), nn.Linear(5, CLASSES))
    engine = ClippedGradients(model, clipping=FlatClip(0.1))
    (told,) = notices(lambda: engine.prepare(torch.randn(2, 1, 4)))
    assert "Gain at '1'" in told
    assert engine.path == "fast"
    assert FastPath(model, mean_cross_entropy).without_rule() == ["Gain at '1'"]
    assert notices(lambda: engine.clipped_sum(torch.randn(2, 1, 4), torch.tensor([0, 1]))) == []


def test_models_and_losses_of_the_wrong_shape_are_unfit() -> None:
    views, labels = torch.randn(2, 1, 4), torch.tensor([0, 1])
    one_row = nn.Sequential(nn.Linear(4, CLASSES), nn.Flatten(0))
    with pytest.raises(UnfitLayer, match="one row per view"):
        FastPath(one_row, mean_cross_entropy).gradients(views, labels)
    with pytest.raises(UnfitLayer, match="one number per record"):
        FastPath(nn.Linear(4, 3), ScoreLoss(lambda scores, labels: scores.sum())).gradients(views, labels)


# ------------------------------------------------------------------------------------------ dropout


def test_dropout_goes_the_fast_path_and_draws_anew_for_every_record_and_view() -> None:
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(200, CLASSES))
    engine = ClippedGradients(model, clipping=FlatClip(0.1), path="fast")
    engine.prepare(torch.ones(1, 2, 200))
    assert engine.path == "fast"
    gradients, _ = FastPath(model, mean_cross_entropy).gradients(
        torch.ones(2, 2, 200), torch.zeros(2, dtype=torch.int64)
    )
    dropped = gradients["1.weight"].materialised()[:, 0] == 0  # dropped in both views: a quarter
    assert 0.15 < float(dropped.float().mean()) < 0.35
    assert not torch.equal(dropped[0], dropped[1])


class Noisy(nn.Module):
    """Drops some of its own output; no rule."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(40))
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(x * self.gain)


@pytest.mark.filterwarnings("ignore::hauberk.gradients.GeneralPathNotice")
def test_a_layer_without_a_rule_is_differentiated_with_the_draws_it_made() -> None:
    """Computing it once more would draw once more: units that were dropped would get a gradient.

    The head's input is the layer's output, so its gradient shows which units were dropped.
    """
    model = nn.Sequential(Noisy(), nn.Linear(40, CLASSES))
    engine = ClippedGradients(model, clipping=FlatClip(1e6))
    total = engine.clipped_sum(torch.rand(1, 1, 40) + 0.5, torch.tensor([1])).gradients
    dropped = total["1.weight"][0] == 0
    assert 5 < int(dropped.sum()) < 35
    assert float(total["0.gain"][dropped].abs().max()) == 0.0


# ------------------------------------------------------------------------------------------ bfloat16

BFLOAT16: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "dense": (lambda: hauberk.models.build("mlp", shape=(1, 6, 6), classes=CLASSES), (1, 6, 6)),
    "convolution": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 16, 3, stride=2), nn.GroupNorm(4, 16), nn.ReLU(inplace=True),
            nn.Conv2d(16, 16, 2), nn.Flatten(), nn.Linear(16, CLASSES),
        ),
        (1, 6, 6),
    ),
    "attention": (lambda: hauberk.models.build("transformer", shape=(1, 4, 4), classes=CLASSES), (1, 4, 4)),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::hauberk.gradients.GeneralPathNotice")
@pytest.mark.parametrize("name", BFLOAT16)
def test_bfloat16_is_close_and_keeps_the_bound(name: str, flat: Callable[..., Tensor]) -> None:
    build, shape = BFLOAT16[name]
    model, bound = build(), 0.1
    x, y = torch.rand(5, 2, *shape), torch.randint(0, CLASSES, (5,))
    engine = ClippedGradients(model, clipping=FlatClip(bound), bfloat16=True)
    total = engine.clipped_sum(x, y)
    assert engine.path == "fast"
    assert all(each.dtype == torch.float32 for each in total.gradients.values())
    reference = ClippedGradients(model, clipping=FlatClip(bound), path="general").clipped_sum(x, y)
    expected = flat(reference.gradients)
    assert float((flat(total.gradients) - expected).norm()) <= 5e-2 * float(expected.norm())
    for row in range(5):
        alone = flat(engine.clipped_sum(x[row : row + 1], y[row : row + 1]).gradients)
        assert float(alone.norm()) <= bound * (1 + 1e-3)
    coarse, _ = FastPath(model, mean_cross_entropy, bfloat16=True).gradients(x, y)
    fine, _ = FastPath(model, mean_cross_entropy).gradients(x, y)
    assert any(not torch.equal(coarse[key].norms(), fine[key].norms()) for key in fine)  # it is bfloat16


def test_bfloat16_needs_the_fast_path(refusal: Callable[..., str]) -> None:
    asked = {"clipping": FlatClip(0.1), "path": "general", "bfloat16": True}
    assert "bfloat16" in refusal(lambda: ClippedGradients(nn.Linear(4, 3), **asked))
