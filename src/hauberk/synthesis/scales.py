"""The common scale of all features, from one small private release: quantiles instead of minimum and maximum.

The bounds of a schema are wide (a liver enzyme lies between 0 and 20,000 and is 30 for most), so networks and
histograms need to know where the values are. 004 takes minima and maxima of the training records, which tell
about the very patient they come from. Here pooled histograms over public bins are released once, with noise:
every patient contributes one vector of l2 norm at most 1 (`hauberk.synthesis.bounded_release`), and all that
follows is made of the noisy counts.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.functional import avg_pool1d, one_hot

from hauberk.errors import RequestError
from hauberk.randomness import Randomness
from hauberk.synthesis.bounded_release import Block, Layout, release
from hauberk.synthesis.patients import Patients
from hauberk.synthesis.schema import Categorical, Feature, Schema

UNIFORM_BINS = 48
LOGARITHMIC_BINS = 32
SMALLEST_EDGE = 1e-5
SPREAD = 2.5  # standard scores are cut here: 1 % of a normal distribution lies beyond
_FLOOR = 1e-9
_NEIGHBOURS = (1, 3, 7, 13)  # bins that are averaged where single ones drown in noise
_SEEN = 0.8  # share of a block's counts that must stand out from the noise


def public_edges(cells: int) -> Tensor:
    """Edges in [0, 1] of bins for numbers on the grid ``k / cells``: even ones, and finer ones near 0.

    Each bin holds at least one place of the grid, in its half-open cell ``[k - 1/2, k + 1/2) / cells``.
    """
    even = torch.linspace(0, 1, UNIFORM_BINS + 1, dtype=torch.float64)
    fine = torch.logspace(math.log10(SMALLEST_EDGE), 0, LOGARITHMIC_BINS + 1, dtype=torch.float64)
    wanted = torch.cat([even, fine])
    places = (wanted * cells).floor().clamp(0, cells).unique()  # edges between places of the grid
    inner = (places[places > 0] - 0.5) / cells
    return torch.cat([torch.tensor([-0.5 / cells]), inner, torch.tensor([1 + 0.5 / cells])]).double()


def bins_of(values: Tensor, edges: Tensor) -> Tensor:
    """The bin of every value in [0, 1]."""
    inner = edges[1:-1].contiguous()
    return torch.bucketize(values.double().contiguous(), inner, right=True)


def own_histogram(bins: Tensor, observed: Tensor, width: int) -> Tensor:
    """(n, width): the share of each patient's observed entries in each bin; zeros where there is none.

    ``bins`` and ``observed`` are (n, ...). Sums to at most 1, so its l2 norm is at most 1.
    """
    rows = len(bins)
    counts = torch.zeros(rows, width, dtype=torch.float64)
    counts.scatter_add_(1, bins.reshape(rows, -1), observed.reshape(rows, -1).double())
    return counts / counts.sum(1, keepdim=True).clamp_min(1.0)


def _above_noise(counts: Tensor, deviation: float) -> Tensor:
    """Counts above what the largest of as many noises is likely to reach, ``sqrt(2 log width)``; else 0."""
    likely = deviation * (0.5 + math.sqrt(2 * math.log(max(2, len(counts)))))
    return torch.where(counts > max(likely, _FLOOR), counts, 0.0)


def _fine_width(feature: Feature) -> int:
    return len(feature.levels) if isinstance(feature, Categorical) else len(edges_of(feature.cells)) - 1


@functools.lru_cache(maxsize=512)
def edges_of(cells: int) -> Tensor:
    return public_edges(cells)


def fine_bins(values: Tensor, feature: Feature) -> Tensor:
    return values.long() if isinstance(feature, Categorical) else bins_of(values, edges_of(feature.cells))


def clock_edges(schema: Schema) -> Tensor:
    return edges_of(max(1, schema.time.ticks))


class Scales:
    """What was released: a patient's usual values by feature, how often each is there, lengths and gaps.

    ``counts`` are noisy and by block: ``static/NAME`` (the last place counts the missing), ``values/NAME``,
    ``presence`` (share of all steps, one place a feature), ``lengths`` and ``gaps``, ``first`` (the time of
    the first step). ``deviation`` is the release's noise over a block's weight of one.
    """

    def __init__(self, schema: Schema, counts: Mapping[str, Tensor], *, noise_multiplier: float) -> None:
        self.schema, self.counts = schema, dict(counts)
        self.noise_multiplier = noise_multiplier
        layout = scales_layout(schema)
        for block in layout.blocks:
            if block.name not in self.counts or len(self.counts[block.name]) != block.width:
                raise RequestError(f"these scales lack '{block.name}': they belong to another schema.")
        self._layout = layout
        self._quantiles: dict[str, Tensor] = {}

    @classmethod
    def release(
        cls, patients: Patients, *, noise_multiplier: float, randomness: Randomness, step: int
    ) -> Scales:
        """One Gaussian release with this noise multiplier, for adding or removing one patient."""
        schema = patients.schema
        counts = release(
            patients,
            scales_layout(schema),
            pooled_contributions,
            noise_multiplier=noise_multiplier,
            randomness=randomness,
            step=step,
        )
        return cls(schema, counts, noise_multiplier=noise_multiplier)

    def shares(self, block: str) -> Tensor:
        """The block's counts as probabilities; what the noise alone could have made counts as nothing."""
        kept = self._believed(block)
        return kept / kept.sum() if bool(kept.any()) else torch.full_like(kept, 1 / len(kept))

    def _believed(self, block: str) -> Tensor:
        return _above_noise(self.counts[block], self.noise_multiplier / self._layout.weight(block))

    def _smoothed(self, block: str, bins: int) -> Tensor:
        """Counts of ordered bins, averaged over no more neighbours than it takes to see most of them."""
        counts, deviation = self.counts[block][:bins], self.noise_multiplier / self._layout.weight(block)
        kept = counts
        for width in _NEIGHBOURS:
            average = avg_pool1d(counts[None], width, stride=1, padding=width // 2, count_include_pad=False)[
                0
            ]
            kept = _above_noise(average, deviation / math.sqrt(width))
            if float(kept.sum()) >= _SEEN * float(counts.sum()):
                break
        return kept

    @property
    def presence(self) -> Tensor:
        """(F,): the share of a patient's steps in which a feature is observed, averaged over patients."""
        counts = self.counts["presence"]
        return (counts[:-1] / counts[-1].clamp_min(1.0)).clamp(0.0, 1.0)

    def coverage(self, name: str) -> float:
        """About which share of the patients has the temporal feature observed at all."""
        patients = float(self.counts["lengths"].sum().clamp_min(1.0))
        return min(1.0, max(0.0, float(self.counts[f"values/{name}"].sum()) / patients))

    def visible(self, name: str) -> bool:
        """Whether anything of the temporal feature's values stands out from the noise."""
        feature = self.schema.temporal[self.schema.temporal_place(name)]
        block = f"values/{name}"
        if isinstance(feature, Categorical):
            return bool(self._believed(block).any())
        return bool(self._smoothed(block, len(self.counts[block])).any())

    def quantile_of(self, values: Tensor, block: str, cells: int) -> Tensor:
        """Where values in [0, 1] lie in the pooled distribution, in [0, 1] (linear within a bin)."""
        edges, below = edges_of(cells), self._below(block, cells)
        bins = bins_of(values, edges)
        inside = (values.double() - edges[bins]) / (edges[bins + 1] - edges[bins])
        return below[bins] + inside * (below[bins + 1] - below[bins])

    def value_at(self, quantile: Tensor, block: str, cells: int) -> Tensor:
        """The inverse of :meth:`quantile_of`, cut to [0, 1]."""
        edges, below = edges_of(cells), self._below(block, cells)
        place = quantile.double().clamp(0.0, 1.0).contiguous()
        bins = torch.searchsorted(below[1:-1].contiguous(), place)
        width = (below[bins + 1] - below[bins]).clamp_min(1e-12)
        inside = ((place - below[bins]) / width).clamp(0.0, 1.0)
        return (edges[bins] + inside * (edges[bins + 1] - edges[bins])).clamp(0.0, 1.0)

    def score_of(self, values: Tensor, block: str, cells: int) -> Tensor:
        """Standard scores: the normal distribution's value at the same quantile, cut at `SPREAD`."""
        quantile = self.quantile_of(values, block, cells).clamp(1e-4, 1 - 1e-4)
        scores: Tensor = torch.special.ndtri(quantile)
        return scores.clamp(-SPREAD, SPREAD).float()

    def value_of(self, scores: Tensor, block: str, cells: int) -> Tensor:
        """The inverse of :meth:`score_of`."""
        return self.value_at(torch.special.ndtr(scores.double()), block, cells).float()

    def _below(self, block: str, cells: int) -> Tensor:
        """The pooled distribution function at the bins' edges, strictly increasing."""
        if block not in self._quantiles:
            shares = self._smoothed(block, len(edges_of(cells)) - 1)  # without the place of the missing
            shares = shares + max(float(shares.sum()), 1.0) * 1e-4 / len(shares)
            below = (shares / shares.sum()).cumsum(0)
            self._quantiles[block] = torch.cat([torch.zeros(1, dtype=torch.float64), below / below[-1]])
        return self._quantiles[block]


