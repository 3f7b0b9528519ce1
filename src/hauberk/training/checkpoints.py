"""Checkpoints: enough to go on after a kill, and secret until the run has ended.

A checkpoint holds the un-averaged weights, the optimizer's memory and the key of the view noise. It lives
in the run's private folder and is removed when the run ends. Plain safetensors: loading it runs no code.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from hauberk.errors import RequestError
from hauberk.files import read_tensors, write_tensors
from hauberk.gradients import AdaptiveClip, trainable
from hauberk.randomness import Key
from hauberk.training.loop import PrivateTrainer


def save_checkpoint(trainer: PrivateTrainer, path: Path, *, view_key: Key) -> None:
    tensors = {f"weights/{name}": weight for name, weight in trainable(trainer.model).items()}
    tensors |= {f"average/{name}": weight for name, weight in trainer.average.values.items()}
    tensors |= {f"optimizer/{name}": value for name, value in trainer.optimizer.state().items()}
    if trainer.shaping is not None:
        tensors |= {f"shaping/{name}": value for name, value in trainer.shaping.state().items()}
    if isinstance(trainer.clipping, AdaptiveClip):
        tensors["clipping/bound"] = torch.tensor(trainer.clipping.bound, dtype=torch.float64)
    write_tensors(path, tensors, {"step": str(trainer.step), "view_key": json.dumps(view_key)})


def read_checkpoint_facts(path: Path) -> tuple[int, Key]:
    """The step and the view key of a checkpoint, without its tensors."""
    try:
        with safe_open(path, framework="pt") as content:
            facts = content.metadata()
        first, second = json.loads(facts["view_key"])
        return int(facts["step"]), (int(first), int(second))
    except (OSError, SafetensorError, KeyError, ValueError, TypeError) as error:
        raise RequestError(f"{path} is damaged or no checkpoint: start the run again with --force") from error


def restore_checkpoint(trainer: PrivateTrainer, path: Path) -> None:
    """Bring a fresh trainer to the saved state (all but the ledger, which has its own file)."""
    step, _ = read_checkpoint_facts(path)
    tensors = read_tensors(path)
    current = trainable(trainer.model)
    try:
        for name, weight in current.items():
            weight.copy_(tensors[f"weights/{name}"])  # detached views of the parameters: written in place
            trainer.average.values[name].copy_(tensors[f"average/{name}"])
    except (KeyError, RuntimeError) as error:
        raise RequestError(f"{path} belongs to another model: start the run again with --force") from error
    prefix = "optimizer/"
    trainer.optimizer.restore(
        {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
    )
    if trainer.shaping is not None:
        for name, value in trainer.shaping.state().items():
            value.copy_(tensors[f"shaping/{name}"])
    if isinstance(trainer.clipping, AdaptiveClip):
        trainer.clipping.bound = float(tensors["clipping/bound"])
    trainer.step = step
