"""Pictures in folders: a folder per class, and if persons are protected, the person of every picture.

    clinic/ill/0001.png  clinic/healthy/0002.jpg          a picture is a record
    clinic/ill/anna/left.png  clinic/ill/anna/right.png   ``unit="folder"``: a folder names the person
    clinic/groups.csv, a table file,person                ``unit="clinic/groups.csv"``: files as seen there

Pictures may differ in size, be grey or coloured, PNG (8 or 16 bits), JPEG or WebP. Each becomes a square of
``image_size`` pixels: the largest centred square is cut out and resized. Values are divided by the public
constants 255 or 65,535. Size, colour and the folders' names are public constants, the same for all pictures.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps

from hauberk.data.folder import home_expanded
from hauberk.data.input_form import ONE_RECORD, DescribedSplit, InputForm
from hauberk.data.integrity import readable
from hauberk.data.persons import ONE_PERSON, Labelled, split_by_person
from hauberk.data.table import read_csv
from hauberk.data.validation import check_count
from hauberk.errors import RequestError

PICTURES = (".png", ".jpg", ".jpeg", ".webp")
FOLDER = "folder"
_FORMATS = ("PNG", "JPEG", "WEBP")  # no others of Pillow's decoders are let near a user's file
_SIXTEEN_BITS = ("I;16", "I;16L", "I;16B", "I")
_EIGHT_BITS = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr")
_LARGEST = 4096  # pixels a side: beyond it a mistake is likelier than a wish


def read_picture(path: Path, *, image_size: int, grey: bool) -> torch.Tensor:
    """One picture as float32 in [0, 1], (1 or 3, image_size, image_size)."""
    square = (image_size, image_size)
    with readable(path), Image.open(path, formats=_FORMATS) as file:
        if getattr(file, "n_frames", 1) > 1:
            raise RequestError(f"{path} holds several pictures; save each in a file of its own.")
        if file.mode in _SIXTEEN_BITS:
            if "transparency" in file.info:
                raise RequestError(f"{path} is partly transparent; put it on a background first.")
            values = np.asarray(ImageOps.exif_transpose(file), dtype=np.float32) / 65535
            fitted = ImageOps.fit(Image.fromarray(values), square, method=Image.Resampling.BILINEAR)
            pixels = np.asarray(fitted, dtype=np.float32)[..., None].clip(0.0, 1.0)
            pixels = pixels if grey else pixels.repeat(3, axis=2)
        elif file.mode in _EIGHT_BITS:
            picture = ImageOps.exif_transpose(file)
            if np.asarray(picture.convert("RGBA"))[..., 3].min() < 255:
                raise RequestError(f"{path} is partly transparent; put it on a background first.")
            coloured = picture.convert("L" if grey else "RGB")
            fitted = ImageOps.fit(coloured, square, method=Image.Resampling.BILINEAR)
            pixels = np.asarray(fitted, dtype=np.float32).reshape(*square, -1) / 255
        else:
            raise RequestError(f"{path} is a picture of mode {file.mode}; save it as a grey or RGB picture.")
    return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1), dtype=np.float32))


def read_pictures(paths: list[Path], *, image_size: int, grey: bool) -> torch.Tensor:
    """(N, channels, image_size, image_size)."""
    return torch.stack([read_picture(path, image_size=image_size, grey=grey) for path in paths])


def pictures_below(folder: Path) -> list[Path]:
    """Every picture below a folder, by name; a file that is none is refused, hidden ones are passed over."""
    found: list[Path] = []
    for entry in _entries(folder):
        found += pictures_below(entry) if os.path.isdir(entry) else [_picture(entry)]
    return found


def _entries(folder: Path) -> list[Path]:
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise RequestError(
            f"cannot open {folder} ({error.strerror}); check that it is a folder and that you may read it."
        ) from error
    return [folder / name for name in names if not name.startswith(".")]


def _picture(path: Path) -> Path:
    if path.suffix.lower() not in PICTURES:
        raise RequestError(f"{path} is no picture in {', '.join(PICTURES)}; take it out of the folder.")
    return path


@dataclass(frozen=True, kw_only=True)
class _Found:
    path: Path
    label: int
    owner: str


class _Persons:
    """Who a picture shows: by a folder's name, by a table, or nobody in particular."""

    def __init__(self, unit: str | None) -> None:
        self.by_folder = unit == FOLDER
        self.table = None if unit in (None, FOLDER) else home_expanded(str(unit))
        self._named = {} if self.table is None else _read_groups(self.table)

    def of(self, path: Path, *, root: Path) -> str:
        if self.table is None:
            return path.parent.name if self.by_folder else path.relative_to(root).as_posix()
        person = self._named.get(_location(path))
        if person is None:
            raise RequestError(f"{self.table} names nobody for {path}; add a line for it.")
        return person


