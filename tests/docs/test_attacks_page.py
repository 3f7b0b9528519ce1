"""``docs/attacks.md``: its code runs, and its table is the catalogue's."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn

from hauberk.attacks import ATTACKS, Outcome
from hauberk.methods.attack_runs import RunAttacks
from hauberk.methods.training import prepare, train

PAGE = (Path(__file__).parents[2] / "docs" / "attacks.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def scope() -> dict[str, object]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 20), nn.ReLU(), nn.Linear(20, 3))
    x = torch.rand(40, 1, 6, 6)
    with torch.no_grad():
        y = model(x).argmax(1)
    return {"model": model, "x": x, "y": y}


def test_three_lines_attack_a_model_of_ones_own(
    scope: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(BLOCKS[0].splitlines()) == 3
    exec(BLOCKS[0], scope)
    assert isinstance(scope["found"], Outcome)
    assert "still right" in capsys.readouterr().out


def test_a_librarys_object_is_an_attack(scope: dict[str, object], capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("foolbox")
    exec(BLOCKS[1], scope)
    assert 0 < float(capsys.readouterr().out) <= 1


def test_a_run_is_attacked_from_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    options = {"size": "tiny", "epochs": 0.2, "device": "cpu"}
    train(
        prepare(root=Path("runs"), name="demo", force=False, config={"tested": 2}, options=options),
        command="",
    )
    scope: dict[str, object] = {}
    exec(BLOCKS[2].replace("limit=100", "limit=2, steps=2, draws=2, samples=20"), scope)
    assert isinstance(scope["found"], RunAttacks)
    assert capsys.readouterr().out.startswith("none 0.0 ")


def test_the_table_is_the_catalogues() -> None:
    rows = re.findall(r"^\| `(\S+)` \|[^|]*\| ([^|]*) \| (yes|no) \|", PAGE, re.MULTILINE)
    assert [name for name, *_ in rows] == list(ATTACKS)
    for name, norms, aims in rows:
        assert sorted(norms.split(", ")) == sorted(ATTACKS[name].norms), name
        assert (aims == "yes") == ATTACKS[name].can_aim, name
