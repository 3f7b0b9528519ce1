"""docs/own-data.md, done as a new user would do it: files, schema, training, certified predictions."""

import csv
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from hauberk.cli import main
from hauberk.data import load
from hauberk.errors import RequestError
from hauberk.methods.by_person import METHODS_BY_PERSON

PAGE = (Path(__file__).parents[2] / "docs" / "own-data.md").read_text()
COMMANDS = [
    line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines() if line
]


def block(kind: str) -> str:
    (text,) = re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)
    return text


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's files."""
    folder = tmp_path_factory.mktemp("own-data")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        exec(block("python"), {})
    (folder / "patients.toml").write_text(block("toml"))
    (folder / "new-patients.csv").write_text(block("csv"))
    (folder / "small.toml").write_text("tested = 8\nsamples = 100\nattacked = 0\nepochs = 2\n")
    return folder


@pytest.fixture
def hauberk(
    place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[[str], tuple[int, str, str]]:
    monkeypatch.chdir(place)
    monkeypatch.setenv("COLUMNS", "160")

    def run(line: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", shlex.split(line))
        capfd.readouterr()
        code = 0
        try:
            main()
        except SystemExit as leaving:
            code = int(leaving.code or 0)
        told = capfd.readouterr()
        return code, told.out, told.err

    return run


def test_every_command_works_in_order(hauberk: Callable[[str], tuple[int, str, str]], place: Path) -> None:
    said = {}
    for line in COMMANDS:
        smaller = f"{line} --size tiny --config small.toml" if line.startswith("hauberk train") else line
        code, out, err = hauberk(smaller)
        assert code == 0, f"{line}: {err}"
        said[line] = out
    assert len(said) == len(COMMANDS) == 7

    for name, records in (("patients", 256), ("scans", 180)):  # 256: the tiny size
        card = json.loads((place / "runs" / name / "card.json").read_text())
        assert card["privacy"]["unit"] == "one person"
        assert card["privacy"]["proven"]["epsilon"] <= 8
        assert card["records"] == records
    with open(place / "answers.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["input"] for row in rows] == ["line 2", "line 3"]
    assert list(rows[0]) == ["input", "label", "radius", "abstain", "radius_age", "radius_pressure"]
    for row in rows:
        assert float(row["radius_age"]) == pytest.approx(120 * float(row["radius"]))
        assert float(row["radius_pressure"]) == pytest.approx(300 * float(row["radius"]))
    (place / "absent.csv").write_text("age,pressure,smoker\n,175,\n")
    (row,) = json.loads(hauberk("hauberk predict patients absent.csv --json")[1])["inputs"]
    assert row["in_users_units"]["age"] is None  # a number that is missing cannot move
    assert row["in_users_units"]["pressure"] == pytest.approx(300 * row["radius"])
    assert "–" in hauberk("hauberk predict patients absent.csv")[1] or row["abstain"]
    folder = json.loads(said["hauberk predict scans scans/bar --json"])["inputs"]
    assert len(folder) == 200
    assert folder[0]["input"] == "P1/0.png"
    assert all(row["label"] in ("disc", "bar") or row["abstain"] for row in folder)


def test_a_run_with_the_draft_proves_nothing_and_says_why(
    hauberk: Callable[[str], tuple[int, str, str]], place: Path
) -> None:
    code, _, err = hauberk("hauberk data inspect patients.csv --unit patient --out again.toml")
    assert code == 0
    assert "not private" in err
    code, out, err = hauberk(
        "hauberk train --data patients.csv --schema again.toml --records 360 --epsilon 8 --size tiny "
        "--name drafted --json"
    )
    assert code == 0, err
    privacy = json.loads(out)["privacy"]
    assert privacy["proven"] is None
    assert "age, pressure, smoker, diagnosis were read from the private rows" in privacy["reason"]
    assert hauberk("hauberk data inspect patients.csv --out again.toml")[0] == 2  # it is there already


def test_the_sentence_is_the_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    (sentence,) = re.findall(r"^    (line 3 of .*)$", PAGE, re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    head = "patient,age,pressure,smoker,comment,diagnosis\n"
    Path("patients.csv").write_text(f"{head}a,50,120,no,,ill\nb,999,120,no,,ill\n")
    with pytest.raises(RequestError) as caught:
        load("patients.csv", schema=place / "patients.toml", records=2)
    assert str(caught.value) == sentence


def test_the_methods_for_persons_are_those_named() -> None:
    (named,) = re.findall(r"^Persons work with (.*)\.$", PAGE, re.MULTILINE)
    assert set(re.split(r", | and ", named)) == set(METHODS_BY_PERSON)
