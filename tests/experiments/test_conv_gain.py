"""The table of convolution gains: nothing reached exceeds what is certified, and the factors are in order."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from hauberk.certify.affine_map import AffineMap
from hauberk.certify.noise import NoiseLayers
from hauberk.experiments import conv_gain
from hauberk.experiments.result import Result
from hauberk.progress import silent


@pytest.fixture(scope="module")
def result() -> Result:
    return conv_gain.run("tiny", 0, silent)


def table(result: Result) -> list[dict[str, Any]]:
    return [dict(zip(result.columns, row, strict=True)) for row in result.rows]


def test_every_noise_norm_and_both_weights_have_a_row(result: Result) -> None:
    cases = {(row["weights"], row["noise"], row["norm"]) for row in table(result)}
    assert len(cases) == 2 * 3 * 3
    assert len(result.rows) == len(cases) + 2  # one output and one map for the l_inf of 003
    assert len(result.rows) <= 20  # what the screen shows without thinning


def test_no_perturbation_exceeds_the_joint_gain(result: Result) -> None:
    for row in table(result):
        assert row["reached"] <= row["joint"]
        assert row["too_large_at_least"] <= row["too_large_at_most"]
        if row["joint_is"] == "exact":
            assert row["reached"] == pytest.approx(row["joint"], rel=2e-3)


def test_published_radii_are_too_large_within_what_is_possible(result: Result) -> None:
    maps = result.facts["maps"]
    assert maps == 32
    for row in table(result):
        most = maps if row["noise"] == "laplace" else math.sqrt(maps)
        if row["published_covers"] == "one output":
            most = result.facts["outputs"]
        if row["joint_is"] == "exact":
            assert row["too_large_at_least"] > 1
        assert row["too_large_at_most"] <= most * 1.000001


def test_training_changes_the_weights_and_r_changes_the_gains(result: Result) -> None:
    published = {(row["weights"], row["noise"], row["norm"]): row["published"] for row in table(result)}
    assert published["initial", "gaussian", "l2"] != published["trained", "gaussian", "l2"]
    assert published["initial", "gaussian", "l2"] != published["initial", "hgm", "l2"]


def test_the_search_finds_the_largest_singular_value() -> None:
    layer = nn.Linear(6, 9)
    truth = np.linalg.svd(layer.weight.detach().double().numpy() / 0.5, compute_uv=False)[0]
    noise = NoiseLayers(after_first_map=0.5)
    assert conv_gain.reached_gain(AffineMap(layer, (6,)), noise, "l2", seed=0) == pytest.approx(truth)
    columns = layer.weight.detach().double().abs().sum(0)
    loss = NoiseLayers(kind="laplace", after_first_map=torch.full((9,), 0.5, dtype=torch.float64))
    assert conv_gain.reached_gain(AffineMap(layer, (6,)), loss, "l1", seed=0) == pytest.approx(
        float(columns.max()) / 0.5
    )
