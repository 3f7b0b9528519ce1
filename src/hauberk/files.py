"""Files appear whole or not at all, and nothing in them can run code."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor

from hauberk.errors import RequestError


def write_bytes(path: Path, content: bytes) -> None:
    """Write atomically and durably: a reader, or a power cut, sees the old file or the new one."""
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "wb") as handle:
                handle.write(content)
                handle.flush()
                os.fsync(handle.fileno())
            os.chmod(temporary, 0o600 if path.parent.name == "private" else 0o644)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise RequestError(f"cannot write {path}: {error.strerror or error}") from error


def write_text(path: Path, content: str) -> None:
    write_bytes(path, content.encode())


def write_json(path: Path, content: object) -> None:
    """Plain JSON; a NaN or an infinity is a programming error, not a number to publish."""
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a finite number")
    return number


def read_json(path: Path) -> Any:
    """Plain JSON; Python's own NaN and Infinity, and numbers that overflow to infinity, are refused."""
    try:
        return json.loads(path.read_text(), parse_constant=_finite, parse_float=_finite)
    except OSError as error:
        raise RequestError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{path} is not valid JSON: {error}") from error


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> None:
    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    write_bytes(path, tensors_to_bytes(plain, metadata=dict(metadata or {})))


def read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        loaded: dict[str, Tensor] = tensors_from_bytes(path.read_bytes())
    except OSError as error:
        raise RequestError(f"cannot read {path}: {error.strerror or error}") from error
    except SafetensorError as error:
        raise RequestError(f"{path} is damaged or no safetensors file: {error}") from error
    return loaded
