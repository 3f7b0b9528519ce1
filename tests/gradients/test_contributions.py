"""Norms are never too small: attacks on the rounding of norms that are taken without forming a gradient."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from hauberk.gradients import ClippedGradients, FlatClip, Materialised, OuterProducts, ScoreLoss
from hauberk.gradients.fast import FastPath
from hauberk.gradients.rules.embedding import Lookups

ALLOWED = 1 + 1e-3


def naive_norms(gradient: OuterProducts | Lookups) -> Tensor:
    """The ghost norm as it is usually written, in float32."""
    outer = gradient.gradients @ gradient.gradients.mT
    if isinstance(gradient, Lookups):
        inner = (gradient.rows.unsqueeze(1) == gradient.rows.unsqueeze(2)).to(outer.dtype)
    else:
        inner = gradient.inputs @ gradient.inputs.mT
    return (inner * outer).sum((1, 2)).clamp_min(0.0).sqrt()


def contribution(gradient: Any, norms: Tensor, bound: float, record: int = 0) -> float:
    """What the record really adds to the sum, in float32 arithmetic, over what it may add."""
    factors = (bound / norms.clamp_min(1e-38)).clamp_max(1.0)
    alone = torch.where(torch.arange(len(norms)) == record, factors, 0.0)
    return float(gradient.weighted_sum(alone).double().norm()) / bound


def cancelling(
    *, seed: int, positions: int, width: int, outputs: int, left: float, size: float = 1.0, slope: float = 1.0
) -> OuterProducts:
    """Positions come in pairs whose contributions cancel up to a part ``left`` of each."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    a, b = normal(3, positions, width), normal(3, positions, outputs)
    a = torch.cat([a, a * (1 + left * normal(3, positions, width))], 1) * size
    b = torch.cat([b, -b * (1 + left * normal(3, positions, outputs))], 1) * slope
    return OuterProducts(a, b, torch.Size((outputs, width)))


def exact_norms(gradient: Any) -> Tensor:
    if isinstance(gradient, Lookups):
        return (
            Lookups(gradient.rows, gradient.gradients.double(), gradient.table)
            .materialised()
            .norm(dim=(1, 2))
        )
    return (gradient.gradients.double().mT @ gradient.inputs.double()).norm(dim=(1, 2))


def test_the_usual_ghost_norm_lets_records_past_their_bound_and_ours_does_not() -> None:
    worst_naive = worst_ours = 0.0
    for seed in range(20):
        for left in (1e-3, 1e-4, 1e-5, 1e-6):
            gradient = cancelling(seed=seed, positions=2, width=24, outputs=16, left=left)
            bound = float(exact_norms(gradient)[0]) / 10
            worst_naive = max(worst_naive, contribution(gradient, naive_norms(gradient), bound))
            worst_ours = max(worst_ours, contribution(gradient, gradient.norms(), bound))
    assert worst_naive > 2  # so this attack can succeed
    assert worst_ours <= ALLOWED


def test_the_same_attack_on_an_embedding() -> None:
    worst_naive = worst_ours = 0.0
    for seed in range(20):
        for left in (1e-3, 1e-4, 1e-5, 1e-6):
            pairs = cancelling(seed=seed, positions=2, width=1, outputs=16, left=left)
            rows = torch.tensor([[3, 5, 3, 5]]).expand(3, 4)
            gradient = Lookups(rows, pairs.gradients, torch.Size((50, 16)))
            bound = float(exact_norms(gradient)[0]) / 10
            worst_naive = max(worst_naive, contribution(gradient, naive_norms(gradient), bound))
            worst_ours = max(worst_ours, contribution(gradient, gradient.norms(), bound))
    assert worst_naive > 2
    assert worst_ours <= ALLOWED


