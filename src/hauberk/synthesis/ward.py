"""The ward: simulated patients, so that a first run and the tests need nobody's records.

Every patient has a hidden severity that grows with age. It raises pulse and breathing, lowers blood pressure
and oxygen, makes nurses come more often, and makes deterioration likelier: an outcome that can be predicted
from what is observed, but not perfectly. Vital signs wander around the patient's own level, are taken at
irregular times, and each is missing at a rate of its own.
"""

from __future__ import annotations

import numpy as np
import torch

from hauberk.data.validation import check_count
from hauberk.synthesis.cells import Array
from hauberk.synthesis.patients import Patients
from hauberk.synthesis.schema import Categorical, Clock, Numeric, Schema

WARD = Schema(
    name="ward",
    patient="patient",
    time=Clock(column="hours", unit="hours", horizon=48, steps=24, decimals=1),
    static=(
        Numeric(name="age", low=18, high=100),
        Categorical(name="sex", levels=("female", "male")),
        Numeric(name="weight", low=35, high=180, decimals=1),
        Categorical(name="specialty", levels=("medical", "surgical", "cardiac")),
        Categorical(name="deteriorated", levels=("no", "yes")),
    ),
    temporal=(
        Numeric(name="heart_rate", low=30, high=200),
        Numeric(name="systolic", low=60, high=240),
        Numeric(name="respiratory_rate", low=5, high=50),
        Numeric(name="temperature", low=33, high=42, decimals=1),
        Numeric(name="oxygen_saturation", low=70, high=100),
        Categorical(name="consciousness", levels=("alert", "confused", "unresponsive")),
    ),
    outcome="deteriorated",
)
"""What is public about the ward."""

# for each numeric vital sign: usual level, change per unit of severity, spread between patients, wandering
_VITALS = {
    "heart_rate": (80.0, 11.0, 9.0, 5.0),
    "systolic": (128.0, -11.0, 14.0, 7.0),
    "respiratory_rate": (16.5, 3.0, 1.8, 1.5),
    "temperature": (36.9, 0.35, 0.3, 0.2),
    "oxygen_saturation": (97.0, -1.6, 0.9, 0.7),
}
_SHARE_TAKEN = (0.92, 0.88, 0.8, 0.45, 0.85, 0.35)
_PERSISTENCE = 0.8  # of the wandering from one visit to the next


def simulate_ward(patients: int, *, seed: int) -> Patients:
    """So many simulated patients; the same number and seed give the same patients, bit for bit."""
    check_count(patients, at_least=1, named="the number of simulated patients")
    chance = np.random.default_rng(seed)
    static, static_observed, severity = _admissions(chance, patients)
    increments, lengths = _visits(chance, severity)
    values = _vital_signs(chance, severity)
    observed = chance.random((patients, WARD.time.steps, len(WARD.temporal))) < _SHARE_TAKEN
    observed[:, 0, 0] = True  # somebody felt the pulse at admission
    return Patients.from_vectors(
        WARD,
        static=torch.from_numpy(static),
        static_observed=torch.from_numpy(static_observed),
        increments=torch.from_numpy(increments),
        values=torch.from_numpy(values),
        observed=torch.from_numpy(observed),
        lengths=torch.from_numpy(lengths),
    )


def _admissions(chance: np.random.Generator, patients: int) -> tuple[Array, Array, Array]:
    """Static vectors, which of them are known, and everybody's hidden severity."""
    age = np.clip(chance.normal(64, 17, patients), 18, 100)
    male = chance.random(patients) < 0.52
    weight = chance.normal(72, 13, patients) + 11 * male
    specialty = chance.choice(3, patients, p=(0.5, 0.3, 0.2))
    severity = chance.normal(0, 0.9, patients) + (age - 64) / 34 + 0.35 * (specialty == 2)
    deteriorated = chance.random(patients) < 1 / (1 + np.exp(2.1 - 1.7 * severity))
    vectors = np.concatenate(
        [
            _scaled("age", age)[:, None],
            np.eye(2)[male.astype(int)],
            _scaled("weight", weight)[:, None],
            np.eye(3)[specialty],
            np.eye(2)[deteriorated.astype(int)],
        ],
        axis=1,
    )
    known = np.ones((patients, len(WARD.static)), dtype=bool)
    known[:, WARD.static_place("weight")] = chance.random(patients) < 0.75
    return vectors, known, severity


def _visits(chance: np.random.Generator, severity: Array) -> tuple[Array, Array]:
    """Increments as shares of the horizon, and how many visits there are; the sicker, the more."""
    steps = WARD.time.steps
    mean_gap = 4.5 * np.exp(-0.3 * severity)[:, None]  # hours
    gaps = 0.2 + chance.gamma(2.0, mean_gap / 2, (len(severity), steps))
    gaps[:, 0] = chance.exponential(0.5, len(severity))
    stay = np.clip(chance.lognormal(3.3, 0.6, len(severity)), 2, WARD.time.horizon)
    lengths = np.maximum((gaps.cumsum(1) <= stay[:, None]).sum(1), 1)
    return gaps / WARD.time.horizon, lengths


def _vital_signs(chance: np.random.Generator, severity: Array) -> Array:
    patients, steps = len(severity), WARD.time.steps
    recovery = chance.normal(0.02, 0.02, patients)  # of severity per visit
    course = severity[:, None] - recovery[:, None] * np.arange(steps)
    columns = []
    for name, (usual, slope, spread, wandering) in _VITALS.items():
        own = chance.normal(0, spread, (patients, 1))
        noise = chance.normal(0, wandering, (patients, steps))
        for step in range(1, steps):
            fresh = np.sqrt(1 - _PERSISTENCE**2) * noise[:, step]
            noise[:, step] = _PERSISTENCE * noise[:, step - 1] + fresh
        columns.append(_scaled(name, usual + slope * course + own + noise)[..., None])
    clouded = course + chance.normal(0, 0.7, (patients, steps))
    consciousness = (clouded > 1.6).astype(int) + (clouded > 2.8)
    return np.concatenate([*columns, np.eye(3)[consciousness]], axis=2)


def _scaled(name: str, value: Array) -> Array:
    feature = next(each for each in WARD.features if each.name == name)
    assert isinstance(feature, Numeric)
    share: Array = (value - feature.low) / (feature.high - feature.low)
    return share
