"""PReLU: one slope per channel, or a single one, for negative inputs."""

from __future__ import annotations

from torch import nn

from hauberk.gradients.contributions import Materialised, PerRecordGradient
from hauberk.gradients.rules.registry import LayerCall, gradient_rule


@gradient_rule(nn.PReLU)
def prelu_gradients(call: LayerCall) -> dict[str, PerRecordGradient]:
    layer = call.layer
    assert isinstance(layer, nn.PReLU)
    products = call.per_record(call.output_gradient * call.input.clamp_max(0.0))
    if layer.num_parameters == 1:
        return {"weight": Materialised(products.flatten(1).sum(1, keepdim=True))}
    return {"weight": Materialised(products.flatten(3).sum((1, 3)) if products.ndim > 3 else products.sum(1))}
