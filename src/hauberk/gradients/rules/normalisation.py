"""Normalisations: ``output = weight * normalised + bias``, so both gradients are sums over positions."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from hauberk.gradients.contributions import Materialised, PerRecordGradient
from hauberk.gradients.rules.registry import LayerCall, gradient_rule


def _affine(call: LayerCall, normalised: Tensor, *, channels_first: bool) -> dict[str, PerRecordGradient]:
    """Sum over all axes but the records' and the parameters'; ``normalised`` is overwritten."""

    def summed(values: Tensor) -> Materialised:
        values = call.per_record(values)  # (records, views or positions, ...)
        if channels_first:  # (records, views, channels, pixels...)
            return Materialised(values.flatten(3).sum((1, 3)) if values.ndim > 3 else values.sum(1))
        trailing = len(next(call.layer.parameters()).shape)
        return Materialised(values.flatten(1, values.ndim - trailing - 1).sum(1))

    gradient = call.output_gradient
    found: dict[str, PerRecordGradient] = {}
    if "weight" in call.wanted:
        found["weight"] = summed(normalised.mul_(gradient))
    if "bias" in call.wanted:
        found["bias"] = summed(gradient)
    return found


def _saved_statistics(call: LayerCall) -> tuple[Tensor | None, Tensor | None]:
    """Mean and inverse deviation that torch's layer kept for its own backward pass, if it did."""
    mean, deviation = (getattr(call.node, f"_saved_result{index}", None) for index in (1, 2))
    if isinstance(mean, Tensor) and isinstance(deviation, Tensor):
        return mean, deviation
    return None, None


@gradient_rule(nn.GroupNorm)
def group_norm_gradients(call: LayerCall) -> dict[str, PerRecordGradient]:
    layer = call.layer
    assert isinstance(layer, nn.GroupNorm)
    mean, deviation = _saved_statistics(call)
    received, given = call.output_gradient.contiguous(), call.input.contiguous()
    if mean is not None and deviation is not None and mean.dtype == received.dtype:
        # All records as the channels of a single one: torch's own kernel then gives one gradient per record.
        rows, channels = given.shape[:2]
        groups, pixels = rows * layer.num_groups, given[0, 0].numel()
        _, weights, biases = torch.ops.aten.native_group_norm_backward(
            received.view(1, -1, pixels), given.view(1, -1, pixels), mean.view(1, groups),
            deviation.view(1, groups), layer.weight.detach().repeat(rows), 1, rows * channels, pixels, groups,
            (False, True, True),
        )  # fmt: skip
        both = {"weight": weights, "bias": biases}
        return {
            name: Materialised(call.per_record(gradient.view(rows, channels)).sum(1))
            for name, gradient in both.items()
        }
    normalised = functional.group_norm(call.input, layer.num_groups, eps=layer.eps)
    return _affine(call, normalised, channels_first=True)


@gradient_rule(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
def instance_norm_gradients(call: LayerCall) -> dict[str, PerRecordGradient]:
    layer = call.layer
    assert isinstance(layer, nn.InstanceNorm1d | nn.InstanceNorm2d | nn.InstanceNorm3d)
    normalised = functional.instance_norm(
        call.input,
        layer.running_mean,
        layer.running_var,
        use_input_stats=layer.training or not layer.track_running_stats,
        eps=layer.eps,
    )
    return _affine(call, normalised, channels_first=True)


@gradient_rule(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
def frozen_batch_norm_gradients(call: LayerCall) -> dict[str, PerRecordGradient]:
    """With frozen public statistics only; `refuse_record_mixing` has refused every other kind."""
    layer = call.layer
    assert isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d)
    normalised = functional.batch_norm(call.input, layer.running_mean, layer.running_var, eps=layer.eps)
    return _affine(call, normalised, channels_first=True)


@gradient_rule(nn.LayerNorm)
def layer_norm_gradients(call: LayerCall) -> dict[str, PerRecordGradient]:
    layer = call.layer
    assert isinstance(layer, nn.LayerNorm)
    given = call.input
    mean, deviation = _saved_statistics(call)
    if mean is not None and deviation is not None and mean.dtype == given.dtype:
        normalised = torch.sub(given, mean).mul_(deviation)
    else:
        normalised = functional.layer_norm(given, layer.normalized_shape, eps=layer.eps)
    return _affine(call, normalised, channels_first=False)


@gradient_rule(nn.RMSNorm)
def rms_norm_gradients(call: LayerCall) -> dict[str, PerRecordGradient]:
    layer = call.layer
    assert isinstance(layer, nn.RMSNorm)
    normalised = torch.rms_norm(call.input, list(layer.normalized_shape), eps=layer.eps)
    return _affine(call, normalised, channels_first=False)
