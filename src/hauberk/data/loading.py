"""One door for all data: a name, or the path of a user's own archive, table or folder of pictures."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hauberk.data.dataset import Split
from hauberk.data.folder import data_folder, home_expanded
from hauberk.data.image_folder import load_folder
from hauberk.data.named import NAMED_SETS, NamedSet
from hauberk.data.own import load_own
from hauberk.data.table import is_table, load_table
from hauberk.data.table_schema import TableSchema
from hauberk.errors import RequestError

_TABLE_OPTIONS = ("schema", "max_per_unit", "test", "holdout")
_FOLDER_OPTIONS = ("image_size", "grey", "unit", "max_per_unit", "test", "holdout")
OWN_FILE_OPTIONS = tuple(dict.fromkeys(_TABLE_OPTIONS + _FOLDER_OPTIONS))
"""What is said about a user's own table or folder, beside ``records``."""


def load(
    name_or_path: str,
    *,
    data_dir: Path | None = None,
    records: int | None = None,
    classes: int | None = None,
    schema: TableSchema | Path | str | None = None,
    image_size: int | None = None,
    grey: bool = False,
    unit: str | None = None,
    max_per_unit: int | None = None,
    test: Path | str | None = None,
    holdout: float | None = None,
) -> Split:
    """Training and test data, checked and scaled into [0, 1] with public constants only.

    A name is one of ``catalog()`` and is looked for in the data folder (``data_dir``, else ``HAUBERK_DATA``,
    else ``~/.cache/hauberk/data``); its checksum is verified. Anything that ends in ``.npz`` is a user's own
    archive, for which ``records`` (number of training records) and ``classes`` must be declared, here or in
    the archive. ``.csv`` and ``.csv.gz`` are tables, read by a ``schema`` (`hauberk.data.table`); a folder
    holds pictures (`hauberk.data.image_folder`). There, ``records`` counts what is protected: persons, where
    a ``unit`` names them, each with at most ``max_per_unit`` pictures or rows. ``test`` names test data, else
    a share ``holdout`` of the persons or records is held out.

    Everything wrong with the data is a :class:`~hauberk.errors.RequestError` of one sentence.
    """
    given = {
        "schema": schema,
        "image_size": image_size,
        "grey": grey or None,
        "unit": unit,
        "max_per_unit": max_per_unit,
        "test": test,
        "holdout": holdout,
    }
    own: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if (named := NAMED_SETS.get(name_or_path)) is not None:
        _check_declaration("records", records, named.train, named)
        _check_declaration("classes", classes, named.classes, named)
        _refuse(own, known=(), what=f"the named data set {name_or_path}")
        return named.load(data_folder(data_dir))
    path = home_expanded(name_or_path)
    if path.suffix.lower() == ".npz":
        _refuse(own, known=(), what="an .npz file")
        return load_own(path, records=records, classes=classes)
    if "test" in own:
        own["test"] = home_expanded(own["test"])
    if is_table(path):
        return _table(path, records, classes, own)
    if name_or_path and os.path.isdir(path):
        _refuse(own, known=_FOLDER_OPTIONS, what="a folder of pictures")
        split = load_folder(path, records=records, **{"image_size": None, **own})
        return _with_classes(split, classes)
    if os.path.exists(path):
        raise RequestError(
            f"'{name_or_path}' is not a numpy archive, a .csv table or a folder of pictures; save the data "
            "with numpy.savez, or as one of the others."
        )
    raise RequestError(
        f"there is no data set '{name_or_path}'; choose one of {', '.join(NAMED_SETS)} "
        "or give the path of an .npz or .csv file, or of a folder of pictures."
    )


def _table(path: Path, records: int | None, classes: int | None, own: dict[str, Any]) -> Split:
    _refuse(own, known=_TABLE_OPTIONS, what="a table, whose schema names the unit,")
    schema = own.pop("schema", None)
    if schema is None:
        raise RequestError(
            f"{path} is a table without a schema; draft one with hauberk data inspect, put public bounds "
            "into it, and pass it as --schema."
        )
    if not isinstance(schema, TableSchema):
        schema = TableSchema.read(home_expanded(schema))
    return _with_classes(load_table(path, schema=schema, records=records, **own), classes)


def _refuse(given: dict[str, Any], *, known: tuple[str, ...], what: str) -> None:
    for name in given:
        if name not in known:
            raise RequestError(f"--{name.replace('_', '-')} does not go with {what}; leave it out.")


def _with_classes(split: Split, classes: int | None) -> Split:
    if classes is not None and classes != split.classes:
        raise RequestError(
            f"--classes says {classes}, but {split.name} has {split.classes} by its schema or folders; "
            "leave out --classes."
        )
    return split


def _check_declaration(what: str, declared: int | None, published: int, named: NamedSet) -> None:
    """A published set already has its public constants; another number would be a misunderstanding."""
    if declared is not None and declared != published:
        raise RequestError(
            f"{named.name} is a published data set with {published} {what}, but --{what} says {declared}; "
            f"leave out --{what}."
        )
