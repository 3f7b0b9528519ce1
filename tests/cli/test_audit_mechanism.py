"""``hauberk audit-mechanism``: sound promises stand, broken ones fall, wrong requests cost one sentence."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from hauberk.cli.calibrate import OPTIONS

Run = Callable[..., Any]

EXTRA: dict[str, tuple[object, ...]] = {
    "gaussian": (),
    "analytic": (),
    "extended": (),
    "heterogeneous": ("--r", "0.2,0.3,0.5"),
    "multivariate": ("--covariance", "1,0.5;0.5,2"),
    "mixed": ("--transformed", "0.3,0.3", "--steps", 1000),
    "optimized-additive": ("--weights", "1,0.1,0.001", "--steps", 10, "--sampling-rate", 0.5),
    "laplace": (),
}
BROKEN = {"mixed", "optimized-additive"}


def request(name: str, *words: object) -> tuple[object, ...]:
    plain = ("audit-mechanism", name, "--epsilon", 1, "--delta", 1e-3, "--sensitivity", 1, "--draws", 20_000)
    return (*plain, *EXTRA[name], *words)


def test_every_mechanism_has_a_row() -> None:
    assert set(EXTRA) == set(OPTIONS)


@pytest.mark.parametrize("name", EXTRA)
def test_claimed_proven_and_observed_of_every_mechanism(hauberk: Run, name: str) -> None:
    outcome = hauberk(*request(name, "--json", "--alpha", 1e-6))
    answer = json.loads(outcome.out)
    assert list(answer) == ["mechanism", "claimed", "proven", "observed", "gaussian_estimate", "refuted"]
    assert answer["observed"]["epsilon_lower"] <= answer["proven"]["epsilon"]
    assert answer["observed"]["confidence"] == 1 - 1e-6
    assert answer["refuted"] is (name in BROKEN)
    assert outcome.code == (1 if name in BROKEN else 0)


def test_the_table_says_what_is_a_bound_and_what_is_not(hauberk: Run) -> None:
    outcome = hauberk(*request("optimized-additive"))
    assert outcome.code == 1
    for words in ("claimed", "proven", "observed", "is no bound", "The promise is refuted."):
        assert words in outcome.out
    sound = hauberk(*request("laplace"))
    assert sound.code == 0
    assert "refuted" not in sound.out


def test_a_seed_repeats_the_audit(hauberk: Run) -> None:
    first, again, other = (
        json.loads(hauberk(*request("analytic", "--json", "--seed", seed)).out) for seed in (1, 1, 2)
    )
    assert first == again != other


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("audit-mechanism", "unheard-of", "--epsilon", 1, "--delta", 1e-3), "there is no mechanism"),
        (("audit-mechanism", "analytic", "--epsilon", 1), "analytic needs --delta"),
        (request("analytic", "--draws", 10), "at least 200 draws"),
        (request("analytic", "--alpha", 0.9), "alpha must lie"),
        (request("analytic", "--steps", 5), "analytic takes no --steps"),
    ],
)
def test_a_wrong_request_costs_one_sentence(hauberk: Run, words: tuple[object, ...], sentence: str) -> None:
    outcome = hauberk(*words)
    assert outcome.code == 2
    assert sentence in outcome.err
    assert "Traceback" not in outcome.err
