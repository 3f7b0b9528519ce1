"""Canaries: records whose presence is decided by a fair coin, made so that training cannot help showing it.

*Record* canaries are inserted into the data and go the whole way of any record. *Gradient* canaries stand for
a record with the worst gradient there is: they take a row of the data for the sampler to draw, and whenever
it is drawn and their coin is heads, a vector as long as a clipped gradient may be is added to the clipped
sum. A privacy proof covers both: it speaks about every record, and so about every clipped gradient.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from hauberk.data import Dataset
from hauberk.errors import RequestError
from hauberk.mechanisms import checks


def fair_coins(count: int, *, seed: int) -> Tensor:
    """Who is in: ``count`` independent fair coins."""
    return torch.from_numpy(np.random.default_rng((seed, 0xC0)).random(count) < 0.5)


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordCanaries:
    """Records ``x`` with labels ``y``; those whose coin is heads are appended to the data."""

    kind: str
    x: Tensor
    y: Tensor

    @property
    def count(self) -> int:
        return len(self.y)

    @classmethod
    def mislabelled(cls, source: Dataset, *, count: int, seed: int) -> RecordCanaries:
        """Copies of different records of ``source``, each with a label that is not its own.

        Take a source that is public or at least no part of the audited data: the auditor reads it.
        """
        _check_count(count)
        if count > len(source):
            raise RequestError(f"{len(source)} records cannot give {count} different canaries.")
        rng = np.random.default_rng((seed, 0xC1))
        rows = torch.from_numpy(rng.permutation(len(source))[:count])
        others = torch.from_numpy(rng.integers(1, source.classes, count))
        return cls(kind="mislabelled records", x=source.x[rows], y=(source.y[rows] + others) % source.classes)

    @classmethod
    def noise(cls, like: Dataset, *, count: int, seed: int) -> RecordCanaries:
        """Inputs of uniform noise in the shape of ``like``, of which nothing else is read; random labels."""
        _check_count(count)
        rng = np.random.default_rng((seed, 0xC2))
        x = torch.from_numpy(rng.random((count, *like.shape), dtype=np.float32))
        return cls(kind="noise records", x=x, y=torch.from_numpy(rng.integers(0, like.classes, count)))

    def inserted(self, data: Dataset, coins: Tensor) -> Dataset:
        """``data`` with the canaries that are in."""
        if tuple(self.x.shape[1:]) != data.shape:
            raise RequestError(
                f"canaries of shape {tuple(self.x.shape[1:])} do not fit records of shape {data.shape}."
            )
        x, y = (each[coins].to(where) for each, where in ((self.x, data.x), (self.y, data.y)))
        return replace(data, x=torch.cat([data.x, x]), y=torch.cat([data.y, y]))


@dataclass(frozen=True, kw_only=True, eq=False)
class GradientCanaries:
    """``count`` canaries with gradients along fixed ``directions`` (rows of length 1), or along axes.

    With ``directions`` None every canary has a coordinate of its own, chosen by ``seed``: in noise that is
    the same everywhere one direction is as bad as another, and no canary disturbs the others. The sign turns
    from step to step, so that noise which is not fresh cancels itself.
    """

    kind: str
    count: int
    seed: int = 0
    directions: Tensor | None = None

    @classmethod
    def axes(cls, count: int, *, seed: int = 0) -> GradientCanaries:
        """The worst direction against isotropic noise: any; here a coordinate for each canary."""
        _check_count(count)
        return cls(kind="gradients along axes", count=count, seed=seed)

    @classmethod
    def along(cls, directions: Tensor) -> GradientCanaries:
        """Given directions, one row each (a vector: one canary): those with the least noise, say."""
        rows = torch.atleast_2d(torch.as_tensor(directions, dtype=torch.float64))
        lengths = rows.norm(dim=1, keepdim=True)
        if rows.dim() != 2 or not bool((lengths > 0).all() and lengths.isfinite().all()):
            raise RequestError("a direction is a row of finite numbers that are not all zero.")
        return cls(kind="gradients along given directions", count=len(rows), directions=rows / lengths)

    def placeholders(self, data: Dataset) -> Dataset:
        """``data`` with a blank record for every canary, in or out: rows for the sampler to draw."""
        x = torch.zeros(self.count, *data.shape, dtype=data.x.dtype, device=data.x.device)
        y = torch.zeros(self.count, dtype=data.y.dtype, device=data.y.device)
        return replace(data, x=torch.cat([data.x, x]), y=torch.cat([data.y, y]))

    def placed(self, coordinates: int, device: torch.device) -> PlacedCanaries:
        """In a model with so many trainable numbers."""
        if self.directions is not None:
            if self.directions.shape[1] != coordinates:
                raise RequestError(
                    f"a direction has {self.directions.shape[1]} coordinates and the model {coordinates}."
                )
            return PlacedCanaries(rows=self.directions.to(device), places=None)
        if self.count > coordinates:
            raise RequestError(
                f"{self.count} canaries need a coordinate each, and the model has {coordinates}: take fewer."
            )
        chosen = np.random.default_rng((self.seed, 0xC3)).permutation(coordinates)[: self.count]
        return PlacedCanaries(rows=None, places=torch.from_numpy(chosen).to(device))


@dataclass(frozen=True, kw_only=True, eq=False)
class PlacedCanaries:
    """Directions in the long vector of all parameters: full ``rows``, or ``places`` of unit vectors."""

    rows: Tensor | None
    places: Tensor | None

    def sum_of(self, which: Tensor, coordinates: Tensor) -> Tensor:
        """The sum of the directions of these canaries, like ``coordinates``."""
        total = torch.zeros_like(coordinates)
        if self.rows is not None:
            return total + self.rows[which].sum(dim=0)
        assert self.places is not None
        total[self.places[which]] = 1.0
        return total

    def products(self, vector: Tensor) -> Tensor:
        """Of every canary's direction with ``vector``."""
        if self.rows is not None:
            return self.rows @ vector
        assert self.places is not None
        return vector[self.places]


def _check_count(count: int) -> None:
    checks.count("the number of canaries", count)
