"""Weights that a network begins with, from a safetensors file that is declared public.

Files that Python's pickle makes (``.pt`` and its kin) can hold code that runs when they are read. They are
not read here; the refusal says how to convert one.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from hauberk.errors import RequestError
from hauberk.files import read_tensors
from hauberk.models.frozen import trained_names

PICKLED = (".pt", ".pth", ".bin", ".ckpt")
_ZIP = b"PK\x03\x04"
_COUNTER = "num_batches_tracked"  # counts batches, says nothing; some files leave it out


@dataclass(frozen=True, kw_only=True)
class LoadedWeights:
    """What was read: the file's SHA-256, and the weights that it does not hold and that begin fresh."""

    sha256: str
    fresh: tuple[str, ...]


def load_weights(model: nn.Module, path: str | Path) -> LoadedWeights:
    """Put a file's weights into ``model``, in place.

    Every name in the file must be one of the network's. What the file lacks must be a weight that is trained
    (a head for other classes, say), which then stays as it is. Raises `RequestError` otherwise, and leaves
    the network as it was.
    """
    path = Path(path)
    refuse_pickled(path)
    tensors = read_tensors(path)
    own: dict[str, Tensor] = model.state_dict()
    for name, tensor in tensors.items():
        if name not in own:
            first = next(iter(own), None)
            raise RequestError(
                f"{path} holds {name!r}, which the network does not have (its first is {first!r}): rename or "
                "leave out what is not the network's"
            )
        if tensor.shape != own[name].shape:
            raise RequestError(
                f"{path} holds {name!r} with shape {tuple(tensor.shape)}, the network has "
                f"{tuple(own[name].shape)}: leave it out of the file to begin it afresh"
            )
        if tensor.is_floating_point() != own[name].is_floating_point():
            raise RequestError(f"{path} holds {name!r} as {tensor.dtype}, the network as {own[name].dtype}")
        if not bool(tensor.double().isfinite().all()):
            raise RequestError(f"{path} holds numbers in {name!r} that are not finite: save it again")
    held = {
        own[name].data_ptr() for name in tensors if own[name].numel()
    }  # tied weights have one of the names
    absent = [name for name in own if name not in tensors and own[name].data_ptr() not in held]
    trained = trained_names(model)
    for name in absent:
        if name not in trained and not name.endswith(_COUNTER):
            raise RequestError(
                f"{path} lacks {name!r}, which is not trained: give a file that holds it, or train it"
            )
    with torch.no_grad():
        for name, tensor in tensors.items():
            own[name].copy_(tensor)
    return LoadedWeights(
        sha256=file_sha256(path), fresh=tuple(name for name in absent if not name.endswith(_COUNTER))
    )


def refuse_pickled(path: Path) -> None:
    """By the name, and by the first bytes of what torch writes under any name."""
    try:
        with path.open("rb") as file:
            begins = file.read(len(_ZIP))
    except OSError as error:
        raise RequestError(f"cannot read {path}: {error.strerror or error}") from error
    if path.suffix.lower() not in PICKLED and begins != _ZIP:
        return
    new = str(path.with_suffix(".safetensors"))
    source, target = json.dumps(str(path)), json.dumps(new)  # double quotes: the shell's are single ones
    code = (
        "import torch; from safetensors.torch import save_file; save_file({k: v.contiguous().clone() for k, "
        f'v in torch.load({source}, map_location="cpu", weights_only=True).items()}}, {target})'
    )
    raise RequestError(
        f"{path} can hold code and is not read: convert it where you trust it by "
        f"`python -c {shlex.quote(code)}` and give {new}"
    )


def file_sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise RequestError(f"cannot read {path}: {error.strerror or error}") from error


def frozen_sha256(model: nn.Module) -> str:
    """Of all that training may not change: names, kinds, shapes and bytes."""
    trained = trained_names(model)
    frozen: Mapping[str, Tensor] = {
        name: each for name, each in model.state_dict().items() if name not in trained
    }
    digest = hashlib.sha256()
    for name in sorted(frozen):
        tensor = frozen[name].detach().cpu().contiguous()
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
