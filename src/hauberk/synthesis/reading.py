"""Files of health records: CSV (plain, .gz or .xz), Parquet, or a numpy archive of columns.

A file is read whole before anything is made of it, and everything wrong with it is one sentence with file,
line and column. Lines are counted as an editor shows them, the heading being line 1; Parquet files and numpy
archives have rows, counted from 1.
"""

from __future__ import annotations

import csv
import gzip
import io
import lzma
from pathlib import Path
from typing import Any

import numpy as np

from hauberk.data.folder import home_expanded
from hauberk.data.integrity import readable, unpacked
from hauberk.errors import RequestError
from hauberk.files import check_archive, check_unpacked
from hauberk.synthesis.cells import Source
from hauberk.synthesis.encode import Encoded, encode_sources
from hauberk.synthesis.extra import pandas, pyarrow
from hauberk.synthesis.patients import Patients
from hauberk.synthesis.schema import Schema

FORMATS = (".csv", ".csv.gz", ".csv.xz", ".parquet", ".npz")


def read_patients(path: Path, schema: Schema, *, static_path: Path | None = None) -> Encoded:
    """The patients of a long or wide table (see :func:`~hauberk.synthesis.encode.encode`).

    ``static_path`` names a second table with one row per patient, for static features that stand apart. The
    counts of repaired values that come with the patients are *not private*.
    """
    return encode_sources(_sources(path, static_path), schema)


def validate(path: Path, schema: Schema, *, static_path: Path | None = None) -> Patients:
    """The patients of a table that needs no repair: whatever a rule would change is refused instead."""
    return encode_sources(_sources(path, static_path), schema, repair=False).patients


def _sources(path: Path, static_path: Path | None) -> list[Source]:
    return [read_table(each) for each in (path, static_path) if each is not None]


def read_table(path: Path) -> Source:
    """The columns of a file as they are: texts from CSV, numbers or texts from the other formats."""
    path = home_expanded(path)
    ending = next((each for each in reversed(FORMATS) if path.name.lower().endswith(each)), None)
    if ending is None:
        raise RequestError(f"{path} is none of {', '.join(FORMATS)}; save the table as one of these.")
    with readable(path):
        if ending == ".npz":
            return Source(table=_archive(path), named=str(path))
        content = path.read_bytes()
        if ending == ".parquet":
            return Source(table=_parquet(content, path), named=str(path))
        if ending == ".csv.gz":
            content = unpacked(content, gzip.open, path=path)
        elif ending == ".csv.xz":
            content = unpacked(content, lzma.open, path=path)
        return Source(table=_csv(content, path), named=str(path), first=2, word="line")


def _csv(content: bytes, path: Path) -> Any:
    """All entries as texts, so that a message can show what stands in the file."""
    pd = pandas()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise RequestError(f"line {line} of {path} is not UTF-8 text; save the file as UTF-8.") from error
    try:
        _check_shape(text, path)
        return pd.read_csv(
            io.StringIO(text),
            dtype="str",
            keep_default_na=False,
            skip_blank_lines=False,
            index_col=False,
        )
    except (csv.Error, pd.errors.ParserError) as error:
        raise RequestError(f"{path} is not a table of comma-separated values; save it again.") from error


def _check_shape(text: str, path: Path) -> None:
    """The heading names every column once, every line has as many entries, and no entry spans lines."""
    rows = csv.reader(io.StringIO(text))
    heading = next(rows, [])
    if not heading:
        raise RequestError(f"{path} is empty; the first line must name the columns.")
    _check_heading(heading, path)
    width = len(heading)
    for number, row in enumerate(rows, start=2):
        if rows.line_num != number:
            raise RequestError(f"line {number} of {path} goes on in the next one; put every row on one line.")
        if len(row) != width:
            raise RequestError(
                f"line {number} of {path} has {len(row)} entries, but the heading names {width} columns; "
                "correct the line."
            )


def _check_heading(heading: list[str], path: Path) -> None:
    for name in heading:
        if not name.strip():
            raise RequestError(f"line 1 of {path} has a column without a name; name it.")
        if heading.count(name) > 1:
            raise RequestError(f"line 1 of {path} names the column '{name}' twice; rename one.")


def _parquet(content: bytes, path: Path) -> Any:
    facts = pyarrow("pyarrow.parquet").ParquetFile(io.BytesIO(content)).metadata
    # repeated values take no room in the file, whatever it says about its size: eight bytes each in memory
    check_unpacked(8 * facts.num_rows * facts.num_columns, packed=len(content), named=path)
    table = pandas().read_parquet(io.BytesIO(content))
    table.columns = [str(name) for name in table.columns]
    return table.reset_index(drop=True)


def _archive(path: Path) -> Any:
    """One-dimensional arrays of equal length, each a column; pickled objects are refused, never loaded."""
    with path.open("rb") as file:
        check_archive(file, named=path)
        archive = np.load(file, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise RequestError(f"{path} holds a single array, not columns; save it with numpy.savez.")
        columns = {name: archive[name] for name in archive.files}
    lengths = {name: column.shape for name, column in columns.items()}
    for name, shape in lengths.items():
        if len(shape) != 1 or shape != next(iter(lengths.values())):
            raise RequestError(
                f"array '{name}' of {path} has shape {shape}, but columns must have one axis and be equally "
                "long; save one array per column."
            )
    return pandas().DataFrame(columns)