def _location(path: Path) -> str:
    return os.path.normpath(os.path.abspath(path))


def _read_groups(path: Path) -> dict[str, str]:
    rows = read_csv(path)
    for name in ("file", "person"):
        if name not in rows.header:
            raise RequestError(f"{path} has no column '{name}'; its head line must be file,person.")
    file, person = rows.header.index("file"), rows.header.index("person")
    named: dict[str, str] = {}
    for line, entries in rows.rows:
        place = _location(path.parent / entries[file])
        if not entries[person] or not entries[file]:
            raise RequestError(f"line {line} of {path} lacks the file or the person; name both.")
        if named.setdefault(place, entries[person]) != entries[person]:
            raise RequestError(f"line {line} of {path} names a second person for one file; name one.")
    return named


def class_names(root: Path, *, beside: Path | None = None) -> tuple[str, ...]:
    """The class folders of ``root``, by name; ``beside`` them only the table of persons may lie."""
    names = []
    for entry in _entries(root):
        if os.path.isdir(entry):
            if not entry.name.isprintable():
                raise RequestError(f"the class folder {entry.name!a} has an unprintable name; rename it.")
            names.append(entry.name)
        elif beside is None or _location(entry) != _location(beside):
            raise RequestError(
                f"{entry} lies beside the class folders; put pictures into a folder per class."
            )
    if len(names) < 2:
        raise RequestError(f"{root} holds {len(names)} class folders; give a folder for each of two or more.")
    return tuple(names)


def _found(root: Path, classes: tuple[str, ...], persons: _Persons) -> Iterator[_Found]:
    for folder in class_names(root, beside=persons.table):
        if folder not in classes:
            raise RequestError(f"{root / folder} is a class that the training data do not have; remove it.")
        for entry in _entries(root / folder):
            if persons.by_folder and not os.path.isdir(entry):
                raise RequestError(
                    f"{entry} lies in no person's folder; put it into one, as --unit folder says."
                )
            if os.path.isdir(entry) and not persons.by_folder:
                raise RequestError(
                    f"{entry} is a folder inside a class; if it names a person, say --unit folder, else put "
                    "its pictures into the class folder."
                )
            for path in _entries(entry) if os.path.isdir(entry) else [entry]:
                if os.path.isdir(path):
                    raise RequestError(f"{path} is a folder inside a person's; put its pictures there.")
                owner = persons.of(_picture(path), root=root)
                yield _Found(path=path, label=classes.index(folder), owner=owner)


def _read(
    root: Path, classes: tuple[str, ...], persons: _Persons, *, image_size: int, grey: bool
) -> Labelled:
    found = list(_found(root, classes, persons))
    if not found:
        raise RequestError(f"{root} holds no pictures; put them into a folder per class.")
    return Labelled(
        x=read_pictures([each.path for each in found], image_size=image_size, grey=grey),
        y=torch.tensor([each.label for each in found], dtype=torch.int64),
        owners=[each.owner for each in found],
    )


def load_folder(
    path: Path,
    *,
    records: int | None,
    image_size: int | None,
    grey: bool = False,
    unit: str | None = None,
    max_per_unit: int | None = None,
    test: Path | None = None,
    holdout: float | None = None,
) -> DescribedSplit:
    """The folder as a checked split. With a ``unit`` a record is one person with all pictures."""
    if image_size is None:
        raise RequestError(f"say with --image-size how many pixels a side the pictures of {path} shall have.")
    check_count(image_size, at_least=1, named="--image-size")
    if image_size > _LARGEST:
        raise RequestError(f"--image-size is at most {_LARGEST}, got {image_size}.")
    if records is None:
        what = "persons" if unit else "pictures to train on"
        raise RequestError(
            f"the number of {what} in {path} is not declared; pass --records, because a number counted from "
            "private data would not be public."
        )
    persons = _Persons(unit)
    classes = class_names(path, beside=persons.table)
    form = InputForm(
        classes=classes,
        unit=ONE_RECORD if unit is None else ONE_PERSON,
        image_size=image_size,
        grey=grey,
    )
    return split_by_person(
        name=path.stem,
        train=_read(path, classes, persons, image_size=image_size, grey=grey),
        test=None if test is None else _read(test, classes, persons, image_size=image_size, grey=grey),
        holdout=holdout,
        form=form,
        persons=unit is not None,
        most=max_per_unit,
        records=records,
        note=f"Pictures are centred squares of {image_size} pixels; the folders' names are the classes, "
        "declared public: the same whoever is in them.",
    )
