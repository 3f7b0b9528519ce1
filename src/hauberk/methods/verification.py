"""Verify a run folder: its files are those that were written, and its card says what its events prove.

    manifest.json           sha256 of every file of the run that may be shown to others
    private/manifest.json   the same for what is in ``private``, kept there: a hash of private numbers is one

A manifest is no signature: whoever can write the folder can write it anew. A smaller epsilon takes more than
that: it is computed again from the events, which must prove no less than the plan, which must be what was
asked for. Whoever rewrites settings, plan, events and card together into another run is not found out.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hauberk.accounting import Card, PrivacyPlan
from hauberk.accounting.json_form import from_json
from hauberk.data.input_form import ONE_RECORD
from hauberk.errors import RequestError
from hauberk.files import PARTIAL, read_json, write_text
from hauberk.methods.columns import privacy_columns
from hauberk.methods.settings import TrainSettings
from hauberk.methods.training import load_run, read_form, read_settings
from hauberk.training import RunFolder
from hauberk.training.run_folder import LOCK

MANIFEST = "manifest.json"
_CALIBRATED = 0.01  # relative: a plan is calibrated to just below what was asked for
_SAME = 1e-9  # relative: another build of the accountant may round the last digits differently


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that was looked at; ``found`` says in a sentence what is wrong with it, or what it is."""

    name: str
    passed: bool
    found: str


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What was found about a run. ``epsilon``: proven from its events, None where nothing is."""

    run: str
    checks: tuple[Check, ...]
    epsilon: float | None
    delta: float | None

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "checks": [asdict(each) for each in self.checks], "passed": self.passed}


class _Failed(Exception):
    """A check that did not pass, with its sentence."""


def write_manifest(path: Path) -> None:
    """Write down the hashes of all files of a run, once they are all there."""
    for folder in (path / "private", path):
        if folder.is_dir():
            write_text(folder / MANIFEST, _manifest(_hashes(folder)))


def read_manifest(path: Path) -> dict[str, str] | None:
    """The hashes by file name, or None where there is no manifest.

    A command that will write into a run reads it first: a damaged one is refused before anything is written.
    """
    if not os.path.lexists(path / MANIFEST):
        return None
    content = read_json(path / MANIFEST)
    written = content.get("sha256") if isinstance(content, dict) and len(content) == 1 else None
    if not isinstance(written, dict) or not all(isinstance(each, str) for each in written.values()):
        raise RequestError(f"{path / MANIFEST} is no list of hashes: see what hauberk verify says")
    return written


def update_manifest(path: Path, *written: str) -> None:
    """After a command that wrote, or removed, the files named: theirs are taken anew and no others.

    What somebody else has changed stays a difference. A run that never had a manifest gets none.
    """
    known, now = read_manifest(path), _hashes(path)
    if known is None:
        return
    kept = {name: digest for name, digest in known.items() if name not in written}
    new = {name: now[name] for name in written if name in now}
    write_text(path / MANIFEST, _manifest(kept | new))


def _manifest(hashes: dict[str, str]) -> str:
    """The whole file: there is one way to write it, so that a changed blank is a change, too."""
    return json.dumps({"sha256": dict(sorted(hashes.items()))}, indent=2) + "\n"


def _hashes(folder: Path) -> dict[str, str]:
    """Of the files in a folder itself; what is unfinished, and what processes lock, is nobody's result."""
    files = sorted(each for each in folder.iterdir() if each.is_file() and each.name not in (MANIFEST, LOCK))
    try:
        return {
            each.name: hashlib.sha256(each.read_bytes()).hexdigest()
            for each in files
            if not (each.name.startswith(".") and each.suffix == PARTIAL)
        }
    except OSError as error:
        raise RequestError(f"cannot read {error.filename}: {error.strerror}") from error


def verify_run(path: Path) -> Verification:
    """Look at everything; a check that fails is a finding, not an error."""
    folder = RunFolder.open(path)
    if _of_synthesizer(folder):
        raise RequestError(f"{path} holds a synthesizer: verify knows runs of `hauberk train` only")
    proven: list[tuple[float, float]] = []

    def events() -> str:
        card, plan = folder.read_card(), _plan(folder)
        sentence, bound = _proven_again(folder, card, plan)
        proven.extend([] if bound is None else [bound])
        return sentence

    looked: list[tuple[str, Callable[[], str]]] = [
        ("files", lambda: _same_files(path)),
        ("private files", lambda: _same_files(folder.private)),
        ("settings", lambda: _card_of_these_settings(folder)),
        ("events", events),
    ]
    checks = []
    for name, look in looked:
        if name == "private files" and not folder.private.is_dir():
            continue  # a run that was passed on without them
        try:
            checks.append(Check(name=name, passed=True, found=look()))
        except (_Failed, RequestError) as failed:
            checks.append(Check(name=name, passed=False, found=str(failed)))
    epsilon, delta = proven[0] if proven else (None, None)
    return Verification(run=str(path), checks=tuple(checks), epsilon=epsilon, delta=delta)


