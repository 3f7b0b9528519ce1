"""CUDA graphs: a whole pass as one launch.

Small networks on a large GPU spend most of a step telling it what to do, kernel by kernel. A graph records
one pass over a fixed number of records and replays it with a single call. Poisson batches vary in size, so a
pass is padded: the rows that fill it up repeat its first record with a factor of zero. The sums are those of
the same kernels on the same numbers.

Where capturing fails (a layer that waits for the device, say) passes are launched one kernel at a time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hauberk.gradients.losses import Views

_MOST_GRAPHS = 8
_WARM_UP_PASSES = 2


@dataclass(frozen=True)
class PassOutcome:
    """What one pass over some records leaves: their weighted sums, and facts about them."""

    sums: dict[str, Tensor]
    facts: Tensor  # records clipped, records without a finite norm, sum of losses
    finite: Tensor  # per record


Pass = Callable[[Views, Tensor, Tensor], PassOutcome]
"""``run(views, labels, present)``; ``present`` is 1 for a record and 0 for padding."""


def padded_size(records: int) -> int:
    """Rounded up by at most an eighth, so that few sizes occur and little work is wasted."""
    step = max(8, (1 << (records.bit_length() - 1)) // 16)
    return -(-records // step) * step


class CapturedPasses:
    """Replays ``run``; one graph per padded size, the least recently used one makes room."""

    def __init__(self, model: nn.Module, run: Pass) -> None:
        self._run = run
        self._tensors = [*model.parameters(), *model.buffers()]
        self._layers = list(model.modules())
        self._graphs: OrderedDict[int, _Graph] = OrderedDict()
        self._state: tuple[object, ...] = ()

    def __call__(self, views: Views, labels: Tensor) -> PassOutcome:
        """Valid until the next call, which overwrites it."""
        state = self._model_state()
        if state != self._state:  # weights moved, froze, or changed mode: what was recorded is another model
            self._graphs.clear()
            self._state = state
        size = padded_size(len(labels))
        if size not in self._graphs:
            if len(self._graphs) >= _MOST_GRAPHS:
                self._graphs.popitem(last=False)
            self._graphs[size] = _Graph(self._run, views, labels, size)
        self._graphs.move_to_end(size)
        return self._graphs[size].replay(views, labels)

    def _model_state(self) -> tuple[object, ...]:
        return (
            *((tensor.data_ptr(), tensor.requires_grad) for tensor in self._tensors),
            *(layer.training for layer in self._layers),
        )


class _Graph:
    def __init__(self, run: Pass, views: Views, labels: Tensor, size: int) -> None:
        self._views = tuple(_room_for(each, size) for each in _tuple(views))
        self._labels, self._single = _room_for(labels, size), isinstance(views, Tensor)
        self._present = torch.zeros(size, dtype=torch.float32, device=labels.device)
        self._load(views, labels)
        given: Views = self._views[0] if self._single else self._views
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.random.fork_rng(devices=[labels.device]):  # what is drawn here leaves no gap in the draws
            with torch.cuda.stream(stream):  # libraries set themselves up outside the recording
                for _ in range(_WARM_UP_PASSES):
                    run(given, self._labels, self._present)
            torch.cuda.current_stream().wait_stream(stream)
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                self._outcome = run(given, self._labels, self._present)

    def replay(self, views: Views, labels: Tensor) -> PassOutcome:
        self._load(views, labels)
        self._graph.replay()
        outcome = self._outcome
        return PassOutcome(outcome.sums, outcome.facts.clone(), outcome.finite[: len(labels)].clone())

    def _load(self, views: Views, labels: Tensor) -> None:
        count = len(labels)
        for room, each in zip((*self._views, self._labels), (*_tuple(views), labels), strict=True):
            room[:count] = each
            room[count:] = each[:1]
        self._present[:count] = 1.0
        self._present[count:] = 0.0


def _tuple(views: Views) -> tuple[Tensor, ...]:
    return views if isinstance(views, tuple) else (views,)


def _room_for(example: Tensor, size: int) -> Tensor:
    return torch.empty(size, *example.shape[1:], dtype=example.dtype, device=example.device)
