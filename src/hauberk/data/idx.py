"""The IDX files in which MNIST and Fashion-MNIST are published, plain or gzipped."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hauberk.data.integrity import read_uncompressed
from hauberk.data.raw import Array, RawSplit
from hauberk.errors import RequestError

_UNSIGNED_BYTE = 0x08

# The order in which `read_idx_files` takes its paths. A dot for the first dash is how some archives spell it.
IDX_FILES = tuple(
    (name, f"{name}.gz", dotted, f"{dotted}.gz")
    for name, dotted in (
        (f"{part}-{kind}", f"{part}.{kind}")
        for part, kind in (
            ("train-images", "idx3-ubyte"),
            ("train-labels", "idx1-ubyte"),
            ("t10k-images", "idx3-ubyte"),
            ("t10k-labels", "idx1-ubyte"),
        )
    )
)


def read_idx(path: Path, *, axes: int) -> Array:
    """One array of unsigned bytes with ``axes`` axes.

    Format: two zero bytes, a type byte, the number of axes, the length of each axis as a big-endian 32-bit
    number, then the values.
    """
    content = read_uncompressed(path)
    start = 4 + 4 * axes
    if len(content) < start or content[:4] != bytes((0, 0, _UNSIGNED_BYTE, axes)):
        raise RequestError(
            f"{path} is not an IDX file of unsigned bytes with {axes} axes; download it again."
        )
    shape = struct.unpack(f">{axes}I", content[4:start])
    expected = math.prod(shape)
    if len(content) - start != expected:
        raise RequestError(
            f"{path} holds {len(content) - start} values where its header announces {expected}; "
            "it is incomplete or damaged, so download it again."
        )
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


def read_idx_files(paths: Sequence[Path]) -> RawSplit:
    """Training images, training labels, test images, test labels."""
    train_images, train_labels, test_images, test_labels = paths
    return RawSplit(
        x_train=read_idx(train_images, axes=3)[:, None],
        y_train=read_idx(train_labels, axes=1),
        x_test=read_idx(test_images, axes=3)[:, None],
        y_test=read_idx(test_labels, axes=1),
    )
