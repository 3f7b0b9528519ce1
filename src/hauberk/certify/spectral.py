"""Upper bounds on eigenvalues and on norms of convolutions that hold in spite of rounding.

Power iteration and eigenvalue routines approach the truth from below or land on either side of it; a
certificate needs the upper side. A computed value is but a guess here, proven by a Cholesky factorisation.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from hauberk.errors import RequestError

UNIT = 2.0**-52
"""Twice the unit roundoff of float64: ``N * UNIT`` exceeds the usual ``gamma_N = N u / (1 - N u)``."""

_ANGLE = (
    0.05  # radians lost per axis between grid points; the bound is at most 1 / cos(0.1) = 1.005 too large
)
_ENTRIES_AT_ONCE = 1 << 20


def up(value: float, *, terms: int = 8) -> float:
    """``value`` raised by the rounding of ``terms`` operations on non-negative numbers."""
    return value * (1 + terms * UNIT)


def largest_eigenvalue_bound(matrices: Tensor) -> float:
    """A number not below any eigenvalue of the Hermitian positive semi-definite ``matrices`` (..., n, n).

    It exceeds the largest one by about ``2 n^2 u`` of itself (1e-9 for n = 3072). A candidate ``s`` slightly
    above the computed eigenvalues is tried: if the Cholesky factorisation of ``S = s I - A`` runs to its end
    in floating point, its factor ``R`` satisfies ``R*R = S + E`` with ``|E| <= gamma_{n+1} |R*| |R|``
    (Higham, Accuracy and Stability of Numerical Algorithms, Theorem 10.3), hence ``||E|| <= gamma_{n+1}
    ||R||_F^2 <= 2 gamma_{n+1} tr S``. As ``R*R >= 0``, no eigenvalue of ``A`` exceeds ``s + ||E||``. Complex
    arithmetic costs a constant factor in gamma, which is included. A bad guess costs tightness only.
    """
    size = matrices.shape[-1]
    if not bool(matrices.isfinite().all()):
        raise RequestError(
            "the first map's weights or the noise scales are too large or too small for float64"
        )
    guess = max(float(torch.linalg.eigvalsh(matrices).max()), torch.finfo(torch.float64).tiny)
    excess = size * 2.0**-48
    while True:
        candidate = guess * (1 + excess)
        shifted = -matrices
        shifted.diagonal(dim1=-2, dim2=-1).add_(candidate)
        _, failed = torch.linalg.cholesky_ex(shifted)
        if not bool(failed.any()):
            trace = float(shifted.diagonal(dim1=-2, dim2=-1).real.sum(-1).max())
            return up(candidate + 8 * (size + 2) * UNIT * trace)
        excess *= 8


def convolution_norm_bound(
    kernel: Tensor, *, stride: tuple[int, int], dilation: tuple[int, int], groups: int
) -> float:
    """An upper bound on the l2 norm of the zero-padded convolution with ``kernel``, for images of every size.

    1. *A larger map.* Extend the image by zeros to all of Z^2 (an isometry), convolve there, and keep the
       outputs that the layer computes (a projection). The layer is this composition, whatever its padding, so
       its norm is at most that of the convolution on Z^2: cutting out rows and columns never raises a norm.
    2. *Its symbol.* A stride ``s`` reads each of the ``s1 s2`` sub-lattices of the image as a channel of its
       own (polyphase form, an isometry): ``y(n) = sum_t h_t x(n + t)`` without stride. Its norm is the
       supremum over the torus of ``||H(theta)||``, ``H(theta) = sum_t h_t e^{i theta t}`` (Parseval).
    3. *The supremum from a grid.* Let ``S`` be the supremum, attained at ``z`` with singular vectors
       ``u, v``, and ``f(theta) = u* H(theta) v``, so ``|f| <= S = f(z)``. With T taps along an axis, a factor
       of modulus one centres its frequencies in ``[-r, r]``, ``r = (T - 1) / 2``. The nearest grid point is
       ``z + e``, ``|e_i| <= pi / N_i``. Along the segment ``g(t) = Re f(z + t e)`` is real, of exponential
       type ``tau <= pi r_1 / N_1 + pi r_2 / N_2``, at most ``S`` in modulus and ``S`` at 0, and Bernstein's
       inequality in the form of Duffin and Schaeffer, ``g'^2 + tau^2 g^2 <= tau^2 S^2``, says that
       ``arccos(g / S)`` grows at most at the rate tau: ``g(1) >= S cos(tau)`` for ``tau <= pi``. Hence

           ``S <= (largest ||H|| on the grid) / cos(tau)``.

    Direction: steps 1 and 3 can only enlarge. Rounding: an entry of ``H`` errs by at most ``~30 T1 T2 u`` of
    ``sum_t |h_t|`` (phases included), a product of two matrices by ``gamma`` of its inner dimension.
    """
    taps = _polyphase(kernel.double(), stride=stride, dilation=dilation, groups=groups)
    tap_count = taps.shape[-2] * taps.shape[-1]
    counts, tau = [], 0.0
    for length in taps.shape[-2:]:
        degree = (length - 1) / 2
        counts.append(max(1, math.ceil(math.pi * degree / _ANGLE)))
        tau += math.pi * degree / counts[-1]
    first, second = (_phases(count, length) for count, length in zip(counts, taps.shape[-2:], strict=True))
    partly = torch.einsum("goist,mt->mgois", taps.to(torch.complex128), second)
    at_once = max(1, _ENTRIES_AT_ONCE // max(1, partly[..., 0].numel()))
    largest = 0.0
    for phases in first.split(at_once):
        symbol = torch.einsum("mgois,ns->nmgoi", partly, phases)
        wide = symbol.shape[-1] >= symbol.shape[-2]
        products = symbol @ symbol.mH if wide else symbol.mH @ symbol
        largest = max(largest, largest_eigenvalue_bound(products))
    terms = 64 * tap_count + 4 * (taps.shape[1] + taps.shape[2]) + 64
    mass = float(taps.abs().sum((-2, -1)).square().sum((-2, -1)).max())
    return up(math.sqrt(largest + terms * UNIT * mass) / math.cos(tau))


def _polyphase(kernel: Tensor, *, stride: tuple[int, int], dilation: tuple[int, int], groups: int) -> Tensor:
    """``(groups, outputs, inputs * s1 * s2, T1, T2)`` per group: tap ``k`` of the kernel is at the pixel
    ``dilation * k = stride * t + q``, that is tap ``t`` of the sub-lattice ``q``."""
    outputs, inputs, height, width = kernel.shape
    lengths = [dilation[0] * (height - 1) // stride[0] + 1, dilation[1] * (width - 1) // stride[1] + 1]
    taps = kernel.new_zeros(outputs, inputs, stride[0], stride[1], lengths[0], lengths[1])
    for row in range(height):
        for column in range(width):
            t1, q1 = divmod(dilation[0] * row, stride[0])
            t2, q2 = divmod(dilation[1] * column, stride[1])
            taps[:, :, q1, q2, t1, t2] = kernel[:, :, row, column]
    return taps.reshape(groups, outputs // groups, inputs * stride[0] * stride[1], *lengths)


def _phases(count: int, length: int) -> Tensor:
    """``e^{i theta t}`` for ``count`` equidistant angles and ``length`` taps."""
    turns = torch.outer(torch.arange(count), torch.arange(length)).double() / count
    return torch.polar(torch.ones_like(turns), 2 * math.pi * turns)
