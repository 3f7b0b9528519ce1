"""`hauberk predict`: tables, pictures, folders and archives, from runs of each kind."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hauberk.methods.training import prepare, train

Run = Callable[..., object]
SCHEMA = """\
label = "ill"
unit = "who"
[[column]]
name = "age"
low = 0
high = 100
[[column]]
name = "pulse"
low = 30
high = 230
[[column]]
name = "smoker"
levels = ["no", "yes"]
[[column]]
name = "ill"
levels = ["healthy", "[ill]"]
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """At tiny size: ``table`` and ``scans`` with persons, ``plain`` of an archive, without a certificate."""
    root = tmp_path_factory.mktemp("predict")
    numbers = np.random.default_rng(0)
    lines = ["who,age,pulse,smoker,ill"]
    for row in range(300):
        age = int(numbers.integers(20, 90))
        ill = "[ill]" if age > 55 else "healthy"
        lines.append(f"p{row // 2},{age},{numbers.integers(50, 120)},{('no', 'yes')[row % 2]},{ill}")
    (root / "people.csv").write_text("\n".join(lines) + "\n")
    (root / "people.toml").write_text(SCHEMA)
    for person in range(40):
        for place in range(2):
            pixels = numbers.integers(0, 80, (18, 16), dtype=np.uint8)
            pixels[:, :8] += 120 * (person % 2)
            folder = root / "pictures" / ("dark", "light")[person % 2] / f"p{person}"
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(folder / f"{place}.png")
    table = {"data": str(root / "people.csv"), "schema": str(root / "people.toml"), "records": 140}
    pictures = {
        "data": str(root / "pictures"),
        "records": 36,
        "image_size": 14,
        "grey": True,
        "unit": "folder",
        "max_per_unit": 2,
        "holdout": 0.2,
    }
    numbered = {"data": str(root / "numbered.npz"), "records": 40, "classes": 2, "method": "dp-sgd"}
    np.savez(root / "numbered.npz", x=numbers.random((40, 14, 14)).astype(np.float32), y=np.arange(40) % 2)
    for name, options in (
        ("table", {**table, "sigma": 0.05, "epochs": 10.0, "epsilon": 20.0}),
        ("scans", pictures),
        ("plain", numbered),
    ):
        settings = {"size": "tiny", "samples": 100, "tested": 4, "attacked": 0, **options}
        request = prepare(root=root / "runs", name=name, force=False, config=settings, options={})
        train(request, command="hauberk train")
    return root / "runs"


def test_a_table_gets_labels_radii_and_the_users_units(hauberk: Run, workplace: Path, runs: Path) -> None:
    (workplace / "new.csv").write_text("smoker,age,pulse\nno,25,60\nyes,85,100\n")
    done = hauberk("predict", runs / "table", "new.csv", "--json", "--out", "answers.csv")
    assert done.code == 0, done.err
    said = json.loads(done.out)
    assert (said["norm"], said["alpha"], said["samples"]) == ("l2", 0.001, 100)
    assert [row["input"] for row in said["inputs"]] == ["line 2", "line 3"]
    for row in said["inputs"]:
        assert row["label"] in ((None,) if row["abstain"] else ("healthy", "[ill]"))
        assert row["in_users_units"]["age"] == pytest.approx(100 * row["radius"])
        assert row["in_users_units"]["pulse"] == pytest.approx(200 * row["radius"])
        assert set(row["in_users_units"]) == {"age", "pulse"}
    lines = list(csv.DictReader(io.StringIO((workplace / "answers.csv").read_text())))
    assert [float(line["radius"]) for line in lines] == [row["radius"] for row in said["inputs"]]
    assert [float(line["radius_age"]) for line in lines] == [
        row["in_users_units"]["age"] for row in said["inputs"]
    ]
    assert {line["abstain"] for line in lines} <= {"true", "false"}


def test_the_answers_are_those_of_certify(hauberk: Run, workplace: Path, runs: Path) -> None:
    numbers = np.random.default_rng(1).random((6, 4)).astype(np.float32)
    np.savez(workplace / "x.npz", x=numbers)
    predicted = json.loads(hauberk("predict", runs / "table", "x.npz", "--samples", 200, "--json").out)
    certified = json.loads(
        hauberk("certify", runs / "table", "--input", "x.npz", "--samples", 200, "--json").out
    )
    assert [row["radius"] for row in predicted["inputs"]] == [row["radius"] for row in certified["inputs"]]
    assert predicted["inputs"][0]["input"] == "row 0"


def test_certify_and_attack_find_the_same_test_data_again(hauberk: Run, runs: Path) -> None:
    for run in ("table", "scans"):
        certified = hauberk("certify", runs / run, "--limit", 3, "--json")
        assert certified.code == 0, certified.err
        assert len(json.loads(certified.out)["inputs"]) == 3
        unit = json.loads((runs / run / "card.json").read_text())["privacy"]["unit"]
        assert unit == "one person"
    attacked = hauberk(
        "attack", runs / "scans", "--attacks", "fgsm", "--norm", "linf", "--radius", "0.1", "--limit", 3
    )
    assert attacked.code == 0, attacked.err


