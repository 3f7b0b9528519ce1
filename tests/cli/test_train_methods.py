"""`hauberk train --method ...` with noise layers and denoisers, and what a user may ask wrongly."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import hauberk as hb
from hauberk import models
from hauberk.accounting import GaussianEvent
from hauberk.files import read_tensors, write_tensors
from hauberk.methods import METHODS
from hauberk.training import RunFolder
from hauberk.training.loop import PrivateTrainer

Run = Callable[..., object]
ROWS = [
    (method, variant)
    for method in ("pixeldp", "hgm-pixeldp", "secure-sgd", "secure-sgd-agm", "transdenoiser")
    for variant in ("sound", "paper")
]
PICTURES = ("--data", "pictures.npz", "--config", "small.toml")
DELTA = ("--delta", "1e-3")
PRIVATE = (*PICTURES, *DELTA)
SMALL = "tested = 8\nsamples = 50\nattacked = 1\nattack-steps = 1\n"


@pytest.fixture
def pictures(workplace: Path) -> Path:
    generator = np.random.default_rng(0)
    y = generator.integers(0, 2, 160)
    x = 0.3 * generator.random((160, 14, 14), dtype=np.float32)
    x[y == 0, :7] += 0.6
    x[y == 1, 7:] += 0.6
    np.savez(workplace / "pictures.npz", x=x, y=y, records=128, classes=2)
    (workplace / "small.toml").write_text(SMALL)
    return workplace / "pictures.npz"


@pytest.mark.parametrize(("method", "variant"), ROWS, ids=[f"{one} {two}" for one, two in ROWS])
def test_every_method_ends_in_a_card_and_a_report_and_comes_back(
    hauberk: Run, workplace: Path, pictures: Path, method: str, variant: str
) -> None:
    words = ["train", "--method", method, "--variant", variant, "--size", "tiny", "--name", "one", *PICTURES]
    words += ["--public-data", "first:20"] if method == "transdenoiser" else []
    words += ["--public-epochs", "2"] if method == "transdenoiser" else []
    words += DELTA if METHODS[method].private else ()
    done = hauberk(*words, "--json")
    assert done.code == 0, done.err
    folder = workplace / "runs/one"
    card = json.loads((folder / "card.json").read_text())
    assert json.loads(done.out) == card
    assert (card["method"], card["variant"]) == (method, variant)
    assert (folder / "report.html").stat().st_size > 1000
    assert (folder / "noise.safetensors").exists() == (method != "transdenoiser")
    assert {path.name for path in (folder / "private").iterdir()} == {"diagnostics.jsonl", "manifest.json"}
    private = card["privacy"]["proven"] is not None
    assert private == ((method, variant) in PROVEN)
    assert private or card["privacy"]["reason"]
    if private:
        assert card["privacy"]["proven"]["epsilon"] <= 2.99
        again = hauberk("account", "--run", "one", "--delta", "1e-3", "--json")
        assert json.loads(again.out)["epsilon"] == pytest.approx(card["privacy"]["proven"]["epsilon"])
    else:
        assert hauberk("account", "--run", "one").code == 2
    run = hb.load(folder)
    assert run.unprovable == (None if private else card["privacy"]["reason"])
    answered = run.classifier.certify(torch.rand(3, 1, 14, 14), samples=50, selection_samples=20)
    assert answered.labels.shape == (3,)


PROVEN = {
    ("secure-sgd", "sound"),
    ("secure-sgd-agm", "sound"),
    ("secure-sgd-agm", "paper"),
    ("transdenoiser", "sound"),
}


def test_digits_have_public_records_and_the_card_says_so(hauberk: Run, workplace: Path) -> None:
    (workplace / "small.toml").write_text(SMALL)
    words = ("train", "--method", "secure-sgd", "--size", "tiny", "--config", "small.toml")
    done = hauberk(*words, "--name", "one", "--json")
    assert done.code == 0, done.err
    card = json.loads(done.out)
    assert any("declared public" in note and "first 4,000" in note for note in card["notes"])
    assert RunFolder(workplace / "runs/one").read_events().steps == 8  # nothing beforehand
    settings = json.loads((workplace / "runs/one/config.json").read_text())["settings"]
    assert settings["public_data"] == "first:4000"
    # the run is certified and attacked again through its own noise layer
    done = hauberk("certify", "one", "--samples", 100, "--limit", 6, "--json")
    assert done.code == 0, done.err
    proven = json.loads(done.out)["robustness"]["proven"]
    assert (proven["samples"], proven["tested"]) == (100, 6)
    done = hauberk("attack", "one", "--steps", 2, "--draws", 2, "--limit", 2, "--json")
    assert done.code == 0, done.err
    done = hauberk("attack", "one", "--steps", 2, "--draws", 2, "--limit", 1, "--radius", "0.1", "--json")
    assert done.code == 0, done.err
    assert "after the first map" in done.out


def test_the_word_for_public_records_is_kept(hauberk: Run, workplace: Path, pictures: Path) -> None:
    words = ("train", "--method", "secure-sgd", "--size", "tiny", "--name", "one", *PRIVATE)
    done = hauberk(*words, "--public-data", "first:30", "--json")
    assert done.code == 0, done.err
    card = json.loads(done.out)
    assert any("first 30" in note and "98" in note for note in card["notes"])
    assert card["records"] == 98
    plan = json.loads((workplace / "runs/one/config.json").read_text())["plan"]
    assert plan["beforehand"] == []


def test_a_classifier_of_ones_own(hauberk: Run, workplace: Path, pictures: Path) -> None:
    torch.manual_seed(4)
    own = models.build("small-tanh-cnn", shape=(1, 14, 14), classes=2)
    write_tensors(workplace / "own.safetensors", own.state_dict())
    words = ("train", "--method", "transdenoiser", "--size", "tiny", "--name", "one", *PRIVATE)
    done = hauberk(*words, "--classifier", "own.safetensors", "--json")
    assert done.code == 0, done.err
    assert not any("declared public" in note for note in json.loads(done.out)["notes"])
    (workplace / "own.safetensors").unlink()  # the run has its own copy
    run = hb.load(workplace / "runs/one")
    x = torch.rand(2, 1, 14, 14)
    assert torch.equal(run.model.classifier(x), own(x))


def test_a_killed_run_goes_on_with_the_noise_it_began_with(
    hauberk: Run, workplace: Path, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a seed: r and its noise are the operating system's, and only the checkpoint knows them."""
    advance, scales = PrivateTrainer.advance, []

    def dying(self: PrivateTrainer) -> object:
        scales.append(self.constants["scales"].clone())
        if self.step == 9:
            raise KeyboardInterrupt
        return advance(self)

    monkeypatch.setattr(PrivateTrainer, "advance", dying)
    words = ("train", "--method", "secure-sgd", "--size", "tiny", "--epochs", 2, "--name", "one", *PRIVATE)
    assert hauberk(*words).code != 0
    monkeypatch.setattr(PrivateTrainer, "advance", advance)
    folder = workplace / "runs/one"
    plan = json.loads((folder / "config.json").read_text())["plan"]
    assert len(plan["beforehand"]) == 1
    before = RunFolder(folder).read_events().events[0]
    assert before == GaussianEvent(**plan["beforehand"][0])
    done = hauberk("train", "--resume", folder, "--json")
    assert done.code == 0, done.err
    run = hb.load(folder)
    assert torch.equal(run.noise.after_first_map, scales[0])
    assert run.ledger.events[0] == before
    assert run.ledger.events.count(before) == 1
    assert run.ledger.steps > run.plan.steps  # the steps after the last checkpoint were taken twice
    proven = json.loads(done.out)["privacy"]["proven"]["epsilon"]
    assert proven == pytest.approx(hb.accounting.prove(run.ledger.events, 1e-3).epsilon)
    assert proven >= run.plan.epsilon()


