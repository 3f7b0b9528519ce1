"""Per-record gradients, one file per layer kind.

A rule turns one call of a layer (its inputs, the gradient of its output) into what each record gives to each
of the layer's parameters. To teach the fast path a layer of your own, one function with one decorator:

    class Gain(nn.Module):                       # output = gain * input, one gain per channel
        ...

    @gradient_rule(Gain)
    def gain_gradients(call: LayerCall) -> dict[str, PerRecordGradient]:
        products = call.per_record(call.input * call.output_gradient)  # (records, positions, channels)
        return {"gain": Materialised(products.sum(1))}

A wrong rule cannot do harm unnoticed: before the first step the fast path is compared with the general one on
made-up records, and not used where they disagree.
"""

from __future__ import annotations

from hauberk.gradients.contributions import Materialised, OuterProducts, PerRecordGradient
from hauberk.gradients.rules.registry import LayerCall, UnfitLayer, gradient_rule, rule_of

# one import per layer kind: importing registers
from hauberk.gradients.rules import convolution, embedding, linear, normalisation, rectifier  # isort: skip  # noqa: F401

__all__ = [
    "LayerCall",
    "Materialised",
    "OuterProducts",
    "PerRecordGradient",
    "UnfitLayer",
    "gradient_rule",
    "rule_of",
]
