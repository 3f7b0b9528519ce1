"""Published health records by name: their schemas, and how their files become patients.

Bounds are what a clinician would call possible, levels are those of the documentation: nothing was read from
the records. A preset says what its *privacy unit* is, because a published file may hold several stays of one
person.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hauberk.data.folder import data_folder
from hauberk.data.integrity import check_sha256, readable
from hauberk.errors import RequestError
from hauberk.synthesis.cells import Repairs, Source
from hauberk.synthesis.encode import Encoded, encode_sources
from hauberk.synthesis.extra import pandas
from hauberk.synthesis.preset_schemas import EICU, MIMIC_ED, PHYSIONET
from hauberk.synthesis.schema import Schema
from hauberk.synthesis.ward import WARD, simulate_ward

WARD_TRAIN, WARD_TEST = 2000, 1000


@dataclass(frozen=True, kw_only=True)
class Part:
    """One set of patients of a preset. ``records`` is its documented size, a public constant."""

    records: int
    unit: str
    load: Callable[[Path], Encoded]


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A named set of health records; the first part is the default, ``held_out`` names one for testing."""

    name: str
    schema: Schema
    licence: str
    parts: dict[str, Part]
    held_out: str | None = None


def load_patients(name: str, *, data_dir: Path | None = None, part: str | None = None) -> Encoded:
    """The patients of a preset, read from the data folder (``data_dir``, else ``HAUBERK_DATA``).

    Files are known by their sha256 to be the published ones. Stays without any measurement are left out.
    Repairs are counted and *not private*.
    """
    preset = find_preset(name)
    chosen = part if part is not None else next(iter(preset.parts))
    if chosen not in preset.parts:
        raise RequestError(f"{name} has no part '{chosen}'; choose one of {', '.join(preset.parts)}.")
    return preset.parts[chosen].load(data_folder(data_dir))


def find_preset(name: str) -> Preset:
    """The preset of this name."""
    if name not in PRESETS:
        raise RequestError(
            f"there are no health records '{name}'; choose one of {', '.join(PRESETS)} or give a file."
        )
    return PRESETS[name]


def _published(folder: Path, name: str, sha256: str) -> io.BytesIO:
    """The bytes of a published file."""
    path = folder / name
    if not os.path.isfile(path):
        raise RequestError(
            f"{path} was not found; put it there or name the folder that holds {path.parent.name} "
            "with --data-dir or HAUBERK_DATA."
        )
    with readable(path):
        content = path.read_bytes()
    check_sha256(content, expected=sha256, named=str(path))
    return io.BytesIO(content)


def _encoded(schema: Schema, *tables: Any) -> Encoded:
    sources = [Source(table=table, named=schema.name) for table in tables]
    return encode_sources(sources, schema, empty="drop")


def _simulated(patients: int, seed: int) -> Callable[[Path], Encoded]:
    return lambda _: Encoded(patients=simulate_ward(patients, seed=seed), repairs=Repairs())


_PHYSIONET_SHA256 = {
    "a": "31b457dc5feef76d2e63a9209198ce1904c1dbd256508f535947151a91e09405",
    "b": "7b080e356824443d13c9510963ef521be99f38b8194a977ca7cfac01a142c99e",
}
_GENDERS = {0: "female", 1: "male"}
_ICU_TYPES = {1: "coronary", 2: "cardiac surgery", 3: "medical", 4: "surgical"}


def _physionet(letter: str) -> Callable[[Path], Encoded]:
    """Set a or b: descriptors at minute 0 are static (the later weights are left out), the rest in time."""

    def load(folder: Path) -> Encoded:
        pd = pandas()
        arrays = np.load(
            _published(folder / "physionet2012", f"set_{letter}.npz", _PHYSIONET_SHA256[letter]),
            allow_pickle=False,
        )
        names = arrays["param_names"]
        table = pd.DataFrame(
            {
                "RecordID": arrays["record_id"],
                "minute": arrays["minute"],
                "feature": pd.Categorical.from_codes(arrays["param"], names),
                "value": arrays["value"],
            }
        )
        described = table["feature"].isin(["Age", "Gender", "Height", "ICUType", "Weight"])
        admission = table[described & (table["minute"] == 0)].drop_duplicates(["RecordID", "feature"])
        static = admission.pivot(index="RecordID", columns="feature", values="value").reset_index()
        static.columns = [str(name) for name in static.columns]
        for name, words in (("Gender", _GENDERS), ("ICUType", _ICU_TYPES)):
            static[name] = static[name].map({**words, -1: "-1"})
        deaths = pd.Series(arrays["in_hospital_death"], index=arrays["outcome_record_id"])
        static["In-hospital_death"] = static["RecordID"].map(deaths).map({0: "no", 1: "yes"})
        return _encoded(PHYSIONET, static, table[~described])

    return load


_MIMIC_SHA256 = {
    "edstays": "fc185cb111a70e9dfd8457c6e1da4f9366dee729e072282995dcd7045a5a3c52",
    "triage": "086dadcb49adc5f24bdda0e342ec9cf0fbcb2e9595516c5c101d408434e1e09b",
    "vitalsign": "89967d8b9dd139d540e9d08270bb6282dd2df0eb7111d38bfe2a79c0b291ab78",
}


