"""Checkpoints: enough to go on after a kill, and secret until the run has ended.

A checkpoint holds everything that training's next step depends on: the un-averaged weights, their average,
the optimizer's memory, the adaptive bound, the shaping, the step and the key of the view noise. (Sampler and
noise need no more than the step: they are the operating system's, or functions of the seed and the step.)
It lives in the run's private folder and is removed when the run ends. Plain safetensors: loading it runs no
code.

Two generations are kept. A checkpoint carries a SHA-256 of all that it says, and nothing of it is used before
that has been checked; where the newest is damaged the one before it is used. The checksum finds accidents,
not forgers: who may write in the private folder may also compute it anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hauberk.errors import RequestError
from hauberk.files import read_tensors_and_metadata, write_tensors
from hauberk.randomness import Key
from hauberk.training.loop import CONSTANTS, PrivateTrainer
from hauberk.training.run_folder import RunFolder, previous_checkpoint

OPTIMIZER = "optimizer/"
START_AGAIN = "start the run again with --force"


class CheckpointNotice(UserWarning):
    """The newest checkpoint is damaged, and training goes on from the one before it."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A checkpoint as it was read: whole, by its checksum."""

    path: Path
    view_key: Key
    tensors: dict[str, Tensor]
    optimizer: dict[str, Any]  # what of the optimizer's memory is no tensor

    @property
    def step(self) -> int:
        return int(self.tensors["step"])


def save_checkpoint(trainer: PrivateTrainer, path: Path, *, view_key: Key) -> None:
    """Write a new generation; at every moment the file system holds a whole one, if it ever did."""
    remembered, plain = _optimizer_memory(trainer.optimizer.optimizer)
    state = _own_state(trainer) | remembered
    tensors = {name: value.detach().cpu() for name, value in state.items()}  # once: each is a wait for a GPU
    facts = {"view_key": json.dumps(view_key), "optimizer": json.dumps(plain)}
    facts["sha256"] = _digest(tensors, facts)
    write_tensors(path, tensors, facts, previous=previous_checkpoint(path))


def read_checkpoint_facts(path: Path) -> tuple[int, Key]:
    """The step and the view key of the newest whole checkpoint."""
    saved, _ = _newest(path)
    return saved.step, saved.view_key


def refuse_lost_events(folder: RunFolder) -> None:
    """A run that released something and has no event list has lost what it spent: it may not begin anew.

    The checkpoint of step 0 is written before the first events are reserved, and nothing of later steps
    leaves the private folder before the metrics of an epoch, which the next checkpoint follows.
    """
    if folder.begun or not folder.checkpoint.exists():
        return
    if (folder.path / "metrics.jsonl").exists() or read_checkpoint_facts(folder.checkpoint)[0] > 0:
        raise RequestError(
            f"{folder.path} has taken steps but lost its events.json: what it spent is unknown"
        )


def read_checkpoint_constants(path: Path) -> dict[str, Tensor]:
    """What was set before the first step (`PrivateTrainer.constants`), of the newest whole checkpoint."""
    tensors = _newest(path)[0].tensors
    return {
        name.removeprefix(CONSTANTS): each for name, each in tensors.items() if name.startswith(CONSTANTS)
    }


def restore_checkpoint(trainer: PrivateTrainer, path: Path) -> None:
    """Bring a fresh trainer to the newest whole state (all but the event list, which has its own file).

    The trainer then takes exactly the steps that the interrupted one would have taken, bit for bit where
    noise and coins come from a seed.
    """
    saved, damaged = _newest(path)
    _fill(trainer, saved)
    if damaged:
        sentence = (
            f"{path} is damaged; training goes on from the checkpoint before it, after step {saved.step}"
        )
        warnings.warn(sentence, CheckpointNotice, stacklevel=3)
        # else the next checkpoint would put the damaged one in the place of the whole one
        _promote(saved.path, path)


def _promote(whole: Path, path: Path) -> None:
    try:
        os.replace(whole, path)
    except OSError as error:
        raise RequestError(f"cannot write {path}: {error.strerror or error}") from error


def _newest(path: Path) -> tuple[Checkpoint, bool]:
    """The newest whole checkpoint, and whether a damaged one was passed over for it."""
    previous = previous_checkpoint(path)
    generations = [each for each in (path, previous) if each.exists()]
    if not generations:
        raise RequestError(f"{path.parent} holds no checkpoint: {START_AGAIN}")
    for each in generations:
        try:
            return _read(each), each != generations[0]
        except _Damaged as error:
            damage = error
    if len(generations) == 1:
        raise RequestError(f"{damage}, and there is no other: {START_AGAIN}") from damage
    raise RequestError(f"both checkpoints in {path.parent} are damaged: {START_AGAIN}") from damage


