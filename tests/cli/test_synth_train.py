"""``hauberk synth train`` and ``sample`` as a user meets them."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from hauberk.synthesis import WARD, simulate_ward, validate, write_patients
from hauberk.training.journal import Journal

Hauberk = Callable[..., object]


def test_train_and_sample_by_the_first_defaults(hauberk: Hauberk, workplace: Path) -> None:
    done = hauberk("synth", "train", "--name", "first", "--json")
    assert done.code == 0, done.err
    card = json.loads(done.out)
    assert card["method"] == "marginals"
    assert card["privacy"]["unit"] == "one patient"
    assert 2.9 < card["privacy"]["proven"]["epsilon"] <= 3.0
    assert card["privacy"]["proven"]["delta"] == 1e-5
    folder = workplace / "runs" / "first"
    assert (folder / "report.html").is_file()
    made = hauberk("synth", "sample", "first", "--patients", 50, "--json")
    assert made.code == 0, made.err
    assert json.loads(made.out)["patients"] == 50
    assert len(validate(folder / "synthetic.csv", WARD)) == 50
    again = hauberk("synth", "sample", folder, "--patients", 50, "--out", "again.csv")
    assert again.code == 0, again.err
    assert (workplace / "again.csv").read_bytes() == (folder / "synthetic.csv").read_bytes()


def test_a_network_without_privacy_on_a_file_of_ones_own(hauberk: Hauberk, workplace: Path) -> None:
    write_patients(simulate_ward(50, seed=0), workplace / "mine.csv")
    WARD.write(workplace / "mine.toml")
    words = ("synth", "train", "--synthesizer", "vae", "--data", "mine.csv", "--schema", "mine.toml")
    done = hauberk(*words, "--size", "tiny", "--no-privacy", "--json")
    assert done.code == 0, done.err
    card = json.loads(done.out)
    assert (card["data"], card["records"]) == ("mine.csv", 50)
    assert card["privacy"]["proven"] is None
    assert card["privacy"]["reason"] == "trained without privacy noise"
    private = hauberk(*words, "--size", "tiny", "--name", "private")
    assert private.code == 2
    assert "--records" in private.err
    first = hauberk(*words, "--size", "tiny", "--name", "private", "--records", 64)
    assert first.code == 2
    assert "who is first is private" in first.err
    own = ("synth", "train", "--data", "mine.csv", "--schema", "mine.toml", "--name", "private")
    nobody = hauberk(*own, "--records", 0)
    assert nobody.code == 2
    assert not (workplace / "runs" / "private").exists()
    declared = hauberk(*own, "--records", 64, "--json")
    assert declared.code == 0, declared.err
    assert json.loads(declared.out)["records"] == 64


def test_an_earlier_runs_patients_do_not_stand_beside_a_new_card(hauberk: Hauberk, workplace: Path) -> None:
    words = ("synth", "train", "--data", "ward", "--name", "first")
    assert hauberk(*words, "--no-privacy").code == 0
    assert hauberk("synth", "sample", "first", "--patients", 20).code == 0
    folder = workplace / "runs" / "first"
    (folder / "evaluation.json").write_text("{}")
    assert (folder / "synthetic.csv").is_file()
    assert hauberk(*words, "--force").code == 0
    assert not (folder / "synthetic.csv").exists()
    assert not (folder / "evaluation.json").exists()
    told = hauberk("verify", "first")
    assert told.code == 2
    assert "holds a synthesizer" in told.err


def test_a_noise_seed_repeats_a_run_and_proves_nothing(hauberk: Hauberk, workplace: Path) -> None:
    words = ("synth", "train", "--synthesizer", "vae", "--size", "tiny", "--noise-seed", 3, "--json")
    for name in ("one", "two"):
        done = hauberk(*words, "--name", name)
        assert done.code == 0, done.err
        privacy = json.loads(done.out)["privacy"]
        assert privacy["claimed"] is not None
        assert privacy["proven"] is None
        assert privacy["reason"] == "noise reproducible from a recorded seed"
    models = [(workplace / "runs" / name / "model.safetensors").read_bytes() for name in ("one", "two")]
    assert models[0] == models[1]


def test_an_interrupted_run_is_resumed(
    hauberk: Hauberk, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("synth", "train", "--synthesizer", "vae", "--size", "tiny", "--noise-seed", 3)
    assert hauberk(*words, "--name", "whole").code == 0
    whole_step = Journal.__call__

    def killed_on_the_way(journal: Journal, done: object) -> None:
        if done.step == 6:
            raise KeyboardInterrupt
        whole_step(journal, done)

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "__call__", killed_on_the_way)
        assert hauberk(*words, "--name", "broken").code != 0
    sampled = hauberk("synth", "sample", "broken")
    assert sampled.code == 2
    assert "not finished" in sampled.err
    resumed = hauberk("synth", "train", "--resume", "runs/broken", "--json")
    assert resumed.code == 0, resumed.err
    models = [(workplace / "runs" / name / "model.safetensors").read_bytes() for name in ("whole", "broken")]
    assert models[0] == models[1]
    finished = hauberk("synth", "train", "--resume", "runs/broken")
    assert finished.code == 2
    assert "has finished" in finished.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("train", "--synthesizer", "gpt"), "there is no synthesizer 'gpt'"),
        (("train", "--data", "nowhere"), "there are no patients 'nowhere'"),
        (("train", "--data", "ward:night"), "no part 'night'"),
        (("train", "--data", "ward", "--records", "9"), "--records is for files"),
        (("train", "--data", "mine.csv"), "add --schema"),
        (("train", "--no-privacy", "--epsilon", "3"), "no epsilon"),
        (("train", "--epsilon", "-1"), "epsilon"),
        (("train", "--delta", "0"), "delta"),
        (("train", "--quick", "--size", "tiny"), "--quick means"),
        (("train", "--name", "../up"), "plain folder name"),
        (("train", "--data", "physionet2012"), "was not found"),
        (("train", "--resume", "nowhere"), "no run folder"),
        (("train", "--resume", "nowhere", "--epsilon", "2"), "leave out --epsilon"),
        (("sample", "nowhere"), "there is no run nowhere"),
    ],
)
def test_wrong_requests_are_refused_in_one_sentence(
    hauberk: Hauberk, workplace: Path, words: tuple[str, ...], told: str
) -> None:
    (workplace / "mine.csv").write_text("patient\n1\n")
    done = hauberk("synth", *words)
    assert done.code == 2
    assert told in done.err
    assert "Traceback" not in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert not (workplace / "runs").exists()


def test_nothing_is_overwritten_unasked(hauberk: Hauberk, workplace: Path) -> None:
    assert hauberk("synth", "train", "--name", "mine").code == 0
    again = hauberk("synth", "train", "--name", "mine")
    assert again.code == 2
    assert "exists already" in again.err
    assert hauberk("synth", "train", "--name", "mine", "--force").code == 0
    (workplace / "kept.csv").write_text("mine")
    sampled = hauberk("synth", "sample", "mine", "--out", "kept.csv", "--patients", 3)
    assert sampled.code == 2
    assert (workplace / "kept.csv").read_text() == "mine"
    assert hauberk("synth", "sample", "mine", "--out", "made.txt", "--patients", 3).code == 2
    assert hauberk("synth", "sample", "mine", "--out", "made.csv", "--patients", 0).code == 2
    assert hauberk("synth", "sample", "mine", "--out", "kept.csv", "--force", "--patients", 3).code == 0
