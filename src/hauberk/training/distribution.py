"""Training by several processes: each holds some of the records, together they take one private step.

    every process   samples its own records, clips, sums
    the leader      adds up the sums, adds the noise, once
    every process   takes the same optimizer step with what the leader released

The processes trust each other: sums without noise travel from every process to the leader, over connections
that nobody encrypts. The guarantee protects a record from all who see what the run releases; it hides nothing
from the processes themselves, or from whoever can read between them.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor

from hauberk.errors import RequestError
from hauberk.gradients import ClippedSum
from hauberk.randomness import Key

TIMEOUT = 600.0  # seconds; the others wait that long while the leader evaluates an epoch

_LOST = "a process of this training was lost"
_TOLD_TO_END = "this process was told to end"
_GONE = re.compile("closed by peer|reset by peer|broken pipe|refused|timed out|timeout", re.IGNORECASE)


class ProcessLost(RequestError):
    """One of the processes has gone, or this one was told to go. What the leader last saved remains."""

    def __init__(self, what: str, *, step: int | None = None, run: Path | None = None) -> None:
        self.what, self.step, self.run = what, step, run
        when = "" if step is None else f" at step {step}"
        folder = "RUN" if run is None else shlex.quote(str(run))
        super().__init__(f"{what}{when}: go on with hauberk train --resume {folder}")

    def at(self, *, step: int | None = None, run: Path | None = None) -> ProcessLost:
        """The same, told by somebody who knows more."""
        return ProcessLost(
            self.what, step=self.step if step is None else step, run=self.run if run is None else run
        )


@contextmanager
def _together() -> Iterator[None]:
    """Whatever goes wrong between processes is one of them missing, or else is told in torch's words."""
    try:
        yield
    except RuntimeError as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ProcessLost(_LOST if _GONE.search(reason) else f"{_LOST} ({reason})") from error


