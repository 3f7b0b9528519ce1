"""The schemas of the published sets: possible values, documented levels, nothing read from the records."""

from __future__ import annotations

from hauberk.synthesis.schema import Categorical, Clock, Numeric, Schema


def _numbers(*rows: tuple[str, float, float, int]) -> tuple[Numeric, ...]:
    return tuple(Numeric(name=name, low=low, high=high, decimals=places) for name, low, high, places in rows)


PHYSIONET = Schema(
    name="physionet2012",
    patient="RecordID",
    time=Clock(column="minute", unit="minutes", horizon=2880, steps=49, bins=60),
    static=(
        Numeric(name="Age", low=15, high=120),
        Categorical(name="Gender", levels=("female", "male")),
        Numeric(name="Height", low=100, high=250, decimals=1),
        Categorical(name="ICUType", levels=("coronary", "cardiac surgery", "medical", "surgical")),
        Numeric(name="Weight", low=20, high=300, decimals=1),
        Categorical(name="In-hospital_death", levels=("no", "yes")),
    ),
    temporal=(
        *_numbers(
            ("ALP", 0, 5000, 0),
            ("ALT", 0, 20000, 0),
            ("AST", 0, 20000, 0),
            ("Albumin", 0.5, 7, 1),
            ("BUN", 0, 300, 0),
            ("Bilirubin", 0, 80, 1),
            ("Cholesterol", 0, 1000, 0),
            ("Creatinine", 0, 30, 1),
            ("DiasABP", 10, 200, 0),
            ("FiO2", 0.21, 1, 2),
            ("GCS", 3, 15, 0),
            ("Glucose", 5, 1500, 0),
            ("HCO3", 1, 80, 0),
            ("HCT", 5, 75, 1),
            ("HR", 10, 300, 0),
            ("K", 1, 15, 1),
            ("Lactate", 0, 40, 1),
            ("MAP", 10, 250, 0),
        ),
        Categorical(name="MechVent", levels=("1",)),
        *_numbers(
            ("Mg", 0, 20, 1),
            ("NIDiasABP", 10, 200, 0),
            ("NIMAP", 10, 250, 0),
            ("NISysABP", 20, 300, 0),
            ("Na", 80, 200, 0),
            ("PaCO2", 5, 200, 0),
            ("PaO2", 10, 700, 0),
            ("Platelets", 0, 3000, 0),
            ("RespRate", 1, 100, 0),
            ("SaO2", 20, 100, 0),
            ("SysABP", 20, 300, 0),
            ("Temp", 25, 45, 1),
            ("TroponinI", 0, 100, 1),
            ("TroponinT", 0, 50, 2),
            ("Urine", 0, 5000, 0),
            ("WBC", 0, 500, 1),
            ("pH", 6.5, 8, 2),
        ),
    ),
    outcome="In-hospital_death",
    out_of_bounds="missing",
    duplicates="aggregate",
    sentinels=(-1,),
)
"""Intensive-care stays, 48 hours in hourly bins; MechVent is only ever recorded as 1."""

MIMIC_ED = Schema(
    name="mimic_iv_ed_demo",
    patient="subject_id",
    time=Clock(column="minute", unit="minutes", horizon=1440, steps=25),
    static=(
        Categorical(name="gender", levels=("F", "M")),
        Categorical(name="race", levels=("white", "black", "hispanic", "asian", "other")),
        Categorical(name="arrival", levels=("walk in", "ambulance", "helicopter", "other")),
        Numeric(name="acuity", low=1, high=5),
        Categorical(name="admitted", levels=("no", "yes")),
    ),
    temporal=_numbers(
        ("temperature", 85, 110, 1),
        ("heartrate", 20, 250, 0),
        ("resprate", 4, 60, 0),
        ("o2sat", 50, 100, 0),
        ("sbp", 40, 300, 0),
        ("dbp", 20, 200, 0),
        ("pain", 0, 10, 0),
    ),
    outcome="admitted",
    out_of_bounds="missing",
    duplicates="aggregate",
    sentinels=("unknown",),
)
"""Emergency stays, their first day by the minute since arrival, temperatures in degrees Fahrenheit."""

EICU = Schema(
    name="eicu_demo",
    patient="uniquepid",
    time=Clock(column="observationoffset", unit="minutes", horizon=2880, steps=49, bins=60),
    static=(
        Numeric(name="age", low=0, high=90),
        Categorical(name="gender", levels=("Female", "Male")),
        Categorical(
            name="ethnicity",
            levels=(
                *("Caucasian", "African American", "Hispanic", "Asian", "Native American"),
                "Other/Unknown",
            ),
        ),
        Categorical(
            name="unittype",
            levels=(
                *("Med-Surg ICU", "MICU", "SICU", "Cardiac ICU", "CCU-CTICU", "Neuro ICU", "CSICU"),
                "CTICU",
            ),
        ),
        Numeric(name="admissionheight", low=100, high=250, decimals=1),
        Numeric(name="admissionweight", low=20, high=300, decimals=1),
        Categorical(name="hospitaldischargestatus", levels=("Alive", "Expired")),
    ),
    temporal=_numbers(
        ("noninvasivesystolic", 20, 300, 0),
        ("noninvasivediastolic", 10, 200, 0),
        ("noninvasivemean", 10, 250, 0),
    ),
    outcome="hospitaldischargestatus",
    out_of_bounds="missing",
    duplicates="aggregate",
)
"""Intensive-care stays of many centres, 48 hours in hourly bins; ages above 89 are recorded as 90."""
