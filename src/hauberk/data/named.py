"""The data sets that have a name: what is publicly known about each, and how it is found and read.

A new one is one entry in ``NAMED_SETS``; it then appears in ``catalog()`` and in ``load()``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hauberk.data.adult import ADULT_FILES, FEATURES, read_adult
from hauberk.data.cifar import BINARY_FILES, MOSAIC_FILES, read_binary, read_binary_archive, read_mosaics
from hauberk.data.dataset import Split
from hauberk.data.digits import DIGITS_SHA256, read_digits
from hauberk.data.folder import Layout, one_of
from hauberk.data.idx import IDX_FILES, read_idx_files
from hauberk.data.integrity import check_sha256
from hauberk.data.raw import RawSplit, grey_archive
from hauberk.data.tiny_imagenet import read_zip
from hauberk.errors import RequestError


@dataclass(frozen=True, kw_only=True)
class NamedSet:
    """A published data set; sizes and classes are those of its documentation, so they are public constants.

    ``arrays_sha256`` is the checksum of the decoded arrays (training images, training labels, test images,
    test labels; images as N, C, H, W), or None where the reader checks the published files themselves.
    ``layouts`` is empty for a set that comes with the package. ``part_of`` names the set that all its records
    were taken from. ``public`` is how many of its first training records count as public by default when a
    method needs public data.
    """

    name: str
    kind: Literal["images", "table"]
    shape: tuple[int, ...]
    classes: int
    train: int
    test: int
    licence: str
    layouts: tuple[Layout, ...] = ()
    arrays_sha256: str | None = None
    hint: str = ""
    part_of: str | None = None
    public: int = 0

    def find(self, data_dir: Path) -> tuple[Layout, list[Path]] | None:
        """The first complete arrangement in the data folder; nothing is opened."""
        for layout in self.layouts:
            paths = [path for path in layout.locate(data_dir) if path is not None]
            if len(paths) == len(layout.files):
                return layout, paths
        return None

    def load(self, data_dir: Path) -> Split:
        """The set, decoded and known by its checksum to be the published one."""
        if self.layouts:
            found = self.find(data_dir)
            if found is None:
                raise RequestError(self._where_it_should_be(data_dir))
            layout, paths = found
            raw, named = layout.read(paths), f"{self.name} in {layout.place(data_dir)}"
        else:
            raw, named = read_digits(), f"the built-in data set {self.name}"
        if self.arrays_sha256 is not None:
            check_sha256(*raw.arrays, expected=self.arrays_sha256, named=named)
        return raw.to_split(name=self.name, classes=self.classes, records=self.train)

    def _where_it_should_be(self, data_dir: Path) -> str:
        for layout in self.layouts:
            located = layout.locate(data_dir)
            if any(located):
                missing = [
                    names[0] for names, path in zip(layout.files, located, strict=True) if path is None
                ]
                return (
                    f"{self.name} in {layout.place(data_dir)} is incomplete: {', '.join(missing)} "
                    f"{'is' if len(missing) == 1 else 'are'} missing; complete the download."
                )
        places = ", ".join(_describe(layout, data_dir) for layout in self.layouts)
        return (
            f"{self.name} was not found; looked for {places}; put it there or name the folder that holds it "
            f"with --data-dir or HAUBERK_DATA{self.hint}."
        )


def _describe(layout: Layout, data_dir: Path) -> str:
    first = data_dir / layout.folder / layout.files[0][0]
    return f"{first} and {len(layout.files) - 1} more" if len(layout.files) > 1 else str(first)


def _read_grey_archive(paths: Sequence[Path]) -> RawSplit:
    (path,) = paths
    return grey_archive(path)


def _grey_layouts(name: str, torchvision_name: str) -> tuple[Layout, ...]:
    return (
        Layout(folder=name, files=one_of(f"{name}.npz"), read=_read_grey_archive),
        Layout(folder=name, files=IDX_FILES, read=read_idx_files),
        Layout(folder=f"{torchvision_name}/raw", files=IDX_FILES, read=read_idx_files),
    )


def _cifar_layouts() -> tuple[Layout, ...]:
    unpacked = ("cifar10", "cifar10/cifar-10-batches-bin", "cifar-10-batches-bin")
    return (
        Layout(folder="cifar10", files=one_of(*MOSAIC_FILES), read=read_mosaics),
        *(Layout(folder=folder, files=one_of(*BINARY_FILES), read=read_binary) for folder in unpacked),
        *(
            Layout(folder=folder, files=one_of("cifar-10-binary.tar.gz"), read=read_binary_archive)
            for folder in ("cifar10", "")
        ),
    )


NAMED_SETS = {
    each.name: each
    for each in (
        NamedSet(
            name="digits",
            kind="images",
            shape=(1, 28, 28),
            classes=10,
            train=20_000,
            test=2_000,
            licence="CC BY-SA 3.0 (part of MNIST)",
            arrays_sha256=DIGITS_SHA256,
            part_of="mnist",
            public=4_000,
        ),
        NamedSet(
            name="mnist",
            kind="images",
            shape=(1, 28, 28),
            classes=10,
            train=60_000,
            test=10_000,
            licence="CC BY-SA 3.0",
            layouts=_grey_layouts("mnist", "MNIST"),
            arrays_sha256="06b0d1f124c4e5fa796686ade41a9b778edacc8622f2195a352ef479ad44fc16",
            public=10_000,
        ),
        NamedSet(
            name="fashion_mnist",
            kind="images",
            shape=(1, 28, 28),
            classes=10,
            train=60_000,
            test=10_000,
            licence="MIT",
            layouts=_grey_layouts("fashion_mnist", "FashionMNIST"),
            arrays_sha256="ca3ab2a37f845e1b8ae23cab1b51749a3011ba3bf1d9016176d75cbaabac376f",
            public=10_000,
        ),
        NamedSet(
            name="cifar10",
            kind="images",
            shape=(3, 32, 32),
            classes=10,
            train=50_000,
            test=10_000,
            licence="none stated; free for research with citation",
            layouts=_cifar_layouts(),
            arrays_sha256="32e5966899bde482c0ef7d076bf69809b4b1488c806f657a814cfca4646ec493",
            public=10_000,
            hint=" (the binary version: the python version is made of pickles, which are never loaded)",
        ),
        NamedSet(
            name="tiny_imagenet",
            kind="images",
            shape=(3, 64, 64),
            classes=10,
            train=2_000,
            test=500,
            licence="ImageNet terms: non-commercial research only",
            layouts=(Layout(folder="tiny_imagenet", files=one_of("tiny_imagenet_10x.zip"), read=read_zip),),
        ),
        NamedSet(
            name="adult",
            kind="table",
            shape=(len(FEATURES),),
            classes=2,
            train=32_561,
            test=16_281,
            licence="CC BY 4.0",
            layouts=(Layout(folder="adult", files=ADULT_FILES, read=read_adult),),
        ),
    )
}