_RACES = {"WHITE": "white", "BLACK": "black", "HISPANIC": "hispanic", "ASIAN": "asian"}
_NO_RACE = ("UNKNOWN", "UNABLE TO OBTAIN", "PATIENT DECLINED TO ANSWER")


def _mimic_ed(unit: str) -> Callable[[Path], Encoded]:
    """Emergency stays: triage is the measurement of minute 0, vital signs follow."""

    def load(folder: Path) -> Encoded:
        pd = pandas()
        stays, triage, vitals = (
            pd.read_csv(_published(folder / "mimic_iv_ed_demo", f"{name}.csv.gz", sha256), compression="gzip")
            for name, sha256 in _MIMIC_SHA256.items()
        )
        stays = stays.sort_values(["intime", "stay_id"])
        if unit == "subject_id":
            stays = stays.drop_duplicates("subject_id")
        stays = stays.merge(triage[["stay_id", "acuity"]], on="stay_id")
        stays["race"] = stays["race"].map(_race)
        stays["arrival"] = stays["arrival_transport"].str.lower()
        stays["admitted"] = np.where(stays["disposition"] == "ADMITTED", "yes", "no")
        signs = [feature.name for feature in MIMIC_ED.temporal]
        rows = pd.concat([triage, vitals])[["stay_id", "charttime", *signs]]
        rows = rows.merge(stays[["subject_id", "stay_id", "intime"]], on="stay_id")
        arrived = pd.to_datetime(rows["intime"])
        charted = pd.to_datetime(rows["charttime"]).fillna(arrived)  # triage has no time of its own
        rows["minute"] = (charted - arrived).dt.total_seconds() / 60
        static = stays[[unit, *(feature.name for feature in MIMIC_ED.static)]]
        return _encoded(replace(MIMIC_ED, patient=unit), static, rows[[unit, "minute", *signs]])

    return load


def _race(entry: str) -> str | None:
    """The group of a documented race, such as white for WHITE - BRAZILIAN; None where nobody knows."""
    if entry in _NO_RACE:
        return None
    return next((group for beginning, group in _RACES.items() if entry.startswith(beginning)), "other")


_EICU_SHA256 = {
    "patient": "3071e983db2dffee85e5dc8a4e5ce47ca656c3d9b6b52e845a87a977363ac206",
    "vitalaperiodic": "6af5d9e76df084302a01cb571d372e1c61e2c260062928d0ccbbba12799ec192",
}


def _eicu(unit: str) -> Callable[[Path], Encoded]:
    """Unit stays with their cuff pressures; a person's stays are ordered as far as the release tells."""

    def load(folder: Path) -> Encoded:
        pd = pandas()
        stays, vitals = (
            pd.read_csv(_published(folder / "eicu_demo", f"{name}.csv.xz", sha256), compression="xz")
            for name, sha256 in _EICU_SHA256.items()
        )
        stays = stays.sort_values(
            ["hospitaldischargeyear", "patienthealthsystemstayid", "unitvisitnumber", "patientunitstayid"]
        )
        if unit == "uniquepid":
            stays = stays.drop_duplicates("uniquepid")
        stays["age"] = stays["age"].replace("> 89", "90")
        keys = stays[["uniquepid", "patientunitstayid"]]
        signs = [feature.name for feature in EICU.temporal]
        rows = vitals[["patientunitstayid", EICU.time.column, *signs]].merge(keys, on="patientunitstayid")
        static = stays[[unit, *(feature.name for feature in EICU.static)]]
        return _encoded(replace(EICU, patient=unit), static, rows[[unit, EICU.time.column, *signs]])

    return load


_FIRST_STAY = "one patient, by the first stay"
_STAY = "one stay; a person with several stays is several records"

PRESETS = {
    preset.name: preset
    for preset in (
        Preset(
            name="ward",
            schema=WARD,
            licence="simulated, no real persons",
            parts={
                "train": Part(records=WARD_TRAIN, unit="one patient", load=_simulated(WARD_TRAIN, 1)),
                "test": Part(records=WARD_TEST, unit="one patient", load=_simulated(WARD_TEST, 2)),
            },
            held_out="test",
        ),
        Preset(
            name="physionet2012",
            schema=PHYSIONET,
            licence="ODC-By 1.0",
            parts={letter: Part(records=4000, unit="one stay", load=_physionet(letter)) for letter in "ab"},
            held_out="b",
        ),
        Preset(
            name="mimic_iv_ed_demo",
            schema=MIMIC_ED,
            licence="ODbL 1.0",
            parts={
                "patients": Part(records=64, unit=_FIRST_STAY, load=_mimic_ed("subject_id")),
                "stays": Part(records=222, unit=_STAY, load=_mimic_ed("stay_id")),
            },
        ),
        Preset(
            name="eicu_demo",
            schema=EICU,
            licence="ODbL 1.0",
            parts={
                "patients": Part(records=1841, unit=_FIRST_STAY, load=_eicu("uniquepid")),
                "stays": Part(records=2520, unit=_STAY, load=_eicu("patientunitstayid")),
            },
        ),
    )
}
"""The names that ``load_patients`` knows."""
