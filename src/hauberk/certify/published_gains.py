"""The gains that 000 and 003 print: of one feature map, or of one output, where the network reads them all.

000 (Eq. 6 and below; Gaussian noise of standard deviation ``sigma_r sqrt(K r_k)``): ``Delta_f`` is the norm
of ``W_1 / sqrt(K r)`` from l_p to l2, for l_inf bounded by ``sqrt(|h_1|)`` times the largest 1-norm of a row
(printed with ``K r`` for ``sqrt(K r)``). For a convolution, one feature map is to be taken at a time: the
largest over the maps, with ``|h_1|`` the outputs of one map.

003 (section 3.4, appendices F and P; Laplace noise): ``Delta^h = ||theta_1||_inf`` for l_inf, the largest
1-norm of a row, which is the change of one output; for l1 the largest 1-norm of a column. For a convolution
again one feature map at a time. ``Delta^x = d`` for l_inf. Noise at both places counts as two mechanisms,
one after the other: ``rho = Delta^x / b_x + Delta^h / b_h`` (Corollary 1).

What is not printed follows the same rule, the norm of one map: 000 for l1 and l2, 003 for l2.

None of this covers what the rest of the network reads: a perturbation moves all maps at once. Against the
joint gain of m maps the published radius is too large by up to ``sqrt(m)`` (000) or ``m`` (003), and by up to
the number of outputs where one output stands for all. For the `paper` variants only; `gain` is the sound one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from hauberk.certify.affine_map import AffineMap
from hauberk.certify.gains import Gain, gain
from hauberk.certify.noise import NoiseKind, NoiseLayers, Norm
from hauberk.errors import RequestError

Covers = Literal["all outputs", "one feature map", "one output"]


@dataclass(frozen=True, kw_only=True)
class PublishedGain:
    """What a paper takes for the gain, and which part of the first map's output it covers."""

    norm: Norm
    value: float
    covers: Covers
    source: str

    def radius_too_large_by(self, sound: Gain) -> float:
        """Published radius over the one that ``sound`` certifies, for the same votes and certificate.

        Where the sound gain is exact, so is this factor; else the published radius may be too large by less.
        """
        return sound.value / self.value


def published_gain(
    noise: NoiseLayers, norm: Norm, *, shape: tuple[int, ...], first_map: AffineMap | None = None
) -> PublishedGain:
    """As printed in 000 (gaussian) or 003 (laplace). No guarantee follows, unless it covers all outputs."""
    if not noise.after_map:
        sound = gain(noise, norm, shape=shape)
        return PublishedGain(
            norm=norm, value=sound.value, covers="all outputs", source="input noise, as it is"
        )
    if noise.kind == "laplace" and norm == "linf":
        return _single_output(noise, shape=shape, first_map=_required(first_map))
    return single_map_gain(noise, norm, shape=shape, first_map=first_map)


def single_map_gain(
    noise: NoiseLayers, norm: Norm, *, shape: tuple[int, ...], first_map: AffineMap | None = None
) -> PublishedGain:
    """The largest gain of one feature map alone; a Linear layer is a single map."""
    map_ = _required(first_map)
    if norm not in get_args(Norm):
        raise RequestError(f"the norm must be l1, l2 or linf, got {norm!r}")
    scales = torch.as_tensor(noise.after_first_map, dtype=torch.float64).cpu().expand(map_.output_shape)
    largest = max(_alone(noise.kind, norm, one, scales[place]) for one, place in map_.feature_maps())
    convolution = isinstance(map_.layer, nn.Conv2d)
    return PublishedGain(
        norm=norm,
        value=largest + _input_part(noise, norm, shape),
        covers="one feature map" if convolution else "all outputs",
        source=_SOURCES[noise.kind],
    )


_SOURCES = {"gaussian": "000 Eq. 6, one feature map", "laplace": "003 appendix P, one feature map"}


def _alone(kind: NoiseKind, norm: Norm, one: AffineMap, scales: Tensor) -> float:
    largest_row = float(one.absolute_sums(scales).rows.max())
    if largest_row == 0:
        return 0.0
    if kind == "gaussian" and norm == "linf":
        return math.sqrt(one.rows) * largest_row
    return gain(
        NoiseLayers(kind=kind, after_first_map=scales), norm, shape=one.input_shape, first_map=one
    ).value


def _single_output(noise: NoiseLayers, *, shape: tuple[int, ...], first_map: AffineMap) -> PublishedGain:
    rows = first_map.absolute_sums(noise.after_first_map).rows
    return PublishedGain(
        norm="linf",
        value=float(rows.max()) + _input_part(noise, "linf", shape),
        covers="one output",
        source="003 section 3.4, the largest 1-norm of a row",
    )


def _input_part(noise: NoiseLayers, norm: Norm, shape: tuple[int, ...]) -> float:
    """What 003's composition adds for the noise at the input."""
    if noise.at_input == 0:
        return 0.0
    if noise.kind == "gaussian":
        raise RequestError("000 has no gain for Gaussian noise at both places: choose one of them")
    return gain(NoiseLayers(kind="laplace", at_input=noise.at_input), norm, shape=shape).value


def _required(first_map: AffineMap | None) -> AffineMap:
    if first_map is None:
        raise RequestError("noise after the first map needs that map: find it with find_first_map")
    return first_map