@functools.lru_cache(maxsize=16)
def scales_layout(schema: Schema) -> Layout:
    """The blocks of the pooled release."""
    blocks = [Block(name=f"static/{each.name}", width=_fine_width(each) + 1) for each in schema.static]
    blocks += [Block(name=f"values/{each.name}", width=_fine_width(each)) for each in schema.temporal]
    width = len(edges_of(max(1, schema.time.ticks))) - 1
    blocks += [
        # a patient's shares lie in [0, 1], and the last place is 1: divided by the root of their number
        Block(name="presence", width=len(schema.temporal) + 1, importance=4.0),
        Block(name="lengths", width=schema.time.steps, importance=2.0),
        Block(name="gaps", width=width, importance=2.0),
        Block(name="first", width=width, importance=2.0),
    ]
    return Layout(blocks)


def pooled_contributions(patients: Patients) -> dict[str, Tensor]:
    """What each patient puts into the blocks of `scales_layout`; every block has l2 norm at most 1."""
    schema, parts = patients.schema, {}
    for place, feature in enumerate(schema.static):
        width = _fine_width(feature)
        bins = fine_bins(patients.static[:, place], feature)
        bins = torch.where(patients.static_observed[:, place], bins, width)
        parts[f"static/{feature.name}"] = one_hot(bins, width + 1)
    for place, feature in enumerate(schema.temporal):
        bins = fine_bins(patients.values[..., place], feature)
        parts[f"values/{feature.name}"] = own_histogram(
            bins, patients.observed[..., place], _fine_width(feature)
        )
    real = patients.real_steps
    shares = patients.observed.double().sum(1) / patients.lengths[:, None]
    presence = torch.cat([shares, torch.ones(len(patients), 1, dtype=torch.float64)], 1)
    parts["presence"] = presence / presence.shape[1] ** 0.5
    parts["lengths"] = one_hot(patients.lengths - 1, schema.time.steps)
    bins = bins_of(patients.increments, clock_edges(schema))
    width = len(clock_edges(schema)) - 1
    later = real.clone()
    later[:, 0] = False
    parts["gaps"] = own_histogram(bins, later, width)
    parts["first"] = one_hot(bins[:, 0], width)
    return parts
