"""Which data sets there are, and which of them are at hand."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hauberk.data.folder import data_folder
from hauberk.data.named import NAMED_SETS, NamedSet


@dataclass(frozen=True, kw_only=True)
class CatalogRow:
    """One line of ``hauberk data list``; ``where`` is a path, "built in" or "not found in <folder>"."""

    name: str
    kind: str
    shape: tuple[int, ...]
    classes: int
    train: int
    test: int
    licence: str
    available: bool
    where: str


def catalog(data_dir: Path | None = None) -> list[CatalogRow]:
    """All data sets with a name; looks for their files but opens none."""
    folder = data_folder(data_dir)
    return [_row(each, folder) for each in NAMED_SETS.values()]


def _row(each: NamedSet, folder: Path) -> CatalogRow:
    found = each.find(folder)
    if not each.layouts:
        where = "built in"
    elif found is not None:
        where = str(found[0].place(folder))
    else:
        where = f"not found in {folder}"
    return CatalogRow(
        name=each.name,
        kind=each.kind,
        shape=each.shape,
        classes=each.classes,
        train=each.train,
        test=each.test,
        licence=each.licence,
        available=found is not None or not each.layouts,
        where=where,
    )
