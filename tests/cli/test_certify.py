"""``hauberk certify``: tables, files, card, one's own inputs, interruptions, processes, wrong requests.

This file run as a script is one of two processes that share a certification (see `start_two`).
"""

import csv
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import hauberk as hb
from hauberk.certify import Smoothed, clopper_pearson_lower
from hauberk.cli import main
from hauberk.files import read_tensors, write_tensors
from hauberk.methods import AuditSettings
from hauberk.methods.training import prepare, train
from hauberk.report import write_report

Run = Callable[..., Any]
SMALL_BLOCK = 8
CERTIFY = ("certify", "first", "--device", "cpu")
USUAL = (*CERTIFY, "--samples", 150, "--limit", 40)


def pictures(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Three classes: which third of the picture is bright, more or less."""
    generator = np.random.default_rng(seed)
    y = generator.integers(0, 3, count)
    x = generator.integers(0, 120, (count, 6, 6))
    for row, label in enumerate(y):
        x[row, 2 * label : 2 * label + 2] += generator.integers(0, 130)
    return x.astype(np.uint8), y


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A linear classifier, trained in a moment without privacy; 64 test pictures."""
    folder = tmp_path_factory.mktemp("made")
    (x, y), (x_test, y_test) = pictures(256, 0), pictures(64, 1)
    np.savez(folder / "thirds.npz", x=x, y=y, x_test=x_test, y_test=y_test, records=256, classes=3)
    prepared = prepare(
        root=folder,
        name="first",
        force=False,
        config={"attacked": 2, "attack_steps": 1},
        options={
            "data": str(folder / "thirds.npz"),
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


@pytest.fixture
def run(trained: Path, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The run, in a folder of the test's own; test sets go in blocks of eight."""
    monkeypatch.setattr("hauberk.certify.voting.BLOCK", SMALL_BLOCK)
    return shutil.copytree(trained, workplace / "runs" / "first")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_usual_question_updates_card_report_and_files(hauberk: Run, run: Path) -> None:
    before = contents(run)
    done = hauberk(*USUAL, "--alpha", 0.01, "--json")
    assert done.code == 0, done.err
    answer, card = json.loads(done.out), json.loads((run / "card.json").read_text())
    assert answer["card_updated"] is True
    assert answer["robustness"] == card["robustness"]
    proven = card["robustness"]["proven"]
    assert (proven["samples"], proven["tested"], proven["alpha"], proven["draws"]) == (150, 40, 0.01, 6000)
    assert (proven["certificate"], proven["arithmetic"]) == ("tight", "float32")
    assert proven["question"] == "radius from 150 draws"
    assert 0 < proven["standard_error"] < 0.1
    assert proven["abstained"] == answer["metrics"]["abstained"]["value"]
    assert card["robustness"]["observed"] is None
    assert "attack" in card["robustness"]["reason"]
    assert not (run / "strip.npz").exists()
    report = (run / "report.html").read_text()
    assert report != before["report.html"].decode()
    assert "(one standard error)" in report
    assert ("of the inputs the classifier abstains" in report) == (proven["abstained"] > 0)
    assert "deploy that one" not in report
    # it is what an audit of the run says
    loaded = hb.load(run, device="cpu")
    x, y = pictures(64, 1)
    test = torch.from_numpy(x)[:, None].float() / 255, torch.from_numpy(y)
    audited = loaded.audit(test, settings=AuditSettings(tested=40, samples=150, alpha=0.01, attacked=0))
    assert json.loads(json.dumps(audited.to_json())) == card
    # the files say the same
    summary = json.loads((run / "certificates.json").read_text())
    assert summary["metrics"] == answer["metrics"]
    assert summary["on_the_card"] is True
    assert {path.name for path in run.iterdir()} == set(before) - {"strip.npz"} | {
        "certificates.csv",
        "certificates.json",
        "private",
    }


def test_the_csv_has_one_row_per_input(hauberk: Run, run: Path, workplace: Path) -> None:
    done = hauberk(*USUAL, "--csv", "elsewhere.csv", "--json")
    assert done.code == 0, done.err
    assert (workplace / "elsewhere.csv").read_bytes() == (run / "certificates.csv").read_bytes()
    rows, inputs = rows_of(run / "certificates.csv"), json.loads(done.out)["inputs"]
    assert list(rows[0]) == ["row", "truth", "label", "correct", "robust", "radius", "votes", "draws"]
    assert len(rows) == len(inputs) == 40
    _, truth = pictures(64, 1)
    for row, each in zip(rows, inputs, strict=True):
        assert {name: json.loads(value) for name, value in row.items()} == each
        assert each["truth"] == truth[each["row"]]
        assert each["correct"] == (each["label"] == each["truth"])
        sure = float(clopper_pearson_lower(each["votes"], 150, 0.001)) > 0.5
        assert each["robust"] == (each["radius"] > 0) == sure
    assert [each["row"] for each in inputs] == torch.linspace(0, 63, 40).round().int().tolist()
    assert 10 < sum(each["correct"] for each in inputs) < 40


def test_the_table_has_intervals_draws_and_classes(hauberk: Run, run: Path) -> None:
    done = hauberk(*USUAL)
    assert done.code == 0, done.err
    for part in (
        "Inputs: 40 of 64; radius from 150 draws; l2, certificate tight, alpha 0.001, float32",
        "95 % interval",
        "accuracy, certified or not",
        "abstained",
        "correct and certified at 0.25",
        "average certified radius",
        "standard error",
        "6,000",
        "class",
        "runs/first/certificates.csv",
        "runs/first/report.html",
    ):
        assert part in done.out
    assert "Unanimous votes would certify radius" in done.err


def test_is_the_radius_at_least_so_much(hauberk: Run, run: Path) -> None:
    before = contents(run)
    done = hauberk(*CERTIFY, "--radius", 0.2, "--limit", 40, "--json")
    assert done.code == 0, done.err
    answer = json.loads(done.out)
    assert (answer["question"], answer["radius"], answer["samples"]) == ("radius >= 0.2", 0.2, 100_000)
    assert all(each["radius"] == (0.2 if each["robust"] else 0) for each in answer["inputs"])
    assert 0 < answer["robust"] < 40
    assert answer["draws"] < 40 * 20_000
    assert [point["radius"] for point in answer["metrics"]["certified"]] == [0.2]
    assert answer["card_updated"] is False
    assert answer["robustness"] is None
    after = contents(run)
    assert {name: after[name] for name in before} == before
    shown = hauberk(*CERTIFY, "--radius", 0.2, "--limit", 20)
    assert "robust at 0.2" in shown.out
    assert "The card is as it was" in shown.out


@pytest.mark.parametrize(
    "words",
    [
        ("--within", 0.3, "--samples", 300),
        ("--norm", "linf"),
        ("--norm", "l1"),
        ("--certificate", "hgm"),
        ("--bound", "bernstein", "--alpha", 0.05),
        ("--seed", 5),
        ("--variant", "paper"),
    ],
)
def test_other_questions_leave_the_card_alone(hauberk: Run, run: Path, words: tuple[object, ...]) -> None:
    before = (run / "card.json").read_bytes()
    done = hauberk(*USUAL, *words, "--json")
    assert done.code == 0, done.err
    answer = json.loads(done.out)
    assert answer["robust"] > 0
    assert (run / "card.json").read_bytes() == before
    summary = json.loads((run / "certificates.json").read_text())
    assert summary["on_the_card"] is False
    assert len(rows_of(run / "certificates.csv")) == 40
    assert ("no feature map" in done.err) == ("paper" in words)
    if "paper" in words:
        assert all(each["claimed_radius"] == each["radius"] for each in answer["inputs"])
        assert "claimed" in hauberk(*USUAL, *words).out
    if "bernstein" in words:
        assert "votes" not in answer["inputs"][0]


def test_the_arithmetic_is_on_the_card(hauberk: Run, run: Path) -> None:
    done = hauberk(*USUAL, "--precision", "bfloat16", "--limit", 8, "--json")
    assert done.code == 0, done.err
    assert json.loads((run / "card.json").read_text())["robustness"]["proven"]["arithmetic"] == "bfloat16"
    assert "deploy that one" in (run / "report.html").read_text()


def test_pictures_and_archives_of_ones_own(hauberk: Run, run: Path, workplace: Path) -> None:
    before = contents(run)
    pixels, truth = pictures(12, 2)
    np.savez(workplace / "mine.npz", x=pixels)
    Image.fromarray(pixels[0]).save(workplace / "one.png")
    words = (*CERTIFY, "--samples", 150, "--input")
    many = hauberk(*words, "mine.npz", "--csv", "mine.csv", "--json")
    assert many.code == 0, many.err
    answer = json.loads(many.out)
    assert list(answer["inputs"][0]) == ["row", "label", "robust", "radius", "votes", "draws"]
    assert [each["row"] for each in answer["inputs"]] == list(range(12))
    assert answer["metrics"] is None
    assert len(rows_of(workplace / "mine.csv")) == 12
    sure = [each for each in answer["inputs"] if each["radius"] > 0.1]
    assert sum(each["label"] == truth[each["row"]] for each in sure) > len(sure) / 2
    one = hauberk(*words, "one.png", "--json")
    np.savez(workplace / "first.npz", x=pixels[:1])
    assert json.loads(one.out) == json.loads(hauberk(*words, "first.npz", "--json").out)
    shown = hauberk(*words, "one.png", "--radius", 0.05)
    assert shown.code == 0, shown.err
    assert "Inputs: 1 from the file" in shown.out
    assert "robust" in shown.out
    assert "The card" not in shown.out
    assert contents(run) == before


@pytest.mark.usefixtures("run")
def test_the_same_command_gives_the_same_output(hauberk: Run) -> None:
    assert hauberk(*USUAL, "--json").out == hauberk(*USUAL, "--json").out


def killed_at(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    certify = Smoothed.certify

    def dying(self: Smoothed, x: torch.Tensor, **settings: object) -> object:
        if settings.get("first") == first and len(x):
            raise KeyboardInterrupt
        return certify(self, x, **settings)

    monkeypatch.setattr(Smoothed, "certify", dying)


def partial_files(run: Path) -> list[Path]:
    return list(run.glob(".certificates-*"))


def test_an_interrupted_command_goes_on_to_the_same_bits(
    hauberk: Run, run: Path, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = shutil.copytree(run, workplace / "runs" / "whole")
    assert hauberk("certify", "whole", *USUAL[2:]).code == 0
    with monkeypatch.context() as patched:
        killed_at(24, patched)
        assert hauberk(*USUAL).code != 0
    assert len(partial_files(run)) == 1
    assert "certificates.csv" not in contents(run)
    # another question has no use for the finished blocks, and does not touch them
    other = hauberk(*USUAL, "--seed", 3)
    assert other.code == 0
    assert "Going on" not in other.err
    assert len(partial_files(run)) == 1
    done = hauberk(*USUAL)
    assert done.code == 0, done.err
    assert "Going on: 24 of 40 inputs" in done.err
    assert partial_files(run) == []
    assert contents(run) == contents(whole)


def test_a_network_that_has_changed_starts_from_the_beginning(
    hauberk: Run, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        killed_at(24, patched)
        assert hauberk(*USUAL).code != 0
    weights = read_tensors(run / "model.safetensors")
    next(iter(weights.values())).mul_(1.01)
    write_tensors(run / "model.safetensors", weights)
    assert "Going on" not in hauberk(*USUAL).err


# ---- wrong requests -------------------------------------------------------------------------------

WRONG = [
    ("no run", ("certify", "nowhere"), "there is no run"),
    ("two questions", (*USUAL, "--radius", 0.1, "--within", 0.1), "not for both"),
    ("norm", (*USUAL, "--norm", "l7"), "no norm 'l7': choose one of l1, l2, linf"),
    ("certificate", (*USUAL, "--certificate", "magic"), "no certificate 'magic'"),
    ("other noise", (*USUAL, "--certificate", "laplace"), "is for laplace noise"),
    ("variant", (*USUAL, "--variant", "loud"), "no variant 'loud'"),
    ("bound", (*USUAL, "--bound", "median"), "no bound 'median'"),
    ("bound within", (*USUAL, "--bound", "hoeffding", "--within", 0.1), "leave out --within"),
    ("alpha", (*USUAL, "--alpha", 2), "alpha must lie"),
    ("samples", (*CERTIFY, "--samples", 0), "at least one draw"),
    ("too few", (*CERTIFY, "--samples", 9), "cannot certify anything"),
    ("radius", (*USUAL, "--radius", -1), "positive radius"),
    ("radius too large", (*USUAL, "--radius", 0.7), "take --samples"),
    ("radius out of reach", (*USUAL, "--radius", 9), "no number of draws"),
    ("limit", (*USUAL, "--limit", 0), "--limit must be at least 1"),
    ("precision", (*USUAL, "--precision", "float8"), "float32 or bfloat16"),
    ("device", (*USUAL, "--device", "abacus"), "unknown device"),
    ("seed", (*USUAL, "--seed", -1), "seeds are whole numbers"),
    ("csv", (*USUAL, "--csv", "nowhere/file.csv"), "--csv takes a file in a folder that exists"),
    ("input", (*USUAL, "--input", "nowhere.npz"), "cannot open nowhere.npz"),
    ("input kind", (*USUAL, "--input", "x.gif"), "neither an .npz archive nor a picture"),
    ("input size", (*USUAL, "--input", "small.png"), "takes pictures of 6 x 6"),
    ("input shape", (*USUAL, "--input", "small.npz"), "takes pictures of 6 x 6"),
]


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize(("name", "words", "part"), WRONG, ids=[row[0] for row in WRONG])
def test_a_wrong_request_costs_one_sentence(
    hauberk: Run, workplace: Path, name: str, words: tuple[object, ...], part: str
) -> None:
    Image.fromarray(np.zeros((8, 9), np.uint8)).save(workplace / "small.png")
    np.savez(workplace / "small.npz", x=np.zeros((2, 8, 9), np.uint8))
    before = contents(workplace / "runs" / "first")
    done = hauberk(*words)
    assert done.code == 2
    assert part in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert done.out == ""
    assert contents(workplace / "runs" / "first") == before


@pytest.mark.usefixtures("run")
def test_a_fixed_number_that_is_too_small_for_the_radius_is_a_warning(hauberk: Run) -> None:
    done = hauberk(*USUAL, "--radius", 0.7, "--bound", "hoeffding")
    assert done.code == 0
    warned = [line for line in done.err.splitlines() if line.startswith("hauberk: ")]
    assert len(warned) == 1
    assert "150 draws at alpha 0.001 cannot certify radius 0.7" in warned[0]
    assert "draws or more" in warned[0]


def test_a_method_without_noise_has_nothing_to_certify(hauberk: Run, run: Path) -> None:
    config = json.loads((run / "config.json").read_text())
    config["settings"]["method"] = "dp-sgd"
    (run / "config.json").write_text(json.dumps(config))
    done = hauberk(*USUAL)
    assert done.code == 2
    assert "promises no robustness" in done.err


def test_help_has_an_example(hauberk: Run) -> None:
    told = hauberk("certify", "--help").out
    assert "Example: hauberk certify" in told
    for option in ("--norm", "--radius", "--within", "--input", "--variant", "--bound", "--csv"):
        assert option in told


# ---- several processes ----------------------------------------------------------------------------


def start_two(folder: Path, words: tuple[object, ...]) -> list[subprocess.Popen[str]]:
    """What torchrun does, with a hand on each process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    return [
        subprocess.Popen(
            [sys.executable, __file__, *map(str, words)],
            cwd=folder,
            env={**os.environ, **meeting, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]


def finished(processes: list[subprocess.Popen[str]]) -> list[tuple[int, str, str]]:
    try:
        outputs = [process.communicate(timeout=100) for process in processes]
        return [(process.returncode, *text) for process, text in zip(processes, outputs, strict=True)]
    finally:
        for process in processes:
            process.kill()


def test_two_processes_give_what_one_gives(hauberk: Run, run: Path, workplace: Path) -> None:
    words = (*USUAL, "--radius", 0.2, "--samples", 3000, "--json")
    two = finished(start_two(workplace, words))
    assert two[0][0] == two[1][0] == 0, two
    assert two[1][1] == two[1][2] == ""  # the leader alone speaks
    files = contents(run)
    alone = hauberk(*words)
    assert alone.out == two[0][1]
    assert contents(run) == files
    assert partial_files(run) == []


@pytest.mark.slow
def test_a_process_that_is_lost_ends_the_other_and_costs_no_finished_block(
    hauberk: Run, run: Path, workplace: Path
) -> None:
    words = (*USUAL, "--samples", 151)
    leader, other = start_two(workplace, ("--die-at", 24, *words))
    (code, _, told), (killed, _, _) = finished([leader, other])
    assert killed == -signal.SIGKILL
    assert code == 2
    assert told.splitlines()[-1] == (
        "hauberk: a process of this certification was lost: give the same command again, "
        "it goes on with the blocks that are finished"
    )
    done = hauberk(*words)
    assert "Going on: 16 of 40 inputs" in done.err
    assert done.code == 0
    files = contents(run)
    assert hauberk(*words).code == 0
    assert contents(run) == files


@pytest.mark.slow
def test_torchrun_shares_a_test_set_and_says_what_is_wrong_once(
    hauberk: Run, run: Path, workplace: Path
) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]

    def by_two(*words: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*torchrun, __file__, *map(str, words)],
            cwd=workplace,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )

    shared = by_two(*USUAL, "--json")
    assert shared.returncode == 0, shared.stderr
    files = contents(run)
    assert hauberk(*USUAL, "--json").out == shared.stdout
    assert contents(run) == files
    refused = by_two(*USUAL, "--norm", "l7")
    assert refused.returncode != 0
    assert refused.stderr.count("no norm 'l7'") == 1


if __name__ == "__main__":
    from hauberk.certify import voting

    torch.set_num_threads(1)
    voting.BLOCK = SMALL_BLOCK
    if "--die-at" in sys.argv:
        place = sys.argv.index("--die-at")
        at = int(sys.argv[place + 1])
        del sys.argv[place : place + 2]
        original = Smoothed.certify

        def dying(self: Smoothed, x: torch.Tensor, **settings: object) -> object:
            if settings.get("first") == at:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(self, x, **settings)

        Smoothed.certify = dying
    main()
