"""Every experiment obeys every law at tiny size: one row in the registry, and it is tested here."""

import json
from itertools import compress
from pathlib import Path

import pytest

from hauberk.experiments import EXPERIMENTS, Result, to_json, write
from hauberk.progress import silent

each = pytest.mark.parametrize("name", EXPERIMENTS)
_results: dict[str, Result] = {}


def tiny(name: str) -> Result:
    if name not in _results:
        _results[name] = EXPERIMENTS[name].run("tiny", 0, silent)
    return _results[name]


@each
def test_it_writes_its_numbers_beside_its_picture(name: str, tmp_path: Path) -> None:
    result = tiny(name)
    content = to_json(name, EXPERIMENTS[name], result, size="tiny", seed=0)
    picture, numbers = write(tmp_path / "new" / "folder", name, content, result)
    assert picture.parent == numbers.parent == tmp_path / "new" / "folder"
    assert picture.read_bytes().startswith(b"\x89PNG")
    read = json.loads(numbers.read_text())
    assert read == json.loads(json.dumps(content))
    assert read["experiment"] == name
    assert len(read["rows"]) == len(result.rows) > 0
    assert sorted(path.name for path in picture.parent.iterdir()) == [f"{name}.json", f"{name}.png"]


@each
def test_rows_fit_columns_and_notes_are_sentences(name: str) -> None:
    result = tiny(name)
    assert all(len(row) == len(result.columns) for row in result.rows)
    assert result.notes
    assert all(note.endswith(".") for note in result.notes)


@each
def test_the_same_seed_gives_the_same_rows(name: str) -> None:
    once, again = tiny(name), EXPERIMENTS[name].run("tiny", 0, silent)
    repeats = [column not in once.measured for column in once.columns]
    assert [list(compress(row, repeats)) for row in again.rows] == [
        list(compress(row, repeats)) for row in once.rows
    ]


def column(result: Result, name: str) -> list[object]:
    return [row[result.columns.index(name)] for row in result.rows]


def test_figure_1_has_the_agreed_sigmas_at_epsilon_one() -> None:
    result = tiny("hgm-figure-1")
    row = dict(zip(result.columns, result.rows[column(result, "epsilon").index(1.0)], strict=True))
    assert row["gm"] == pytest.approx(4.8448, abs=5e-4)
    assert row["egm"] == pytest.approx(4.8542, abs=5e-4)
    assert row["agm"] == pytest.approx(3.7306, abs=5e-4)
    assert row["hgm_analytic"] == pytest.approx(row["agm"], rel=1e-9)
    above_one = [row for row in result.rows if row[0] > 1]  # type: ignore[operator]
    assert above_one
    assert all(row[1] is None for row in above_one)


def test_directional_truth_refutes_the_claim() -> None:
    result = tiny("directional-truth")
    claimed, proven, at_least = (column(result, name) for name in ("claimed", "proven", "at_least"))
    assert claimed == [0.2, 1.0]
    assert proven[0] == pytest.approx(61.9, abs=1.0)
    assert proven[1] == pytest.approx(2030, rel=0.01)
    assert 50 < at_least[0] < proven[0]  # type: ignore[operator]
    assert 1900 < at_least[1] < proven[1]  # type: ignore[operator]
    equal = column(result, "proven_for_equal_weights")
    assert all(epsilon < claim for epsilon, claim in zip(equal, claimed, strict=True))  # type: ignore[operator]


def test_no_mechanism_falls_below_the_distortion_bound() -> None:
    result = tiny("distortion-rate")
    for row in result.rows:
        cells = dict(zip(result.columns, row, strict=True))
        assert cells["distortion"] >= cells["bound"]  # type: ignore[operator]
        if cells["mechanism"] == "laplace":
            assert cells["bound"] >= cells["bound_by_theorem_2"]  # type: ignore[operator]
        else:
            assert cells["bound"] <= cells["distortion_of_best_estimate"] <= cells["distortion"]  # type: ignore[operator]


@pytest.mark.slow
def test_the_and_network_learns_at_quick_size() -> None:
    result = EXPERIMENTS["utility-subspace"].run("quick", 0, silent)
    assert min(result.facts["accuracies"]) > 0.98
    assert {row[1] for row in result.rows} == {"theta1 b3", "theta6 b3"}
