"""The card in words: the cells of its table and its key figures, for paper and terminal alike.

`hauberk.report.sentences` has the summary. Every word is made from the card alone. What the card does not
hold is said to be missing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hauberk.accounting.card import (
    Card,
    CertifiedAccuracy,
    ClassAccuracy,
    PrivacyColumns,
    RobustnessColumns,
    RobustnessProof,
    Utility,
)
from hauberk.report.doubts import (
    audit_exceeds,
    doubt_about_claimed_privacy,
    doubt_about_claimed_radius,
    more_breaks_than_chance,
)
from hauberk.report.rounding import (
    at_least,
    at_most,
    count,
    length,
    percent,
    plain,
    plain_percent,
)

_MOST_RADII = 9  # in a table or a line
_QUOTED_RADIUS = 0.25  # the l2 radius that papers on smoothing quote first


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One cell: ``headline`` is the number; ``doubt`` says in a few words what speaks against it."""

    headline: str
    details: tuple[str, ...] = ()
    empty: bool = False
    doubt: str | None = None


@dataclass(frozen=True, kw_only=True)
class Row:
    """``reason`` is the card's sentence on why an entry of this row is empty."""

    name: str
    scope: str
    claimed: Cell
    proven: Cell
    observed: Cell
    reason: str | None


@dataclass(frozen=True, kw_only=True)
class KeyFigure:
    name: str
    value: str
    detail: str
    empty: bool = False
    doubt: bool = False


_NOT_COMPUTED = Cell(headline="not computed", empty=True)
_NONE = Cell(headline="none", empty=True)


def title(card: Card) -> str:
    return f"{card.method} ({card.variant}) on {card.data}"


def rows(card: Card) -> tuple[Row, Row]:
    return _privacy_row(card.privacy), _robustness_row(card.robustness)


def _privacy_row(privacy: PrivacyColumns) -> Row:
    claimed, proven, observed = _NOT_COMPUTED, _NONE, _NOT_COMPUTED
    if privacy.claimed is not None:
        claimed = Cell(
            headline=f"ε ≤ {at_most(privacy.claimed.epsilon)}",
            details=(f"δ = {plain(privacy.claimed.delta)}", privacy.claimed.source),
            doubt=doubt_about_claimed_privacy(privacy),
        )
    if privacy.proven is not None:
        proven = Cell(
            headline=f"ε ≤ {at_most(privacy.proven.epsilon)}",
            details=(f"δ = {plain(privacy.proven.delta)}", privacy.proven.accountant),
            doubt="contradicted by the audit" if audit_exceeds(privacy, privacy.proven.epsilon) else None,
        )
    if privacy.observed is not None:
        observed = Cell(
            headline=f"ε ≥ {at_least(privacy.observed.epsilon_lower)}",
            details=(
                f"confidence {plain_percent(privacy.observed.confidence)}",
                f"{privacy.observed.attack}, {counted(privacy.observed.canaries, 'canary', 'canaries')}",
            ),
        )
    return Row(
        name="privacy",
        scope=f"unit: {privacy.unit}; neighbours: {privacy.neighbours}",
        claimed=claimed,
        proven=proven,
        observed=observed,
        reason=_reason(privacy),
    )


def _robustness_row(robustness: RobustnessColumns) -> Row:
    claimed, proven, observed = _NOT_COMPUTED, _NONE, _NOT_COMPUTED
    if robustness.claimed is not None:
        claimed = Cell(
            headline=f"average radius {length(robustness.claimed.average_radius)}",
            details=(robustness.claimed.formula,),
            doubt=doubt_about_claimed_radius(robustness),
        )
    proof, attack = robustness.proven, robustness.observed
    contradicted = attack is not None and more_breaks_than_chance(robustness)
    if proof is not None:
        proven = Cell(
            headline=f"average radius {length(proof.average_certified_radius)}",
            details=(
                f"certificate {proof.certificate}, α = {plain(proof.alpha)}",
                f"{count(proof.samples)} votes on each of {count(proof.tested)} inputs",
                *arithmetic(proof),
            ),
            doubt="contradicted by the attack" if contradicted else None,
        )
    if attack is not None:
        observed = Cell(
            headline=f"{count(attack.broken)} of {count(attack.tested)} broken",
            details=(
                f"{attack.attack} at {plain_percent(attack.fraction_of_certified)} of each radius",
                *_audit_details(robustness),
            ),
            doubt="more than chance explains" if contradicted else None,
        )
    return Row(
        name="robustness",
        scope=f"norm: {robustness.norm}",
        claimed=claimed,
        proven=proven,
        observed=observed,
        reason=_reason(robustness),
    )


