"""What a report shows beside the card: curves over training, test pictures, radii.

Exhibits contain test inputs, released models' answers and public constants only; nothing here is computed
from training records outside the accounted mechanism.
"""

from __future__ import annotations

import io
import os
import zipfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hauberk.errors import RequestError
from hauberk.files import check_archive, write_bytes


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """One line of ``metrics.jsonl``: the model after ``step`` steps."""

    step: int
    epoch: float
    epsilon: float | None
    test_accuracy: float | None


@dataclass(frozen=True, kw_only=True)
class Strip:
    """Some test pictures with their certified radii and the attack's best try against each."""

    images: NDArray[np.float32]  # (n, channels, height, width) in [0, 1]
    labels: NDArray[np.int64]  # true classes
    predicted: NDArray[np.int64]  # smoothed classifier, -1 for an abstention
    radii: NDArray[np.float32]
    attempts: NDArray[np.float32]  # the attacked pictures, same shape as images
    attempt_predicted: NDArray[np.int64]
    attempt_sizes: NDArray[np.float32]  # distance of the attempt from the picture, in the card's norm


@dataclass(frozen=True, kw_only=True)
class Exhibits:
    curve: tuple[CurvePoint, ...] = ()
    strip: Strip | None = None
    class_names: tuple[str, ...] = field(default=())

    def save_strip(self, path: Path) -> None:
        """The pictures as a numpy archive, so that a report can be drawn again without new attacks."""
        if self.strip is None:
            path.unlink(missing_ok=True)
            return
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **vars(self.strip))
        write_bytes(path, buffer.getvalue())


# what numpy and zipfile raise on damaged archives
_DAMAGES = (
    OSError,
    ValueError,
    TypeError,
    KeyError,
    EOFError,
    RuntimeError,  # NotImplementedError (unknown compression) is one of these
    zipfile.BadZipFile,
    zlib.error,
)


def load_strip(path: Path) -> Strip | None:
    if not os.path.lexists(path):
        return None
    try:
        with path.open("rb") as file:
            check_archive(file, named=path)
            archive = np.load(file, allow_pickle=False)
            return Strip(**{name: archive[name] for name in archive.files})
    except _DAMAGES as error:
        raise RequestError(f"{path} is damaged: {error}") from error
