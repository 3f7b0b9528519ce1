"""IDX files, small ones made here."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hauberk.data.idx import IDX_FILES, read_idx, read_idx_files

IMAGES = np.arange(5 * 4 * 3, dtype=np.uint8).reshape(5, 4, 3)
Refusal = Callable[[Callable[[], object]], str]


def as_idx(array: np.ndarray) -> bytes:
    header = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.tobytes()


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_round_trip(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "images"
    path.write_bytes(pack(as_idx(IMAGES)))
    assert np.array_equal(read_idx(path, axes=3), IMAGES)


def test_four_files_make_a_split(tmp_path: Path) -> None:
    labels = np.arange(5, dtype=np.uint8)
    paths = [tmp_path / spellings[0] for spellings in IDX_FILES]
    for path, array in zip(paths, (IMAGES, labels, IMAGES[:2], labels[:2]), strict=True):
        path.write_bytes(as_idx(array))
    raw = read_idx_files(paths)
    assert [array.shape for array in raw.arrays] == [(5, 1, 4, 3), (5,), (2, 1, 4, 3), (2,)]
    assert np.array_equal(raw.x_train[:, 0], IMAGES)


# (what is wrong, bytes, part of the sentence)
BAD = [
    ("empty", b"", "not an IDX file"),
    ("text", b"<html>not found</html>", "not an IDX file"),
    ("labels for images", as_idx(np.zeros(5, np.uint8)), "with 3 axes"),
    ("floats", as_idx(IMAGES).replace(b"\0\0\x08", b"\0\0\x0d", 1), "not an IDX file of unsigned bytes"),
    ("header only", as_idx(IMAGES)[:10], "not an IDX file"),
    ("cut off", as_idx(IMAGES)[:-7], "holds 53 values where its header announces 60"),
    ("too long", as_idx(IMAGES) + b"!", "holds 61 values where its header announces 60"),
    ("gzip cut off", gzip.compress(as_idx(IMAGES))[:-12], "cannot read"),
]


@pytest.mark.parametrize(("content", "part"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_a_bad_file(tmp_path: Path, content: bytes, part: str, refusal: Refusal) -> None:
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(content)
    message = refusal(lambda: read_idx(path, axes=3))
    assert str(path) in message
    assert part in message
