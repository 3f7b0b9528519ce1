"""The fast path: one forward pass and one backward pass for all records and all their views.

    forward     every layer keeps its inputs a                    (as ordinary training does)
    backward    every layer receives its output gradients b       (weight gradients are not computed)
    layer rule  per-record gradients, or what their norms need, from (a, b)
    later       clip factors from the norms; the sum, each record with its factor

The views of a record are extra positions of that record: a layer sees ``records * views`` rows, a rule folds
the views into the positions, and the record is clipped once.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import torch
from torch import Tensor, nn

from hauberk.gradients.contributions import PerRecordGradient
from hauberk.gradients.general import trainable
from hauberk.gradients.losses import ScoreLoss, Views
from hauberk.gradients.recording import Listened, Recorder, layers_to_listen_to
from hauberk.gradients.rules import LayerCall, UnfitLayer


class FastPath:
    """Per-record gradients by layer rules.

    ``copies``: layers' outputs are copied, for models that change in place what a tap must keep.
    """

    name = "fast"

    def __init__(
        self, model: nn.Module, loss: ScoreLoss, *, bfloat16: bool = False, copies: bool = False
    ) -> None:
        self._model, self._loss, self._bfloat16, self._copies = model, loss, bfloat16, copies

    def without_rule(self) -> list[str]:
        """Layers that go the general path one by one."""
        return [
            f"{type(each.layer).__name__} at '{each.path}'" if each.path else type(each.layer).__name__
            for each in layers_to_listen_to(self._model)
            if each.general
        ]

    def gradients(self, views: Views, labels: Tensor) -> tuple[dict[str, PerRecordGradient], Tensor]:
        """What each record gives to each parameter, and each record's loss."""
        with torch.enable_grad():
            recorder, losses = self._forward(layers_to_listen_to(self._model), views, labels)
            recorder.backward(losses.sum())
        return recorder.gradients(trainable(self._model)), losses.detach()

    def check_records_stay_apart(self, views: Views, labels: Tensor) -> None:
        """Pull one record's loss back alone: no layer may receive a gradient in another record's rows.

        Raises `UnfitLayer`. Exact, and in the model's own mode: it finds mixing that is small, that happens
        in training only, or that cannot be seen in a sum because the records look alike.
        """
        every = views if isinstance(views, tuple) else (views,)
        fresh = tuple(each.detach().clone().requires_grad_(each.is_floating_point()) for each in every)
        inputs = [each for each in fresh if each.requires_grad]
        for record in (0, len(labels) - 1):
            layers = [_apart(each, record) for each in layers_to_listen_to(self._model)]
            with torch.enable_grad():
                recorder, losses = self._forward(layers, fresh, labels)
                received = recorder.backward(losses[record], *inputs)
            for gradient in received:
                if gradient is not None and _in_other_rows(gradient, record):
                    raise UnfitLayer("records meet in the model's input")

    def _forward(self, layers: list[Listened], views: Views, labels: Tensor) -> tuple[Recorder, Tensor]:
        every = views if isinstance(views, tuple) else (views,)
        records, count = every[0].shape[:2]
        device = next(iter(trainable(self._model).values())).device
        recorder = Recorder(layers, records=records, views=count, device=device, copies=self._copies)
        precision = torch.autocast(device.type, torch.bfloat16) if self._bfloat16 else nullcontext()
        with recorder.listening(), precision:
            scores = self._model(*(each.flatten(0, 1) for each in every))
        if not isinstance(scores, Tensor) or len(scores) != records * count:
            raise UnfitLayer("the model does not answer with one row per view")
        losses = self._loss.of_scores(scores.view(records, count, *scores.shape[1:]), labels)
        if losses.shape != (records,):
            raise UnfitLayer("the loss does not give one number per record")
        return recorder, losses


def _in_other_rows(by_record: Tensor, record: int) -> bool:
    return bool(by_record[:record].any() or by_record[record + 1 :].any())


def _apart(listened: Listened, record: int) -> Listened:
    """The same layer with a rule that also refuses gradients in the rows of any other record."""

    def rule(call: LayerCall) -> dict[str, PerRecordGradient]:
        for gradient in call.output_gradients:
            if gradient is not None and _in_other_rows(call.per_record(gradient), record):
                raise UnfitLayer(f"records meet behind '{listened.path}'")
        return listened.rule(call)

    return replace(listened, rule=rule)
