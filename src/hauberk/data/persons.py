"""Several records of one person: drawn together, protected together.

A person is one record of the private set, whatever number of images or rows belongs to it. Neighbouring sets
differ in one person with all of them. Everything here looks at one person at a time, so adding or removing a
person changes nobody else's part: neither the side of the split it is on, nor which of its records are kept.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from hauberk.data.dataset import Dataset
from hauberk.data.input_form import DescribedSplit, InputForm
from hauberk.data.validation import check_count, check_inputs
from hauberk.errors import RequestError

ABSENT = -1
"""The label of a place that a person does not fill."""
DEFAULT_MOST = 4
DEFAULT_HOLDOUT = 0.1
ONE_PERSON = "one person"
_HOLDOUT_KEY = b"hauberk: which persons are held out"
_IDENTITIES = 2**32  # images are told apart by one 32-bit counter of the view noise


@dataclass(frozen=True, kw_only=True, eq=False)
class PersonDataset(Dataset):
    """One record per person: ``x`` is (persons, most, *shape), ``y`` is (persons, most).

    Where a person has fewer than ``most`` images (or rows), ``y`` is -1 and ``x`` is 0, and no loss looks at
    the place. Guaranteed once built: every person has at least one image; everything else as in `Dataset`.
    """

    def __post_init__(self) -> None:
        named = f"the persons of data set '{self.name}'"
        check_count(self.classes, at_least=2, named=f"the number of classes of data set '{self.name}'")
        if self.x.ndim < 3 or self.y.shape != self.x.shape[:2] or self.y.dtype != torch.int64:
            raise RequestError(
                f"{named} have inputs {tuple(self.x.shape)} and labels {tuple(self.y.shape)}; give inputs "
                "(persons, most, ...) and int64 labels (persons, most)."
            )
        check_inputs(self.x.flatten(0, 1), named=named)
        if int(self.y.min()) < ABSENT or int(self.y.max()) >= self.classes:
            raise RequestError(f"{named} have labels outside -1 to {self.classes - 1}; renumber the classes.")
        if not bool((self.y != ABSENT).any(1).all()):
            raise RequestError(f"one of {named} has no image at all; leave that person out.")
        if self.x.shape[0] * self.x.shape[1] >= _IDENTITIES:
            raise RequestError(f"{named} have too many images to tell apart; lower --max-per-unit.")

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one image or row, which is what a network takes."""
        return tuple(self.x.shape[2:])

    @property
    def most(self) -> int:
        """Images of a person that are used at most."""
        return self.x.shape[1]


def by_person(
    *, name: str, x: torch.Tensor, y: torch.Tensor, owners: Sequence[str], most: int, classes: int
) -> PersonDataset:
    """Records ``x``, ``y`` with their owners as one record per person, the first ``most`` of each.

    Persons are in the order of their names, records of a person in the order given.
    """
    check_count(most, at_least=1, named="--max-per-unit")
    places: dict[str, list[int]] = {}
    for place, owner in enumerate(owners):
        places.setdefault(owner, []).append(place)
    grouped_x = torch.zeros(len(places), most, *x.shape[1:])
    grouped_y = torch.full((len(places), most), ABSENT, dtype=torch.int64)
    for person, owner in enumerate(sorted(places)):
        own = places[owner][:most]
        grouped_x[person, : len(own)] = x[own]
        grouped_y[person, : len(own)] = y[own]
    return PersonDataset(name=name, x=grouped_x, y=grouped_y, classes=classes)


def held_out(owner: str, share: float) -> bool:
    """Whether a person is test data: by a keyed hash of the name alone, for about ``share`` of all names."""
    digest = hashlib.blake2b(os.fsencode(owner), key=_HOLDOUT_KEY, digest_size=8).digest()
    return int.from_bytes(digest, "big") < share * 2**64


def check_share(share: float | None) -> float:
    if share is None:
        return DEFAULT_HOLDOUT
    if not 0 < share < 1:
        raise RequestError(f"--holdout is a share between 0 and 1, not {share:g}.")
    return share


@dataclass(frozen=True, kw_only=True, eq=False)
class Labelled:
    """Records as they were read: inputs, labels, and whose they are (each its own, where nobody is named)."""

    x: torch.Tensor
    y: torch.Tensor
    owners: Sequence[str]


def split_by_person(
    *,
    name: str,
    train: Labelled,
    test: Labelled | None,
    holdout: float | None,
    form: InputForm,
    persons: bool,
    most: int | None,
    records: int,
    note: str,
) -> DescribedSplit:
    """A split whose sides share no person; without ``test``, a share of the persons is held out.

    ``persons``: several records may belong to one owner, and are then one record of the private set.
    ``records`` is the declared number of private records, that is of persons where there are persons.
    """
    check_count(records, at_least=1, named="--records")
    classes, what = len(form.classes), "persons" if persons else "records"
    if most is not None and not persons:
        raise RequestError("--max-per-unit is about persons; name them with --unit, or leave it out.")
    most = check_count(DEFAULT_MOST if most is None else most, at_least=1, named="--max-per-unit")
    if test is not None and holdout is not None:
        raise RequestError(
            "--test names the test data, so there is nothing to hold out; leave out --holdout."
        )
    notes = [note] if note else []
    if test is None:
        share = check_share(holdout)
        aside = torch.tensor([held_out(owner, share) for owner in train.owners], dtype=torch.bool)
        notes.append(
            f"About {share:g} of the {what} were held out as test data, each by a hash of its own name or "
            "content; they are not protected, and the report shows some of them; the guarantee is about "
            "adding or removing one of the others."
        )
        test, train = _part(train, aside), _part(train, ~aside)
        for side, kept in (("training", train), ("testing", test)):
            if not len(kept.y):
                raise RequestError(
                    f"holding out {share:g} of the {what} of {name} leaves none for {side}; choose another "
                    "--holdout, or give test data with --test."
                )
    elif persons and (both := sorted(set(train.owners) & set(test.owners))):
        raise RequestError(
            f"the person '{both[0]}' is in the training data and in the test data of {name}; test data are "
            "not protected, so keep each person on one side."
        )
    if persons:
        private: Dataset = by_person(
            name=name, x=train.x, y=train.y, owners=train.owners, most=most, classes=classes
        )
        notes.append(
            f"A record is one person with all {'rows' if form.schema else 'images'}: they are drawn together "
            f"and averaged before clipping, of each person the first {most} at most."
        )
    else:
        private = Dataset(name=name, x=train.x, y=train.y, classes=classes)
    private = replace(private, unprovable=form.unprovable)
    return DescribedSplit(
        name=name,
        train=private,
        test=Dataset(name=name, x=test.x, y=test.y, classes=classes),
        records=records,
        classes=classes,
        public_note=" ".join(notes) or None,
        form=form,
    )


def _part(labelled: Labelled, rows: torch.Tensor) -> Labelled:
    owners = [owner for owner, kept in zip(labelled.owners, rows.tolist(), strict=True) if kept]
    return Labelled(x=labelled.x[rows], y=labelled.y[rows], owners=owners)