def test_the_table_on_the_screen_names_classes_as_they_are(hauberk: Run, workplace: Path, runs: Path) -> None:
    (workplace / "new.csv").write_text("smoker,age,pulse\n" + "no,85,60\n" * 60)
    done = hauberk("predict", runs / "table", "new.csv")
    assert done.code == 0, done.err
    assert "± age" in done.out
    assert "line 2 " in done.out
    assert "10 more" in done.out
    assert "[ill]" in done.out or "abstains" in done.out
    assert "wrong with probability at most 0.001, from 100 draws" in done.out


def test_pictures_and_folders_of_any_size(hauberk: Run, workplace: Path, runs: Path) -> None:
    folder = workplace / "new"
    folder.mkdir()
    Image.new("RGB", (50, 31), (200, 200, 200)).save(folder / "b.jpg")
    Image.new("L", (14, 14), 20).save(folder / "a.png")
    done = hauberk("predict", runs / "scans", folder, "--json")
    assert done.code == 0, done.err
    rows = json.loads(done.out)["inputs"]
    assert [row["input"] for row in rows] == ["a.png", "b.jpg"]
    assert all(row["label"] in ("dark", "light", None) for row in rows)
    alone = json.loads(hauberk("predict", runs / "scans", folder / "a.png", "--json").out)["inputs"]
    assert [row["input"] for row in alone] == ["a.png"]


def test_a_method_without_a_certificate_predicts_numbered_classes(
    hauberk: Run, workplace: Path, runs: Path
) -> None:
    Image.new("L", (14, 14)).save(workplace / "blank.png")
    done = hauberk("predict", runs / "plain", "blank.png", "--json")
    assert done.code == 0, done.err
    said = json.loads(done.out)
    assert said["certificate"] is None
    assert said["inputs"][0]["radius"] is None
    assert said["inputs"][0]["label"] in ("0", "1")
    assert "promises no robustness" in hauberk("predict", runs / "plain", "blank.png").out
    refused = hauberk("predict", runs / "plain", "blank.png", "--samples", 5)
    assert (refused.code, "leave out --samples" in refused.err) == (2, True)


WRONG = [
    ("table", "age,pulse,smoker\nold,60,no\n", "new.csv", "line 2 of new.csv holds 'old' in column 'age'"),
    ("table", "age,pulse\n25,60\n", "new.csv", "has no column 'smoker'"),
    ("table", "age,pulse,smoker,x\n25,60,no,1\n", "new.csv", "column 'x' that its schema does not know"),
    ("table", "", "none.csv", "cannot open none.csv"),
    ("table", "", "folder", "is a folder, but this run was trained on a table"),
    ("table", "", "picture.png", "is a picture, but this classifier takes rows"),
    ("table", "", "new.txt", "neither an .npz archive nor a picture"),
    ("scans", "a,b\n1,2\n", "new.csv", "was not trained on one"),
    ("scans", "", "folder", "holds no pictures"),
    ("scans", "", "broken.png", "cannot read broken.png"),
    ("plain", "", "picture.png", "crop or resize it"),
    ("nothing", "", "new.csv", "there is no run"),
]


@pytest.mark.parametrize(("run", "text", "name", "part"), WRONG)
def test_wrong_input_costs_one_sentence(
    hauberk: Run, workplace: Path, runs: Path, run: str, text: str, name: str, part: str
) -> None:
    (workplace / "new.csv").write_text(text)
    (workplace / "new.txt").write_text(text)
    (workplace / "folder").mkdir()
    (workplace / "broken.png").write_text("no picture")
    Image.new("L", (9, 9)).save(workplace / "picture.png")
    before = sorted(workplace.rglob("*"))
    done = hauberk("predict", runs / run, name, "--out", "answers.csv")
    assert done.code == 2
    assert part in done.err
    assert done.err.startswith("hauberk: ")
    assert done.err.count("\n") == 1
    assert sorted(workplace.rglob("*")) == before  # nothing written


def test_an_output_that_cannot_be_is_refused_before_the_draws(
    hauberk: Run, workplace: Path, runs: Path
) -> None:
    (workplace / "new.csv").write_text("smoker,age,pulse\nno,25,60\n")
    for out in ("answers.txt", "nowhere/answers.csv"):
        done = hauberk("predict", runs / "table", "new.csv", "--out", out)
        assert done.code == 2
        assert "--out takes a .csv file" in done.err


@pytest.mark.parametrize("option", [("--validation", "2"), ("--public-data", "first:2")])
def test_a_folder_of_pictures_is_not_cut_by_place(
    hauberk: Run, workplace: Path, option: tuple[str, str]
) -> None:
    """A new file may come first in the order of names, and would push another across the cut."""
    for kind in ("a", "b"):
        (workplace / "pictures" / kind).mkdir(parents=True)
        for number in range(12):
            picture = np.full((8, 8), 20 * number, dtype=np.uint8)
            Image.fromarray(picture).save(workplace / "pictures" / kind / f"{number}.png")
    words = ("--data", "pictures", "--image-size", "8", "--grey", "--records", "20", "--size", "tiny")
    done = hauberk("train", *words, "--name", "one", "--model", "logistic", *option)
    assert done.code == 2, done.err
    assert "no order that stays" in done.err
    assert not (workplace / "runs" / "one").exists()
