"""000 Eq. 6 and 003 section 3.4: the gain of one feature map is not the gain of a convolution."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from hauberk.certify.affine_map import AffineMap
from hauberk.certify.first_map import FirstMap, find_first_map
from hauberk.certify.gains import gain
from hauberk.certify.noise import NoiseLayers, Norm
from hauberk.certify.published_gains import PublishedGain, published_gain, single_map_gain
from hauberk.data import Dataset, load
from hauberk.experiments.pictures import CLAIMED, OTHER, PROVEN
from hauberk.experiments.result import Cell, Result, Size
from hauberk.mechanisms import redistribution
from hauberk.models import build
from hauberk.progress import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NETWORK = "paper-mnist-cnn"
NORMS: tuple[Norm, ...] = ("l1", "l2", "linf")
INFLATION = 1.0  # beta of 000 Eq. 7
BATCH, RATE = 128, 1e-3
SIDE: dict[Size, int] = {"tiny": 8, "quick": 28, "full": 28}
RECORDS: dict[Size, int] = {"tiny": 256, "quick": 4000, "full": 20_000}
EPOCHS: dict[Size, int] = {"tiny": 1, "quick": 1, "full": 3}
PUBLIC: dict[Size, int] = {"tiny": 32, "quick": 256, "full": 256}  # images that r is computed from
CLIMBS = 16
STEPS = 100
_ENTRIES_AT_ONCE = 1 << 22


@dataclass(frozen=True, kw_only=True)
class Case:
    weights: str
    noise_name: str
    noise: NoiseLayers
    norm: Norm
    first_map: FirstMap

    def published(self) -> list[PublishedGain]:
        """As printed; where that is the gain of one output only, that of one feature map too."""
        shape, first_map = self.first_map.shape, self.first_map
        printed = published_gain(self.noise, self.norm, shape=shape, first_map=first_map)
        if printed.covers != "one output":
            return [printed]
        return [printed, single_map_gain(self.noise, self.norm, shape=shape, first_map=first_map)]


def run(size: Size, seed: int, progress: Progress) -> Result:
    """Gains of the first convolution of the MNIST network of 000, for noise of scale 1 behind it.

    ``published`` is the paper's, ``joint`` the sound one (exact for l1 and for Gaussian l2, else an upper
    bound), and ``reached`` the gain of an explicit perturbation that a search found: no bound may lie below
    it. A published radius is too large by at least ``reached / published`` and at most ``joint / published``.
    The noise is the same everywhere (000 with uniform r), redistributed by 000 Eq. 7 (HGM), or Laplace (003).
    """
    rows: list[tuple[Cell, ...]] = []
    cases = list(_cases(size, seed, progress))
    for done, case in enumerate(cases, start=1):
        joint = gain(case.noise, case.norm, shape=case.first_map.shape, first_map=case.first_map)
        reached = reached_gain(case.first_map, case.noise, case.norm, seed=seed)
        rows += [
            (
                case.weights,
                case.noise_name,
                case.norm,
                published.covers,
                published.value,
                reached,
                joint.value,
                "exact" if joint.exact else "bound",
                reached / published.value,
                published.radius_too_large_by(joint),
            )
            for published in case.published()
        ]
        progress("gains", done, len(cases))
    maps = cases[0].first_map.output_shape[0]
    return Result(
        columns=(
            "weights",
            "noise",
            "norm",
            "published_covers",
            "published",
            "reached",
            "joint",
            "joint_is",
            "too_large_at_least",
            "too_large_at_most",
        ),
        rows=tuple(rows),
        facts={
            "network": NETWORK,
            "input": list(cases[0].first_map.shape),
            "maps": maps,
            "outputs": cases[0].first_map.rows,
            "root_of_maps": math.sqrt(maps),
            "training_records": RECORDS[size],
            "epochs": EPOCHS[size],
        },
        notes=(
            "A radius is a number of noise scales over the gain, so published radii are too large by the "
            "factors in the last two columns.",
            "One feature map stands for all of them in 000, one output for all of them in 003's l_inf; a "
            "perturbation moves all of them at once.",
            "A factor below 1 means that the published bound is loose enough to hold by luck.",
            "r of HGM comes from test digits that the network was not trained on; training is plain, without "
            "privacy.",
        ),
        draw=lambda figure: _draw(figure, rows, maps),
        upper_bounds=("joint", "too_large_at_most"),
        lower_bounds=("reached", "too_large_at_least"),
    )


def _cases(size: Size, seed: int, progress: Progress) -> Iterator[Case]:
    train, public = _digits(size)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = build(NETWORK, shape=train.shape, classes=train.classes)
    for weights in ("initial", "trained"):
        if weights == "trained":
            _train(model, train, epochs=EPOCHS[size], seed=seed, progress=progress)
        first_map = find_first_map(copy.deepcopy(model), train.shape)
        kinds = {
            "gaussian": NoiseLayers(after_first_map=1.0),
            "hgm": NoiseLayers(after_first_map=_redistributed(first_map, public)),
            "laplace": NoiseLayers(kind="laplace", after_first_map=1.0),
        }
        for name, noise in kinds.items():
            for norm in NORMS:
                yield Case(weights=weights, noise_name=name, noise=noise, norm=norm, first_map=first_map)


def reached_gain(first_map: AffineMap, noise: NoiseLayers, norm: Norm, *, seed: int) -> float:
    """The largest gain of a perturbation that a search finds: a lower bound, by a computation of its own.

    l1: every single coordinate. l2 and linf: from random starts, each step to the best point for the
    linearised gain; the gain is convex, so no step descends.
    """
    layer = copy.deepcopy(first_map.layer).double().requires_grad_(False)
    layer.bias = None
    order = 2 if noise.kind == "gaussian" else 1

    def moved(a: Tensor) -> Tensor:
        image: Tensor = layer(a.view(-1, *first_map.input_shape)) / noise.after_first_map
        size: Tensor = torch.linalg.vector_norm(image.flatten(1), ord=order, dim=1)
        return size

    if norm == "l1":
        unit = torch.eye(first_map.columns, dtype=torch.float64)
        at_once = max(1, _ENTRIES_AT_ONCE // first_map.rows)
        return max(float(moved(block).max()) for block in unit.split(at_once))
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(CLIMBS, first_map.columns, generator=generator, dtype=torch.float64)
    for _ in range(STEPS):
        a.requires_grad_()
        (slope,) = torch.autograd.grad(moved(a).sum(), a)
        a = slope / slope.norm(dim=1, keepdim=True) if norm == "l2" else slope.sign()
    return float(moved(a).max())


def _digits(size: Size) -> tuple[Dataset, Dataset]:
    """Training digits, and test digits for r; at tiny size only the middle of each image."""
    split = load("digits")
    cut = (28 - SIDE[size]) // 2
    parts = split.train.first(RECORDS[size]), split.test.first(PUBLIC[size])
    inner = slice(cut, 28 - cut)
    train, public = (
        Dataset(name=part.name, x=part.x[..., inner, inner].contiguous(), y=part.y, classes=part.classes)
        for part in parts
    )
    return train, public


def _train(model: nn.Module, data: Dataset, *, epochs: int, seed: int, progress: Progress) -> None:
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    for epoch in range(epochs):
        for chosen in torch.randperm(len(data), generator=generator).split(BATCH):
            optimizer.zero_grad()
            cross_entropy(model(data.x[chosen]), data.y[chosen]).backward()
            optimizer.step()
        progress("training", epoch + 1, epochs)


def _redistributed(first_map: FirstMap, data: Dataset) -> Tensor:
    """000 Eq. 7: ``sqrt(K r)``, r by the mean magnitude of the loss's derivative at the first layer."""
    h = first_map.apply(data.x).detach().requires_grad_()
    loss = cross_entropy(first_map.rest(h * 1.0, data.x), data.y, reduction="sum")
    (derivative,) = torch.autograd.grad(loss, h)
    r = redistribution.from_vulnerability(derivative.flatten(1).double().numpy(), inflation=INFLATION)
    return torch.from_numpy(r * len(r)).sqrt().view(first_map.output_shape)


def _draw(figure: Figure, rows: list[tuple[Cell, ...]], maps: int) -> None:
    axes = figure.add_subplot()
    trained = [row for row in rows if row[0] == "trained"]
    labels = [f"{row[1]} {row[2]}, {row[3]}" for row in trained]
    factors = [(float(row[8] or 0), float(row[9] or 0)) for row in trained]
    axes.barh(labels, [most for _, most in factors], color=CLAIMED, alpha=0.35, label="at most")
    axes.barh(labels, [least for least, _ in factors], color=CLAIMED, label="at least")
    axes.axvline(1, color=PROVEN, label="sound")
    axes.axvline(math.sqrt(maps), color=OTHER, dashes=(4, 3), linewidth=1, label="root of the number of maps")
    axes.axvline(maps, color=OTHER, dashes=(1, 2), linewidth=1, label="number of maps")
    axes.set_xscale("log")
    axes.invert_yaxis()
    axes.set_title("factor by which the published radius is too large, trained weights")
    axes.legend(fontsize="small", loc="upper right")