WRONG = [
    ("stability elsewhere", ("--method", "dp-sgd", "--stability", "1"), "--stability"),
    ("privacy of pixeldp", ("--method", "pixeldp", "--epsilon", "1"), "does not protect"),
    ("no privacy of pixeldp", ("--method", "hgm-pixeldp", "--no-privacy"), "does not protect"),
    ("clip of pixeldp", ("--method", "pixeldp", "--clip", "1"), "--clip"),
    ("public data elsewhere", ("--method", "dp-sgd", "--public-data", "first:9"), "--public-data"),
    ("public data of pixeldp", ("--method", "pixeldp", "--public-data", "first:9"), "--public-data"),
    ("r of agm", ("--method", "secure-sgd-agm", "--redistribution", "private"), "--redistribution"),
    ("source of r", ("--method", "secure-sgd", "--redistribution", "rumours"), "auto, public, private"),
    ("inflation", ("--method", "secure-sgd", "--inflation", "0"), "inflation"),
    ("classical epsilon", ("--method", "pixeldp", "--robust-epsilon", "4"), "up to 1"),
    ("robust delta", ("--method", "secure-sgd", "--robust-delta", "0.5"), "robust_delta"),
    ("no noise", ("--method", "secure-sgd", "--sigma", "0"), "sigma must be positive"),
    ("no views", ("--method", "secure-sgd", "--views", "0"), "views"),
    ("negative stability", ("--method", "transdenoiser", "--stability", "-1"), "stability"),
    ("width", ("--method", "transdenoiser", "--denoiser-width", "0"), "denoiser_width"),
    ("public epochs", ("--method", "transdenoiser", "--public-epochs", "0"), "public_epochs"),
    ("all is public", ("--method", "secure-sgd", "--public-data", "first:9999999"), "no private records"),
    ("the set itself", ("--method", "secure-sgd", "--public-data", "digits"), "digits"),
    ("no such set", ("--method", "secure-sgd", "--public-data", "minst"), "minst"),
]


