"""The benchmark of attacks runs, and its contenders attack alike."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "attacks.py"


def load_benchmark() -> ModuleType:
    specification = importlib.util.spec_from_file_location("benchmark_of_attacks", SCRIPT)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module  # dataclasses look their module up
    specification.loader.exec_module(module)
    return module


def test_a_quick_run_gives_a_row_for_every_contender() -> None:
    for library in ("torchattacks", "foolbox", "art"):
        pytest.importorskip(library)
    benchmark = load_benchmark()
    measurement = benchmark.Measurement(network="paper-mnist-cnn", device=torch.device("cpu"), quick=True)
    rows = list(measurement.rows(list(benchmark.CONTENDERS), list(benchmark.ATTACKS), 1))
    found = [(row["attack"], row["contender"]) for row in rows]
    assert found == [(a, c) for a in benchmark.ATTACKS for c in benchmark.CONTENDERS]
    for row in rows:
        assert row.keys() >= {"device", "network", "radius", "examples_per_second", "success"}
        assert row["examples_per_second"] > 0
        assert 0 <= row["success"] <= 1


@pytest.mark.parametrize("attack", ["PGD-40", "MIM-10"])
def test_contenders_break_as_much_as_each_other(attack: str) -> None:
    """On a half-space, where the radius alone decides: nobody attacks with other settings."""
    benchmark = load_benchmark()
    layer = nn.Linear(36, 10)
    with torch.no_grad():
        layer.weight.zero_()
        layer.weight[0], layer.weight[1] = 1.0, -1.0
        layer.bias.fill_(-50.0)
        layer.bias[0], layer.bias[1] = -18.0, 18.0
    model = nn.Sequential(nn.Flatten(), layer).eval()
    distances = torch.linspace(0.005, 0.195, 20)  # in l_inf
    x = (0.5 + distances).view(-1, 1, 1, 1).expand(-1, 1, 6, 6).contiguous()
    y = torch.zeros(20, dtype=torch.int64)
    for name, make in benchmark.CONTENDERS.items():
        if name in ("torchattacks", "foolbox", "art"):
            pytest.importorskip(name)
        success = make(model, x, y, benchmark.ATTACKS[attack], 0.1, 8)()
        assert success == pytest.approx(0.5, abs=0.051), name
