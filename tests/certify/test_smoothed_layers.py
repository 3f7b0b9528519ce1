"""Noise behind the first map, other bounds, other arithmetic: the same guarantee by other ways."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.stats import binom, norm
from torch import Tensor, nn

from hauberk.certify import AtLeast, NoiseLayers, Smoothed, Within
from hauberk.certify.voting import BLOCK
from hauberk.errors import RequestError

WIDTH, HIDDEN = 6, 3


def layered(*, seed: int = 0) -> nn.Sequential:
    """A linear map, then a half-space in what it gives: the first hidden coordinate decides."""
    torch.manual_seed(seed)
    first, last = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, 2)
    with torch.no_grad():
        last.weight.copy_(torch.tensor([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]]))
        last.bias.zero_()
        first.bias.zero_()
    return nn.Sequential(first, last)


def inputs_at(model: nn.Sequential, hidden: Tensor) -> Tensor:
    """Inputs whose first hidden coordinate is the given number, along the steepest direction."""
    weight = model[0].weight[0]
    assert isinstance(weight, Tensor)
    return (hidden[:, None] * weight / weight.square().sum()).detach()


NOISES: dict[str, tuple[NoiseLayers, Callable[[float], float]]] = {
    "after the map": (NoiseLayers(after_first_map=0.4), lambda slope: 0.4),
    "heterogeneous": (NoiseLayers(after_first_map=torch.tensor([0.4, 1.0, 0.2])), lambda slope: 0.4),
    "both": (NoiseLayers(at_input=0.3, after_first_map=0.4), lambda slope: math.hypot(0.4, 0.3 * slope)),
}


@pytest.mark.parametrize("name", NOISES)
def test_the_radius_is_below_the_truth_but_not_far(name: str) -> None:
    """The answer flips when the first hidden coordinate does, at distance |h| / |w|."""
    noise, deviation = NOISES[name]
    model = layered()
    slope = float(model[0].weight[0].detach().norm())
    sigma = deviation(slope)
    hidden = torch.linspace(-1.2, 1.2, 300)
    target = Smoothed(model, noise=noise, classes=2)
    found = target.certify(inputs_at(model, hidden), samples=2000, alpha=0.01, seed=3)
    truth = hidden.abs().numpy() / slope
    wrong = found.radii > truth
    wrong |= (found.labels >= 0) & (found.labels != (hidden < 0).numpy().astype(int))
    assert wrong.sum() <= binom.isf(1e-6, 300, 0.01)
    # the joint gain is that of the worst direction of all hidden coordinates, so the radius may be smaller
    gain = target.gain_of("l2", (WIDTH,)).value
    assert gain >= slope / sigma * (1 - 1e-9)
    middle = (np.abs(hidden.numpy()) > 0.5 * sigma) & (np.abs(hidden.numpy()) < 2.5 * sigma)
    assert (found.radii[middle] * gain / (np.abs(hidden.numpy())[middle] / sigma)).mean() > 0.85


def test_votes_follow_the_noise_behind_the_map() -> None:
    model = layered()
    hidden = torch.tensor([-0.3, 0.0, 0.2, 0.5])
    for noise, deviation in NOISES.values():
        target = Smoothed(model, noise=noise, classes=2)
        votes = target.count_votes(inputs_at(model, hidden), 20_000, torch.Generator().manual_seed(0))
        sigma = deviation(float(model[0].weight[0].detach().norm()))
        truth = norm.cdf(hidden.numpy() / sigma)
        assert np.abs(votes[:, 0] / 20_000 - truth).max() < 5 * math.sqrt(0.25 / 20_000)


def test_laplace_noise_votes_and_certificates() -> None:
    model = layered()
    hidden = torch.tensor([-0.3, 0.1, 0.5, 1.5])
    target = Smoothed(model, noise=NoiseLayers(kind="laplace", after_first_map=0.4), classes=2)
    votes = target.count_votes(inputs_at(model, hidden), 20_000, torch.Generator().manual_seed(0))
    tails = 0.5 * np.exp(-np.abs(hidden.numpy()) / 0.4)
    truth = np.where(hidden.numpy() > 0, 1 - tails, tails)
    assert np.abs(votes[:, 0] / 20_000 - truth).max() < 5 * math.sqrt(0.25 / 20_000)
    for certified_norm in ("l1", "l2", "linf"):
        found = target.certify(inputs_at(model, hidden), certificate="laplace", norm=certified_norm)  # type: ignore[arg-type]
        assert (found.radii <= np.abs(hidden.numpy()) / float(model[0].weight[0].detach().norm())).all()
        assert found.radii[-1] > 0


def test_the_first_map_runs_once_per_input() -> None:
    model, rows = layered(), []
    model[0].register_forward_hook(lambda layer, given, output: rows.append(len(output)))
    target = Smoothed(model, noise=NoiseLayers(after_first_map=0.4), classes=2)
    with pytest.raises(RequestError, match="hook"):
        target.certify(torch.rand(40, WIDTH))  # what a hook does to the map is not in the bound
    model = layered()
    calls: list[int] = []

    class Counted(Smoothed):
        def start(self, x: Tensor):  # type: ignore[no-untyped-def]
            calls.append(len(x))
            return super().start(x)

    found = Counted(model, noise=NoiseLayers(after_first_map=0.4), classes=2).certify(
        torch.rand(40, WIDTH), rule=Within(fraction=0.2, samples=2000)
    )
    assert sum(calls) == 40  # though draws came in many rounds
    assert (found.draws > 50).any()


def test_one_input_once_through_the_map_is_what_the_network_says() -> None:
    model = nn.Sequential(nn.Conv2d(1, 3, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(48, 2))
    x = torch.rand(5, 1, 8, 8)
    target = Smoothed(model, noise=NoiseLayers(after_first_map=1e-7), classes=2)
    logits = target.logits(x, 3, torch.Generator().manual_seed(0))
    assert torch.allclose(logits, model(x).repeat_interleave(3, 0), atol=1e-4)


@pytest.mark.parametrize(
    "noise", [NoiseLayers(at_input=0.1), NoiseLayers(after_first_map=0.1), NOISES["both"][0]]
)
def test_logits_have_gradients_and_keep_the_draws_of_an_input_together(noise: NoiseLayers) -> None:
    model = layered()
    x = torch.rand(4, WIDTH, requires_grad=True)
    target = Smoothed(model, noise=noise, classes=2)
    logits = target.logits(x, 5, torch.Generator().manual_seed(0))
    assert logits.shape == (20, 2)
    (gradient,) = torch.autograd.grad(logits[5:10].sum(0)[0], x)
    assert gradient[1].abs().sum() > 0
    assert gradient[[0, 2, 3]].abs().sum() == 0


@pytest.mark.parametrize("bound", ["votes", "votes-and-rivals", "hoeffding", "bernstein"])
def test_every_bound_stays_below_the_truth(bound: str) -> None:
    """Votes flip at the plane. Mean scores of two classes add up to one and flip there too, by symmetry."""
    model = nn.Sequential(nn.Linear(1, 2))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[3.0], [-3.0]]))
        model[0].bias.zero_()
    distances = torch.linspace(-1, 1, 200)
    found = Smoothed(model, sigma=0.25, classes=2).certify(
        distances[:, None],
        samples=3000,
        alpha=0.01,
        bound=bound,  # type: ignore[arg-type]
    )
    wrong = (found.radii > distances.abs().numpy()).sum()
    assert wrong <= binom.isf(1e-6, 200, 0.01)
    assert (found.radii > 0).mean() > 0.6
    assert (found.draws == 3000).all()
    if bound != "votes":
        assert bound in found.question


def test_blocks_have_seeds_of_their_own() -> None:
    target = Smoothed(layered(), sigma=0.5, classes=2)
    x = torch.rand(2 * BLOCK + 30, WIDTH) - 0.5
    whole = target.certify(x, samples=60, seed=4)
    second = target.certify(x[BLOCK : 2 * BLOCK], samples=60, seed=4, first=BLOCK)
    assert (whole.votes[BLOCK : 2 * BLOCK] == second.votes).all()
    assert (whole.votes[:BLOCK] != target.certify(x[:BLOCK], samples=60, seed=5).votes).any()


def test_sequential_rules_through_the_classifier() -> None:
    target = Smoothed(layered(), sigma=0.2, classes=2)
    x = inputs_at(layered(), torch.tensor([2.0, -2.0, 0.01, 0.6]))
    sure = target.certify(x, rule=AtLeast(radius=0.2), alpha=0.001)
    assert sure.labels[:2].tolist() == [0, 1]
    assert sure.radii[:2].tolist() == [0.2, 0.2]
    assert sure.labels[2] == -1
    assert sure.predicted[:2].tolist() == [0, 1]
    assert (sure.draws[:2] < 100).all()
    near = target.certify(x, rule=Within(fraction=0.2, samples=5000), alpha=0.001)
    fixed = target.certify(x, samples=5000, alpha=0.001)
    assert (near.radii >= 0.8 * fixed.radii - 0.02).all()
    assert near.draws[0] < 3000


def test_a_network_in_double_precision() -> None:
    model = layered().double()
    x = inputs_at(model, torch.tensor([2.0, -2.0], dtype=torch.float64))
    for noise in (NoiseLayers(at_input=0.2), NoiseLayers(after_first_map=0.2)):
        found = Smoothed(model, noise=noise, classes=2).certify(x, samples=100)
        assert found.labels.tolist() == [0, 1]


class Mixing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.stack((x[:, 0] - x[:, 0].mean(), x[:, 1]), dim=1)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Smoothed(layered(), classes=2), "either sigma or noise"),
        (
            lambda: Smoothed(layered(), classes=2, sigma=0.1, noise=NoiseLayers(at_input=0.1)),
            "either sigma or noise",
        ),
        (
            lambda: Smoothed(layered(), classes=2, noise=NoiseLayers(after_first_map=0.1), compiled=True),
            "cannot be compiled",
        ),
        (lambda: Smoothed(layered(), classes=2, sigma=0.1, precision="int8"), "float32 or bfloat16"),  # type: ignore[arg-type]
        (
            lambda: Smoothed(Mixing(), classes=2, sigma=0.1).certify(torch.rand(3, 2)),
            "other inputs of the batch",
        ),
        (
            lambda: Smoothed(layered(), classes=2, sigma=0.1).certify(
                torch.rand(3, WIDTH), certificate="laplace"
            ),
            "laplace is for laplace noise",
        ),
        (
            lambda: Smoothed(layered(), classes=2, noise=NoiseLayers(kind="laplace", at_input=0.1)).certify(
                torch.rand(3, WIDTH), certificate="laplace-l1", norm="l2"
            ),
            "holds for l1 only",
        ),
        (
            lambda: Smoothed(layered(), classes=2, sigma=0.1).certify(torch.rand(3, WIDTH), bound="mean"),  # type: ignore[arg-type]
            "no bound 'mean'",
        ),
        (
            lambda: Smoothed(layered(), classes=2, sigma=0.1).certify(
                torch.rand(3, WIDTH), bound="hoeffding", rule=AtLeast(radius=0.1)
            ),
            "needs a fixed number",
        ),
        (
            lambda: Smoothed(
                nn.Sequential(nn.ReLU(), *layered()), classes=2, noise=NoiseLayers(after_first_map=0.1)
            ).certify(torch.rand(3, WIDTH)),
            "before",
        ),
    ],
)
def test_what_no_bound_covers_is_refused(make: Callable[[], object], sentence: str) -> None:
    with pytest.raises(RequestError, match=sentence):
        make()


def test_half_precision_is_stated_and_spares_the_first_map() -> None:
    model = layered()
    seen: list[torch.dtype] = []

    class Watch(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(x.dtype)
            return x

    watched = nn.Sequential(model[0], Watch(), model[1])
    target = Smoothed(watched, noise=NoiseLayers(after_first_map=0.3), classes=2, precision="bfloat16")
    found = target.certify(inputs_at(model, torch.tensor([2.0, -2.0])), samples=200)
    assert found.arithmetic == "bfloat16"
    assert found.labels.tolist() == [0, 1]
    assert set(seen) == {torch.float32}  # noise is added to what float32 computed
    assert Smoothed(model, sigma=0.3, classes=2).arithmetic == "float32"


@pytest.mark.slow
def test_a_compiled_network_gives_the_same_votes() -> None:
    x = torch.rand(20, WIDTH) - 0.5
    plain, compiled = (
        Smoothed(layered(), sigma=0.3, classes=2, compiled=compiled) for compiled in (False, True)
    )
    assert compiled.arithmetic == "float32 compiled"
    assert (plain.certify(x, samples=300).votes == compiled.certify(x, samples=300).votes).mean() > 0.9
