"""Which rule belongs to which layer, and what a rule is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hauberk.gradients.contributions import PerRecordGradient


class UnfitLayer(Exception):
    """This call of a layer cannot be handled by its rule; the general path takes over."""


@dataclass(frozen=True, kw_only=True)
class LayerCall:
    """One call of a layer during a recorded pass.

    The first axis of inputs and output runs over records, then over views of a record, then over whatever
    positions the model has folded into it. ``wanted`` names the layer's trainable parameters.
    """

    layer: nn.Module
    inputs: tuple[Any, ...]
    keywords: Mapping[str, Any]
    output_gradients: tuple[Tensor | None, ...]
    wanted: frozenset[str]
    node: Any  # autograd's record of the call: what the layer kept for its own backward pass
    records: int
    views: int

    @property
    def output_gradient(self) -> Tensor:
        """The gradient of a layer's only output, in the precision of its parameters."""
        (gradient,) = self.output_gradients
        if gradient is None:
            raise UnfitLayer("its output has no gradient")
        return gradient.to(self._dtype())

    @property
    def input(self) -> Tensor:
        """The layer's first input; whole numbers (of an embedding) stay what they are."""
        first = self.inputs[0] if self.inputs else next(iter(self.keywords.values()))
        if not isinstance(first, Tensor):
            raise UnfitLayer("its first input is no tensor")
        return first.to(self._dtype()) if first.is_floating_point() else first

    def per_record(self, tensor: Tensor) -> Tensor:
        """``(records * anything, ...)`` as ``(records, anything, ...)``."""
        if tensor.ndim == 0 or self.records == 0 or len(tensor) % (self.records * self.views):
            raise UnfitLayer(f"a tensor of shape {tuple(tensor.shape)} does not run over the records")
        return tensor.reshape(self.records, -1, *tensor.shape[1:])

    def _dtype(self) -> torch.dtype:
        for weight in self.layer.parameters():
            return weight.dtype
        return torch.float32


GradientRule = Callable[[LayerCall], dict[str, PerRecordGradient]]
"""Per-record gradients of the wanted parameters, by the layer's own names for them (more do no harm)."""

_RULES: dict[type[nn.Module], GradientRule] = {}


def gradient_rule(*kinds: type[nn.Module]) -> Callable[[GradientRule], GradientRule]:
    """Register a rule for these layer classes (not for subclasses: they may compute something else)."""

    def register(rule: GradientRule) -> GradientRule:
        for kind in kinds:
            _RULES[kind] = rule
        return rule

    return register


def rule_of(layer: nn.Module) -> GradientRule | None:
    return _RULES.get(type(layer))
