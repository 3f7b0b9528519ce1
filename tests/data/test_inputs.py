"""Inputs of one's own: archives and pictures in, tensors in [0, 1] out, anything doubtful refused."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from hauberk.data.inputs import read_inputs
from hauberk.errors import RequestError

GREY, COLOUR = (1, 6, 5), (3, 6, 5)


def pixels(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


@pytest.mark.parametrize("name", ["one.png", "ONE.PNG"])
def test_a_grey_picture_is_divided_by_255(tmp_path: Path, name: str) -> None:
    values = pixels(6, 5)
    Image.fromarray(values).save(tmp_path / name, format="png")
    x = read_inputs(tmp_path / name, shape=GREY)
    assert x.dtype == torch.float32
    assert torch.equal(x, torch.from_numpy(values).float()[None, None] / 255)


def test_a_coloured_picture_has_its_channels_first(tmp_path: Path) -> None:
    values = pixels(6, 5, 3)
    Image.fromarray(values).save(tmp_path / "one.png")
    expected = torch.from_numpy(values).float().permute(2, 0, 1)[None] / 255
    assert torch.equal(read_inputs(tmp_path / "one.png", shape=COLOUR), expected)
    grey = np.asarray(Image.fromarray(values).convert("L"))
    assert torch.equal(
        read_inputs(tmp_path / "one.png", shape=GREY)[0, 0], torch.from_numpy(grey.copy()).float() / 255
    )


def test_a_grey_jpeg_for_a_coloured_classifier(tmp_path: Path) -> None:
    Image.fromarray(np.full((6, 5), 200, np.uint8)).save(tmp_path / "one.jpg")
    x = read_inputs(tmp_path / "one.jpg", shape=COLOUR)
    assert x.shape == (1, *COLOUR)
    torch.testing.assert_close(x, torch.full_like(x, 200 / 255), atol=0.01, rtol=0)


def test_a_photograph_taken_upright_is_turned_as_its_file_says(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # stored lying on its side
    Image.fromarray(pixels(5, 6)).save(tmp_path / "one.jpg", exif=exif)
    assert read_inputs(tmp_path / "one.jpg", shape=GREY).shape == (1, *GREY)


@pytest.mark.parametrize("kind", ["8 bits", "floats", "grey without a channel axis"])
def test_archives_follow_the_rules_of_ones_own_data(tmp_path: Path, kind: str) -> None:
    values = pixels(4, 6, 5)
    saved = {"8 bits": values[..., None], "floats": values[:, None] / np.float32(255)}.get(kind, values)
    np.savez(tmp_path / "mine.npz", x=saved, other=3)
    x = read_inputs(tmp_path / "mine.npz", shape=GREY)
    torch.testing.assert_close(x, torch.from_numpy(values).float()[:, None] / 255)


def test_tables_come_as_archives(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", x=np.zeros((2, 7), np.float32))
    assert read_inputs(tmp_path / "mine.npz", shape=(7,)).shape == (2, 7)


def _wrong(folder: Path, kind: str) -> tuple[Path, tuple[int, ...]]:
    path = folder / "one.png"
    if kind == "size":
        Image.fromarray(pixels(28, 27)).save(path)
    elif kind == "bits":
        Image.fromarray(pixels(6, 5).astype(np.uint16) * 256).save(path)
    elif kind == "transparent":
        Image.fromarray(pixels(6, 5, 4)).save(path)
    elif kind == "table":
        Image.fromarray(pixels(6, 5)).save(path)
        return path, (7,)
    elif kind == "damaged":
        path.write_bytes(b"\x89PNG nonsense")
    elif kind == "another format":
        Image.fromarray(pixels(6, 5)).save(path, format="gif")
    elif kind == "suffix":
        path = folder / "one.tiff"
    elif kind == "shape":
        path = folder / "mine.npz"
        np.savez(path, x=np.zeros((2, 7), np.float32))
    elif kind == "no x":
        path = folder / "mine.npz"
        np.savez(path, y=np.zeros(2))
    elif kind == "values":
        path = folder / "mine.npz"
        np.savez(path, x=np.full((1, 6, 5), 3.0))
    return path, GREY


SENTENCES = {
    "size": "has 27 x 28 pixels, but this classifier takes pictures of 5 x 6 (1 channel)",
    "bits": "more than 8 bits",
    "transparent": "transparent",
    "table": "takes rows of 7 numbers",
    "damaged": "cannot read",
    "another format": "cannot read",
    "suffix": "neither an .npz archive nor a picture",
    "shape": "inputs of shape (7,), but this classifier takes pictures of 5 x 6 (1 channel)",
    "no x": "has no array 'x'",
    "values": "must lie in [0, 1]",
    "missing": "cannot open",
}


@pytest.mark.parametrize("kind", SENTENCES)
def test_anything_else_is_refused_in_a_sentence(tmp_path: Path, kind: str) -> None:
    path, shape = _wrong(tmp_path, kind)
    with pytest.raises(RequestError) as caught:
        read_inputs(path, shape=shape)
    assert SENTENCES[kind] in str(caught.value)
    assert "\n" not in str(caught.value)
