"""Every page of docs/ does what it says: its commands and its Python run, on less data where that takes long.

The comments in the pages that say so are explained in ``conftest.py``. Pages of results hold commands that
take hours; theirs are parsed and not run.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hauberk.experiments import EXPERIMENTS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(page.name for page in DOCS.glob("*.md"))
RESULTS = sorted(str(page.relative_to(DOCS)) for page in (DOCS / "results").glob("*.md"))
WITH_SLOW_BLOCKS = [page for page in PAGES if "<!-- test: slow -->" in (DOCS / page).read_text()]
OF_THEIR_OWN = {"own-network.md": "test_own_network_page.py"}  # pages whose own test runs their blocks
KINDS = ("sh", "python", "toml", "csv", "json", "text")


# ------------------------------------------------------------------------------ what must have come of a page


def first_run(reader: Any, reading: Any) -> None:
    assert (
        "Guarantee card"
        in reading.printed["hauberk train --data digits --epsilon 3 --size tiny --name first"]
    )
    assert "as it should be" in reading.printed["hauberk verify first"]
    assert (reading.folder / "report.html").stat().st_size > 10_000
    refused = reading.told["hauberk train --data digits --epsilon -3"]
    assert len(refused.strip().splitlines()) == 1
    assert "epsilon" in refused


def own_data(reader: Any, reading: Any) -> None:
    for name, records in (("patients", 256), ("scans", 180)):  # 256: the tiny size
        card = json.loads((reading.folder / "runs" / name / "card.json").read_text())
        assert card["privacy"]["unit"] == "one person"
        assert card["privacy"]["proven"]["epsilon"] <= 8
        assert card["records"] == records
    with open(reading.folder / "answers.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["input"] for row in rows] == ["line 2", "line 3"]
    assert list(rows[0]) == ["input", "label", "radius", "abstain", "radius_age", "radius_pressure"]
    for row in rows:
        assert float(row["radius_age"]) == pytest.approx(120 * float(row["radius"]))
        assert float(row["radius_pressure"]) == pytest.approx(300 * float(row["radius"]))
    (reading.folder / "absent.csv").write_text("age,pressure,smoker\n,175,\n")
    (row,) = json.loads(reader.ask(reading, "hauberk predict patients absent.csv --json"))["inputs"]
    assert row["in_users_units"]["age"] is None  # a number that is missing cannot move
    assert row["in_users_units"]["pressure"] == pytest.approx(300 * row["radius"])
    assert "–" in reader.ask(reading, "hauberk predict patients absent.csv") or row["abstain"]
    folder = json.loads(reading.printed["hauberk predict scans scans/bar --json"])["inputs"]
    assert len(folder) == 200
    assert folder[0]["input"] == "P1/0.png"
    assert all(row["label"] in ("disc", "bar") or row["abstain"] for row in folder)


def reading_the_card(reader: Any, reading: Any) -> None:
    (said,) = [text for place, text in reading.printed.items() if place.startswith("reading-the-card.md")]
    assert "one record | add or remove one record | 2 inputs" in said
    assert "- Test data are not protected" in said


def attacks(reader: Any, reading: Any) -> None:
    three_lines, library, run = (
        text for place, text in reading.printed.items() if place.startswith("attacks.md")
    )
    assert "still right" in three_lines
    assert 0 < float(library) <= 1
    assert run.startswith("none 0.0 ")
    assert json.loads((reading.folder / "runs/demo/attacks.json").read_text())["rows"]


def methods(reader: Any, reading: Any) -> None:
    (said,) = [text for place, text in reading.printed.items() if place.startswith("methods.md")]
    assert "input noise 0.25 and noise" in said
    assert "certificate='tight'" in said


def health_records(reader: Any, reading: Any) -> None:
    (said,) = [text for place, text in reading.printed.items() if place.startswith("health-records.md")]
    assert said.startswith("500 torch.Size([500, 24, 6])")
    assert "from_data = true" in (reading.folder / "vitals.toml").read_text()


def mechanisms(reader: Any, reading: Any) -> None:
    """Numbers in comments, and every row of the table by its own command."""
    one_sample, composed = (
        text for place, text in reading.printed.items() if place.startswith("mechanisms.md")
    )
    assert [f"{float(each):.4f}" for each in one_sample.split()] == ["4.4809", "2.5839"]
    assert [f"{float(each):.4f}" for each in composed.split()] == ["1.8310", "2.9999"]
    page = (DOCS / "mechanisms.md").read_text()
    rows = re.findall(r"^\| [^|`]* \| `([^`]*)` \| ([^|]*) \| ([^|]*) \| ([^|]*) \|$", page, re.MULTILINE)
    assert len(rows) == 12
    for options, sigma, claimed, proven in rows:
        found = json.loads(reader.ask(reading, f"hauberk calibrate --json --mechanism {options}"))
        numbers = [float(each) for each in re.findall(r"[\d.]+", sigma)]
        every = found["sigma"] if isinstance(found["sigma"], list) else [found["sigma"]]
        assert every[: len(numbers)] == pytest.approx(numbers, abs=5e-5), options
        assert "all" not in sigma or len({round(each, 4) for each in every}) == 1, options
        assert found["claimed"]["epsilon"] == float(claimed.split()[0]), options
        digits = re.findall(r"[\d.]+", proven)[0]
        apart = 10 ** -len(digits.partition(".")[2])
        assert 0 <= float(digits) - found["proven"]["epsilon"] + 1e-9 <= apart + 2e-9, options  # rounded up


CHECKS: dict[str, Callable[[Any, Any], None]] = {
    "first-run.md": first_run,
    "own-data.md": own_data,
    "reading-the-card.md": reading_the_card,
    "attacks.md": attacks,
    "methods.md": methods,
    "health-records.md": health_records,
    "mechanisms.md": mechanisms,
}


@pytest.mark.parametrize("page", [page for page in PAGES if page not in OF_THEIR_OWN])
def test_a_page_does_what_it_says(page: str, reader: Any) -> None:
    reading = reader.read(page)
    if page in CHECKS:
        CHECKS[page](reader, reading)


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_SLOW_BLOCKS)
def test_its_long_commands_too(page: str, reader: Any) -> None:
    assert reader.read(page, slow=True).blocks


def test_the_other_pages_are_run_by_their_own_tests() -> None:
    for page, test in OF_THEIR_OWN.items():
        text = (Path(__file__).parent / test).read_text()
        assert page in text
        assert "```sh" in text
        assert "```python" in text


# ----------------------------------------------------------------------------------- commands that do not run


@pytest.mark.parametrize("page", [*PAGES, *RESULTS, "../README.md", "../CONTRIBUTING.md"])
def test_every_command_parses(
    page: str,
    blocks: Callable[[str], list[Any]],
    parses: Callable[[str], None],
    options_exist: Callable[[str], None],
) -> None:
    """In blocks whole, in sentences (where RUN stands for a run) by the names of the options."""
    text = (DOCS / page).read_text()
    whole = [command for block in blocks(page) for command in block.commands]
    whole += re.findall(r"^    (hauberk .*)$", text, re.MULTILINE)
    for command in whole:
        if command.startswith("hauberk "):
            parses(command)
    for block in blocks(page):
        if block.kind == "python" and not block.told("insert"):
            compile(block.source, block.place, "exec")
    outside = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    inline = [" ".join(each.split()) for each in re.findall(r"`(hauberk [^`]+)`", outside)]
    for command in inline:
        options_exist(command)
    for command in (*whole, *inline):
        name = re.match(r"hauberk reproduce ([a-z0-9-]+)", command)
        assert not name or name[1] in EXPERIMENTS, command


@pytest.mark.parametrize("page", PAGES)
def test_no_command_hides_from_the_tests(page: str, blocks: Callable[[str], list[Any]]) -> None:
    """Commands and Python stand in fenced blocks of their kind; a skipped block says why."""
    text = (DOCS / page).read_text()
    hidden = re.findall(
        r"^    (?:hauberk |python |pip |make |import |from \w+ import ).*$", text, re.MULTILINE
    )
    outside = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    assert not [line for line in hidden if line in outside]
    for block in blocks(page):
        assert block.kind in KINDS, block.place
        assert all(block.told("skip because")), f"{block.place}: because of what?"
        if block.kind == "text":
            assert not re.match(r"\s*(hauberk|python|pip|make) ", block.text), block.place
