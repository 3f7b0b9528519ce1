"""Noise after the first map in training: by hand, record by record, and on the fast path."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from hauberk import models
from hauberk.accounting import PrivacyPlan
from hauberk.certify.affine_map import AffineMap
from hauberk.certify.first_map import find_first_map
from hauberk.errors import RequestError
from hauberk.gradients import ClippedGradients, FlatClip, GeneralPathNotice, trainable
from hauberk.randomness import SeededRandomness
from hauberk.training import NoisyViews, Optimisation, PrivateTrainer
from hauberk.training.layer_noise import LayerNoiseViews, NoiseAfter, SharedNoiseViews, hold_norm, map_norm

KEY = (11, 22)


def small() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 2, 3, stride=2, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(2 * 3 * 3, 3)
    )


def flat(gradients: dict[str, Tensor]) -> Tensor:
    return torch.cat([each.flatten() for each in gradients.values()])


# --- the network with noise ---------------------------------------------------------------------------------


def test_the_noise_is_added_to_the_layers_own_output_and_nowhere_else() -> None:
    network, x, noise = small(), torch.rand(4, 1, 6, 6), torch.randn(4, 2, 3, 3)
    by_hand = network[1:](network[0](x) + noise)
    assert torch.equal(NoiseAfter(network, "0")(x, noise), by_hand)
    later = torch.randn(4, 3)
    assert torch.equal(NoiseAfter(network, "3")(x, later), network(x) + later)


def test_training_it_trains_the_network() -> None:
    network = small()
    noisy = NoiseAfter(network, "0")
    assert [id(each) for each in noisy.parameters()] == [id(each) for each in network.parameters()]
    noisy(torch.rand(2, 1, 6, 6), torch.randn(2, 2, 3, 3)).sum().backward()
    assert all(each.grad is not None and each.grad.abs().sum() > 0 for each in network.parameters())


def test_no_hook_is_left_even_when_the_network_fails() -> None:
    network = small()
    noisy, x = NoiseAfter(network, "0"), torch.rand(2, 1, 6, 6)
    noisy(x, torch.zeros(2, 2, 3, 3))
    assert not network[0]._forward_hooks
    with pytest.raises(RuntimeError):
        noisy(x, torch.zeros(2, 2, 5, 5))  # inside the hook
    with pytest.raises(RuntimeError):
        noisy(torch.rand(2, 1, 9, 9), torch.zeros(2, 2, 5, 5))  # behind it, in the last layer
    assert not network[0]._forward_hooks
    find_first_map(network, (1, 6, 6))  # which refuses a layer with hooks


NETWORKS = [
    ("small-tanh-cnn", (1, 14, 14)),
    ("paper-mnist-cnn", (1, 16, 16)),
    ("mlp", (7,)),
    ("paper-cifar-cnn", (3, 8, 8)),
]


@pytest.mark.parametrize(("name", "shape"), NETWORKS, ids=[name for name, _ in NETWORKS])
def test_the_fast_path_serves_and_agrees_with_the_general_one(name: str, shape: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    network = models.build(name, shape=shape, classes=4).double()
    first = find_first_map(network, shape)
    views = LayerNoiseViews(
        at_input=0.1, after_layer=torch.rand(first.output_shape) + 0.1, shape=first.output_shape, views=2
    )
    x, records = torch.rand(3, *shape), torch.arange(3)
    seen = tuple(each.double() for each in views(x, records=records, step=2, key=KEY))
    y = torch.tensor([0, 3, 1])
    model = NoiseAfter(network, first.name)
    sums = {}
    for path in ("fast", "general"):
        gradients = ClippedGradients(model, clipping=FlatClip(0.5), path=path)  # type: ignore[arg-type]
        with warnings.catch_warnings():
            warnings.simplefilter("error", GeneralPathNotice)
            sums[path] = gradients.clipped_sum(seen, y)
        assert gradients.path == path
    assert sums["fast"].clipped == sums["general"].clipped
    fast, general = (flat(sums[path].gradients) for path in ("fast", "general"))
    assert torch.allclose(fast, general, rtol=1e-9, atol=1e-12)
    # and both are what autograd says of one record after the other
    by_hand = torch.zeros_like(general)
    for row in range(3):
        scores = model(seen[0][row], seen[1][row])
        loss = nn.functional.cross_entropy(scores, y[row].repeat(2))
        one = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])
        by_hand += one * min(1.0, 0.5 / float(one.norm()))
    assert torch.allclose(general, by_hand, rtol=1e-7, atol=1e-9)


# --- views --------------------------------------------------------------------------------------------------


def layer_views(**changes: object) -> LayerNoiseViews:
    made: dict[str, object] = {"at_input": 0.0, "after_layer": 1.0, "shape": (2, 3), "views": 3}
    return LayerNoiseViews(**{**made, **changes})  # type: ignore[arg-type]


@settings(max_examples=25)
@given(
    records=st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=6, unique=True),
    step=st.integers(0, 10**6),
    data=st.data(),
)
def test_a_neighbour_does_not_shift_anybody_elses_noise(
    records: list[int], step: int, data: st.DataObject
) -> None:
    views = layer_views(at_input=0.5)
    kept = data.draw(st.permutations(records).map(lambda some: some[: max(1, len(some) - 1)]))
    x = {record: torch.full((4,), float(place)) for place, record in enumerate(records)}

    def seen(some: list[int]) -> dict[int, tuple[Tensor, Tensor]]:
        inputs, noise = views(
            torch.stack([x[each] for each in some]), records=torch.tensor(some), step=step, key=KEY
        )
        return {each: (inputs[place], noise[place]) for place, each in enumerate(some)}

    everybody, without = seen(records), seen(kept)
    for each in kept:
        assert torch.equal(everybody[each][0], without[each][0])
        assert torch.equal(everybody[each][1], without[each][1])


def test_every_step_record_view_and_key_has_noise_of_its_own() -> None:
    views, x = layer_views(shape=(4,)), torch.zeros(2, 5)
    drawn = [
        views(x, records=torch.tensor([0, 1]), step=step, key=key)[1].flatten(0, 1)
        for step in (0, 1)
        for key in (KEY, (11, 23))
    ]
    rows = torch.cat(drawn)
    assert len({tuple(row.tolist()) for row in rows}) == len(rows) == 2 * 2 * 2 * 3


def test_the_layers_noise_is_not_the_inputs_noise() -> None:
    """With one key and one shape they would be equal if they shared their counters."""
    x, records = torch.zeros(400, 6), torch.arange(400)
    inputs, noise = layer_views(at_input=1.0, shape=(6,))(x, records=records, step=5, key=KEY)
    plain = NoisyViews(sigma=1.0, views=3)(x, records=records, step=5, key=KEY)
    assert torch.equal(inputs, plain)  # the input noise is that of the noisy views
    a, b = inputs.flatten().double(), noise.flatten().double()
    assert float(torch.isin(a, b).double().mean()) < 0.01  # but for chance, in float32
    assert abs(float((a * b).mean())) < 6 / len(a) ** 0.5


def test_the_variance_is_that_of_each_output() -> None:
    scales = torch.tensor([[0.1, 1.0, 3.0], [0.5, 2.0, 0.01]])
    views = layer_views(after_layer=scales, views=2)
    _, noise = views(torch.zeros(4000, 1), records=torch.arange(4000), step=0, key=KEY)
    ratio = noise.double().flatten(0, 1).square().mean(0) / scales.double().square()
    assert torch.all((ratio - 1).abs() < 6 * (2 / 8000) ** 0.5)
    both = noise.double().flatten(0, 1).flatten(1).T.corrcoef() - torch.eye(6)
    assert torch.all(both.abs() < 6 / 8000**0.5)


def test_without_input_noise_the_input_is_the_record() -> None:
    x = torch.rand(3, 4)
    inputs, noise = layer_views()(x, records=torch.arange(3), step=0, key=KEY)
    assert torch.equal(inputs, x.unsqueeze(1).expand(-1, 3, -1))
    assert noise.shape == (3, 3, 2, 3)


def test_nobody_is_a_batch_too() -> None:
    inputs, noise = layer_views(at_input=0.5)(
        torch.zeros(0, 4), records=torch.zeros(0, dtype=torch.int64), step=0, key=KEY
    )
    assert inputs.shape == (0, 3, 4)
    assert noise.shape == (0, 3, 2, 3)


def test_no_views_are_refused() -> None:
    with pytest.raises(RequestError, match="views"):
        layer_views(views=0)


def test_shared_noise_is_the_same_for_all_records_steps_and_keys() -> None:
    gamma = torch.randn(2, 3)
    views = SharedNoiseViews(noise=gamma)
    for step, key in ((0, KEY), (7, (1, 2))):
        x = torch.rand(5, 4)
        inputs, noise = views(x, records=torch.arange(5), step=step, key=key)
        assert torch.equal(inputs, x.unsqueeze(1))
        assert noise.shape == (5, 1, 2, 3)
        assert all(torch.equal(each[0], gamma) for each in noise)


# --- the norm of the first map ------------------------------------------------------------------------------


def exact_norm(layer: nn.Linear | nn.Conv2d, shape: tuple[int, ...]) -> float:
    """Largest singular value of the layer written out as a matrix."""
    size = torch.Size(shape).numel()
    basis = torch.eye(size, dtype=torch.float64).view(size, *shape)
    with torch.no_grad():
        double = layer.double()
        matrix = (double(basis) - double(torch.zeros(1, *shape, dtype=torch.float64))).flatten(1)
    layer.float()
    return float(torch.linalg.matrix_norm(matrix, 2))


CONVOLUTIONS = [
    {"stride": 1, "padding": 0},
    {"stride": 1, "padding": 1},
    {"stride": 2, "padding": 1},
    {"stride": 2, "padding": 0},
    {"stride": 3, "padding": 2},
    {"stride": 1, "padding": 2, "dilation": 2},
]


@pytest.mark.parametrize("channels", [(1, 4), (3, 2), (3, 8), (2, 1)], ids=str)
@pytest.mark.parametrize("kernel", [1, 3, 5])
def test_the_norm_of_a_convolution_is_hardly_ever_below_the_true_one(
    channels: tuple[int, int], kernel: int
) -> None:
    torch.manual_seed(kernel)
    for settings_ in CONVOLUTIONS:
        for shift in (0.0, 0.3):  # weights around zero, and weights with a large mean
            layer = nn.Conv2d(*channels, kernel, **settings_)
            with torch.no_grad():
                layer.weight += shift
            truth = exact_norm(layer, (channels[0], 9, 9))
            assert float(map_norm(layer)) >= 0.97 * truth, settings_
            bound, _ = AffineMap(layer, (channels[0], 9, 9)).spectral_norm_bound(1.0)
            assert bound >= truth * (1 - 1e-9)


def test_the_norm_of_a_wide_convolution_is_near() -> None:
    """Where the image is much larger than the kernel and nothing is left out there is little slack."""
    torch.manual_seed(0)
    layer = nn.Conv2d(2, 3, 3, padding=1)
    truth = exact_norm(layer, (2, 16, 16))
    assert 0.97 * truth <= float(map_norm(layer)) <= 1.1 * truth


def test_the_norm_of_a_linear_layer_is_exact() -> None:
    torch.manual_seed(0)
    for sizes in ((5, 9), (9, 5), (1, 4), (4, 1)):
        layer = nn.Linear(*sizes)
        assert float(map_norm(layer)) == pytest.approx(exact_norm(layer, (sizes[0],)), rel=1e-5)


def test_a_grouped_convolution_is_refused() -> None:
    with pytest.raises(RequestError, match="group"):
        map_norm(nn.Conv2d(4, 4, 3, groups=2))


@pytest.mark.parametrize("make", [lambda: nn.Linear(6, 4), lambda: nn.Conv2d(2, 3, 3)])
def test_holding_scales_down_to_the_bound_and_never_up(make: Callable[[], nn.Linear | nn.Conv2d]) -> None:
    torch.manual_seed(0)
    layer = make()
    norm, before = float(map_norm(layer)), layer.weight.detach().clone()
    hold_norm(layer, 2 * norm)
    assert torch.equal(layer.weight, before)
    bias = layer.bias.detach().clone()
    hold_norm(layer, norm / 3)
    assert float(map_norm(layer)) == pytest.approx(norm / 3, rel=1e-5)
    assert torch.allclose(layer.weight, before / 3, rtol=1e-5)  # the direction stays
    assert torch.equal(layer.bias, bias)
    with torch.no_grad():
        layer.weight.zero_()
    hold_norm(layer, 1.0)
    assert torch.equal(layer.weight, torch.zeros_like(layer.weight))


# --- in the loop --------------------------------------------------------------------------------------------


def trainer(**changes: object) -> PrivateTrainer:
    network = small()
    generator = torch.Generator().manual_seed(0)
    x, y = torch.rand(64, 1, 6, 6, generator=generator), torch.randint(0, 3, (64,), generator=generator)
    made: dict[str, object] = {
        "plan": PrivacyPlan(records=64, batch=16, epochs=2, noise_multiplier=1.0, delta=1e-3),
        "views": LayerNoiseViews(at_input=0.0, after_layer=0.5, shape=(2, 3, 3), views=2),
        "clipping": 1.0,
        "optimisation": Optimisation(lr=2.0, averaging=0.7),
        "randomness": SeededRandomness(7),
    }
    return PrivateTrainer(NoiseAfter(network, "0"), x, y, **{**made, **changes})  # type: ignore[arg-type]


def test_the_rule_runs_after_every_step_and_the_average_keeps_its_bound() -> None:
    each = trainer()
    network = each.model.network
    norms: list[float] = []
    each.run(lambda done: norms.append(float(map_norm(network[0]))))
    bound = 0.5 * max(norms)
    assert norms[-1] > bound  # what is tested below would happen otherwise

    held = trainer()
    network = held.model.network
    held._after_step = lambda: hold_norm(network[0], bound)
    hold_norm(network[0], bound)
    held.average.values["network.0.weight"].copy_(network[0].weight)
    norms.clear()
    held.run(lambda done: norms.append(float(map_norm(network[0]))))
    assert len(norms) == held.plan.steps
    assert max(norms) <= bound * (1 + 1e-5)
    assert max(norms) == pytest.approx(bound, rel=1e-5)
    released = held.averaged_model(NoiseAfter(small(), "0"))
    # a mean of weights within a ball is in the ball
    assert float(map_norm(released.network[0])) <= bound * (1 + 1e-5)


def test_constants_are_in_the_state_and_come_back_in_place() -> None:
    scales = torch.rand(2, 3, 3) + 0.1
    views = LayerNoiseViews(at_input=0.0, after_layer=scales, shape=(2, 3, 3), views=1)
    each = trainer(views=views, constants={"scales": scales})
    saved = {name: value.clone() for name, value in each.state().items()}
    assert torch.equal(saved["constants/scales"], scales)
    other = torch.ones(2, 3, 3)
    fresh = trainer(
        views=LayerNoiseViews(at_input=0.0, after_layer=other, shape=(2, 3, 3), views=1),
        constants={"scales": other},
    )
    fresh.restore(saved)
    for one in (each, fresh):
        one.run(lambda done: None)
    first, second = (flat(trainable(one.model)) for one in (each, fresh))
    assert torch.equal(first, second)  # the views read what was restored
