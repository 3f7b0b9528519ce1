"""What a reader of files hands over: four arrays, nothing scaled and nothing checked yet."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hauberk.data.dataset import Dataset, Split
from hauberk.data.integrity import read_arrays
from hauberk.errors import RequestError

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class RawSplit:
    """Training and test arrays in their original order: uint8 images (N, C, H, W) or float32 rows (N, d)."""

    x_train: Array
    y_train: Array
    x_test: Array
    y_test: Array

    @property
    def arrays(self) -> tuple[Array, Array, Array, Array]:
        return self.x_train, self.y_train, self.x_test, self.y_test

    def to_split(self, *, name: str, classes: int, records: int, public_note: str | None = None) -> Split:
        """The checked, scaled form; pixels are divided by the public constant 255."""

        def dataset(x: Array, y: Array) -> Dataset:
            return Dataset(name=name, x=scaled(x), y=torch.from_numpy(y.astype(np.int64)), classes=classes)

        return Split(
            name=name,
            train=dataset(self.x_train, self.y_train),
            test=dataset(self.x_test, self.y_test),
            records=records,
            classes=classes,
            public_note=public_note,
        )


def scaled(x: Array) -> torch.Tensor:
    """8-bit values divided by 255; other numbers as they are; float32 either way."""
    # numpy's copy also brings foreign byte orders and read-only buffers into a form that torch accepts
    with np.errstate(over="ignore"):  # what does not fit becomes infinite, and is refused with its row
        values = torch.from_numpy(np.array(x, dtype=np.float32, order="C"))
    return values.div_(255) if x.dtype == np.uint8 else values


def grey_archive(path: Path) -> RawSplit:
    """A numpy archive with ``x_train``, ``y_train``, ``x_test``, ``y_test``: 8-bit grey images (N, H, W)."""
    axes = {"x_train": 3, "y_train": 1, "x_test": 3, "y_test": 1}
    arrays = read_arrays(path, required=tuple(axes))
    for name, array in arrays.items():
        if array.dtype != np.uint8 or array.ndim != axes[name]:
            raise RequestError(
                f"array '{name}' of {path} is not 8-bit with {axes[name]} axes; download the archive again."
            )
    return RawSplit(
        x_train=arrays["x_train"][:, None],
        y_train=arrays["y_train"],
        x_test=arrays["x_test"][:, None],
        y_test=arrays["y_test"],
    )
