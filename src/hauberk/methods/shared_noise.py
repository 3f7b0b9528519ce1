"""A network with one draw of noise for everybody, at its input and after its first map: what 003 deploys.

    x + chi_x  ->  first map  ->  + chi_h  ->  the rest                                 (003 Alg. 1, line 3)

The draws are made before training and stay. Whoever knows two perturbed inputs knows the difference of the
inputs: nothing is hidden by noise that all have in common.

At test time the same two draws are added, and fresh noise on top (003 appendix N). ``W chi_x`` is the same
for all inputs, so both draws are one constant after the first map, ``W x + b + (W chi_x + chi_h)``: for a
certificate they belong to the rest of the network, and fresh noise around the first map is covered as ever.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from hauberk.certify.first_map import find_first_map
from hauberk.errors import RequestError
from hauberk.methods.adlm import find_output_layer

AfterFirst = Callable[[Tensor, Tensor], Tensor]
"""What follows the first layer in place of its output: a function of the layer's input and its output."""


class SharedNoise(nn.Module):
    """``network`` (copied) for inputs of ``shape``; ``forward`` takes inputs that nobody has perturbed yet.

    The buffers ``input_noise`` and ``layer_noise`` are zero until they are drawn, and part of the weights'
    file. The bias of the first layer, which 003 does not have, stays where it started.
    """

    input_noise: Tensor
    layer_noise: Tensor

    def __init__(self, network: nn.Module, *, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.network = copy.deepcopy(network)
        first_map, output = find_first_map(self.network, shape), find_output_layer(self.network, shape)
        if first_map.layer is output:
            raise RequestError(
                "stobatch trains the first layer and the last on different objectives: use a network with "
                "more layers than one"
            )
        self._first = first_map.name
        self._output = next(name for name, each in self.network.named_modules() if each is output)
        like = first_map.layer.weight.detach()
        self.register_buffer("input_noise", like.new_zeros(shape))
        self.register_buffer("layer_noise", like.new_zeros(first_map.output_shape))
        if first_map.layer.bias is not None:
            first_map.layer.bias.requires_grad_(False)

    @property
    def first(self) -> nn.Linear | nn.Conv2d:
        layer = self.network.get_submodule(self._first)
        assert isinstance(layer, nn.Linear | nn.Conv2d)  # as found
        return layer

    @property
    def output(self) -> nn.Linear:
        layer = self.network.get_submodule(self._output)
        assert isinstance(layer, nn.Linear)  # as found
        return layer

    @torch.no_grad()
    def put(self, *, at_input: Tensor, after_first: Tensor) -> None:
        """Fill in the two draws."""
        self.input_noise.copy_(at_input)
        self.layer_noise.copy_(after_first)

    def forward(self, x: Tensor) -> Tensor:
        return self.answer(x, lambda read, output: output + (self._mapped(read) + self.layer_noise))

    def answer(self, x: Tensor, after_first: AfterFirst) -> Tensor:
        """The network's answer with ``after_first`` behind its first layer."""
        # while it runs only, and so after whatever else listens to the layer's own output
        hook = self.first.register_forward_hook(lambda _, inputs, output: after_first(inputs[0], output))
        try:
            answer: Tensor = self.network(x)
        finally:
            hook.remove()
        return answer

    def _mapped(self, read: Tensor) -> Tensor:
        """``W chi_x``, without the bias; ``read`` tells the shape in which the layer reads its input."""
        layer, noise = self.first, self.input_noise.reshape(1, *read.shape[1:])
        if isinstance(layer, nn.Linear):
            return nn.functional.linear(noise, layer.weight)
        mapped: Tensor = layer._conv_forward(noise, layer.weight, None)
        return mapped


class FromPerturbed(nn.Module):
    """The same network for inputs that are perturbed already: ``forward(x, noise)`` adds ``noise`` after the
    first map and nothing before. The parameters are the network's own."""

    def __init__(self, shared: SharedNoise) -> None:
        super().__init__()
        self.shared = shared

    def forward(self, x: Tensor, noise: Tensor) -> Tensor:
        return self.shared.answer(x, lambda _, output: output + noise)
