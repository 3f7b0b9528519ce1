"""Views of a record: what the loss sees instead of the record itself.

A view may depend on its own record, on public data and on released parameters, and on nothing else. Its noise
is a function of (step, record, view), so a neighbour does not shift anybody else's noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from hauberk.errors import RequestError
from hauberk.gradients import Views
from hauberk.randomness import Key, keyed_normals


class RecordViews(Protocol):
    """What the loss sees of each record: ``(n, K, ...)`` from ``(n, *shape)``, a tensor or several."""

    def __call__(self, x: Tensor, *, records: Tensor, step: int, key: Key) -> Views:
        """``records`` are the n records' identities; a row depends on its own record alone."""


@dataclass(frozen=True, kw_only=True)
class NoisyViews:
    """``views`` copies of each record with independent Gaussian noise of standard deviation ``sigma``."""

    sigma: float
    views: int

    def __post_init__(self) -> None:
        if not self.sigma >= 0:
            raise RequestError(f"sigma must not be negative, got {self.sigma}")
        if self.views < 1:
            raise RequestError(f"views must be at least 1, got {self.views}")

    def __call__(self, x: Tensor, *, records: Tensor, step: int, key: Key) -> Tensor:
        """``(n, views, *shape)`` from ``(n, *shape)``; ``records`` are the n records' identities."""
        if self.sigma == 0:
            return x.unsqueeze(1).expand(-1, self.views, *x.shape[1:])
        shape = tuple(x.shape[1:])
        noise = keyed_normals(key, step=step, records=records, views=self.views, shape=shape)
        return x.unsqueeze(1) + self.sigma * noise
