"""What the methods with a noise layer share: Gaussian noise after the first affine map, then and now.

    h1 = W1 x + N(0, sigma_r^2 K r),    sigma_r = sigma Delta                           (000 Eq. 8, Theorem 3)

``sigma`` is calibrated so that ``h1`` is (epsilon_r, delta_r)-private in the input's pixels for attacks of a
given size if W1 had norm one; ``Delta`` is the norm of W1 at the start, a public number. The sound variants
hold W1 there (PixelDP does so by Parseval training): after every step it is scaled down to ``Delta`` if it is
above, a function of released weights. The certificate asks nothing of this: it computes the gain of the
weights that were released.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from hauberk.accounting import PrivacyPlan
from hauberk.certify import NoiseLayers
from hauberk.certify.first_map import FirstMap, find_first_map
from hauberk.data import Dataset
from hauberk.errors import RequestError
from hauberk.methods.base import Constants, Given, Method
from hauberk.training import (
    LayerNoiseViews,
    NoiseAfter,
    NoisyViews,
    RecordViews,
    SharedNoiseViews,
    hold_norm,
    map_norm,
)

SMALLEST_SIGMA, LARGEST_SIGMA = 1e-6, 1e6
_GAMMA_STEP = (1 << 50) + 1  # a number that no training step has


class NoiseLayerMethod(Method):
    """``sigma``: noise over the first map's norm. ``held``: that norm is kept where it was at the start.
    ``shared_noise``: one draw for all records and steps, as 000 prints it, instead of a fresh one for each.
    Other settings: `Method`."""

    released_constants = ("scales",)

    def __init__(
        self,
        model: nn.Module,
        *,
        plan: PrivacyPlan,
        sigma: float,
        views: int = 1,
        held: bool = True,
        shared_noise: bool = False,
        **settings: Any,
    ) -> None:
        if not SMALLEST_SIGMA <= sigma <= LARGEST_SIGMA:
            raise RequestError(
                f"sigma must lie between {SMALLEST_SIGMA:g} and {LARGEST_SIGMA:g}, got {sigma:g}: without "
                "noise there is no certificate, and with more there is nothing else"
            )
        super().__init__(model, plan=plan, views=NoisyViews(sigma=0.0, views=views), **settings)
        self.sigma, self.held, self.shared_noise = sigma, held, shared_noise

    def layer_scales(self, given: Given, first_map: FirstMap, sigma: float) -> Tensor:
        """Standard deviations of the noise on every output of the first map; here the same on all."""
        return torch.full(first_map.output_shape, sigma)

    def _norm(self, shape: tuple[int, ...]) -> float:
        """Delta: the first map's norm before training."""
        return float(map_norm(find_first_map(self.model, shape).layer))

    def check(self, public: Dataset | None, *, shape: tuple[int, ...]) -> None:
        if not 0 < self._norm(shape) < float("inf"):
            raise RequestError("the first map is zero or not finite before training: give other weights")

    def settle(self, given: Given) -> Constants:
        first_map = find_first_map(given.model, given.private.shape)
        scales = self.layer_scales(given, first_map, self.sigma * self._norm(given.private.shape))
        constants = {"scales": scales}
        if self.shared_noise:
            normals = given.randomness.normals(
                step=_GAMMA_STEP, count=scales.numel(), device=torch.device("cpu")
            )
            constants["gamma"] = normals.float().view_as(scales) * scales.cpu()
        return constants

    def noise_layers(self, constants: Constants) -> NoiseLayers:
        scales = constants["scales"]
        one = scales.flatten()[0]
        even = bool((scales == one).all())  # one number makes smaller work of the gain
        return NoiseLayers(after_first_map=float(one) if even else scales)

    def in_training(self, model: nn.Module, shape: tuple[int, ...], constants: Constants) -> nn.Module:
        return NoiseAfter(model, find_first_map(model, shape).name)

    def record_views(self, model: nn.Module, shape: tuple[int, ...], constants: Constants) -> RecordViews:
        if self.shared_noise:
            return SharedNoiseViews(noise=constants["gamma"])
        output_shape = find_first_map(model, shape).output_shape
        return LayerNoiseViews(
            at_input=0.0, after_layer=constants["scales"], shape=output_shape, views=self.views.views
        )

    def hold(self, model: nn.Module, shape: tuple[int, ...]) -> Callable[[], None] | None:
        if not self.held:
            return None
        layer, bound = find_first_map(model, shape).layer, self._norm(shape)
        return lambda: hold_norm(layer, bound)
