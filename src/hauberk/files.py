"""Files appear whole or not at all, and nothing in them can run code."""

from __future__ import annotations

import errno
import json
import math
import os
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from safetensors import SafetensorError
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor

from hauberk.errors import RequestError

ALWAYS_UNPACKED = 2**28
"""Bytes that a compressed file may always hold, however small it is."""
LARGEST_EXPANSION = 200
"""Beyond that, a compressed file holds at most so many times its own size; data rarely shrink to a tenth."""
PARTIAL = ".partial"  # how the names of files end that are still being written


def write_bytes(path: Path, content: bytes, *, previous: Path | None = None) -> None:
    """Write atomically and durably: a reader, or a power cut, sees the old file or the new one.

    With ``previous`` the file that stood at ``path`` is kept under that name: at every moment one of the two
    names holds a file that was once written completely.
    """
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=PARTIAL)
        try:
            with os.fdopen(descriptor, "wb") as handle:
                handle.write(content)
                handle.flush()
                os.fsync(handle.fileno())
            os.chmod(temporary, 0o600 if path.parent.name == "private" else 0o644)
            if previous is not None and path.exists():
                os.replace(path, previous)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)
    except OSError as error:
        raise RequestError(f"cannot write {path}: {error.strerror or error}") from error


def _sync_folder(folder: Path) -> None:
    """Make a renaming survive a power cut; file systems that cannot do that are left to their own order."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def remove_partial(folder: Path) -> None:
    """Clear away what a killed process had not finished writing in this folder."""
    for path in folder.glob(f".*{PARTIAL}"):
        path.unlink(missing_ok=True)


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
    path: Path,
    tensors: Mapping[str, Tensor],
    metadata: Mapping[str, str] | None = None,
    *,
    previous: Path | None = None,
) -> None:
    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    write_bytes(path, tensors_to_bytes(plain, metadata=dict(metadata or {})), previous=previous)


def most_unpacked(packed: int) -> int:
    """How many bytes a compressed file of ``packed`` bytes may hold: more is a trap for memory, not data."""
    return max(ALWAYS_UNPACKED, LARGEST_EXPANSION * packed)


def check_unpacked(unpacked: int, *, packed: int, named: Path | str) -> None:
    """Refuse what unpacks to more than `most_unpacked`."""
    if unpacked > most_unpacked(packed):
        raise RequestError(
            f"{named} has {packed:,} bytes and would unpack to {unpacked:,} or more; if that is meant, save "
            "it uncompressed."
        )


def check_archive(file: IO[bytes], *, named: Path | str) -> None:
    """`check_unpacked` of a zip (numpy's archives), by its own directory: no more than that is ever read."""
    if zipfile.is_zipfile(file):
        packed = file.seek(0, os.SEEK_END)
        with zipfile.ZipFile(file) as archive:
            check_unpacked(sum(each.file_size for each in archive.infolist()), packed=packed, named=named)
    file.seek(0)


def read_tensors(path: Path) -> dict[str, Tensor]:
    return read_tensors_and_metadata(path)[0]


def read_tensors_and_metadata(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """What `write_tensors` wrote, from one reading of the file."""
    try:
        content = path.read_bytes()
        tensors: dict[str, Tensor] = tensors_from_bytes(content)
    except OSError as error:
        raise RequestError(f"cannot read {path}: {error.strerror or error}") from error
    except (SafetensorError, KeyError) as error:  # KeyError: a kind of number that torch does not know
        raise RequestError(f"{path} is damaged or no safetensors file: {error}") from error
    # safetensors gives metadata of files only, not of bytes; it has just found this header to be in order
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return tensors, header.get("__metadata__") or {}