@settings(max_examples=300, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    positions=st.integers(1, 12),
    width=st.integers(1, 60),
    outputs=st.integers(1, 60),
    left=st.sampled_from([0.0, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1.0]),
    size=st.sampled_from([1e-20, 1e-12, 1e-3, 1.0, 1e6, 1e12, 1e15, 1e18]),
    slope=st.sampled_from([1e-30, 1e-25, 1e-22, 1e-19, 1e-10, 1.0, 1e6]),
    reach=st.sampled_from([1e-6, 0.1, 0.999, 1.0, 1.5]),
)
def test_no_cancellation_at_any_scale_gets_past_the_bound(
    seed: int, positions: int, width: int, outputs: int, left: float, size: float, slope: float, reach: float
) -> None:
    gradient = cancelling(
        seed=seed, positions=positions, width=width, outputs=outputs, left=left, size=size, slope=slope
    )
    norms, exact = gradient.norms(), exact_norms(gradient)
    bound = max(1e-12, reach * float(exact[0]))
    if norms.isfinite().all():
        assert contribution(gradient, norms, bound) <= ALLOWED
        assert (norms.double() >= exact * (1 - 1e-4) - 1e-13).all()


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    positions=st.integers(1, 12),
    outputs=st.integers(1, 60),
    left=st.sampled_from([0.0, 1e-7, 1e-6, 1e-5, 1e-4, 1e-2, 1.0]),
    slope=st.sampled_from([1e-22, 1e-10, 1.0, 1e6, 1e15]),
    same=st.booleans(),
)
def test_no_repeated_token_gets_past_the_bound(
    seed: int, positions: int, outputs: int, left: float, slope: float, same: bool
) -> None:
    pairs = cancelling(seed=seed, positions=positions, width=1, outputs=outputs, left=left, slope=slope)
    rows = (torch.zeros(positions) if same else torch.arange(positions)).long().repeat(3, 2)
    gradient = Lookups(rows, pairs.gradients, torch.Size((40, outputs)))
    bound = max(1e-12, float(exact_norms(gradient)[0]) / 3)
    assert contribution(gradient, gradient.norms(), bound) <= ALLOWED


# ------------------------------------------------------------------------------- through the whole engine


