"""The flagship's pages say what its committed rows say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from hauberk.experiments.flagship import COLUMNS
from hauberk.experiments.flagship_ablation import SETTINGS, is_preset
from hauberk.methods.smoothing_presets import smoothing_preset

ROOT = Path(__file__).parents[2]
COMMITTED = json.loads((ROOT / "docs/results/flagship.json").read_text())
ROWS, FACTS = COMMITTED["rows"], COMMITTED["facts"]
ABLATION = json.loads((ROOT / "docs/results/flagship-ablation.json").read_text())["rows"]
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
        if (row["data"], row["samples"]) == (data, 10_000) and 2 < (row["epsilon"] or 0) < 3:
            found.setdefault(row["sigma"], []).append(row["average_certified_radius"])
    assert shown == [round(float(np.mean(found[sigma])), 4) for sigma in sorted(found)]


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
        data, sigma, epsilon, votes = name.split(", ")
        if data in NAMES and epsilon.startswith("epsilon 2"):
            about = float(sigma.split()[1]), int(votes.split()[1])
            found.append((*about, mean["seeds"], round(mean["radius"], 4)))
    assert sorted(shown) == sorted(found)


def test_the_page_shows_what_privacy_costs() -> None:
    page = (ROOT / "docs/results/flagship.md").read_text()
    line = re.search(r"\| epsilon \| (.*) \|\n.*\n\| radius \| (.*) \|", page)
    assert line is not None
    names = ["no privacy" if not name[0].isdigit() else f"epsilon {name}" for name in line[1].split(" | ")]
    means = [FACTS["means"][f"mnist, sigma 0.5, {name}, n 10000"]["radius"] for name in names]
    assert [float(shown) for shown in line[2].split(" | ")] == [round(mean, 4) for mean in means]


def test_the_page_shows_every_row_of_the_ablation_and_which_is_the_preset() -> None:
    page = (ROOT / "docs/results/flagship.md").read_text()
    rows = re.findall(
        r"^\| (MNIST|Fashion-MNIST), ([\d.]+) \| (.*) \| ([\d.]+) \| ([\d.]+) % \|$", page, re.MULTILINE
    )
    expected = [
        (
            NAMES[row["data"]],
            f"{row['sigma']:g}",
            f"**{row['ingredient']}**" if row["preset"] == "yes" else row["ingredient"],
            f"{row['average_certified_radius']:.4f}",
            f"{100 * row['base_accuracy']:.1f}",
        )
        for row in ABLATION
    ]
    assert rows == expected


def test_the_committed_ablation_is_that_of_the_command() -> None:
    """A changed preset or candidate needs new rows."""
    settings = SETTINGS["full"]
    names = [(each.data, each.sigma, name) for each in settings for name in each.changes]
    assert [(row["data"], row["sigma"], row["ingredient"]) for row in ABLATION] == names
    chosen = ["yes" if is_preset(each, name) else "no" for each in settings for name in each.changes]
    assert [row["preset"] for row in ABLATION] == chosen
    assert chosen.count("yes") == len(settings)


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
