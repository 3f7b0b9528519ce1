"""The wheel is whole: installed somewhere else, the command works outside of the repository."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "src")


def run(*command: object, folder: Path, **environment: str) -> str:
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "HAUBERK_DATA")}
    done = subprocess.run(
        [str(each) for each in command],
        cwd=folder,
        env={**clean, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that nothing is left in the repository."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            left_out = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(ROOT / name, folder / name, ignore=left_out)
        else:
            shutil.copy(ROOT / name, folder / name)
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check")
    run(*pip, "--no-deps", "--no-build-isolation", "--wheel-dir", folder / "dist", folder, folder=folder)
    (built,) = (folder / "dist").glob("*.whl")
    return built


def test_it_holds_everything_that_is_no_python(wheel: Path) -> None:
    """Data, templates, licences and the marker for type checkers, and every module."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    source = ROOT / "src"
    wanted = [source / "hauberk" / "py.typed", *(source / "hauberk").rglob("*.py")]
    wanted += (source / "hauberk" / "data" / "embedded").iterdir()
    wanted += (source / "hauberk" / "report" / "templates").iterdir()
    missing = [str(path.relative_to(source)) for path in wanted if str(path.relative_to(source)) not in names]
    assert not missing
    assert {Path(name).name for name in names if "/licenses/" in name} == {"LICENSE", "LICENSE-digits.md"}
    assert not [name for name in names if name.startswith(("tests", "docs", "benchmarks"))]


@pytest.fixture(scope="module")
def place(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with this wheel and, by its path, what it depends on; not the repository's hauberk."""
    folder = tmp_path_factory.mktemp("elsewhere")
    venv.create(folder / "env", with_pip=False, symlinks=True)
    python = folder / "env" / "bin" / "python"
    own = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", folder=folder).strip()
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps")
    run(*pip, "--disable-pip-version-check", wheel, folder=folder)
    # a .pth file adds the path behind its own, and does not read the .pth files that it finds there
    (Path(own) / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


@pytest.mark.slow
def test_the_command_works_elsewhere(place: Path) -> None:
    hauberk = place / "env" / "bin" / "hauberk"
    where = run(place / "env/bin/python", "-c", "import hauberk; print(hauberk.__file__)", folder=place)
    assert Path(where.strip()).is_relative_to(place)
    assert run(hauberk, "--version", folder=place).startswith("hauberk ")
    card = json.loads(run(hauberk, "train", "--size", "tiny", "--name", "small", "--json", folder=place))
    assert card["privacy"]["proven"]["epsilon"] <= card["privacy"]["claimed"]["epsilon"]
    assert (place / "runs" / "small" / "report.html").stat().st_size > 10_000


@pytest.mark.slow
def test_the_demo_works_elsewhere(place: Path) -> None:
    card = json.loads(run(place / "env" / "bin" / "hauberk", "demo", "--json", folder=place))
    assert card["privacy"]["proven"]["epsilon"] <= 3
    assert card["utility"]["base_accuracy"] > 0.9
    assert card["robustness"]["observed"]["broken"] == 0
    assert (place / "runs" / "demo" / "report.html").is_file()
