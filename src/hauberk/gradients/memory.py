"""How much memory a record needs on its way through a step, and how many records fit into a limit."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor, nn

from hauberk.errors import RequestError
from hauberk.gradients.contributions import Materialised, PerRecordGradient
from hauberk.gradients.losses import Views

_UNITS = {"": 1, "B": 1, "K": 10**3, "KB": 10**3, "M": 10**6, "MB": 10**6, "G": 10**9, "GB": 10**9}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


@dataclass(frozen=True, kw_only=True)
class Comfort:
    """Working memory where no limit is given: beyond it a step gets slower or no faster (bench-gradients)."""

    together: int
    one_tensor: int


# On a CPU a step is fastest while its tensors come back from the allocator's heap (glibc hands blocks over
# 32 MiB back to the system, and every page of the next one costs a fault) and nearly fit its caches.
CPU = Comfort(together=280 * 2**20, one_tensor=30 * 2**20)
# An accelerator wants work for all its units at once, and more where many views share one gradient.
ACCELERATOR = Comfort(together=3500 * 2**20, one_tensor=4 * 2**30)
_MORE_FOR_VIEWS = 6


def parse_memory(text: str) -> int:
    """``"500MB"``, ``"2GiB"``, ``"2e9"`` to bytes."""
    match = re.fullmatch(r"\s*([0-9.]+(?:[eE][0-9]+)?)\s*([A-Za-z]*)\s*", text)
    try:
        amount = float(match.group(1)) if match else float("nan")
    except ValueError:
        amount = float("nan")
    if match is None or match.group(2).upper() not in _UNITS or not amount * 2**30 < float("inf"):
        raise RequestError(f"{text!r} is no amount of memory: say for example 500MB or 2GB")
    size = int(amount * _UNITS[match.group(2).upper()])
    if size <= 0:
        raise RequestError(f"the memory limit must be positive, got {text!r}")
    return size


@dataclass(frozen=True, kw_only=True)
class MemoryNeed:
    """Bytes of working memory beyond weights, optimizer and data."""

    per_record: int  # activations, the gradients that flow back beside them, per-record gradients
    largest: int  # of these, the largest single tensor's share of one record
    fixed: int  # the sum itself
    comfort: Comfort

    def records_within(self, limit: int | None) -> int:
        """How many records a pass takes: as many as are comfortable, fewer under a tighter limit."""
        comfortable = min(
            self.comfort.together // max(1, self.per_record), self.comfort.one_tensor // max(1, self.largest)
        )
        if limit is not None:
            comfortable = min(comfortable, (limit - self.fixed) // max(1, self.per_record))
        return max(1, comfortable)

    def check(self, limit: int) -> None:
        least = self.fixed + self.per_record
        if limit < least:
            raise RequestError(
                f"{limit / 1e6:.3g} MB of memory cannot hold a single record's step: "
                f"at least {-(-least // 10**6)} MB are needed"
            )


class Path(Protocol):
    def gradients(self, views: Views, labels: Tensor) -> tuple[dict[str, PerRecordGradient], Tensor]: ...


def measure(path: Path, model: nn.Module, views: Views, labels: Tensor, *, count: int) -> MemoryNeed:
    """Count, on made-up records, every tensor that is kept: a function of shapes, never of values.

    Activations kept for the backward pass count twice, for the gradients that flow back beside them.
    ``views`` may hold fewer views of a record than the ``count`` that training will use.
    """
    kept: dict[int, int] = {}
    own = {each.untyped_storage().data_ptr() for each in (*model.parameters(), *model.buffers())}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    every = views if isinstance(views, tuple) else (views,)
    answers = None
    # a general loss need not show the model its views as they are: then only gradients can be counted
    saved = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
    with torch.enable_grad(), saved, suppress(Exception):
        answers = model(*(each.flatten(0, 1) for each in every))  # held: nothing it saved is freed meanwhile
    gradients, _ = path.gradients(views, labels)
    rows = every[0].shape[0] * every[0].shape[1]
    activations = [count * size // rows for size in kept.values()] or [0]
    held = [
        gradient.bytes_held() // len(labels) * (1 if isinstance(gradient, Materialised) else count)
        for gradient in gradients.values()
    ]
    del answers
    comfort = CPU
    if labels.device.type != "cpu":
        comfort = replace(ACCELERATOR, together=ACCELERATOR.together * min(count, _MORE_FOR_VIEWS))
    return MemoryNeed(
        per_record=2 * sum(activations) + sum(held),
        largest=max(*activations, *held),
        fixed=2
        * sum(each.numel() * each.element_size() for each in model.parameters() if each.requires_grad),
        comfort=comfort,
    )
