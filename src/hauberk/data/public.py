"""Public data: records that a method may look at freely, because no privacy statement is about them.

Neighbouring private sets differ in one record of the *private* part, ``Split.train``; the public part,
``Split.public``, is the same for both. That a record is public is a declaration, and this room keeps it apart
from the private ones: a set that is known to hold the private records is refused.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from hauberk.data.dataset import Dataset, Split
from hauberk.data.folder import home_expanded
from hauberk.data.loading import load
from hauberk.data.named import NAMED_SETS
from hauberk.data.own import load_own
from hauberk.errors import RequestError

_CUT = "first:"


def declare_public(split: Split, source: str, *, data_dir: Path | None = None) -> Split:
    """``split`` with public records from ``source``; all other fields, the test data among them, stay.

    ``first:N`` declares the first N training records public and *takes them out of* the private set, so that
    ``train`` is what follows and ``records`` is N less. The cut is by position: training record N + 1 as
    handed in is the first private one (where a user's own file has no test data, the rows held out for
    testing are set aside before counting). The statement about neighbours needs a cut that stays where it is
    when a private record comes or goes: in a user's own archive the public rows stand first, and private
    records are added and removed after them only.

    The name of another data set, or the path of an .npz archive with the classes of ``split``, declares its
    training part public and leaves the private set as it is; that the two share no record is the caller's
    declaration. Refused is what surely or probably breaks it: the private set's own name, and a set that it
    was taken from or that was taken from it. The records of an archive are counted: a public number.
    """
    if split.public is not None:
        raise RequestError(f"data set '{split.name}' has public records already; declare them once.")
    if source.startswith(_CUT):
        return _cut(split, source)
    return replace(split, public=_other_set(split, source, data_dir))


def default_public(name: str) -> str | None:
    """The source of public data for a named set, such as ``first:10000``; None where the user must choose."""
    named = NAMED_SETS.get(name)
    return f"{_CUT}{named.public}" if named is not None and named.public else None


def describe_public(source: str, split: Split) -> str:
    """One sentence for the card about ``split = declare_public(..., source)``; no folder names are told.

    The number of private records in it is the declared one, so make the sentence before cutting them further.
    """
    if split.public is None:
        raise RequestError(f"data set '{split.name}' has no public records; declare them first.")
    count, private = _training_records(len(split.public)), f"{split.records:,}"
    if source.startswith(_CUT):
        return (
            f"Public: the first {count} of {split.name}, declared public and not protected; "
            f"the privacy statement is about the other {private}."
        )
    origin = source if source in NAMED_SETS else Path(source).name
    return (
        f"Public: {count} of {origin}, declared public and not protected; "
        f"the privacy statement is about the {_training_records(split.records)} of {split.name}."
    )


def share_records(name: str, other: str) -> bool:
    """Whether two data sets are known to have records in common: the same, or one taken from the other."""
    parts = {each: NAMED_SETS[each].part_of for each in (name, other) if each in NAMED_SETS}
    return name == other or parts.get(name) == other or parts.get(other) == name


def _training_records(count: int) -> str:
    return f"{count:,} training record{'' if count == 1 else 's'}"


def _cut(split: Split, source: str) -> Split:
    number = source.removeprefix(_CUT)
    # stricter than int(), which also takes blanks, underscores and a sign, and stops at thousands of digits
    count = int(number) if re.fullmatch("[0-9]{1,18}", number) else 0
    if count < 1:
        raise RequestError(
            f"public data {source!r} is not {_CUT}N with a whole number N of at least 1; "
            f"write, for example, {_CUT}1000."
        )
    train = split.train
    if count >= split.records or count >= len(train):
        raise RequestError(
            f"{source} leaves no private records of data set '{split.name}', of which {split.records} are "
            "declared; choose a smaller number."
        )
    return replace(
        split,
        train=replace(train, x=train.x[count:], y=train.y[count:]),
        records=split.records - count,
        public=train.first(count),
    )


def _other_set(split: Split, source: str, data_dir: Path | None) -> Dataset:
    if source in NAMED_SETS:
        _refuse_private_records(split, source)
        return load(source, data_dir=data_dir).train
    path = home_expanded(source)
    if path.suffix.lower() != ".npz":
        raise RequestError(
            f"there is no public data {source!r}; give {_CUT}N for the first N training records, "
            f"one of {', '.join(NAMED_SETS)}, or the path of an .npz file."
        )
    if path.stem == split.name:  # a split does not know its file, but was named after it
        raise RequestError(
            f"{path} has the name of the private data set '{split.name}', whose records are not public; "
            f"give {_CUT}N to declare the first N of them public, or rename the file if it holds others."
        )
    # 'records' is a constant that a private set must declare; here only the records themselves are taken
    return load_own(path, records=1, classes=split.classes).train


def _refuse_private_records(split: Split, name: str) -> None:
    own = NAMED_SETS.get(split.name)
    if name == split.name:
        reason = f"'{name}' is the private data set itself"
    elif NAMED_SETS[name].part_of == split.name:
        reason = f"'{name}' was taken from the private data set '{split.name}'"
    elif own is not None and own.part_of == name:
        reason = f"the private data set '{split.name}' was taken from '{name}'"
    else:
        return
    raise RequestError(
        f"{reason}, so private records would be declared public; "
        f"give {_CUT}N to declare the first N training records public, or another data set."
    )
