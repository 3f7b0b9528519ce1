"""``hauberk imitate``: train, attack, evaluate, and every wrong request in one sentence."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hauberk.cli.imitation_folder as folders
from hauberk.attacks.imitation import AINSettings, Architecture, BoundSchedule, Recipe

Run = Callable[..., Any]
CPU = ("--device", "cpu")
TINY = AINSettings(
    architecture=Architecture(widths=(4, 4, 6, 8)),
    schedule=BoundSchedule(initial=0.5, final=0.3, rate=0.4, most_rollbacks=0),
    recipe=Recipe(radius=0.3, steps=3),
    epochs=6,
    batch=20,
    lr=1e-2,
)


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(folders.PRESETS, folders.Preset.small, (TINY, "logistic", 20))


@pytest.fixture
def stripes(workplace: Path) -> str:
    """Which third of the picture is bright."""

    def pictures(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        chance = np.random.default_rng(seed)
        y = chance.integers(0, 3, count)
        x = chance.integers(0, 120, (count, 6, 6))
        for row, label in enumerate(y):
            x[row, 2 * label : 2 * label + 2] += 90
        return x.astype(np.uint8), y

    (x, y), (x_test, y_test) = pictures(200, 0), pictures(60, 1)
    np.savez(workplace / "stripes.npz", x=x, y=y, x_test=x_test, y_test=y_test, records=200, classes=3)
    return "stripes.npz"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the folder that `made` trained is kept for the next test."""
    return tmp_path_factory.mktemp("kept")


@pytest.fixture
def made(hauberk: Run, stripes: str, workplace: Path, kept: Path) -> dict[str, Any]:
    """Trained by the first test that needs it, in its own folder; the others get a copy."""
    if not (kept / "told.json").exists():
        found = hauberk("imitate", "train", "--data", stripes, "--name", "one", "--json", *CPU)
        assert found.code == 0, found.err
        shutil.copytree(workplace / "runs" / "one", kept / "one")
        (kept / "told.json").write_text(found.out)
    elif not (workplace / "runs" / "one").exists():
        shutil.copytree(kept / "one", workplace / "runs" / "one")
    content: dict[str, Any] = json.loads((kept / "told.json").read_text())
    return content


def test_train_writes_an_attack_pictures_and_numbers(made: dict[str, Any], workplace: Path) -> None:
    folder = workplace / "runs" / "one"
    assert made["folder"] == "runs/one"
    names = {path.name for path in folder.iterdir()}
    assert names == {"ain.safetensors", "classifier.safetensors", "examples.png", "imitation.json"}
    assert (folder / "examples.png").read_bytes().startswith(b"\x89PNG")
    assert made["bound"] == 0.3
    assert made["public"] is None
    assert [row["attack"] for row in made["rows"]] == ["AIN", "ifgsm"]
    assert made["rows"][0]["success"] > 0.8
    assert made["rows"][0]["largest_distance"] <= 0.3
    assert len(made["history"]) == 6


def test_evaluate_and_attack_find_the_same_classifier(
    made: dict[str, Any], hauberk: Run, workplace: Path
) -> None:
    again = json.loads(hauberk("imitate", "evaluate", "one", "--json", *CPU).out)
    for before, after in zip(made["rows"], again["rows"], strict=True):
        assert before["success"] == after["success"]
        assert before["distance"] == after["distance"]
    table = hauberk(
        "imitate", "evaluate", "one", "--radius", "0.3,0.5", "--beside", "fgsm", "--limit", 9, *CPU
    )
    assert table.code == 0
    assert table.out.count("AIN") == table.out.count("fgsm") == 2
    failed = hauberk("imitate", "evaluate", "one", "--at-least", "1.01", *CPU)
    assert failed.code == 1
    assert "success is below" in failed.err
    crafted = hauberk("imitate", "attack", "one", "--copies", 3, "--limit", 7, "--json", *CPU)
    facts = json.loads(crafted.out)
    archive = np.load(workplace / facts["archive"])
    assert archive["adversarial"].shape == (7, 3, 1, 6, 6)
    assert (np.abs(archive["adversarial"] - archive["x"][:, None]) <= 0.3 + 1e-6).all()
    assert not np.array_equal(archive["adversarial"][:, 0], archive["adversarial"][:, 1])
    assert 0 <= facts["reached"] <= 1


