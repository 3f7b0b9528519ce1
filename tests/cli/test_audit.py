"""``hauberk audit``: what it finds, what it writes, what it keeps, and what it refuses."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hauberk.accounting.card import PrivacyObservation, RobustnessObservation
from hauberk.audit.run_audit import READS_RECORDS
from hauberk.audit.training_audit import PrivacyAudit
from hauberk.methods.training import prepare, train
from hauberk.methods.verification import verify_run, write_manifest
from hauberk.report import write_report
from hauberk.training import RunFolder

Command = Callable[..., Any]
CPU = ("--device", "cpu")
SMALL = ("--quick", *CPU)


def stripes(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Which of three stripes of the picture is bright, more or less."""
    generator = np.random.default_rng(seed)
    y = generator.integers(0, 3, count)
    x = generator.integers(0, 120, (count, 6, 6))
    for row, label in enumerate(y):
        x[row, 2 * label : 2 * label + 2] += generator.integers(60, 130)
    return x.astype(np.uint8), y


def made(folder: Path, **options: Any) -> Path:
    (x, y), (x_test, y_test) = stripes(256, 0), stripes(64, 1)
    np.savez(folder / "stripes.npz", x=x, y=y, x_test=x_test, y_test=y_test, records=256, classes=3)
    prepared = prepare(
        root=folder,
        name="first",
        force=False,
        config={"attacked": 2, "attack_steps": 1},
        options={
            "data": str(folder / "stripes.npz"),
            "size": "tiny",
            "model": "logistic",
            "device": "cpu",
            "epochs": 4.0,
            "batch": 64,
            "lr": 1.0,
            "clip": 1.0,
            "noise_multiplier": 0.6,
            "delta": 1e-3,
            **options,
        },
    )
    _, card = train(prepared, command="hauberk train")
    write_report(card, prepared.folder.report)
    write_manifest(prepared.folder.path)
    return prepared.folder.path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    def folder(name: str) -> Path:
        return tmp_path_factory.mktemp(name)

    return {
        "smoothed": made(folder("smoothed"), method="private-smoothing"),
        "network": made(folder("network"), method="dp-sgd"),
    }


@pytest.fixture
def run(trained: dict[str, Path], workplace: Path) -> Path:
    return shutil.copytree(trained["smoothed"], workplace / "runs" / "first")


@pytest.fixture
def network(trained: dict[str, Path], workplace: Path) -> Path:
    return shutil.copytree(trained["network"], workplace / "runs" / "plain")


def test_both_audits_by_default(hauberk: Command, run: Path) -> None:
    before = json.loads((run / "card.json").read_text())
    done = hauberk("audit", "first", "--canaries", 40, "--certificates", 5, *SMALL, "--json")
    assert done.code == 0, done.err
    answer = json.loads(done.out)
    card = json.loads((run / "card.json").read_text())
    assert answer["card"] == card
    assert answer["alpha"] == 0.01
    assert answer["alpha_of_each_audit"] == 0.005
    observed = card["privacy"]["observed"]
    assert observed["attack"] == "white-box, one run, gradients along axes"
    assert (observed["canaries"], observed["confidence"]) == (40, 0.995)
    assert 0 <= observed["epsilon_lower"] <= card["privacy"]["proven"]["epsilon"]
    assert answer["observed"] == observed
    assert card["privacy"]["reason"] is None
    breaks = card["robustness"]["observed"]
    assert breaks["attack"] == "l2 PGD, 20 steps, expectation over 16 draws"
    assert (breaks["tested"], breaks["broken"]) == (5, 0)
    assert card["robustness"]["confidence"] == 0.995
    assert answer["robustness"]["refuted"] is False
    assert (answer["published"], answer["membership"], answer["refuted"]) == (None, None, [])
    for same in ("method", "records", "seed", "command"):
        assert card[same] == before[same]
    assert card["privacy"]["proven"] == before["privacy"]["proven"]
    assert card["robustness"]["proven"] == before["robustness"]["proven"]
    assert READS_RECORDS in card["notes"]
    assert verify_run(run).passed
    report = (run / "report.html").read_text()
    assert re.search(r"confidence 99\.5\s%", report)
    assert "40 canaries" in report


def test_a_stronger_earlier_result_keeps_its_place(hauberk: Command, run: Path) -> None:
    folder = RunFolder.open(run)
    strong = PrivacyObservation(epsilon_lower=5.5, confidence=0.99, attack="an earlier one", canaries=9)
    card = folder.read_card()
    folder.write_card(replace(card, privacy=replace(card.privacy, observed=strong)))
    words = ("audit", "first", "--privacy", "--canaries", 20, *SMALL)
    assert hauberk(*words).code == 0
    assert folder.read_card().privacy.observed == strong
    assert sum("Privacy audit (white-box" in note for note in folder.read_card().notes) == 1
    weak = replace(strong, epsilon_lower=0.0)
    folder.write_card(replace(card, privacy=replace(card.privacy, observed=weak)))
    assert hauberk(*words).code == 0
    kept = folder.read_card().privacy.observed
    assert kept is not None
    assert kept.canaries == 20


