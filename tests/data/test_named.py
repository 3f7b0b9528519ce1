"""Data sets by name: found in every layout, recognised by their checksums, missed with a helpful sentence."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
import torch

from hauberk.data import catalog, data_folder, load
from hauberk.data.cifar import BINARY_FILES
from hauberk.data.named import NAMED_SETS
from hauberk.data.raw import RawSplit

Refusal = Callable[[Callable[[], object]], str]
DOWNLOADED = [name for name in NAMED_SETS if name != "digits"]


@lru_cache(maxsize=1)
def raw_of(name: str, data_dir: Path) -> RawSplit:
    found = NAMED_SETS[name].find(data_dir)
    if found is None:
        pytest.skip(f"the data folder has no {name}")
    layout, paths = found
    return layout.read(paths)


def write_idx(path: Path, array: np.ndarray) -> None:
    content = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content, 1) if path.suffix == ".gz" else content)


# --- the folder ---


def test_the_data_folder(monkeypatch: pytest.MonkeyPatch, no_data: Path, tmp_path: Path) -> None:
    assert data_folder() == no_data
    monkeypatch.setenv("HAUBERK_DATA", "~/elsewhere")
    assert data_folder() == tmp_path / "elsewhere"
    assert data_folder(Path("here")) == Path("here")
    assert data_folder(Path("~nobody-of-this-name/data")) == Path("~nobody-of-this-name/data")


# --- the catalog ---


def test_the_catalog_without_data(no_data: Path) -> None:
    rows = {row.name: row for row in catalog()}
    assert list(rows) == ["digits", "mnist", "fashion_mnist", "cifar10", "tiny_imagenet", "adult"]
    assert rows["digits"].where == "built in"
    assert rows["digits"].available
    for name in DOWNLOADED:
        assert rows[name].where == f"not found in {no_data}"
        assert not rows[name].available
        assert rows[name].licence


def test_the_catalog_says_where_a_set_is_without_opening_it(tmp_path: Path) -> None:
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "mnist.npz").write_bytes(b"not opened")
    (tmp_path / "adult").mkdir()
    (tmp_path / "adult" / "adult.data").touch()
    (tmp_path / "adult" / "adult.test.gz").touch()
    rows = {row.name: row for row in catalog(tmp_path)}
    assert rows["mnist"].where == str(tmp_path / "mnist" / "mnist.npz")
    assert rows["adult"].where == str(tmp_path / "adult")
    assert rows["adult"].available


# --- refusals ---


@pytest.mark.parametrize("name", DOWNLOADED)
def test_a_missing_set_names_the_places(name: str, tmp_path: Path, refusal: Refusal) -> None:
    message = refusal(lambda: load(name, data_dir=tmp_path))
    for layout in NAMED_SETS[name].layouts:
        assert str(tmp_path / layout.folder / layout.files[0][0]) in message
    assert "--data-dir or HAUBERK_DATA" in message


def test_an_incomplete_download_names_what_is_missing(tmp_path: Path, refusal: Refusal) -> None:
    write_idx(tmp_path / "MNIST" / "raw" / "train-images-idx3-ubyte.gz", np.zeros((2, 28, 28), np.uint8))
    message = refusal(lambda: load("mnist", data_dir=tmp_path))
    assert str(tmp_path / "MNIST" / "raw") in message
    assert "train-labels-idx1-ubyte, t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte are missing" in message


def test_other_images_under_the_name_are_refused(tmp_path: Path, refusal: Refusal) -> None:
    images, labels = np.zeros((10, 28, 28), np.uint8), np.arange(10, dtype=np.uint8)
    (tmp_path / "mnist").mkdir()
    np.savez(tmp_path / "mnist" / "mnist.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    message = refusal(lambda: load("mnist", data_dir=tmp_path))
    assert message.startswith(f"mnist in {tmp_path / 'mnist' / 'mnist.npz'} is not the published data")


def test_an_archive_with_other_arrays_is_refused(tmp_path: Path, refusal: Refusal) -> None:
    (tmp_path / "mnist").mkdir()
    images, labels = np.zeros((10, 784), np.uint8), np.arange(10, dtype=np.uint8)
    np.savez(tmp_path / "mnist" / "mnist.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    assert "array 'x_train'" in refusal(lambda: load("mnist", data_dir=tmp_path))


REQUESTS = [
    ("unknown name", "minst", {}, "there is no data set 'minst'; choose one of digits, mnist"),
    ("nothing", "", {}, "is not a numpy archive"),
    ("far too long", "m" * 5_000, {}, "there is no data set"),
    ("other records", "digits", {"records": 60_000}, "20000 records, but --records says 60000"),
    ("other classes", "digits", {"classes": 2}, "10 classes, but --classes says 2"),
]


@pytest.mark.parametrize(
    ("name", "options", "part"), [row[1:] for row in REQUESTS], ids=[row[0] for row in REQUESTS]
)
def test_a_wrong_request(name: str, options: dict[str, int], part: str, refusal: Refusal) -> None:
    assert part in refusal(lambda: load(name, **options))


def test_a_file_of_another_kind(tmp_path: Path, refusal: Refusal) -> None:
    (tmp_path / "table.txt").write_text("1,2\n")
    assert "numpy.savez" in refusal(lambda: load(str(tmp_path / "table.txt")))


# --- the published data ---


@pytest.mark.parametrize("name", DOWNLOADED)
def test_the_published_set(name: str, shared_data: Path) -> None:
    published = NAMED_SETS[name]
    if published.find(shared_data) is None:
        pytest.skip(f"the data folder has no {name}")
    split = load(name, data_dir=shared_data, records=published.train, classes=published.classes)
    assert split.train.shape == split.test.shape == published.shape
    assert (len(split.train), len(split.test)) == (published.train, published.test)
    assert (split.records, split.classes) == (published.train, published.classes)
    assert len(torch.unique(split.train.first(256).y)) == published.classes


# (set, folder, ending of each file)
IDX_LAYOUTS = [
    ("mnist", "mnist", ("", "", "", "")),
    ("mnist", "MNIST/raw", (".gz", ".gz", "", "")),
    ("fashion_mnist", "FashionMNIST/raw", (".gz", "", ".gz", "")),
]


@pytest.mark.parametrize(("name", "folder", "endings"), IDX_LAYOUTS)
def test_the_published_idx_files(
    name: str, folder: str, endings: tuple[str, ...], shared_data: Path, scratch: Path
) -> None:
    raw = raw_of(name, shared_data)
    stems = (
        "train-images-idx3-ubyte",
        "train-labels-idx1-ubyte",
        "t10k-images.idx3-ubyte",
        "t10k-labels-idx1-ubyte",
    )
    for stem, ending, array in zip(stems, endings, raw.arrays, strict=True):
        write_idx(scratch / folder / f"{stem}{ending}", array[:, 0] if array.ndim == 4 else array)
    split = load(name, data_dir=scratch)
    assert (len(split.train), len(split.test)) == (60_000, 10_000)


def test_one_changed_pixel_is_noticed(shared_data: Path, scratch: Path, refusal: Refusal) -> None:
    raw = raw_of("mnist", shared_data)
    images = raw.x_test[:, 0].copy()
    images[9_999, 27, 27] ^= 1
    stems = (
        "train-images-idx3-ubyte",
        "train-labels-idx1-ubyte",
        "t10k-images-idx3-ubyte",
        "t10k-labels-idx1-ubyte",
    )
    for stem, array in zip(stems, (raw.x_train[:, 0], raw.y_train, images, raw.y_test), strict=True):
        write_idx(scratch / "mnist" / stem, array)
    assert "is not the published data" in refusal(lambda: load("mnist", data_dir=scratch))


def test_the_published_cifar_binary_files(shared_data: Path, scratch: Path) -> None:
    raw = raw_of("cifar10", shared_data)
    images, labels = np.concatenate([raw.x_train, raw.x_test]), np.concatenate([raw.y_train, raw.y_test])
    folder = scratch / "cifar10" / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    for name, rows in zip(BINARY_FILES, np.split(np.arange(60_000), 6), strict=True):
        batch = np.concatenate([labels[rows, None], images[rows].reshape(len(rows), -1)], axis=1)
        (folder / name).write_bytes(batch.tobytes())
    split = load("cifar10", data_dir=scratch)
    assert np.array_equal(split.test.y.numpy(), raw.y_test)
    assert torch.equal(split.test.x[7], torch.from_numpy(raw.x_test[7]).float() / 255)
