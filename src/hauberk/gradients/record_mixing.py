"""Layers that mix records, refused by name.

Per-record clipping bounds a record's influence only if the record's gradient depends on that record alone.
Batch statistics break that: one record changes the gradients of all the others.
"""

from __future__ import annotations

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from hauberk.errors import RequestError


def refuse_record_mixing(model: nn.Module) -> None:
    """Raise a :class:`RequestError` that names the first layer through which records would meet.

    BatchNorm with frozen statistics (``layer.eval()``, running statistics from public data) is an ordinary
    affine layer and passes. The model is never rewritten.
    """
    for path, layer in model.named_modules():
        name = f"{type(layer).__name__} at '{path}'" if path else type(layer).__name__
        if isinstance(layer, _BatchNorm) and (layer.training or not layer.track_running_stats):
            raise RequestError(
                f"{name} mixes the records of a batch, so no record's influence can be bounded: use "
                "GroupNorm, or freeze it with public statistics by calling .eval() on the layer"
            )
        if isinstance(layer, _InstanceNorm) and layer.training and layer.track_running_stats:
            raise RequestError(
                f"{name} keeps running statistics of the records without noise: "
                "build it with track_running_stats=False"
            )
        if isinstance(layer, nn.Embedding | nn.EmbeddingBag):
            if layer.max_norm is not None:
                raise RequestError(
                    f"{name} rescales the rows that a batch looks up, in place and without noise: "
                    "build it with max_norm=None"
                )
            if layer.scale_grad_by_freq:
                raise RequestError(
                    f"{name} divides gradients by how often the whole batch looks a row up: "
                    "build it with scale_grad_by_freq=False"
                )
