"""Patients as a file that appears whole or not at all: CSV (plain, .gz or .xz) or Parquet."""

from __future__ import annotations

import gzip
import io
import lzma
import os
from pathlib import Path
from typing import Any

from hauberk.data.folder import home_expanded
from hauberk.errors import RequestError
from hauberk.files import write_bytes
from hauberk.synthesis.decode import decode
from hauberk.synthesis.extra import pyarrow
from hauberk.synthesis.patients import Patients

WRITTEN_FORMATS = (".csv", ".csv.gz", ".csv.xz", ".parquet")


def check_writable(path: Path) -> Path:
    """The path as it will be written to; a request that cannot succeed is refused before any work."""
    path = home_expanded(path)
    if not any(path.name.lower().endswith(each) for each in WRITTEN_FORMATS):
        raise RequestError(f"{path} is none of {', '.join(WRITTEN_FORMATS)}; choose one of these endings.")
    if not os.path.isdir(path.parent):
        raise RequestError(f"there is no folder {path.parent} to write {path.name} into; make it first.")
    return path


def write_patients(patients: Patients, path: Path) -> None:
    """The wide table of :func:`~hauberk.synthesis.decode.decode`, missing values as empty entries.

    What is written validates against the schema without repair, and read again it gives the same patients.
    Equal patients give equal bytes, whatever the time of day: compressed files carry no time stamp.
    """
    path = check_writable(path)
    write_bytes(path, _content(decode(patients), path.name.lower()))


def _content(table: Any, name: str) -> bytes:
    if name.endswith(".parquet"):
        pyarrow()
        buffer = io.BytesIO()
        table.to_parquet(buffer, index=False)
        return buffer.getvalue()
    text: bytes = table.to_csv(index=False, lineterminator="\n").encode()
    if name.endswith(".gz"):
        return gzip.compress(text, compresslevel=6, mtime=0)
    return lzma.compress(text) if name.endswith(".xz") else text
