"""Patients as an evaluation sees them: in an order of their own, as summaries, and as one long vector each.

Patients are ordered, sampled and split by a keyed hash of their content. So nothing depends on the order in
which a file lists them, and two copies of one patient, in whichever sets they stand, fall on the same side
of every split: no test patient is ever met in training under another name.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from hauberk.synthesis.patients import Patients
from hauberk.synthesis.schema import Categorical

Values = NDArray[np.float64]
Keys = NDArray[np.uint64]
Mask = NDArray[np.bool_]

LENGTH = "number of steps"
CLOCK = "time"


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample:
    """At most so many patients of a set in the order of their keys; ``whole`` are the keys of all of it."""

    patients: Patients
    keys: Keys
    whole: Keys

    def __len__(self) -> int:
        return len(self.keys)

    def select(self, rows: Mask) -> Sample:
        return Sample(
            patients=self.patients.select(torch.from_numpy(rows)), keys=self.keys[rows], whole=self.whole
        )


def draw(patients: Patients, at_most: int, *, seed: int) -> Sample:
    """The patients with the smallest keys: a sample that the order of the file has no part in."""
    patients = patients.to("cpu")
    keys = content_keys(patients, seed=seed)
    chosen = np.argsort(keys, kind="stable")[:at_most]
    return Sample(patients=patients.select(torch.from_numpy(chosen)), keys=keys[chosen], whole=keys)


def content_keys(patients: Patients, *, seed: int) -> Keys:
    """64 bits for each patient that depend on the seed and on everything but the identifier."""
    tensors = (
        patients.lengths,
        patients.static,
        patients.static_observed,
        patients.increments,
        patients.values,
        patients.observed,
    )
    rows = [np.ascontiguousarray(tensor.numpy()) for tensor in tensors]
    salt = seed.to_bytes(16, "little", signed=True)
    keys = np.empty(len(patients), dtype=np.uint64)
    for place in range(len(patients)):
        digest = hashlib.blake2b(digest_size=8, salt=salt)
        for row in rows:
            digest.update(row[place].tobytes())
        keys[place] = int.from_bytes(digest.digest(), "little")
    return keys


def first_half(keys: Keys, *, of: Keys) -> Mask:
    """Which keys lie in the lower half of all the keys ``of``: the same split for everybody."""
    middle = np.partition(of, len(of) // 2)[len(of) // 2]
    lower: Mask = np.less(keys, middle)
    return lower


@dataclass(frozen=True, kw_only=True, eq=False)
class Summary:
    """One row per patient; NaN where there is nothing to summarise.

    ``columns`` are names, ``features`` the schema's feature that each column tells about. ``levels`` marks
    what the values of a feature *are* on average, as against their extremes, their last and how many.
    """

    columns: tuple[str, ...]
    features: tuple[str, ...]
    levels: Mask
    values: Values

    def without(self, feature: str) -> Summary:
        """All but the columns of one feature: what may be known when that feature is to be predicted."""
        kept = np.array([each != feature for each in self.features])
        return self._keep(kept)

    def averages(self) -> Summary:
        """Static values and each feature's mean over time: what correlations are taken of."""
        return self._keep(self.levels)

    def _keep(self, kept: Mask) -> Summary:
        places = np.flatnonzero(kept)
        return Summary(
            columns=tuple(self.columns[place] for place in places),
            features=tuple(self.features[place] for place in places),
            levels=self.levels[places],
            values=self.values[:, places],
        )


def summarize(patients: Patients) -> Summary:
    """Everybody's static values, and of each temporal feature mean, least, largest, last and how often.

    On the schema's scale, numbers in [0, 1]. A feature with levels gives the share of each level among its
    observations, and how often; the number of steps and the time of the last one are shares of what the
    schema allows.
    """
    columns: list[tuple[str, str, bool, Values]] = []
    static, known = patients.static.double().numpy(), patients.static_observed.numpy()
    for place, feature in enumerate(patients.schema.static):
        if isinstance(feature, Categorical):
            for code, level in enumerate(feature.levels):
                share = np.where(known[:, place], static[:, place] == code, np.nan)
                columns.append((f"{feature.name} = {level}", feature.name, code > 0, share))
        else:
            columns.append(
                (feature.name, feature.name, True, np.where(known[:, place], static[:, place], np.nan))
            )
    values, observed = patients.values.numpy(), patients.observed.numpy()
    for place, feature in enumerate(patients.schema.temporal):
        seen, value = observed[:, :, place], values[:, :, place].astype(np.float64)
        counts = seen.sum(1)
        if isinstance(feature, Categorical):
            for code, level in enumerate(feature.levels):
                share = _mean((value == code) & seen, counts)
                columns.append((f"{feature.name} = {level}", feature.name, code > 0, share))
        else:
            some = counts > 0
            last = value[np.arange(len(value)), seen.shape[1] - 1 - seen[:, ::-1].argmax(1)]
            least = np.where(seen, value, np.inf).min(1)
            largest = np.where(seen, value, -np.inf).max(1)
            columns.append((f"{feature.name} mean", feature.name, True, _mean(value, counts)))
            for word, column in (("least", least), ("largest", largest), ("last", last)):
                columns.append(
                    (f"{feature.name} {word}", feature.name, False, np.where(some, column, np.nan))
                )
        columns.append((f"{feature.name} times", feature.name, False, counts / seen.shape[1]))
    clock = patients.schema.time
    columns.append((LENGTH, LENGTH, False, patients.lengths.double().numpy() / clock.steps))
    columns.append((f"{CLOCK} of last step", CLOCK, False, patients.increments.double().sum(1).numpy()))
    names, features, levels, rows = zip(*columns, strict=True)
    return Summary(columns=names, features=features, levels=np.array(levels), values=np.stack(rows, axis=1))


def _mean(total: NDArray[np.generic], counts: NDArray[np.int64]) -> Values:
    """Row sums over the counts, NaN where there is nothing to average."""
    sums = total.sum(1, dtype=np.float64)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def record_vectors(patients: Patients) -> NDArray[np.float32]:
    """Each patient as one vector, as the thesis compares them: static vector, then every step in turn.

    A step is its time increment and its values times their mask; what is missing, and padding, is 0.
    """
    steps = torch.cat([patients.increments[..., None], patients.step_vectors()], dim=2)
    vectors: NDArray[np.float32] = torch.cat([patients.static_vectors(), steps.flatten(1)], dim=1).numpy()
    return vectors


@dataclass(frozen=True, kw_only=True, eq=False)
class Scale:
    """Fills missing values with a mean and divides by a spread, both of one table and then used for all."""

    mean: Values
    spread: Values

    @classmethod
    def of(cls, table: Values) -> Scale:
        seen = ~np.isnan(table)
        counts = np.maximum(seen.sum(0), 1)
        mean = np.where(seen, table, 0.0).sum(0) / counts
        spread = np.sqrt(np.square(np.where(seen, table - mean, 0.0)).sum(0) / counts)
        return cls(mean=mean, spread=np.where(spread > 1e-6, spread, 1.0))

    def apply(self, table: Values) -> Values:
        """In spreads from the mean, missing ones at 0; five spreads are the farthest anything can be."""
        scaled: Values = np.clip((table - self.mean) / self.spread, -5.0, 5.0)
        return np.nan_to_num(scaled, nan=0.0)
