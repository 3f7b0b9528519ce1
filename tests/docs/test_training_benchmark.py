"""The benchmark of whole epochs runs, and its bare step is the step that training takes."""

from __future__ import annotations

import copy
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "training.py"


@pytest.fixture(scope="module")
def benchmark_of_training() -> ModuleType:
    specification = importlib.util.spec_from_file_location("benchmark_of_training", SCRIPT)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module  # dataclasses look their module up
    specification.loader.exec_module(module)
    return module


def rows(folder: Path, *arguments: str) -> list[dict[str, object]]:
    command = [sys.executable, str(SCRIPT), "--quick", "--device", "cpu", "--output", str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "training-cpu.json").read_text())


def test_a_quick_run_answers_every_question_of_one_process(tmp_path: Path) -> None:
    asked = ("--networks", "small-tanh-cnn", "--methods", "dp-sgd,directional")
    found = rows(tmp_path, *asked, "--questions", "start,epoch,evaluation,checkpoint")
    assert [(row["method"], row["question"], row["contender"]) for row in found] == [
        ("dp-sgd", "start", "load the data"),
        ("dp-sgd", "start", "calibrate the noise"),
        ("dp-sgd", "start", "check and measure the network"),
        ("dp-sgd", "epoch", "epoch"),
        ("dp-sgd", "epoch", "bare step"),
        ("dp-sgd", "evaluation", "32 test images"),
        ("dp-sgd", "checkpoint", "write and sync"),
        ("directional", "epoch", "epoch"),
        ("directional", "epoch", "bare step"),
        ("directional", "checkpoint", "write and sync"),
    ]
    assert all(row["seconds"] > 0 for row in found)
    for epoch, bare in ((found[3], found[4]), (found[7], found[8])):
        assert epoch["overhead"] == pytest.approx(100 * (1 - bare["seconds"] / epoch["seconds"]))
        for row in (epoch, bare):  # of 96 records, each sampled about once
            assert 48 < row["records_per_second"] * row["seconds"] < 192
    # a shaping has three more numbers for each weight: weights, average, momentum; mean, square, scale
    assert found[9]["megabytes"] == pytest.approx(2 * found[6]["megabytes"], rel=0.1)


@pytest.mark.slow
def test_processes_are_compared(tmp_path: Path) -> None:
    asked = ("--networks", "small-tanh-cnn", "--methods", "dp-sgd", "--questions", "processes")
    found = rows(tmp_path, *asked)
    assert [row["contender"] for row in found] == [
        "1 process, 1 thread",
        "1 process, 2 threads",
        "2 processes, 1 thread each",
    ]
    for row in found:  # all records count, also those of the second process
        assert 48 < row["records_per_second"] * row["seconds"] < 192


METHODS = [("dp-sgd", 3), ("private-smoothing", 3), ("adaclip", 1), ("directional", 1)]


@pytest.mark.parametrize(("name", "steps"), METHODS, ids=[row[0] for row in METHODS])
def test_the_bare_step_is_the_step_of_training(
    name: str, steps: int, benchmark_of_training: ModuleType
) -> None:
    """Without noise both models stay equal; shaped ones for a step, after which training moves the shape."""
    setup = benchmark_of_training.Setup(
        network="logistic", method=name, device=torch.device("cpu"), quick=True, seconds=0.0
    )
    method = setup.build(noise_multiplier=None, no_privacy=True)
    last: dict[str, Tensor] = {}
    method.views = benchmark_of_training.RememberedViews(
        sigma=method.views.sigma, views=method.views.views, last=last
    )
    twin = copy.deepcopy(method.model)
    bare = benchmark_of_training.bare_step(method, twin, setup.split.train.y, last)
    trainer = method.trainer(setup.split.train)
    start = vector(twin)
    for _ in range(steps):
        trainer.advance()
        bare()
    way = (vector(trainer.model) - start).norm()
    assert way > 0
    assert (vector(trainer.model) - vector(twin)).norm() < 1e-5 * way


def vector(model: nn.Module) -> Tensor:
    return parameters_to_vector(model.parameters()).detach().clone()
