"""Files that are damaged, missing, not what they seem or not the published ones: one sentence each."""

from __future__ import annotations

import gzip
import io
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from hauberk.data import load
from hauberk.data.cifar import BINARY_FILES, read_binary_archive, read_mosaic
from hauberk.data.idx import read_idx
from hauberk.data.integrity import check_sha256, read_arrays, read_uncompressed, sha256_of
from hauberk.data.tiny_imagenet import decode_zip
from hauberk.errors import RequestError

Refusal = Callable[[Callable[[], object]], str]


def archive(compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", compression=compression) as target:
        for name in ("x", "y"):
            array = io.BytesIO()
            np.save(array, np.arange(300, dtype=np.uint8))
            target.writestr(f"{name}.npy", array.getvalue())
    return content.getvalue()


def single_array() -> bytes:
    content = io.BytesIO()
    np.save(content, np.zeros(3))
    return content.getvalue()


def archive_of_text() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as target:
        target.writestr("x", "hello")
        target.writestr("y", "hello")
    return content.getvalue()


def archive_with_huge_header() -> bytes:
    """An array whose header announces far more values than memory holds."""
    content, array = io.BytesIO(), io.BytesIO()
    np.lib.format.write_array_header_1_0(
        array, {"descr": "|u1", "fortran_order": False, "shape": (2**50, 2**10)}
    )
    with zipfile.ZipFile(content, "w") as target:
        target.writestr("x.npy", array.getvalue())
        target.writestr("y.npy", array.getvalue())
    return content.getvalue()


def idx_file() -> bytes:
    return gzip.compress(bytes((0, 0, 8, 3, 0, 0, 0, 5, 0, 0, 0, 4, 0, 0, 0, 3)) + bytes(range(60)), mtime=0)


def cifar_archive() -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz", compresslevel=1) as target:
        for name in BINARY_FILES:
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = 3073
            target.addfile(member, io.BytesIO(bytes(3073)))
    return content.getvalue()


def picture(kind: str, size: tuple[int, int]) -> bytes:
    content = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(noise).save(content, kind, lossless=True)
    return content.getvalue()


def tiny_zip() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as target:
        for part in ("train", "val"):
            target.writestr(f"{part}/0_n01443537/a_0.JPEG", picture("JPEG", (64, 64)))
    return content.getvalue()


# (what it is, bytes, part of the sentence)
UNREADABLE: list[tuple[str, bytes, str]] = [
    ("no bytes", b"", "cannot read"),
    ("text", b"age,income\n1,2\n", "cannot read"),
    ("a pickle", b"\x80\x04\x95\x05\x00\x00\x00\x00\x00\x00\x00K\x01.", "cannot read"),
    ("half an archive", archive()[:200], "cannot read"),
    ("a single array", single_array(), "single array"),
    ("an archive of text", archive_of_text(), "is not a numpy array"),
    ("a header that lies", archive_with_huge_header(), "cannot read"),
]


@pytest.mark.parametrize(
    ("content", "part"), [row[1:] for row in UNREADABLE], ids=[row[0] for row in UNREADABLE]
)
def test_an_unreadable_archive(tmp_path: Path, content: bytes, part: str, refusal: Refusal) -> None:
    path = tmp_path / "clinic.npz"
    path.write_bytes(content)
    message = refusal(lambda: load(str(path), records=3, classes=2))
    assert str(path) in message
    assert part in message


def test_a_missing_file(tmp_path: Path, refusal: Refusal) -> None:
    message = refusal(lambda: load(str(tmp_path / "none.npz"), records=3, classes=2))
    assert str(tmp_path / "none.npz") in message
    assert "No such file" in message


def test_a_folder_in_place_of_a_file(tmp_path: Path, refusal: Refusal) -> None:
    (tmp_path / "folder.npz").mkdir()
    assert "directory" in refusal(lambda: load(str(tmp_path / "folder.npz"), records=3, classes=2))


def test_gzip_is_known_by_its_bytes_not_its_name(tmp_path: Path) -> None:
    path = tmp_path / "adult.data"
    path.write_bytes(gzip.compress(b"hello"))
    assert read_uncompressed(path) == b"hello"
    path.write_bytes(b"hello")
    assert read_uncompressed(path) == b"hello"


def test_truncated_gzip(tmp_path: Path, refusal: Refusal) -> None:
    path = tmp_path / "adult.data.gz"
    path.write_bytes(gzip.compress(b"hello" * 100)[:-9])
    assert str(path) in refusal(lambda: read_uncompressed(path))


def test_checksums(refusal: Refusal) -> None:
    known = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    assert sha256_of(b"hello") == known
    assert sha256_of(np.frombuffer(b"h.e.l.l.o.", np.uint8)[::2]) == known
    check_sha256(b"hel", b"lo", expected=known, named="greeting")
    message = refusal(lambda: check_sha256(b"hullo", expected=known, named="greeting"))
    assert message.startswith("greeting is not the published data")
    assert known in message


DECODERS: dict[str, tuple[bytes, Callable[[Path], object]]] = {
    "npz deflated": (archive(), lambda path: read_arrays(path, required=("x", "y"))),
    "npz lzma": (archive(zipfile.ZIP_LZMA), lambda path: read_arrays(path, required=("x", "y"))),
    "npz stored": (archive(zipfile.ZIP_STORED), lambda path: read_arrays(path, required=("x", "y"))),
    "idx gz": (idx_file(), lambda path: read_idx(path, axes=3)),
    "cifar tar.gz": (cifar_archive(), lambda path: read_binary_archive([path])),
    "cifar mosaic": (picture("WEBP", (3200, 32)), read_mosaic),
    "tiny_imagenet zip": (tiny_zip(), lambda path: decode_zip(path.read_bytes(), path=path)),
}


@pytest.mark.parametrize("name", DECODERS)
def test_the_undamaged_file_is_read(name: str, tmp_path: Path) -> None:
    content, decode = DECODERS[name]
    path = tmp_path / "file"
    path.write_bytes(content)
    decode(path)


@pytest.mark.parametrize("name", DECODERS)
@settings(max_examples=40, deadline=None)
@given(draw=st.data())
def test_a_damaged_file_never_ends_in_a_traceback(name: str, draw: st.DataObject) -> None:
    """Any bytes overwritten, any end cut off: the decoder reads it, or refuses it naming the file."""
    content, decode = DECODERS[name]
    damaged = bytearray(content)
    for position in draw.draw(st.lists(st.integers(0, len(content) - 1), max_size=6)):
        damaged[position] = draw.draw(st.integers(0, 255))
    keep = draw.draw(st.one_of(st.just(len(content)), st.integers(0, len(content))))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        path.write_bytes(damaged[:keep])
        message = str(path)
        try:
            decode(path)
        except RequestError as error:
            message = str(error)
        assert str(path) in message
