"""The built-in digits need nothing but the package."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import time
from importlib.resources import files
from pathlib import Path

import pytest
import torch

from hauberk.data import load
from hauberk.data.raw import grey_archive


def test_digits_load_without_any_data_folder(no_data: Path) -> None:
    start = time.process_time()  # not the clock on the wall: the machine may be busy with other things
    split = load("digits")
    assert time.process_time() - start < 2
    assert (split.records, split.classes, split.public_note) == (20_000, 10, None)
    assert split.train.shape == split.test.shape == (1, 28, 28)
    assert torch.bincount(split.train.y).tolist() == [2_000] * 10
    assert torch.bincount(split.test.y).tolist() == [200] * 10
    assert split.train.x.max() == 1
    assert not no_data.exists()


def test_the_licence_travels_with_the_data() -> None:
    text = (files("hauberk.data") / "embedded" / "LICENSE-digits.md").read_text()
    for part in ("Yann LeCun", "Corinna Cortes", "CC BY-SA 3.0", "What was changed"):
        assert part in text


def test_digits_are_spread_evenly_over_each_class(shared_data: Path) -> None:
    if not (shared_data / "mnist").is_dir():
        pytest.skip("the data folder has no mnist")
    digits, mnist = load("digits"), load("mnist", data_dir=shared_data)
    for part, whole, count in ((digits.train, mnist.train, 2_000), (digits.test, mnist.test, 200)):
        picked = torch.zeros(len(whole), dtype=torch.bool)
        for digit in range(10):
            members = (whole.y == digit).nonzero().squeeze(1)
            picked[members[torch.arange(count) * len(members) // count]] = True
        assert torch.equal(part.x, whole.x[picked])
        assert torch.equal(part.y, whole.y[picked])


@pytest.mark.slow
def test_the_tool_builds_the_same_archive_again(shared_data: Path, tmp_path: Path) -> None:
    if not (shared_data / "mnist").is_dir():
        pytest.skip("the data folder has no mnist")
    tool = Path(__file__).parents[2] / "tools" / "build_digits.py"
    output = tmp_path / "digits.npz"
    done = subprocess.run(
        [sys.executable, str(tool), str(shared_data), str(output)], capture_output=True, text=True, check=True
    )
    checksum = hashlib.sha256()
    for array in _arrays(output):
        checksum.update(array)
    assert checksum.hexdigest() in done.stdout
    assert _arrays(output) == _arrays(Path(str(files("hauberk.data") / "embedded" / "digits.npz")))


def _arrays(path: Path) -> list[bytes]:
    return [array.tobytes() for array in grey_archive(path).arrays]
