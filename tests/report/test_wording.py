"""The sentences say what the card says, the unpleasant parts included."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from hauberk.accounting.card import Card, CertifiedAccuracy
from hauberk.report import sentences, wording


def words(card: Card) -> str:
    said = (
        *sentences.privacy_sentences(card),
        *sentences.robustness_sentences(card),
        *sentences.utility_sentences(card),
    )
    return " ".join(said).replace("\N{NO-BREAK SPACE}", " ")


def privacy(**changes: Any) -> Callable[[Card], Card]:
    return lambda card: replace(card, privacy=replace(card.privacy, **changes))


def robustness(**changes: Any) -> Callable[[Card], Card]:
    return lambda card: replace(card, robustness=replace(card.robustness, **changes))


def audit(epsilon_lower: float) -> Callable[[Card], Card]:
    def change(card: Card) -> Card:
        assert card.privacy.observed is not None
        return privacy(observed=replace(card.privacy.observed, epsilon_lower=epsilon_lower))(card)

    return change


def claim(epsilon: float, delta: float = 1e-5) -> Callable[[Card], Card]:
    def change(card: Card) -> Card:
        assert card.privacy.claimed is not None
        return privacy(claimed=replace(card.privacy.claimed, epsilon=epsilon, delta=delta))(card)

    return change


def attack(broken: int, tested: int = 120, fraction: float = 0.95) -> Callable[[Card], Card]:
    def change(card: Card) -> Card:
        assert card.robustness.observed is not None
        return robustness(
            observed=replace(
                card.robustness.observed, broken=broken, tested=tested, fraction_of_certified=fraction
            )
        )(card)

    return change


def curve(*points: tuple[float, float]) -> Callable[[Card], Card]:
    def change(card: Card) -> Card:
        assert card.robustness.proven is not None
        listed = tuple(CertifiedAccuracy(radius=radius, accuracy=accuracy) for radius, accuracy in points)
        return robustness(proven=replace(card.robustness.proven, certified_accuracy=listed))(card)

    return change


ROWS: list[tuple[str, Callable[[Card], Card], str]] = [
    ("proof", lambda card: card, "epsilon ≤ 2.99 at delta 1e-5, proven by PLD (dp-accounting 0.6.0"),
    (
        "guess",
        lambda card: card,
        "whether that record was used: the guess is right at most 95.2 % of the time",
    ),
    ("patients", privacy(unit="patient"), "can reveal about any one patient of the training data"),
    (
        "replacement",
        privacy(neighbours="replace one record"),
        "two neighbouring data sets (replace one record)",
    ),
    ("no proof", privacy(proven=None, reason="the noise has a seed"), "training data: the noise has a seed."),
    (
        "no proof, claim",
        privacy(proven=None, reason="x"),
        "claims epsilon 2.99 at delta 1e-5 (the accountant",
    ),
    ("no reason", privacy(proven=None), "training data, and the card gives no reason."),
    ("small claim", claim(1.0), "claims epsilon 1.00 at delta 1e-5"),
    ("no audit", privacy(observed=None), "No attack on the privacy of this run was made."),
    ("quiet audit", audit(0.4127), "showed epsilon ≥ 0.412 at confidence 95 %, which contradicts nothing"),
    ("loud audit", audit(3.2), "which contradicts the proof: do not rely on this run"),
    ("refuted", lambda card: audit(3.2)(privacy(proven=None, reason="x")(card)), "which refutes the claim."),
    (
        "quoted radius",
        lambda card: card,
        "93.5 % of 500 tested inputs keep their correct answer under every l2 ",
    ),
    ("other radii", curve((0, 0.9), (0.1, 0.8), (0.5, 0.7), (2, 0.1)), "70.0 % of 500 tested inputs"),
    ("no radii", curve(), "The average certified radius is 0.521 (certificate tight, 1,000 noisy votes"),
    ("no certificate", robustness(proven=None, reason="no noise"), "about perturbed inputs: no noise."),
    ("no attack", robustness(observed=None), "No attack on its answers was made."),
    ("held", attack(0), "at 95 % of each input's certified radius broke none of 120 certified inputs."),
    (
        "bad luck",
        attack(1, tested=1000),
        "broke 1 of 1,000 certified inputs; the certificates' own error rate",
    ),
    ("broken", attack(7), "allows about 0.12: do not rely on these certificates"),
    ("beyond", attack(7, fraction=1.5), "it went beyond the radius, so no certificate is contradicted."),
    (
        "utility",
        lambda card: card,
        "the network without noise on 95.7 % of 2,000. Its weakest class is 8, with",
    ),
    ("no utility", lambda card: replace(card, utility=None), "is right was not measured."),
]


@pytest.mark.parametrize(("name", "change", "expected"), ROWS, ids=[row[0] for row in ROWS])
def test_what_is_said(card: Card, name: str, change: Callable[[Card], Card], expected: str) -> None:
    assert expected in words(change(card))


@pytest.mark.parametrize(
    ("change", "unsaid"),
    [
        (lambda card: card, "take that as a claim only"),
        (privacy(proven=None, reason="x"), "is bounded"),
        (privacy(proven=None, reason="x"), "the guess is right"),
        (claim(2.0, delta=1e-3), "take that as a claim only"),  # another delta cannot be compared
        (robustness(proven=None, reason="x"), "keep their correct answer"),
        (attack(7, fraction=1.5), "do not rely"),
        (curve((0, 0.9)), "keep their correct answer"),  # radius 0 is no robustness
    ],
)
def test_what_is_not_said(card: Card, change: Callable[[Card], Card], unsaid: str) -> None:
    assert unsaid not in words(change(card))


DOUBTS: list[tuple[str, Callable[[Card], Card], set[str]]] = [
    ("nothing", lambda card: card, set()),
    ("audit above everything", audit(3.2), {"refuted by the audit", "contradicted by the audit"}),
    ("claim below proof", claim(1.0), {"less than what is proven"}),
    ("breaks", attack(7), {"contradicted by the attack", "more than chance explains"}),
    ("one break of many", attack(1, tested=1000), set()),
]


@pytest.mark.parametrize(("name", "change", "expected"), DOUBTS, ids=[row[0] for row in DOUBTS])
def test_doubts_stand_beside_the_number(
    card: Card, name: str, change: Callable[[Card], Card], expected: set[str]
) -> None:
    cells = [cell for row in wording.rows(change(card)) for cell in (row.claimed, row.proven, row.observed)]
    assert {cell.doubt for cell in cells if cell.doubt is not None} == expected
