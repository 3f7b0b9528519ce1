"""Reading files that may be damaged, and knowing the published data by their checksums.

Image sets are recognised by the sha256 of their *decoded* arrays, so that the same set passes in every file
format; sets with one published file are recognised by that file.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from hauberk.errors import RequestError
from hauberk.files import check_archive, check_unpacked

_GZIP_MAGIC = b"\x1f\x8b"
_PIECE = 2**24  # bytes that are unpacked at once

# All that zipfile, gzip, tarfile, numpy and Pillow raise when a file is not what it should be.
_DECODING_ERRORS = (
    OSError,
    EOFError,
    ValueError,
    KeyError,
    IndexError,
    TypeError,
    OverflowError,
    MemoryError,
    RuntimeError,
    SyntaxError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    tarfile.TarError,
    Image.DecompressionBombError,
)


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Inside this block, any failure to open or decode ``path`` becomes one sentence that names it."""
    try:
        yield
    except RequestError:
        raise
    except _DECODING_ERRORS as error:
        if isinstance(error, OSError) and error.strerror:
            raise RequestError(
                f"cannot open {path} ({error.strerror}); check that it is there and that you may read it."
            ) from error
        raise RequestError(
            f"cannot read {path} ({type(error).__name__}); it is damaged, incomplete or in another format, "
            "so download or save it again."
        ) from error


def read_uncompressed(path: Path) -> bytes:
    """The bytes of a file, unpacked if they are gzip, whatever the file is called."""
    with readable(path):
        content = path.read_bytes()
    if not content.startswith(_GZIP_MAGIC):
        return content
    return unpacked(content, gzip.open, path=path)


def unpacked(content: bytes, opened: Callable[[io.BytesIO], Any], *, path: Path) -> bytes:
    """All that comes out of a compressed file (``gzip.open``, ``lzma.open``), unless it fills the memory."""
    pieces, length = [], 0
    with readable(path), opened(io.BytesIO(content)) as file:
        while piece := file.read(_PIECE):
            pieces.append(piece)
            length += len(piece)
            check_unpacked(length, packed=len(content), named=path)
    return b"".join(pieces)


def read_arrays(
    path: Path, *, required: Sequence[str], optional: Sequence[str] = ()
) -> dict[str, np.ndarray[Any, Any]]:
    """The named arrays of a numpy archive; pickled objects are refused, never loaded."""
    with readable(path), path.open("rb") as file:
        check_archive(file, named=path)
        archive = np.load(file, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise RequestError(f"{path} holds a single array, not an archive; save it with numpy.savez.")
        for name in required:
            if name not in archive.files:
                listed = ", ".join(archive.files) or "nothing"
                raise RequestError(
                    f"{path} has no array '{name}', it holds {listed}; save it again with '{name}'."
                )
        arrays = {}
        for name in (*required, *optional):
            if name not in archive.files:
                continue
            try:
                arrays[name] = archive[name]
            except ValueError as error:
                if "allow_pickle" not in str(error):
                    raise
                raise RequestError(
                    f"array '{name}' of {path} holds Python objects, and pickles are never loaded; "
                    "save it as an array of numbers."
                ) from error
            if not isinstance(arrays[name], np.ndarray):  # a member without numpy's header comes as bytes
                raise RequestError(f"member '{name}' of {path} is not a numpy array; save the archive again.")
        return arrays


def sha256_of(*parts: bytes | np.ndarray[Any, Any]) -> str:
    """The sha256 of the parts' bytes one after the other, arrays in C order."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part if isinstance(part, bytes) else np.ascontiguousarray(part).data)
    return digest.hexdigest()


def check_sha256(*parts: bytes | np.ndarray[Any, Any], expected: str, named: str) -> None:
    """The parts are, byte for byte, the published data."""
    actual = sha256_of(*parts)
    if actual != expected:
        raise RequestError(
            f"{named} is not the published data: its sha256 is {actual}, expected {expected}; "
            "delete it and download it again, or pass your own data as an .npz file."
        )
