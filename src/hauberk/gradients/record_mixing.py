"""Layers that mix records, and models that remember them, refused by name.

Per-record clipping bounds a record's influence only if the record's gradient depends on that record alone.
Batch statistics break that: one record changes the gradients of all the others. So does whatever a model
keeps of the records that it has seen: it moves later gradients, and is released without noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from hauberk.errors import RequestError
from hauberk.gradients.losses import RecordLoss, ScoreLoss, Views


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


def refuse_remembered_records(model: nn.Module, loss: RecordLoss, views: Views, labels: Tensor) -> None:
    """Raise a :class:`RequestError` that names what the model changes in itself when it looks at records.

    Tried on a copy, in the model's own mode, with made-up records: a pass must leave every parameter and
    every buffer as it was.
    """
    try:
        copy = deepcopy(model)
    except Exception as error:  # legacy weight_norm, for one
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise RequestError(f"this model cannot be copied: {reason}") from error
    # a model that cannot make this pass is told what is wrong with it where its path is chosen
    with torch.random.fork_rng(), suppress(Exception):
        if isinstance(loss, ScoreLoss):
            copy(*(each.flatten(0, 1) for each in (views if isinstance(views, tuple) else (views,))))
        else:
            for record, label in enumerate(labels):
                one = tuple(each[record] for each in views) if isinstance(views, tuple) else views[record]
                loss(lambda x: copy(*(x if isinstance(x, tuple) else (x,))), one, label)
    before, after = _state(model), _state(copy)
    for name, value in after.items():
        if name not in before or not _same(value, before[name]):
            raise RequestError(
                f"the model's pass over records changes its own '{name}', where something of them could be "
                "kept without noise: remove what updates it, or call .eval() on that layer"
            )


def _state(model: nn.Module) -> Mapping[str, Tensor]:
    return dict(model.named_parameters()) | dict(model.named_buffers())


def _same(first: Tensor, second: Tensor) -> bool:
    if first.shape != second.shape:
        return False
    first, second = first.detach(), second.detach()
    equal = first == second
    if first.is_floating_point():
        equal |= first.isnan() & second.isnan()
    return bool(equal.all())
