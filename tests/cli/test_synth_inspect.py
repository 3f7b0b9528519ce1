"""``hauberk synth inspect``: a schema on the screen or in a file, and never without the warning."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hauberk.synthesis import Schema
from hauberk.synthesis.reading import read_patients

Command = Callable[..., Any]

VITALS = "id,hours,sex,pulse\n1,0,f,80\n1,2,f,90\n2,0,m,70\n"


def test_the_schema_is_printed_and_marked(hauberk: Command, workplace: Path) -> None:
    (workplace / "vitals.csv").write_text(VITALS)
    outcome = hauberk("synth", "inspect", "vitals.csv")
    assert outcome.code == 0
    schema = Schema.from_toml(outcome.out)
    assert schema.read_from_data == ("hours", "sex", "pulse")
    assert tomllib.loads(outcome.out)["temporal"][0]["high"] == 90
    assert "not private" in outcome.out
    assert "not private" in outcome.err


def test_the_schema_is_written_and_reads_the_file(hauberk: Command, workplace: Path) -> None:
    (workplace / "vitals.csv").write_text(VITALS)
    outcome = hauberk("synth", "inspect", "vitals.csv", "--out", "vitals.toml", "--outcome", "sex")
    assert outcome.code == 0
    assert "70 to 90" in outcome.out
    assert "not private" in outcome.out
    schema = Schema.read(workplace / "vitals.toml")
    assert schema.outcome == "sex"
    assert len(read_patients(workplace / "vitals.csv", schema).patients) == 2
    refused = hauberk("synth", "inspect", "vitals.csv", "--out", "vitals.toml")
    assert refused.code == 2
    assert "--force" in refused.err
    assert hauberk("synth", "inspect", "vitals.csv", "--out", "vitals.toml", "--force").code == 0
    assert Schema.read(workplace / "vitals.toml").outcome is None


def test_json_is_for_machines(hauberk: Command, workplace: Path) -> None:
    (workplace / "vitals.csv").write_text(VITALS)
    outcome = hauberk("synth", "inspect", "vitals.csv", "--json", "--unit", "days")
    facts = json.loads(outcome.out)
    assert facts["not_private"] == ["hours", "sex", "pulse"]
    assert facts["schema"]["time"]["unit"] == "days"
    assert facts["ignored"] == {}


def test_mistakes_cost_one_sentence_and_write_nothing(hauberk: Command, workplace: Path) -> None:
    (workplace / "vitals.csv").write_text(VITALS.replace("hours", "when"))
    outcome = hauberk("synth", "inspect", "vitals.csv", "--out", "vitals.toml")
    assert outcome.code == 2
    assert "--time" in outcome.err
    assert "Traceback" not in outcome.err
    assert not (workplace / "vitals.toml").exists()
    assert hauberk("synth", "inspect", "none.csv").code == 2
    assert "inspect" in hauberk("synth", "--help").out
