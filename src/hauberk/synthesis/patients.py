"""Patients as tensors: what synthesizers learn from, and what they must give back.

Shapes are public: they come from the schema, never from the longest stay. Everything lies in [0, 1] by the
schema's bounds except levels, which are their places in the schema's list (``*_vectors`` makes one-hot
columns of them).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from hauberk.data.validation import check_count
from hauberk.errors import RequestError
from hauberk.synthesis.schema import Categorical, Feature, Schema

_PATIENTS_AT_ONCE = 512


@dataclass(frozen=True, kw_only=True, eq=False)
class Patients:
    """n patients, T = ``schema.time.steps`` steps, S static and F temporal features.

    - ``static`` (n, S) float32 and ``static_observed`` (n, S) bool;
    - ``increments`` (n, T) float32: the time since the step before (for the first step since the patient's
      zero) as a share of the horizon;
    - ``values`` (n, T, F) float32 and ``observed`` (n, T, F) bool;
    - ``lengths`` (n,) int64 from 1 to T; steps from ``lengths`` on are padding;
    - ``identifiers``: one text per patient, from the file; 1 to n where nobody gave any.

    Numbers are k / ``feature.cells`` in [0, 1], levels are places 0, 1, ... as float32. Guaranteed once
    built: whatever is not observed, or padding, is exactly 0; every real step has an observed value; times
    increase strictly and end within the horizon (the first is 0 where the schema reads timestamps);
    everything lies on the schema's grids, so that ``encode(decode(patients))`` gives these tensors bit for
    bit. :meth:`from_vectors` makes such tensors of
    whatever a network puts out.
    """

    schema: Schema
    static: Tensor
    static_observed: Tensor
    increments: Tensor
    values: Tensor
    observed: Tensor
    lengths: Tensor
    identifiers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.identifiers:
            object.__setattr__(self, "identifiers", tuple(str(place + 1) for place in range(len(self))))
        self._check_shapes()
        self._check_content()

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def real_steps(self) -> Tensor:
        """(n, T) bool: which steps are there and not padding."""
        return _before(self.lengths, self.schema.time.steps)

    @property
    def times(self) -> Tensor:
        """(n, T) float64: the time of every step in the schema's unit; meaningless for padding."""
        ticks = (self.increments.double() * self.schema.time.ticks).round().cumsum(1)
        times: Tensor = self.schema.time.in_units(ticks)
        return times

    @property
    def outcome(self) -> Tensor:
        """(n,) int64: 1 where the schema's outcome happened, 0 where not, -1 where it is unknown."""
        if self.schema.outcome is None:
            raise RequestError(f"schema '{self.schema.name}' declares no outcome; name one.")
        place = self.schema.static_place(self.schema.outcome)
        return torch.where(self.static_observed[:, place], self.static[:, place].long(), -1)

    def select(self, rows: Tensor | Sequence[int]) -> Patients:
        """The patients at these places (or where a bool tensor is true), in this order."""
        places = torch.as_tensor(rows, device=self.lengths.device)
        if places.dtype == torch.bool:
            places = places.nonzero()[:, 0]
        places = places.long()
        identifiers = tuple(self.identifiers[place] for place in places.tolist())
        if not identifiers:
            raise RequestError("no patient was selected; select at least one.")
        return replace(
            self,
            static=self.static[places],
            static_observed=self.static_observed[places],
            increments=self.increments[places],
            values=self.values[places],
            observed=self.observed[places],
            lengths=self.lengths[places],
            identifiers=identifiers,
        )

    def first(self, count: int) -> Patients:
        """The first ``count`` patients, or all of them if there are fewer.

        Adding or removing a patient before the cut moves another one across it: cut public or test data, or
        before declaring the set.
        """
        check_count(count, at_least=1, named="the number of patients to keep")
        return self.select(torch.arange(min(count, len(self))))

    def split(self, share: float, *, seed: int) -> tuple[Patients, Patients]:
        """Two parts without a common patient, the first with about ``share`` of them (at least one each).

        A seeded shuffle of places: like :meth:`first`, to be done before the set is declared.
        """
        if not 0 < share < 1 or len(self) < 2:
            raise RequestError(
                f"{len(self)} patients cannot be split at {share:g}; the share must lie between 0 and 1 "
                "and there must be two patients."
            )
        order = torch.randperm(len(self), generator=torch.Generator().manual_seed(seed))
        cut = min(max(round(share * len(self)), 1), len(self) - 1)
        return self.select(order[:cut]), self.select(order[cut:])

    def to(self, device: torch.device | str) -> Patients:
        """The same patients on another device."""
        tensors = ("static", "static_observed", "increments", "values", "observed", "lengths")
        return replace(self, **{name: getattr(self, name).to(device) for name in tensors})

    def static_vectors(self) -> Tensor:
        """(n, ``schema.static_width``) float32: numbers as they are, levels one-hot; zeros where missing."""
        return _vectors(self.static, self.static_observed, self.schema.static)

    def step_vectors(self) -> Tensor:
        """(n, T, ``schema.temporal_width``) float32: numbers, levels one-hot; zeros where missing."""
        return _vectors(self.values, self.observed, self.schema.temporal)

    @classmethod
    def from_vectors(
        cls,
        schema: Schema,
        *,
        static: Tensor,
        static_observed: Tensor,
        increments: Tensor,
        values: Tensor,
        observed: Tensor,
        lengths: Tensor,
        identifiers: tuple[str, ...] = (),
    ) -> Patients:
        """The nearest patients that the schema allows, from vectors shaped as ``*_vectors`` give them.

        ``static`` (n, static_width) and ``values`` (n, T, temporal_width) are cut to [0, 1] and put on their
        grids; of a level's columns the largest wins. ``static_observed`` (n, S) and ``observed`` (n, T, F)
        are bool, or scores of which 0.5 and more count. Steps in which nothing is observed are taken out (a
        patient without any observed value keeps the one of highest score), increments become at least one
        tick, and steps beyond the horizon are cut. Not-a-number is refused: it is a failed network, not
        a patient. A function of the given tensors and the schema alone: post-processing.
        """
        for name, tensor in (("static", static), ("increments", increments), ("values", values)):
            if not bool(torch.isfinite(tensor).all()):
                raise RequestError(f"generated {name} are not finite; the network has diverged.")
        steps = _before(lengths.long().clamp(1, schema.time.steps), schema.time.steps)
        seen = _observed_steps(observed, steps)
        ticks, seen, values, length = _settled(schema, increments, seen, values)
        static_seen = static_observed if static_observed.dtype == torch.bool else static_observed >= 0.5
        return cls(
            schema=schema,
            static=_from_vectors(static, static_seen, schema.static),
            static_observed=static_seen,
            increments=(ticks.double() / schema.time.ticks).float(),
            values=_from_vectors(values, seen, schema.temporal),
            observed=seen,
            lengths=length,
            identifiers=identifiers,
        )

    def _check_shapes(self) -> None:
        patients, steps = len(self), self.schema.time.steps
        static, temporal = len(self.schema.static), len(self.schema.temporal)
        expected = {
            "static": ((patients, static), torch.float32),
            "static_observed": ((patients, static), torch.bool),
            "increments": ((patients, steps), torch.float32),
            "values": ((patients, steps, temporal), torch.float32),
            "observed": ((patients, steps, temporal), torch.bool),
            "lengths": ((patients,), torch.int64),
        }
        if patients == 0:
            raise RequestError(f"there is no patient for schema '{self.schema.name}'; give at least one.")
        for name, (shape, dtype) in expected.items():
            tensor: Tensor = getattr(self, name)
            if tuple(tensor.shape) != shape or tensor.dtype != dtype:
                raise RequestError(
                    f"{name} of the patients has shape {tuple(tensor.shape)} and type {tensor.dtype}, but "
                    f"schema '{self.schema.name}' needs {shape} and {dtype}; build them with from_vectors."
                )
        if len(self.identifiers) != patients or len(set(self.identifiers)) != patients:
            raise RequestError("each patient needs an identifier of its own; leave them out to number them.")

    def _check_content(self) -> None:
        clock = self.schema.time
        if int(self.lengths.min()) < 1 or int(self.lengths.max()) > clock.steps:
            raise RequestError(f"lengths must lie between 1 and {clock.steps}; build with from_vectors.")
        ticks = (self.increments.double() * clock.ticks).round()
        problems = {
            "a value that is not observed or is padding is not 0": (
                self.values[~self.observed].any()
                | self.static[~self.static_observed].any()
                | self.increments[~self.real_steps].any()
            ),
            "a step has nothing observed, or padding has": (self.observed.any(2) != self.real_steps).any(),
            "the times of a patient do not increase": (ticks[:, 1:] < 1)[self.real_steps[:, 1:]].any()
            | (ticks < 0).any(),
            "a time lies beyond the horizon": (ticks.sum(1) > clock.ticks).any(),
            "a first timestamp is not the patient's zero": (
                (ticks[:, 0] != 0) & (clock.format == "timestamp")
            ).any(),
            "an increment is not a whole number of ticks": (
                (ticks / clock.ticks).float() != self.increments
            ).any(),
            "a value is off its feature's grid": (
                self.values != _gridded(self.values, self.schema.temporal)
            ).any()
            | (self.static != _gridded(self.static, self.schema.static)).any(),
        }
        for problem, found in problems.items():
            if bool(found):
                raise RequestError(f"in these patients {problem}; build them with Patients.from_vectors.")


