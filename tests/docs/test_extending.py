"""docs/extending.md, done to a copy of the package: its files and rows obey every law of their tables."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TABLES = (
    "tests/mechanisms/test_table.py",
    "tests/attacks/test_table.py",
    "tests/gradients/test_rules.py",
    "tests/methods/test_table.py",
)
NEW = ("concentrated", "straight-line", "bilinear", "smooth-labels")
COMPLETE = ("every_registered_mechanism_has_a_row", "every_attack_of_the_catalogue_has_a_row")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory, blocks: Callable[[str], list[Any]]) -> Path:
    """The package and its table tests, with what the page adds to them."""
    folder = tmp_path_factory.mktemp("extended")
    left_out = shutil.ignore_patterns("__pycache__", "embedded")
    shutil.copytree(ROOT / "src" / "hauberk", folder / "src" / "hauberk", ignore=left_out)
    (folder / "src/hauberk/data/embedded").symlink_to(ROOT / "src/hauberk/data/embedded")
    for name in ("pyproject.toml", "tests/conftest.py", "tests/gradients/conftest.py", *TABLES):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    for block in blocks("extending.md"):
        for name in block.told("package"):
            (folder / name).write_text(block.text)
        for value in block.told("insert"):
            place = re.fullmatch(r"(\S+) (after|before) (.+)", value)
            assert place, block.place
            _insert(folder / place[1], block.text, where=place[2], text=place[3], told=block.place)
    return folder


def _insert(file: Path, lines: str, *, where: str, text: str, told: str) -> None:
    every = file.read_text().splitlines(keepends=True)
    (number,) = [n for n, line in enumerate(every) if text in line] or [None]
    assert number is not None, f"{told}: {file.name} has no line with {text}"
    every.insert(number + (where == "after"), lines)
    file.write_text("".join(every))


def test_the_page_adds_one_of_each_kind(copy: Path) -> None:
    for name in ("mechanisms/concentrated", "attacks/straight_line", "gradients/rules/bilinear"):
        assert (copy / "src/hauberk" / f"{name}.py").is_file()
    assert (copy / "src/hauberk/methods/smooth_labels.py").is_file()


def test_the_new_rows_obey_the_laws(copy: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "OMP_NUM_THREADS": "1"}
    chosen = " or ".join((*NEW, *COMPLETE))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-vv", "-k", chosen, *TABLES],
        cwd=copy,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    for name in (*NEW, *COMPLETE):
        assert re.search(rf"{name}.* PASSED", done.stdout), name
    assert "skipped" not in done.stdout.splitlines()[-1]


def test_the_new_files_keep_the_house_style(copy: Path, blocks: Callable[[str], list[Any]]) -> None:
    new = [name for block in blocks("extending.md") for name in block.told("package")]
    assert len(new) == 4
    ruff = [sys.executable, "-m", "ruff"]
    for command in ([*ruff, "check", "--no-cache"], [*ruff, "format", "--check", "--diff", "--no-cache"]):
        done = subprocess.run([*command, *new, *TABLES], cwd=copy, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
