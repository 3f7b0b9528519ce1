"""The flagship's pages say what its committed rows say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from hauberk.experiments.flagship import COLUMNS
from hauberk.methods.smoothing_presets import smoothing_preset

ROOT = Path(__file__).parents[2]
COMMITTED = json.loads((ROOT / "docs/results/flagship.json").read_text())
ROWS, FACTS = COMMITTED["rows"], COMMITTED["facts"]
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
    found: dict[float, list[float]] = {}
    for row in ROWS:
        if (row["data"], row["samples"]) == (data, 10_000) and row["epsilon"] > 2:
            found.setdefault(row["sigma"], []).append(row["average_certified_radius"])
    assert shown == [round(float(np.mean(found[sigma])), 3) for sigma in sorted(found)]


def test_the_page_shows_the_committed_means() -> None:
    """Radius by noise and votes, as in the facts' means: mean over seeds, number of seeds."""
    page = (ROOT / "docs/results/flagship.md").read_text()
    rows = re.findall(r"^\|[^|]*\| ([\d.]+) \| ([\d,]+) \| (\d) \| \*\*([\d.]+)\*\*", page, re.MULTILINE)
    shown = [
        (float(sigma), int(votes.replace(",", "")), int(seeds), float(radius))
        for sigma, votes, seeds, radius in rows
    ]
    found = []
    for name, mean in FACTS["means"].items():
        data, sigma, _, votes = name.split(", ")
        if data in NAMES:
            about = float(sigma.split()[1]), int(votes.split()[1])
            found.append((*about, mean["seeds"], round(mean["radius"], 3)))
    assert sorted(shown) == sorted(found)


def test_no_row_spent_more_than_its_epsilon() -> None:
    allowed = {"mnist": (1.0, 2.68, 8.0), "fashion_mnist": (2.70,), "cifar10": (8.0,)}
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


def test_a_single_copy_takes_back_what_compares_copies() -> None:
    """`--views 1` alone must not be answered with a complaint about a term that nobody asked for."""
    for data in ("mnist", "fashion_mnist"):
        for sigma in (0.25, 0.5, 1.0):
            row = smoothing_preset({"data": data, "sigma": sigma, "epsilon": 2.7, "views": 1})
            assert not {"consistency", "clean_copy"} & set(row)
            assert smoothing_preset({"data": data, "sigma": sigma, "epsilon": 2.7})["consistency"] > 0
