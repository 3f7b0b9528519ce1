"""Patients as one row of numbers each, on the common scale: what networks read and what they put out.

A row is ``static columns, static masks, T steps of (gap, value columns, masks, real)``. Numbers are standard
scores by the released quantiles (`hauberk.synthesis.scales`), levels one-hot, masks and ``real`` 0 or 1;
whatever is not observed, or padding, is 0: data times mask, and the mask beside it (004 section 4.2.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from hauberk.synthesis.patients import Patients
from hauberk.synthesis.scales import Scales
from hauberk.synthesis.schema import Categorical, Feature, Schema


@dataclass(frozen=True, kw_only=True)
class Columns:
    """One feature's columns, from ``start`` on, and its place among the masks."""

    start: int
    width: int
    categorical: bool
    mask: int

    @property
    def stop(self) -> int:
        return self.start + self.width


@dataclass(frozen=True, kw_only=True)
class RowShape:
    """Where everything lies in a packed row; of the schema alone, and therefore public."""

    static: tuple[Columns, ...]
    temporal: tuple[Columns, ...]
    steps: int
    outcome: Columns | None

    @classmethod
    def of(cls, schema: Schema) -> RowShape:
        static = _columns(schema.static, first=0)
        return cls(
            static=static,
            temporal=_columns(schema.temporal, first=1),
            steps=schema.time.steps,
            outcome=None if schema.outcome is None else static[schema.static_place(schema.outcome)],
        )

    def head_without_outcome(self) -> Tensor:
        """(head,): 1 for every static column and mask but the outcome's, for which it is 0."""
        kept = torch.ones(self.head)
        if self.outcome is not None:
            kept[self.outcome.start : self.outcome.stop] = 0.0
            kept[self.static_width + self.outcome.mask] = 0.0
        return kept

    def head_without_outcome_value(self) -> Tensor:
        """(head,): 1 for every static column and mask but the outcome's levels; its mask stays."""
        kept = torch.ones(self.head)
        if self.outcome is not None:
            kept[self.outcome.start : self.outcome.stop] = 0.0
        return kept

    @cached_property
    def static_width(self) -> int:
        return sum(each.width for each in self.static)

    @cached_property
    def value_width(self) -> int:
        return sum(each.width for each in self.temporal)

    @property
    def step_width(self) -> int:
        """gap, values, masks, real."""
        return 1 + self.value_width + len(self.temporal) + 1

    @property
    def head(self) -> int:
        """Static columns and their masks."""
        return self.static_width + len(self.static)

    @property
    def width(self) -> int:
        return self.head + self.steps * self.step_width

    def parts(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """``(n, head)`` and ``(n, T, step_width)``."""
        return rows[..., : self.head], rows[..., self.head :].reshape(
            *rows.shape[:-1], self.steps, self.step_width
        )

    def joined(self, head: Tensor, steps: Tensor) -> Tensor:
        """The inverse of :meth:`parts`."""
        return torch.cat([head, steps.flatten(-2)], -1)


def _columns(features: tuple[Feature, ...], *, first: int) -> tuple[Columns, ...]:
    found, start = [], first
    for place, feature in enumerate(features):
        categorical = isinstance(feature, Categorical)
        found.append(Columns(start=start, width=feature.width, categorical=categorical, mask=place))
        start += feature.width
    return tuple(found)


class Packing:
    """Patients to rows and back."""

    def __init__(self, scales: Scales) -> None:
        self.scales, self.schema = scales, scales.schema
        self.shape = RowShape.of(scales.schema)

    def pack(self, patients: Patients) -> Tensor:
        """(n, width) float32; each row is a function of its own patient and the released scales."""
        scales, ticks = self.scales, max(1, self.schema.time.ticks)
        static = self._scored(
            patients.static_vectors(), patients.static_observed, "static", self.shape.static, 0
        )
        values = self._scored(patients.step_vectors(), patients.observed, "values", self.shape.temporal, 1)
        gaps = scales.score_of(patients.increments, "gaps", ticks)
        gaps[:, 0] = scales.score_of(patients.increments[:, 0], "first", ticks)
        real = patients.real_steps.float()
        steps = torch.cat([(gaps * real)[..., None], values, patients.observed.float(), real[..., None]], -1)
        return self.shape.joined(torch.cat([static, patients.static_observed.float()], -1), steps)

    def unpack(self, rows: Tensor) -> Patients:
        """The patients that rows describe, as the schema allows them: post-processing."""
        scales, shape, ticks = self.scales, self.shape, max(1, self.schema.time.ticks)
        head, steps = shape.parts(rows)
        static = self._valued(head[..., : shape.static_width], "static", shape.static, 0)
        values = self._valued(steps[..., 1 : 1 + shape.value_width], "values", shape.temporal, 1)
        gaps = scales.value_of(steps[..., 0], "gaps", ticks)
        gaps[:, 0] = scales.value_of(steps[:, 0, 0], "first", ticks)
        real = steps[..., -1] >= 0.5
        lengths = real.int().cumprod(1).sum(1).clamp_min(1)
        seen = steps[..., 1 + shape.value_width : -1]
        return Patients.from_vectors(
            self.schema,
            static=static,
            static_observed=head[..., shape.static_width :],
            increments=gaps,
            values=values,
            observed=seen,
            lengths=lengths,
        )

    def _scored(
        self, vectors: Tensor, observed: Tensor, kind: str, columns: tuple[Columns, ...], first: int
    ) -> Tensor:
        scored = vectors.clone()
        for each, feature in zip(columns, self._features(kind), strict=True):
            if not each.categorical:
                place = each.start - first
                scores = self.scales.score_of(vectors[..., place], f"{kind}/{feature.name}", feature.cells)
                scored[..., place] = scores * observed[..., each.mask]
        return scored

    def _valued(self, scores: Tensor, kind: str, columns: tuple[Columns, ...], first: int) -> Tensor:
        values = scores.clone()
        for each, feature in zip(columns, self._features(kind), strict=True):
            if not each.categorical:
                place = each.start - first
                values[..., place] = self.scales.value_of(
                    scores[..., place], f"{kind}/{feature.name}", feature.cells
                )
        return values

    def _features(self, kind: str) -> tuple[Feature, ...]:
        return self.schema.static if kind == "static" else self.schema.temporal
