"""The summary of a card: whole sentences on privacy, on perturbed inputs and on how often it is right."""

from __future__ import annotations

import math

from hauberk.accounting.card import (
    Card,
    PrivacyColumns,
    RobustnessColumns,
    RobustnessObservation,
    RobustnessProof,
)
from hauberk.report.doubts import (
    audit_exceeds,
    beyond_chance,
    claims_larger_radius,
    claims_smaller_epsilon,
    more_breaks_than_chance,
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
from hauberk.report.wording import (
    arithmetic,
    class_name,
    counted,
    one_of,
    quoted_accuracy,
    stopped,
    weakest_class,
)


def privacy_sentences(card: Card) -> tuple[str, ...]:
    """What the card says about privacy, in plain language, the missing parts included."""
    privacy, unit = card.privacy, one_of(card.privacy.unit)
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
    if privacy.claimed is not None and (privacy.proven is None or claims_smaller_epsilon(privacy)):
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
        f"{counted(privacy.observed.canaries, 'canary', 'canaries')}) showed epsilon ≥ "
        f"{at_least(privacy.observed.epsilon_lower)} at confidence "
        f"{plain_percent(privacy.observed.confidence)}"
    )
    if privacy.proven is not None and audit_exceeds(privacy, privacy.proven.epsilon):
        return f"{found}, which contradicts the proof: do not rely on this run before that is explained."
    if privacy.claimed is not None and audit_exceeds(privacy, privacy.claimed.epsilon):
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
    if robustness.claimed is not None and (proof is None or claims_larger_radius(robustness)):
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
        f"{counted(attack.tested, 'attacked input was', 'attacked inputs were')} broken"
    )
    return f"{found}, which refutes the claim." if beyond_chance(robustness, attack) else f"{found}."


def _uncertainty_sentences(proof: RobustnessProof) -> list[str]:
    said = []
    if proof.standard_error is not None:
        said.append(
            f"Other test inputs from the same source would move that average by about "
            f"{at_most(proof.standard_error)} (one standard error)."
        )
    if proof.abstained:
        said.append(f"On {percent_at_most(proof.abstained)} of the inputs the classifier abstains.")
    if arithmetic(proof):
        said.append(
            f"The certificates hold for the classifier computed in {proof.arithmetic}; deploy that one."
        )
    return said


def _attack_sentence(robustness: RobustnessColumns, attack: RobustnessObservation) -> str:
    aimed = (
        f"An attack ({attack.attack}) at {plain_percent(attack.fraction_of_certified)} of each input's "
        f"certified radius broke {count(attack.broken) if attack.broken else 'none'} of "
        f"{counted(attack.tested, 'certified input', 'certified inputs')}"
    )
    if attack.broken == 0:
        return f"{aimed}."
    if attack.fraction_of_certified > 1:
        return f"{aimed}; it went beyond the radius, so no certificate is contradicted."
    if robustness.proven is None:
        return f"{aimed}."
    allowed = plain(attack.tested * robustness.proven.alpha)
    if more_breaks_than_chance(robustness):
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
            f"{counted(weakest.tested, 'input', 'inputs')}."
        )
    return tuple(said)


def _because(columns: PrivacyColumns | RobustnessColumns) -> str:
    if columns.reason is None:
        return ", and the card gives no reason."
    return f": {stopped(columns.reason)}"
