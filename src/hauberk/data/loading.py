"""One door for all data: a name, or the path of a user's own archive."""

from __future__ import annotations

import os
from pathlib import Path

from hauberk.data.dataset import Split
from hauberk.data.folder import data_folder, home_expanded
from hauberk.data.named import NAMED_SETS, NamedSet
from hauberk.data.own import load_own
from hauberk.errors import RequestError


def load(
    name_or_path: str,
    *,
    data_dir: Path | None = None,
    records: int | None = None,
    classes: int | None = None,
) -> Split:
    """Training and test data, checked and scaled into [0, 1] with public constants only.

    A name is one of ``catalog()`` and is looked for in the data folder (``data_dir``, else ``HAUBERK_DATA``,
    else ``~/.cache/hauberk/data``); its checksum is verified. Anything that ends in ``.npz`` is a user's own
    archive, for which ``records`` (number of training records) and ``classes`` must be declared, here or in
    the archive. Everything wrong with the data is a :class:`~hauberk.errors.RequestError` of one sentence.
    """
    if (named := NAMED_SETS.get(name_or_path)) is not None:
        _check_declaration("records", records, named.train, named)
        _check_declaration("classes", classes, named.classes, named)
        return named.load(data_folder(data_dir))
    path = home_expanded(name_or_path)
    if path.suffix.lower() == ".npz":
        return load_own(path, records=records, classes=classes)
    if os.path.exists(path):
        raise RequestError(
            f"'{name_or_path}' is not a numpy archive; save the data with numpy.savez as an .npz file."
        )
    raise RequestError(
        f"there is no data set '{name_or_path}'; choose one of {', '.join(NAMED_SETS)} "
        "or give the path of an .npz file."
    )


def _check_declaration(what: str, declared: int | None, published: int, named: NamedSet) -> None:
    """A published set already has its public constants; another number would be a misunderstanding."""
    if declared is not None and declared != published:
        raise RequestError(
            f"{named.name} is a published data set with {published} {what}, but --{what} says {declared}; "
            f"leave out --{what}."
        )
