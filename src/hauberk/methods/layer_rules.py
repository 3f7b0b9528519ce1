"""Gradient rules for the layers of our own networks (rooms below know neither each other nor this file)."""

from __future__ import annotations

from hauberk.gradients import LayerCall, Materialised, PerRecordGradient, gradient_rule
from hauberk.models.transformer import LearnedPositions


@gradient_rule(LearnedPositions)
def position_gradients(call: LayerCall) -> dict[str, PerRecordGradient]:
    """The vectors are added to the tokens: a record's gradient is the output gradient, over its views."""
    return {"vectors": Materialised(call.per_record(call.output_gradient).sum(1))}