def _before(lengths: Tensor, steps: int) -> Tensor:
    return torch.arange(steps, device=lengths.device) < lengths[:, None]


def _gridded(tensor: Tensor, features: tuple[Feature, ...]) -> Tensor:
    """Every value moved to the nearest one that its feature can have; the last axis is the features."""
    if not features:
        return tensor
    cells = torch.tensor([max(feature.cells, 1) for feature in features], dtype=torch.float64)
    levels = torch.tensor([isinstance(feature, Categorical) for feature in features])
    cells, levels = cells.to(tensor.device), levels.to(tensor.device)
    top = torch.tensor([feature.cells for feature in features], dtype=torch.float64, device=tensor.device)

    def nearest(part: Tensor) -> Tensor:
        # numbers are k / cells, levels are 0 to cells: one rounding on the scale k, then each back to its own
        exact = part.double()
        places = torch.where(levels, exact, exact * cells).round()
        places = torch.minimum(places.clamp_min(0), top)
        return torch.where(levels, places, places / cells).float()

    # float64 is needed for exactness and is large: some patients at a time
    return torch.cat([nearest(part) for part in tensor.split(_PATIENTS_AT_ONCE)])


def _vectors(tensor: Tensor, observed: Tensor, features: tuple[Feature, ...]) -> Tensor:
    columns = []
    for place, feature in enumerate(features):
        column, seen = tensor[..., place], observed[..., place]
        if isinstance(feature, Categorical):
            columns.append(one_hot(column.long(), len(feature.levels)).float() * seen[..., None])
        else:
            columns.append(column[..., None])
    return torch.cat(columns, -1) if columns else tensor.new_zeros(*tensor.shape[:-1], 0)


