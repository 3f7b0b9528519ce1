"""Balls of l_inf, l2 and l1 around inputs, cut by the bounds of the data: where an attack may go.

Guarantee, float rounding included: what ``project_`` leaves satisfies ``||x' - x||_p <= radius`` as real
numbers, and the bounds. Points that do so by a millionth are left as they are. The result is the nearest
point (for l2 up to the five rounds of its search, which stop inside), not a point of the ball that is
clamped afterwards: clamping alone gives away part of the radius, and so of the attack.

A ball also knows its random points and its steepest direction, so that the loop of
`hauberk.attacks.iterative` is the same for every norm.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from typing import ClassVar, Self, get_args

import torch
from torch import Tensor

from hauberk.certify import Norm
from hauberk.errors import RequestError

NORMS: tuple[Norm, ...] = get_args(Norm)
Bounds = tuple[float, float]

_L2_ROUNDS = 5
_SMALLEST_RADIUS = 1e-30
"""Below this squares vanish and steps have no digits left: l2 and l1 stay where they are."""
_L1_MOVED_AT_ONCE = 0.005
"""Share of the coordinates that one l1 step changes: one alone is the steepest, and needs most steps."""
_L2_START, _L1_START = 0.5, 0.1
"""Share of the radius at which a climb starts: further out it is spent on coordinates that do not matter."""


def per_row(values: Tensor, x: Tensor) -> Tensor:
    """One value per row, shaped to broadcast against ``x``."""
    return values.view(-1, *[1] * (x.ndim - 1))


def row_norms(x: Tensor, order: float) -> Tensor:
    """The norm of every row in float64, shaped to broadcast against ``x``."""
    return per_row(torch.linalg.vector_norm(x.flatten(1), order, dim=1, dtype=torch.float64), x)


def sizes(points: Tensor, centre: Tensor, norm: Norm) -> Tensor:
    """Distance of every row from its centre, in float64."""
    step = (points.double() - centre.double()).flatten(1)
    order = {"l1": 1.0, "l2": 2.0, "linf": math.inf}[norm]
    distances: Tensor = torch.linalg.vector_norm(step, order, dim=1)
    return distances


class Ball(ABC):
    """One ball per row of ``centre``, each with its own radius, intersected with the bounds.

    The centre must lie within the bounds. Radii are float64, as the caller wrote them; the bounds are those
    numbers as the centre's type can hold them.
    """

    norm: ClassVar[Norm]

    def __init__(self, centre: Tensor, radii: Tensor, bounds: Bounds) -> None:
        self.centre = centre
        self.radii = per_row(radii.to(centre.device, torch.float64), centre)
        low, high = torch.tensor(bounds, dtype=centre.dtype)
        self.low, self.high = float(low), float(high)
        # Room for the rounding of coordinates and, in float64, for that of long sums: what measures less than
        # the first is inside for certain, and what is moved to the second measures less than the first.
        margin = max(8 * torch.finfo(centre.dtype).eps, 1e-12)
        self._certain_radii, self._inner_radii = self.radii * (1 - margin), self.radii * (1 - 2 * margin)

    def take(self, rows: Tensor) -> Self:
        """The balls of these rows."""
        taken = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(taken, name, value[rows])
        return taken

    @abstractmethod
    def project_(self, points: Tensor) -> Tensor:
        """Move every row to the nearest point of its ball, in place."""

    @abstractmethod
    def random_points(self, normals: Tensor) -> Tensor:
        """A random point of each ball made from standard normals, then moved within the bounds.

        Uniform in the cube of l_inf, on a sphere of half the radius of l2, of a tenth of that of l1.
        """

    @abstractmethod
    def steepest(self, gradient: Tensor, points: Tensor, lengths: Tensor) -> Tensor:
        """The direction of size one in which a function with this gradient grows fastest.

        ``lengths``: how far it will be followed, one number per row, shaped to broadcast.
        """

    def _move_(self, points: Tensor, outside: Tensor, step: Tensor) -> Tensor:
        """Rows that are outside go to ``centre + step``, rounded towards the centre and clamped."""
        step = step.to(self.centre.dtype)
        moved = self.centre + step
        too_far = (moved - self.centre).abs() > step.abs()  # no coordinate moves by more than asked
        moved = torch.where(too_far, torch.nextafter(moved, self.centre), moved).clamp_(self.low, self.high)
        still = self.radii < _SMALLEST_RADIUS
        return points.copy_(torch.where(still, self.centre, torch.where(outside, moved, points)))


class LinfBall(Ball):
    """``|x'_i - x_i| <= radius`` for every coordinate: a box of its own, so projecting is one clamp."""

    norm = "linf"

    def __init__(self, centre: Tensor, radii: Tensor, bounds: Bounds) -> None:
        super().__init__(centre, radii, bounds)
        self.lower = -_sum_rounded_down(-centre, self.radii).clamp_(-self.high, -self.low)
        self.upper = _sum_rounded_down(centre, self.radii).clamp_(self.low, self.high)

    def project_(self, points: Tensor) -> Tensor:
        return points.clamp_(self.lower, self.upper)

    def random_points(self, normals: Tensor) -> Tensor:
        uniform = torch.special.ndtr(normals).mul_(2).sub_(1)  # in [-1, 1]
        return self.project_((self.centre + uniform * self.radii).to(self.centre.dtype))

    def steepest(self, gradient: Tensor, points: Tensor, lengths: Tensor) -> Tensor:
        return gradient.sign()