def _reason(columns: PrivacyColumns | RobustnessColumns) -> str | None:
    if columns.reason is not None:
        return stopped(columns.reason[:1].upper() + columns.reason[1:])
    return "The card gives no reason." if columns.proven is None else None


def _audit_details(robustness: RobustnessColumns) -> tuple[str, ...]:
    """What an audit knows beyond one attack: how sure its breaks are, and what became of claimed radii."""
    said = []
    if robustness.confidence is not None:
        said.append(f"confidence {plain_percent(robustness.confidence)}")
    claimed = robustness.observed_of_claimed
    if claimed is not None:
        said.append(f"of the claimed radii {count(claimed.broken)} of {count(claimed.tested)} broken")
    return tuple(said)


def key_figures(card: Card) -> tuple[KeyFigure, ...]:
    """The four numbers that a hurried reader may take home, each with what it is about."""
    privacy, proof, attack = card.privacy.proven, card.robustness.proven, card.robustness.observed
    figures = []
    if privacy is None:
        figures.append(KeyFigure(name="Proven privacy", value="none", detail="see below", empty=True))
    else:
        figures.append(
            KeyFigure(
                name="Proven privacy",
                value=f"ε ≤ {at_most(privacy.epsilon)}",
                detail=f"at δ = {plain(privacy.delta)}",
                doubt=audit_exceeds(card.privacy, privacy.epsilon),
            )
        )
    quoted = quoted_accuracy(card)
    if proof is None:
        figures.append(KeyFigure(name="Certified accuracy", value="none", detail="see below", empty=True))
    elif quoted is None:
        figures.append(
            KeyFigure(
                name="Certified radius",
                value=length(proof.average_certified_radius),
                detail=f"{card.robustness.norm}, on average",
                doubt=more_breaks_than_chance(card.robustness),
            )
        )
    else:
        figures.append(
            KeyFigure(
                name="Certified accuracy",
                value=percent(quoted.accuracy),
                detail=f"at {card.robustness.norm} radius {plain(quoted.radius)}",
                doubt=more_breaks_than_chance(card.robustness),
            )
        )
    if attack is None:
        figures.append(KeyFigure(name="Broken by attack", value="–", detail="not attacked", empty=True))
    else:
        figures.append(
            KeyFigure(
                name="Broken by attack",
                value=f"{count(attack.broken)} of {count(attack.tested)}",
                detail="certified inputs",
                doubt=more_breaks_than_chance(card.robustness),
            )
        )
    if card.utility is None:
        figures.append(KeyFigure(name="Accuracy", value="–", detail="not measured", empty=True))
    else:
        figures.append(
            KeyFigure(
                name="Accuracy",
                value=percent(card.utility.accuracy),
                detail=f"{percent(card.utility.base_accuracy)} without noise",
            )
        )
    return tuple(figures)


def quoted_accuracy(card: Card) -> CertifiedAccuracy | None:
    """The point of the certified curve worth a sentence: radius 0.25 if listed, else near the average."""
    proof = card.robustness.proven
    if proof is None:
        return None
    positive = [point for point in proof.certified_accuracy if point.radius > 0]
    for point in positive:
        if math.isclose(point.radius, _QUOTED_RADIUS):
            return point
    average = proof.average_certified_radius
    return min(positive, key=lambda point: abs(point.radius - average), default=None)


def listed_accuracies(card: Card) -> tuple[CertifiedAccuracy, ...]:
    """The certified curve by radius; of a long one, evenly spread points from the first to the last."""
    proof = card.robustness.proven
    points = sorted(proof.certified_accuracy, key=lambda point: point.radius) if proof is not None else []
    if len(points) <= _MOST_RADII:
        return tuple(points)
    return tuple(points[round(i * (len(points) - 1) / (_MOST_RADII - 1))] for i in range(_MOST_RADII))


def weakest_class(utility: Utility) -> ClassAccuracy | None:
    measured = [(each.accuracy, each.label, each) for each in utility.per_class if each.accuracy is not None]
    return min(measured)[2] if measured else None


def class_name(card: Card, label: int) -> str:
    names = card.exhibits.class_names
    return names[label] if 0 <= label < len(names) else str(label)


def arithmetic(proof: RobustnessProof) -> tuple[str, ...]:
    """Worth a word where it is not the usual one: it is part of what is certified."""
    usual = proof.arithmetic is None or proof.arithmetic == "float32"
    return () if usual else (f"for the classifier computed in {proof.arithmetic}",)


def one_of(unit: str) -> str:
    return unit if unit.startswith("one ") else f"one {unit}"


def stopped(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def counted(number: int, singular: str, plural: str) -> str:
    return f"{count(number)} {singular if number == 1 else plural}"
