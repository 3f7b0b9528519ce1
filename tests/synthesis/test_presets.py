"""The published sets: their schemas are public, and their files become the documented patients in seconds."""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from hauberk.synthesis import Categorical, Encoded, Schema, decode, encode
from hauberk.synthesis.presets import PRESETS, find_preset, load_patients

Refusal = Callable[[Callable[[], object]], str]
PARTS = [(preset.name, part) for preset in PRESETS.values() for part in preset.parts]


@pytest.fixture(scope="module")
def physionet(shared_data: Path) -> Encoded:
    """Set a, also measured: four thousand stays are a matter of seconds."""
    begun = time.process_time()
    encoded = load_patients("physionet2012", data_dir=shared_data, part="a")
    assert time.process_time() - begun < 15
    return encoded


@pytest.mark.parametrize("name", list(PRESETS))
def test_schemas_are_public_and_survive_a_file(name: str) -> None:
    schema = PRESETS[name].schema
    assert schema.read_from_data == ()
    assert schema.outcome is not None
    assert Schema.from_toml(schema.to_toml()) == schema
    assert PRESETS[name].held_out in (None, *PRESETS[name].parts)


@pytest.mark.parametrize(("name", "part"), [pair for pair in PARTS if pair[0] != "physionet2012"])
def test_every_part_loads_and_comes_back_exactly(
    name: str, part: str, request: pytest.FixtureRequest
) -> None:
    folder = None if name == "ward" else request.getfixturevalue("shared_data")
    encoded = load_patients(name, data_dir=folder, part=part)
    patients, documented = encoded.patients, PRESETS[name].parts[part].records
    assert len(patients) + encoded.repairs.dropped == documented
    known = patients.outcome[patients.outcome >= 0]
    assert 0.05 < float(known.float().mean()) < 0.95
    assert bool(patients.observed.flatten(0, 1).any(0).all()), "a feature that nobody has"
    again = encode(decode(patients), patients.schema, repair=False).patients
    assert torch.equal(again.values, patients.values)
    assert torch.equal(again.increments, patients.increments)


def test_physionet_has_the_documented_stays(physionet: Encoded) -> None:
    patients, schema = physionet.patients, physionet.patients.schema
    assert len(patients) == 4000 - 3  # three stays of set a have no time series at all
    assert physionet.repairs.dropped == 3
    assert int((patients.outcome == 1).sum()) == 554
    assert schema.time.steps == 49
    assert int(patients.lengths.max()) == 49
    assert len(schema.temporal) == 36


def test_physionet_values_are_those_of_the_archive(physionet: Encoded, shared_data: Path) -> None:
    """One stay by hand: hourly means of what lies within the bounds."""
    patients, schema = physionet.patients, physionet.patients.schema
    archive = np.load(shared_data / "physionet2012" / "set_a.npz")
    row = patients.identifiers.index("132540")
    mine = archive["record_id"] == 132540
    minute, value = archive["minute"][mine].astype(int), archive["value"][mine].astype(float)
    names = archive["param_names"][archive["param"][mine]]
    table = decode(patients.select([row])).set_index("minute")
    for feature in schema.temporal:
        if isinstance(feature, Categorical):
            continue
        for hour in range(49):
            taken = value[(names == feature.name) & (minute // 60 == hour)]
            taken = taken[(taken >= feature.low - 1e-6) & (taken <= feature.high + 1e-6)]
            shown = table[feature.name].get(hour * 60, np.nan)
            if len(taken) == 0:
                assert pd.isna(shown)
            else:
                assert float(shown) == pytest.approx(taken.mean(), abs=0.5001 * 10**-feature.decimals)


def test_unknown_descriptors_are_missing(physionet: Encoded) -> None:
    patients, schema = physionet.patients, physionet.patients.schema
    heights = patients.static_observed[:, schema.static_place("Height")]
    assert 0.5 < float(heights.float().mean()) < 0.54  # -1 in 1,894 stays, and impossible ones
    assert int((~patients.static_observed[:, schema.static_place("Gender")]).sum()) == 3


def test_a_patient_with_several_stays_is_one_record_or_says_so(shared_data: Path) -> None:
    for name, unit in (("mimic_iv_ed_demo", "subject_id"), ("eicu_demo", "uniquepid")):
        preset = PRESETS[name]
        assert load_patients(name, data_dir=shared_data).patients.schema.patient == unit
        assert "several records" in preset.parts["stays"].unit


def test_wrong_names_and_absent_or_changed_files_are_refused(tmp_path: Path, refusal: Refusal) -> None:
    assert "choose one of ward, physionet2012" in refusal(lambda: find_preset("mnist"))
    assert "no part 'c'" in refusal(lambda: load_patients("physionet2012", part="c"))
    missing = refusal(lambda: load_patients("physionet2012", data_dir=tmp_path))
    assert str(tmp_path / "physionet2012" / "set_a.npz") in missing
    (tmp_path / "physionet2012").mkdir()
    (tmp_path / "physionet2012" / "set_a.npz").write_bytes(b"something else")
    assert "sha256" in refusal(lambda: load_patients("physionet2012", data_dir=tmp_path))