def test_a_trained_network_is_an_attack_on_a_run(made: dict[str, Any], hauberk: Run, stripes: str) -> None:
    trained = hauberk(
        "train", "--method", "dp-sgd", "--data", stripes, "--model", "logistic", "--no-privacy",
        "--size", "tiny", "--epochs", 5, "--batch", 40, "--name", "victim", *CPU,
    )  # fmt: skip
    assert trained.code == 0, trained.err
    found = hauberk(
        "attack",
        "victim",
        "--attacks",
        f"fgsm,{made['file']}",
        "--radius",
        0.3,
        "--limit",
        20,
        "--json",
        *CPU,
    )
    assert found.code == 0, found.err
    rows = json.loads(found.out)["rows"]
    assert made["file"] in {row["attack"] for row in rows}
    tuned = hauberk(
        "imitate",
        "train",
        "--target",
        "victim",
        "--start",
        made["file"],
        "--epochs",
        2,
        "--name",
        "two",
        *CPU,
    )
    assert tuned.code == 0, tuned.err
    assert "AIN to any other class" in tuned.out
    assert hauberk("imitate", "evaluate", "two", "--limit", 9, *CPU).code == 0


def test_public_records_are_told_apart(hauberk: Run, stripes: str) -> None:
    found = hauberk(
        "imitate", "train", "--data", stripes, "--public-data", "first:60", "--class", 1, "--epochs", 1, *CPU
    )
    assert found.code == 0, found.err
    assert "Not made from public records" not in found.out
    facts = json.loads(Path("runs/imitate-ain-stripes/imitation.json").read_text())
    assert facts["public"] == "first:60 of stripes"
    assert facts["class"] == 1


@pytest.mark.parametrize(("kind", "more"), [("atn", ("--class", 2)), ("advgan", ())])
def test_rivals_can_be_trained(hauberk: Run, stripes: str, kind: str, more: tuple[object, ...]) -> None:
    found = hauberk("imitate", "train", "--kind", kind, "--data", stripes, "--epochs", 2, *more, *CPU)
    assert found.code == 0, found.err
    assert {"atn": "ATN", "advgan": "AdvGAN"}[kind] in found.out


def test_wrong_requests_cost_one_sentence(hauberk: Run, stripes: str, made: dict[str, Any]) -> None:
    train = ("imitate", "train", "--data", stripes, *CPU)
    for words, sentence in (
        ((*train, "--kind", "gan"), "there is no imitation network 'gan'"),
        ((*train, "--name", "one"), "exists already"),
        ((*train, "--name", "../up"), "plain folder name"),
        ((*train, "--kind", "atn"), "give --class"),
        ((*train, "--kind", "advgan", "--decay", "step"), "does not use --decay"),
        ((*train, "--kind", "advgan", "--no-noise"), "does not use --no-adaptation or --no-noise"),
        ((*train, "--class", 7), "there is no class 7"),
        ((*train, "--bound", 2), "within (0, 1]"),
        ((*train, "--decay", "linear"), "there is no decay 'linear'"),
        ((*train, "--imitate", "nothing"), "there is no attack 'nothing'"),
        ((*train, "--network", "nothing"), "There is no network"),
        ((*train, "--start", "no.safetensors"), "cannot read no.safetensors"),
        ((*train, "--target", "nobody"), "leave out the other two"),
        (("imitate", "train", "--target", "nobody", *CPU), "there is no run"),
        (("imitate", "evaluate", "nobody"), "there is no imitation network at nobody"),
        (("imitate", "evaluate", "one", "--radius", "0.1", *CPU), "down to a bound of 0.3"),
        (("imitate", "evaluate", "one", "--radius", "much", *CPU), "numbers separated by commas"),
        (("imitate", "evaluate", "one", "--limit", 0), "--limit must be at least 1"),
        (("imitate", "attack", "one", "--copies", 0), "must be at least 1"),
    ):
        found = hauberk(*words)
        assert found.code == 2, (words, found.err)
        assert sentence in " ".join(found.err.split()), (words, found.err)
        assert "Traceback" not in found.err


@pytest.mark.parametrize("command", ["train", "attack", "evaluate"])
def test_help_has_an_example(hauberk: Run, command: str) -> None:
    found = hauberk("imitate", command, "--help")
    assert found.code == 0
    assert f"Example: hauberk imitate {command}" in found.out