class Ranks:
    """The processes of one training, seen from one of them: number ``rank`` of ``count``; 0 is the leader.

    Guarantee: a step's sum over all processes moves by at most its sensitivity when one record is added or
    removed, because every record lives in exactly one process and all of them sample with the same
    probability and clip to the same bound (`PrivateTrainer` compares both before the first step). Shards may
    be of any size, zero included. One noise on that sum, drawn by the leader, is therefore the release that
    the plan accounts for, whatever the number of processes.

    Tensors are exchanged where they lie: by gloo in main memory, by NCCL on GPUs.
    """

    def __init__(self, *, rank: int = 0, count: int = 1, local_rank: int = 0) -> None:
        if not 0 <= rank < count:
            raise RequestError(f"process {rank} of {count} does not exist: they are numbered from 0")
        self.rank, self.count, self.local_rank = rank, count, local_rank
        self._connected = False
        self._earlier_handler: Any = None

    @classmethod
    def alone(cls) -> Ranks:
        """One process with all records; nothing is exchanged."""
        return cls()

    @classmethod
    def from_environment(cls, *, timeout: float = TIMEOUT) -> Ranks:
        """What ``torchrun`` says; without it, alone. Waits until all processes have come."""
        if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
            return cls.alone()
        numbers = {name: os.environ.get(name, "0") for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
        for name, value in numbers.items():
            if not value.isdecimal():
                raise RequestError(f"{name} is {value!r} and not a number: start with torchrun, or unset it")
        rank, count, local_rank = map(int, numbers.values())
        if count == 1:
            return cls(local_rank=local_rank)
        return cls.connect(rank=rank, count=count, local_rank=local_rank, timeout=timeout)

    @classmethod
    def connect(
        cls,
        *,
        rank: int,
        count: int,
        local_rank: int = 0,
        meeting: str = "env://",
        timeout: float = TIMEOUT,
    ) -> Ranks:
        """Meet the others at ``meeting`` (an address of ``torch.distributed``)."""
        ranks = cls(rank=rank, count=count, local_rank=local_rank)
        both = torch.cuda.is_available() and dist.is_nccl_available()
        try:
            dist.init_process_group(
                "cpu:gloo,cuda:nccl" if both else "gloo",
                init_method=meeting,
                rank=rank,
                world_size=count,
                timeout=timedelta(seconds=timeout),
            )
        except (RuntimeError, ValueError) as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise RequestError(
                f"the {count} processes of this training did not come together: {reason}"
            ) from error
        ranks._connected = True
        if threading.current_thread() is threading.main_thread():
            # torchrun ends the others like this when one is lost: they say so instead of vanishing
            ranks._earlier_handler = signal.signal(signal.SIGTERM, _end)
        return ranks

    def close(self) -> None:
        """Part from the others; what one of them does afterwards no longer matters. May be called twice."""
        if not self._connected:
            return
        self._connected = False
        if self._earlier_handler is not None:
            signal.signal(signal.SIGTERM, self._earlier_handler)
        if dist.is_initialized():
            dist.destroy_process_group()

    def __enter__(self) -> Ranks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def leader(self) -> bool:
        """Draws the noise, and alone writes, shows, evaluates and audits."""
        return self.rank == 0

    def device(self, asked: torch.device) -> torch.device:
        """The device of this process: of several GPUs in a machine, the one with its number there."""
        if asked.type != "cuda" or self.count == 1:
            return asked
        if asked.index is not None:
            raise RequestError("several processes take a GPU each: say --device cuda, without a number")
        if self.local_rank >= torch.cuda.device_count():
            raise RequestError(
                f"this machine has {torch.cuda.device_count()} GPUs for more processes: start one for each "
                f"(torchrun --nproc-per-node {torch.cuda.device_count()}), or say --device cpu"
            )
        own = torch.device("cuda", self.local_rank)
        torch.cuda.set_device(own)
        return own

    @property
    def shard(self) -> slice:
        """The rows of a data set common to all processes that this one holds: every ``count``-th."""
        return slice(self.rank, None, self.count)

    def records(self, rows: Tensor) -> Tensor:
        """The identities of rows of this process's shard: disjoint between processes, whatever they hold.

        Of a data set cut by `shard` they are its row numbers, so that a record's coins and views do not
        depend on how many processes there are.
        """
        return rows * self.count + self.rank

    def sum_at_leader(self, own: ClippedSum) -> ClippedSum:
        """At the leader the sum over all processes' records; elsewhere ``own``, as it was."""
        if self.count == 1:
            return own
        facts = torch.tensor([own.records, own.clipped, own.loss * own.records], dtype=torch.float64)
        sums = torch.cat([part.flatten() for part in own.gradients.values()])
        with _together():
            dist.reduce(facts, dst=0)  # first: gloo notices at once if somebody is missing, NCCL waits
            dist.reduce(sums, dst=0)
        if not self.leader:
            return own
        records, clipped, loss = facts.tolist()
        return replace(
            own,
            gradients=_parts(sums, own.gradients),
            records=int(records),
            clipped=int(clipped),
            loss=loss / max(1.0, records),
        )

    def from_leader(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The leader's tensors; those of the others only lend their names, shapes and kinds."""
        if self.count == 1:
            return dict(tensors)
        flat = torch.cat([part.flatten() for part in tensors.values()])
        with _together():
            dist.broadcast(flat, src=0)
        return dict(tensors) if self.leader else _parts(flat, tensors)

    def number_from_leader(self, number: float) -> float:
        if self.count == 1:
            return number
        held = torch.tensor([number], dtype=torch.float64)
        with _together():
            dist.broadcast(held, src=0)
        return float(held)

    def text_from_leader(self, text: str = "") -> str:
        """What the leader says; what the others say does not matter."""
        return self._bytes_from_leader(text.encode()).decode()

    def key_from_leader(self, key: Key) -> Key:
        first, second = self.text_from_leader(f"{key[0]} {key[1]}").split()
        return int(first), int(second)

    def state_from_leader(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The leader's tensors, whatever names and shapes the others have: safetensors, no pickle."""
        if self.count == 1:
            return dict(state)
        plain = {name: each.detach().cpu().contiguous().clone() for name, each in state.items()}
        received: dict[str, Tensor] = tensors_from_bytes(self._bytes_from_leader(tensors_to_bytes(plain)))
        return received

    def _bytes_from_leader(self, content: bytes) -> bytes:
        if self.count == 1:
            return content
        length = torch.tensor([len(content)])
        with _together():
            dist.broadcast(length, src=0)
            held = torch.zeros(int(length), dtype=torch.uint8)
            if self.leader and content:
                held = torch.frombuffer(bytearray(content), dtype=torch.uint8)
            dist.broadcast(held, src=0)
        return held.numpy().tobytes()

    def check_same(self, settings: str) -> None:
        """All processes end with a sentence if one of them has other settings than the rest."""
        if not self._agree(settings.encode()):
            raise RequestError(
                "the processes of this training have different settings or models: "
                "start all of them with the same command"
            )

    def check_equal(self, weights: Mapping[str, Tensor], step: int) -> None:
        """All processes end with a sentence if their weights are not equal in every bit."""
        if self.count == 1:
            return
        if not self._agree(torch.cat([each.flatten() for each in weights.values()]).cpu().numpy().tobytes()):
            raise RequestError(
                f"the weights of this training's processes differ at step {step}: "
                "give all of them the same kind of machine and the same version of torch"
            )

    def _agree(self, content: bytes) -> bool:
        """Whether all processes hold the same; all of them get the same answer."""
        if self.count == 1:
            return True
        digest = int.from_bytes(hashlib.sha256(content).digest()[:7], "little")
        largest = torch.tensor([digest, -digest])
        with _together():
            dist.all_reduce(largest, op=dist.ReduceOp.MAX)
        return bool(largest[0] == -largest[1])


def _end(number: int, frame: FrameType | None) -> None:
    raise ProcessLost(_TOLD_TO_END)


def _parts(flat: Tensor, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The pieces of one long tensor, shaped like ``like``."""
    pieces = flat.split([part.numel() for part in like.values()])
    return {
        name: piece.view_as(part).to(part.dtype)
        for (name, part), piece in zip(like.items(), pieces, strict=True)
    }
