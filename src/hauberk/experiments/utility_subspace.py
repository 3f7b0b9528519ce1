"""002 Fig. 1: the two-input AND network, and its cost when two parameters are moved."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from hauberk.experiments.result import Result, Size
from hauberk.progress import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES = ("theta1", "theta2", "theta3", "theta4", "theta5", "theta6", "b1", "b2", "b3")
PAIRS = (("theta1", "b3"), ("theta6", "b3"))
LARGEST = 0.3
RECORDS: dict[Size, int] = {"tiny": 100, "quick": 1000, "full": 1000}
EPOCHS: dict[Size, int] = {"tiny": 3, "quick": 150, "full": 150}
NETWORKS: dict[Size, int] = {"tiny": 1, "quick": 1, "full": 5}
GRID: dict[Size, int] = {"tiny": 3, "quick": 13, "full": 31}
BATCH, RATE = 50, 0.05  # the paper is silent on both


def logits(parameters: Tensor, x: Tensor) -> Tensor:
    """``theta5 h1 + theta6 h2 + b3``, where h1 is the sigmoid of (theta1, theta3, b1) and h2 of the others.

    ``parameters`` may have leading axes: one network each; ``x`` may have them too.
    """
    t1, t2, t3, t4, t5, t6, b1, b2, b3 = parameters.unsqueeze(-1).unbind(-2)
    h1 = torch.sigmoid(t1 * x[..., 0] + t3 * x[..., 1] + b1)
    h2 = torch.sigmoid(t2 * x[..., 0] + t4 * x[..., 1] + b2)
    return t5 * h1 + t6 * h2 + b3


def cost(parameters: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Binary cross-entropy, one number per network."""
    z = logits(parameters, x)
    return binary_cross_entropy_with_logits(z, y.expand_as(z), reduction="none").mean(-1)


def train(size: Size, seed: int, progress: Progress) -> tuple[Tensor, Tensor, Tensor]:
    """Several networks at once, each from its own start on its own records.

    Records are uniform points of the square, labelled by AND of their rounded coordinates.
    """
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(NETWORKS[size], RECORDS[size], 2, generator=generator)
    y = x.round().prod(dim=-1)
    parameters = torch.randn(NETWORKS[size], len(NAMES), generator=generator).requires_grad_()
    optimizer = torch.optim.Adam([parameters], lr=RATE)
    for epoch in range(EPOCHS[size]):
        order = torch.rand(y.shape, generator=generator).argsort(dim=-1)
        for chosen in order.split(BATCH, dim=-1):
            optimizer.zero_grad()
            inputs = torch.take_along_dim(x, chosen[..., None], dim=1)
            cost(parameters, inputs, y.gather(1, chosen)).sum().backward()
            optimizer.step()
        progress("epochs", epoch + 1, EPOCHS[size])
    return parameters.detach(), x, y


def surface(
    parameters: Tensor, x: Tensor, y: Tensor, pair: tuple[str, str], amounts: Tensor
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Cost, and its derivative by both parameters, on the grid of amounts added to the pair."""
    first, second = (NAMES.index(name) for name in pair)
    moved = parameters.expand(len(amounts), len(amounts), -1).clone()
    moved[..., first] += amounts[:, None]
    moved[..., second] += amounts[None, :]
    moved.requires_grad_()
    costs = cost(moved, x, y)
    (derivative,) = torch.autograd.grad(costs.sum(), moved)
    return costs.detach().numpy(), derivative[..., [first, second]].numpy()


def run(size: Size, seed: int, progress: Progress) -> Result:
    """Cost when theta1 and b3, and when theta6 and b3, grow by up to 0.3; and when they move either way.

    The figure of 002 moves parameters upwards only. Noise has both signs: the derivative, which the figure
    ranks parameters by, then cancels on average and the curvature is what remains. The last column is the
    mean cost when the one parameter moves between -0.3 and 0.3.
    """
    amounts = torch.linspace(0, LARGEST, GRID[size])
    both_signs = torch.linspace(-LARGEST, LARGEST, 2 * GRID[size] - 1)
    middle = len(both_signs) // 2
    rows, surfaces, accuracies = [], [], []
    cheaper_upwards, cheaper_both = 0, 0
    for network, (parameters, x, y) in enumerate(zip(*train(size, seed, progress), strict=True)):
        accuracies.append(float(((logits(parameters, x) > 0) == (y > 0.5)).float().mean()))
        for pair in PAIRS:
            costs, derivative = surface(parameters, x, y, pair, amounts)
            spread = surface(parameters, x, y, pair, both_signs)[0]
            if network == 0:
                surfaces.append((pair, costs))
            moved = (float(costs[-1, 0]), float(costs[0, -1]))
            means = (float(spread[:, middle].mean()), float(spread[middle, :].mean()))
            slopes = np.abs(derivative.mean(axis=(0, 1)))
            quieter = int(slopes.argmin())
            cheaper_upwards += moved[quieter] < moved[1 - quieter]
            cheaper_both += means[quieter] < means[1 - quieter]
            rows += [
                (
                    network,
                    " ".join(pair),
                    parameter,
                    float(derivative[..., i].min()),
                    float(derivative[..., i].max()),
                    float(costs[0, 0]),
                    moved[i],
                    means[i],
                )
                for i, parameter in enumerate(pair)
            ]
    return Result(
        columns=(
            "network",
            "pair",
            "parameter",
            "derivative_low",
            "derivative_high",
            "cost",
            "cost_when_moved",
            "mean_cost_both_signs",
        ),
        rows=tuple(rows),
        facts={
            "records": RECORDS[size],
            "epochs": EPOCHS[size],
            "batch": BATCH,
            "learning_rate": RATE,
            "largest_perturbation": LARGEST,
            "accuracies": accuracies,
            "pairs": len(PAIRS) * len(accuracies),
            "pairs_where_the_smaller_derivative_is_cheaper_upwards": cheaper_upwards,
            "pairs_where_the_smaller_derivative_is_cheaper_with_both_signs": cheaper_both,
        },
        notes=(
            "The signs of the derivatives depend on where training started; the paper shows one network.",
            "The paper's figure moves parameters upwards only; privacy noise has both signs.",
        ),
        draw=lambda figure: _draw(figure, surfaces),
    )


def _draw(figure: Figure, surfaces: list[tuple[tuple[str, str], NDArray[np.float32]]]) -> None:
    for axes, (pair, costs) in zip(figure.subplots(1, len(surfaces)), surfaces, strict=True):
        image = axes.imshow(
            costs.T, origin="lower", extent=(0, LARGEST, 0, LARGEST), cmap="viridis", interpolation="bilinear"
        )
        axes.grid(visible=False)
        axes.set_xlabel(f"added to {pair[0]}")
        axes.set_ylabel(f"added to {pair[1]}")
        axes.set_title("cost")
        figure.colorbar(image, ax=axes, shrink=0.6)
