"""Linear layers: ``gradient_i = sum_t b_it a_it^T`` over the positions and views of record ``i``."""

from __future__ import annotations

import torch
from torch import nn

from hauberk.gradients.contributions import Materialised, OuterProducts, PerRecordGradient
from hauberk.gradients.rules.registry import LayerCall, gradient_rule

_READ_AND_WRITE = {"cpu": 8.0}
_READ_AND_WRITE_ELSEWHERE = 24.0
"""Writing a gradient and reading it twice costs about as much as this many multiply-adds per number."""


def outer_is_cheaper(positions: int, inputs: int, outputs: int, device: torch.device) -> bool:
    """Ghost norms cost ``T^2 (D + O)`` beyond the plain sum; gradients in memory ``D O`` numbers."""
    price = _READ_AND_WRITE.get(device.type, _READ_AND_WRITE_ELSEWHERE)
    return positions**2 * (inputs + outputs) < price * inputs * outputs


@gradient_rule(nn.Linear, nn.modules.linear.NonDynamicallyQuantizableLinear)
def linear_gradients(call: LayerCall) -> dict[str, PerRecordGradient]:
    found: dict[str, PerRecordGradient] = {}
    gradients = call.per_record(call.output_gradient).flatten(1, -2)
    if "weight" in call.wanted:
        inputs = call.per_record(call.input).flatten(1, -2)
        products = OuterProducts(inputs, gradients, call.layer.weight.shape)  # type: ignore[arg-type]
        if outer_is_cheaper(gradients.shape[1], inputs.shape[2], gradients.shape[2], inputs.device):
            found["weight"] = products
        else:
            found["weight"] = Materialised(products.materialised())
    if "bias" in call.wanted:
        found["bias"] = Materialised(gradients.sum(1))
    return found