class _Damaged(Exception):
    """This file does not hold what was written into it."""


def _read(path: Path) -> Checkpoint:
    try:
        tensors, facts = read_tensors_and_metadata(path)
    except RequestError as error:
        if isinstance(error.__cause__, PermissionError):
            raise  # perhaps whole: to be mended, not to be passed over
        raise _Damaged(f"{path} is damaged or no checkpoint") from error
    expected = facts.pop("sha256", None)
    if expected != _digest(tensors, facts):
        raise _Damaged(f"{path} is damaged: its checksum does not fit")
    try:
        first, second = json.loads(facts["view_key"])
        optimizer = json.loads(facts["optimizer"])
        saved = Checkpoint(path=path, view_key=(first, second), tensors=tensors, optimizer=optimizer)
    except (KeyError, ValueError, TypeError) as error:
        raise _Damaged(f"{path} is no checkpoint") from error
    return saved


def _digest(tensors: Mapping[str, Tensor], facts: Mapping[str, str]) -> str:
    """Of names, kinds, shapes and bytes of the tensors, and of the facts beside them."""
    digest = hashlib.sha256(json.dumps(dict(facts), sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _fill(trainer: PrivateTrainer, saved: Checkpoint) -> None:
    stored = {name: value for name, value in saved.tensors.items() if not name.startswith(OPTIMIZER)}
    optimizer = trainer.optimizer.optimizer
    if _described(stored) != _described(_own_state(trainer)):
        raise RequestError(f"{saved.path} belongs to another model or other settings: {START_AGAIN}")
    if saved.optimizer["kind"] != type(optimizer).__name__:
        raise RequestError(f"{saved.path} belongs to the optimizer {saved.optimizer['kind']}: {START_AGAIN}")
    trainer.restore(stored)
    _remind_optimizer(optimizer, saved)


def _own_state(trainer: PrivateTrainer) -> dict[str, Tensor]:
    """A trainer's state but for the optimizer's memory, of which there is more to say than tensors can."""
    return {name: value for name, value in trainer.state().items() if not name.startswith(OPTIMIZER)}


def _described(tensors: Mapping[str, Tensor]) -> dict[str, tuple[torch.dtype, torch.Size]]:
    return {name: (value.dtype, value.shape) for name, value in tensors.items()}


def _weights(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [weight for group in optimizer.param_groups for weight in group["params"]]


def _optimizer_memory(optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What any torch optimizer remembers: tensors, and the plain values beside them.

    Not torch's own ``state_dict``: loading that casts what it holds to the weights' kind of number. Plain
    numbers stay plain: as tensors they would be rounded, and make other arithmetic of the next step.
    """
    tensors: dict[str, Tensor] = {}
    values: list[dict[str, Any]] = []
    aside: list[str] = []  # numbers that this optimizer keeps on the weights' device; others do on the CPU
    for index, weight in enumerate(_weights(optimizer)):
        values.append({})
        for key, value in optimizer.state.get(weight, {}).items():
            name = f"{OPTIMIZER}{index}/{key}"
            if isinstance(value, Tensor):
                tensors[name] = value
                if value.ndim == 0 and value.device.type != "cpu":
                    aside.append(name)
            elif value is None or isinstance(value, bool | int | float):
                values[-1][key] = value
            else:
                kind = type(optimizer).__name__
                raise RequestError(f"the state {key!r} of {kind} is no tensor and cannot be saved")
    groups = [
        {key: value for key, value in group.items() if type(value) in (int, float)}
        for group in optimizer.param_groups
    ]
    return tensors, {"kind": type(optimizer).__name__, "groups": groups, "values": values, "aside": aside}


def _remind_optimizer(optimizer: torch.optim.Optimizer, saved: Checkpoint) -> None:
    weights, plain = _weights(optimizer), saved.optimizer
    memories: list[dict[str, Any]] = [dict(values) for values in plain["values"]]
    if len(memories) != len(weights) or len(plain["groups"]) != len(optimizer.param_groups):
        raise RequestError(f"{saved.path} belongs to an optimizer of other weights: {START_AGAIN}")
    for name, value in saved.tensors.items():
        if name.startswith(OPTIMIZER):
            index, key = name.removeprefix(OPTIMIZER).split("/", 1)
            moves = value.ndim > 0 or name in plain["aside"]
            memories[int(index)][key] = value.to(weights[int(index)].device) if moves else value
    for weight, memory in zip(weights, memories, strict=True):
        if memory:
            optimizer.state[weight] = memory
    for group, values in zip(optimizer.param_groups, plain["groups"], strict=True):
        group.update(values)