def _of_synthesizer(folder: RunFolder) -> bool:
    try:
        return folder.read_config().get("kind") == "synthesizer"
    except RequestError:
        return False  # that config.json cannot be read is a finding, told by the checks


def _same_files(folder: Path) -> str:
    written = read_manifest(folder)
    if written is None:
        raise _Failed(f"{folder / MANIFEST} is missing")
    if (folder / MANIFEST).read_bytes() != _manifest(written).encode():
        raise _Failed(f"{folder / MANIFEST} has been changed since the run ended")
    found = _hashes(folder)
    for name in sorted({*written, *found}):
        if name not in found:
            raise _Failed(f"{folder / name} is missing")
        if name not in written:
            raise _Failed(f"{folder / name} was not there when the run ended")
        if written[name] != found[name]:
            raise _Failed(f"{folder / name} has been changed since the run ended")
    return f"{len(found)} files are as they were written"


def _plan(folder: RunFolder) -> PrivacyPlan:
    return from_json(PrivacyPlan, read_settings(folder)[1]["plan"], where="config.json plan")


def _card_of_these_settings(folder: RunFolder) -> str:
    """The card is about the run that config.json describes."""
    settings, config = read_settings(folder)
    card, form = folder.read_card(), read_form(config)
    said: dict[str, tuple[object, object]] = {
        "method": (card.method, settings.method),
        "variant": (card.variant, settings.variant),
        "number of records": (card.records, _plan(folder).records),
        "seed": (card.seed, settings.seed),
        "command": (card.command, config["command"]),
    }
    unit = ONE_RECORD if form is None else form.unit
    said["privacy unit"] = (card.privacy.unit, unit)
    said["neighbours"] = (card.privacy.neighbours, f"add or remove {unit}")
    if form is not None and form.unprovable is not None and card.privacy.proven is not None:
        raise _Failed(f"the card proves an epsilon, but {form.unprovable}")
    for what, (on_card, in_config) in said.items():
        if on_card != in_config:
            raise _Failed(f"the {what} is {on_card!r} on the card and {in_config!r} in config.json")
    for note in config["notes"]:
        if note not in card.notes:
            raise _Failed(f"the card lacks the note {note!r}")
    _check_claim(card, settings, _plan(folder))
    return "the card is about this run"


def _check_claim(card: Card, settings: TrainSettings, plan: PrivacyPlan) -> None:
    claimed = card.privacy.claimed
    if claimed is None or not plan.private:
        return
    asked = settings.epsilon if settings.variant == "sound" else None
    if asked is not None and not math.isclose(plan.epsilon(), asked, rel_tol=_CALIBRATED):
        raise _Failed(f"epsilon {asked:g} was asked for, but the plan says {plan.epsilon():.6g}")
    wanted = settings.epsilon if settings.variant == "paper" else plan.epsilon()
    if wanted is not None and not math.isclose(claimed.epsilon, wanted, rel_tol=_SAME):
        raise _Failed(f"the card claims epsilon {claimed.epsilon:.6g}, but the plan says {wanted:.6g}")


def _proven_again(folder: RunFolder, card: Card, plan: PrivacyPlan) -> tuple[str, tuple[float, float] | None]:
    """The sentence, and the (epsilon, delta) that the events prove by themselves."""
    run = load_run(folder.path, device="cpu")
    columns = privacy_columns(
        plan, folder.read_events(), source="events.json", unprovable=run.unprovable, unit=card.privacy.unit
    )
    again, said = columns.proven, card.privacy.proven
    if said is None:
        return f"the card proves no epsilon: {card.privacy.reason}", None
    if again is None:
        raise _Failed(f"the card proves epsilon {said.epsilon:.6g}, but from the events: {columns.reason}")
    same = math.isclose(said.epsilon, again.epsilon, rel_tol=_SAME)
    if not same or said.delta != again.delta:
        raise _Failed(
            f"the card proves epsilon {said.epsilon:.6g} at delta {said.delta:g}, but the events prove "
            f"{again.epsilon:.6g} at {again.delta:g}"
        )
    # events are reserved before they run and can only over-count: fewer or weaker ones are not this run's
    if run.variant == "sound" and again.epsilon < plan.epsilon() * (1 - _SAME):
        raise _Failed(
            f"the events prove epsilon {again.epsilon:.6g}, less than the plan's {plan.epsilon():.6g}: they "
            "are not those of this plan"
        )
    return (
        f"epsilon {again.epsilon:.6g} at delta {again.delta:g} by {again.accountant}, as on the card",
        (again.epsilon, again.delta),
    )
