"""``hauberk train --model module:factory --weights file --train-only pattern``, from file to predictions."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import hauberk as hb
from hauberk.methods.verification import write_manifest
from hauberk.training.loop import PrivateTrainer

Run = Callable[..., Any]

SOURCE = """
from torch import nn

class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 4, 5, stride=3), nn.BatchNorm2d(4), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten()
        )
        self.head = nn.Linear(64, classes)

    def forward(self, x):
        return self.head(self.body(2 * x - 1))

def make(classes):
    return Net(classes)

def small(shape):
    return nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(49, 7))
"""
OWN = ("--model", "mynet:make", "--weights", "w.safetensors", "--train-only", "head.*")
QUICK = ("--noise-multiplier", 2, "--config", "small.toml")


@pytest.fixture(autouse=True)
def files(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The network and its weights, trained a little on pictures that are nobody's."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (workplace / "mynet.py").write_text(SOURCE)
    (workplace / "small.toml").write_text("tested = 6\nsamples = 100\nattacked = 0\n")
    torch.manual_seed(0)
    scope: dict[str, Any] = {}
    exec(SOURCE, scope)
    network = scope["make"](10)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    for _ in range(5):
        loss = network(torch.rand(32, 1, 28, 28)).square().mean()
        loss.backward()
        optimizer.step()
    save_file(network.state_dict(), workplace / "w.safetensors")
    torch.save(network.state_dict(), workplace / "w.pt")
    forget()
    yield workplace
    forget()


def forget() -> None:
    """What a new process does not know."""
    sys.modules.pop("mynet", None)


def test_a_small_cnn_with_batch_norm_goes_from_file_to_certified_predictions(
    hauberk: Run, workplace: Path
) -> None:
    words = ("--data", "digits", *OWN, "--size", "tiny", "--config", "small.toml", "--name", "mine", "--json")
    done = hauberk("train", *words)
    assert done.code == 0, done.err
    card = json.loads(done.out)
    assert card["privacy"]["proven"]["epsilon"] <= 2.99
    digest = hashlib.sha256((workplace / "w.safetensors").read_bytes()).hexdigest()
    assert any(
        f"file w.safetensors, sha256 {digest}, declared public by the user; if it was trained on the private "
        "records nothing is proven" in note
        for note in card["notes"]
    )
    assert any("Trained: head.weight, head.bias, 650 of 754 weights" in note for note in card["notes"])
    assert any("BatchNorm at body.1: fixed" in note for note in card["notes"])

    released, given = load_file("runs/mine/model.safetensors"), load_file("w.safetensors")
    assert set(released) == set(given)
    for name, value in given.items():
        assert torch.equal(released[name], value) == (not name.startswith("head.")), name

    # all that follows is another process, later, without the file of weights
    (workplace / "w.safetensors").unlink()
    forget()
    done = hauberk("certify", "mine", "--limit", 8, "--samples", 200, "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["robustness"]["proven"]["tested"] == 8
    done = hauberk("attack", "mine", "--steps", 2, "--draws", 2, "--limit", 2, "--json")
    assert done.code == 0, done.err
    np.savez(workplace / "new.npz", x=np.random.default_rng(0).random((3, 1, 28, 28), dtype=np.float32))
    done = hauberk("predict", "mine", "new.npz", "--samples", 200, "--json")
    assert done.code == 0, done.err
    rows = json.loads(done.out)["inputs"]
    assert len(rows) == 3
    assert all(row["abstain"] or row["radius"] > 0 for row in rows)
    done = hauberk("verify", "mine")
    assert done.code == 0, done.out

    _another_factory_is_refused(hauberk, workplace)
    _other_frozen_weights_are_found(hauberk, workplace)


def _another_factory_is_refused(hauberk: Run, workplace: Path) -> None:
    changes = {
        "makes another network than the one that": SOURCE.replace("nn.ReLU()", "nn.Tanh()"),
        "another network": SOURCE.replace("64, classes", "64, classes, bias=False"),
        "mynet has no make": SOURCE.replace("def make", "def made"),
        "answers with shape (11,)": SOURCE.replace("64, classes", "64, classes + 1"),
        "there is no module mynet": None,
    }
    for sentence, source in changes.items():
        forget()
        if source is None:
            (workplace / "mynet.py").unlink()
        else:
            (workplace / "mynet.py").write_text(source)
        done = hauberk("predict", "mine", "new.npz")
        assert done.code == 2
        assert sentence in done.err
        assert "Traceback" not in done.err
    assert hauberk("verify", "mine").code == 1
    forget()
    scope: dict[str, Any] = {}
    exec(SOURCE, scope)
    network = scope["make"](10)
    loaded = hb.load(workplace / "runs/mine", model=network, device="cpu")  # one that is handed over
    assert loaded.classifier.certify(torch.rand(2, 1, 28, 28), samples=50, alpha=0.1).labels.shape == (2,)
    assert network.body[1].training  # and that stays what it is
    (workplace / "mynet.py").write_text(SOURCE)


def _other_frozen_weights_are_found(hauberk: Run, workplace: Path) -> None:
    """Also if every hash is written anew."""
    path = workplace / "runs/mine/model.safetensors"
    weights = load_file(path)
    weights["body.1.running_mean"] = weights["body.1.running_mean"] + 1e-3
    save_file(weights, path)
    write_manifest(workplace / "runs/mine")
    done = hauberk("verify", "mine")
    assert done.code == 1
    assert "the frozen weights in" in " ".join(done.out.split())


def test_a_killed_run_goes_on_with_the_same_network(
    hauberk: Run, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("train", *OWN, "--size", "tiny", *QUICK, "--epochs", 3, "--noise-seed", 1)
    whole = hauberk(*words, "--name", "whole")
    assert whole.code == 0, whole.err
    advance = PrivateTrainer.advance

    def dying(self: PrivateTrainer) -> object:
        if self.step == 13:
            raise KeyboardInterrupt
        return advance(self)

    monkeypatch.setattr(PrivateTrainer, "advance", dying)
    assert hauberk(*words, "--name", "killed").code != 0
    monkeypatch.setattr(PrivateTrainer, "advance", advance)

    weights = (workplace / "w.safetensors").read_bytes()
    other = load_file(workplace / "w.safetensors")
    save_file({**other, "body.0.bias": other["body.0.bias"] + 1}, workplace / "w.safetensors")
    forget()
    refused = hauberk("train", "--resume", "runs/killed")
    assert refused.code == 2
    assert "w.safetensors is no longer the file that the run began with" in refused.err
    (workplace / "w.safetensors").write_bytes(weights)
    (workplace / "mynet.py").write_text(SOURCE.replace("nn.ReLU()", "nn.Tanh()"))
    forget()
    refused = hauberk("train", "--resume", "runs/killed")
    assert refused.code == 2
    assert "mynet:make is no longer the network that the run began with" in refused.err
    (workplace / "mynet.py").write_text(SOURCE)
    forget()
    done = hauberk("train", "--resume", "runs/killed")
    assert done.code == 0, done.err
    names = ["runs/killed/model.safetensors", "runs/whole/model.safetensors"]
    first, second = ((workplace / name).read_bytes() for name in names)
    assert first == second
    assert hauberk("verify", "killed").code == 0


def test_a_named_network_takes_public_weights_and_freezing_too(hauberk: Run, workplace: Path) -> None:
    torch.manual_seed(5)
    network = hb.models.build("mlp", shape=(1, 28, 28), classes=10)
    save_file(network.state_dict(), workplace / "mlp.safetensors")
    names = [name for name, _ in network.named_parameters()]
    trained = [name for name in names if name.endswith(".bias")]
    done = hauberk(
        *("train", "--method", "dp-sgd", "--model", "mlp", "--weights", "mlp.safetensors", "--size", "tiny"),
        *("--noise-multiplier", 2, "--train-only", f"{trained[0]},{trained[1]}", "--train-only", trained[2]),
        *("--config", "small.toml", "--name", "named"),
    )
    assert done.code == 0, done.err
    released = load_file(workplace / "runs/named/model.safetensors")
    for name, weight in network.state_dict().items():
        assert torch.equal(released[name], weight) == (name not in trained), name
    assert hauberk("verify", "named").code == 0


WRONG: list[tuple[str, tuple[str, ...], str]] = [
    ("pickled", ("--model", "mynet:make", "--weights", "w.pt"), "save_file({k: v.contiguous().clone() for"),
    ("no file", ("--model", "mynet:make", "--weights", "no.safetensors"), "cannot read no.safetensors"),
    ("no safetensors", ("--model", "mynet:make", "--weights", "mynet.py"), "no safetensors file"),
    ("fresh statistics", ("--model", "mynet:make"), "give --weights with running statistics from public"),
    ("absent", ("--model", "nowhere:make"), "there is no module nowhere"),
    ("other width", ("--model", "mynet:small"), "answers with shape (7,) and not with 10 class scores"),
    ("other shape", ("--data", "adult", "--model", "mynet:make"), "cannot take inputs of shape"),
    ("no pattern", (*OWN[:4], "--train-only", "tail.*"), "no weight of the network fits 'tail.*'"),
    ("other network", ("--model", "lenet", "--weights", "w.safetensors"), "which the network does not have"),
    ("other method", ("--method", "stobatch", "--model", "mynet:small"), "networks of the catalogue only"),
    ("unread", ("--method", "pixeldp", "--weights", "w.safetensors"), "does not use --weights"),
]


@pytest.mark.parametrize(("name", "words", "sentence"), WRONG, ids=[row[0] for row in WRONG])
def test_a_wrong_network_costs_one_sentence_and_writes_nothing(
    hauberk: Run, workplace: Path, name: str, words: tuple[str, ...], sentence: str
) -> None:
    if name == "other shape":
        hauberk_data = workplace / "own.npz"
        np.savez(hauberk_data, x=np.zeros((300, 5), dtype=np.float32), y=np.arange(300) % 10)
        words = ("--data", str(hauberk_data), "--records", "290", "--classes", "10", *words[2:])
    before = sorted(path.name for path in workplace.iterdir())
    noise = () if "pixeldp" in words else ("--noise-multiplier", "2")
    done = hauberk("train", "--size", "tiny", *words, *noise)
    assert done.code == 2, done.out
    assert sentence in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert sorted(path.name for path in workplace.iterdir()) == before


def test_a_network_that_remembers_records_is_refused_before_anything_is_written(
    hauberk: Run, workplace: Path
) -> None:
    (workplace / "mynet.py").write_text(
        "import torch\nfrom torch import nn\n"
        "class Keeps(nn.Linear):\n"
        "    def __init__(self):\n"
        "        super().__init__(784, 10)\n"
        "        self.register_buffer('seen', torch.zeros(784))\n"
        "    def forward(self, x):\n"
        "        x = x.flatten(1)\n"
        "        if self.training:\n"
        "            self.seen.add_(x.detach().sum(0))\n"
        "        return super().forward(x)\n"
    )
    done = hauberk("train", "--size", "tiny", "--model", "mynet:Keeps", "--noise-multiplier", 2)
    assert done.code == 2
    assert "changes its own 'seen'" in done.err
    assert not (workplace / "runs").exists()
