"""Labelled records, and the two sets (training and test) that a run works on."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from hauberk.data.validation import check_count, check_inputs, check_labels, check_lengths
from hauberk.errors import RequestError


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """Records with their labels.

    Guaranteed once built: ``x`` is float32 with finite values in [0, 1], images (N, C, H, W) or table rows
    (N, d); ``y`` is int64 of shape (N,) with values from 0 to ``classes - 1``; N is at least 1.
    ``unprovable``: why no privacy can be proven about what is trained on these records, if so (a constant
    that shaped them was read from the records themselves).
    """

    name: str
    x: torch.Tensor
    y: torch.Tensor
    classes: int
    unprovable: str | None = None

    def __post_init__(self) -> None:
        named_x, named_y = f"array 'x' of data set '{self.name}'", f"array 'y' of data set '{self.name}'"
        check_count(self.classes, at_least=2, named=f"the number of classes of data set '{self.name}'")
        check_inputs(self.x, named=named_x)
        check_labels(self.y, classes=self.classes, named=named_y)
        check_lengths(self.x, self.y, named_x=named_x, named_y=named_y)

    def __len__(self) -> int:
        return len(self.y)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one record: (C, H, W) or (d,)."""
        return tuple(self.x.shape[1:])

    def first(self, count: int) -> Dataset:
        """The first ``count`` records, or all of them if there are fewer.

        Adding or removing a record before the cut moves another one across it: neighbouring private sets may
        differ in two records after ``first``, so cut public data, test data, or before declaring the set.
        """
        check_count(count, at_least=1, named="the number of records to keep")
        return replace(self, x=self.x[:count], y=self.y[:count])

    def to(self, device: torch.device | str) -> Dataset:
        """The same records on another device."""
        return replace(self, x=self.x.to(device), y=self.y.to(device))


@dataclass(frozen=True, kw_only=True, eq=False)
class Split:
    """Training and test data.

    ``records`` is a *declared public constant*, the number of training records that sampling rate and divisor
    are computed from. It is never read from a user's realised data (``len(train)`` is private and may differ
    from it). ``public`` holds records that are declared public: no part of the private set ``train``, the
    same for all neighbouring private sets, and not protected. ``public_note`` says in words what a reader of
    the results must know about the data.
    """

    name: str
    train: Dataset
    test: Dataset
    records: int
    classes: int
    public_note: str | None = None
    public: Dataset | None = None

    def held_out(self, count: int) -> Split:
        """For choosing settings: the last ``count`` training records in place of the test records.

        They are looked at freely, so nothing protects them; the privacy statement is about the others. The
        test records are gone, so that nothing can be chosen by them.
        """
        check_count(count, at_least=1, named="the number of records to hold out")
        kept = min(self.records, len(self.train)) - count
        if kept < 1:
            raise RequestError(
                f"holding out {count} records leaves none of the {self.records} training records of data set "
                f"'{self.name}'; hold out fewer."
            )
        train = self.train
        last = replace(train, name=f"{train.name}, held out", x=train.x[-count:], y=train.y[-count:])
        rest = replace(train, x=train.x[:-count], y=train.y[:-count])
        return replace(self, train=rest, test=last, records=self.records - count)

    def __post_init__(self) -> None:
        check_count(self.records, at_least=1, named="the declared number of training records")
        if self.train.shape != self.test.shape:
            raise RequestError(
                f"training records of data set '{self.name}' have shape {self.train.shape} and test records "
                f"{self.test.shape}; save both in the same shape."
            )
        if not self.classes == self.train.classes == self.test.classes:
            raise RequestError(
                f"data set '{self.name}' declares {self.classes} classes, its training part "
                f"{self.train.classes} and its test part {self.test.classes}; declare the same number."
            )
        if self.public is None:
            return
        if self.public.shape != self.train.shape:
            raise RequestError(
                f"public records of '{self.public.name}' have shape {self.public.shape}, but training "
                f"records of data set '{self.name}' have {self.train.shape}; choose public data "
                "of the same shape."
            )
        if self.public.classes != self.classes:
            raise RequestError(
                f"public records of '{self.public.name}' have {self.public.classes} classes, but data set "
                f"'{self.name}' declares {self.classes}; choose public data with the same number of classes."
            )
