"""Views of a record: what the loss sees instead of the record itself.

A view may depend on its own record, on public data and on released parameters, and on nothing else. Its noise
is a function of (step, record, view), so a neighbour does not shift anybody else's noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from hauberk.errors import RequestError
from hauberk.gradients import Views
from hauberk.randomness import Key, keyed_normals


class RecordViews(Protocol):
    """What the loss sees of each record: ``(n, K, ...)`` from ``(n, *shape)``, a tensor or several."""

    def __call__(self, x: Tensor, *, records: Tensor, step: int, key: Key) -> Views:
        """``records`` are the n records' identities; a row depends on its own record alone."""


_CHANCES = 1 << 22  # numbers of views that no noise uses


@dataclass(frozen=True, kw_only=True)
class Moves:
    """Every view moved by its own whole number of pixels, at most ``shift`` each way, and mirrored or not.

    What leaves the image is lost, what enters is 0. For images ``(channels, height, width)``.
    """

    shift: int = 0
    flip: bool = False

    def __post_init__(self) -> None:
        if self.shift < 0:
            raise RequestError(f"shift must not be negative, got {self.shift}")

    def refuse(self, shape: tuple[int, ...]) -> None:
        """Records that are no images."""
        if len(shape) != 3:
            raise RequestError("shift and flip move images: leave them out for tables")

    def __call__(self, x: Tensor, *, records: Tensor, step: int, key: Key, views: int) -> Tensor:
        """``(n, views, *shape)`` from ``(n, *shape)``; a row depends on its own record alone."""
        self.refuse(tuple(x.shape[1:]))
        normals = keyed_normals(key, step=step, records=records, views=views, shape=(3,), first_view=_CHANCES)
        chances = torch.special.ndtr(normals.double())
        places = (chances[..., :2] * (2 * self.shift + 1)).long().clamp_(max=2 * self.shift)
        height, width = x.shape[-2:]
        rows = places[..., :1] + torch.arange(height, device=x.device)
        columns = torch.arange(width, device=x.device).expand(*places.shape[:2], width)
        if self.flip:
            columns = torch.where(chances[..., 2:] < 0.5, columns, columns.flip(-1))
        columns = columns + places[..., 1:2]
        padded = nn.functional.pad(x, (self.shift,) * 4)
        own = torch.arange(len(x), device=x.device).view(-1, 1, 1, 1)
        # (n, 1, 1, 1), (n, views, height, 1), (n, views, 1, width): the channels come out last
        moved = padded.movedim(1, -1)[own, rows.unsqueeze(-1), columns.unsqueeze(-2)]
        return moved.movedim(-1, 2)


@dataclass(frozen=True, kw_only=True)
class NoisyViews:
    """``views`` copies of each record with independent Gaussian noise of standard deviation ``sigma``, each
    moved beforehand if ``moves`` say so. ``clean``: the first copy has no noise."""

    sigma: float
    views: int
    moves: Moves | None = None
    clean: bool = False

    def __post_init__(self) -> None:
        if not self.sigma >= 0:
            raise RequestError(f"sigma must not be negative, got {self.sigma}")
        if self.views < 1:
            raise RequestError(f"views must be at least 1, got {self.views}")
        if self.clean and self.views < 2:
            raise RequestError("one copy without noise needs others with noise: give at least 2 views")

    def __call__(self, x: Tensor, *, records: Tensor, step: int, key: Key) -> Tensor:
        """``(n, views, *shape)`` from ``(n, *shape)``; ``records`` are the n records' identities."""
        if self.moves is None:
            copies = x.unsqueeze(1).expand(-1, self.views, *x.shape[1:])
        else:
            copies = self.moves(x, records=records, step=step, key=key, views=self.views)
        if self.sigma == 0:
            return copies
        return copies + self.noise(x, records=records, step=step, key=key)

    def noise(self, x: Tensor, *, records: Tensor, step: int, key: Key) -> Tensor:
        """Of all copies."""
        shape, noisy = tuple(x.shape[1:]), self.views - self.clean
        noise = self.sigma * keyed_normals(key, step=step, records=records, views=noisy, shape=shape)
        return torch.cat([torch.zeros_like(x).unsqueeze(1), noise], 1) if self.clean else noise
