"""The laws of clipped per-record gradients: they equal one-at-a-time backward, and no record moves the sum by
more than the bound."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from hauberk.errors import RequestError
from hauberk.gradients import PerRecordGradients, mean_cross_entropy, refuse_record_mixing, trainable
from hauberk.training import NoisyViews

CLASSES = 3
NETWORKS = {
    "linear": lambda: nn.Sequential(nn.Flatten(), nn.Linear(36, CLASSES)),
    "two layers": lambda: nn.Sequential(nn.Flatten(), nn.Linear(36, 5), nn.Tanh(), nn.Linear(5, CLASSES)),
    "convolution": lambda: nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(16, CLASSES)
    ),
    "shared weight": lambda: _SharedWeight(),
}


class _SharedWeight(nn.Module):
    """The same matrix twice: its gradient is the sum of both uses and counts once."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(36, 36)
        self.head = nn.Linear(36, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.inner(x.flatten(1)))
        return self.head(torch.tanh(self.inner(x)))


def network(name: str, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return NETWORKS[name]()


def one_at_a_time(model: nn.Module, views: Tensor, label: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    mean_cross_entropy(model, views, label).backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.requires_grad}


def flat(gradients: dict[str, Tensor]) -> Tensor:
    return torch.cat([gradient.flatten() for gradient in gradients.values()])


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("views", [1, 3])
def test_per_record_gradients_equal_one_at_a_time_backward(name: str, views: int) -> None:
    model = network(name, 0)
    x, y = torch.rand(5, views, 1, 6, 6), torch.randint(0, CLASSES, (5,))
    gradients, losses = PerRecordGradients(model).per_record(x, y)
    for row in range(5):
        expected = one_at_a_time(model, x[row], y[row])
        for parameter, gradient in expected.items():
            torch.testing.assert_close(gradients[parameter][row], gradient, rtol=1e-4, atol=1e-6)
        expected_loss = mean_cross_entropy(model, x[row], y[row])
        torch.testing.assert_close(losses[row], expected_loss.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_clipped_sum_is_the_sum_of_clipped_gradients(name: str) -> None:
    model, bound = network(name, 1), 0.3
    x, y = torch.rand(7, 2, 1, 6, 6), torch.randint(0, CLASSES, (7,))
    expected = torch.zeros(sum(weight.numel() for weight in model.parameters()))
    for row in range(7):
        gradient = flat(one_at_a_time(model, x[row], y[row]))
        expected += gradient * min(1.0, bound / float(gradient.norm()))
    total = PerRecordGradients(model).clipped_sum(x, y, bound=bound)
    torch.testing.assert_close(flat(total.gradients), expected, rtol=1e-4, atol=1e-6)
    assert total.sensitivity == bound


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(list(NETWORKS)),
    seed=st.integers(0, 10_000),
    records=st.integers(0, 6),
    views=st.integers(1, 4),
    bound=st.floats(1e-3, 10),
    scale=st.sampled_from([0.0, 1.0, 1e3, 1e12, 1e30]),
    position=st.integers(0, 6),
)
def test_one_record_moves_the_sum_by_at_most_the_bound(
    name: str, seed: int, records: int, views: int, bound: float, scale: float, position: int
) -> None:
    """Random models, random data, K views with noise keyed by record, a record of any size added anywhere."""
    model = network(name, seed)
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(records + 1, 1, 6, 6, generator=generator)
    y = torch.randint(0, CLASSES, (records + 1,), generator=generator)
    added = min(position, records)
    x[added] = (x[added] - 0.5) * scale
    identities = torch.arange(records + 1)
    others = torch.arange(records + 1) != added
    noisy = NoisyViews(sigma=0.5, views=views)
    engine = PerRecordGradients(model)

    def total(keep: Tensor) -> Tensor:
        picked = noisy(x[keep], records=identities[keep], step=3, key=(1, 2))
        return flat(engine.clipped_sum(picked, y[keep], bound=bound).gradients)

    with_record, without = total(identities >= 0), total(others)
    assert torch.isfinite(with_record).all()
    assert float((with_record.double() - without.double()).norm()) <= bound * (1 + 1e-4) + 1e-6


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 3e38])
def test_a_record_with_an_unbounded_gradient_contributes_nothing_or_a_clipped_gradient(bad: float) -> None:
    model = network("linear", 0)
    x, y = torch.rand(3, 1, 1, 6, 6), torch.tensor([0, 1, 2])
    x[1] = bad
    engine = PerRecordGradients(model)
    without = flat(engine.clipped_sum(x[[0, 2]], y[[0, 2]], bound=0.5).gradients)
    total = flat(engine.clipped_sum(x, y, bound=0.5).gradients)
    assert torch.isfinite(total).all()
    assert float((total - without).norm()) <= 0.5 * (1 + 1e-5)


def test_gradient_ascent_on_the_added_record_does_not_beat_the_bound() -> None:
    """A worse neighbour is searched for, not only drawn."""
    model, bound = network("two layers", 4), 0.05
    engine = PerRecordGradients(model)
    record = torch.rand(1, 1, 1, 6, 6)
    worst = 0.0
    for _ in range(30):
        probe = record.clone().requires_grad_(True)
        loss = mean_cross_entropy(model, probe[0], torch.tensor(0))
        gradients = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
        size = torch.cat([gradient.flatten() for gradient in gradients]).norm()
        (direction,) = torch.autograd.grad(size, probe)
        record = (record + 5.0 * direction.sign()).detach()
        moved = flat(engine.clipped_sum(record, torch.tensor([0]), bound=bound).gradients)
        worst = max(worst, float(moved.norm()))
    assert bound * 0.9 < worst <= bound * (1 + 1e-5)


