"""docs/own-data.md: what it says beside its commands (which run in test_guide)."""

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
