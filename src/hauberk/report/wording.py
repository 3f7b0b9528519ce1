"""The card in words: the cells of its table and the sentences of its summary, for paper and terminal alike.

Every sentence is made from the card alone. What the card does not hold is said to be missing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.special import bdtrc

from hauberk.accounting.card import (
    Card,
    CertifiedAccuracy,
    ClassAccuracy,
    PrivacyColumns,
    RobustnessColumns,
    RobustnessObservation,
    RobustnessProof,
    Utility,
)
from hauberk.report.rounding import (
    at_least,
    at_most,
    count,
    length,
    percent,
    percent_at_most,
    plain,
    plain_percent,
)

_ROUNDING = 1e-6  # relative; claimed and proven may come from two sums of the same numbers
_BAD_LUCK = 1e-3  # breaks rarer than this are not explained by the certificates' own error rate
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
            doubt=_doubt_about_claimed_privacy(privacy),
        )
    if privacy.proven is not None:
        proven = Cell(
            headline=f"ε ≤ {at_most(privacy.proven.epsilon)}",
            details=(f"δ = {plain(privacy.proven.delta)}", privacy.proven.accountant),
            doubt="contradicted by the audit" if _audit_exceeds(privacy, privacy.proven.epsilon) else None,
        )
    if privacy.observed is not None:
        observed = Cell(
            headline=f"ε ≥ {at_least(privacy.observed.epsilon_lower)}",
            details=(
                f"confidence {plain_percent(privacy.observed.confidence)}",
                f"{privacy.observed.attack}, {_counted(privacy.observed.canaries, 'canary', 'canaries')}",
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
            doubt=_doubt_about_claimed_radius(robustness),
        )
    proof, attack = robustness.proven, robustness.observed
    contradicted = attack is not None and _more_breaks_than_chance(robustness)
    if proof is not None:
        proven = Cell(
            headline=f"average radius {length(proof.average_certified_radius)}",
            details=(
                f"certificate {proof.certificate}, α = {plain(proof.alpha)}",
                f"{count(proof.samples)} votes on each of {count(proof.tested)} inputs",
                *_arithmetic(proof),
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
        return _stopped(columns.reason[:1].upper() + columns.reason[1:])
    return "The card gives no reason." if columns.proven is None else None


def _because(columns: PrivacyColumns | RobustnessColumns) -> str:
    if columns.reason is None:
        return ", and the card gives no reason."
    return f": {_stopped(columns.reason)}"


def _doubt_about_claimed_privacy(privacy: PrivacyColumns) -> str | None:
    if privacy.claimed is None:
        return None
    if _audit_exceeds(privacy, privacy.claimed.epsilon):
        return "refuted by the audit"
    return "less than what is proven" if _claims_smaller_epsilon(privacy) else None


def _audit_exceeds(privacy: PrivacyColumns, epsilon: float) -> bool:
    return privacy.observed is not None and privacy.observed.epsilon_lower > epsilon


def _claims_smaller_epsilon(privacy: PrivacyColumns) -> bool:
    """Comparable at the same delta only."""
    claimed, proven = privacy.claimed, privacy.proven
    return (
        claimed is not None
        and proven is not None
        and claimed.delta == proven.delta
        and claimed.epsilon < proven.epsilon * (1 - _ROUNDING)
    )


def _claims_larger_radius(robustness: RobustnessColumns) -> bool:
    claimed, proven = robustness.claimed, robustness.proven
    return (
        claimed is not None
        and proven is not None
        and claimed.average_radius > proven.average_certified_radius * (1 + _ROUNDING)
    )


def _doubt_about_claimed_radius(robustness: RobustnessColumns) -> str | None:
    if _beyond_chance(robustness, robustness.observed_of_claimed):
        return "refuted by the attack"
    return "larger than what is proven" if _claims_larger_radius(robustness) else None


def _more_breaks_than_chance(robustness: RobustnessColumns) -> bool:
    return _beyond_chance(robustness, robustness.observed)


def _beyond_chance(robustness: RobustnessColumns, attack: RobustnessObservation | None) -> bool:
    """Breaks inside the radius are compared with Binomial(tested, alpha), one-sided."""
    proof = robustness.proven
    if proof is None or attack is None or attack.broken == 0 or attack.fraction_of_certified > 1:
        return False
    return bool(bdtrc(attack.broken - 1, attack.tested, proof.alpha) < _BAD_LUCK)


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
                doubt=_audit_exceeds(card.privacy, privacy.epsilon),
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
                doubt=_more_breaks_than_chance(card.robustness),
            )
        )
    else:
        figures.append(
            KeyFigure(
                name="Certified accuracy",
                value=percent(quoted.accuracy),
                detail=f"at {card.robustness.norm} radius {plain(quoted.radius)}",
                doubt=_more_breaks_than_chance(card.robustness),
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
                doubt=_more_breaks_than_chance(card.robustness),
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


def privacy_sentences(card: Card) -> tuple[str, ...]:
    """What the card says about privacy, in plain language, the missing parts included."""
    privacy, unit = card.privacy, _one(card.privacy.unit)
    said = []
    if privacy.proven is not None:
        bound = f"epsilon ≤ {at_most(privacy.proven.epsilon)} at delta {plain(privacy.proven.delta)}"
        said.append(
            f"What the released model can reveal about any {unit} of the training data is bounded: {bound}, "
            f"proven by {privacy.proven.accountant}."
        )
        said.append(_guessing_sentence(privacy.proven.epsilon, privacy.proven.delta, privacy, unit))
    else:
        said.append(f"Nothing is proven about the privacy of the training data{_because(privacy)}")
    if privacy.claimed is not None and (privacy.proven is None or _claims_smaller_epsilon(privacy)):
        said.append(
            f"The method itself claims epsilon {at_most(privacy.claimed.epsilon)} at delta "
            f"{plain(privacy.claimed.delta)} ({privacy.claimed.source}); take that as a claim only."
        )
    if privacy.observed is None:
        said.append("No attack on the privacy of this run was made.")
    else:
        said.append(_audit_sentence(privacy))
    return tuple(said)


def _guessing_sentence(epsilon: float, delta: float, privacy: PrivacyColumns, unit: str) -> str:
    """(epsilon, delta) as success at telling two neighbours apart at even odds (Wasserman & Zhou 2010)."""
    success = (1 + delta * math.exp(-epsilon)) / (1 + math.exp(-epsilon))
    question = (
        f"whether that {unit.removeprefix('one ')} was used"
        if privacy.neighbours.startswith("add or remove")
        else f"which of two neighbouring data sets ({privacy.neighbours}) was used"
    )
    return (
        f"Take somebody who knows everything else, sees the model and guesses, at even odds, {question}: the "
        f"guess is right at most {percent_at_most(min(1.0, success))} of the time, where a coin toss is "
        f"right half of the time."
    )


def _audit_sentence(privacy: PrivacyColumns) -> str:
    assert privacy.observed is not None
    found = (
        f"An attack ({privacy.observed.attack}, "
        f"{_counted(privacy.observed.canaries, 'canary', 'canaries')}) showed epsilon ≥ "
        f"{at_least(privacy.observed.epsilon_lower)} at confidence "
        f"{plain_percent(privacy.observed.confidence)}"
    )
    if privacy.proven is not None and _audit_exceeds(privacy, privacy.proven.epsilon):
        return f"{found}, which contradicts the proof: do not rely on this run before that is explained."
    if privacy.claimed is not None and _audit_exceeds(privacy, privacy.claimed.epsilon):
        return f"{found}, which refutes the claim."
    return f"{found}, which contradicts nothing above."


def robustness_sentences(card: Card) -> tuple[str, ...]:
    """What the card says about perturbed inputs, in plain language, the missing parts included."""
    robustness, proof, quoted = card.robustness, card.robustness.proven, quoted_accuracy(card)
    said = []
    if proof is None:
        said.append(f"Nothing is proven about perturbed inputs{_because(robustness)}")
    else:
        if quoted is not None:
            said.append(
                f"{percent(quoted.accuracy)} of {count(proof.tested)} tested inputs keep their correct "
                f"answer under every {robustness.norm} perturbation smaller than {plain(quoted.radius)}."
            )
        said.append(
            f"The average certified radius is {length(proof.average_certified_radius)} (certificate "
            f"{proof.certificate}, {count(proof.samples)} noisy votes per input; each input's certificate "
            f"is wrong with probability at most {plain(proof.alpha)})."
        )
        said.extend(_uncertainty_sentences(proof))
    if robustness.claimed is not None and (proof is None or _claims_larger_radius(robustness)):
        said.append(
            f"The method itself claims an average radius of {length(robustness.claimed.average_radius)} "
            f"({robustness.claimed.formula}); take that as a claim only."
        )
    if robustness.observed is None:
        said.append("No attack on its answers was made.")
    else:
        said.append(_attack_sentence(robustness, robustness.observed))
    if robustness.confidence is not None:
        said.append(
            "A point counts as broken only where fresh draws show another answer; that every break is one "
            f"has confidence {plain_percent(robustness.confidence)}."
        )
    if robustness.observed_of_claimed is not None:
        said.append(_claimed_attack_sentence(robustness, robustness.observed_of_claimed))
    return tuple(said)


def _claimed_attack_sentence(robustness: RobustnessColumns, attack: RobustnessObservation) -> str:
    found = (
        f"Inside the radii that the method itself claims, {count(attack.broken)} of "
        f"{_counted(attack.tested, 'attacked input was', 'attacked inputs were')} broken"
    )
    return f"{found}, which refutes the claim." if _beyond_chance(robustness, attack) else f"{found}."


def _arithmetic(proof: RobustnessProof) -> tuple[str, ...]:
    """Worth a word where it is not the usual one: it is part of what is certified."""
    usual = proof.arithmetic is None or proof.arithmetic == "float32"
    return () if usual else (f"for the classifier computed in {proof.arithmetic}",)


def _uncertainty_sentences(proof: RobustnessProof) -> list[str]:
    said = []
    if proof.standard_error is not None:
        said.append(
            f"Other test inputs from the same source would move that average by about "
            f"{at_most(proof.standard_error)} (one standard error)."
        )
    if proof.abstained:
        said.append(f"On {percent_at_most(proof.abstained)} of the inputs the classifier abstains.")
    if _arithmetic(proof):
        said.append(
            f"The certificates hold for the classifier computed in {proof.arithmetic}; deploy that one."
        )
    return said


def _attack_sentence(robustness: RobustnessColumns, attack: RobustnessObservation) -> str:
    aimed = (
        f"An attack ({attack.attack}) at {plain_percent(attack.fraction_of_certified)} of each input's "
        f"certified radius broke {count(attack.broken) if attack.broken else 'none'} of "
        f"{_counted(attack.tested, 'certified input', 'certified inputs')}"
    )
    if attack.broken == 0:
        return f"{aimed}."
    if attack.fraction_of_certified > 1:
        return f"{aimed}; it went beyond the radius, so no certificate is contradicted."
    if robustness.proven is None:
        return f"{aimed}."
    allowed = plain(attack.tested * robustness.proven.alpha)
    if _more_breaks_than_chance(robustness):
        return (
            f"{aimed}, where the certificates' own error rate allows about {allowed}: do not rely on these "
            f"certificates before that is explained."
        )
    return f"{aimed}; the certificates' own error rate allows about {allowed}."


def utility_sentences(card: Card) -> tuple[str, ...]:
    utility = card.utility
    if utility is None:
        return ("How often the classifier is right was not measured.",)
    said = [
        f"The deployed classifier is right on {percent(utility.accuracy)} of {count(utility.tested)} test "
        f"inputs (an abstention counts as wrong); the network without noise on "
        f"{percent(utility.base_accuracy)} of {count(utility.base_tested)}."
    ]
    weakest = weakest_class(utility)
    if weakest is not None and weakest.accuracy is not None:
        said.append(
            f"Its weakest class is {class_name(card, weakest.label)}, with {percent(weakest.accuracy)} of "
            f"{_counted(weakest.tested, 'input', 'inputs')}."
        )
    return tuple(said)


def weakest_class(utility: Utility) -> ClassAccuracy | None:
    measured = [(each.accuracy, each.label, each) for each in utility.per_class if each.accuracy is not None]
    return min(measured)[2] if measured else None


def class_name(card: Card, label: int) -> str:
    names = card.exhibits.class_names
    return names[label] if 0 <= label < len(names) else str(label)


def _one(unit: str) -> str:
    return unit if unit.startswith("one ") else f"one {unit}"


def _stopped(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _counted(number: int, singular: str, plural: str) -> str:
    return f"{count(number)} {singular if number == 1 else plural}"
