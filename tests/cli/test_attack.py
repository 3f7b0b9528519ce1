"""``hauberk attack``: at radii of one's choice, and certified inputs inside their own radius."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import hauberk as hb
from hauberk.attacks import InsideRadius
from hauberk.methods.attack_runs import attack_run
from hauberk.methods.training import prepare, train
from hauberk.report import write_report

Run = Callable[..., Any]
ROW = ["attack", "norm", "radius", "tested", "accuracy", "accuracy_low", "accuracy_high", "success"]
ROW += ["steps", "draws"]
CPU = ("--device", "cpu")
SMALL = ("--limit", 12, "--draws", 4, *CPU)


def pictures(count: int, seed: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Which stripe of the picture is bright, more or less."""
    generator = np.random.default_rng(seed)
    y = generator.integers(0, classes, count)
    x = generator.integers(0, 120, (count, 6, 6))
    for row, label in enumerate(y):
        x[row, 2 * label : 2 * label + 2] += generator.integers(0, 130)
    return x.astype(np.uint8), y


def made(folder: Path, *, method: str, classes: int) -> Path:
    (x, y), (x_test, y_test) = pictures(256, 0, classes), pictures(64, 1, classes)
    np.savez(folder / "stripes.npz", x=x, y=y, x_test=x_test, y_test=y_test, records=256, classes=classes)
    prepared = prepare(
        root=folder,
        name="first",
        force=False,
        config={"attacked": 2, "attack_steps": 1},
        options={
            "method": method,
            "data": str(folder / "stripes.npz"),
            "size": "tiny",
            "model": "logistic",
            "device": "cpu",
            "no_privacy": True,
            "epochs": 12.0,
            "batch": 64,
            "lr": 1.0,
            "clip": 1.0,
        },
    )
    _, card = train(prepared, command="hauberk train")
    write_report(card, prepared.folder.report)
    return prepared.folder.path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A smoothed classifier of three classes and a network of two; 64 test pictures each."""
    return {
        "smoothed": made(tmp_path_factory.mktemp("smoothed"), method="private-smoothing", classes=3),
        "network": made(tmp_path_factory.mktemp("network"), method="dp-sgd", classes=2),
    }


@pytest.fixture
def run(trained: dict[str, Path], workplace: Path) -> Path:
    return shutil.copytree(trained["smoothed"], workplace / "runs" / "first")


@pytest.fixture
def network(trained: dict[str, Path], workplace: Path) -> Path:
    return shutil.copytree(trained["network"], workplace / "runs" / "plain")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def rows_of(answer: dict[str, Any], attack: str) -> list[dict[str, Any]]:
    return [row for row in answer["rows"] if row["attack"] == attack]


def test_six_attacks_at_three_radii(hauberk: Run, run: Path) -> None:
    pytest.importorskip("torchattacks")
    before = contents(run)
    names = ["fgsm", "ifgsm", "mim", "pgd", "cw", "autoattack"]
    words = ("--attacks", ",".join(names), "--norm", "linf", "--radius", "0.05,0.1,0.2", "--steps", 10)
    done = hauberk("attack", "first", *words, *SMALL, "--json")
    assert done.code == 0, done.err
    answer = json.loads(done.out)
    assert list(answer["attacks"]) == names
    expected = [("none", 0.0)]
    expected += [(name, radius) for name in (*names, "worst case") for radius in (0.05, 0.1, 0.2)]
    assert [(row["attack"], row["radius"]) for row in answer["rows"]] == expected
    for row in answer["rows"]:
        assert list(row) == ROW
        assert (row["norm"], row["tested"]) == ("linf", 12)
        assert 0 <= row["accuracy_low"] <= row["accuracy"] <= row["accuracy_high"] <= 1
    for name in names:
        found = rows_of(answer, name)
        assert [row["success"] for row in found] == sorted(row["success"] for row in found)
        assert {row["steps"] for row in found} == {1 if name == "fgsm" else 10}
        assert {row["draws"] for row in found} == {4}
        for one, worst in zip(found, rows_of(answer, "worst case"), strict=True):
            assert worst["success"] >= one["success"]
            assert worst["accuracy_low"] <= one["accuracy_low"]
    assert rows_of(answer, "none")[0]["success"] == 0
    assert rows_of(answer, "none")[0]["accuracy"] > rows_of(answer, "worst case")[2]["accuracy"] + 0.3
    # the file says the same, and nothing else has changed but the report
    assert json.loads((run / "attacks.json").read_text()) == {k: v for k, v in answer.items() if k != "run"}
    assert answer["samples"] == 200  # as the run's certificates
    after = contents(run)
    assert {name for name in after if after[name] != before.get(name)} == {
        "attacks.json",
        "attacks.npz",
        "report.html",
    }


def test_table_report_and_a_second_report(hauberk: Run, run: Path) -> None:
    done = hauberk("attack", "first", "--attacks", "fgsm,pgd", "--radius", "0.1,8/255", "--steps", 3, *SMALL)
    assert done.code == 0, done.err
    for part in (
        "Inputs: 12 of 64; linf radii; smoothed with input noise 0.25; 4 draws per step; "
        "verdicts by 200 fresh draws; seed 0",
        "95 % interval",
        "no attack",
        "0.0313725",
        "worst case",
        "runs/first/attacks.json",
        "runs/first/report.html",
    ):
        assert part in done.out.replace("\N{NO-BREAK SPACE}", " ")
    report = (run / "report.html").read_text()
    assert 'id="attacks"' in report
    assert "linf PGD, 3 steps" in report
    (run / "report.html").unlink()
    assert hauberk("report", "first").code == 0
    assert (run / "report.html").read_text() == report


def test_the_same_command_gives_the_same_bytes_and_python_the_same_rows(hauberk: Run, run: Path) -> None:
    words = ("attack", "first", "--radius", 0.1, "--steps", 3, "--seed", 4, *SMALL, "--json")
    first, files = hauberk(*words), contents(run)
    assert first.code == 0, first.err
    assert hauberk(*words).out == first.out
    assert contents(run) == files
    x, y = pictures(64, 1, 3)
    found = attack_run(
        hb.load(run, device="cpu"),
        (torch.from_numpy(x)[:, None].float() / 255, torch.from_numpy(y)),
        radii=[0.1],
        steps=3,
        draws=4,
        limit=12,
        samples=200,
        seed=4,
    )
    assert json.loads(json.dumps([vars(row) for row in found.table.rows])) == json.loads(first.out)["rows"]
    other = hauberk(*words[:-1], "--seed", 5, "--json")
    assert json.loads(other.out)["seed"] == 5
    assert (run / "attacks.npz").read_bytes() != files["attacks.npz"]


def test_radius_zero_leaves_the_accuracy(hauberk: Run, run: Path) -> None:
    done = hauberk("attack", run, "--attacks", "fgsm,mim", "--norm", "l2", "--radius", 0, *SMALL, "--json")
    assert done.code == 0, done.err
    rows = json.loads(done.out)["rows"]
    assert [row["attack"] for row in rows] == ["none", "fgsm", "mim", "worst case"]
    assert len({(row["accuracy"], row["accuracy_low"], row["success"]) for row in rows}) == 1


def test_a_run_without_noise_is_attacked_as_its_network(hauberk: Run, network: Path) -> None:
    done = hauberk(
        "attack", "plain", "--attacks", "fgsm,pgd", "--radius", "0.3", "--limit", 20, *CPU, "--json"
    )
    assert done.code == 0, done.err
    answer = json.loads(done.out)
    assert (answer["classifier"], answer["samples"]) == ("the network", None)
    assert {row["draws"] for row in answer["rows"]} == {None}
    assert answer["rows"][0]["accuracy"] > answer["rows"][-1]["accuracy"]
    model = hb.load(network, device="cpu").model
    x, y = pictures(64, 1, 2)
    chosen = torch.linspace(0, 63, 20).round().long()
    with torch.no_grad():
        right = (
            model(torch.from_numpy(x)[chosen, None].float() / 255).argmax(1) == torch.from_numpy(y)[chosen]
        )
    assert answer["rows"][0]["accuracy"] == right.double().mean().item()
    assert "the deployed classifier, the network" in (network / "report.html").read_text()


def test_two_classes_drop_what_needs_four(hauberk: Run, network: Path) -> None:
    pytest.importorskip("torchattacks")
    words = ("attack", "plain", "--radius", 0.6, "--steps", 5, "--limit", 6, *CPU, "--json")
    done = hauberk(*words, "--attacks", "autoattack")
    assert done.code == 0, done.err
    assert json.loads(done.out)["rows"][-1]["accuracy"] == 0  # which spares Square its queries
    before = contents(network)
    refused = hauberk(*words, "--attacks", "pgd,apgd-t")
    assert refused.code == 2
    assert "APGD-T compares four classes, the classifier has fewer: use apgd" in refused.err
    assert contents(network) == before


def test_a_target_class(hauberk: Run, run: Path) -> None:
    words = ("attack", "first", "--attacks", "pgd", "--radius", 0.3, "--steps", 5, *SMALL)
    done = hauberk(*words, "--targeted", 1, "--json")
    assert done.code == 0, done.err
    answer = json.loads(done.out)
    assert answer["target"] == 1
    assert answer["rows"][1]["success"] > 0
    assert "aimed at class 1" in hauberk(*words, "--targeted", 1).out


def test_new_weights_make_old_attacks_void(hauberk: Run, run: Path, network: Path) -> None:
    assert hauberk("attack", "first", "--radius", 0.1, "--steps", 2, *SMALL).code == 0
    shutil.copy(network / "model.safetensors", run / "model.safetensors")
    assert hauberk("report", "first").code == 0
    report = (run / "report.html").read_text()
    assert "The attacks are not shown" in report
    assert "about other weights" in report
    assert "Attacked pictures" not in report


# ---- certified inputs inside their radius -------------------------------------------------------------


def test_without_radii_certified_inputs_are_attacked(hauberk: Run, run: Path) -> None:
    before = contents(run)
    done = hauberk("attack", "first", "--steps", 3, "--draws", 2, "--limit", 3, "--json")
    assert done.code == 0, done.err
    card = json.loads(done.out)
    assert card == json.loads((run / "card.json").read_text())
    assert card["robustness"]["observed"] == {
        "attack": "l2 PGD, 3 steps, expectation over 2 draws, 1 start",
        "fraction_of_certified": 0.99,
        "tested": 3,
        "broken": 0,
    }
    assert set(contents(run)) == set(before)
    assert hauberk("attack", "first", "--limit", 2).code == 0
    observed = json.loads((run / "card.json").read_text())["robustness"]["observed"]
    assert observed["attack"] == "l2 PGD, 20 steps, expectation over 16 draws, 1 start"
    assert observed["tested"] == 2


@pytest.mark.usefixtures("run")
def test_broken_certificates_are_exit_code_one(hauberk: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> InsideRadius:
        return InsideRadius(
            attack="a made up attack",
            norm="l2",
            fraction=0.99,
            rows=np.arange(2),
            attempts=torch.zeros(2, 1, 6, 6),
            sizes=np.zeros(2),
            answers=np.zeros(2, np.int64),
            broken=np.array([True, False]),
        )

    monkeypatch.setattr("hauberk.methods.run.attack_inside_radius", broken)
    done = hauberk("attack", "first")
    assert done.code == 1
    assert "1 certified input was broken" in done.err


@pytest.mark.usefixtures("network")
def test_without_certificates_the_sentence_names_the_radii(hauberk: Run) -> None:
    done = hauberk("attack", "plain")
    assert done.code == 2
    assert "dp-sgd certifies nothing" in done.err
    assert "--radius 0.05,0.1" in done.err


# ---- wrong requests -----------------------------------------------------------------------------------

AT = ("attack", "first", "--radius", "0.1")
WRONG = [
    ("no run", ("attack", "nowhere", "--radius", 0.1), "there is no run"),
    ("unknown attack", (*AT, "--attacks", "pgd,magic"), "no attack 'magic'; choose among fgsm, ifgsm"),
    ("empty attack", (*AT, "--attacks", "pgd,"), "no attack ''"),
    ("no attack", (*AT, "--attacks", ""), "no attack ''"),
    ("no norm", (*AT, "--norm", ""), "no norm ''"),
    ("unknown norm", (*AT, "--norm", "l7"), "no norm 'l7'; choose one of"),
    ("its norm", (*AT, "--attacks", "ddn"), "DDN works in l2, not in 'linf'"),
    ("radius list", ("attack", "first", "--radius", "0.1;0.2"), "--radius takes numbers separated by commas"),
    ("empty radius", ("attack", "first", "--radius", "0.1,,0.2"), "--radius takes numbers"),
    ("no radius", ("attack", "first", "--radius", ""), "--radius takes numbers"),
    ("over zero", ("attack", "first", "--radius", "8/0"), "--radius takes numbers"),
    ("negative", ("attack", "first", "--radius", "-0.1"), "not negative and not infinite"),
    ("endless", ("attack", "first", "--radius", "inf"), "not negative and not infinite"),
    ("nan", ("attack", "first", "--radius", "nan"), "not negative and not infinite"),
    ("attacks alone", ("attack", "first", "--attacks", "pgd"), "--attacks needs the radii"),
    ("norm alone", ("attack", "first", "--norm", "l2"), "--norm goes with --radius"),
    ("target alone", ("attack", "first", "--targeted", 1), "--targeted goes with --radius"),
    ("seed alone", ("attack", "first", "--seed", 1), "--seed goes with --radius"),
    ("no class", (*AT, "--targeted", 3), "no class 3: there are the classes 0 to 2"),
    ("cannot aim", (*AT, "--attacks", "pgd,deepfool", "--targeted", 1), "DeepFool cannot aim"),
    ("limit", (*AT, "--limit", 0), "--limit must be at least 1"),
    ("steps", (*AT, "--steps", 0), "at least one step"),
    ("steps inside", ("attack", "first", "--steps", 0), "at least one step"),
    ("draws", (*AT, "--draws", 0), "one draw"),
    ("draws inside", ("attack", "first", "--draws", 0), "one draw"),
    ("steps of none", (*AT, "--attacks", "fgsm", "--steps", 5), "fgsm cannot be told how many steps"),
    ("seed", (*AT, "--seed", -1), "seeds are whole numbers"),
    ("device", (*AT, "--device", "abacus"), "unknown device"),
    ("draws of none", ("attack", "plain", "--radius", 0.1, "--draws", 3), "answers without noise"),
]


@pytest.mark.parametrize(("name", "words", "part"), WRONG, ids=[row[0] for row in WRONG])
def test_a_wrong_request_costs_one_sentence(
    hauberk: Run, run: Path, network: Path, name: str, words: tuple[object, ...], part: str
) -> None:
    before = contents(run), contents(network)
    done = hauberk(*words)
    assert done.code == 2
    assert part in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert done.out == ""
    assert (contents(run), contents(network)) == before


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize(
    ("attack", "norm", "told"),
    [
        ("cw", "l2", "pip install 'hauberk[oracles]'"),
        ("autoattack", "linf", "pip install --no-deps torchattacks"),
    ],
)
def test_a_library_that_is_missing_is_named(
    hauberk: Run, monkeypatch: pytest.MonkeyPatch, attack: str, norm: str, told: str
) -> None:
    monkeypatch.setattr("hauberk.attacks.adapters.importlib.util.find_spec", lambda name: None)
    done = hauberk(*AT, "--attacks", f"pgd,{attack}", "--norm", norm)
    assert done.code == 2
    assert told in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_help_shows_both_ways(hauberk: Run) -> None:
    told = " ".join(hauberk("attack", "--help").out.split())
    assert "Example: hauberk attack runs/demo --attacks fgsm,mim,pgd --norm linf --radius 0.05,8/255" in told
    assert "hauberk attack runs/demo --steps 100 --limit 300" in told
    for option in ("--attacks", "--norm", "--radius", "--targeted", "--steps", "--draws", "--seed", "--json"):
        assert option in told
