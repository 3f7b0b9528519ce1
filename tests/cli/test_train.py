"""`hauberk train` and its relatives, at tiny size."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import hauberk as hb
from hauberk.methods.settings import TrainSettings
from hauberk.methods.training import load_split

Run = Callable[..., object]
TINY = ("train", "--size", "tiny", "--name", "first")
CARD_KEYS = {
    "method",
    "variant",
    "data",
    "records",
    "privacy",
    "robustness",
    "utility",
    "seed",
    "versions",
    "command",
    "notes",
}


def test_a_tiny_run_leaves_a_whole_folder_and_a_whole_card(hauberk: Run, workplace: Path) -> None:
    done = hauberk(*TINY, "--json")
    assert done.code == 0, done.err
    folder = workplace / "runs" / "first"
    assert {path.name for path in folder.iterdir()} == {
        "config.json",
        "model.safetensors",
        "events.json",
        "metrics.jsonl",
        "card.json",
        "report.html",
        "strip.npz",
        "manifest.json",
        "private",
    }
    assert {path.name for path in (folder / "private").iterdir()} == {"diagnostics.jsonl", "manifest.json"}
    card = json.loads((folder / "card.json").read_text())
    assert json.loads(done.out) == card
    assert set(card) == CARD_KEYS
    assert card["privacy"]["proven"]["epsilon"] <= 2.99
    assert card["privacy"]["proven"]["delta"] == 1e-5
    assert "dp-accounting" in card["privacy"]["proven"]["accountant"]
    assert card["privacy"]["observed"] is None
    assert card["privacy"]["reason"]
    assert card["records"] == 256
    assert card["robustness"]["proven"]["tested"] == 24
    assert "test data are not protected" in " ".join(card["notes"]).lower()
    assert "tuning" in " ".join(card["notes"]).lower()
    assert "first" in (folder / "report.html").read_text()
    # the proven epsilon can be computed again from the events alone
    again = hauberk("account", "--run", "first", "--json")
    assert json.loads(again.out)["epsilon"] == pytest.approx(card["privacy"]["proven"]["epsilon"])
    # and the whole run can be loaded again
    run = hb.load(folder)
    label = run.classifier.certify(torch.rand(1, 1, 28, 28), samples=20, selection_samples=5).labels
    assert label.shape == (1,)


def test_a_seeded_run_gives_the_same_weights_and_the_same_card_twice(hauberk: Run, workplace: Path) -> None:
    words = (*TINY, "--seed", 3, "--noise-seed", 4, "--force", "--json")
    first = hauberk(*words)
    weights = (workplace / "runs/first/model.safetensors").read_bytes()
    report = (workplace / "runs/first/report.html").read_bytes()
    second = hauberk(*words)
    assert (first.code, second.code) == (0, 0)
    assert first.out == second.out
    assert (workplace / "runs/first/model.safetensors").read_bytes() == weights
    assert (workplace / "runs/first/report.html").read_bytes() == report
    card = json.loads(first.out)
    assert card["privacy"]["proven"] is None
    assert card["privacy"]["reason"] == "noise reproducible from a recorded seed"
    assert card["privacy"]["claimed"]["epsilon"] <= 2.99
    refused = hauberk("account", "--run", "first")
    assert refused.code == 2
    assert "recorded seed" in refused.err
    other = hauberk(*words[:-4], "--noise-seed", 5, "--force", "--json")
    assert other.code == 0
    assert (workplace / "runs/first/model.safetensors").read_bytes() != weights


def test_without_privacy_the_card_says_so(hauberk: Run) -> None:
    done = hauberk(*TINY, "--no-privacy", "--json")
    assert done.code == 0, done.err
    privacy = json.loads(done.out)["privacy"]
    assert privacy["claimed"] is None
    assert privacy["proven"] is None
    assert privacy["reason"] == "trained without privacy noise"
    assert hauberk("account", "--run", "first").code == 2


def test_held_out_training_records_take_the_place_of_the_test_records(hauberk: Run, workplace: Path) -> None:
    """In training and in whatever is asked of the run afterwards; the card says so."""
    done = hauberk(*TINY, "--validation", "40", "--json")
    assert done.code == 0, done.err
    notes = " ".join(json.loads(done.out)["notes"])
    assert "40 training records that were held out" in notes
    assert "the other 19,960" in notes
    settings = json.loads((workplace / "runs" / "first" / "config.json").read_text())["settings"]
    assert settings["validation"] == 40
    test = load_split(TrainSettings(**settings)).test
    assert len(test) == 40
    assert torch.equal(test.x, hb.load_data("digits").train.x[-40:])
    refused = hauberk("train", "--size", "tiny", "--name", "second", "--validation", "20000")
    assert refused.code == 2
    assert "hold out fewer" in refused.err
    assert not (workplace / "runs" / "second").exists()


def test_own_data_of_images_and_tables(hauberk: Run, workplace: Path) -> None:
    generator = np.random.default_rng(0)
    y = generator.integers(0, 3, 120)
    table = np.clip(generator.random((120, 5)) * 0.4 + 0.3 * y[:, None], 0, 1).astype(np.float32)
    np.savez(workplace / "mine.npz", x=table, y=y)
    missing = hauberk("train", "--data", "mine.npz", "--size", "tiny")
    assert missing.code == 2
    assert "--records" in missing.err
    done = hauberk(
        "train",
        "--data",
        "mine.npz",
        "--records",
        100,
        "--classes",
        3,
        "--size",
        "tiny",
        "--delta",
        "1e-3",
        "--json",
    )
    assert done.code == 0, done.err
    card = json.loads(done.out)
    assert card["records"] == 100
    assert card["data"] == "mine"
    assert (workplace / "runs" / "private-smoothing-mine" / "report.html").exists()
    images = (generator.random((120, 16, 16)) * 255).astype(np.uint8)
    np.savez(workplace / "pictures.npz", x=images, y=y, records=100, classes=3)
    done = hauberk("train", "--data", "pictures.npz", "--size", "tiny", "--json")
    assert done.code == 0, done.err


def test_settings_come_from_the_command_line_over_toml_over_the_preset(hauberk: Run, workplace: Path) -> None:
    (workplace / "settings.toml").write_text(
        'size = "tiny"\nsigma = 0.5\nnoise-multiplier = 2.0\nclip = 0.3\n'
    )
    done = hauberk("train", "--config", "settings.toml", "--sigma", 0.4, "--name", "mixed", "--json")
    assert done.code == 0, done.err
    settings = json.loads((workplace / "runs/mixed/config.json").read_text())["settings"]
    assert settings["sigma"] == 0.4
    assert settings["clip"] == 0.3
    assert settings["noise_multiplier"] == 2.0
    assert settings["epsilon"] is None
    assert settings["samples"] == 200


def test_an_interrupted_run_is_resumed_by_its_folder(
    hauberk: Run, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hauberk.training.loop import PrivateTrainer

    words = (*TINY, "--epochs", 3, "--noise-seed", 1)
    whole = hauberk("train", "--size", "tiny", "--name", "whole", "--epochs", 3, "--noise-seed", 1)
    assert whole.code == 0, whole.err
    advance = PrivateTrainer.advance

    def dying(self: PrivateTrainer) -> object:
        if self.step == 13:
            raise KeyboardInterrupt
        return advance(self)

    monkeypatch.setattr(PrivateTrainer, "advance", dying)
    assert hauberk(*words).code != 0
    monkeypatch.setattr(PrivateTrainer, "advance", advance)
    assert hauberk("report", "first").code == 2
    refused = hauberk("train", "--resume", "runs/first", "--sigma", "0.5")
    assert refused.code == 2
    assert "--sigma" in refused.err
    done = hauberk("train", "--resume", "runs/first")
    assert done.code == 0, done.err
    names = ["runs/first/model.safetensors", "runs/whole/model.safetensors"]
    first, second = ((workplace / name).read_bytes() for name in names)
    assert first == second
    again = hauberk("train", "--resume", "runs/first")
    assert again.code == 2
    assert "finished" in again.err


def test_a_run_interrupted_before_its_card_is_only_audited(hauberk: Run, workplace: Path) -> None:
    assert hauberk(*TINY).code == 0
    folder = workplace / "runs/first"
    weights, events = (folder / "model.safetensors").read_bytes(), (folder / "events.json").read_bytes()
    (folder / "card.json").unlink()
    done = hauberk("train", "--resume", folder)
    assert done.code == 0, done.err
    assert (folder / "card.json").exists()
    assert (folder / "model.safetensors").read_bytes() == weights
    assert (folder / "events.json").read_bytes() == events


def test_certify_and_attack_update_card_and_report(hauberk: Run, workplace: Path) -> None:
    assert hauberk(*TINY).code == 0
    before = (workplace / "runs/first/report.html").read_text()
    done = hauberk("certify", "first", "--samples", 300, "--limit", 10, "--alpha", 0.01, "--json")
    assert done.code == 0, done.err
    robustness = json.loads(done.out)["robustness"]
    assert (robustness["proven"]["samples"], robustness["proven"]["tested"]) == (300, 10)
    assert robustness["proven"]["alpha"] == 0.01
    assert robustness["observed"] is None
    assert "attack" in robustness["reason"]
    assert (workplace / "runs/first/report.html").read_text() != before
    done = hauberk("attack", "runs/first", "--steps", 3, "--draws", 2, "--limit", 2, "--json")
    assert done.code == 0, done.err
    robustness = json.loads(done.out)["robustness"]
    assert robustness["proven"]["samples"] == 300
    assert robustness["observed"]["tested"] <= 2
    assert robustness["reason"] is None
    (workplace / "runs/first/report.html").unlink()
    assert hauberk("report", "first").code == 0
    assert (workplace / "runs/first/report.html").exists()


WRONG = [
    ("unknown data", ("--data", "minst"), "no data set 'minst'"),
    ("data not at hand", ("--data", "mnist"), "mnist"),
    ("unknown method", ("--method", "dp-magic"), "no method 'dp-magic'"),
    ("no paper variant", ("--variant", "paper"), "no paper variant"),
    ("unknown model", ("--model", "gpt"), "small-tanh-cnn"),
    ("negative epsilon", ("--epsilon", "-1"), "epsilon must be positive"),
    ("zero epsilon", ("--epsilon", "0"), "epsilon must be positive"),
    ("nan epsilon", ("--epsilon", "nan"), "epsilon must be positive"),
    ("both", ("--epsilon", "1", "--noise-multiplier", "1"), "not both"),
    ("no noise", ("--noise-multiplier", "0"), "--no-privacy"),
    ("delta of one", ("--delta", "1"), "delta"),
    ("no sigma", ("--sigma", "0"), "sigma"),
    ("no views", ("--views", "0"), "views"),
    ("huge batch", ("--batch", "100000"), "batch"),
    ("no clip", ("--clip", "0"), "clip"),
    ("no lr", ("--lr", "0"), "lr"),
    ("no epochs", ("--epochs", "0"), "epochs"),
    ("unknown device", ("--device", "abacus"), "device"),
    ("a path as a name", ("--name", "../elsewhere"), "--name"),
    ("missing config", ("--config", "nowhere.toml"), "nowhere.toml"),
    ("huge lr", ("--lr", "inf"), "lr"),
    ("huge seed", ("--seed", "99999999999999999999999"), "seed"),
    ("long name", ("--name", "n" * 300), "--name"),
    ("two sizes", ("--quick", "--size", "tiny"), "--quick"),
    ("quick against size", ("--size", "huge"), "huge"),
    ("nothing to resume", ("--resume", "runs/nowhere"), "no run folder"),
]


@pytest.mark.parametrize(("name", "words", "part"), WRONG, ids=[row[0] for row in WRONG])
def test_a_wrong_request_costs_one_sentence_and_writes_nothing(
    hauberk: Run, workplace: Path, name: str, words: tuple[str, ...], part: str
) -> None:
    done = hauberk("train", *([] if "--size" in words or "--resume" in words else ["--size", "tiny"]), *words)
    assert done.code == 2
    assert part in done.err
    assert "Traceback" not in done.err
    assert list(workplace.iterdir()) == []


WRONG_TOML = [
    ("unknown key", "sigmas = 1", "sigmas"),
    ("wrong type", 'method = ["x"]', "method"),
    ("number for a path", "data-dir = 5", "data_dir"),
    ("no attack steps", "attack-steps = 0", "step"),
    ("alpha", "alpha = 2.0", "alpha"),
    ("no test inputs", "tested = 0", "test input"),
    ("not toml", "sigma : 1", "TOML"),
]


@pytest.mark.parametrize(("name", "text", "part"), WRONG_TOML, ids=[row[0] for row in WRONG_TOML])
def test_a_wrong_settings_file_costs_one_sentence_and_no_training(
    hauberk: Run, workplace: Path, name: str, text: str, part: str
) -> None:
    (workplace / "s.toml").write_text(text)
    done = hauberk("train", "--size", "tiny", "--config", "s.toml")
    assert done.code == 2
    assert part in done.err
    assert [path.name for path in workplace.iterdir()] == ["s.toml"]


DAMAGED = [
    (
        "events",
        "events.json",
        '{"neighbours": "add or remove one record", "events": []}',
        "account --run first",
    ),
    ("kind", "events.json", '{"events": [{"kind": []}]}', "account --run first"),
    ("config", "config.json", "{}", "certify first"),
    ("config list", "config.json", "[]", "certify first"),
    ("card", "card.json", '{"method": 5}', "report first"),
    ("metrics", "metrics.jsonl", "\x00\x01 nonsense", "report first"),
    ("strip", "strip.npz", "PK nonsense", "report first"),
    ("weights", "model.safetensors", "nonsense", "certify first"),
]


def test_damaged_run_folders_cost_one_sentence(hauberk: Run, workplace: Path) -> None:
    assert hauberk(*TINY).code == 0
    for _name, file, text, command in DAMAGED:
        path = workplace / "runs/first" / file
        whole = path.read_bytes()
        path.write_text(text)
        done = hauberk(*command.split())
        assert done.code == 2, (file, text)
        assert done.err.strip().splitlines()[-1].startswith("hauberk: "), done.err
        assert "Traceback" not in done.err
        path.write_bytes(whole)


GOOD = {"x": np.zeros((20, 4), np.float32), "y": np.arange(20) % 2, "records": 20, "classes": 2}
BAD_DATA = [
    ("nan", {"x": np.full((20, 4), np.nan, np.float32)}, "NaN"),
    ("infinite", {"x": np.full((20, 4), np.inf, np.float32)}, "inf"),
    ("outside", {"x": np.full((20, 4), 7.0, np.float32)}, "[0, 1]"),
    ("label out of range", {"y": np.full(20, 2)}, "label"),
    ("negative label", {"y": np.full(20, -1)}, "label"),
    ("mismatched", {"y": np.zeros(19, np.int64)}, "19"),
    ("empty", {"x": np.zeros((0, 4), np.float32), "y": np.zeros(0, np.int64)}, "empty"),
]


@pytest.mark.parametrize(("name", "changes", "part"), BAD_DATA, ids=[row[0] for row in BAD_DATA])
def test_bad_data_costs_one_sentence_and_writes_nothing(
    hauberk: Run, workplace: Path, name: str, changes: dict[str, np.ndarray], part: str
) -> None:
    np.savez(workplace / "mine.npz", **{**GOOD, **changes})
    done = hauberk("train", "--data", "mine.npz", "--size", "tiny")
    assert done.code == 2
    assert part in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert [path.name for path in workplace.iterdir()] == ["mine.npz"]


def test_an_unreadable_file_costs_one_sentence(hauberk: Run, workplace: Path) -> None:
    (workplace / "mine.npz").write_bytes(b"PK\x03\x04 nonsense")
    done = hauberk("train", "--data", "mine.npz", "--records", 10, "--classes", 2)
    assert done.code == 2
    assert len(done.err.strip().splitlines()) == 1
    assert not (workplace / "runs").exists()


def test_an_existing_run_is_kept(hauberk: Run, workplace: Path) -> None:
    assert hauberk(*TINY).code == 0
    before = (workplace / "runs/first/card.json").read_bytes()
    done = hauberk(*TINY)
    assert done.code == 2
    assert "--force" in done.err
    assert (workplace / "runs/first/card.json").read_bytes() == before
    # a wrong request with --force does not cost the old run either
    assert hauberk(*TINY, "--force", "--epsilon", "-3").code == 2
    assert (workplace / "runs/first/card.json").read_bytes() == before
