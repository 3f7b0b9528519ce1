"""A user's own torch model is attacked in three lines: those of the docstring, run as they are."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

import hauberk.attacks
from hauberk.attacks import Outcome


def test_the_three_lines_of_the_docstring_run(capsys: pytest.CaptureFixture[str]) -> None:
    lines = re.findall(r"^    (\S.*)$", hauberk.attacks.__doc__ or "", re.MULTILINE)
    assert len(lines) == 3
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 20), nn.ReLU(), nn.Linear(20, 3))
    x = torch.rand(50, 1, 6, 6)
    with torch.no_grad():
        y = model(x).argmax(1)
    scope: dict[str, object] = {"model": model, "x": x, "y": y}
    exec("\n".join(lines), scope)
    found = scope["found"]
    assert isinstance(found, Outcome)
    assert 0 < found.success_rate < 1
    assert found.accuracy == 1 - found.success_rate  # the model was right everywhere
    low, high = found.success_interval()
    assert low < found.success_rate < high
    assert "still right" in capsys.readouterr().out