@pytest.mark.parametrize("chunk", [1, 2, 5, 100])
def test_the_result_does_not_depend_on_the_chunk(chunk: int) -> None:
    model = network("convolution", 2)
    x, y = torch.rand(9, 2, 1, 6, 6), torch.randint(0, CLASSES, (9,))
    whole = PerRecordGradients(model, chunk=9).clipped_sum(x, y, bound=0.1)
    parts = PerRecordGradients(model, chunk=chunk).clipped_sum(x, y, bound=0.1)
    torch.testing.assert_close(flat(parts.gradients), flat(whole.gradients), rtol=1e-4, atol=1e-6)


def test_an_empty_batch_gives_zeros() -> None:
    model = network("convolution", 0)
    total = PerRecordGradients(model).clipped_sum(
        torch.empty(0, 2, 1, 6, 6), torch.empty(0, dtype=torch.int64), bound=1.0
    )
    assert float(flat(total.gradients).abs().sum()) == 0.0
    assert total.records == 0


def test_frozen_parameters_get_no_gradient() -> None:
    model = network("two layers", 0)
    model[1].weight.requires_grad_(False)
    engine = PerRecordGradients(model)
    total = engine.clipped_sum(torch.rand(3, 1, 1, 6, 6), torch.tensor([0, 1, 2]), bound=1.0)
    assert set(total.gradients) == set(trainable(model)) == {"1.bias", "3.weight", "3.bias"}


def test_attack_passes_between_steps_leave_no_trace() -> None:
    model = network("convolution", 3)
    x, y = torch.rand(4, 1, 1, 6, 6), torch.randint(0, CLASSES, (4,))
    engine = PerRecordGradients(model)
    before = flat(engine.clipped_sum(x, y, bound=0.1).gradients)
    probe = x[:, 0].clone().requires_grad_(True)
    nn.functional.cross_entropy(model(probe), y).backward()
    torch.testing.assert_close(flat(engine.clipped_sum(x, y, bound=0.1).gradients), before)


def test_a_gradient_penalty_inside_the_loss_is_differentiated_per_record() -> None:
    model = network("two layers", 5)

    def penalised(predict, views: Tensor, label: Tensor) -> Tensor:
        def confidence(x: Tensor) -> Tensor:
            return predict(x)[:, 0].sum()

        slope = torch.func.grad(confidence)(views)
        return mean_cross_entropy(predict, views, label) + slope.square().sum()

    x, y = torch.rand(3, 1, 1, 6, 6), torch.tensor([0, 1, 2])
    gradients, _ = PerRecordGradients(model, penalised).per_record(x, y)
    alone, _ = PerRecordGradients(model, penalised).per_record(x[1:2], y[1:2])
    for name in gradients:
        torch.testing.assert_close(gradients[name][1], alone[name][0], rtol=1e-4, atol=1e-6)


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
    name: str, layer: nn.Module, sentence: str
) -> None:
    model = nn.Sequential(nn.Conv2d(1, 4, 3), layer, nn.Flatten(), nn.Linear(64, CLASSES))
    with pytest.raises(RequestError) as caught:
        PerRecordGradients(model)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_batch_norm_with_frozen_statistics_is_an_affine_layer() -> None:
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(64, CLASSES))
    model[1].eval()
    refuse_record_mixing(model)
    x, y = torch.rand(4, 1, 1, 6, 6), torch.randint(0, CLASSES, (4,))
    gradients, _ = PerRecordGradients(model).per_record(x, y)
    expected = one_at_a_time(model, x[2], y[2])
    for parameter, gradient in expected.items():
        torch.testing.assert_close(gradients[parameter][2], gradient, rtol=1e-4, atol=1e-6)


def test_a_model_without_trainable_parameters_is_refused() -> None:
    model = network("linear", 0).requires_grad_(False)
    with pytest.raises(RequestError, match="nothing can be trained"):
        PerRecordGradients(model)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_too_coarse_for_a_norm_are_refused(dtype: torch.dtype) -> None:
    """In half precision squares vanish: a gradient of 28 times the bound once passed unclipped."""
    model = network("linear", 0).to(dtype)
    with pytest.raises(RequestError, match="parameter"):
        PerRecordGradients(model)


@pytest.mark.parametrize("bound", [0.0, -1.0, 1e-30, float("inf"), float("nan")])
def test_a_bound_that_float32_cannot_hold_is_refused(bound: float) -> None:
    engine = PerRecordGradients(network("linear", 0))
    with pytest.raises(RequestError, match="clip must be positive"):
        engine.clipped_sum(torch.rand(1, 1, 1, 6, 6), torch.tensor([0]), bound=bound)


def test_the_smallest_bound_still_holds_for_vanishing_gradients() -> None:
    def faint(predict, views: Tensor, label: Tensor) -> Tensor:
        return mean_cross_entropy(predict, views, label) * 1e-11

    engine = PerRecordGradients(network("linear", 0), faint)
    total = flat(engine.clipped_sum(torch.rand(1, 1, 1, 6, 6), torch.tensor([0]), bound=1e-12).gradients)
    assert float(total.double().norm()) <= 1e-12 * (1 + 1e-5)


def test_a_record_with_an_infinite_loss_leaves_finite_diagnostics() -> None:
    """Whether a run finishes must not depend on one record."""
    engine = PerRecordGradients(network("linear", 0))
    x = torch.rand(2, 1, 1, 6, 6)
    x[0] = float("nan")
    total = engine.clipped_sum(x, torch.tensor([0, 1]), bound=1.0)
    assert total.loss == total.loss
    assert total.loss < float("inf")
