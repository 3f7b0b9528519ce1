"""From noisy gradients to weights: post-processing, free of privacy cost."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hauberk.errors import RequestError


@dataclass(frozen=True, kw_only=True)
class Optimisation:
    """SGD with momentum, a learning rate that falls linearly to zero over the last part, weight averaging."""

    lr: float
    momentum: float = 0.9
    falling_part: float = 0.3
    averaging: float = 0.97

    def __post_init__(self) -> None:
        if not 0 < self.lr < float("inf"):
            raise RequestError(f"lr must be positive and finite, got {self.lr}")
        for name in ("momentum", "falling_part", "averaging"):
            if not 0 <= getattr(self, name) < 1:
                raise RequestError(f"{name} must lie in [0, 1), got {getattr(self, name)}")

    def lr_at(self, step: int, steps: int) -> float:
        """Constant, then linear to zero; the last step still moves."""
        falling = self.falling_part * steps
        return self.lr * min(1.0, (steps - step) / falling if falling > 0 else 1.0)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        return torch.optim.SGD(weights, lr=self.lr, momentum=self.momentum)


class AveragedWeights:
    """Exponential moving average of the trained weights.

    The decay warms up over the first steps, so that the random initialisation does not linger in it.
    """

    def __init__(self, weights: dict[str, Tensor], decay: float) -> None:
        self.decay = decay
        self.values = {name: weight.clone() for name, weight in weights.items()}

    def update(self, weights: dict[str, Tensor], step: int) -> None:
        decay = min(self.decay, (1 + step) / (10 + step))
        for name, weight in weights.items():
            self.values[name].lerp_(weight, 1 - decay)
