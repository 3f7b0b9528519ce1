"""From noisy gradients to weights: post-processing, free of privacy cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from hauberk.errors import RequestError

MakeOptimizer = Callable[[list[nn.Parameter]], torch.optim.Optimizer]
"""Any torch optimizer: ``lambda weights: torch.optim.NAdam(weights, lr=0.01)``."""

Schedule = Callable[[int, int], float]
"""``schedule(step, steps)``: a factor on the learning rate, from step 0 to ``steps - 1``."""


def constant(step: int, steps: int) -> float:
    return 1.0


def cosine(step: int, steps: int) -> float:
    """Half a cosine from 1 towards 0; the last step still moves."""
    return 0.5 * (1 + math.cos(math.pi * step / steps))


def falling_tail(part: float) -> Schedule:
    """1, then linear to 0 over the last ``part`` of training; the last step still moves."""

    def schedule(step: int, steps: int) -> float:
        falling = part * steps
        return min(1.0, (steps - step) / falling if falling > 0 else 1.0)

    return schedule


SCHEDULES: Mapping[str, Schedule] = MappingProxyType(
    {"tail": falling_tail(0.3), "constant": constant, "cosine": cosine}
)
"""By the name the command line gives them; ``tail`` is constant, then falls linearly over the last 30 %."""

OPTIMIZERS = ("sgd", "adam")


@dataclass(frozen=True, kw_only=True)
class Optimisation:
    """An optimizer, a learning-rate schedule, and weight averaging.

    All three see nothing but noisy gradients and the weights made of them, so they cost no privacy.
    ``optimizer`` is ``"sgd"`` (with ``momentum``), ``"adam"`` (``momentum`` is its first decay) or a function
    that makes any torch optimizer; ``schedule`` a name of `SCHEDULES` or a function.
    """

    lr: float
    momentum: float = 0.9
    averaging: float = 0.97
    optimizer: str | MakeOptimizer = "sgd"
    schedule: str | Schedule = "tail"

    def __post_init__(self) -> None:
        if not 0 < self.lr < float("inf"):
            raise RequestError(f"lr must be positive and finite, got {self.lr}")
        for name in ("momentum", "averaging"):
            if not 0 <= getattr(self, name) < 1:
                raise RequestError(f"{name} must lie in [0, 1), got {getattr(self, name)}")
        if isinstance(self.optimizer, str) and self.optimizer not in OPTIMIZERS:
            raise RequestError(f"optimizer must be one of {', '.join(OPTIMIZERS)}, got {self.optimizer!r}")
        if isinstance(self.schedule, str) and self.schedule not in SCHEDULES:
            raise RequestError(f"schedule must be one of {', '.join(SCHEDULES)}, got {self.schedule!r}")

    def lr_factor(self, step: int, steps: int) -> float:
        schedule = SCHEDULES[self.schedule] if isinstance(self.schedule, str) else self.schedule
        return schedule(step, steps)

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        if self.optimizer == "sgd":
            return torch.optim.SGD(weights, lr=self.lr, momentum=self.momentum)
        if self.optimizer == "adam":
            return torch.optim.Adam(weights, lr=self.lr, betas=(self.momentum, 0.999))
        assert not isinstance(self.optimizer, str)
        made = self.optimizer(weights)
        if isinstance(made, torch.optim.LBFGS):
            raise RequestError("LBFGS evaluates the loss several times a step, which the plan does not count")
        return made


class ScheduledOptimizer:
    """One private gradient in, one step out."""

    def __init__(self, optimisation: Optimisation, model: nn.Module, *, steps: int) -> None:
        self._optimisation, self._steps = optimisation, steps
        self._named = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        self.optimizer = optimisation.build(model)
        self._full_rates = [group["lr"] for group in self.optimizer.param_groups]

    def apply(self, gradients: Mapping[str, Tensor], step: int) -> None:
        for name, weight in self._named.items():
            weight.grad = gradients[name]
        factor = self._optimisation.lr_factor(step, self._steps)
        for group, rate in zip(self.optimizer.param_groups, self._full_rates, strict=True):
            group["lr"] = rate * factor
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def state(self) -> dict[str, Tensor]:
        """What the optimizer remembers, as named tensors."""
        tensors: dict[str, Tensor] = {}
        for index, weight in enumerate(self._weights()):
            for key, value in self.optimizer.state.get(weight, {}).items():
                if value is None:
                    continue
                if not isinstance(value, Tensor | int | float):
                    kind = type(self.optimizer).__name__
                    raise RequestError(f"the state {key!r} of {kind} is no tensor and cannot be saved")
                tensors[f"{index}/{key}"] = torch.as_tensor(value)
        return tensors

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        weights = self._weights()
        states: dict[int, dict[str, Any]] = {}
        for name, value in tensors.items():
            number, key = name.split("/", 1)
            states.setdefault(int(number), {})[key] = value
        for index, state in states.items():
            for key, value in state.items():  # step counters stay on the CPU, as the optimizers keep them
                here = value.to(weights[index].device) if value.ndim else value
                self.optimizer.state[weights[index]][key] = here

    def _weights(self) -> list[nn.Parameter]:
        return list(self._named.values())


class AveragedWeights:
    """Exponential moving average of the trained weights.

    The decay warms up over the first steps, so that the random initialisation does not linger in it.
    """

    def __init__(self, weights: dict[str, Tensor], decay: float) -> None:
        self.decay = decay
        self.values = {name: weight.clone() for name, weight in weights.items()}

    def update(self, weights: dict[str, Tensor], step: int) -> None:
        decay = min(self.decay, (1 + step) / (10 + step))
        names = list(weights)
        torch._foreach_lerp_(
            [self.values[name] for name in names], [weights[name] for name in names], 1 - decay
        )
