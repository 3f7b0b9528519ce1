"""The whitened gain of a noise layer: the one number by which a perturbation of the input reaches the votes.

For Gaussian noise ``n_x`` at the input and ``n_h`` after the first map, the rest of the network sees
``W (x + n_x) + n_h``: an input that moves by ``a`` moves its mean by ``W a``, and its covariance is
``sigma_x^2 W W' + Sigma_h``. With

    ``G = W' (sigma_x^2 W W' + Sigma_h)^{-1} W``,    ``L_p = sup over ||a||_p <= 1 of sqrt(a' G a)``,

two inputs at l_p distance ``mu`` look to the votes like two unit Gaussians at distance at most ``L_p mu``.
Writing ``A = Sigma_h^{-1/2} W`` and ``M = A'A``: ``G = M`` for layer noise alone, ``I / sigma_x^2`` for input
noise alone, and for both ``G = M (I + sigma_x^2 M)^{-1}``, the *parallel sum* of the two:
``a'Ga = min over u + v = a of u'Mu + v'v / sigma_x^2``.

For Laplace noise the number is the privacy loss ``rho_p`` per unit of l_p, ``sup ||A a||_1`` where ``A`` is
``W`` divided by the scales ``b``; with both noises at once the loss is at most the smaller of the two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import get_args

import torch
from torch import Tensor

from hauberk.certify import affine_map
from hauberk.certify.affine_map import AffineMap
from hauberk.certify.noise import NoiseLayers, Norm
from hauberk.certify.spectral import UNIT, up
from hauberk.errors import RequestError

_LARGEST_SUM = 1e80
_NEGLIGIBLE = 1e-6  # an error this small, relative, still counts as exact


@dataclass(frozen=True, kw_only=True)
class Gain:
    """``value`` is never below the true gain; ``exact``: nor above it by more than rounding (1e-6)."""

    norm: Norm
    value: float
    exact: bool
    how: str


def gain(
    noise: NoiseLayers, norm: Norm, *, shape: tuple[int, ...], first_map: AffineMap | None = None
) -> Gain:
    """The gain of ``noise`` for inputs of ``shape``; ``first_map`` is needed if there is noise after it.

    Gaussian: ``L_p``. Laplace: the loss ``rho_p`` per unit of l_p.
    Guarantee: the value is at least the supremum that defines it, for the real-valued map with the layer's
    weights; all arithmetic is float64 and rounded up.
    """
    if norm not in get_args(Norm):
        raise RequestError(f"the norm must be l1, l2 or linf, got {norm!r}")
    coordinates = math.prod(shape)
    if not noise.after_map:
        return _of_input(noise, norm, coordinates)
    if first_map is None:
        raise RequestError("noise after the first map needs that map: find it with find_first_map")
    if first_map.columns != coordinates:
        raise RequestError(
            f"the first map reads {first_map.columns} numbers, "
            f"but an input of shape {tuple(shape)} has {coordinates}"
        )
    _refuse_extremes(first_map.absolute_sums(noise.after_first_map).total)
    of_layer = _LAYER_GAINS[noise.kind, norm](first_map, noise.after_first_map)
    if noise.at_input == 0:
        return of_layer
    of_input = _of_input(noise, norm, coordinates)
    if noise.kind == "laplace":
        smaller = min(of_input, of_layer, key=lambda each: each.value)
        return Gain(
            norm=norm,
            value=smaller.value,
            exact=False,
            how=f"upper bound, the smaller of two losses, that of {smaller.how}",
        )
    return _in_parallel(noise, norm, of_input, of_layer, first_map)


def _refuse_extremes(total: float) -> None:
    """Bounds on rounding assume that squares neither overflow nor underflow."""
    if total == 0:
        raise RequestError("the first map is zero: the network sees nothing of its input, train it first")
    if not 1 / _LARGEST_SUM < total < _LARGEST_SUM:
        raise RequestError(
            "the first map's weights over the noise scales are too large or too small for float64"
        )


def _of_input(noise: NoiseLayers, norm: Norm, coordinates: int) -> Gain:
    """Gaussian: ``||a||_2 / sigma``, at most ``sqrt(d) / sigma`` for linf. Laplace: ``||a||_1 / b``."""
    if noise.kind == "gaussian":
        reach = {"l1": 1.0, "l2": 1.0, "linf": math.sqrt(coordinates)}[norm]
    else:
        reach = {"l1": 1.0, "l2": math.sqrt(coordinates), "linf": float(coordinates)}[norm]
    return Gain(norm=norm, value=up(reach / noise.at_input), exact=True, how="noise at the input: exact")


def _gaussian_l1(map_: AffineMap, scales: float | Tensor) -> Gain:
    """``sqrt(max_j M_jj)``: a convex function is largest at a corner of the l1 ball."""
    squares, exact = map_.column_squares(scales)
    how = "exact: the largest column of the whitened map" if exact else "upper bound on the largest column"
    return Gain(norm="l1", value=up(math.sqrt(float(squares.max()))), exact=exact, how=how)


def _gaussian_l2(map_: AffineMap, scales: float | Tensor) -> Gain:
    norm, exact = map_.spectral_norm_bound(scales)
    how = (
        "exact: the largest singular value of the whitened map"
        if exact
        else "upper bound on the largest singular value, by the symbol of the map or by sums"
    )
    return Gain(norm="l2", value=norm, exact=exact, how=how)


def _gaussian_linf(map_: AffineMap, scales: float | Tensor) -> Gain:
    """``a'Ma <= sum_ij |M_ij|`` and ``||a||_2 <= sqrt(d)``; without ``M``: the squares of the row sums.

    Row by row, ``|A_k a| <= ||A_k||_1``. The first bound is never worse than that of the rows.
    """
    by_l2 = map_.columns * map_.spectral_norm_bound(scales)[0] ** 2
    if map_.columns <= affine_map.LARGEST_EXACT_SIDE:
        by_sums = _sum_of_magnitudes(map_.gram(scales), map_.gram_error(scales))
    else:
        by_sums = up(float(map_.absolute_sums(scales).rows.square().sum()), terms=map_.rows)
    return Gain(
        norm="linf",
        value=up(math.sqrt(min(by_l2, by_sums))),
        exact=False,
        how="upper bound by sums of magnitudes",
    )


def _laplace_l1(map_: AffineMap, scales: float | Tensor) -> Gain:
    sums = map_.absolute_sums(scales)
    how = "exact: the largest column sum" if sums.exact else "upper bound on the largest column sum"
    return Gain(norm="l1", value=up(float(sums.columns.max())), exact=sums.exact, how=how)


def _laplace_l2(map_: AffineMap, scales: float | Tensor) -> Gain:
    """``||Aa||_1 <= sqrt(rows) ||Aa||_2``, and with the column sums c ``||Aa||_1 <= sum_j c_j |a_j|``."""
    by_rows = math.sqrt(map_.rows) * map_.spectral_norm_bound(scales)[0]
    columns = map_.absolute_sums(scales).columns
    by_columns = up(math.sqrt(float(columns.square().sum())), terms=map_.columns)
    how = "upper bound, sqrt(rows) s_max or the column sums"
    return Gain(norm="l2", value=up(min(by_rows, by_columns)), exact=False, how=how)


def _laplace_linf(map_: AffineMap, scales: float | Tensor) -> Gain:
    """``||Aa||_1 <= sum |A_kj|``, and ``||a||_2 <= sqrt(d)``."""
    by_l2 = math.sqrt(map_.columns) * _laplace_l2(map_, scales).value
    value = up(min(map_.absolute_sums(scales).total, by_l2))
    return Gain(
        norm="linf", value=value, exact=False, how="upper bound, the sum of all magnitudes or sqrt(d) of l2"
    )


_LAYER_GAINS = {
    ("gaussian", "l1"): _gaussian_l1,
    ("gaussian", "l2"): _gaussian_l2,
    ("gaussian", "linf"): _gaussian_linf,
    ("laplace", "l1"): _laplace_l1,
    ("laplace", "l2"): _laplace_l2,
    ("laplace", "linf"): _laplace_linf,
}


def _in_parallel(noise: NoiseLayers, norm: Norm, of_input: Gain, of_layer: Gain, map_: AffineMap) -> Gain:
    """Both noises: ``1/L^2 >= 1/L_x^2 + 1/L_h^2`` in every norm, with equality for l2.

    In the parallel sum take ``u = t a``, ``v = (1 - t) a``: ``a'Ga <= t^2 L_h^2 + (1 - t)^2 L_x^2``, least
    at ``t = L_x^2 / (L_x^2 + L_h^2)``. For l1 and linf ``G`` itself does better; it is formed up to 4096
    inputs.
    """
    value = up(1 / math.hypot(1 / of_input.value, 1 / of_layer.value))
    if norm == "l2":
        exact = of_layer.exact
        return Gain(norm=norm, value=value, exact=exact, how=f"both noises in parallel; {of_layer.how}")
    if map_.columns > affine_map.LARGEST_EXACT_SIDE:
        return Gain(
            norm=norm, value=value, exact=False, how="upper bound: the gains of both noises in parallel"
        )
    joint, error = _joint(noise, map_)
    if norm == "l1":
        squared = up(float(joint.diagonal().max()) + error)
        exact = error <= _NEGLIGIBLE * squared
        value = min(value, up(math.sqrt(squared)))
        how = "exact: the largest diagonal entry of G" if exact else "upper bound on the diagonal of G"
        return Gain(norm=norm, value=value, exact=exact, how=how)
    spectral = gain(noise, "l2", shape=map_.input_shape, first_map=map_).value
    squared = min(_sum_of_magnitudes(joint, error), map_.columns * spectral**2)
    value = min(value, up(math.sqrt(squared)))
    return Gain(norm=norm, value=value, exact=False, how="upper bound by sums of magnitudes of G")


def _joint(noise: NoiseLayers, map_: AffineMap) -> tuple[Tensor, float]:
    """``G`` for both noises and a bound ``e`` on its error: ``G <= computed + e I`` as matrices.

    ``G = (I - H^{-1}) / c`` with ``c = sigma_x^2``, ``H = I + c M``. For the computed inverse ``X``,
    ``||H^{-1} - X|| <= ||H^{-1}|| ||I - HX||``, and ``||H^{-1}|| <= 2`` as long as the error of the Gram
    matrix is below ``1 / 2c``. That error itself enters ``G`` at most fourfold: ``m / (1 + c m)`` is operator
    monotone, and its slope is at most 4 where ``c m > -1/2``.
    """
    gram, gram_error = map_.gram(noise.after_first_map), map_.gram_error(noise.after_first_map)
    c, size = noise.at_input**2, map_.columns
    h = (c * gram).clone()
    h.diagonal().add_(1)
    factor, failed = torch.linalg.cholesky_ex(h)
    if bool(failed) or not c * gram_error < 0.5:
        return torch.eye(size, dtype=torch.float64) / c, 0.0  # G <= I / c always
    inverse = torch.cholesky_inverse(factor)
    residual = h @ inverse
    residual.diagonal().sub_(1)
    products = float(h.norm()) * float(inverse.norm())
    error = 2 * (float(residual.norm()) + (size + 16) * UNIT * products) / c
    joint = (inverse + inverse.T).div_(-2)
    joint.diagonal().add_(1)
    return joint / c, up(error + 4 * gram_error, terms=size**2 + 8)


def _sum_of_magnitudes(matrix: Tensor, error: float) -> float:
    """``a' (matrix + error I) a`` is at most this for ``||a||_inf <= 1``."""
    return up(float(matrix.abs().sum()) + len(matrix) * error, terms=len(matrix) ** 2)
