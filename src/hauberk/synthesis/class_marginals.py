"""Histograms by class of the outcome, released once, and patients sampled from them independently.

A patient contributes one vector of l2 norm at most 1 (proof in `hauberk.synthesis.bounded_release`): for each
block the patient's own histogram, which sums to at most 1, at the place of the patient's class. The release
is one Gaussian release with sensitivity 1. Everything after is post-processing:

- a class's histogram is drawn towards the pooled one by as much as its noise explains of their difference,
  wave by wave, so that noise is not taken for a sign of the outcome;
- features are sampled independently given the class. Along time a patient keeps a rank: values of all steps
  are quantiles of correlated normals (a public correlation), which leaves each marginal as it is.

How often a feature is observed does not depend on the class here: counts of measurements rise and fall
together in reality, and sampled independently they would shout down the values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from hauberk.errors import RequestError
from hauberk.randomness import Randomness
from hauberk.synthesis.bounded_release import Block, Layout, release
from hauberk.synthesis.patients import Patients
from hauberk.synthesis.scales import Scales, clock_edges, own_histogram
from hauberk.synthesis.schema import Categorical, Feature, Schema

PRESENCE_EDGES = (1e-6, 0.1, 0.25, 0.5, 0.75, 0.95)
"""Shares of a window's steps in which a feature is observed: none, a tenth, ..., nearly all."""


@dataclass(frozen=True, kw_only=True)
class MarginalsSettings:
    """Public constants of the second release and of sampling.

    ``windows`` parts of the horizon and ``value_bins`` bins of equal pooled mass; ``scales_share`` of the
    budget (of ``mu^2``) goes to the scales. Importances are relative to values that every patient has, at
    ``least_importance`` for those that nobody has. ``doubt`` noise variances must be exceeded before a
    difference between classes is believed; ``rank_correlation`` is that of one feature along time.
    """

    windows: int = 4
    value_bins: int = 8
    scales_share: float = 0.15
    rank_correlation: float = 0.9
    presence_importance: float = 0.5
    static_importance: float = 2.0
    doubt: float = 2.0
    least_importance: float = 0.25

    def __post_init__(self) -> None:
        if self.windows < 1 or self.value_bins < 2:
            raise RequestError("marginals need at least one window of time and two bins of values.")
        if not 0 < self.scales_share < 1 or not 0 <= self.rank_correlation < 1:
            raise RequestError("scales_share and rank_correlation of marginals must lie between 0 and 1.")


