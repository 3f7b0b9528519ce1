"""Audit a finished run: attack its privacy, its certificates, its members; what was found goes on its card.

    privacy      train again with the run's own settings and canaries by coin: epsilon is at least so much
    robustness   certify again, attack strongly inside the radii, proven and published: so many are broken
    membership   tell members from others with shadow models: so many can be named

Error level: ``alpha`` is shared in equal parts by the audits that are run, and each one's confidence is one
less its own part. So a run whose promises hold is accused with probability at most ``alpha`` in all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from hauberk.accounting import Card, PrivacyPlan
from hauberk.accounting.card import PrivacyObservation, RobustnessColumns, Utility
from hauberk.accounting.json_form import from_json, to_json
from hauberk.audit.bounds import check_level
from hauberk.audit.canaries import GradientCanaries, RecordCanaries
from hauberk.audit.released_membership import ReleasedMembership, audit_classifier_membership
from hauberk.audit.robustness import (
    RobustnessAudit,
    audit_robustness,
    published_certificates,
    strongest_first,
)
from hauberk.audit.training_audit import Canaries, PrivacyAudit, audit_training, audit_trainings
from hauberk.data import Split
from hauberk.data.persons import PersonDataset
from hauberk.errors import RequestError
from hauberk.methods.base import Method
from hauberk.methods.columns import NOT_AUDITED, utility
from hauberk.methods.run import NOT_ATTACKED, Run, base_accuracy, spread
from hauberk.methods.starting_network import facts_of, refuse_other_beginning
from hauberk.methods.training import (
    audit_settings_of,
    build_method,
    build_network,
    load_run,
    load_split,
    read_settings,
)
from hauberk.progress import Progress, silent
from hauberk.synthesis import cards as synthesis_cards
from hauberk.training import RunFolder
from hauberk.training.loop import NO_CLIP

Kind = Literal["gradient", "record"]

READS_RECORDS = (
    "Audits read the training records again, outside of the proven epsilon: what they found about them "
    "is for the records' owner, and to publish it is a release of its own."
)
_NOT_AUDITED = (NOT_AUDITED, synthesis_cards.NOT_AUDITED)
_NUMBERS = {"canaries": (1000, 200), "certificates": (100, 30), "shadows": (6, 3), "members": (500, 150)}
"""How many of each, by default and in a quick audit."""


@dataclass(frozen=True, kw_only=True)
class RunAuditSettings:
    """What is audited, how hard, and how often a promise that holds may be accused (``alpha``).

    ``canaries``, of a ``kind`` (default: gradients where the method clips them, else records); with ``runs``
    a single one, in so many trainings and out of as many. ``certificates``: how many to attack. ``shadows``:
    models for membership inference, on at most ``members`` records of either kind. ``quick``: smaller
    numbers wherever none is given, and one attack.
    """

    privacy: bool = True
    robustness: bool = True
    membership: bool = False
    alpha: float = 0.01
    seed: int = 0
    canaries: int | None = None
    kind: Kind | None = None
    runs: int | None = None
    certificates: int | None = None
    shadows: int | None = None
    members: int | None = None
    quick: bool = False

    def __post_init__(self) -> None:
        check_level(self.alpha)
        if not (self.privacy or self.robustness or self.membership):
            raise RequestError("there is nothing to audit: name privacy, robustness or membership")
        if self.kind is not None and self.kind not in get_args(Kind):
            raise RequestError(f"canaries are of the kind gradient or record, not {self.kind!r}")
        if self.runs is not None and self.canaries is not None:
            raise RequestError("many runs are about one canary: give --canaries or --runs, not both")
        for name, least in (("canaries", 1), ("certificates", 1), ("members", 20), ("shadows", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise RequestError(f"--{name} must be at least {least}, got {value}")
        if self.shadows == 1:
            raise RequestError("one shadow model tells nothing: take --shadows 2 or more, or 0 for none")
        if not 0 <= self.seed < 2**62:
            raise RequestError("seeds are whole numbers from 0 to 2^62 - 1")

    def number(self, name: str) -> int:
        """How many canaries, certificates, shadows or members: what was asked for, else the default."""
        value = getattr(self, name)
        return int(value) if value is not None else _NUMBERS[name][self.quick]

    @property
    def share(self) -> float:
        """Of alpha, for each audit that is run."""
        return self.alpha / (self.privacy + self.robustness + self.membership)


@dataclass(frozen=True, kw_only=True, eq=False)
class RunAudit:
    """What the audits found; None for what was not audited.

    ``columns`` and ``utility``: of the certificates that were attacked, for the card.
    """

    settings: RunAuditSettings
    privacy: PrivacyAudit | None
    robustness: RobustnessAudit | None
    published: RobustnessAudit | None  # certificates as the method's own formula has them
    membership: ReleasedMembership | None
    columns: RobustnessColumns | None
    utility: Utility | None

    def card(self, before: Card) -> Card:
        """``before`` with what was observed. An earlier observation that was stronger keeps its place, and
        notes list all of them."""
        after = before
        if self.columns is not None:
            columns = _stronger_breaks(before.robustness, self.columns)
            after = replace(after, robustness=columns, utility=self.utility)
        for seen in self._observations():
            after = with_observation(after, seen)
        notes = [note for note in self._notes() if note not in after.notes]
        return replace(after, notes=(*after.notes, *notes))

    def _observations(self) -> list[PrivacyObservation]:
        found = [] if self.privacy is None else [self.privacy.observation()]
        if self.membership is not None and self.membership.by_coins is not None:
            seen = self.membership.by_coins.observation()
            found += [] if seen is None else [seen]
        return found

    def _notes(self) -> list[str]:
        notes, seed = [], self.settings.seed
        for seen in self._observations():
            notes.append(
                f"Privacy audit ({seen.attack}, {seen.canaries:,} canaries, seed {seed}): epsilon at least "
                f"{_down(seen.epsilon_lower)}, confidence {seen.confidence:g}."
            )
        for words, audit in (("certified", self.robustness), ("claimed", self.published)):
            if audit is not None:
                notes.append(
                    f"Robustness audit ({'; '.join(audit.attacks)}, seed {seed}): {audit.broken_count} of "
                    f"{audit.tested} {words} radii broken, confidence {audit.confidence:g}."
                )
        if self.membership is not None:
            notes.append(membership_note(self.membership, seed=seed))
        if self.privacy is not None or self.membership is not None:
            notes.append(READS_RECORDS)
        return notes

    def refuted(self, card: Card) -> tuple[str, ...]:
        """Sentences about promises that should hold and do not; ``card``: the updated one."""
        return refuted_privacy(card) + (
            (f"{self.robustness.false_count} of {self.robustness.tested} proven certificates are false",)
            if self.robustness is not None and self.robustness.refuted
            else ()
        )

    def to_json(self, card: Card) -> dict[str, Any]:
        return {
            "alpha": self.settings.alpha,
            "alpha_of_each_audit": self.settings.share,
            "claimed": to_json(card.privacy)["claimed"],
            "proven": to_json(card.privacy)["proven"],
            "observed": to_json(card.privacy)["observed"],
            "privacy": None if self.privacy is None else self.privacy.to_json(),
            "robustness": None if self.robustness is None else self.robustness.to_json(),
            "published": None if self.published is None else self.published.to_json(),
            "membership": None if self.membership is None else self.membership.to_json(),
            "refuted": list(self.refuted(card)),
            "card": card.to_json(),
        }


def refuted_privacy(card: Card) -> tuple[str, ...]:
    """What is proven, or claimed by a sound variant, and lies below what was observed."""
    seen, said = card.privacy.observed, []
    if seen is None:
        return ()
    proven, claimed = card.privacy.proven, card.privacy.claimed
    if proven is not None and seen.epsilon_lower > proven.epsilon:
        said.append(f"epsilon {proven.epsilon:.4g} is proven, and {_down(seen.epsilon_lower)} was observed")
    elif card.variant == "sound" and claimed is not None and seen.epsilon_lower > claimed.epsilon:
        said.append(f"epsilon {claimed.epsilon:.4g} is claimed, and {_down(seen.epsilon_lower)} was observed")
    return tuple(said)


def membership_note(found: ReleasedMembership, *, seed: int) -> str:
    best = found.strongest
    rates = ", ".join(
        f"{point.true_positive:.1%} of {point.members} members named along with {point.false_positives} of "
        f"{point.nonmembers} others (aim {point.level:g})"
        for point in best.points
    )
    return f"Membership inference ({best.attack}, seed {seed}): {rates}; confidence {best.confidence:g}."


def audit_run(
    path: Path, settings: RunAuditSettings, *, device: str = "auto", progress: Progress = silent
) -> RunAudit:
    """Audit the run in this folder. Nothing is written: `RunAudit.card` makes the new card."""
    folder = RunFolder.open(path)
    train_settings, config = read_settings(folder)
    folder.read_card()  # an unfinished run is refused before anything is computed
    run = load_run(path, device=device)
    if settings.robustness and run.noise is None:
        raise RequestError(f"{run.method} promises no robustness that could be refuted: leave it out")
    split = load_split(train_settings)
    plan = from_json(PrivacyPlan, config["plan"], where="config.json plan")
    if (settings.privacy or settings.membership) and isinstance(split.train, PersonDataset):
        raise RequestError(
            "this run protects persons, and the audit inserts records: audit it with --robustness only"
        )

    def method() -> Method:
        """As it was before training."""
        begun = build_network(train_settings, split)
        refuse_other_beginning(begun, facts_of(config, train_settings, where=path), train_settings)
        return build_method(replace(train_settings, device=device), split, plan, network=begun)

    privacy = membership = robustness = published = columns = measured = None
    if settings.privacy:
        privacy = _audit_privacy(method(), split, settings, progress)
    if settings.membership:
        membership = audit_classifier_membership(
            run.model,
            method(),
            split.train,
            split.test,
            shadows=settings.number("shadows"),
            most=settings.number("members"),
            alpha=settings.share,
            seed=settings.seed,
            public=split.public,
            progress=progress,
        )
    if settings.robustness:
        robustness, published, columns, measured = _audit_robustness(path, run, split, settings, progress)
    return RunAudit(
        settings=settings,
        privacy=privacy,
        robustness=robustness,
        published=published,
        membership=membership,
        columns=columns,
        utility=measured,
    )


def _audit_privacy(
    method: Method, split: Split, settings: RunAuditSettings, progress: Progress
) -> PrivacyAudit:
    clips = method.clipping.sensitivity < NO_CLIP.sensitivity
    kind = settings.kind or ("gradient" if clips else "record")
    count = 1 if settings.runs is not None else settings.number("canaries")
    canaries: Canaries
    if kind == "gradient":
        coordinates = sum(each.numel() for each in method.model.parameters() if each.requires_grad)
        if settings.canaries is None:
            count = min(count, coordinates)
        canaries = GradientCanaries.axes(count, seed=settings.seed)
    else:
        if settings.canaries is None:
            count = min(count, len(split.test))
        canaries = RecordCanaries.mislabelled(split.test, count=count, seed=settings.seed)
    if settings.runs is None:
        return audit_training(
            method,
            split.train,
            canaries=canaries,
            alpha=settings.share,
            seed=settings.seed,
            public=split.public,
            progress=progress,
        )
    return audit_trainings(
        method,
        split.train,
        canary=canaries,
        runs=settings.runs,
        alpha=settings.share,
        public=split.public,
        progress=progress,
    )


def _audit_robustness(
    path: Path, run: Run, split: Split, settings: RunAuditSettings, progress: Progress
) -> tuple[RobustnessAudit, RobustnessAudit | None, RobustnessColumns, Utility]:
    """The audit of proven radii, that of published ones if there are any; the card's columns and utility."""
    last = audit_settings_of(path)
    tested, (norm, certificate) = spread(split.test, last.tested), run.card_radius
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        progress("certifying", done, len(tested))

    certificates = run.classifier.certify(
        tested.x,
        samples=last.samples,
        alpha=last.alpha,
        norm=norm,
        certificate=certificate,
        seed=run.seed,
        progress=advance,
    )
    claimed = published_certificates(run, certificates, tested.shape)
    options: dict[str, Any] = {
        "limit": settings.number("certificates"),
        "attacks": strongest_first(norm, quick=settings.quick),
        "alpha": settings.share if claimed is None else settings.share / 2,
        "seed": settings.seed,
        "progress": progress,
    }
    found = audit_robustness(run, tested.x, certificates, **options)
    boasts = None if claimed is None else audit_robustness(run, tested.x, claimed, **options)
    columns = run.robustness(certificates, tested, attacked=None)
    columns = replace(
        columns,
        observed=found.observation(),
        observed_of_claimed=None if boasts is None else boasts.observation(),
        confidence=found.confidence,
        reason=None if columns.reason == NOT_ATTACKED else columns.reason,
    )
    measured = utility(
        certificates.labels,
        tested.y.numpy(),
        classes=run.classes,
        base_accuracy=base_accuracy(run.model, split.test),
        base_tested=len(split.test),
    )
    return found, boasts, columns, measured


def with_observation(card: Card, now: PrivacyObservation) -> Card:
    """The card with what was observed, unless what stands there is a larger bound."""
    before, reason = card.privacy.observed, card.privacy.reason
    kept = before if before is not None and before.epsilon_lower > now.epsilon_lower else now
    columns = replace(card.privacy, observed=kept, reason=None if reason in _NOT_AUDITED else reason)
    return replace(card, privacy=columns)


def _stronger_breaks(before: RobustnessColumns, now: RobustnessColumns) -> RobustnessColumns:
    """Of two attacks on the same certificates, the one that broke more; of other certificates, the new."""
    if before.proven != now.proven or before.observed is None or now.observed is None:
        return now
    if before.observed.broken <= now.observed.broken:
        return now
    return replace(now, observed=before.observed, confidence=before.confidence)


def _down(epsilon: float) -> str:
    """A lower bound, rounded down."""
    return f"{math.floor(epsilon * 1000) / 1000:g}"
