"""The figures of 000: what is claimed and what is proven come from the same votes, and stay apart."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from hauberk.certify import Certificates
from hauberk.errors import RequestError
from hauberk.experiments import hgm_figures, secure_sgd_figures
from hauberk.experiments.result import Result
from hauberk.experiments.trained_runs import Votes, share_at
from hauberk.progress import silent

MAPS = 16  # of the first convolution of small-tanh-cnn


@pytest.fixture(scope="module")
def hgm() -> Result:
    return hgm_figures.run_for("digits", "tiny", 0, silent)


@pytest.fixture(scope="module")
def secure() -> Result:
    return secure_sgd_figures.run_for("digits", "tiny", 0, silent)


def table(result: Result) -> list[dict[str, Any]]:
    return [dict(zip(result.columns, row, strict=True)) for row in result.rows]


def test_only_right_and_certified_answers_count() -> None:
    certificates = Certificates(
        labels=np.array([3, 3, -1, 5]),
        radii=np.array([0.4, 0.4, 0.0, 0.1]),
        votes=np.array([990, 990, 500, 700]),
        samples=1000,
        alpha=0.001,
    )
    votes = Votes.of(certificates, np.array([3, 4, 3, 5]))
    radii = votes.certified("tight", gain=2.0)
    assert radii[1] == radii[2] == -1
    assert radii[0] > radii[3] > 0
    assert [share_at(radii, mu) for mu in (0.0, radii[3], radii[0], 10.0)] == [0.5, 0.5, 0.25, 0.0]
    assert votes.certified("tight", gain=1.0)[0] == pytest.approx(2 * radii[0])


def test_the_claim_of_hgm_rests_on_one_map_and_the_proof_on_all(hgm: Result) -> None:
    rows = table(hgm)
    assert len(rows) == 4 * 2 * 3
    for row in rows:
        assert row["mu_of_000"] == 2 * row["mu"]
        if (row["method"], row["variant"]) != ("hgm-pixeldp", "paper"):
            assert row["claimed_gain"] == row["joint_gain"]
            assert row["claimed"] <= row["proven"]
        elif row["norm"] == "l2":
            assert 1 < row["joint_gain"] / row["claimed_gain"] <= math.sqrt(MAPS)
        if row["variant"] == "sound":
            assert row["claimed"] == row["proven"]


def test_certified_accuracy_falls_with_the_size_of_the_perturbation(hgm: Result) -> None:
    rows = table(hgm)
    for one, next_one in pairwise(rows):
        if one["norm"] == next_one["norm"] and one["mu"] < next_one["mu"]:
            assert one["claimed"] >= next_one["claimed"]
            assert one["proven"] >= next_one["proven"]
    assert max(row["proven"] for row in rows) > 0


def test_every_method_meets_every_attack_and_nothing_unproven_is_printed(secure: Result) -> None:
    rows = table(secure)
    attacks = {"none", *secure_sgd_figures.ATTACKS, "worst case"}
    assert {(row["method"], row["variant"], row["attack"]) for row in rows} == {
        (*case, attack) for case in secure_sgd_figures.CASES for attack in attacks
    }
    for row in rows:
        assert row["low"] <= row["accuracy"] <= row["high"]
        if (row["method"], row["variant"]) in {("secure-sgd", "paper"), ("adlm", "paper")}:
            assert row["proven"] is None
        else:
            assert 0 < row["proven"] <= row["epsilon"] == 2.0


def test_certificates_of_the_same_votes_are_in_order(secure: Result) -> None:
    curves = {name: np.array(curve) for name, curve in secure.facts["certified_accuracy"]["digits"].items()}
    gains = secure.facts["gains"]["digits"]
    assert gains["one map"] < gains["all maps"]
    assert (curves["tight"] >= curves["hgm-analytic"]).all()
    assert (curves["hgm-analytic"] >= curves["hgm"]).all()
    assert (curves["hgm, one map"] >= curves["hgm"]).all()
    assert curves["tight"].sum() > curves["hgm"].sum() > 0


@pytest.mark.parametrize("run_for", [hgm_figures.run_for, secure_sgd_figures.run_for])
def test_a_data_set_that_is_not_in_the_figure_is_refused(run_for: Callable[..., Result]) -> None:
    with pytest.raises(RequestError, match="no data set 'cifar10'"):
        run_for("cifar10", "tiny", 0, silent)
