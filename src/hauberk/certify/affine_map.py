"""The matrix ``W`` of a Linear or Conv2d layer, without writing it down: sums, Gram matrices and norms.

Everything is for the real-valued map that the layer's weights define, computed in float64 on the CPU, where
torch's float64 convolutions are plain sums of products. ``scales`` whiten the outputs: the facts are those of
``A = diag(scales)^{-1} W``. Errors of rounding are bounded by ``terms * 2^-52``, more than the classical
``gamma_N`` for sums of N products in any order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from hauberk.certify.noise import LARGEST_SCALE, SMALLEST_SCALE
from hauberk.certify.spectral import UNIT, convolution_norm_bound, largest_eigenvalue_bound, up
from hauberk.errors import RequestError

LARGEST_EXACT_SIDE = 4096
"""Rows or columns for which a Gram matrix is formed (134 MB, seconds); images of 32 x 32 x 3 have 3072."""

_ENTRIES_AT_ONCE = 1 << 22


class AbsoluteSums(NamedTuple):
    """Sums of ``|A_kj|``, rounded up. ``exact``: up to that rounding, else upper bounds."""

    columns: Tensor  # one per input coordinate
    rows: Tensor  # one per output coordinate
    total: float
    exact: bool


class AffineMap:
    """``x -> W x + b`` as a Linear or Conv2d layer computes it from inputs of ``input_shape``.

    Values are those of the layer's present weights; what was computed for other weights is forgotten.
    """

    def __init__(self, layer: nn.Linear | nn.Conv2d, input_shape: tuple[int, ...]) -> None:
        self.layer = layer
        self.input_shape = tuple(input_shape)
        weight = self._weight()
        with torch.no_grad():
            one = self._push(weight, torch.zeros(1, *self.input_shape, dtype=torch.float64))
        self.output_shape = tuple(one.shape[1:])
        self.rows, self.columns = math.prod(self.output_shape), math.prod(self.input_shape)
        self._known_for: tuple[Tensor, Tensor] | None = None
        self._grams: dict[str, Tensor] = {}
        self._norm: float | None = None

    def gram(self, scales: float | Tensor) -> Tensor:
        """``M = A'A``, (columns, columns); its error is at most `gram_error` in the l2 norm."""
        return self._gram(self._weight(), self._scales(scales), "columns")

    def gram_error(self, scales: float | Tensor) -> float:
        """Bound on ``||computed - true||`` for Gram matrices of either side.

        Entrywise the error is at most ``gamma_N |A|'|A|`` with N the number of terms, and the norm of
        ``|A|'|A|`` is at most the sum of all squares of ``A``.
        """
        mass = float(self._column_squares(self._weight(), self._scales(scales)).sum())
        return up(self._terms * UNIT * mass, terms=self._terms)

    def column_squares(self, scales: float | Tensor) -> tuple[Tensor, bool]:
        """``sum_k A_kj^2`` per input coordinate, the diagonal of `gram`, rounded up; and whether exact."""
        weight, noise = self._weight(), self._scales(scales)
        if self._one_weight_per_entry or self.columns > LARGEST_EXACT_SIDE:
            squares = self._column_squares(weight, noise) * (1 + self._terms * UNIT)
            return squares, self._one_weight_per_entry
        return self._gram(weight, noise, "columns").diagonal() + self.gram_error(scales), True

    def absolute_sums(self, scales: float | Tensor) -> AbsoluteSums:
        """Sums of ``|A_kj|`` over columns, rows and everything.

        Where padding repeats pixels (reflect, replicate, circular), several weights may meet in one entry of
        ``W``. Summing their absolute values gives an upper bound, which is all there is for large maps.
        """
        weight, noise = self._weight(), self._scales(scales)
        ones = torch.ones(1, *self.input_shape, dtype=torch.float64)
        columns = self._pull(weight.abs(), noise.reciprocal().unsqueeze(0)).flatten()
        with torch.no_grad():
            rows = (self._push(weight.abs(), ones)[0] / noise).flatten()
        rounding, exact = self._terms * UNIT, self._one_weight_per_entry
        if exact or self.columns > LARGEST_EXACT_SIDE:
            columns, rows = columns * (1 + rounding), rows * (1 + rounding)
        else:
            entry_columns, entry_rows = self._sums_of_entries(weight, noise)
            columns, rows = entry_columns + rounding * columns, entry_rows + rounding * rows
            exact = True
        return AbsoluteSums(columns, rows, up(float(columns.sum()), terms=self.columns), exact)

    def spectral_norm_bound(self, scales: float | Tensor) -> tuple[float, bool]:
        """``||A||`` for l2, rounded up, and whether it is exact; never below the truth.

        Exact where a side of ``W`` has at most ``LARGEST_EXACT_SIDE`` entries: the square root of the largest
        eigenvalue of the Gram matrix of the smaller side (`largest_eigenvalue_bound`). Above that the
        smallest of these upper bounds:

        - the square root of (largest column sum) x (largest row sum) of ``|A|``, and the Frobenius norm;
        - Conv2d: `convolution_norm_bound` with every output channel divided by its smallest scale, which only
          enlarges, since ``A`` is that map followed by factors of at most 1. If padding repeats pixels, times
          the root of the largest number of copies of a pixel: the l2 norm of the padding;
        - Linear: the norm of the weight matrix with every row divided by its smallest scale, likewise.
        """
        weight, noise = self._weight(), self._scales(scales)
        if min(self.rows, self.columns) <= LARGEST_EXACT_SIDE:
            gram = self._gram(weight, noise, "rows" if self.rows < self.columns else "columns")
            if self._norm is None:
                self._norm = up(math.sqrt(largest_eigenvalue_bound(gram) + self.gram_error(scales)))
            return self._norm, True
        sums = self.absolute_sums(scales)
        frobenius = float(self.column_squares(scales)[0].sum())
        bounds = [math.sqrt(float(sums.columns.max()) * float(sums.rows.max())), math.sqrt(frobenius)]
        if isinstance(self.layer, nn.Conv2d):
            least = noise.amin((1, 2))
            norm = convolution_norm_bound(
                weight / least[:, None, None, None],
                stride=_pair(self.layer.stride),
                dilation=_pair(self.layer.dilation),
                groups=self.layer.groups,
            )
            bounds.append(norm * math.sqrt(float(self._copies().max())))
        elif min(weight.shape) <= LARGEST_EXACT_SIDE:
            least = noise.reshape(-1, noise.shape[-1]).amin(0)
            alone = AffineMap(self.layer, (weight.shape[1],))
            bounds.append(alone.spectral_norm_bound(least)[0])
        return up(min(bounds), terms=self.columns), False

    def feature_maps(self) -> Iterator[tuple[AffineMap, slice]]:
        """The maps of a convolution one by one, each with its place among the output channels.

        Only the input channels of its group belong to a map. A Linear layer is one map.
        """
        layer = self.layer
        if isinstance(layer, nn.Linear):
            yield self, slice(None)
            return
        weight = layer.weight.detach()
        for index in range(len(weight)):
            alone = nn.Conv2d(
                weight.shape[1],
                1,
                _pair(layer.kernel_size),
                stride=_pair(layer.stride),
                padding=layer.padding if isinstance(layer.padding, str) else _pair(layer.padding),
                dilation=_pair(layer.dilation),
                bias=False,
                padding_mode=layer.padding_mode,
                dtype=weight.dtype,
            )
            alone.weight = nn.Parameter(weight[index : index + 1].cpu(), requires_grad=False)
            yield AffineMap(alone, (weight.shape[1], *self.input_shape[1:])), slice(index, index + 1)

    @property
    def _one_weight_per_entry(self) -> bool:
        """No entry of ``W`` is a sum of weights: true unless padding repeats pixels."""
        return isinstance(self.layer, nn.Linear) or self.layer.padding_mode == "zeros"

    @property
    def _terms(self) -> int:
        return self.rows + self.columns + 16

    def _weight(self) -> Tensor:
        weight: Tensor = self.layer.weight.detach().to("cpu", torch.float64)
        if not bool(weight.isfinite().all()):
            raise RequestError("the first map has weights that are not finite: train it again")
        return weight

    def _scales(self, scales: float | Tensor) -> Tensor:
        given = torch.as_tensor(scales, dtype=torch.float64).detach().cpu()
        try:
            expanded = given.expand(self.output_shape)
        except RuntimeError:
            raise RequestError(
                f"the noise scales have shape {tuple(given.shape)}, which does not fit the first map's "
                f"output {self.output_shape}"
            ) from None
        if not bool(((expanded >= SMALLEST_SCALE) & (expanded <= LARGEST_SCALE)).all()):
            raise RequestError("every noise scale must lie between 1e-100 and 1e100")
        return expanded

    def _push(self, weight: Tensor, x: Tensor) -> Tensor:
        """``W x`` with these weights, as the layer would compute it, without bias."""
        if isinstance(self.layer, nn.Linear):
            return nn.functional.linear(x, weight)
        out: Tensor = self.layer._conv_forward(x, weight, None)
        return out

    def _pull(self, weight: Tensor, y: Tensor) -> Tensor:
        """``W' y`` with these weights."""
        with torch.enable_grad():
            x = torch.zeros(len(y), *self.input_shape, dtype=torch.float64, requires_grad=True)
            (pulled,) = torch.autograd.grad(self._push(weight, x), x, y)
        return pulled

    def _column_squares(self, weight: Tensor, noise: Tensor) -> Tensor:
        """Exact where entries are single weights; else a bound: the square of a sum of m weights is at most m
        times the sum of their squares, and m is at most the number of copies of the pixel."""
        squares = self._pull(weight.square(), noise.square().reciprocal().unsqueeze(0))[0]
        return squares.flatten() * self._copies().flatten()

    @torch.no_grad()
    def _sums_of_entries(self, weight: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Column and row sums of ``|A|``, entry by entry."""
        columns, rows = [], torch.zeros(self.rows, dtype=torch.float64)
        for block in self._identity(self.columns):
            image = (self._push(weight, block.view(-1, *self.input_shape)) / noise).flatten(1).abs()
            columns.append(image.sum(1))
            rows += image.sum(0)
        return torch.cat(columns), rows

    def _identity(self, size: int) -> Iterator[Tensor]:
        """The rows of the identity, as many at once as memory and speed like."""
        at_once = max(1, _ENTRIES_AT_ONCE // max(self.rows, self.columns))
        for start in range(0, size, at_once):
            block = torch.zeros(min(at_once, size - start), size, dtype=torch.float64)
            block[:, start : start + len(block)].fill_diagonal_(1)
            yield block

    def _copies(self) -> Tensor:
        """How often each input coordinate occurs in the padded image."""
        ones = torch.ones(1, *self.input_shape, dtype=torch.float64)
        if self._one_weight_per_entry:
            return ones
        assert isinstance(self.layer, nn.Conv2d)
        widths, mode = self.layer._reversed_padding_repeated_twice, self.layer.padding_mode
        with torch.enable_grad():
            padded = nn.functional.pad(ones.requires_grad_(), widths, mode=mode)
            (copies,) = torch.autograd.grad(padded.sum(), ones)
        return copies

    def _gram(self, weight: Tensor, noise: Tensor, side: str) -> Tensor:
        """``A'A`` (side "columns") or ``AA'`` ("rows"), block by block of the identity; kept until asked for
        other weights or scales."""
        size = self.columns if side == "columns" else self.rows
        if size > LARGEST_EXACT_SIDE:
            raise RequestError(
                f"the Gram matrix of a map with {size} {side} is too large; at most {LARGEST_EXACT_SIDE} are"
            )
        known_for = self._known_for
        if known_for is None or not (torch.equal(known_for[0], weight) and torch.equal(known_for[1], noise)):
            self._known_for, self._grams, self._norm = (weight.clone(), noise.clone()), {}, None
        if side not in self._grams:
            gram = torch.cat([self._gram_rows(weight, noise, block, side) for block in self._identity(size)])
            self._grams[side] = (gram + gram.T).div_(2)
        return self._grams[side]

    def _gram_rows(self, weight: Tensor, noise: Tensor, block: Tensor, side: str) -> Tensor:
        if side == "rows":
            pulled = self._pull(weight, block.view(-1, *self.output_shape) / noise)
            with torch.no_grad():
                return (self._push(weight, pulled) / noise).flatten(1)
        with torch.enable_grad():
            x = block.view(-1, *self.input_shape).requires_grad_()
            image = self._push(weight, x)
            (rows,) = torch.autograd.grad(image, x, image.detach() / noise.square())
        return rows.flatten(1)


def _pair(value: int | tuple[int, ...]) -> tuple[int, int]:
    if isinstance(value, int):
        return value, value
    first, second = value
    return first, second
