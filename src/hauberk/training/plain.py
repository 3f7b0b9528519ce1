"""Training without any protection: for public records, and for what published variants do to private ones."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from hauberk.progress import Progress, silent
from hauberk.randomness import derive_key

LossOf = Callable[[nn.Module, Tensor, Tensor], Tensor]
_BATCH, _RATE = 128, 1e-3


def cross_entropy(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(model(x), y)


def train_plainly(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    epochs: int,
    seed: int,
    loss: LossOf = cross_entropy,
    batch: int = _BATCH,
    rate: float = _RATE,
    augment: Callable[[Tensor, torch.Generator], Tensor] | None = None,
    stage: str = "training on public data",
    progress: Progress = silent,
) -> None:
    """Minimise ``loss`` in place by Adam with a rate that falls to zero, order and copies from ``seed``.

    There is no guarantee: everything about the records may be in the weights afterwards.
    """
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    steps = epochs * -(-len(y) // batch)
    optimizer = torch.optim.Adam(weights, lr=rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3 * rate, total_steps=max(2, steps))
    generator = torch.Generator().manual_seed(derive_key(seed, "plain training")[0])
    device, done = weights[0].device, 0
    model.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(y), generator=generator).split(batch):
            inputs = x[rows.to(x.device)]
            if augment is not None:
                inputs = augment(inputs, generator)
            optimizer.zero_grad(set_to_none=True)
            loss(model, inputs.to(device), y[rows.to(y.device)].to(device)).backward()
            optimizer.step()
            schedule.step()
            done += 1
            progress(stage, done, steps)
