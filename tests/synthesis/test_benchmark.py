"""The benchmark of synthesizers runs and compares like with like."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "synth.py"


def test_a_quick_run_has_a_row_for_every_contender(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--quick", "--synthesizers", "vae", "--output", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "synth-cpu.json").read_text())
    steps = {row["contender"]: row for row in rows if row["question"] == "step"}
    assert list(steps) == ["private", "without privacy", "plain"]
    for row in steps.values():
        assert row["ratio"] == pytest.approx(row["seconds"] / steps["without privacy"]["seconds"])
        assert row["ratio_to_plain"] == pytest.approx(row["seconds"] / steps["plain"]["seconds"])
    (made,) = [row for row in rows if row["question"] == "generation"]
    assert made["patients"] == 100
    assert made["seconds"] > 0
