"""The general path is the reference of the fast one; its own is ordinary backward, record by record."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from hauberk.errors import RequestError
from hauberk.gradients import ClippedGradients, FlatClip, mean_cross_entropy, refuse_record_mixing, trainable
from hauberk.gradients.general import GeneralPath

CLASSES = 3


class Shared(nn.Module):
    """The same matrix twice: its gradient is the sum of both uses and counts once."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(36, 36), nn.Linear(36, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.inner(torch.tanh(self.inner(x.flatten(1))))))


def affine() -> nn.Module:
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(64, CLASSES))
    model[1].eval()
    return model


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Sequential(nn.Flatten(), nn.Linear(36, CLASSES)),
    "two layers": lambda: nn.Sequential(nn.Flatten(), nn.Linear(36, 5), nn.Tanh(), nn.Linear(5, CLASSES)),
    "convolution": lambda: nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(16, CLASSES)
    ),
    "shared weight": Shared,
    "frozen batch norm": affine,
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("views", [1, 3])
def test_per_record_gradients_equal_one_at_a_time_backward(
    name: str, views: int, one_at_a_time: Callable[..., dict[str, Tensor]]
) -> None:
    model = NETWORKS[name]()
    x, y = torch.rand(5, views, 1, 6, 6), torch.randint(0, CLASSES, (5,))
    gradients, losses = GeneralPath(model, mean_cross_entropy).gradients(x, y)
    for row in range(5):
        expected = one_at_a_time(model, x[row], y[row])
        for parameter, gradient in expected.items():
            torch.testing.assert_close(
                gradients[parameter].materialised()[row], gradient, rtol=1e-4, atol=1e-6
            )
        wanted = nn.functional.cross_entropy(model(x[row]), y[row].expand(views))
        torch.testing.assert_close(losses[row], wanted.detach(), rtol=1e-5, atol=1e-6)


def test_several_inputs_and_frozen_weights(one_at_a_time: Callable[..., dict[str, Tensor]]) -> None:
    class Product(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = nn.Linear(3, CLASSES), nn.Linear(5, CLASSES)
            self.left.bias.requires_grad_(False)

        def forward(self, left: Tensor, right: Tensor) -> Tensor:
            return self.left(left) * self.right(right)

    model = Product()
    views, y = (torch.randn(4, 2, 3), torch.randn(4, 2, 5)), torch.tensor([0, 1, 2, 0])
    gradients, _ = GeneralPath(model, mean_cross_entropy).gradients(views, y)
    assert set(gradients) == set(trainable(model)) == {"left.weight", "right.weight", "right.bias"}
    expected = one_at_a_time(model, (views[0][2], views[1][2]), y[2])
    for name, gradient in expected.items():
        torch.testing.assert_close(gradients[name].materialised()[2], gradient, rtol=1e-4, atol=1e-6)


def test_a_gradient_penalty_inside_the_loss_is_differentiated_per_record() -> None:
    model = NETWORKS["two layers"]()

    def penalised(predict: Callable[[Tensor], Tensor], views: Tensor, label: Tensor) -> Tensor:
        slope = torch.func.grad(lambda x: predict(x)[:, 0].sum())(views)
        return mean_cross_entropy(predict, views, label) + slope.square().sum()

    x, y = torch.rand(3, 1, 1, 6, 6), torch.tensor([0, 1, 2])
    together, _ = GeneralPath(model, penalised).gradients(x, y)
    probe = x[1].clone().requires_grad_(True)
    (slope,) = torch.autograd.grad(model(probe)[:, 0].sum(), probe, create_graph=True)
    loss = nn.functional.cross_entropy(model(x[1]), y[1:2]) + slope.square().sum()
    expected = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    for (name, _), gradient in zip(model.named_parameters(), expected, strict=True):
        wanted = torch.zeros_like(together[name].materialised()[1]) if gradient is None else gradient
        torch.testing.assert_close(together[name].materialised()[1], wanted, rtol=1e-4, atol=1e-6)


def test_a_loss_may_give_the_model_something_else_than_the_views(flat: Callable[..., Tensor]) -> None:
    """Pairs of images, say: the model never sees the record as it is stored."""
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(64, CLASSES))

    def both(predict: Callable[[Tensor], Tensor], views: Tensor, label: Tensor) -> Tensor:
        labels = label.expand(len(views))
        return sum(nn.functional.cross_entropy(predict(views[:, side]), labels) for side in range(2))

    engine = ClippedGradients(model, both, clipping=FlatClip(0.1), path="general")
    total = engine.clipped_sum(torch.rand(4, 1, 2, 1, 6, 6), torch.tensor([0, 1, 2, 0]))
    assert 0 < float(flat(total.gradients).norm()) <= 0.4 * (1 + 1e-4)


def test_dropout_draws_anew_for_every_record() -> None:
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(50, CLASSES))
    gradients, _ = GeneralPath(model, mean_cross_entropy).gradients(
        torch.ones(2, 1, 50), torch.zeros(2, dtype=torch.int64)
    )
    dropped = gradients["1.weight"].materialised()[:, 0] == 0
    assert not torch.equal(dropped[0], dropped[1])


BATCH_NORMS = [
    ("batch norm", nn.BatchNorm2d(4), "BatchNorm2d at '1' mixes the records"),
    ("sync batch norm", nn.SyncBatchNorm(4), "SyncBatchNorm at '1' mixes the records"),
    (
        "no running statistics",
        nn.BatchNorm2d(4, track_running_stats=False).eval(),
        "BatchNorm2d at '1' mixes the records",
    ),
    ("tracking instance norm", nn.InstanceNorm2d(4, track_running_stats=True), "InstanceNorm2d at '1' keeps"),
]


@pytest.mark.parametrize(("name", "layer", "sentence"), BATCH_NORMS, ids=[row[0] for row in BATCH_NORMS])
def test_layers_that_mix_records_are_refused_by_name_and_path(
    name: str, layer: nn.Module, sentence: str, refusal: Callable[..., str]
) -> None:
    model = nn.Sequential(nn.Conv2d(1, 4, 3), layer, nn.Flatten(), nn.Linear(64, CLASSES))
    assert sentence in refusal(lambda: ClippedGradients(model, clipping=FlatClip(1.0)))


def test_batch_norm_with_frozen_statistics_is_let_through() -> None:
    refuse_record_mixing(affine())


@pytest.mark.parametrize("path", ["auto", "fast", "general"])
def test_a_model_without_any_per_record_gradient_is_refused(path: str, refusal: Callable[..., str]) -> None:
    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x) * float(x.sum())  # a number of the whole batch

    engine = ClippedGradients(Whole(), clipping=FlatClip(1.0), path=path)  # type: ignore[arg-type]
    assert "no per-record gradient" in refusal(lambda: engine.prepare(torch.rand(2, 1, 4)))
    with pytest.raises(RequestError):
        engine.clipped_sum(torch.rand(2, 1, 4), torch.tensor([0, 1]))