class L2Ball(Ball):
    """``||x' - x||_2 <= radius``.

    The nearest point within ball and bounds is ``clamp(x + s (y - x))`` with the one scale ``s <= 1`` that
    uses up the radius. The search starts with the scale that would do without bounds; every round takes the
    coordinates clamped so far as fixed and gives the rest of the radius to the others. Scales grow towards
    the right one and never pass it: a coordinate that is clamped later only shortens the step.
    """

    norm = "l2"

    def project_(self, points: Tensor) -> Tensor:
        step = points - self.centre
        points.clamp_(self.low, self.high)
        outside = row_norms(points - self.centre, 2) > self._certain_radii
        lowest, highest = self.low - self.centre, self.high - self.centre
        scale = (self._inner_radii / row_norms(step, 2)).clamp_(max=1.0)
        for _ in range(_L2_ROUNDS):
            wanted = step * scale.to(step.dtype)
            held = wanted.clamp(lowest, highest)
            clamped = held != wanted
            fixed = row_norms(held * clamped, 2).square()
            free = row_norms(step * ~clamped, 2).square()
            larger = ((self._inner_radii.square() - fixed).clamp_min_(0) / free).sqrt_()
            scale = torch.where(free > 0, torch.maximum(scale, larger), scale).clamp_(max=1.0)
        return self._move_(points, outside, (step * scale.to(step.dtype)).clamp_(lowest, highest))

    def random_points(self, normals: Tensor) -> Tensor:
        length = _L2_START * self.radii / row_norms(normals, 2).clamp_min_(torch.finfo(normals.dtype).tiny)
        return self.project_((self.centre + normals * length).to(self.centre.dtype))

    def steepest(self, gradient: Tensor, points: Tensor, lengths: Tensor) -> Tensor:
        length = row_norms(gradient, 2).clamp_min_(torch.finfo(torch.float64).tiny)
        return (gradient / length).to(gradient.dtype)


