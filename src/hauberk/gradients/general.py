"""The general path: ``torch.func``, any model, any per-record loss. The reference for the fast one.

The gradient is a pure function of one record (with all its views) and of the parameters. Other passes through
the model leave no trace here, because nothing is recorded.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from hauberk.gradients.contributions import Materialised, PerRecordGradient
from hauberk.gradients.losses import RecordLoss, Views


def trainable(model: nn.Module) -> dict[str, Tensor]:
    """The parameters that training may change, by name; ``requires_grad=False`` is honoured."""
    return {name: weight.detach() for name, weight in model.named_parameters() if weight.requires_grad}


class GeneralPath:
    """Every record's gradient, materialised."""

    name = "general"

    def __init__(self, model: nn.Module, loss: RecordLoss) -> None:
        self._model = model

        def record_loss(weights: dict[str, Tensor], views: Views, label: Tensor) -> Tensor:
            constants = {
                name: weight.detach() for name, weight in model.named_parameters() if not weight.requires_grad
            }
            everything = {**constants, **dict(model.named_buffers()), **weights}

            def predict(inputs: Any) -> Tensor:
                arguments = inputs if isinstance(inputs, tuple) else (inputs,)
                answers: Tensor = functional_call(model, everything, arguments)
                return answers

            return loss(predict, views, label)

        # "different": layers that draw (dropout) draw anew for every record.
        self._per_record = vmap(grad_and_value(record_loss), in_dims=(None, 0, 0), randomness="different")

    def gradients(self, views: Views, labels: Tensor) -> tuple[dict[str, PerRecordGradient], Tensor]:
        """What each record gives to each parameter, and each record's loss."""
        gradients, losses = self._per_record(trainable(self._model), views, labels)
        return {name: Materialised(gradient) for name, gradient in gradients.items()}, losses.detach()
