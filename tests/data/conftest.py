"""What the tests of this room share: the shape of a refusal, and where real data may be found."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hauberk.errors import RequestError


@pytest.fixture
def refusal() -> Callable[[Callable[[], object]], str]:
    """Runs an action that must be refused and returns what the user is told: exactly one sentence."""

    def told(action: Callable[[], object]) -> str:
        with pytest.raises(RequestError) as caught:
            action()
        assert type(caught.value) is RequestError
        message = str(caught.value)
        assert "\n" not in message
        assert message.endswith(".")
        assert re.search(r"[.!?]\s", message) is None, f"more than one sentence: {message}"
        return message

    return told


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with the published data sets."""
    folder = os.environ.get("HAUBERK_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("HAUBERK_DATA names no folder with the published data sets")
    return Path(folder)


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder for large files, gone after the test (``tmp_path`` keeps those of the last three runs)."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture
def no_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without any data: neither the environment nor the home directory has some."""
    monkeypatch.delenv("HAUBERK_DATA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path / ".cache" / "hauberk" / "data"
