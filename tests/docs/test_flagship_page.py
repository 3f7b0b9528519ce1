"""The flagship's pages say what its committed rows say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from hauberk.experiments.flagship import COLUMNS
from hauberk.methods.smoothing_presets import smoothing_preset

ROOT = Path(__file__).parents[2]
ROWS = json.loads((ROOT / "docs/results/flagship.json").read_text())["rows"]
NAMES = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST"}


def test_every_row_has_all_columns() -> None:
    assert ROWS
    assert all(tuple(row) == COLUMNS for row in ROWS)


@pytest.mark.parametrize("data", NAMES)
def test_readme_shows_the_committed_radii(data: str) -> None:
    readme = (ROOT / "README.md").read_text()
    line = re.search(rf"^\| {NAMES[data]} \|(.*)$", readme, re.MULTILINE)
    assert line is not None
    shown = [float(cell.split("(")[0]) for cell in line[1].strip(" |").split("|")]
    found = [
        row["average_certified_radius"]
        for row in sorted(ROWS, key=lambda row: row["sigma"])
        if (row["data"], row["samples"]) == (data, 10_000)
    ]
    assert shown == [round(radius, 3) for radius in found]


def test_no_row_spent_more_than_its_epsilon() -> None:
    allowed = {"mnist": (1.0, 2.68, 8.0), "fashion_mnist": (2.70,)}
    for row in ROWS:
        if row["epsilon"] is not None:
            assert any(0.99 * most < row["epsilon"] <= most for most in allowed[row["data"]])


def test_a_preset_stands_for_every_noise_and_epsilon() -> None:
    for data in ("mnist", "fashion_mnist", "cifar10"):
        for sigma in (0.25, 0.5, 1.0):
            for epsilon in (1.0, 2.7, 8.0):
                row = smoothing_preset({"data": data, "sigma": sigma, "epsilon": epsilon})
                assert row["views"] >= 2
                assert row["lr"] > 0
