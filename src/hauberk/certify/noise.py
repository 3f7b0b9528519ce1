"""Where a smoothed classifier adds noise, of which kind, and how much."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from hauberk.errors import RequestError

Norm = Literal["l1", "l2", "linf"]
"""How the size of a perturbation of the input is measured."""

NoiseKind = Literal["gaussian", "laplace"]

SMALLEST_SCALE, LARGEST_SCALE = 1e-100, 1e100
"""Between these, squares of scales neither overflow nor underflow, so that bounds on rounding hold."""


@dataclass(frozen=True, kw_only=True, eq=False)
class NoiseLayers:
    """Independent noise on the input, on the output of the first affine map, or on both.

    ``at_input`` and ``after_first_map`` are standard deviations (gaussian) or scales ``b`` of the density
    ``exp(-|t| / b) / 2b`` (laplace); 0 means no noise there. ``after_first_map`` may be a tensor of positive
    scales that broadcasts to the map's output without the batch axis: one scale per output is the
    heterogeneous mechanism of 000, where output ``k`` of ``K`` has the standard deviation
    ``sigma_r sqrt(K r_k)``. The tensor is copied. ``first_map`` names the layer; without it the first Linear
    or Conv2d that runs is meant.

    Guaranteed once built: there is noise somewhere, and every scale lies between 1e-100 and 1e100.
    """

    kind: NoiseKind = "gaussian"
    at_input: float = 0.0
    after_first_map: float | Tensor = 0.0
    first_map: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(NoiseKind):
            raise RequestError(f"noise must be 'gaussian' or 'laplace', got {self.kind!r}")
        _check_scale("the noise at the input", self.at_input)
        if isinstance(self.after_first_map, Tensor):
            object.__setattr__(self, "after_first_map", _checked_scales(self.after_first_map))
        else:
            _check_scale("the noise after the first map", self.after_first_map)
        if not (self.at_input > 0 or self.after_map):
            raise RequestError(
                "give noise at the input or after the first map: without it nothing is certified"
            )
        if self.first_map is not None and not self.after_map:
            raise RequestError(
                f"the layer '{self.first_map}' is named, but there is no noise after it: "
                "set after_first_map or leave the name out"
            )

    @property
    def after_map(self) -> bool:
        """Whether there is noise after the first map."""
        return isinstance(self.after_first_map, Tensor) or self.after_first_map > 0

    @property
    def words(self) -> str:
        """For people: ``input noise 0.25``, say."""
        kind = "" if self.kind == "gaussian" else f"{self.kind} "
        places = [f"{kind}input noise {self.at_input:g}"] if self.at_input else []
        if isinstance(self.after_first_map, Tensor):
            typical = float(self.after_first_map.double().square().mean().sqrt())
            places.append(f"{kind}noise {typical:.3g} (root mean square) after the first map")
        elif self.after_first_map:
            places.append(f"{kind}noise {self.after_first_map:g} after the first map")
        return " and ".join(places)

    def draw(self, like: Tensor, scale: float | Tensor, generator: torch.Generator) -> Tensor:
        """Fresh noise of this kind and ``scale``, independent in every entry, in the shape of ``like``.

        Drawn in float32 or better and then rounded to the type of ``like``.
        """
        dtype = torch.promote_types(like.dtype, torch.float32)
        if self.kind == "gaussian":
            noise = torch.randn(like.shape, generator=generator, device=like.device, dtype=dtype)
        else:
            # The difference of two independent exponential variables is a Laplace variable.
            both = torch.empty((2, *like.shape), device=like.device, dtype=dtype)
            both.exponential_(generator=generator)
            noise = both[0].sub_(both[1])
        factor = scale.to(noise) if isinstance(scale, Tensor) else scale
        return noise.mul_(factor).to(like.dtype)


def _check_scale(what: str, scale: float) -> None:
    number = isinstance(scale, int | float) and not isinstance(scale, bool)
    if not number or not (scale == 0 or SMALLEST_SCALE <= scale <= LARGEST_SCALE):
        raise RequestError(f"{what} must be 0 or a number between 1e-100 and 1e100, got {scale!r}")


def _checked_scales(scales: Tensor) -> Tensor:
    if not scales.is_floating_point() or scales.numel() == 0:
        raise RequestError("the scales after the first map must be floating-point numbers, at least one")
    wide = scales.double()
    if not bool(((wide >= SMALLEST_SCALE) & (wide <= LARGEST_SCALE)).all()):
        raise RequestError(
            "every scale after the first map must lie between 1e-100 and 1e100: an output without noise "
            "would tell the input exactly"
        )
    return scales.detach().clone()
