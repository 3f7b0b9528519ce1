"""A picture of a report's first page, for the README: ``python tools/screenshot.py [REPORT] [PICTURE]``."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from hauberk.errors import RequestError
from hauberk.files import write_bytes

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDTH, HEIGHT = 1200, 1600
PATIENCE = 60  # seconds


def find_browser() -> str:
    for name in BROWSERS:
        found = shutil.which(name)
        if found is not None:
            return found
    raise RequestError(f"no browser found: install one of {', '.join(BROWSERS)}")


def take(report: Path, picture: Path) -> None:
    """The top of the report, as a reader with a light screen sees it, as a PNG file."""
    if not report.is_file():
        raise RequestError(f"there is no report at {report}: make one with `make demo`")
    browser = find_browser()
    with tempfile.TemporaryDirectory() as folder:
        taken = Path(folder, "page.png")
        command = [
            browser,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            f"--user-data-dir={folder}/profile",
            "--hide-scrollbars",
            f"--window-size={WIDTH},{HEIGHT}",
            f"--screenshot={taken}",
            report.resolve().as_uri(),
        ]
        try:
            subprocess.run(command, capture_output=True, timeout=PATIENCE, check=True)
        except (subprocess.SubprocessError, OSError) as error:
            raise RequestError(f"{browser} took no picture of {report}: {error}") from error
        if not taken.is_file():
            raise RequestError(f"{browser} took no picture of {report}")
        picture.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(picture, taken.read_bytes())


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", type=Path, nargs="?", default=Path("runs/demo/report.html"))
    parser.add_argument("picture", type=Path, nargs="?", default=Path("docs/images/report.png"))
    chosen = parser.parse_args(arguments)
    try:
        take(chosen.report, chosen.picture)
    except RequestError as error:
        print(error, file=sys.stderr)
        return 2
    print(chosen.picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