class ClassMarginals:
    """The second release and the way from it to patients."""

    def __init__(
        self,
        scales: Scales,
        counts: Mapping[str, Tensor],
        *,
        settings: MarginalsSettings,
        noise_multiplier: float,
    ) -> None:
        self.scales, self.counts, self.settings = scales, dict(counts), settings
        self.noise_multiplier, self.schema = noise_multiplier, scales.schema
        self._layout = class_layout(scales, settings)
        self._known: dict[str, Tensor] = {}
        for block in self._layout.blocks:
            if block.name not in self.counts or len(self.counts[block.name]) != block.width:
                raise RequestError(f"these marginals lack '{block.name}': they belong to another schema.")

    @classmethod
    def release(
        cls,
        patients: Patients,
        scales: Scales,
        *,
        settings: MarginalsSettings,
        noise_multiplier: float,
        randomness: Randomness,
        step: int,
    ) -> ClassMarginals:
        """One Gaussian release with this noise multiplier, for adding or removing one patient."""
        counts = release(
            patients,
            class_layout(scales, settings),
            lambda some: class_contributions(some, scales, settings),
            noise_multiplier=noise_multiplier,
            randomness=randomness,
            step=step,
        )
        return cls(scales, counts, settings=settings, noise_multiplier=noise_multiplier)

    def pooled_shares(self, block: str) -> Tensor:
        """(bins,): probabilities over all classes; what the noise alone could have made counts as nothing."""
        return self._pooled(self.counts[block], self._deviation(block))

    def shares(self, block: str) -> Tensor:
        """(classes, bins): probabilities, each class drawn towards the pooled ones by its noise."""
        if block not in self._known:
            self._known[block] = self._drawn(block)
        return self._known[block]

    def _drawn(self, block: str) -> Tensor:
        classes = classes_of(self.schema)
        counts, deviation = self.counts[block].view(classes, -1), self._deviation(block)
        pooled = self._pooled(counts.sum(0), deviation * classes**0.5)
        expected = counts.sum(1, keepdim=True).clamp_min(0.0) * pooled
        waves = _waves(counts.shape[1])
        difference = (counts - expected) @ waves
        believed = (1 - self.settings.doubt * deviation**2 / difference.square().clamp_min(1e-12)).clamp_min(
            0.0
        )
        drawn = (expected + (believed * difference) @ waves.T).clamp_min(0.0)
        mass = drawn.sum(1, keepdim=True)
        return torch.where(mass > 0, drawn / mass.clamp_min(1e-12), pooled)

    def _deviation(self, block: str) -> float:
        return self.noise_multiplier / self._layout.weight(block)

    def _pooled(self, counts: Tensor, deviation: float) -> Tensor:
        kept = torch.where(counts > 2 * deviation, counts, 0.0)
        if not bool(kept.any()):  # nothing to be seen above the noise
            kept = torch.zeros_like(counts)
            kept[0] = 1.0
        return kept / kept.sum()

    def sample(self, count: int, generator: torch.Generator) -> Patients:
        """``count`` patients; post-processing."""
        schema = self.schema
        chance = _Chance(generator)
        kinds = self._outcomes(count, chance)
        static, static_seen = self._static(kinds, chance)
        increments, lengths = self._times(count, chance)
        windows = _windows(increments, self.settings.windows)
        values, seen = [], []
        for feature in schema.temporal:
            presence = self._presence(feature, windows, chance)
            # values that nobody can tell from noise are not made up: the feature stays unobserved
            seen.append(presence if self.scales.visible(feature.name) else torch.zeros_like(presence))
            values.append(self._values(feature, kinds, windows, chance))
        return Patients.from_vectors(
            schema,
            static=static,
            static_observed=static_seen,
            increments=increments,
            values=torch.cat(values, -1),
            observed=torch.stack(seen, -1),
            lengths=lengths,
        )

    def _outcomes(self, count: int, chance: _Chance) -> Tensor:
        counts, deviation = self.counts["classes"], self._deviation("classes")
        shares = torch.where(counts > 2 * deviation, counts, 0.0)
        if not bool(shares.any()):
            shares = torch.ones_like(shares)
        return chance.places(shares, (count,))

    def _static(self, kinds: Tensor, chance: _Chance) -> tuple[Tensor, Tensor]:
        columns, seen = [], []
        for feature in self.schema.static:
            if feature.name == self.schema.outcome:
                assert isinstance(feature, Categorical)
                known = kinds < 2
                columns.append(one_hot(kinds.clamp_max(1), 2).double() * known[:, None])
            else:
                places = chance.places_by_row(self.shares(f"static/{feature.name}")[kinds])
                width = _value_width(feature, self.settings)
                known = places < width
                columns.append(self._within(feature, places.clamp_max(width - 1), "static", chance))
            seen.append(known)
        empty = torch.zeros(len(kinds), 0)
        return (
            torch.cat(columns, 1).float() if columns else empty,
            torch.stack(seen, 1) if seen else empty.bool(),
        )

    def _within(self, feature: Feature, places: Tensor, kind: str, chance: _Chance) -> Tensor:
        """Columns of a feature from its bins: one-hot, or a number drawn within the bin's quantiles."""
        if isinstance(feature, Categorical):
            return one_hot(places, len(feature.levels)).double()
        quantile = (places + chance.uniform(places.shape)) / self.settings.value_bins
        return self.scales.value_at(quantile, f"{kind}/{feature.name}", feature.cells)[..., None]

    def _times(self, count: int, chance: _Chance) -> tuple[Tensor, Tensor]:
        steps, edges = self.schema.time.steps, clock_edges(self.schema)
        ticks = max(1, self.schema.time.ticks)
        lengths = chance.places(self.scales.shares("lengths"), (count,)) + 1
        gaps = chance.places(self.scales.shares("gaps"), (count, steps))
        gaps[:, 0] = chance.places(self.scales.shares("first"), (count,))
        inside = edges[gaps] + chance.uniform(gaps.shape) * (edges[gaps + 1] - edges[gaps])
        # a bin may hold several ticks; its edges lie half a tick beside them
        return ((inside * ticks).round() / ticks).clamp(0.0, 1.0).float(), lengths

    def _presence(self, feature: Feature, windows: Tensor, chance: _Chance) -> Tensor:
        count = len(windows)
        rank = chance.uniform((count, 1)).expand(-1, self.settings.windows)
        shares = []
        for window in range(self.settings.windows):
            below = self.pooled_shares(f"presence/{feature.name}/{window}").cumsum(0).expand(count, -1)
            place = (below < rank[:, window, None] * below[:, -1:]).sum(1).clamp_max(below.shape[1] - 1)
            low = torch.tensor((0.0, *PRESENCE_EDGES), dtype=torch.float64)[place]
            high = torch.tensor((0.0, *PRESENCE_EDGES[1:], 1.0), dtype=torch.float64)[place]
            shares.append(low + chance.uniform(low.shape) * (high - low))
        probability = torch.stack(shares, 1).gather(1, windows)
        return chance.uniform(windows.shape) < probability

    def _values(self, feature: Feature, kinds: Tensor, windows: Tensor, chance: _Chance) -> Tensor:
        correlation = self.settings.rank_correlation
        own, fresh = chance.normals((len(kinds), 1)), chance.normals(windows.shape)
        rank = torch.special.ndtr(correlation * own + (1 - correlation**2) ** 0.5 * fresh)
        places = torch.zeros(windows.shape, dtype=torch.int64)
        left = torch.zeros(windows.shape, dtype=torch.float64)
        for window in range(self.settings.windows):
            shares = self.shares(f"values/{feature.name}/{window}")
            below = torch.cat([torch.zeros(len(shares), 1, dtype=torch.float64), shares.cumsum(1)], 1)[kinds]
            below[:, -1] = 1.0
            place = torch.searchsorted(below[:, 1:-1].contiguous(), rank)
            width = (below.gather(1, place + 1) - below.gather(1, place)).clamp_min(1e-12)
            inside = ((rank - below.gather(1, place)) / width).clamp(0.0, 1.0)
            here = windows == window
            places, left = torch.where(here, place, places), torch.where(here, inside, left)
        if isinstance(feature, Categorical):
            return one_hot(places, len(feature.levels)).float()
        quantile = (places + left) / self.settings.value_bins
        return self.scales.value_at(quantile, f"values/{feature.name}", feature.cells)[..., None].float()


