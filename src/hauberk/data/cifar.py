"""CIFAR-10 as people have it: the binary version (unpacked or still in its archive), or lossless mosaics.

The "python version" is a set of pickles and is not read.
"""

from __future__ import annotations

import tarfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from hauberk.data.integrity import read_arrays, read_uncompressed, readable
from hauberk.data.raw import Array, RawSplit
from hauberk.errors import RequestError
from hauberk.files import check_unpacked

_SIDE = 32
_PIXELS = 3 * _SIDE * _SIDE
_TILES_PER_ROW = 100
_TRAIN_MOSAICS = 10

BINARY_FILES = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")
MOSAIC_FILES = (
    *(f"train_{i}.webp" for i in range(_TRAIN_MOSAICS)),
    "test_0.webp",
    "test_1.webp",
    "labels.npz",
)


def decode_batch(content: bytes, *, named: str) -> tuple[Array, Array]:
    """Images (N, 3, 32, 32) and labels of one binary batch: a label byte, then red, green and blue planes."""
    if not content or len(content) % (1 + _PIXELS):
        raise RequestError(
            f"{named} has {len(content)} bytes, which is not a whole number of CIFAR-10 records of "
            f"{1 + _PIXELS} bytes; it is incomplete or damaged, so download it again."
        )
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, 1 + _PIXELS)
    return records[:, 1:].reshape(-1, 3, _SIDE, _SIDE), records[:, 0]


def read_binary(paths: Sequence[Path]) -> RawSplit:
    """The files of ``BINARY_FILES``, in that order."""
    return _join([decode_batch(read_uncompressed(path), named=str(path)) for path in paths])


def read_binary_archive(paths: Sequence[Path]) -> RawSplit:
    """``cifar-10-binary.tar.gz`` without unpacking it to disk."""
    (path,) = paths
    batches = {}
    with readable(path), tarfile.open(path) as archive:
        for member in archive:
            name = member.name.rpartition("/")[2]
            content = archive.extractfile(member) if name in BINARY_FILES else None
            if content is not None:
                check_unpacked(member.size, packed=path.stat().st_size, named=path)
                batches[name] = decode_batch(content.read(), named=f"{name} in {path}")
    for name in BINARY_FILES:
        if name not in batches:
            raise RequestError(f"{path} holds no {name}; download the archive again.")
    return _join([batches[name] for name in BINARY_FILES])


def read_mosaic(path: Path) -> Array:
    """Images (N, 3, 32, 32) of one picture that shows them as tiles, 100 a row, in their original order."""
    with readable(path), Image.open(path) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    height, width, _ = pixels.shape
    if width != _TILES_PER_ROW * _SIDE or height % _SIDE:
        raise RequestError(
            f"{path} is {width} x {height} pixels, which is not rows of {_TILES_PER_ROW} tiles of "
            f"{_SIDE} x {_SIDE}; download it again."
        )
    tiles = pixels.reshape(height // _SIDE, _SIDE, _TILES_PER_ROW, _SIDE, 3)
    return tiles.transpose(0, 2, 4, 1, 3).reshape(-1, 3, _SIDE, _SIDE)


def read_mosaics(paths: Sequence[Path]) -> RawSplit:
    """The files of ``MOSAIC_FILES``, in that order."""
    *pictures, label_file = paths
    labels = read_arrays(label_file, required=("y_train", "y_test"))
    for name, array in labels.items():
        if array.dtype != np.uint8 or array.ndim != 1:
            raise RequestError(
                f"array '{name}' of {label_file} is not a row of 8-bit labels; download it again."
            )
    images = [read_mosaic(path) for path in pictures]
    return RawSplit(
        x_train=np.concatenate(images[:_TRAIN_MOSAICS]),
        y_train=labels["y_train"],
        x_test=np.concatenate(images[_TRAIN_MOSAICS:]),
        y_test=labels["y_test"],
    )


def _join(batches: Sequence[tuple[Array, Array]]) -> RawSplit:
    """The last batch is the test set."""
    *train, (x_test, y_test) = batches
    return RawSplit(
        x_train=np.concatenate([x for x, _ in train]),
        y_train=np.concatenate([y for _, y in train]),
        x_test=x_test,
        y_test=y_test,
    )
