"""The guarantee: adding or removing one record moves the sum by at most the sensitivity. Attacked here."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from hauberk.gradients import (
    AdaptiveClip,
    AutomaticClip,
    ClippedGradients,
    Clipping,
    FlatClip,
    Geometry,
    PerLayerClip,
    ScoreLoss,
    mean_cross_entropy,
    trainable,
)
from hauberk.training import NoisyViews

CLASSES = 3
ALLOWED = 1 + 1e-3

pytestmark = pytest.mark.filterwarnings("ignore::hauberk.gradients.GeneralPathNotice")

# A record is a vector of 48 numbers (or 6 tokens); every form of per-record gradients occurs.
NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "dense": lambda: nn.Sequential(nn.Linear(48, 6), nn.LeakyReLU(), nn.Linear(6, CLASSES)),
    "few positions": lambda: nn.Sequential(
        nn.Unflatten(1, (2, 24)), nn.Linear(24, 16), nn.LeakyReLU(), nn.Flatten(), nn.Linear(32, CLASSES)
    ),
    "many positions": lambda: nn.Sequential(
        nn.Unflatten(1, (16, 3)), nn.Linear(3, 4), nn.LeakyReLU(), nn.Flatten(), nn.Linear(64, CLASSES)
    ),
    "convolution": lambda: nn.Sequential(
        nn.Unflatten(1, (3, 4, 4)), nn.Conv2d(3, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU(inplace=True),
        nn.Flatten(), nn.Linear(64, CLASSES),
    ),
    "convolution of few positions": lambda: nn.Sequential(
        nn.Unflatten(1, (12, 2, 2)), nn.Conv2d(12, 9, 2), nn.LeakyReLU(), nn.Flatten(), nn.Linear(9, CLASSES)
    ),
}  # fmt: skip


def layers(model: nn.Module) -> list[str]:
    return sorted({name.rpartition(".")[0] for name in trainable(model)})


CLIPPINGS: dict[str, Callable[[nn.Module, float], Clipping]] = {
    "flat": lambda model, bound: FlatClip(bound),
    "per layer, shared": lambda model, bound: PerLayerClip(bound),
    "per layer, each": lambda model, bound: PerLayerClip(
        {layer: bound * (index + 1) / 3 for index, layer in enumerate(layers(model))}
    ),
    "automatic": lambda model, bound: AutomaticClip(bound),
    "adaptive": lambda model, bound: AdaptiveClip(bound=bound),
}

GEOMETRIES: dict[str, Callable[[nn.Module], Geometry | None]] = {
    "none": lambda model: None,
    "scalar": lambda model: Geometry(dict.fromkeys(trainable(model), 0.02)),
    "each coordinate": lambda model: Geometry(
        {name: 10 ** (6 * torch.rand_like(weight) - 3) for name, weight in trainable(model).items()}
    ),
}


def parametrised(function: Callable[..., None]) -> Callable[..., None]:
    function = pytest.mark.parametrize("path", ["fast", "general"])(function)
    return pytest.mark.parametrize("clipping", CLIPPINGS)(function)


@parametrised
@settings(max_examples=25, deadline=None)
@given(
    network=st.sampled_from(list(NETWORKS)),
    geometry=st.sampled_from(list(GEOMETRIES)),
    seed=st.integers(0, 10_000),
    records=st.integers(0, 6),
    count=st.integers(1, 3),
    bound=st.floats(1e-3, 10),
    scale=st.sampled_from([0.0, 1.0, 1e3, 1e12, 1e18, 1e30, math.nan, math.inf]),
    position=st.integers(0, 6),
)
def test_one_record_moves_the_sum_by_at_most_the_sensitivity(
    clipping: str,
    path: Any,
    network: str,
    geometry: str,
    seed: int,
    records: int,
    count: int,
    bound: float,
    scale: float,
    position: int,
    flat: Callable[..., Tensor],
) -> None:
    """Random models, random data, noisy views keyed by record, a record of any size added anywhere."""
    torch.manual_seed(seed)
    model = NETWORKS[network]()
    x, y = torch.rand(records + 1, 48), torch.randint(0, CLASSES, (records + 1,))
    added = min(position, records)
    x[added] = (x[added] - 0.5) * scale
    identities = torch.arange(records + 1)
    noisy = NoisyViews(sigma=0.5, views=count)
    clip = CLIPPINGS[clipping](model, bound)
    engine = ClippedGradients(model, clipping=clip, geometry=GEOMETRIES[geometry](model), path=path)

    def total(keep: Tensor) -> Tensor:
        picked = noisy(x[keep], records=identities[keep], step=3, key=(1, 2))
        return flat(engine.clipped_sum(picked, y[keep]).gradients)

    with_record, without = total(identities >= 0), total(identities != added)
    assert torch.isfinite(with_record).all()
    assert float((with_record - without).norm()) <= clip.sensitivity * ALLOWED


@settings(max_examples=40, deadline=None)
@given(
    tokens=st.lists(st.lists(st.integers(0, 39), min_size=6, max_size=6), min_size=1, max_size=4),
    path=st.sampled_from(["fast", "general"]),
    geometry=st.sampled_from(list(GEOMETRIES)),
    size=st.sampled_from([1e-3, 1.0, 1e6]),
)
def test_one_sentence_moves_the_sum_by_at_most_the_sensitivity(
    tokens: list[list[int]], path: Any, geometry: str, size: float, flat: Callable[..., Tensor]
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(40, 4), nn.Flatten(), nn.Linear(24, CLASSES))
    model[2].weight.data *= size
    engine = ClippedGradients(model, clipping=FlatClip(0.1), geometry=GEOMETRIES[geometry](model), path=path)
    x, y = torch.tensor(tokens).unsqueeze(1), torch.zeros(len(tokens), dtype=torch.int64)
    moved = flat(engine.clipped_sum(x, y).gradients) - flat(engine.clipped_sum(x[1:], y[1:]).gradients)
    assert float(moved.norm()) <= 0.1 * ALLOWED


@parametrised
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("network", ["dense", "few positions", "convolution of few positions"])
def test_gradient_ascent_on_the_added_record_reaches_the_bound_and_does_not_pass_it(
    clipping: str, path: Any, geometry: str, network: str, flat: Callable[..., Tensor]
) -> None:
    """A worse neighbour is searched for, not only drawn: every label, and the input by its gradient."""
    model, bound = NETWORKS[network](), 0.05
    clip, shape = CLIPPINGS[clipping](model, bound), GEOMETRIES[geometry](model)
    engine = ClippedGradients(model, clipping=clip, geometry=shape, path=path)
    weights = dict(model.named_parameters())
    scales = {name: torch.as_tensor(1.0 if shape is None else shape.scales[name]) for name in weights}
    x, y = torch.rand(2, 1, 48), torch.tensor([0, 1])
    alone = flat(engine.clipped_sum(x, y).gradients)
    worst = 0.0
    for label in range(CLASSES):
        record = torch.rand(1, 1, 48)
        for step in range(5):
            probe = record.clone().requires_grad_(True)
            loss = mean_cross_entropy(model, probe[0], torch.tensor(label))
            gradients = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
            sizes = [
                (gradient / scale).norm()
                for gradient, scale in zip(gradients, scales.values(), strict=True)
            ]  # fmt: skip
            (direction,) = torch.autograd.grad(torch.stack(sizes).clamp_min(1e-30).log().sum(), probe)
            record = (record + (1 + 4 * step) * direction.sign()).detach()
            both = torch.cat([x, record]), torch.cat([y, torch.tensor([label])])
            moved = flat(engine.clipped_sum(*both).gradients) - alone
            worst = max(worst, float(moved.norm()) / clip.sensitivity)
    assert 0.9 < worst <= ALLOWED


@parametrised
def test_the_sum_is_the_sum_of_clipped_gradients(
    clipping: str, path: Any, flat: Callable[..., Tensor], one_at_a_time: Callable[..., dict[str, Tensor]]
) -> None:
    model = NETWORKS["convolution"]()
    clip = CLIPPINGS[clipping](model, 0.3)
    x, y = torch.rand(7, 2, 48), torch.randint(0, CLASSES, (7,))
    total = ClippedGradients(model, clipping=clip, path=path).clipped_sum(x, y)
    expected, shortened = torch.zeros(sum(weight.numel() for weight in model.parameters())).double(), 0
    for row in range(7):
        gradient = one_at_a_time(model, x[row], y[row])
        factors = clip.factors({name: each.norm().unsqueeze(0) for name, each in gradient.items()})
        expected += flat({name: each * factors[name] for name, each in gradient.items()})
        shortened += any(float(factor) < 1 for factor in factors.values())
    torch.testing.assert_close(flat(total.gradients), expected, rtol=1e-4, atol=1e-5)
    assert total.sensitivity == clip.sensitivity
    assert (total.records, total.clipped) == (7, shortened)
    wanted = sum(mean_cross_entropy(model, x[row], y[row]).item() for row in range(7)) / 7
    assert total.loss == pytest.approx(wanted, rel=1e-4)


# ------------------------------------------------------------------------------- records that are not finite


@parametrised
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_record_that_is_not_finite_is_left_out(
    clipping: str, path: Any, bad: float, flat: Callable[..., Tensor]
) -> None:
    """Whether a run finishes must not depend on one record."""
    model = NETWORKS["few positions"]()
    engine = ClippedGradients(model, clipping=CLIPPINGS[clipping](model, 0.5), path=path)
    x, y = torch.rand(4, 2, 48), torch.tensor([0, 1, 2, 0])
    x[1, 0, 7] = bad
    keep = torch.tensor([0, 2, 3])
    total, without = engine.clipped_sum(x, y), engine.clipped_sum(x[keep], y[keep])
    torch.testing.assert_close(flat(total.gradients), flat(without.gradients))
    assert total.records == 4
    assert total.clipped >= 1
    assert math.isfinite(total.loss)


def test_a_batch_of_nothing_but_such_records_gives_zeros(flat: Callable[..., Tensor]) -> None:
    engine = ClippedGradients(NETWORKS["dense"](), clipping=FlatClip(0.5))
    total = engine.clipped_sum(torch.full((3, 1, 48), math.nan), torch.tensor([0, 1, 2]))
    assert float(flat(total.gradients).abs().sum()) == 0.0
    assert math.isfinite(total.loss)


def test_one_such_record_counts_as_clipped_and_moves_the_adaptive_count_by_half() -> None:
    model = NETWORKS["dense"]()
    engine = ClippedGradients(model, clipping=AdaptiveClip(bound=100.0))
    x, y = torch.rand(3, 1, 48), torch.tensor([0, 1, 2])
    x[2] = math.nan
    total, without = engine.clipped_sum(x, y), engine.clipped_sum(x[:2], y[:2])
    counted = [each.records / 2 - each.clipped for each in (total, without)]
    assert counted[0] - counted[1] == -0.5


@pytest.mark.parametrize("path", ["fast", "general"])
def test_the_smallest_bound_still_holds_for_vanishing_gradients(
    path: Any, flat: Callable[..., Tensor]
) -> None:
    faint = ScoreLoss(lambda scores, labels: mean_cross_entropy.of_scores(scores, labels) * 1e-11)
    engine = ClippedGradients(NETWORKS["few positions"](), faint, clipping=FlatClip(1e-12), path=path)
    total = flat(engine.clipped_sum(torch.rand(1, 2, 48), torch.tensor([0])).gradients)
    assert 0.9e-12 < float(total.norm()) <= 1e-12 * ALLOWED


@pytest.mark.parametrize("path", ["fast", "general"])
def test_automatic_clipping_of_gradients_that_underflow_stays_bounded(
    path: Any, flat: Callable[..., Tensor]
) -> None:
    faint = ScoreLoss(lambda scores, labels: mean_cross_entropy.of_scores(scores, labels) * 1e-25)
    engine = ClippedGradients(NETWORKS["dense"](), faint, clipping=AutomaticClip(1.0, 1e-12), path=path)
    total = flat(engine.clipped_sum(torch.rand(2, 1, 48), torch.tensor([0, 1])).gradients)
    assert float(total.norm()) <= 2.0


# ----------------------------------------------------------------------------------------- small print


@pytest.mark.parametrize("path", ["fast", "general"])
def test_an_empty_batch_gives_zeros_even_first(path: Any, flat: Callable[..., Tensor]) -> None:
    engine = ClippedGradients(NETWORKS["convolution"](), clipping=FlatClip(1.0), path=path)
    total = engine.clipped_sum(torch.empty(0, 2, 48), torch.empty(0, dtype=torch.int64))
    assert float(flat(total.gradients).abs().sum()) == 0.0
    assert (total.records, total.clipped, total.loss) == (0, 0, 0.0)


def test_weights_too_coarse_for_a_norm_are_refused(refusal: Callable[..., str]) -> None:
    """In half precision squares vanish: a gradient of 28 times the bound once passed unclipped."""
    for dtype in (torch.float16, torch.bfloat16):
        model = NETWORKS["dense"]().to(dtype)
        assert "parameter '0.weight'" in refusal(
            lambda model=model: ClippedGradients(model, clipping=FlatClip(1.0))
        )


def test_a_model_without_trainable_parameters_is_refused(refusal: Callable[..., str]) -> None:
    model = NETWORKS["dense"]().requires_grad_(False)
    assert "nothing can be trained" in refusal(lambda: ClippedGradients(model, clipping=FlatClip(1.0)))


def test_a_layer_without_its_bound_is_refused(refusal: Callable[..., str]) -> None:
    engine = ClippedGradients(NETWORKS["dense"](), clipping=PerLayerClip({"0": 1.0}))
    assert "'2'" in refusal(lambda: engine.clipped_sum(torch.rand(2, 1, 48), torch.tensor([0, 1])))


def test_a_parameter_of_one_number_can_be_trained(flat: Callable[..., Tensor]) -> None:
    class Warm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.temperature = nn.Parameter(torch.tensor(0.5))

        def forward(self, x: Tensor) -> Tensor:
            return x / self.temperature

    model = nn.Sequential(nn.Linear(48, CLASSES), Warm())
    for path in ("fast", "general"):
        engine = ClippedGradients(model, clipping=FlatClip(0.1), path=path)  # type: ignore[arg-type]
        total = engine.clipped_sum(torch.rand(1, 1, 48), torch.tensor([0]))
        assert float(flat(total.gradients).norm()) == pytest.approx(0.1, rel=1e-3)
        assert total.gradients["1.temperature"].shape == ()


def test_a_table_that_rewrites_itself_is_refused(refusal: Callable[..., str]) -> None:
    """``max_norm`` changes the weights of the rows that records look up, without noise."""
    model = nn.Sequential(nn.Embedding(9, 4, max_norm=0.1), nn.Flatten(), nn.Linear(20, CLASSES))
    before = model[0].weight.detach().clone()

    def summed() -> None:
        engine = ClippedGradients(model, clipping=FlatClip(1.0))
        engine.clipped_sum(torch.randint(1, 9, (3, 1, 5)), torch.tensor([0, 1, 2]))

    refusal(summed)
    assert torch.equal(model[0].weight, before)