class _Chance:
    """Random numbers for sampling, which costs no privacy."""

    def __init__(self, generator: torch.Generator) -> None:
        self._generator = generator

    def uniform(self, shape: tuple[int, ...]) -> Tensor:
        return torch.rand(*shape, generator=self._generator, dtype=torch.float64)

    def normals(self, shape: tuple[int, ...]) -> Tensor:
        return torch.randn(*shape, generator=self._generator, dtype=torch.float64)

    def places(self, probabilities: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Places by one distribution for all."""
        below = probabilities.cumsum(0)
        drawn = self.uniform(shape) * below[-1]
        return torch.searchsorted(below, drawn, right=True).clamp_max(len(below) - 1)

    def places_by_row(self, probabilities: Tensor) -> Tensor:
        """One place for each row by the row's own distribution."""
        below = probabilities.cumsum(1)
        drawn = self.uniform((len(below), 1)) * below[:, -1:]
        return torch.searchsorted(below, drawn, right=True).clamp_max(below.shape[1] - 1)[:, 0]


def _waves(bins: int) -> Tensor:
    """(bins, bins): an orthonormal basis of cosines, from constant to fast.

    Neighbouring bins are much alike: a difference between classes lies in the first few, noise in all.
    """
    place = (torch.arange(bins, dtype=torch.float64) + 0.5) / bins
    waves = torch.cos(torch.pi * place[:, None] * torch.arange(bins))
    basis: Tensor = waves / torch.linalg.vector_norm(waves, dim=0)
    return basis


def classes_of(schema: Schema) -> int:
    """Two outcomes and the unknown one; a schema without an outcome has one class."""
    return 1 if schema.outcome is None else 3


def _kinds(patients: Patients) -> Tensor:
    if patients.schema.outcome is None:
        return torch.zeros(len(patients), dtype=torch.int64)
    return torch.where(patients.outcome < 0, 2, patients.outcome)


def _value_width(feature: Feature, settings: MarginalsSettings) -> int:
    return len(feature.levels) if isinstance(feature, Categorical) else settings.value_bins


def _windows(increments: Tensor, windows: int) -> Tensor:
    """(n, T): the window in which each step's time lies."""
    time = increments.double().cumsum(1)
    return (time * windows * (1 + 1e-9)).long().clamp(0, windows - 1)


def class_layout(scales: Scales, settings: MarginalsSettings) -> Layout:
    """The blocks of the release by class; a feature that few patients have gets less of their unit."""
    schema = scales.schema
    classes = classes_of(schema)
    blocks = [Block(name="classes", width=classes)]
    blocks += [
        Block(
            name=f"static/{each.name}",
            width=classes * (_value_width(each, settings) + 1),
            importance=settings.static_importance,
        )
        for each in schema.static
        if each.name != schema.outcome
    ]
    for each in schema.temporal:
        for window in range(settings.windows):
            blocks += [
                Block(
                    name=f"presence/{each.name}/{window}",
                    width=len(PRESENCE_EDGES) + 1,
                    importance=settings.presence_importance,
                ),
                Block(
                    name=f"values/{each.name}/{window}",
                    width=classes * _value_width(each, settings),
                    importance=settings.least_importance
                    + (1 - settings.least_importance) * scales.coverage(each.name),
                ),
            ]
    return Layout(blocks)


def class_contributions(patients: Patients, scales: Scales, settings: MarginalsSettings) -> dict[str, Tensor]:
    """What each patient puts into the blocks of `class_layout`; every block has l2 norm at most 1.

    A block is the patient's own histogram (it sums to at most 1) at the place of the patient's class.
    """
    schema, kinds = patients.schema, _kinds(patients)
    classes = classes_of(schema)

    def by_class(histogram: Tensor) -> Tensor:
        return (one_hot(kinds, classes)[:, :, None] * histogram[:, None].double()).flatten(1)

    parts = {"classes": one_hot(kinds, classes)}
    for place, feature in enumerate(schema.static):
        if feature.name == schema.outcome:
            continue
        width = _value_width(feature, settings)
        bins = _coarse_bins(patients.static[:, place], feature, "static", scales, settings)
        bins = torch.where(patients.static_observed[:, place], bins, width)
        parts[f"static/{feature.name}"] = by_class(one_hot(bins, width + 1))
    windows, real = _windows(patients.increments, settings.windows), patients.real_steps
    inner = torch.tensor(PRESENCE_EDGES, dtype=torch.float64)
    for place, feature in enumerate(schema.temporal):
        bins = _coarse_bins(patients.values[..., place], feature, "values", scales, settings)
        for window in range(settings.windows):
            here = (windows == window) & real
            seen = here & patients.observed[..., place]
            share = seen.double().sum(1) / here.double().sum(1).clamp_min(1.0)
            presence = one_hot(torch.bucketize(share, inner, right=True), len(inner) + 1)
            # who has no step in a window says nothing about it
            parts[f"presence/{feature.name}/{window}"] = presence * here.any(1)[:, None]
            parts[f"values/{feature.name}/{window}"] = by_class(
                own_histogram(bins, seen, _value_width(feature, settings))
            )
    return parts


def _coarse_bins(
    values: Tensor, feature: Feature, kind: str, scales: Scales, settings: MarginalsSettings
) -> Tensor:
    """Levels, or which of the bins of equal pooled mass a number lies in."""
    if isinstance(feature, Categorical):
        return values.long()
    quantile = scales.quantile_of(values, f"{kind}/{feature.name}", feature.cells)
    return (quantile * settings.value_bins).long().clamp(0, settings.value_bins - 1)