def test_a_refuted_proof_is_exit_code_one(
    hauberk: Command, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def caught(*_: object, **settings: Any) -> PrivacyAudit:
        return PrivacyAudit(
            epsilon_lower=33.33,
            delta=1e-3,
            confidence=1 - settings["alpha"],
            attack="a made up attack",
            canaries=settings["canaries"].count,
            runs=1,
            guesses=10,
            correct=10,
            score="none",
            rule="none",
            estimate=None,
        )

    monkeypatch.setattr("hauberk.audit.run_audit.audit_training", caught)
    done = hauberk("audit", "first", "--privacy", *CPU)
    assert done.code == 1
    proven = RunFolder.open(run).read_card().privacy.proven
    assert proven is not None
    assert f"Refuted: epsilon {proven.epsilon:.4g} is proven, and 33.33 was observed." in done.err
    assert "contradicted by the audit" in done.out
    card = RunFolder.open(run).read_card()
    assert card.privacy.observed is not None
    # 36 inputs, three classes: no more canaries than there are weights
    assert (card.privacy.observed.canaries, card.privacy.observed.confidence) == (111, 0.99)


def test_claimed_radii_that_broke_are_told(hauberk: Command, run: Path) -> None:
    folder = RunFolder.open(run)
    card = folder.read_card()
    broken = RobustnessObservation(attack="one", fraction_of_certified=0.99, tested=30, broken=29)
    columns = replace(card.robustness, observed_of_claimed=broken, confidence=0.995)
    folder.write_card(replace(card, robustness=columns))
    assert folder.read_card().robustness == columns
    assert hauberk("report", "first").code == 0
    report = (run / "report.html").read_text()
    assert "29 of 30 attacked inputs were broken, which refutes the claim" in report
    assert "refuted by the attack" in report
    # certified anew, nothing is known of attacks any more
    assert hauberk("certify", "first", *CPU).code == 0
    assert folder.read_card().robustness.observed_of_claimed is None


def test_a_network_without_noise_is_audited_for_privacy_alone(hauberk: Command, network: Path) -> None:
    done = hauberk("audit", "plain", "--canaries", 30, "--kind", "record", *SMALL, "--json")
    assert done.code == 0, done.err
    answer = json.loads(done.out)
    assert answer["robustness"] is None
    assert answer["privacy"]["attack"] == "white-box, one run, mislabelled records"
    assert answer["alpha_of_each_audit"] == 0.01
    assert verify_run(network).passed
    refused = hauberk("audit", "plain", "--robustness", *CPU)
    assert refused.code == 2
    assert "promises no robustness" in refused.err


def test_membership_of_a_classifier(hauberk: Command, network: Path) -> None:
    words = ("audit", "plain", "--membership", "--shadows", 3, "--members", 30, *CPU)
    done = hauberk(*words, "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)["membership"]
    assert [each["members"] for each in found["released"]] == [30, 30, 30]
    assert found["released"][0]["reason"].startswith("who is a member was fixed")
    assert 0 <= found["by_coins"]["epsilon_lower"] < 10
    card = RunFolder.open(network).read_card()
    assert card.privacy.observed is not None
    assert card.privacy.observed.canaries == 60
    assert any(note.startswith("Membership inference (") for note in card.notes)
    shown = hauberk("audit", "plain", "--membership", "--shadows", 0, "--members", 30, *CPU)
    assert shown.code == 0, shown.err
    assert "loss threshold: " in shown.out
    assert "No bound on epsilon: who is a member was fixed" in shown.out


@pytest.mark.slow
def test_many_runs_with_one_canary(hauberk: Command, network: Path) -> None:
    done = hauberk("audit", "plain", "--privacy", "--runs", 20, *CPU, "--json")
    assert done.code == 0, done.err
    answer = json.loads(done.out)["privacy"]
    assert (answer["runs"], answer["canaries"]) == (40, 1)
    assert network.is_dir()


def test_membership_of_a_synthesizer(hauberk: Command, workplace: Path) -> None:
    pytest.importorskip("sklearn")
    assert hauberk("synth", "train", "--data", "ward", "--size", "tiny", "--name", "s").code == 0
    done = hauberk("audit", "s", "--shadows", 3, "--members", 30, "--json")
    assert done.code == 0, done.err
    answer = json.loads(done.out)
    assert answer["membership"]["released"][0]["attack"] == "distance threshold"
    assert answer["observed"]["canaries"] == 60
    card = RunFolder.open(workplace / "runs" / "s").read_card()
    assert answer["card"] == json.loads(json.dumps(card.to_json()))
    assert "LiRA" in (workplace / "runs" / "s" / "report.html").read_text()
    for wrong, message in (
        (("--privacy",), "holds a synthesizer"),
        (("--canaries", 5), "not for synthesizers"),
        (("--held-out", "ward:train"), "no patients beside"),
    ):
        refused = hauberk("audit", "s", *wrong)
        assert refused.code == 2
        assert message in refused.err


@pytest.mark.usefixtures("run")
def test_wrong_requests_cost_one_sentence(hauberk: Command) -> None:
    for words, message in (
        (("--privacy", "--alpha", 0), "alpha"),
        (("--privacy", "--canaries", 0), "--canaries must be at least 1"),
        (("--privacy", "--canaries", 9, "--runs", 20), "not both"),
        (("--privacy", "--canaries", 100_000), "need a coordinate each"),
        (("--robustness", "--canaries", 5), "is for --privacy"),
        (("--privacy", "--shadows", 3), "is for --membership"),
        (("--membership", "--shadows", 1), "tells nothing"),
        (("--privacy", "--held-out", "x.csv"), "for synthesizers"),
    ):
        done = hauberk("audit", "first", *words, *CPU)
        assert done.code == 2, words
        assert message in done.err
        assert "Traceback" not in done.err
    assert hauberk("audit", "nobody").code == 2
