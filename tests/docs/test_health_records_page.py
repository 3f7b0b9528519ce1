"""``docs/health-records.md``: its schema is one, its table is the presets' (its code: test_guide)."""

import re
from pathlib import Path

import pytest

from hauberk.errors import RequestError
from hauberk.synthesis import PRESETS, Schema, read_patients

PAGE = (Path(__file__).parents[2] / "docs" / "health-records.md").read_text()


def test_the_schema_is_one_and_has_every_line() -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    schema = Schema.from_toml(text)
    for line in ("patient", "outcome", "aggregate", "out_of_bounds", "duplicates", "sentinels", "ignored"):
        assert f"\n{line} = " in text
    assert schema.time.ticks == 48


def test_the_sentence_is_the_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (sentence,) = re.findall(r"^    (line 3 of .*)$", PAGE, re.MULTILINE)
    Path("vitals.csv").write_text("id,hour,pulse\n1,0,80\n1,1,850\n")
    schema = Schema.from_toml(
        'name = "s"\npatient = "id"\n[time]\ncolumn = "hour"\nunit = "hours"\nhorizon = 9\nsteps = 9\n'
        '[[temporal]]\nname = "pulse"\nlow = 20\nhigh = 250\n'
    )
    with pytest.raises(RequestError) as caught:
        read_patients(Path("vitals.csv"), schema)
    assert str(caught.value) == sentence


def test_the_table_is_the_presets() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([^|]*) \| [^|]* \| (\d+)[^|]* \| `([^`]*)` \|$", PAGE, re.MULTILINE)
    assert [name for name, *_ in rows] == list(PRESETS)
    for name, parts, steps, outcome in rows:
        preset = PRESETS[name]
        assert re.findall(r"`(\w+)`", parts) == list(preset.parts)
        assert int(steps) == preset.schema.time.steps
        assert outcome == preset.schema.outcome
