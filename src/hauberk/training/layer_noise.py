"""Training under noise after the first map: a network that takes the noise as a second input, and its views.

    input -> (+ noise) -> first affine map -> (+ noise) -> the rest of the network

The noise of a record is a function of (step, record, view), like that of `NoisyViews`: a neighbour shifts
nobody else's. As an input of the network it needs nothing of the gradient engine: it is one more view.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from hauberk.errors import RequestError
from hauberk.randomness import Key, keyed_normals

_LAYER_VIEWS = 1 << 20  # numbers of views that no input noise uses


class NoiseAfter(nn.Module):
    """``network`` with given noise on the output of its layer ``layer``: ``forward(x, noise)``.

    The parameters are the network's own: training this trains that.
    """

    def __init__(self, network: nn.Module, layer: str) -> None:
        super().__init__()
        self.network, self.layer = network, layer

    def forward(self, x: Tensor, noise: Tensor) -> Tensor:
        # while it runs only, and so after whatever else listens to the layer's own output
        hook = self.network.get_submodule(self.layer).register_forward_hook(
            lambda _, __, output: output + noise
        )
        try:
            answer: Tensor = self.network(x)
        finally:
            hook.remove()
        return answer


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerNoiseViews:
    """``views`` copies of each record, each with Gaussian noise of its own at the input and after a layer.

    ``at_input`` and ``after_layer`` are standard deviations, the second one number or one per output;
    ``shape`` is that of the layer's output for one record. Gives a pair of tensors, inputs and noise.
    """

    at_input: float
    after_layer: float | Tensor = field(repr=False)  # several processes compare settings, then share this
    shape: tuple[int, ...]
    views: int

    def __post_init__(self) -> None:
        if self.views < 1:
            raise RequestError(f"views must be at least 1, got {self.views}")

    def __call__(self, x: Tensor, *, records: Tensor, step: int, key: Key) -> tuple[Tensor, Tensor]:
        noise = keyed_normals(
            key, step=step, records=records, views=self.views, shape=self.shape, first_view=_LAYER_VIEWS
        )
        scale = self.after_layer
        noise *= scale.to(noise) if isinstance(scale, Tensor) else scale
        inputs = x.unsqueeze(1).expand(-1, self.views, *x.shape[1:])
        if self.at_input:
            own = keyed_normals(key, step=step, records=records, views=self.views, shape=tuple(x.shape[1:]))
            inputs = inputs + self.at_input * own
        return inputs, noise


@dataclass(frozen=True, kw_only=True, eq=False)
class SharedNoiseViews:
    """Each record once, with one and the same ``noise`` after a layer for all records and all steps (000)."""

    noise: Tensor = field(repr=False)

    def __call__(self, x: Tensor, *, records: Tensor, step: int, key: Key) -> tuple[Tensor, Tensor]:
        noise = self.noise.to(x)
        return x.unsqueeze(1), noise.expand(len(x), 1, *noise.shape)


@torch.no_grad()
def map_norm(layer: nn.Linear | nn.Conv2d) -> Tensor:
    """The layer's l2 norm as a map, near enough for training; certificates compute their own.

    For a convolution it is the largest value of the symbol on a grid. A stride leaves rows out and a border
    cuts some off: the layer's own norm is not above that of the symbol.
    """
    weight = layer.weight
    if isinstance(layer, nn.Linear):
        norm: Tensor = torch.linalg.matrix_norm(weight, 2)
        return norm
    if layer.groups != 1:
        raise RequestError("the norm of a grouped convolution is not known here: use one group")
    height, width = (4 * size for size in weight.shape[2:])
    symbol = torch.fft.fft2(weight.float(), s=(height, width)).permute(2, 3, 0, 1)
    small = symbol.mH @ symbol if symbol.shape[-1] <= symbol.shape[-2] else symbol @ symbol.mH
    largest: Tensor = torch.linalg.eigvalsh(small).amax().clamp_min(0).sqrt()
    return largest.to(weight)


@torch.no_grad()
def hold_norm(layer: nn.Linear | nn.Conv2d, bound: float) -> None:
    """Scale the layer's weights down until `map_norm` is at most ``bound``, if it is above.

    A function of weights that have been released already: it costs no privacy.
    """
    layer.weight.mul_((bound / map_norm(layer)).clamp(max=1.0))
