"""The estimate of the flagship's long rows: all images from the few that had all the draws."""

from __future__ import annotations

import numpy as np
import pytest

from hauberk.certify.metrics import Mean
from hauberk.experiments.flagship import of_all_images
from hauberk.methods.run import spread_rows


def radii(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Of few and of many draws; -1 where the answer is wrong, whatever the draws."""
    generator = np.random.default_rng(seed)
    few = np.where(generator.random(count) < 0.1, -1.0, generator.uniform(0.0, 0.8, count))
    many = np.where(few < 0, -1.0, few * 1.1 + 0.02 * generator.random(count))
    return few, many


def test_with_all_images_it_is_their_mean() -> None:
    few, many = radii(1000, 0)
    assert of_all_images(many, few).value == pytest.approx(many.clip(min=0.0).mean(), abs=1e-12)


def test_it_comes_nearer_than_the_mean_of_the_tested_and_its_interval_holds() -> None:
    """Over 200 sets of images: 95 % intervals that hold, and far narrower ones than of the tested alone."""
    held, narrower = 0, []
    for seed in range(200):
        few, many = radii(2000, seed)
        some = many[spread_rows(2000, 100)]
        estimate, truth = of_all_images(some, few), many.clip(min=0.0).mean()
        held += estimate.low <= truth <= estimate.high
        narrower.append(estimate.standard_error / Mean.of(some.clip(min=0.0)).standard_error)
    assert held >= 180
    assert max(narrower) < 0.3


def test_a_wrong_answer_counts_as_radius_zero_in_both() -> None:
    few = np.array([-1.0, 0.5, 0.5, 0.5])
    many = np.array([-1.0, 0.6, 0.6, -1.0])
    assert of_all_images(many, few).value == pytest.approx((0.6 + 0.6) / 4)
