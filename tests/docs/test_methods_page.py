"""What docs/methods.md says can be done can be done."""

import re
from pathlib import Path

import pytest

from hauberk.methods import METHODS

PAGE = (Path(__file__).parents[2] / "docs" / "methods.md").read_text()


def test_every_robust_method_is_on_the_page() -> None:
    for name, row in METHODS.items():
        if row.certifies and name != "private-smoothing":
            assert f"| `{name}` |" in PAGE


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    # the same on fewer records and inputs, so that the test takes seconds
    example = example.replace("fit(data.train)", "fit(data.train.first(512))").replace(
        "run.audit(data.test)",
        "run.audit(data.test, settings=hb.methods.AuditSettings(tested=8, samples=50, attacked=1))",
    )
    exec(example, {})
    said = capsys.readouterr().out
    assert "input noise 0.25 and noise" in said
    assert "certificate='tight'" in said
