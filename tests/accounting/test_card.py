"""The card survives JSON unchanged, and a damaged one is told apart in one sentence."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hauberk.accounting import Card, CurvePoint, Exhibits
from hauberk.accounting.card import (
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
from hauberk.errors import RequestError

FULL = Card(
    method="private-smoothing",
    variant="sound",
    data="digits",
    records=20_000,
    privacy=PrivacyColumns(
        unit="one record",
        neighbours="add or remove one record",
        claimed=PrivacyClaim(epsilon=2.99, delta=1e-5, source="the plan"),
        proven=PrivacyProof(epsilon=2.98, delta=1e-5, accountant="PLD"),
        observed=PrivacyObservation(epsilon_lower=0.4, confidence=0.95, attack="one run", canaries=100),
        reason=None,
    ),
    robustness=RobustnessColumns(
        norm="l2",
        claimed=RobustnessClaim(formula="tight", average_radius=0.4),
        proven=RobustnessProof(
            certificate="tight",
            alpha=0.001,
            samples=1000,
            tested=500,
            average_certified_radius=0.4,
            certified_accuracy=(
                CertifiedAccuracy(radius=0.0, accuracy=0.95),
                CertifiedAccuracy(radius=0.05, accuracy=0.9),
            ),
        ),
        observed=RobustnessObservation(attack="PGD", fraction_of_certified=0.99, tested=100, broken=0),
        reason="none",
    ),
    utility=Utility(
        accuracy=0.94,
        base_accuracy=0.95,
        balanced_accuracy=0.93,
        per_class=(
            ClassAccuracy(label=0, tested=250, accuracy=0.9),
            ClassAccuracy(label=1, tested=0, accuracy=None),
        ),
        tested=500,
        base_tested=2000,
    ),
    seed=3,
    versions={"hauberk": "0.1.0"},
    command="hauberk demo",
    notes=("Test data are not protected.",),
)
EMPTY = replace(
    FULL,
    privacy=replace(FULL.privacy, claimed=None, proven=None, observed=None),
    robustness=replace(FULL.robustness, claimed=None, proven=None, observed=None),
    utility=None,
)


def through_json(card: Card) -> Any:
    return json.loads(json.dumps(card.to_json(), allow_nan=False))


@pytest.mark.parametrize("card", [FULL, EMPTY], ids=["full", "nothing computed"])
def test_a_card_survives_json(card: Card) -> None:
    assert Card.from_json(through_json(card)) == card


texts = st.text(max_size=20)
numbers = st.floats(allow_nan=False, allow_infinity=False)


@given(
    epsilon=st.none() | numbers,
    curve=st.lists(st.tuples(numbers, numbers), max_size=4),
    per_class=st.lists(st.tuples(st.integers(0, 9), st.none() | numbers), max_size=3),
    names=st.lists(texts, max_size=3),
    seed=st.integers(),
)
@settings(max_examples=50, deadline=None)
def test_any_card_survives_json(
    epsilon: float | None,
    curve: list[tuple[float, float]],
    per_class: list[tuple[int, float | None]],
    names: list[str],
    seed: int,
) -> None:
    proven = None if epsilon is None else PrivacyProof(epsilon=epsilon, delta=0.5, accountant="PLD")
    assert FULL.robustness.proven is not None
    assert FULL.utility is not None
    points = tuple(CertifiedAccuracy(radius=radius, accuracy=accuracy) for radius, accuracy in curve)
    classes = tuple(ClassAccuracy(label=label, tested=1, accuracy=share) for label, share in per_class)
    card = replace(
        FULL,
        privacy=replace(FULL.privacy, proven=proven),
        robustness=replace(
            FULL.robustness, proven=replace(FULL.robustness.proven, certified_accuracy=points)
        ),
        utility=replace(FULL.utility, per_class=classes),
        seed=seed,
        versions={name: name for name in names},
        notes=tuple(names),
    )
    assert Card.from_json(through_json(card)) == card


# the keys that other programs rely on
KEYS: list[tuple[str, set[str]]] = [
    (
        "",
        {"method", "variant", "data", "records", "privacy", "robustness", "utility"}
        | {"seed", "versions", "command"},
    ),
    ("privacy", {"unit", "neighbours", "claimed", "proven", "observed", "reason"}),
    ("privacy.claimed", {"epsilon", "delta", "source"}),
    ("privacy.proven", {"epsilon", "delta", "accountant"}),
    ("privacy.observed", {"epsilon_lower", "confidence", "attack", "canaries"}),
    ("robustness", {"norm", "claimed", "proven", "observed", "reason"}),
    ("robustness.claimed", {"formula", "average_radius"}),
    (
        "robustness.proven",
        {"certificate", "alpha", "samples", "tested", "average_certified_radius", "certified_accuracy"},
    ),
    ("robustness.proven.certified_accuracy.0", {"radius", "accuracy"}),
    ("robustness.observed", {"attack", "fraction_of_certified", "tested", "broken"}),
    ("utility", {"accuracy", "base_accuracy", "balanced_accuracy", "per_class"}),
]


def inside(content: Any, path: str) -> Any:
    for step in path.split(".") if path else []:
        content = content[int(step)] if isinstance(content, list) else content[step]
    return content


@pytest.mark.parametrize(("path", "keys"), KEYS, ids=[row[0] or "card" for row in KEYS])
def test_every_promised_key_is_there(path: str, keys: set[str]) -> None:
    assert keys <= set(inside(through_json(FULL), path))


def test_what_was_not_computed_is_null() -> None:
    content = through_json(EMPTY)
    for columns in ("privacy", "robustness"):
        assert [content[columns][key] for key in ("claimed", "proven", "observed")] == [None] * 3
    assert content["utility"] is None


@pytest.mark.parametrize(("path", "keys"), KEYS, ids=[row[0] or "card" for row in KEYS])
def test_every_missing_key_is_named(path: str, keys: set[str]) -> None:
    for key in keys:
        content = through_json(FULL)
        del inside(content, path)[key]
        with pytest.raises(RequestError, match=f"lacks the key '{key}'") as error:
            Card.from_json(content, where="card.json")
        assert str(error.value).startswith("card.json")
        assert "\n" not in str(error.value)


Damage = Callable[[dict[str, Any]], Any]
# (what is wrong, how to damage a good card, part of the sentence)
DAMAGED: list[tuple[str, Damage, str]] = [
    ("unknown key", lambda c: c.update(colour="red"), "card.json has an unknown key 'colour'"),
    ("exhibits", lambda c: c.update(exhibits={}), "card.json has an unknown key 'exhibits'"),
    (
        "unknown deep key",
        lambda c: c["privacy"].update(sigma=1),
        "card.json.privacy has an unknown key 'sigma'",
    ),
    ("text for a count", lambda c: c.update(records="many"), "card.json.records should be a int, not 'many'"),
    ("half a record", lambda c: c.update(records=2.5), "card.json.records should be a int, not 2.5"),
    ("true for a count", lambda c: c.update(seed=True), "card.json.seed should be a int, not True"),
    (
        "text for epsilon",
        lambda c: c["privacy"]["proven"].update(epsilon="3"),
        "card.json.privacy.proven.epsilon should be a float, not '3'",
    ),
    (
        "null epsilon",
        lambda c: c["privacy"]["proven"].update(epsilon=None),
        "card.json.privacy.proven.epsilon should be a float, not None",
    ),
    ("list for columns", lambda c: c.update(privacy=[]), "card.json.privacy should be an object"),
    ("null columns", lambda c: c.update(robustness=None), "card.json.robustness should be an object"),
    (
        "object for a curve",
        lambda c: c["robustness"]["proven"].update(certified_accuracy={}),
        "card.json.robustness.proven.certified_accuracy should be a list",
    ),
    (
        "bad point",
        lambda c: c["robustness"]["proven"]["certified_accuracy"][1].update(radius=None),
        "card.json.robustness.proven.certified_accuracy\\[1\\].radius should be a float",
    ),
    ("list of versions", lambda c: c.update(versions=[]), "card.json.versions should be an object"),
    ("numbered version", lambda c: c["versions"].update(torch=2), "card.json.versions.torch should be a str"),
    ("text for notes", lambda c: c.update(notes="none"), "card.json.notes should be a list"),
]


@pytest.mark.parametrize(("wrong", "damage", "sentence"), DAMAGED, ids=[row[0] for row in DAMAGED])
def test_a_damaged_card_is_refused_in_one_sentence(wrong: str, damage: Damage, sentence: str) -> None:
    content = copy.deepcopy(through_json(FULL))
    damage(content)
    with pytest.raises(RequestError, match=sentence) as error:
        Card.from_json(content, where="card.json")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", [None, [], "card", 3])
def test_what_is_no_object_is_no_card(content: Any) -> None:
    with pytest.raises(RequestError, match="card should be an object"):
        Card.from_json(content)


def test_whole_numbers_pass_for_real_ones() -> None:
    content = through_json(FULL)
    content["privacy"]["proven"]["epsilon"] = 3
    proven = Card.from_json(content).privacy.proven
    assert proven is not None
    assert type(proven.epsilon) is float


def test_exhibits_stay_out_of_the_json(tmp_path: Path) -> None:
    exhibits = Exhibits(curve=(CurvePoint(step=1, epoch=0.1, epsilon=None, test_accuracy=0.5),))
    card = replace(FULL, exhibits=exhibits)
    card.save(tmp_path / "card.json")
    content = json.loads((tmp_path / "card.json").read_text())
    assert "exhibits" not in content
    assert Card.from_json(content, exhibits=exhibits).exhibits == exhibits
    assert Card.from_json(content).exhibits == Exhibits()


def test_a_card_with_a_number_that_is_none_is_not_written(tmp_path: Path) -> None:
    assert FULL.privacy.proven is not None
    endless = replace(FULL.privacy, proven=replace(FULL.privacy.proven, epsilon=float("inf")))
    with pytest.raises(ValueError, match="Out of range"):
        replace(FULL, privacy=endless).save(tmp_path / "card.json")
    assert not list(tmp_path.iterdir())
