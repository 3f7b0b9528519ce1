"""Every network obeys every law: add a row, inherit the tests."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from hauberk import models
from hauberk.errors import RequestError

MNIST, CIFAR, TINY, VECTOR = (1, 28, 28), (3, 32, 32), (3, 64, 64), (30,)
CLASSES = 10

# (name, shape of a record, number of weights with ten classes); the laws below run on every row.
ROWS = [
    ("small-tanh-cnn", MNIST, 26_010),
    ("moved-tanh-cnn", MNIST, 76_218),
    ("paper-mnist-cnn", MNIST, 857_738),
    ("paper-cifar-cnn", CIFAR, 6_250_890),
    ("wrn-16-4", CIFAR, 2_748_890),
    ("lenet", MNIST, 253_834),
    ("resnet-18", CIFAR, 11_173_962),
    ("resnet-18", TINY, 11_181_642),
    ("mlp", MNIST, 269_322),
    ("mlp", VECTOR, 76_298),
    ("logistic", MNIST, 7_850),
    ("logistic", VECTOR, 310),
    ("transformer", MNIST, 71_498),
    ("transformer", VECTOR, 71_178),
]

# The same networks at the other sizes: only shapes and numbers of weights.
OTHER_SIZES = [
    ("small-tanh-cnn", CIFAR, 37_274),
    ("small-tanh-cnn", TINY, 184_730),
    ("moved-tanh-cnn", CIFAR, 115_130),
    ("paper-mnist-cnn", CIFAR, 1_105_098),
    ("paper-mnist-cnn", TINY, 4_250_826),
    ("paper-cifar-cnn", MNIST, 5_265_546),
    ("paper-cifar-cnn", TINY, 18_833_802),
    ("wrn-16-4", MNIST, 2_748_602),
    ("wrn-16-4", TINY, 2_748_890),
    ("lenet", CIFAR, 316_874),
    ("lenet", TINY, 1_103_306),
    ("resnet-18", MNIST, 11_172_810),
    ("mlp", CIFAR, 855_050),
    ("mlp", TINY, 3_214_346),
    ("logistic", CIFAR, 30_730),
    ("logistic", TINY, 122_890),
    ("transformer", CIFAR, 74_506),
    ("transformer", TINY, 83_722),
]


def identify(row: tuple[str, tuple[int, ...], int]) -> str:
    name, shape, _ = row
    return f"{name}-{'x'.join(map(str, shape))}"


every_row = pytest.mark.parametrize(
    ("name", "shape"), [row[:2] for row in ROWS], ids=[identify(row) for row in ROWS]
)


def build(name: str, shape: tuple[int, ...], *, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return models.build(name, shape=shape, classes=CLASSES)


def records(shape: tuple[int, ...], count: int = 2) -> Tensor:
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(1))


def first_affine_map(model: nn.Sequential) -> nn.Module:
    return next(layer for layer in model.modules() if isinstance(layer, nn.Conv2d | nn.Linear))


def test_every_name_has_a_row() -> None:
    assert {row[0] for row in ROWS} == set(models.names())


@pytest.mark.parametrize(
    ("name", "shape", "weights"), ROWS + OTHER_SIZES, ids=[identify(row) for row in ROWS + OTHER_SIZES]
)
def test_number_of_weights_and_logits(name: str, shape: tuple[int, ...], weights: int) -> None:
    with torch.device("meta"):  # sizes need no memory and no arithmetic
        model = models.build(name, shape=shape, classes=CLASSES)
        logits = model(torch.zeros(3, *shape))
    assert sum(weight.numel() for weight in model.parameters()) == weights
    assert logits.shape == (3, CLASSES)


@every_row
def test_logits_are_finite_and_gradients_reach_every_weight(name: str, shape: tuple[int, ...]) -> None:
    model = build(name, shape)
    logits = model(records(shape))
    assert logits.shape == (2, CLASSES)
    assert logits.isfinite().all()
    nn.functional.cross_entropy(logits, torch.tensor([3, 7])).backward()
    gradients = {path: weight.grad for path, weight in model.named_parameters()}
    largest = max(float(gradient.abs().max()) for gradient in gradients.values() if gradient is not None)
    for path, gradient in gradients.items():
        assert gradient is not None, path
        assert gradient.isfinite().all(), path
        # Not only rounding errors: a weight whose true gradient is zero would receive noise for nothing.
        assert float(gradient.abs().max()) > 1e-6 * largest, path


@every_row
def test_no_layer_mixes_records_or_draws_coins(name: str, shape: tuple[int, ...]) -> None:
    with torch.device("meta"):
        model = models.build(name, shape=shape, classes=CLASSES)
    for path, layer in model.named_modules():
        kind = type(layer).__name__
        assert "BatchNorm" not in kind, path
        assert "Dropout" not in kind, path
    assert not list(model.buffers()), "running statistics would remember records"


@every_row
@pytest.mark.parametrize("mode", ["train", "eval"])
def test_a_record_ignores_the_others(name: str, shape: tuple[int, ...], mode: str) -> None:
    model = build(name, shape).train(mode == "train")
    batch = records(shape, 3)
    changed = torch.cat((batch[:1], 1 - 5 * batch[1:]))
    with torch.no_grad():
        together, among_others, alone = model(batch)[0], model(changed)[0], model(batch[:1])[0]
    torch.testing.assert_close(among_others, together, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(alone, together, rtol=1e-5, atol=1e-5)


@every_row
def test_training_and_evaluation_mode_agree(name: str, shape: tuple[int, ...]) -> None:
    if name == "moved-tanh-cnn":
        pytest.skip("asks at five places in evaluation mode: test_moved_average.py")
    model = build(name, shape)
    with torch.no_grad():
        training = model.train()(records(shape))
        evaluation = model.eval()(records(shape))
    torch.testing.assert_close(evaluation, training, rtol=0, atol=0)


@every_row
def test_vmapped_gradients_are_those_of_single_records(name: str, shape: tuple[int, ...]) -> None:
    model = build(name, shape).double()  # so that only a wrong rule, not rounding, can make a difference
    batch, labels = records(shape).double(), torch.tensor([3, 7])

    def loss(weights: dict[str, Tensor], record: Tensor, label: Tensor) -> Tensor:
        logits = functional_call(model, weights, (record.unsqueeze(0),))
        return nn.functional.cross_entropy(logits, label.unsqueeze(0))

    weights = {path: weight.detach() for path, weight in model.named_parameters()}
    vmapped = vmap(grad(loss), in_dims=(None, 0, 0))(weights, batch, labels)
    for row, (record, label) in enumerate(zip(batch, labels, strict=True)):
        model.zero_grad()
        nn.functional.cross_entropy(model(record.unsqueeze(0)), label.unsqueeze(0)).backward()
        for path, weight in model.named_parameters():
            torch.testing.assert_close(vmapped[path][row], weight.grad, rtol=1e-7, atol=1e-9, msg=path)


@every_row
def test_an_empty_batch_is_ordinary(name: str, shape: tuple[int, ...]) -> None:
    model = build(name, shape)
    logits = model(torch.zeros(0, *shape))
    assert logits.shape == (0, CLASSES)
    logits.sum().backward()
    for path, weight in model.named_parameters():
        assert weight.grad is not None, path
        assert not weight.grad.any(), path


@every_row
def test_the_seed_decides_the_network(name: str, shape: tuple[int, ...]) -> None:
    first, again, other = (build(name, shape, seed=seed) for seed in (5, 5, 6))
    for path, weight in first.named_parameters():
        assert torch.equal(weight, again.get_parameter(path)), path
    assert any(
        not torch.equal(weight, other.get_parameter(path)) for path, weight in first.named_parameters()
    )


@every_row
def test_weights_survive_a_state_dict(name: str, shape: tuple[int, ...]) -> None:
    model, restored = build(name, shape, seed=5), build(name, shape, seed=6)
    restored.load_state_dict(model.state_dict())
    with torch.no_grad():
        assert torch.equal(restored(records(shape)), model(records(shape)))


@every_row
def test_only_a_reshape_precedes_the_first_affine_map(name: str, shape: tuple[int, ...]) -> None:
    model = build(name, shape)
    first = first_affine_map(model)
    assert next(iter(model.parameters())) is first.weight, "a weight comes before it"
    seen: list[Tensor] = []
    first.register_forward_hook(lambda layer, inputs, output: seen.append(inputs[0]))
    batch = records(shape)
    model(batch)
    assert len(seen) == 1, "a map used twice would need two noise layers"
    assert torch.equal(seen[0].flatten(1), batch.flatten(1))


@every_row
def test_nothing_behind_the_first_affine_map_reads_the_input(name: str, shape: tuple[int, ...]) -> None:
    model = build(name, shape)
    batch = records(shape)
    first = first_affine_map(model)
    kept: list[Tensor] = []
    recording = first.register_forward_hook(lambda layer, inputs, output: kept.append(output))
    with torch.no_grad():
        logits = model(batch)
        recording.remove()
        first.register_forward_hook(lambda layer, inputs, output: kept[0])
        assert torch.equal(model(1 - batch), logits)


@every_row
def test_input_gradients_can_be_differentiated_again(name: str, shape: tuple[int, ...]) -> None:
    model = build(name, shape)
    batch = records(shape, 1).requires_grad_()
    (slope,) = torch.autograd.grad(model(batch).square().sum(), batch, create_graph=True)
    slope.square().sum().backward()
    assert batch.grad is not None
    assert batch.grad.isfinite().all()
    assert batch.grad.any()


def test_names_are_the_fixed_ones() -> None:
    fixed = "small-tanh-cnn moved-tanh-cnn paper-mnist-cnn paper-cifar-cnn wrn-16-4 lenet resnet-18"
    assert models.names() == (*fixed.split(), "mlp", "logistic", "transformer")


def test_every_description_fits_on_a_line_of_help() -> None:
    descriptions = models.describe()
    assert tuple(descriptions) == models.names()
    for description in descriptions.values():
        assert 20 <= len(description) <= 90
        assert "\n" not in description


def test_an_unknown_name_is_answered_with_the_names() -> None:
    with pytest.raises(RequestError) as refusal:
        models.build("alexnet", shape=MNIST, classes=CLASSES)
    assert "alexnet" in str(refusal.value)
    assert all(name in str(refusal.value) for name in models.names())


@pytest.mark.parametrize("shape", [(), (0,), (1, 28, 0), (-1, 28, 28)])
@pytest.mark.parametrize("name", models.names())
def test_a_shape_without_values_is_refused(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(RequestError, match="positive sizes"):
        models.build(name, shape=shape, classes=CLASSES)


@pytest.mark.parametrize("classes", [-1, 0, 1])
def test_fewer_than_two_classes_are_refused(classes: int) -> None:
    with pytest.raises(RequestError, match="at least 2 classes"):
        models.build("logistic", shape=MNIST, classes=classes)


# (network that takes images only, its smallest side)
SMALLEST_IMAGES = [
    ("small-tanh-cnn", 14),
    ("moved-tanh-cnn", 14),
    ("paper-mnist-cnn", 4),
    ("paper-cifar-cnn", 4),
    ("wrn-16-4", 8),
    ("lenet", 4),
    ("resnet-18", 8),
]


@pytest.mark.parametrize("name", [name for name, _ in SMALLEST_IMAGES])
@pytest.mark.parametrize("shape", [(784,), (28, 28), (1, 1, 28, 28)])
def test_an_image_network_refuses_other_records(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(RequestError, match=f"{name} takes images"):
        models.build(name, shape=shape, classes=CLASSES)


@pytest.mark.parametrize(("name", "side"), SMALLEST_IMAGES)
def test_the_smallest_image_is_taken_and_a_smaller_one_refused(name: str, side: int) -> None:
    shape = (2, side, side + 3)
    assert build(name, shape)(records(shape, 1)).shape == (1, CLASSES)
    with pytest.raises(RequestError, match=f"at least {side} x {side} pixels"):
        models.build(name, shape=(2, side + 3, side - 1), classes=CLASSES)