class Scores(nn.Module):
    """A model whose answers are its only layer's output."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


GHOSTS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], tuple[int, ...]]] = {
    # a layer, its output with positions first, how the scores are brought there
    "linear": (lambda: nn.Linear(24, 16, bias=False), (4, 24), (0, 1)),
    "conv1d": (lambda: nn.Conv1d(24, 16, 1, bias=False), (24, 4), (1, 0)),
    "transposed conv1d": (lambda: nn.ConvTranspose1d(24, 16, 1, bias=False), (24, 4), (1, 0)),
}


@pytest.mark.parametrize("name", GHOSTS)
@pytest.mark.parametrize("size", [1.0, 1e6, 1e15])
def test_records_whose_positions_or_views_cancel_do_not_get_past_the_engine(name: str, size: float) -> None:
    """Answers of two positions are pulled in opposite directions, their inputs are almost the same."""
    make, shape, order = GHOSTS[name]
    pull = torch.randn(2, 16)
    pull = torch.cat([pull, -pull * (1 + 1e-5 * torch.randn(2, 16))])

    def pulled(scores: Tensor, labels: Tensor) -> Tensor:
        ordered = scores.permute(0, 1, *(axis + 2 for axis in order))
        return (ordered * pull.to(scores)).sum((1, 2, 3))

    model = Scores(make())
    worst, naive = 0.0, 0.0
    for seed in range(5):
        for left in (1e-4, 1e-5, 1e-6, 1e-7):
            torch.manual_seed(seed)
            half = torch.randn(1, 1, 2, 24) * size
            x = torch.cat([half, half * (1 + left * torch.randn(1, 1, 2, 24))], 2)
            others = torch.randn(3, 1, 4, 24)
            records = torch.cat([others, x]).permute(0, 1, *(axis + 2 for axis in order))
            assert records.shape[2:] == shape
            gradients, _ = FastPath(model, ScoreLoss(pulled)).gradients(records[3:], torch.zeros(1))
            ghost = gradients["layer.weight"]
            assert isinstance(ghost, OuterProducts)
            bound = float(exact_norms(ghost)) / 10
            naive = max(naive, contribution(ghost, naive_norms(ghost), bound))

            engine = ClippedGradients(model, ScoreLoss(pulled), clipping=FlatClip(bound), path="fast")
            labels = torch.zeros(4, dtype=torch.int64)
            added = engine.clipped_sum(records, labels).gradients["layer.weight"].double()
            without = engine.clipped_sum(records[:3], labels[:3]).gradients["layer.weight"].double()
            worst = max(worst, float((added - without).norm()) / bound)
    assert naive > 1.1
    assert worst <= ALLOWED


def test_identical_views_whose_output_gradients_cancel_do_not_get_past_the_engine() -> None:
    """Two views of one record are two positions of it."""

    def opposed(scores: Tensor, labels: Tensor) -> Tensor:
        return (scores[:, 0] - (1 + 1e-5) * scores[:, 1]).sum(1)

    model = Scores(nn.Linear(30, 20, bias=False))
    bound = 1e-3
    engine = ClippedGradients(model, ScoreLoss(opposed), clipping=FlatClip(bound), path="fast")
    for size in (1.0, 1e4, 1e8, 1e15):
        view = torch.randn(1, 1, 30) * size
        total = engine.clipped_sum(view.repeat(1, 2, 1), torch.zeros(1, dtype=torch.int64))
        assert float(total.gradients["layer.weight"].double().norm()) <= bound * ALLOWED


# --------------------------------------------------------------------------------- gradients in memory


@pytest.mark.parametrize("numbers", [2**18, 2**20, 2**22, 2**24])
def test_the_norm_of_a_large_gradient_is_not_too_small(numbers: int) -> None:
    """Millions of equal squares, added one by one in float32, lose more than a thousandth of their sum."""
    for value in torch.linspace(1, 2, 2**25 // numbers if numbers < 2**22 else 8).tolist():
        norm = float(Materialised(torch.full((1, numbers), value)).norms())
        exact = math.sqrt(numbers) * float(torch.tensor(value, dtype=torch.float32))
        assert norm * ALLOWED >= exact


def test_a_scalar_parameter_has_a_norm() -> None:
    gradient = Materialised(torch.tensor([3.0, -4.0]))
    torch.testing.assert_close(gradient.norms(), torch.tensor([3.0, 4.0]))
    torch.testing.assert_close(gradient.weighted_sum(torch.tensor([1.0, 0.5])), torch.tensor(1.0))


# ------------------------------------------------------------------------------------------- scaling


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    positions=st.integers(1, 3),
    scales=st.sampled_from([(1e-3, 1e3), (1e-12, 1e12), (1e20, 1e24), (1e-25, 1e-23)]),
    size=st.sampled_from([1e-15, 1.0, 1e10, 1e17]),
    slope=st.sampled_from([1e-20, 1e-10, 1.0]),
    each=st.booleans(),
)
def test_scaled_gradients_keep_their_bound_at_any_scale(
    seed: int, positions: int, scales: tuple[float, float], size: float, slope: float, each: bool
) -> None:
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(2, positions, 7, generator=generator) * size
    b = torch.randn(2, positions, 5, generator=generator) * slope
    low, high = (math.log(value) for value in scales)
    uniform = torch.rand((5, 7) if each else (), generator=generator)
    multiplier = (low + (high - low) * uniform).exp()
    plain = OuterProducts(a, b, torch.Size((5, 7)))
    scaled = plain.scaled(multiplier)
    norms = scaled.norms()
    exact = ((b.double().mT @ a.double()) * multiplier.double()).flatten(1).norm(dim=1)
    bound = max(1e-12, float(exact[0]) / 7)
    if norms.isfinite().all():
        assert contribution(scaled, norms, bound) <= ALLOWED
        if 1e-8 < float(exact[0]) < 1e8:
            expected = exact * torch.tensor([1.0, 0.5], dtype=torch.float64)
            torch.testing.assert_close(
                scaled.materialised().double().flatten(1).norm(dim=1)[0], expected[0], rtol=1e-4, atol=0
            )


@pytest.mark.parametrize("positions", [1, 2])
def test_every_form_scales_like_its_gradients(positions: int) -> None:
    multiplier = torch.rand(6, 4) + 0.5
    forms = [
        OuterProducts(torch.randn(3, positions, 4), torch.randn(3, positions, 6), torch.Size((6, 4))),
        Lookups(torch.randint(0, 6, (3, positions)), torch.randn(3, positions, 4), torch.Size((6, 4))),
        Materialised(torch.randn(3, 6, 4)),
        Materialised(torch.randn(3, 4, 6), order=(1, 0)),
    ]
    factors = torch.tensor([0.3, 1.0, 0.0])
    for form in forms:
        twice = form.scaled(multiplier).scaled(torch.tensor(2.0))
        wanted = form.materialised() * multiplier * 2
        torch.testing.assert_close(twice.materialised(), wanted)
        torch.testing.assert_close(twice.norms(), wanted.flatten(1).norm(dim=1), rtol=1e-4, atol=0)
        torch.testing.assert_close(twice.weighted_sum(factors), torch.tensordot(factors, wanted, dims=1))
        assert form.bytes_held() > 0
        assert twice.bytes_held() > 0
