"""``tools/screenshot.py``: a picture, or one sentence."""

import runpy
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from hauberk.accounting.card import Card
from hauberk.report import write_report

TOOL = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "screenshot.py"))
MAIN: Callable[[list[str]], int] = TOOL["main"]
BROWSER = next(filter(None, map(shutil.which, TOOL["BROWSERS"])), None)


@pytest.mark.skipif(BROWSER is None, reason="no chromium or google-chrome is installed")
def test_the_picture_shows_a_page(card: Card, tmp_path: Path) -> None:
    write_report(card, tmp_path / "report.html")
    picture = tmp_path / "docs" / "report.png"
    assert MAIN([str(tmp_path / "report.html"), str(picture)]) == 0
    with Image.open(picture) as image:
        assert image.size == (1200, 1600)
        assert len(image.convert("L").getcolors() or ()) > 50


def test_without_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert MAIN([str(tmp_path / "report.html"), str(tmp_path / "report.png")]) == 2
    assert "make demo" in capsys.readouterr().err


def test_without_a_browser(
    card: Card, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_report(card, tmp_path / "report.html")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert MAIN([str(tmp_path / "report.html"), str(tmp_path / "report.png")]) == 2
    said = capsys.readouterr().err
    assert said.startswith("no browser found")
    assert not (tmp_path / "report.png").exists()
