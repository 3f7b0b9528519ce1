"""The pages make one site: all are in the navigation, every link leads somewhere, nothing is fetched."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


def test_every_page_becomes_one(site: Path) -> None:
    pages = [page.relative_to(ROOT / "docs") for page in (ROOT / "docs").rglob("*.md")]
    assert len(pages) > 20
    for page in pages:
        assert (site / page).with_suffix(".html").is_file(), page


def test_the_site_needs_nobody_else(site: Path) -> None:
    """No fonts, scripts or pictures from other servers."""
    for page in site.rglob("*.html"):
        fetched = re.findall(r'<(?:script|img|link)[^>]* (?:src|href)="(https?://[^"]*)"', page.read_text())
        assert not fetched, page.name


def test_the_notebooks_come_along(site: Path) -> None:
    assert len(list((site / "notebooks").glob("*.ipynb"))) == 3
