"""What the README shows, works."""

import json
import re
from pathlib import Path

import pytest
import torch

README = (Path(__file__).parents[2] / "README.md").read_text()
ROOT = Path(__file__).parents[2]


EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_a_model_of_ones_own_is_certified_and_attacked_in_three_lines_each(
    capsys: pytest.CaptureFixture[str],
) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 10))
    x, y = torch.rand(6, 1, 4, 4), torch.randint(10, (6,))
    certify, attack = EXAMPLES[1:]
    for example in (certify.replace("10_000", "200"), attack):
        assert len(example.splitlines()) == 3
        exec(example, {"model": model, "x": x, "y": y})
    assert "still right" in capsys.readouterr().out


def test_the_python_example_runs_and_is_ten_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example = EXAMPLES[0]
    lines = [line for line in example.splitlines() if line.strip()]
    assert len(lines) == 10
    monkeypatch.chdir(tmp_path)
    # the same ten lines on fewer test inputs, so that the test takes seconds
    example = example.replace(
        "run.audit(data.test)",
        "run.audit(data.test, settings=hb.methods.AuditSettings(tested=10, samples=50, attacked=2))",
    ).replace("samples=1000", "samples=100")
    scope: dict[str, object] = {}
    exec(example, scope)
    assert (tmp_path / "report.html").stat().st_size > 10_000
    assert scope["card"].privacy.proven.epsilon <= 3.0


def test_every_link_to_a_file_leads_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if not target.startswith("http"):
            assert (ROOT / target).exists(), target


def test_every_method_of_the_catalogue_has_a_row_in_the_readme() -> None:
    from hauberk.methods import METHODS

    for name in METHODS:
        assert f"| `{name}` |" in README


def test_the_truth_table_is_that_of_a_committed_run() -> None:
    from hauberk.accounting.json_form import from_json
    from hauberk.audit.truth_table import TruthTable
    from hauberk.audit.truth_table_rows import Finding
    from hauberk.report.truth_table import markdown

    kept = json.loads((ROOT / "docs" / "results" / "truth-table.json").read_text())
    findings = tuple(from_json(Finding, each, where="truth-table.json") for each in kept["findings"])
    table = TruthTable(**{**kept, "findings": findings})
    assert table.size == "quick"
    assert not table.refuted_sound
    shown, statement = markdown(table).split("\n\n")[:2]
    assert shown in README
    assert statement in README


def test_the_demos_figures_are_those_of_a_card() -> None:
    """The table in the README names its command and agrees with the committed card of that run."""
    card = json.loads((ROOT / "docs" / "results" / "demo-card.json").read_text())
    assert card["command"].startswith("hauberk demo")
    assert f"{card['utility']['base_accuracy']:.1%}".replace("%", " %") in README
    assert f"{card['privacy']['proven']['epsilon']:.3f}" in README
