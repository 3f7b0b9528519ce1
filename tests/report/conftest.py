"""A card as a small run makes it, for every test of this room."""

from dataclasses import replace

import numpy as np
import pytest

from hauberk.accounting.card import (
    Card,
    CertifiedAccuracy,
    ClassAccuracy,
    PrivacyClaim,
    PrivacyColumns,
    PrivacyObservation,
    PrivacyProof,
    RobustnessClaim,
    RobustnessColumns,
    RobustnessObservation,
    RobustnessProof,
    Utility,
)
from hauberk.accounting.exhibits import CurvePoint, Exhibits, Strip
from hauberk.methods.attack_records import AttackPictures, AttackRecord, AttackRow, AttackTable


def _strip(count: int = 6) -> Strip:
    random = np.random.default_rng(0)
    rows, columns = np.mgrid[:28, :28]
    images = np.stack(
        [np.exp(-(((rows - 14) / (3 + i)) ** 2) - ((columns - 14) / (9 - i)) ** 2) for i in range(count)]
    ).astype(np.float32)[:, None]
    attempts = np.clip(images + 0.02 * random.standard_normal(images.shape), 0, 1).astype(np.float32)
    return Strip(
        images=images,
        labels=np.array([7, 2, 1, 0, 4, 8]),
        predicted=np.array([7, 2, 1, 0, 9, -1]),
        radii=np.array([0.6146, 0.5821, 0.6146, 0.4402, 0.0871, 0.0], dtype=np.float32),
        attempts=attempts,
        attempt_predicted=np.array([7, 2, -1, 6, 9, 3]),
        attempt_sizes=np.array([0.5838, 0.5529, 0.5838, 0.4598, 0.0827, 0.25], dtype=np.float32),
    )


@pytest.fixture
def card() -> Card:
    radii = (0.0, 0.125, 0.25, 0.375, 0.5, 0.6)
    accuracies = (0.954, 0.948, 0.935, 0.902, 0.848, 0.712)
    return Card(
        method="private-smoothing",
        variant="sound",
        data="digits",
        records=20_000,
        privacy=PrivacyColumns(
            unit="one record",
            neighbours="add or remove one record",
            claimed=PrivacyClaim(epsilon=2.9861, delta=1e-5, source="the accountant, for the plan"),
            proven=PrivacyProof(
                epsilon=2.9861, delta=1e-5, accountant="PLD (dp-accounting 0.6.0, rounded up)"
            ),
            observed=PrivacyObservation(
                epsilon_lower=0.4127, confidence=0.95, attack="one-run canaries", canaries=1000
            ),
            reason=None,
        ),
        robustness=RobustnessColumns(
            norm="l2",
            claimed=RobustnessClaim(formula="sigma (Phi^-1(pA) - Phi^-1(pB)) / 2", average_radius=0.5212),
            proven=RobustnessProof(
                certificate="tight",
                alpha=0.001,
                samples=1000,
                tested=500,
                average_certified_radius=0.5212,
                certified_accuracy=tuple(
                    CertifiedAccuracy(radius=radius, accuracy=accuracy)
                    for radius, accuracy in zip(radii, accuracies, strict=True)
                ),
            ),
            observed=RobustnessObservation(
                attack="PGD over the noise", fraction_of_certified=0.95, tested=120, broken=0
            ),
            reason=None,
        ),
        utility=Utility(
            accuracy=0.954,
            base_accuracy=0.957,
            balanced_accuracy=0.9529,
            per_class=tuple(
                ClassAccuracy(label=label, tested=50, accuracy=accuracy)
                for label, accuracy in enumerate((0.98, 0.98, 0.94, 0.96, 0.94, 0.92, 0.98, 0.96, 0.9, 0.98))
            ),
            tested=500,
            base_tested=2000,
        ),
        seed=0,
        versions={"hauberk": "0.1.0", "python": "3.11.2", "torch": "2.13.0"},
        command="hauberk demo --seed 0",
        notes=(
            "Test data are not protected by the privacy guarantee.",
            "Tuning on private data is not accounted: choose settings on public data.",
        ),
        exhibits=Exhibits(
            curve=tuple(
                CurvePoint(
                    step=20 * epoch,
                    epoch=float(epoch),
                    epsilon=2.9861 * (epoch / 20) ** 0.62,
                    test_accuracy=0.957 - 0.5 * 0.7**epoch,
                )
                for epoch in range(1, 21)
            ),
            strip=_strip(),
            class_names=tuple(str(label) for label in range(10)),
        ),
    )


@pytest.fixture
def attacks() -> AttackRecord:
    """Two attacks at two radii on a smoothed classifier: the first picture broken, the fourth undecided."""
    strip = _strip()
    clean = AttackRow(
        attack="none",
        norm="linf",
        radius=0.0,
        tested=200,
        accuracy=0.95,
        accuracy_low=0.9101,
        accuracy_high=0.9759,
        success=0.0,
        steps=0,
        draws=None,
    )
    accuracies = {"fgsm": (0.9, 0.71), "pgd": (0.85, 0.4321), "worst case": (0.845, 0.4321)}
    rows = tuple(
        replace(
            clean,
            attack=name,
            radius=radius,
            accuracy=accuracy,
            accuracy_low=accuracy - 0.06,
            accuracy_high=accuracy + 0.06,
            success=1 - accuracy / 0.95,
            steps={"fgsm": 1, "pgd": 10}.get(name),
            draws=None if name == "worst case" else 16,
        )
        for name, pair in accuracies.items()
        for radius, accuracy in zip((0.05, 0.1), pair, strict=True)
    )
    table = AttackTable(
        data="digits",
        classifier="smoothed with input noise 0.25",
        norm="linf",
        target=None,
        samples=1000,
        seed=0,
        confidence=0.95,
        attacks={"fgsm": "linf FGSM, 1 step", "pgd": "linf PGD, 10 steps"},
        rows=(clean, *rows),
        pictures_sha256="0" * 64,
    )
    pictures = AttackPictures(
        images=strip.images,
        attempts=strip.attempts,
        labels=strip.labels,
        clean_answers=np.array([7, 2, 1, 0, 9, 8]),
        answers=np.array([3, 2, 1, 6, 9, 8]),
        broken=np.array([True, False, False, False, True, False]),
        undecided=np.array([False, False, False, True, False, False]),
        radii=np.array([0.05, 0.1, 0.1, 0.1, 0.05, 0.1]),
        sizes=np.array([0.0499, 0.1, 0.1, 0.1, 0.0, 0.1]),
        attacks=np.array(["pgd", "fgsm", "pgd", "pgd", "fgsm", "pgd"]),
    )
    return AttackRecord(table=table, pictures=pictures)
