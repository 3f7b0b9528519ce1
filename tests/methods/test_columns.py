"""The card's columns say what the votes and the ledger say, and nothing more."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from hauberk.accounting import Ledger, PrivacyPlan, UnprotectedEvent, proven_epsilon
from hauberk.certify import ABSTAINED, Certificates
from hauberk.methods.columns import (
    NO_NOISE,
    NOT_AUDITED,
    SEEDED_NOISE,
    certified_curve,
    privacy_columns,
    robustness_proof,
    utility,
    versions,
)

PLAN = PrivacyPlan(records=1000, batch=1000, epochs=3, noise_multiplier=4.0, delta=1e-5)
SILENT_PLAN = PrivacyPlan(records=1000, batch=100, epochs=1, noise_multiplier=0.0, delta=1e-5)


def certificates(labels: list[int], radii: list[float]) -> Certificates:
    return Certificates(
        labels=np.array(labels),
        radii=np.array(radii),
        votes=np.zeros(len(labels), dtype=np.int64),
        samples=200,
        alpha=0.01,
    )


def test_the_curve_counts_right_and_certified_answers() -> None:
    curve = certified_curve(np.array([-1.0, 0.0, 0.05, 0.12]))
    assert [(point.radius, point.accuracy) for point in curve] == [
        (0.0, 0.75),
        (0.05, 0.5),
        (0.1, 0.25),
        (0.15, 0.0),
    ]


@given(radii=arrays.arrays(np.float64, st.integers(1, 30), elements=st.just(-1.0) | st.floats(0, 3)))
def test_every_curve_falls_to_zero(radii: np.ndarray) -> None:
    curve = certified_curve(radii)
    shares = [point.accuracy for point in curve]
    assert shares[0] == (radii >= 0).mean()
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] == 0 or curve[-1].radius <= radii.max()
    assert curve[-1].radius > radii.max() - 1e-9
    for point in curve:
        assert point.accuracy == sum(radius >= point.radius for radius in radii) / len(radii)


def test_nothing_right_gives_a_flat_curve() -> None:
    assert [point.accuracy for point in certified_curve(np.array([-1.0, -1.0]))] == [0.0, 0.0]


def test_wrong_and_abstaining_inputs_count_as_zero() -> None:
    proof = robustness_proof(certificates([1, 0, ABSTAINED, 2], [0.4, 0.8, 0.0, 0.2]), np.array([1, 1, 0, 2]))
    assert proof.average_certified_radius == pytest.approx((0.4 + 0 + 0 + 0.2) / 4)
    assert proof.certified_accuracy[0].accuracy == 0.5
    at = {point.radius: point.accuracy for point in proof.certified_accuracy}
    assert at[0.3] == 0.25
    assert max(at) == 0.45  # the wrong answer's 0.8 does not show
    assert (proof.tested, proof.samples, proof.alpha, proof.certificate) == (4, 200, 0.01, "tight")


def test_utility_per_class_with_a_class_nobody_tested() -> None:
    columns = utility(
        certificates([0, 1, ABSTAINED, 3], [0.1, 0.1, 0.0, 0.1]).labels,
        np.array([0, 0, 0, 3]),
        classes=4,
        base_accuracy=0.9,
        base_tested=77,
    )
    assert columns.accuracy == 0.5
    assert [row.accuracy for row in columns.per_class] == [pytest.approx(1 / 3), None, None, 1.0]
    assert [row.tested for row in columns.per_class] == [3, 0, 0, 1]
    assert [row.label for row in columns.per_class] == [0, 1, 2, 3]
    assert columns.balanced_accuracy == pytest.approx((1 / 3 + 1) / 2)  # over the classes that were tested
    assert (columns.base_accuracy, columns.tested, columns.base_tested) == (0.9, 4, 77)


def test_proven_comes_from_the_ledger_and_not_from_the_plan() -> None:
    executed = Ledger([PLAN.event(), PLAN.event(steps=2)])  # more than planned, as after a resumed run
    columns = privacy_columns(PLAN, executed, source="formula")
    assert columns.claimed is not None
    assert columns.proven is not None
    assert columns.claimed.epsilon == PLAN.epsilon()
    assert columns.claimed.source == "formula"
    assert columns.proven.epsilon == proven_epsilon(executed.events, PLAN.delta) > PLAN.epsilon()
    assert columns.proven.delta == PLAN.delta
    assert columns.proven.accountant.startswith("PLD")
    assert columns.observed is None
    assert columns.reason == NOT_AUDITED
    assert (columns.unit, columns.neighbours) == ("one record", "add or remove one record")


def test_seeded_noise_proves_nothing() -> None:
    columns = privacy_columns(PLAN, Ledger([PLAN.event()], reproducible=True), source="formula")
    assert columns.proven is None
    assert columns.reason == SEEDED_NOISE == "noise reproducible from a recorded seed"
    assert columns.claimed is not None


@pytest.mark.parametrize("reproducible", [False, True])
def test_no_noise_proves_nothing(reproducible: bool) -> None:
    columns = privacy_columns(
        SILENT_PLAN, Ledger([SILENT_PLAN.event()], reproducible=reproducible), source="formula"
    )
    assert columns.proven is None
    assert columns.claimed is None
    assert columns.reason == NO_NOISE


def test_versions_are_text() -> None:
    assert {"hauberk", "python", "torch", "numpy", "dp-accounting"} <= set(versions())
    assert all(isinstance(value, str) for value in versions().values())


def test_events_fewer_than_the_steps_taken_prove_nothing() -> None:
    columns = privacy_columns(PLAN, Ledger([PLAN.event(steps=PLAN.steps - 1)]), source="formula")
    assert columns.proven is None
    assert "fewer" in str(columns.reason)
    assert privacy_columns(PLAN, Ledger(), source="formula").proven is None


def test_an_unprotected_event_under_a_private_plan_proves_nothing() -> None:
    executed = Ledger([PLAN.event(), UnprotectedEvent()])
    columns = privacy_columns(PLAN, executed, source="formula")
    assert columns.proven is None
    assert columns.reason == NO_NOISE


def test_the_card_names_the_accountant_that_answered() -> None:
    tiny_delta = replace(PLAN, delta=1e-20)
    proven = privacy_columns(tiny_delta, Ledger([tiny_delta.event()]), source="formula").proven
    assert proven is not None
    assert not proven.accountant.startswith("PLD")
