"""The report in a real browser: no console message, no missing picture."""

import html
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from hauberk.accounting.card import Card
from hauberk.accounting.exhibits import Exhibits
from hauberk.methods.attack_records import AttackRecord
from hauberk.report import render

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium or google-chrome is installed")

# The copy that is opened allows this one script and keeps the rest of the page's policy.
POLICY = "default-src 'none'"
CHECKER = """<script nonce="checker">
  const problems = [];
  window.addEventListener("error", event => problems.push("script: " + event.message));
  window.addEventListener("load", () => {
    for (const image of document.images)
      if (image.naturalWidth === 0) problems.push("picture: " + image.alt);
    const found = document.createElement("pre");
    found.id = "problems";
    found.textContent = JSON.stringify(problems);
    document.body.append(found);
  });
</script>"""


def problems(page: str, folder: Path) -> list[str]:
    """What the browser complains about: script errors, missing pictures, refused requests, the console."""
    assert BROWSER is not None
    assert POLICY in page
    copy = folder / "page.html"
    page = page.replace(POLICY, f"{POLICY}; script-src 'nonce-checker'", 1)
    copy.write_text(page.replace("<head>", f"<head>{CHECKER}", 1), encoding="utf-8")
    command = [
        BROWSER,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        f"--user-data-dir={folder}/profile",
        "--enable-logging=stderr",
        "--virtual-time-budget=5000",
        "--dump-dom",
        copy.as_uri(),
    ]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    found = re.search(r'<pre id="problems">(.*?)</pre>', ran.stdout, re.DOTALL)
    assert found is not None, f"the page was not loaded: {ran.stderr[-2000:]}"
    listed: list[str] = json.loads(html.unescape(found.group(1)))
    return listed + [line for line in ran.stderr.splitlines() if "CONSOLE" in line]


def test_a_full_report_is_clean(card: Card, attacks: AttackRecord, tmp_path: Path) -> None:
    assert problems(render(card, attacks), tmp_path) == []


def test_a_report_of_a_hostile_card_is_clean(card: Card, tmp_path: Path) -> None:
    bad = "\"'><img src=x onerror=alert(1)><script>alert(2)</script>"
    hostile = replace(
        card,
        method=bad,
        data=bad,
        command=bad,
        notes=(bad,),
        versions={bad: bad},
        privacy=replace(card.privacy, proven=None, reason=bad),
        exhibits=replace(card.exhibits, class_names=(bad,) * 10),
    )
    assert problems(render(hostile), tmp_path) == []


def test_a_report_without_exhibits_is_clean(card: Card, tmp_path: Path) -> None:
    assert problems(render(replace(card, utility=None, exhibits=Exhibits())), tmp_path) == []


FAULTS = {
    '<img alt="broken" src="data:image/png;base64,AAAA">': "picture: broken",
    '<script nonce="checker">nobody_defined_this()</script>': "nobody_defined_this is not defined",
    '<script nonce="checker">console.error("told the console")</script>': "told the console",
    '<img alt="away" src="http://127.0.0.1:9/x.png">': "http://127.0.0.1:9/x.png",
    "<script>document.title = 'owned'</script>": "inline script",
}


def test_the_checker_sees_faults(card: Card, tmp_path: Path) -> None:
    page = render(replace(card, exhibits=Exhibits())).replace("</main>", f"{''.join(FAULTS)}</main>")
    found = problems(page, tmp_path)
    for complaint in FAULTS.values():
        assert any(complaint in problem for problem in found), "\n".join(found)