def _from_vectors(vectors: Tensor, observed: Tensor, features: tuple[Feature, ...]) -> Tensor:
    """The inverse of :func:`_vectors`, on the grid and zero where not observed."""
    columns, start = [], 0
    for feature in features:
        part = vectors[..., start : start + feature.width]
        categorical = isinstance(feature, Categorical)
        columns.append(part.argmax(-1).float() if categorical else part[..., 0].float())
        start += feature.width
    if vectors.shape[-1] != start:
        raise RequestError(
            f"vectors have {vectors.shape[-1]} columns, but the schema's features need {start}."
        )
    if not columns:
        return vectors.new_zeros(observed.shape, dtype=torch.float32)
    return torch.where(observed, _gridded(torch.stack(columns, -1), features), 0.0)


def _observed_steps(observed: Tensor, steps: Tensor) -> Tensor:
    """Which cells count as observed; at least one of every patient does."""
    scores = torch.where(steps[..., None], observed.float(), -math.inf)
    seen = scores >= 0.5
    highest = scores.flatten(1).argmax(1)
    rescued = one_hot(highest, scores[0].numel()).bool().view_as(seen)
    return torch.where(seen.flatten(1).any(1)[:, None, None], seen, rescued)


def _settled(
    schema: Schema, increments: Tensor, seen: Tensor, values: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Ticks, observed cells, values and lengths with empty steps taken out and times within the horizon."""
    clock = schema.time
    steps = seen.any(2)
    wanted = (increments.double().clamp(0, 1) * clock.ticks).round()
    wanted[:, 1:] = wanted[:, 1:].clamp_min(1)
    moments = wanted.cumsum(1)
    steps = steps & (moments <= clock.ticks)
    # who would lose every step (nothing seen before the horizon) keeps the first seen one, at the horizon
    lost = ~steps.any(1)
    first_seen = seen.any(2).int().argmax(1)
    steps[lost, first_seen[lost]] = True
    moments = moments.clamp_max(clock.ticks)
    # a stable sort brings the remaining steps to the front in their order
    order = torch.argsort((~steps).int(), dim=1, stable=True)
    length = steps.sum(1)
    real = _before(length, clock.steps)
    moments = torch.where(real, moments.gather(1, order), 0.0)
    ticks = torch.where(
        real, moments - torch.cat([torch.zeros_like(moments[:, :1]), moments[:, :-1]], 1), 0.0
    )
    seen = seen.gather(1, order[..., None].expand_as(seen)) & real[..., None]
    values = values.gather(1, order[..., None].expand_as(values))
    if clock.format == "timestamp":  # such a clock begins with the patient's first row
        ticks[:, 0] = 0
    return ticks, seen, values, length
