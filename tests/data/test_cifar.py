"""The formats of CIFAR-10, on small files made here: all of them give the same arrays."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hauberk.data.cifar import (
    BINARY_FILES,
    MOSAIC_FILES,
    decode_batch,
    read_binary,
    read_binary_archive,
    read_mosaic,
    read_mosaics,
)

Refusal = Callable[[Callable[[], object]], str]
RANDOM = np.random.default_rng(0)


def binary(images: np.ndarray, labels: np.ndarray) -> bytes:
    return np.concatenate([labels[:, None], images.reshape(len(images), -1)], axis=1).tobytes()


@pytest.fixture
def batches(tmp_path: Path) -> tuple[list[Path], np.ndarray, np.ndarray]:
    """Six files of two records, and the twelve records."""
    images = RANDOM.integers(0, 256, (12, 3, 32, 32), dtype=np.uint8)
    labels = RANDOM.integers(0, 10, 12, dtype=np.uint8)
    paths = [tmp_path / name for name in BINARY_FILES]
    for i, path in enumerate(paths):
        path.write_bytes(binary(images[2 * i : 2 * i + 2], labels[2 * i : 2 * i + 2]))
    return paths, images, labels


def test_binary_files(batches: tuple[list[Path], np.ndarray, np.ndarray]) -> None:
    paths, images, labels = batches
    raw = read_binary(paths)
    assert np.array_equal(raw.x_train, images[:10])
    assert np.array_equal(raw.y_train, labels[:10])
    assert np.array_equal(raw.x_test, images[10:])
    assert np.array_equal(raw.y_test, labels[10:])


def test_archive_in_any_order(
    batches: tuple[list[Path], np.ndarray, np.ndarray], tmp_path: Path, refusal: Refusal
) -> None:
    paths, images, _ = batches
    target = tmp_path / "cifar-10-binary.tar.gz"
    with tarfile.open(target, "w:gz") as archive:
        for path in reversed(paths):
            archive.add(path, f"cifar-10-batches-bin/{path.name}")
    raw = read_binary_archive([target])
    assert np.array_equal(raw.x_train, images[:10])
    assert np.array_equal(raw.x_test, images[10:])
    with tarfile.open(target, "w:gz") as archive:
        archive.add(paths[0], "cifar-10-batches-bin/data_batch_1.bin")
    assert "holds no data_batch_2.bin" in refusal(lambda: read_binary_archive([target]))


@pytest.mark.parametrize("content", [b"", b"1" * 3072, b"1" * 3074], ids=["empty", "short", "long"])
def test_an_incomplete_batch(content: bytes, refusal: Refusal) -> None:
    message = refusal(lambda: decode_batch(content, named="data_batch_1.bin"))
    assert message.startswith("data_batch_1.bin has")


def write_mosaic(path: Path, images: np.ndarray) -> None:
    rows = len(images) // 100
    tiles = images.reshape(rows, 100, 3, 32, 32).transpose(0, 3, 1, 4, 2)
    Image.fromarray(np.ascontiguousarray(tiles.reshape(rows * 32, 3200, 3))).save(
        path, lossless=True, quality=0
    )


def test_mosaics(tmp_path: Path) -> None:
    images = RANDOM.integers(0, 4, (1200, 3, 32, 32), dtype=np.uint8)
    labels = RANDOM.integers(0, 10, 1200, dtype=np.uint8)
    paths = [tmp_path / name for name in MOSAIC_FILES]
    for i, path in enumerate(paths[:-1]):
        write_mosaic(path, images[100 * i : 100 * (i + 1)])
    np.savez(paths[-1], y_train=labels[:1000], y_test=labels[1000:])
    raw = read_mosaics(paths)
    assert np.array_equal(raw.x_train, images[:1000])
    assert np.array_equal(raw.y_train, labels[:1000])
    assert np.array_equal(raw.x_test, images[1000:])
    assert np.array_equal(raw.y_test, labels[1000:])


def test_a_picture_that_is_no_mosaic(tmp_path: Path, refusal: Refusal) -> None:
    path = tmp_path / "train_0.webp"
    Image.fromarray(np.zeros((30, 30, 3), np.uint8)).save(path)
    assert "is 30 x 30 pixels" in refusal(lambda: read_mosaic(path))
    path.write_bytes(b"RIFF")
    assert str(path) in refusal(lambda: read_mosaic(path))


def test_bad_labels_of_mosaics(tmp_path: Path, refusal: Refusal) -> None:
    paths = [tmp_path / name for name in MOSAIC_FILES]
    np.savez(paths[-1], y_train=np.zeros(5), y_test=np.zeros(5, np.uint8))
    assert "array 'y_train'" in refusal(lambda: read_mosaics(paths))
    np.savez(paths[-1], y_train=np.zeros(5, np.uint8))
    assert "no array 'y_test'" in refusal(lambda: read_mosaics(paths))
