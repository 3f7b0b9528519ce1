"""The zip of Tiny ImageNet, a small one made here."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from hauberk.data.tiny_imagenet import decode_zip, read_zip

Refusal = Callable[[Callable[[], object]], str]


def jpeg(grey: int, *, mode: str = "RGB", side: int = 64) -> bytes:
    content = io.BytesIO()
    Image.new(mode, (side, side), grey if mode == "L" else (grey,) * 3).save(content, "JPEG")
    return content.getvalue()


def zipped(members: dict[str, bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return content.getvalue()


def test_classes_come_in_turn_and_grey_becomes_rgb() -> None:
    members = {
        f"train/{c}_n0000000{c}/n0000000{c}_{i}.JPEG": jpeg(100 * c + i) for c in (0, 1) for i in (2, 10, 0)
    }
    members |= {f"val/{c}_n0000000{c}/val_{40 + c}.JPEG": jpeg(100 * c, mode="L") for c in (1, 0)}
    raw = decode_zip(zipped(members), path=Path("tiny.zip"))
    assert raw.x_train.shape == (6, 3, 64, 64)
    assert raw.y_train.tolist() == [0, 1, 0, 1, 0, 1]
    assert np.abs(raw.x_train[:, 0, 0, 0] - np.array([0.0, 100, 2, 102, 10, 110])).max() <= 1
    assert raw.x_test.shape == (2, 3, 64, 64)
    assert raw.y_test.tolist() == [0, 1]


def test_bad_zips(refusal: Refusal) -> None:
    path = Path("tiny.zip")
    train = {"train/0_n00000000/n00000000_0.JPEG": jpeg(7)}
    assert "no images under val/" in refusal(lambda: decode_zip(zipped(train), path=path))
    assert "no images under train/" in refusal(lambda: decode_zip(zipped({}), path=path))
    wrong_size = train | {"val/0_n00000000/val_0.JPEG": jpeg(7, side=32)}
    assert "is 32 x 32 pixels" in refusal(lambda: decode_zip(zipped(wrong_size), path=path))
    no_picture = train | {"val/0_n00000000/val_0.JPEG": b"hello"}
    assert "cannot read tiny.zip" in refusal(lambda: decode_zip(zipped(no_picture), path=path))


def test_another_zip_is_not_the_published_one(tmp_path: Path, refusal: Refusal) -> None:
    path = tmp_path / "tiny_imagenet_10x.zip"
    path.write_bytes(zipped({"train/0_n00000000/n00000000_0.JPEG": jpeg(7)}))
    message = refusal(lambda: read_zip([path]))
    assert message.startswith(f"{path} is not the published data")