@pytest.mark.parametrize(("name", "words", "part"), WRONG, ids=[row[0] for row in WRONG])
def test_a_wrong_request_costs_one_sentence_and_writes_nothing(
    hauberk: Run, workplace: Path, name: str, words: tuple[str, ...], part: str
) -> None:
    done = hauberk("train", "--size", "tiny", *words)
    assert done.code == 2
    assert part in done.err
    assert done.err.strip().count("\n") == 0
    assert "Traceback" not in done.err
    assert not Path("runs").exists()
    assert list(workplace.iterdir()) == []


LATE = [
    ("public r without public records", ("secure-sgd", "--redistribution", "public"), "public data"),
    (
        "private r without privacy",
        ("secure-sgd", "--no-privacy", "--redistribution", "private"),
        "public data",
    ),
    ("no classifier", ("transdenoiser",), "--classifier"),
    ("missing classifier", ("transdenoiser", "--classifier", "nowhere.safetensors"), "nowhere.safetensors"),
    ("no weights", ("transdenoiser", "--classifier", "pictures.npz"), "pictures.npz"),
]


@pytest.mark.parametrize(("name", "words", "part"), LATE, ids=[row[0] for row in LATE])
def test_what_a_method_lacks_costs_one_sentence(
    hauberk: Run, pictures: Path, name: str, words: tuple[str, ...], part: str
) -> None:
    done = hauberk("train", "--size", "tiny", *PICTURES, "--method", *words)
    assert done.code == 2
    assert part in done.err
    assert done.err.strip().count("\n") == 0
    assert "Traceback" not in done.err
    assert not Path("runs").exists()


EVERY = [(name, variant) for name, row in METHODS.items() for variant in row.variants]


INGREDIENTS = [
    ("--views", "2", "--consistency", "5"),
    ("--macer", "1"),
    ("--views", "2", "--clean-copy", "--seed", "0"),
    ("--shift", "1", "--flip"),
    ("--training-attack-size", "0.25", "--training-attack-steps", "2"),
    ("--public-data", "first:2000", "--public-epochs", "1"),
]


@pytest.mark.parametrize("options", INGREDIENTS, ids=[each[-2] for each in INGREDIENTS])
def test_every_ingredient_of_private_smoothing_changes_the_network(
    hauberk: Run, workplace: Path, options: tuple[str, ...]
) -> None:
    """And leaves the proof as it is: the same number of steps with the same noise."""
    views = options[:2] if options[0] == "--views" else ()
    (workplace / "small.toml").write_text(SMALL)
    common = ("train", "--size", "tiny", "--epochs", "0.25", "--noise-seed", "1", "--config", "small.toml")
    for name, own in (("with", options), ("without", views)):
        done = hauberk(*common, *own, "--name", name)
        assert done.code == 0, done.err
    runs = workplace / "runs"
    with_it, without = (read_tensors(runs / name / "model.safetensors") for name in ("with", "without"))
    assert any(not torch.equal(with_it[name], without[name]) for name in with_it)
    events = [json.loads((runs / name / "events.json").read_text()) for name in ("with", "without")]
    assert events[0] == events[1]
    notes = json.loads((runs / "with" / "card.json").read_text())["notes"]
    assert ("--public-data" in options) == any("declared public" in note for note in notes)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (("--consistency", "5"), "at least 2 views"),
        (("--consistency", "-1", "--views", "2"), "must not be negative"),
        (("--shift", "-1"), "must not be negative"),
        (("--shift", "1", "--training-attack-size", "0.5"), "leave out one of them"),
        (("--training-attack-steps", "3"), "does not use --training-attack-steps"),
        (("--public-epochs", "3"), "does not use --public-epochs"),
        (("--method", "dp-sgd", "--macer", "1"), "does not use --macer"),
        (("--data", "table.npz", "--records", "30", "--classes", "2", "--shift", "1"), "leave them out"),
    ],
)
def test_ingredients_that_do_not_go_together_cost_one_sentence(
    hauberk: Run, workplace: Path, options: tuple[str, ...], part: str
) -> None:
    np.savez(
        workplace / "table.npz", x=np.random.default_rng(0).random((40, 5), np.float32), y=np.arange(40) % 2
    )
    done = hauberk("train", "--size", "tiny", "--name", "one", *options)
    assert done.code == 2
    assert part in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert not (workplace / "runs" / "one").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("method", "variant"), EVERY, ids=[f"{one} {two}" for one, two in EVERY])
def test_every_method_trains_in_its_quick_size(
    hauberk: Run, workplace: Path, method: str, variant: str
) -> None:
    """About a minute each on two cores; what is measured is whether it ends in a whole card."""
    done = hauberk("train", "--method", method, "--variant", variant, "--quick", "--name", "one", "--json")
    assert done.code == 0, done.err
    card = json.loads(done.out)
    assert (card["robustness"]["proven"] is not None) == METHODS[method].certifies
    assert card["privacy"]["proven"] is not None or card["privacy"]["reason"]
    assert card["utility"]["tested"] > 0
