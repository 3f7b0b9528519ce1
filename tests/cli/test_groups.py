"""``hauberk groups``: every test record is in its group, and a group has the numbers of its records."""

import csv
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import hauberk as hb
from hauberk.certify.metrics import Share, correct_radii
from hauberk.data import Dataset
from hauberk.data.adult import encode
from hauberk.data.persons import held_out
from hauberk.errors import RequestError
from hauberk.methods.groups import find_groupings
from hauberk.methods.settings import TrainSettings
from hauberk.methods.training import load_split, prepare, read_settings, train
from hauberk.training import RunFolder

Run = Callable[..., Any]
SCHEMA = """
label = "diagnosis"
missing = "level"
ignored = ["ward"]
[[column]]
name = "age"
low = 0
high = 120
[[column]]
name = "smoker"
levels = ["no", "yes"]
[[column]]
name = "diagnosis"
levels = ["healthy", "ill"]
"""


def write_table(path: Path, rows: int, seed: int) -> list[dict[str, str]]:
    chance = random.Random(seed)
    lines = []
    for _ in range(rows):
        age, smoker = chance.choice([20, 39, 40, 41, 80, ""]), chance.choice(["no", "yes", ""])
        ill = (isinstance(age, int) and age > 39) or smoker == "yes"
        line = {"age": str(age), "smoker": smoker, "ward": chance.choice(["A", "B", ""])}
        lines.append({**line, "diagnosis": "ill" if ill else "healthy"})
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, lines[0])
        writer.writeheader()
        writer.writerows(lines)
    return lines


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("groups")
    (root / "schema.toml").write_text(SCHEMA)
    write_table(root / "train.csv", 200, 0)
    write_table(root / "test.csv", 90, 1)
    usual = {
        "data": str(root / "train.csv"),
        "schema": str(root / "schema.toml"),
        "records": 200,
        "size": "tiny",
        "model": "logistic",
        "no_privacy": True,
        "epochs": 8.0,
        "batch": 50,
        "lr": 2.0,
        "attacked": 0,
        "samples": 100,
    }
    several: dict[str, dict[str, Any]] = {
        "tested": {"test": str(root / "test.csv"), "sigma": 0.25},
        "held": {"holdout": 0.3, "method": "dp-sgd"},
    }
    for name, options in several.items():
        prepared = prepare(
            root=root / "runs", name=name, force=False, config={**usual, **options}, options={}
        )
        train(prepared, command="hauberk train")
    return root


@pytest.fixture
def runs(original: Path, workplace: Path) -> Path:
    return shutil.copytree(original / "runs", workplace / "runs")


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_groups_are_counted_record_by_record(hauberk: Run, runs: Path, original: Path) -> None:
    words = ("groups", "tested", "--by", "smoker,age:40", "--by", "ward,diagnosis")
    done = hauberk(*words, "--radius", 0.1, "--json", "--csv", "groups.csv", "--device", "cpu")
    assert done.code == 0, done.err
    said = json.loads(done.out)
    assert "nothing" in said["privacy"]
    settings, _ = read_settings(RunFolder.open(runs / "tested"))
    test, rows = load_split(settings).test, table(original / "test.csv")
    rows = rows[: len(test)]
    assert len(rows) == 64  # of size tiny
    certificates = hb.load(runs / "tested", device="cpu").classifier.certify(
        test.x, samples=100, alpha=0.001, norm="l2", certificate="tight", seed=0
    )
    correct = correct_radii(certificates, test.y.numpy())
    right = certificates.predicted == test.y.numpy()
    of_age = {"": "missing", "20": "below 40", "39": "below 40"}
    wanted = {
        "smoker": [row["smoker"] or "missing" for row in rows],
        "age": [of_age.get(row["age"], "40 or more") for row in rows],
        "ward": [row["ward"] or "missing" for row in rows],
        "diagnosis": [row["diagnosis"] for row in rows],
        "all": ["all"] * len(rows),
    }
    found = {(row["column"], row["group"]): row for row in said["groups"]}
    assert {column for column, _ in found} == set(wanted)
    for column, names in wanted.items():
        for name in set(names):
            members = np.array([each == name for each in names])
            row = found[column, name]
            assert row["records"] == members.sum()
            share = Share.of(right[members])
            assert (row["accuracy"]["value"], row["accuracy"]["low"]) == (share.value, share.low)
            assert row["certified"][0]["value"] == Share.of(correct[members] >= 0.1).value
            mean = np.maximum(correct[members], 0).mean()
            assert row["average_certified_radius"]["value"] == pytest.approx(mean)
            frequent = max(np.bincount(test.y.numpy()[members])) / members.sum()
            assert row["guessing"] == pytest.approx(frequent)
    lines = table(Path("groups.csv"))
    assert [(line["column"], line["group"]) for line in lines] == list(found)
    assert float(lines[0]["accuracy"]) == found["all", "all"]["accuracy"]["value"]
    assert float(lines[0]["certified_at_0.1_low"]) == found["all", "all"]["certified"][0]["low"]


