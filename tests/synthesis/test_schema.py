"""The schema: what it refuses, and that a TOML file carries all of it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hauberk.synthesis import Categorical, Clock, Numeric, Schema

Refusal = Callable[[Callable[[], object]], str]


@given(data=st.data())
@settings(deadline=None)
def test_toml_carries_a_schema_whole(data: st.DataObject, schemas: st.SearchStrategy[Schema]) -> None:
    schema = data.draw(schemas)
    assert Schema.from_toml(schema.to_toml()) == schema


def test_a_file_carries_a_schema_whole(clinic: Schema, tmp_path: Path) -> None:
    clinic.write(tmp_path / "clinic.toml")
    assert Schema.read(tmp_path / "clinic.toml") == clinic


def test_bounds_read_from_data_are_marked_in_the_file_and_survive_it(clinic: Schema) -> None:
    pulse = replace(clinic.temporal[0], from_data=True)
    schema = replace(
        clinic, temporal=(pulse, *clinic.temporal[1:]), time=replace(clinic.time, from_data=True)
    )
    assert schema.to_toml().count("# not private: read from the data") == 2
    assert Schema.from_toml(schema.to_toml()).read_from_data == ("hour", "pulse")
    assert clinic.read_from_data == ()


def test_widths_and_places(clinic: Schema, refusal: Refusal) -> None:
    assert clinic.static_width == 1 + 2 + 2
    assert clinic.temporal_width == 1 + 1 + 3
    assert clinic.columns == ("id", "hour", "age", "sex", "died", "pulse", "temperature", "rhythm")
    assert clinic.temporal_place("temperature") == 1
    assert "has age, sex, died" in refusal(lambda: clinic.static_place("pulse"))


def test_grids_count_places() -> None:
    assert Numeric(name="t", low=30, high=45, decimals=1).cells == 150
    assert Numeric(name="p", low=6.8, high=7.8, decimals=2).cells == 100
    assert Clock(column="m", unit="minutes", horizon=2880, steps=49, bins=60).ticks == 48
    assert Clock(column="m", unit="minutes", horizon=100, steps=9, decimals=1).ticks == 1000
    assert Clock(column="m", unit="minutes", horizon=100, steps=9, bins=30).ticks == 3


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Numeric(name="x", low=2, high=2), "low must be below high"),
        (lambda: Numeric(name="x", low=0.5, high=2), "more than 0 decimals"),
        (lambda: Numeric(name="x", low=0, high=1e7), "told apart"),
        (lambda: Numeric(name="x", low=0, high=float("nan")), "finite number"),
        (lambda: Numeric(name=" x", low=0, high=1), "not a name"),
        (lambda: Numeric(name="x", low=0, high=1, decimals=9), "0 to 6"),
        (lambda: Categorical(name="x", levels=()), "no levels"),
        (lambda: Categorical(name="x", levels=("a", "a")), "twice"),
        (lambda: Categorical(name="x", levels=(1, 2)), "quoted texts"),
        (lambda: Clock(column="t", unit="weeks", horizon=1, steps=1), "seconds, minutes, hours, days"),
        (lambda: Clock(column="t", unit="days", horizon=-1, steps=1), "positive"),
        (lambda: Clock(column="t", unit="days", horizon=1, steps=0), "at least 1"),
        (lambda: Clock(column="t", unit="days", horizon=1, steps=1, bins=2), "bins must lie"),
        (lambda: Clock(column="t", unit="days", horizon=9, steps=1, bins=2, decimals=1), "no decimals"),
        (lambda: Clock(column="t", unit="days", horizon=0.5, steps=1), "possible times"),
    ],
)
def test_impossible_features_are_refused(make: Callable[[], object], said: str, refusal: Refusal) -> None:
    assert said in refusal(make)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"temporal": ()}, "no temporal feature"),
        ({"patient": "pulse"}, "'pulse' twice"),
        ({"outcome": "age"}, "two levels"),
        ({"outcome": "pulse"}, "two levels"),
        ({"out_of_bounds": "ignore"}, "refuse, clip, missing"),
        ({"duplicates": "drop"}, "refuse, aggregate"),
        ({"aggregate": "median"}, "mean, last"),
        ({"sentinels": (0,)}, "within the bounds of feature 'age'"),
        ({"sentinels": ("paced",)}, "also a level"),
        ({"sentinels": (float("inf"),)}, "finite"),
    ],
)
def test_contradictions_are_refused(
    change: dict[str, object], said: str, clinic: Schema, refusal: Refusal
) -> None:
    assert said in refusal(lambda: replace(clinic, **change))


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda text: text + "\n[", "not valid TOML"),
        (lambda text: text.replace("low = 20", "lowest = 20"), "unknown line 'lowest'"),
        (lambda text: text.replace("low = 20\n", ""), "feature 'pulse' lacks the line 'low'"),
        (lambda text: text.replace('name = "clinic"\n', ""), "lacks the line 'name'"),
        (lambda text: text.replace("[time]", "[clock]"), "no table [time]"),
        (lambda text: text.replace("sentinels = []", "sentinels = -1"), "must be a list"),
        (lambda text: text.replace('levels = ["no", "yes"]', 'levels = "no"'), "list of texts"),
        (lambda text: text.replace("high = 250", "high = 250\nfrom_data = 1"), "true or false"),
        (lambda text: text.replace("high = 250", 'high = "much"'), "finite number"),
        (lambda text: text.replace("steps = 5", "steps = 5.5"), "whole number"),
        (lambda text: 'static = "age"\n' + text[: text.index("[[static")], "[[static]]"),
    ],
)
def test_a_bad_file_is_told_by_name(
    edit: Callable[[str], str], said: str, clinic: Schema, tmp_path: Path, refusal: Refusal
) -> None:
    text = clinic.to_toml()
    assert edit(text) != text
    path = tmp_path / "bad"
    path.write_text(edit(text))
    message = refusal(lambda: Schema.read(path))
    assert str(path) in message
    assert said in message


def test_a_file_that_is_not_there_or_no_text_is_told(tmp_path: Path, refusal: Refusal) -> None:
    assert "No such file" in refusal(lambda: Schema.read(tmp_path / "none"))
    (tmp_path / "noise").write_bytes(b"\xff\xfe\x00")
    assert "not a text file" in refusal(lambda: Schema.read(tmp_path / "noise"))