class L1Ball(Ball):
    """``||x' - x||_1 <= radius``.

    The nearest point within ball and bounds shortens every coordinate's step by the same amount, the
    shrinkage, then stops it at zero and at the bounds. The size that remains is piecewise linear in the
    shrinkage, with a corner where a coordinate reaches zero and one where it leaves its bound: sort the
    corners, sum the pieces, solve in the piece that holds the radius.
    """

    norm = "l1"

    def project_(self, points: Tensor) -> Tensor:
        step = (points.double() - self.centre.double()).flatten(1)
        points.clamp_(self.low, self.high)
        outside = row_norms(points.double() - self.centre.double(), 1) > self._certain_radii
        room_up, room_down = (self.high - self.centre.double()), (self.centre.double() - self.low)
        room = torch.where(step > 0, room_up.flatten(1), room_down.flatten(1))
        radii = self._inner_radii.flatten(1)
        kept = (step.abs() - _shrinkage(step.abs(), room, radii)).clamp_(min=0.0).minimum(room)
        excess = kept.sum(1, keepdim=True) / radii.clamp_min(torch.finfo(torch.float64).tiny)
        kept /= excess.clamp_min_(1.0)  # what rounding left above the radius
        return self._move_(points, outside, kept.copysign(step).view_as(points))

    def random_points(self, normals: Tensor) -> Tensor:
        # P(|N| > t) is uniform, so its logarithm is exponential: a Laplace draw, uniform after division.
        laplace = (-torch.special.log_ndtr(-normals.double().abs()) - math.log(2)).clamp_min_(0)
        laplace = laplace.copysign(normals.double())
        length = _L1_START * self.radii / row_norms(laplace, 1).clamp_min_(torch.finfo(torch.float64).tiny)
        return self.project_((self.centre + laplace * length).to(self.centre.dtype))

    def steepest(self, gradient: Tensor, points: Tensor, lengths: Tensor) -> Tensor:
        """The signs of the largest entries among the coordinates that the bounds let move.

        As many as a long step needs: none should have to walk more than half the width of the bounds.
        """
        stuck = torch.where(gradient > 0, points >= self.high, points <= self.low)
        slopes = gradient.abs().masked_fill_(stuck, 0).flatten(1)
        features = slopes.shape[1]
        fewest = math.ceil(_L1_MOVED_AT_ONCE * features)
        needed = (2 * lengths.view(-1, 1) / (self.high - self.low)).ceil().clamp_(fewest, features).long()
        smallest = slopes.sort(dim=1, descending=True).values.gather(1, needed - 1)
        chosen = (slopes >= smallest) & (slopes > 0)
        shares = chosen / chosen.sum(1, keepdim=True).clamp_min_(1)
        return gradient.sign().mul_(shares.view_as(gradient).to(gradient.dtype))


def _sum_rounded_down(x: Tensor, radii: Tensor) -> Tensor:
    """The largest number of ``x``'s type that is not above ``x + radii``."""
    wide = x.double()
    total = wide + radii
    part = total - wide
    error = (wide - (total - part)) + (radii - part)  # what the float64 sum lost (Knuth's two-sum)
    total = torch.where(error < 0, torch.nextafter(total, torch.full_like(total, -math.inf)), total)
    narrow = total.to(x.dtype)
    below = torch.nextafter(narrow, torch.full_like(narrow, -math.inf))
    return torch.where(narrow.double() > total, below, narrow)


def _shrinkage(lengths: Tensor, room: Tensor, radii: Tensor) -> Tensor:
    """The smallest ``t >= 0`` with ``sum_i min(max(lengths_i - t, 0), room_i) <= radii``, for every row."""
    corners = torch.cat([lengths, lengths - room], dim=1)
    corners, order = corners.sort(dim=1, descending=True)
    moving = torch.where(order < lengths.shape[1], 1.0, -1.0).to(corners.dtype).cumsum_(dim=1)
    # sizes at the corners, from the largest shrinkage, where nothing is left, downwards
    left = torch.zeros_like(corners)
    left[:, 1:] = (moving[:, :-1] * (corners[:, :-1] - corners[:, 1:])).cumsum(dim=1)
    piece = ((left <= radii).sum(1, keepdim=True) - 1).clamp_min_(0)
    slope = moving.gather(1, piece).clamp_min_(1.0)
    return (corners.gather(1, piece) - (radii - left.gather(1, piece)) / slope).clamp_min_(0.0)


BALLS: dict[Norm, type[Ball]] = {"l1": L1Ball, "l2": L2Ball, "linf": LinfBall}


def ball(norm: Norm, centre: Tensor, radii: Tensor, bounds: Bounds) -> Ball:
    """The balls of one norm around the rows of ``centre``, which must lie within the bounds."""
    if norm not in BALLS:
        raise RequestError(f"there is no norm '{norm}'; choose one of {', '.join(NORMS)}")
    return BALLS[norm](centre, radii, bounds)


def project_l2(x: Tensor, centre: Tensor, radii: Tensor, *, bounds: Bounds = (0.0, 1.0)) -> Tensor:
    """The nearest points within the l2 ball of each row's radius and within the bounds."""
    return L2Ball(centre, radii, bounds).project_(x.clone())
