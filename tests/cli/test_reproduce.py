"""``hauberk reproduce``: picture, numbers, table, and wrong names."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hauberk.experiments import EXPERIMENTS

Run = Callable[..., Any]


@pytest.mark.parametrize("name", ["hgm-figure-1", "distortion-rate"])
def test_it_says_where_it_wrote(hauberk: Run, workplace: Path, name: str) -> None:
    done = hauberk("reproduce", name, "--size", "tiny")
    assert done.code == 0
    folder = workplace / "runs" / "reproduce" / name
    for suffix in ("png", "json"):
        assert (folder / f"{name}.{suffix}").is_file()
        assert f"runs/reproduce/{name}/{name}.{suffix}" in done.out


def test_json_is_what_was_written(hauberk: Run, workplace: Path) -> None:
    done = hauberk("reproduce", "hgm-figure-1", "--size", "tiny", "--out", "elsewhere", "--json")
    printed = json.loads(done.out)
    written = json.loads((workplace / "elsewhere" / "hgm-figure-1.json").read_text())
    assert printed.pop("picture") == "elsewhere/hgm-figure-1.png"
    assert printed.pop("numbers") == "elsewhere/hgm-figure-1.json"
    assert printed == written
    assert written["size"] == "tiny"


def test_a_long_table_is_thinned_on_the_screen_only(hauberk: Run, workplace: Path) -> None:
    done = hauberk("reproduce", "hgm-figure-1", "--size", "quick", "--out", "out")
    assert "all are in the file" in done.out
    assert len(json.loads((workplace / "out" / "hgm-figure-1.json").read_text())["rows"]) == 21


def test_an_unknown_name_lists_the_known_ones(hauberk: Run) -> None:
    done = hauberk("reproduce", "mona-lisa")
    assert done.code == 2
    assert all(name in done.err for name in EXPERIMENTS)


def test_a_folder_that_cannot_be_made_is_a_sentence(hauberk: Run, workplace: Path) -> None:
    (workplace / "file").write_text("")
    done = hauberk("reproduce", "hgm-figure-1", "--size", "tiny", "--out", "file/below")
    assert done.code == 2
    assert "cannot make the folder" in done.err


def test_help_has_an_example_and_the_names(hauberk: Run) -> None:
    told = hauberk("reproduce", "--help").out
    assert "Example: hauberk reproduce" in told
    assert all(name in told for name in EXPERIMENTS)
