"""Certified blocks of a long test set, kept on disk until all of them are done.

A block's draws depend on the seed and on where the block begins, and on no other block. So whoever starts an
interrupted certification again needs only the finished blocks to end with the same certificates, to the last
bit. The file's name holds a digest of everything that a certificate depends on: other weights, other inputs
or another question find another file, never somebody else's blocks.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hauberk.certify import Certificates
from hauberk.errors import RequestError
from hauberk.files import PARTIAL, write_text

_WHOLE, _REAL = ("labels", "votes", "draws", "predicted"), "radii"


@dataclass(frozen=True, kw_only=True)
class Block:
    """What the draws said about the inputs from ``first`` on: the columns of `Certificates`."""

    first: int
    labels: NDArray[np.int64]
    radii: NDArray[np.float64]
    votes: NDArray[np.int64]
    draws: NDArray[np.int64]
    predicted: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)

    @classmethod
    def of(cls, first: int, certificates: Certificates) -> Block:
        return cls(first=first, **{name: getattr(certificates, name) for name in (*_WHOLE, _REAL)})

    def to_json(self) -> dict[str, Any]:
        return {"first": self.first, **{name: getattr(self, name).tolist() for name in (*_WHOLE, _REAL)}}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Block:
        columns = {name: np.array(content[name], dtype=np.int64) for name in _WHOLE}
        return cls(first=content["first"], radii=np.array(content[_REAL], dtype=np.float64), **columns)

    def to_words(self, length: int) -> NDArray[np.int64]:
        """For the way between processes: ``(length, 5)``, the radii bit by bit, rows of zeros at the end."""
        words = np.zeros((length, len(_WHOLE) + 1), dtype=np.int64)
        words[: len(self)] = np.stack(
            [*(getattr(self, name) for name in _WHOLE), self.radii.view(np.int64)], 1
        )
        return words

    @classmethod
    def from_words(cls, first: int, words: NDArray[np.int64]) -> Block:
        *whole, radii = np.ascontiguousarray(words.T)
        return cls(first=first, radii=radii.view(np.float64), **dict(zip(_WHOLE, whole, strict=True)))


def joined(blocks: Mapping[int, Block], like: Certificates) -> Certificates:
    """All blocks in order as the certificates of the whole; ``like``, of no inputs, lends the rest."""
    parts = [Block.of(0, like), *(blocks[first] for first in sorted(blocks))]
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in (*_WHOLE, _REAL)
    }
    return replace(like, **columns)


def digest_of(facts: object) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


class FinishedBlocks:
    """Blocks by where they begin. With a folder each is on disk before `add` returns; without, in memory.

    A line is a checksum and a block. A kill in the middle of writing leaves a line that does not fit its
    checksum: it is dropped, and its block is certified again.
    """

    def __init__(self, folder: Path | None = None, digest: str = "") -> None:
        # the ending lets the next training in this folder clear the file away with other unfinished ones
        self.path = None if folder is None else folder / f".certificates-{digest[:16]}{PARTIAL}"
        self.blocks: dict[int, Block] = {}
        if self.path is not None and self.path.exists():
            self._read(self.path)

    def __len__(self) -> int:
        """Inputs, not blocks."""
        return sum(map(len, self.blocks.values()))

    def __contains__(self, first: int) -> bool:
        return first in self.blocks

    def _read(self, path: Path) -> None:
        try:
            lines = path.read_bytes().splitlines(keepends=True)
        except OSError as error:
            raise RequestError(f"cannot read {path}: {error.strerror or error}") from error
        whole = [line for line in lines if line.endswith(b"\n") and line[:64] == _checksum(line[65:-1])]
        for line in whole:
            block = Block.from_json(json.loads(line[65:]))
            self.blocks[block.first] = block
        if len(whole) < len(lines):  # what is appended must not continue a broken line
            write_text(path, b"".join(whole).decode())

    def add(self, blocks: Iterable[Block]) -> None:
        """Keep blocks that are finished, durably."""
        lines = []
        for block in blocks:
            content = json.dumps(block.to_json()).encode()
            lines.append(_checksum(content) + b" " + content + b"\n")
            self.blocks[block.first] = block
        if self.path is None or not lines:
            return
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            with os.fdopen(descriptor, "ab") as file:
                file.write(b"".join(lines))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise RequestError(f"cannot write {self.path}: {error.strerror or error}") from error

    def remove(self) -> None:
        """All is done, and has been written elsewhere."""
        if self.path is None:
            return
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise RequestError(f"cannot remove {self.path}: {error.strerror or error}") from error


def _checksum(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()
