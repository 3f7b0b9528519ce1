"""What the tests of this room share: arbitrary schemas and patients, and the shape of a refusal."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import strategies as st

from hauberk.errors import RequestError
from hauberk.synthesis import Categorical, Clock, Numeric, Patients, Schema

NAMES = st.text("abcdefg hijÄé'\"#[]=\\,_-0123", min_size=1, max_size=8).filter(
    lambda name: name == name.strip()
)


@st.composite
def _numeric(draw: st.DrawFn, name: str) -> Numeric:
    decimals = draw(st.integers(0, 3))
    low = draw(st.integers(-5000, 5000))
    cells = draw(st.integers(1, 50_000))
    scale = 10**decimals
    return Numeric(name=name, low=low / scale, high=(low + cells) / scale, decimals=decimals)


@st.composite
def _categorical(draw: st.DrawFn, name: str) -> Categorical:
    levels = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    return Categorical(name=name, levels=tuple(levels), from_data=draw(st.booleans()))


@st.composite
def _schema(draw: st.DrawFn) -> Schema:
    static, temporal = draw(st.integers(0, 3)), draw(st.integers(1, 4))
    names = draw(st.lists(NAMES, min_size=2 + static + temporal, max_size=2 + static + temporal, unique=True))
    patient, time, *rest = names
    features = [draw(st.one_of(_numeric(name), _categorical(name))) for name in rest]
    bins = draw(st.sampled_from([None, 1, 0.5, 30, 0.1, 1 / 3]))
    clock = Clock(
        column=time,
        unit=draw(st.sampled_from(["seconds", "minutes", "hours", "days"])),
        horizon=draw(st.integers(30, 3000)),
        steps=draw(st.integers(1, 8)),
        bins=bins,
        decimals=0 if bins else draw(st.integers(0, 3)),
        format=draw(st.sampled_from(["number", "timestamp"])),
    )
    static_features = tuple(features[:static])
    return Schema(
        name="drawn",
        patient=patient,
        time=clock,
        static=static_features,
        temporal=tuple(features[static:]),
        aggregate=draw(st.sampled_from(["mean", "last"])),
        out_of_bounds=draw(st.sampled_from(["refuse", "clip", "missing"])),
        duplicates=draw(st.sampled_from(["refuse", "aggregate"])),
        sentinels=draw(st.sampled_from([(), (-1e6,), (-999999, "unknown?")])),
        outcome=next(
            (each.name for each in static_features if isinstance(each, Categorical) and each.cells == 1), None
        ),
    )


def _patients(schema: Schema, count: int, seed: int, share_observed: float) -> Patients:
    """Whatever a network might put out, made into patients."""
    chance = torch.Generator().manual_seed(seed)
    steps, features = schema.time.steps, len(schema.temporal)

    def uniform(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=chance)

    return Patients.from_vectors(
        schema,
        static=uniform(count, schema.static_width) * 1.4 - 0.2,
        static_observed=uniform(count, len(schema.static)) < share_observed,
        increments=uniform(count, steps) * 2.2 / steps - 0.05,
        values=uniform(count, steps, schema.temporal_width) * 1.4 - 0.2,
        observed=uniform(count, steps, features) < share_observed,
        lengths=torch.randint(1, steps + 1, (count,), generator=chance),
    )


@pytest.fixture(scope="session")
def schemas() -> st.SearchStrategy[Schema]:
    return _schema()


@pytest.fixture(scope="session")
def patients_of() -> Callable[[Schema], st.SearchStrategy[Patients]]:
    def strategy(schema: Schema) -> st.SearchStrategy[Patients]:
        return st.builds(
            _patients,
            st.just(schema),
            st.integers(1, 6),
            st.integers(0, 2**31),
            st.sampled_from([0.0, 0.1, 0.5, 1.0]),
        )

    return strategy


@pytest.fixture(scope="session")
def clinic() -> Schema:
    """A small schema with one of everything."""
    return Schema(
        name="clinic",
        patient="id",
        time=Clock(column="hour", unit="hours", horizon=48, steps=5),
        static=(
            Numeric(name="age", low=0, high=120),
            Categorical(name="sex", levels=("female", "male")),
            Categorical(name="died", levels=("no", "yes")),
        ),
        temporal=(
            Numeric(name="pulse", low=20, high=250),
            Numeric(name="temperature", low=30, high=45, decimals=1),
            Categorical(name="rhythm", levels=("sinus", "paced", "other")),
        ),
        outcome="died",
    )


@pytest.fixture(scope="session")
def refusal() -> Callable[[Callable[[], object]], str]:
    """Runs an action that must be refused and returns what the user is told: exactly one sentence."""

    def told(action: Callable[[], object]) -> str:
        with pytest.raises(RequestError) as caught:
            action()
        message = str(caught.value)
        assert "\n" not in message
        assert message.endswith(".")
        assert re.search(r"[.!?]\s", message) is None, f"more than one sentence: {message}"
        return message

    return told


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with the published data sets."""
    folder = os.environ.get("HAUBERK_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("HAUBERK_DATA names no folder with the published data sets")
    return Path(folder)
