"""docs/own-network.md, done as a new user would do it, in an empty folder."""

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from hauberk.cli import main
from hauberk.methods import METHODS

PAGE = (Path(__file__).parents[2] / "docs" / "own-network.md").read_text()
COMMANDS = [
    line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines() if line
]
NETWORK, WEIGHTS, IN_PYTHON = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # as Python itself has the current folder
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "mynet.py").write_text(NETWORK)
    Image.new("L", (28, 28), 90).save("picture.png")
    (tmp_path / "small.toml").write_text("tested = 8\nsamples = 100\nattacked = 0\n")
    sys.modules.pop("mynet", None)
    yield tmp_path
    sys.modules.pop("mynet", None)


def test_the_page_works_from_top_to_bottom(
    place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    exec(WEIGHTS, {})
    assert len(COMMANDS) == 4
    for line in COMMANDS:
        smaller = f"{line} --size tiny --config small.toml" if line.startswith("hauberk train") else line
        monkeypatch.setattr("sys.argv", shlex.split(smaller))
        with pytest.raises(SystemExit) as leaving:
            main()
        assert not leaving.value.code, f"{line}: {capfd.readouterr().err}"
    scope: dict[str, Any] = {}
    exec(IN_PYTHON, scope)
    assert scope["certificates"].labels.shape == (8,)
    (line,) = re.findall(r'`(hb\.load\("runs/mine", .*?\))`', PAGE)
    assert eval(line, scope).classes == 10


def test_the_methods_are_those_named() -> None:
    (named,) = re.findall(r"Methods: (.*?)\.\n", PAGE, re.DOTALL)
    assert set(re.split(r",\s+|\s+and\s+", named)) == {
        row.name for row in METHODS.values() if "weights" in row.reads
    }
