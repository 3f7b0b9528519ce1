"""The benchmark of private steps runs, and its contenders do the same work."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch.nn.utils import parameters_to_vector

from hauberk import models

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gradients.py"


def load_benchmark() -> ModuleType:
    specification = importlib.util.spec_from_file_location("benchmark_of_gradients", SCRIPT)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module  # dataclasses look their module up
    specification.loader.exec_module(module)
    return module


def run(*arguments: str) -> str:
    done = subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_quick_run_gives_a_row_for_every_contender(tmp_path: Path) -> None:
    pytest.importorskip("opacus")
    said = run(
        "--quick", "--device", "cpu", "--networks", "small-tanh-cnn,transformer", "--output", str(tmp_path)
    )
    rows = json.loads((tmp_path / "gradients-cpu.json").read_text())
    benchmark = load_benchmark()
    found = [(row["network"], row["contender"]) for row in rows]
    assert found == [(n, c) for n in ("small-tanh-cnn", "transformer") for c in benchmark.CONTENDERS], said
    for row in rows:
        assert row.keys() >= {"device", "seconds", "ratio_to_plain", "peak_memory_mb"}
        baseline = benchmark.CONTENDERS[row["contender"]].baseline
        (beside,) = [r for r in rows if (r["network"], r["contender"]) == (row["network"], baseline)]
        assert row["ratio_to_plain"] == pytest.approx(row["seconds"] / beside["seconds"])


def test_memory_is_measured_in_a_process_of_its_own() -> None:
    assert float(run("--quick", "--device", "cpu", "--memory-of", "small-tanh-cnn", "hauberk", "2")) >= 0


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Threads that wait for each other crawl where others use the machine too."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.filterwarnings("ignore:Full backward hook")
@pytest.mark.parametrize("network", ["small-tanh-cnn", "transformer"])
def test_private_contenders_take_the_same_step_but_for_the_noise(network: str) -> None:
    pytest.importorskip("opacus")
    benchmark = load_benchmark()
    benchmark.NOISE_MULTIPLIER = 0.0
    torch.manual_seed(1)
    views, labels = torch.rand(5, 1, 1, 16, 16).double(), torch.randint(10, (5,))

    def way_of(make: str, micro_batch: int) -> torch.Tensor:
        torch.manual_seed(2)
        model = models.build(network, shape=(1, 16, 16), classes=10).double()
        start = parameters_to_vector(model.parameters()).detach().clone()
        step, _ = getattr(benchmark, make)(model, views, labels, micro_batch)
        step()
        step()  # what a step leaves behind must not leak into the next
        return parameters_to_vector(model.parameters()).detach() - start

    expected = way_of("straight_vmap", 5)
    for make in ("hauberk", "opacus_hooks", "opacus_ghost", "straight_vmap"):
        difference = (way_of(make, 2) - expected).norm() / expected.norm()
        assert difference < 1e-5, f"{make} goes elsewhere: {difference}"
