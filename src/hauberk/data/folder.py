"""Where data lie: the data folder, and the ways a data set may be arranged in it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hauberk.data.raw import RawSplit


def data_folder(data_dir: Path | None = None) -> Path:
    """``data_dir`` if given, else the environment's ``HAUBERK_DATA``, else ``~/.cache/hauberk/data``."""
    if data_dir is not None:
        return home_expanded(data_dir)
    return home_expanded(os.environ.get("HAUBERK_DATA") or "~/.cache/hauberk/data")


def home_expanded(path: Path | str) -> Path:
    """The path with a leading ``~`` replaced; an unknown user's home is left as it is, not an error."""
    return Path(os.path.expanduser(path))


@dataclass(frozen=True, kw_only=True)
class Layout:
    """One arrangement of a data set: a folder, the files in it, and the function that reads them.

    ``files`` has one entry per file, each with its possible spellings; ``read`` gets the paths in that order.
    """

    folder: str
    files: tuple[tuple[str, ...], ...]
    read: Callable[[Sequence[Path]], RawSplit]

    def locate(self, data_dir: Path) -> list[Path | None]:
        """For every file the first spelling that is there, or None (also where we may not look)."""
        folder = data_dir / self.folder
        return [
            next((folder / spelling for spelling in spellings if os.path.isfile(folder / spelling)), None)
            for spellings in self.files
        ]

    def place(self, data_dir: Path) -> Path:
        """How messages and lists call this place: the file if there is one, else the folder."""
        folder = data_dir / self.folder
        return folder / self.files[0][0] if len(self.files) == 1 else folder


def one_of(*names: str) -> tuple[tuple[str, ...], ...]:
    """File names without alternative spellings, in the form that :class:`Layout` takes."""
    return tuple((name,) for name in names)
