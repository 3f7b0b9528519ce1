"""What cannot be asked for together, said before anything is read or written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hauberk.data import Split
from hauberk.data.input_form import InputForm
from hauberk.data.persons import PersonDataset
from hauberk.errors import RequestError
from hauberk.methods.catalogue import METHODS, MethodRow
from hauberk.methods.private_smoothing import PrivateSmoothing
from hauberk.methods.settings import SPECIAL_SETTINGS
from hauberk.models.own import is_own


def refuse_cuts_of_persons(split: Split, given: Mapping[str, Any], *, form: InputForm | None) -> None:
    cut = given.get("validation") is not None or str(given.get("public_data", "")).startswith("first:")
    if cut and form is not None and form.image_size and not isinstance(split.train, PersonDataset):
        # files come in the order of their names: a new one may come first
        raise RequestError(
            "a folder of pictures has no order that stays when one is added: use --holdout, or other "
            "--public-data"
        )
    if not isinstance(split.train, PersonDataset):
        return
    if given.get("validation") is not None:
        raise RequestError("--validation cuts records, not persons: hold persons out with --holdout")
    if str(given.get("public_data", "")).startswith("first:"):
        raise RequestError("persons have no first records to make public: name other --public-data")


def refuse_unread(row: MethodRow, variant: str, given: Mapping[str, Any]) -> None:
    """A setting that the method would not look at is a misunderstanding."""
    unread = {name for name in SPECIAL_SETTINGS if name not in row.reads} | row.unread.get(variant, set())
    unread |= set() if row.clips else {"clip", "clipping"}
    denoised = {**row.settings, **given}.get("denoised", False)
    if not denoised:
        unread |= {"classifier", "denoiser_width"}
        if "denoised" in row.reads or given.get("public_data") is None:
            unread.add("public_epochs")  # there is nothing to train on public records
    if given.get("classifier") is not None:
        unread.add("public_epochs")
    if "imitation" in row.reads and given.get("imitation") is None:
        unread |= {"training_attack_size", "public_data"}
    if row.name == PrivateSmoothing.name and given.get("training_attack_size") is None:
        unread.add("training_attack_steps")
    if "sigma" in given:
        unread |= {"robust_epsilon", "robust_delta", "robust_size"}
    for name in given:
        if name in unread:
            said = f"--variant {variant}" if name in row.unread.get(variant, ()) else "these settings"
            raise RequestError(
                f"{row.name} with {said} does not use --{name.replace('_', '-')}: leave it out"
            )
    if not row.private and any(
        name in given for name in ("epsilon", "noise_multiplier", "no_privacy", "delta")
    ):
        raise RequestError(
            f"{row.name} does not protect its training records: leave out all privacy settings"
        )


def refuse_own_network(row: MethodRow, given: Mapping[str, Any]) -> None:
    """Some methods build their proofs on layers that only the catalogue's networks are known to have."""
    if "weights" not in row.reads and is_own(str(given.get("model", ""))):
        others = ", ".join(each.name for each in METHODS.values() if "weights" in each.reads)
        raise RequestError(
            f"{row.name} trains networks of the catalogue only: choose {others} for one of your own"
        )
