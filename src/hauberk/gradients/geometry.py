"""The shape in which gradients are clipped and noise is added."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from hauberk.errors import RequestError
from hauberk.gradients.contributions import Materialised, PerRecordGradient


@dataclass(frozen=True, eq=False)
class Geometry:
    """A public positive scale for every coordinate: clip ``g / s``, add round noise, multiply by ``s``.

    With a public ``centre`` ``c`` the clipped gradient is ``(g - c) / s``, and ``c`` is added to the noisy
    mean in the end (AdaClip). A public ``mask`` of zeros and ones leaves coordinates out: of the gradients
    before clipping, and of the noisy mean.

    Guarantee: exactly that of the clipping beneath it. The scales are public constants (or were released
    privately before), so dividing and multiplying by them is pre- and post-processing; coordinate ``j`` of
    the released gradient carries noise of standard deviation ``s_j`` times that of the mechanism.

    ``scales`` holds a number or a tensor per parameter name; a parameter that is not named has scale 1.
    """

    scales: Mapping[str, Tensor | float]
    centre: Mapping[str, Tensor] | None = None
    mask: Mapping[str, Tensor] | None = None
    returns_centre: bool = True

    def __post_init__(self) -> None:
        for name, scale in self.scales.items():
            values = torch.as_tensor(scale)
            if not bool((values > 0).all() and values.isfinite().all()):
                raise RequestError(f"the scale of {name!r} must be positive and finite everywhere")

    def check(self, weights: Mapping[str, Tensor]) -> None:
        """A scale for a parameter that does not exist, or of another shape, is a mistake."""
        for name, scale in self.scales.items():
            if name not in weights:
                raise RequestError(f"the geometry names {name!r}, which is no trainable parameter")
            shape = torch.as_tensor(scale).shape
            if shape not in (torch.Size(()), weights[name].shape):
                raise RequestError(
                    f"the scale of {name!r} has shape {tuple(shape)}, "
                    f"its parameter {tuple(weights[name].shape)}"
                )

    def divided(
        self, gradients: Mapping[str, PerRecordGradient], like: Mapping[str, Tensor]
    ) -> dict[str, PerRecordGradient]:
        """Per-record gradients ``(g - c) / s``."""
        divided = dict(gradients)
        for name, gradient in gradients.items():
            if self.centre is not None and name in self.centre:
                gradient = Materialised(gradient.materialised() - self.centre[name].to(like[name]))
            if name in self.scales:
                gradient = gradient.scaled(self._scale(name, like).reciprocal())
            if self.mask is not None and name in self.mask:
                gradient = gradient.scaled(self.mask[name].to(like[name]))
            divided[name] = gradient
        return divided

    def restored(self, means: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """A noisy mean, multiplied by ``s`` and put back around the centre."""
        restored = dict(means)
        for name, mean in means.items():
            if name in self.scales:
                restored[name] = mean * self._scale(name, means)
            if self.returns_centre and self.centre is not None and name in self.centre:
                restored[name] = restored[name] + self.centre[name].to(mean)
            if self.mask is not None and name in self.mask:
                restored[name] = restored[name] * self.mask[name].to(mean)
        return restored

    def _scale(self, name: str, like: Mapping[str, Tensor]) -> Tensor:
        return torch.as_tensor(self.scales[name]).to(like[name])
