"""Ten classes of Tiny ImageNet: the original JPEG files in one zip.

Paths inside are ``train/<class>_<wnid>/<wnid>_<i>.JPEG`` and ``val/<class>_<wnid>/val_<j>.JPEG``. The zip,
not the pixels, is recognised by its checksum: JPEG decoders may differ in the last bit.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from hauberk.data.integrity import check_sha256, readable
from hauberk.data.raw import Array, RawSplit
from hauberk.errors import RequestError

ZIP_SHA256 = "d7419c05d613f81e61320c61fe1056f8a4d22abfa34eaa0f278a5ac739c0684b"

_SIDE = 64
_MEMBER = re.compile(r"(?P<part>train|val)/(?P<label>\d+)_n\d+/\w+_(?P<number>\d+)\.JPEG")


def read_zip(paths: Sequence[Path]) -> RawSplit:
    """The published zip, checked and decoded; ``val`` serves as the test set."""
    (path,) = paths
    with readable(path):
        content = path.read_bytes()
    check_sha256(content, expected=ZIP_SHA256, named=str(path))
    return decode_zip(content, path=path)


def decode_zip(content: bytes, *, path: Path) -> RawSplit:
    """RGB images in an order that takes the classes in turn, so that any first n records show all of them."""
    with readable(path), zipfile.ZipFile(io.BytesIO(content)) as archive:
        members: dict[str, list[tuple[int, int, str]]] = {"train": [], "val": []}
        for name in archive.namelist():
            if match := _MEMBER.fullmatch(name):
                members[match["part"]].append((int(match["label"]), int(match["number"]), name))
        for part, found in members.items():
            if not found:
                raise RequestError(f"{path} holds no images under {part}/; download it again.")
        x_train, y_train = _decode_members(archive, _classes_in_turn(members["train"]), path=path)
        x_test, y_test = _decode_members(archive, _classes_in_turn(members["val"]), path=path)
    return RawSplit(x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)


def _classes_in_turn(members: Sequence[tuple[int, int, str]]) -> list[tuple[int, str]]:
    by_class: dict[int, list[tuple[int, str]]] = {}
    for label, number, name in sorted(members):
        by_class.setdefault(label, []).append((number, name))
    turns = [
        (turn, label, name) for label, images in by_class.items() for turn, (_, name) in enumerate(images)
    ]
    return [(label, name) for _, label, name in sorted(turns)]


def _decode_members(
    archive: zipfile.ZipFile, members: Sequence[tuple[int, str]], *, path: Path
) -> tuple[Array, Array]:
    images = np.empty((len(members), 3, _SIDE, _SIDE), dtype=np.uint8)
    for row, (_, name) in enumerate(members):
        with Image.open(io.BytesIO(archive.read(name))) as picture:
            if picture.size != (_SIDE, _SIDE):
                raise RequestError(
                    f"{name} in {path} is {picture.width} x {picture.height} pixels "
                    f"instead of {_SIDE} x {_SIDE}; download the zip again."
                )
            images[row] = np.asarray(picture.convert("RGB")).transpose(2, 0, 1)
    return images, np.array([label for label, _ in members], dtype=np.uint8)
