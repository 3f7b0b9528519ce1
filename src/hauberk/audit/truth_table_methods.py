"""Rows of the truth table that classify: train on digits, prove, certify, attack.

Privacy is attacked by the refutation that was made for a published claim where there is one, else by gradient
canaries in one training under the row's own plan (`hauberk.audit.training_audit`). Robustness is attacked
within the claimed radius (`hauberk.audit.robustness`), and by the refutation of its formula, if there is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from hauberk.attacks import PGD, Attack
from hauberk.audit.canaries import GradientCanaries
from hauberk.audit.guesses import GuessRule
from hauberk.audit.refutations import Stakes, refutations_of
from hauberk.audit.refutations.base import FEWEST_GAMES
from hauberk.audit.robustness import audit_robustness, published_certificates, strongest_first
from hauberk.audit.training_audit import audit_training
from hauberk.audit.truth_table_rows import (
    DELTA,
    EPSILON,
    Finding,
    Inquiry,
    Size,
    Subject,
    TruthRow,
    judged,
    privacy_of,
)
from hauberk.certify import Norm
from hauberk.data import Dataset, Split, load
from hauberk.data.public import declare_public
from hauberk.methods.base import Method
from hauberk.methods.catalogue import MethodRow, find_method
from hauberk.methods.columns import privacy_columns
from hauberk.methods.presets import preset
from hauberk.methods.run import Run, predictions, spread
from hauberk.methods.settings import TrainSettings, merge_settings
from hauberk.methods.training import build_method
from hauberk.progress import Progress

DATA = "digits"
GUESSES = (
    GuessRule(top=0.5, bottom=0.5),
    GuessRule(top=0.25, bottom=0.25),
    GuessRule(top=0.1, bottom=0.1),
)
"""Of the coins; timid rules cannot refute anything at the level of a row."""
NOT_PRIVATE = "this method does not protect its training records"
NO_CERTIFICATE = "this method promises no robustness"
CERTIFICATE_ALPHA = 1e-3


@dataclass(frozen=True, kw_only=True)
class Effort:
    """``lighter``: settings of single methods that would take too long otherwise; ``held``: records in the
    audited training, whose plan is the row's own all the same; ``games``: a part of each refutation's own."""

    records: int
    public: int
    epochs: float
    tested: int
    samples: int
    attacked: int
    most_draws: int  # of the test of one point
    canaries: int
    held: int
    games: float
    lighter: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def attacks(self, norm: Norm, size: Size) -> tuple[Attack, ...]:
        if size == "full":
            return strongest_first(norm)
        return (PGD(norm=norm, steps=10, draws=6, stop_when_broken=False),)


_LIGHTER: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "pixeldp": {"epochs": 2.0},
        "hgm-pixeldp": {"epochs": 2.0},
        "stobatch": {"epochs": 1.0},
        "transdenoiser": {"epochs": 1.0, "public_epochs": 4},
        "adlm": {"epochs": 2.0},
    }
)
EFFORTS: Mapping[Size, Effort] = MappingProxyType(
    {
        "tiny": Effort(
            records=256,
            public=64,
            epochs=1.0,
            tested=12,
            samples=200,
            attacked=4,
            most_draws=1000,
            canaries=100,
            held=16,
            games=0.34,
        ),
        "quick": Effort(
            records=8192,
            public=1024,
            epochs=3.0,
            tested=80,
            samples=500,
            attacked=16,
            most_draws=2000,
            canaries=20_000,
            held=64,
            games=1.0,
            lighter=_LIGHTER,
        ),
        "full": Effort(
            records=18_000,
            public=2000,
            epochs=20.0,
            tested=500,
            samples=1000,
            attacked=100,
            most_draws=20_000,
            canaries=20_000,
            held=256,
            games=4.0,
        ),
    }
)


def method_finding(subject: Subject, inquiry: Inquiry, progress: Progress) -> Finding:
    """Train, prove, attack."""
    row = find_method(subject.method, subject.variant)
    method, split = prepared(subject, inquiry)
    run = method.fit(split.train, public=split.public, progress=progress)
    truth, missing = privacy_of(
        TruthRow(method=subject.method, variant=subject.variant),
        privacy_columns(
            run.plan,
            run.ledger,
            source=run.claim_source,
            claimed_epsilon=run.claimed_epsilon,
            unprovable=run.unprovable,
        ),
    )
    if not row.private:
        missing = (NOT_PRIVATE,)
    found, leaks, unseen = _privacy(Finding(row=truth, attacks=()), row, method, split, inquiry, progress)
    found, breaks, uncertified = _robustness(found, run, split.test, inquiry, progress)
    found, formula = _formula(found, inquiry)
    return judged(
        found,
        refuted_because=(*leaks, *breaks, *formula),
        # what was seen to leak needs no other reason why nothing is proven
        missing=(*(() if leaks else missing), *unseen, *uncertified),
    )


def prepared(subject: Subject, inquiry: Inquiry) -> tuple[Method, Split]:
    """The method at this size, and its data; a part of them is declared public where a method needs that."""
    row, effort = find_method(subject.method, subject.variant), EFFORTS[inquiry.size]
    given = {"method": subject.method, "variant": subject.variant}
    split = load(DATA)
    public = f"first:{effort.public}" if row.needs_public_data(given) else None
    if public is not None:
        split = declare_public(split, public)
    split = replace(split, train=split.train.first(effort.records), records=effort.records)
    settings = _settings(subject, row, effort, inquiry, public=public)
    plan = row.plan(settings, records=split.records)
    method = build_method(settings, split, plan)
    method.check(split.public, shape=split.train.shape)
    return method, split


def _settings(
    subject: Subject, row: MethodRow, effort: Effort, inquiry: Inquiry, *, public: str | None
) -> TrainSettings:
    small = "tiny" if inquiry.size == "tiny" else "quick"
    return merge_settings(
        {
            **preset(DATA, small, records=effort.records, image=True),
            **row.defaults(subject.variant, records=effort.records, size=small),
        },
        {
            "method": subject.method,
            "variant": subject.variant,
            "seed": inquiry.seed,
            "epochs": effort.epochs,
            "public_data": public,
            **({"epsilon": EPSILON, "delta": DELTA} if row.private else {}),
            **effort.lighter.get(subject.method, {}),
        },
    )


def _stakes(inquiry: Inquiry) -> Stakes:
    return Stakes(epsilon=EPSILON, delta=DELTA, alpha=inquiry.level, seed=inquiry.seed)


def _privacy(
    found: Finding,
    row: MethodRow,
    method: Method,
    split: Split,
    inquiry: Inquiry,
    progress: Progress,
) -> tuple[Finding, tuple[str, ...], tuple[str, ...]]:
    """The finding with the observed epsilon; why the claim is refuted; why nothing was observed."""
    effort, truth = EFFORTS[inquiry.size], found.row
    if not row.private:
        return found, (), ()
    if truth.variant == "paper" and (made := refutations_of(truth.method, about="privacy")):
        result = made[0].play(truth.method, "paper", _stakes(inquiry), games=_games(effort, made[0].games))
        because = (result.reason,) if result.refuted else ()
        return (
            with_observed(found, result.observed_epsilon, f"{result.attack}, {result.games:,} games"),
            because,
            (),
        )
    if not row.clips:
        return found, (), ("nothing is clipped, so that there is no worst gradient to hide in it",)
    coordinates = sum(each.numel() for each in method.model.parameters() if each.requires_grad)
    audit = audit_training(
        method,
        split.train.first(effort.held),
        canaries=GradientCanaries.axes(min(effort.canaries, coordinates), seed=inquiry.seed),
        alpha=inquiry.level,
        seed=inquiry.seed,
        rules=GUESSES,
        public=split.public,
        progress=progress,
    )
    return with_observed(found, audit.epsilon_lower, f"{audit.attack}, {audit.canaries:,} canaries"), (), ()


def _robustness(
    found: Finding, run: Run, test: Dataset, inquiry: Inquiry, progress: Progress
) -> tuple[Finding, tuple[str, ...], tuple[str, ...]]:
    """The finding with radii, breaks and accuracy; why the claim is refuted; why there is none."""
    effort, truth = EFFORTS[inquiry.size], found.row
    if run.noise is None:
        accuracy = float((predictions(run.model, test) == test.y.numpy()).mean())
        return replace(found, row=replace(truth, accuracy=accuracy)), (), (NO_CERTIFICATE,)
    tested = spread(test, effort.tested)
    norm, certificate = run.card_radius
    certificates = run.classifier.certify(
        tested.x,
        samples=effort.samples,
        alpha=CERTIFICATE_ALPHA,
        norm=norm,
        certificate=certificate,
        seed=inquiry.seed,
    )
    columns = run.robustness(certificates, tested, None)
    promised = published_certificates(run, certificates, tested.shape) or certificates
    audit = audit_robustness(
        run,
        tested.x,
        promised,
        limit=effort.attacked,
        attacks=effort.attacks(norm, inquiry.size),
        alpha=inquiry.level,
        most_draws=effort.most_draws,
        seed=inquiry.seed,
        progress=progress,
    )
    assert columns.claimed is not None  # there are certificates
    assert columns.proven is not None
    filled = replace(
        truth,
        claimed_radius=columns.claimed.average_radius,
        proven_radius=columns.proven.average_certified_radius,
        tested=audit.tested,
        broken=audit.broken_count,
        accuracy=float((certificates.labels == tested.y.numpy()).mean()),
    )
    because: tuple[str, ...] = ()
    if audit.refuted:
        because = (f"{audit.false_count} of {audit.tested} certificates were shown to be false",)
    attacks = (
        *found.attacks,
        *(f"{each} within {audit.fraction:g} of the {norm} radius" for each in audit.attacks),
    )
    return replace(found, row=filled, attacks=attacks), because, ()


def _formula(found: Finding, inquiry: Inquiry) -> tuple[Finding, tuple[str, ...]]:
    """What the refutations of a published radius say, on networks that were made for it."""
    truth, effort, because = found.row, EFFORTS[inquiry.size], []
    for made in refutations_of(truth.method, about="robustness") if truth.variant == "paper" else ():
        result = made.play(truth.method, "paper", _stakes(inquiry), games=_games(effort, made.games))
        found = replace(found, attacks=(*found.attacks, result.attack))
        if result.refuted:
            because.append(f"{result.reason} ({result.broken} of {result.tested} were broken)")
    return found, tuple(because)


def _games(effort: Effort, usual: int) -> int:
    return max(FEWEST_GAMES, round(effort.games * usual))


def with_observed(found: Finding, epsilon: float | None, attack: str) -> Finding:
    return replace(found, row=replace(found.row, observed_epsilon=epsilon), attacks=(*found.attacks, attack))
