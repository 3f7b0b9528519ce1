"""The general path for a single layer: no rule, every record's gradient materialised by ``torch.func``.

For layers that hold parameters of their own and have no rule. The layer is computed once more per record,
from the inputs that it was given, which is usually a small part of the model.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from hauberk.gradients.contributions import Materialised, PerRecordGradient
from hauberk.gradients.rules.registry import LayerCall, UnfitLayer


def any_layer_gradients(call: LayerCall) -> dict[str, PerRecordGradient]:
    weights = {name: weight.detach() for name, weight in call.layer.named_parameters() if name in call.wanted}
    constants: dict[str, Tensor] = {
        name: weight.detach() for name, weight in call.layer.named_parameters() if name not in weights
    }
    constants |= dict(call.layer.named_buffers())
    inputs = tuple(_split(call, value) for value in call.inputs)
    keywords = {name: _split(call, value) for name, value in call.keywords.items()}
    received = [None if each is None else call.per_record(each) for each in call.output_gradients]

    def pulled_back(
        weights: dict[str, Tensor], inputs: Any, keywords: Any, received: list[Tensor | None]
    ) -> Tensor:
        outputs = functional_call(call.layer, {**constants, **weights}, inputs, keywords)
        outputs = (outputs,) if isinstance(outputs, Tensor) else outputs
        parts = [
            (output * each).sum()
            for output, each in zip(outputs, received, strict=True)
            if each is not None and output is not None
        ]
        return torch.stack(parts).sum()

    axes = (None, _axes(inputs), _axes(keywords), [None if each is None else 0 for each in received])
    try:
        gradients = vmap(grad(pulled_back), in_dims=axes, randomness="error")(
            weights, inputs, keywords, received
        )
    except RuntimeError as error:
        raise UnfitLayer(str(error).splitlines()[0]) from error
    return {name: Materialised(gradient) for name, gradient in gradients.items()}


def _split(call: LayerCall, value: Any) -> Any:
    """Tensors by record; everything else is a constant of the call."""
    return call.per_record(value) if isinstance(value, Tensor) else value


def _axes(values: Any) -> Any:
    if isinstance(values, dict):
        return {name: _axes(value) for name, value in values.items()}
    if isinstance(values, tuple):
        return tuple(_axes(value) for value in values)
    return 0 if isinstance(values, Tensor) else None
