"""What is kept of attacks on a run at given radii: a table as JSON, and some pictures for the report.

attacks.json  one row per attack and radius, the worst case over the attacks, what was attacked and how
attacks.npz   the pictures; the table names them by their checksum, and the weights likewise
"""

from __future__ import annotations

import hashlib
import io
import zipfile
import zlib
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hauberk.accounting.json_form import from_json
from hauberk.errors import RequestError
from hauberk.files import read_json, write_bytes, write_json

NO_ATTACK, WORST_CASE = "none", "worst case"
# what numpy and zipfile raise on archives that somebody has edited
_DAMAGES = (OSError, ValueError, TypeError, KeyError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)


@dataclass(frozen=True, kw_only=True)
class AttackRow:
    """What one attack, none, or the worst of all leaves of the accuracy at one radius.

    ``accuracy``: share of the tested inputs still answered rightly; with probability 95 % over the choice of
    test inputs its population value lies between ``accuracy_low`` and ``accuracy_high`` (exact binomial;
    inputs without a confirmed majority count against either end). ``success``: share broken of those answered
    rightly before and, if targeted, not with the target; None if there are none.
    """

    attack: str
    norm: str
    radius: float
    tested: int
    accuracy: float
    accuracy_low: float
    accuracy_high: float
    success: float | None
    steps: int | None  # of Square, queries; None for the worst of several attacks
    draws: int | None  # per step; None where no noise is averaged over


@dataclass(frozen=True, kw_only=True)
class AttackTable:
    """What ``attacks.json`` holds."""

    data: str
    classifier: str
    norm: str
    target: int | None
    samples: int | None  # fresh draws of a verdict; None for a network, which is asked once
    seed: int
    confidence: float
    attacks: dict[str, str]  # names, and what each was in words
    rows: tuple[AttackRow, ...]
    weights_sha256: str | None = None
    pictures_sha256: str | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class AttackPictures:
    """Some attacked pictures, each at the smallest radius that broke it, or at the largest."""

    images: NDArray[np.float32]  # (n, channels, height, width) in [0, 1]
    attempts: NDArray[np.float32]
    labels: NDArray[np.int64]
    clean_answers: NDArray[np.int64]
    answers: NDArray[np.int64]
    broken: NDArray[np.bool_]
    undecided: NDArray[np.bool_]
    radii: NDArray[np.float64]
    sizes: NDArray[np.float64]
    attacks: NDArray[np.str_]

    def __post_init__(self) -> None:
        columns = list(vars(self).values())
        lengths = {len(column) for column in columns if column.ndim}
        shape = self.images.shape
        kinds = "".join(column.dtype.kind for column in columns)
        if (
            kinds != "ffiiibbffU"
            or len(shape) != 4
            or shape[1] not in (1, 3)
            or self.attempts.shape != shape
            or lengths != {len(self.images)}
            or any(column.ndim != 1 for column in columns[2:])
            or not all(np.isfinite(column).all() for column in columns if column.dtype.kind == "f")
        ):
            raise RequestError("the pictures of the attacks are incomplete or no pictures")

    def to_bytes(self) -> bytes:
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **vars(self))
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes) -> AttackPictures:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            return cls(**{name: archive[name] for name in archive.files})


@dataclass(frozen=True, kw_only=True, eq=False)
class AttackRecord:
    """Table and pictures; None where inputs are no pictures, or these are missing or not the table's."""

    table: AttackTable
    pictures: AttackPictures | None = None

    def write(self, folder: Path) -> AttackTable:
        """Both files into a run's folder; the table, written last, says whose weights and pictures it has."""
        content = None if self.pictures is None else self.pictures.to_bytes()
        if content is not None:
            write_bytes(folder / "attacks.npz", content)
        table = replace(
            self.table,
            weights_sha256=_weights_digest(folder),
            pictures_sha256=None if content is None else hashlib.sha256(content).hexdigest(),
        )
        write_json(folder / "attacks.json", asdict(table))
        if content is None:
            (folder / "attacks.npz").unlink(missing_ok=True)
        return table


def read_attacks(folder: Path) -> AttackRecord | None:
    """None if there has been no attack; refused if it was on other weights than those in the folder."""
    path = folder / "attacks.json"
    if not path.exists():
        return None
    table = from_json(AttackTable, read_json(path), where=str(path))
    if table.weights_sha256 != _weights_digest(folder):
        raise RequestError(f"{path} is about other weights than this run's: attack it again")
    return AttackRecord(table=table, pictures=_own_pictures(folder / "attacks.npz", table))


def _own_pictures(path: Path, table: AttackTable) -> AttackPictures | None:
    try:
        content = path.read_bytes()
        own = hashlib.sha256(content).hexdigest() == table.pictures_sha256
        return AttackPictures.from_bytes(content) if own else None
    except _DAMAGES:
        return None


def _weights_digest(folder: Path) -> str | None:
    path = folder / "model.safetensors"
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
