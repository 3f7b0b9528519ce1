"""Inputs without labels, for a classifier that exists already: an archive with ``x``, or one picture.

Axes and values of an archive follow the rules of a user's own data (`hauberk.data.own`). A picture has 8 bits
a channel and no transparency, is made grey or coloured as the classifier needs it, and is divided by the
public constant 255. Nothing is resized or cropped: which pixels a picture consists of is the user's decision,
and a certificate is about exactly these.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps

from hauberk.data.integrity import read_arrays, readable
from hauberk.data.own import scaled_inputs
from hauberk.data.raw import scaled
from hauberk.data.validation import check_inputs
from hauberk.errors import RequestError

_COLOURS = {1: "L", 3: "RGB"}
_FORMATS = ("PNG", "JPEG")  # no others of Pillow's decoders are let near a user's file
_EIGHT_BITS = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr")


def read_inputs(path: Path, *, shape: tuple[int, ...]) -> torch.Tensor:
    """The inputs at ``path`` as float32 in [0, 1], ``(N, *shape)``; any other shape is refused."""
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise RequestError(
            f"{path} is neither an .npz archive nor a picture in .png or .jpg; save the inputs so."
        )
    return reader(path, shape)


def _read_archive(path: Path, shape: tuple[int, ...]) -> torch.Tensor:
    named = f"array 'x' of {path}"
    x = scaled_inputs(read_arrays(path, required=("x",))["x"], named=named)
    if tuple(x.shape[1:]) != shape:
        raise RequestError(
            f"{named} holds inputs of shape {tuple(x.shape[1:])}, but this classifier takes {_words(shape)}; "
            f"save it as an array of shape (N, {', '.join(map(str, shape))})."
        )
    check_inputs(x, named=named)
    return x


def _read_picture(path: Path, shape: tuple[int, ...]) -> torch.Tensor:
    if len(shape) != 3 or shape[0] not in _COLOURS:
        raise RequestError(
            f"{path} is a picture, but this classifier takes {_words(shape)}; save the inputs as .npz."
        )
    channels, height, width = shape
    with readable(path), Image.open(path, formats=_FORMATS) as file:
        if file.mode not in _EIGHT_BITS:
            raise RequestError(f"{path} has more than 8 bits a channel; save it with 8.")
        if {*file.size} != {width, height}:  # as the file lies or turned: before any pixel is unpacked
            raise RequestError(
                f"{path} has {file.width} x {file.height} pixels, but this classifier takes {_words(shape)}; "
                "crop or resize it."
            )
        picture = ImageOps.exif_transpose(file)
        if picture.size != (width, height):
            raise RequestError(
                f"{path} has {picture.width} x {picture.height} pixels, but this classifier takes "
                f"{_words(shape)}; crop or resize it."
            )
        if np.asarray(picture.convert("RGBA"))[..., 3].min() < 255:
            raise RequestError(f"{path} is partly transparent; put it on a background first.")
        pixels = np.asarray(picture.convert(_COLOURS[channels]))
    return scaled(pixels.reshape(1, height, width, channels).transpose(0, 3, 1, 2))


_READERS: dict[str, Callable[[Path, tuple[int, ...]], torch.Tensor]] = {
    ".npz": _read_archive,
    ".png": _read_picture,
    ".jpg": _read_picture,
    ".jpeg": _read_picture,
}


def _words(shape: tuple[int, ...]) -> str:
    """(1, 28, 28) as "pictures of 28 x 28 (1 channel)", (5,) as "rows of 5 numbers"."""
    if len(shape) == 3:
        plural = "" if shape[0] == 1 else "s"
        return f"pictures of {shape[2]} x {shape[1]} ({shape[0]} channel{plural})"
    return f"rows of {shape[0]} numbers"
