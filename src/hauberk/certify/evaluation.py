"""Running a network so that an answer depends on its own input and on nothing else."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from hauberk.errors import RequestError

_CACHE = 24_000_000  # bytes of one layer's output that a CPU keeps close
_DEVICE_MEMORY = 2_000_000_000
_MOST_ROWS = {"cpu": 512}
_MOST_ROWS_ON_A_DEVICE = 16_384
_FEWEST_ROWS = 16


@contextlib.contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Force eval mode (no dropout, no batch statistics) and restore every layer's own mode afterwards."""
    modes = {layer: layer.training for layer in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for layer, training in modes.items():
            layer.training = training


def refuse_batch_statistics(model: nn.Module) -> None:
    """Layers that look at other inputs even in eval mode, by name."""
    for path, layer in model.named_modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) and layer.running_mean is None:
            raise RequestError(
                f"{type(layer).__name__} at '{path}' uses the statistics of the batch: an input's answer "
                "would depend on other inputs, and no certificate can hold"
            )


@torch.no_grad()
def refuse_mixed_inputs(network: Callable[[Tensor], Tensor], example: Tensor) -> None:
    """The same by trial, for networks whose layers do not tell: does the neighbour in a batch matter?"""
    generator = torch.Generator().manual_seed(0)
    others = torch.randn((3, *example.shape), generator=generator).to(example) + example
    first, again, second = (
        network(torch.stack((example, other)))[:1] for other in (others[0], others[0], others[1])
    )
    # a device may add up in another order every time: that much, and no more, is not the neighbour's doing
    own = float((first - again).abs().nan_to_num().max())
    size = float(first.abs().nan_to_num(posinf=0.0).max())
    if not torch.allclose(first, second, rtol=1e-3, atol=1e-5 + 1e-4 * size + 10 * own, equal_nan=True):
        raise RequestError(
            "the network's answer to an input depends on the other inputs of the batch: "
            "no certificate can hold"
        )


@torch.no_grad()
def comfortable_rows(model: nn.Module, run: Callable[[], Tensor], device: torch.device) -> int:
    """How many inputs at once suit the device, judged by the largest output of a layer for one input.

    It depends on the network alone, not on timings: the same seed must give the same draws.
    """
    largest = 1

    def note(layer: nn.Module, inputs: object, output: object) -> None:
        nonlocal largest
        if isinstance(output, Tensor):
            largest = max(largest, output.numel() * output.element_size())

    hooks = [layer.register_forward_hook(note) for layer in model.modules()]
    try:
        run()
    finally:
        for hook in hooks:
            hook.remove()
    budget = _CACHE if device.type == "cpu" else _DEVICE_MEMORY
    most = _MOST_ROWS.get(device.type, _MOST_ROWS_ON_A_DEVICE)
    return max(_FEWEST_ROWS, min(most, budget // largest))