def test_the_printed_table_says_what_it_costs_and_leaves_the_run_alone(hauberk: Run, runs: Path) -> None:
    before = {path.name: path.read_bytes() for path in (runs / "tested").iterdir() if path.is_file()}
    done = hauberk("groups", "tested", "--by", "smoker", "--limit", 20, "--device", "cpu")
    assert done.code == 0, done.err
    assert "costs the training records nothing" in done.out
    assert "smoker: accuracies differ by up to" in done.out
    assert "mean radius" in done.out
    after = {path.name: path.read_bytes() for path in (runs / "tested").iterdir() if path.is_file()}
    assert after == before


def test_a_run_without_radii_has_accuracies_of_its_held_out_rows(
    hauberk: Run, runs: Path, original: Path
) -> None:
    done = hauberk("groups", "held", "--by", "ward", "--json")
    assert done.code == 0, done.err
    said = json.loads(done.out)
    kept = [row for row in table(original / "train.csv") if held_out(owner(row), 0.3)]
    found = {row["group"]: row for row in said["groups"] if row["column"] == "ward"}
    for name in ("A", "B", "missing"):
        assert found[name]["records"] == sum((row["ward"] or "missing") == name for row in kept[:64])
    assert found["A"]["certified"] is None
    assert "mean radius" not in hauberk("groups", "held", "--by", "ward").out


def owner(row: dict[str, str]) -> str:
    return "\x1f".join(row[name] for name in ("age", "smoker", "diagnosis"))


ADULT = """\
39, State-gov, 77516, Masters, 14, Divorced, Sales, Not-in-family, White, Male, 0, 0, 40, ?, <=50K.
25, ?, 226802, 11th, 7, Never-married, ?, Own-child, Black, Female, 0, 0, 29, United-States, >50K.
24, Private, 226802, 11th, 7, Never-married, ?, Own-child, Other, Female, 0, 0, 29, United-States, >50K.
"""


def test_adults_groups_are_told_from_its_inputs() -> None:
    x, y = encode(ADULT, named="adult.test")
    test = Dataset(name="adult", x=torch.from_numpy(x), y=torch.from_numpy(y.astype(np.int64)), classes=2)
    asked = ("sex", "race", "age:25:39", "workclass", "income", "hours-per-week")
    found = find_groupings(asked, TrainSettings(data="adult"), None, test)
    told = [[each.names[member] for member in each.members] for each in found]
    assert told == [
        ["Male", "Female", "Female"],
        ["White", "Black", "Other"],
        ["39 or more", "25 to below 39", "below 25"],
        ["State-gov", "unknown", "Private"],
        ["<=50K", ">50K", ">50K"],
        ["25 to below 50"] * 3,
    ]
    with pytest.raises(RequestError, match="choose from age, workclass"):
        find_groupings(("sexx",), TrainSettings(data="adult"), None, test)
    with pytest.raises(RequestError, match="no table"):
        find_groupings(("sex",), TrainSettings(data="digits"), None, test)


WRONG = [
    ("no run", ("groups", "nowhere", "--by", "age"), "no run"),
    ("no column", ("groups", "tested", "--by", "height"), "height"),
    ("falling edges", ("groups", "tested", "--by", "age:50:40"), "rising"),
    ("outside", ("groups", "tested", "--by", "age:500"), "between 0 and 120"),
    ("no number", ("groups", "tested", "--by", "age:x"), "rising"),
    ("bands of levels", ("groups", "tested", "--by", "smoker:3"), "no bands"),
    ("twice", ("groups", "tested", "--by", "age,age"), "twice"),
    ("limit", ("groups", "tested", "--by", "age", "--limit", 0), "--limit"),
    ("radius", ("groups", "tested", "--by", "age", "--radius=-1"), "negative"),
    ("nothing to certify", ("groups", "held", "--by", "age", "--radius", 1), "promises no robustness"),
    ("csv", ("groups", "tested", "--by", "age", "--csv", "no/where.csv"), "--csv"),
    ("nothing asked", ("groups", "tested"), "--by"),
]


@pytest.mark.parametrize(("name", "words", "part"), WRONG, ids=[row[0] for row in WRONG])
def test_wrong_requests_cost_a_sentence(
    hauberk: Run, runs: Path, name: str, words: tuple[object, ...], part: str
) -> None:
    done = hauberk(*words)
    assert done.code == 2
    assert part in done.err
    assert "Traceback" not in done.err
