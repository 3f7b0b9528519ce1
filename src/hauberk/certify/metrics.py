"""What a certified test set says: accuracies, radii, abstentions and draws, with their uncertainty.

Shares have exact 95 % intervals (Clopper and Pearson), means the normal ones. Both are over the test set:
what other test inputs from the same source would have given. They say nothing about the certificates, whose
own error probability is alpha for each input.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hauberk.certify.confidence import clopper_pearson_lower, clopper_pearson_upper
from hauberk.certify.smoothed import Certificates
from hauberk.errors import RequestError

RADIUS_STEP = 0.05
_TAIL = 0.025
_NORMAL = 1.959963984540054


@dataclass(frozen=True, kw_only=True)
class Share:
    """A part of ``counted`` inputs, with its exact 95 % interval; no inputs, no share."""

    value: float | None
    low: float
    high: float
    counted: int

    @classmethod
    def of(cls, chosen: NDArray[np.bool_]) -> Share:
        counted, hits = len(chosen), int(chosen.sum())
        if not counted:
            return cls(value=None, low=0.0, high=1.0, counted=0)
        low = float(clopper_pearson_lower(hits, counted, _TAIL))
        high = float(clopper_pearson_upper(hits, counted, _TAIL))
        return cls(value=hits / counted, low=low, high=high, counted=counted)


@dataclass(frozen=True, kw_only=True)
class Mean:
    """A mean over ``counted`` inputs with its standard error and its 95 % interval."""

    value: float
    standard_error: float
    low: float
    high: float
    counted: int

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> Mean:
        counted = len(values)
        value = float(values.mean()) if counted else 0.0
        error = float(values.std(ddof=1)) / math.sqrt(counted) if counted > 1 else math.inf
        spread = _NORMAL * error
        return cls(
            value=value,
            standard_error=error,
            low=max(0.0, value - spread),
            high=value + spread,
            counted=counted,
        )


@dataclass(frozen=True, kw_only=True)
class CertifiedAt:
    radius: float
    accuracy: Share


@dataclass(frozen=True, kw_only=True)
class ClassMetrics:
    label: int
    accuracy: Share
    certified: Share  # answered correctly, with a certificate
    average_certified_radius: Mean


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """``accuracy``: the class that wins most draws; an abstention may still be right.

    ``certified``: answered correctly *and* certified at the radius. ``average_certified_radius`` counts wrong
    answers and abstentions as zero.
    """

    tested: int
    accuracy: Share
    abstained: Share
    certified: tuple[CertifiedAt, ...]
    average_certified_radius: Mean
    draws: int
    draws_per_input: float
    per_class: tuple[ClassMetrics, ...]


def correct_radii(certificates: Certificates, truth: NDArray[np.int64]) -> NDArray[np.float64]:
    """The certified radius where the answer is right, -1 where it is wrong or missing."""
    return np.where(certificates.labels == truth, certificates.radii, -1.0)


def curve_radii(correct: NDArray[np.float64]) -> list[float]:
    """Zero, and every step up to the first radius at which nothing is certified."""
    last = max(0.0, float(correct.max(initial=0.0)))
    return [round(RADIUS_STEP * i, 4) for i in range(int(last / RADIUS_STEP) + 2)]


def measure(
    certificates: Certificates,
    truth: NDArray[np.int64],
    *,
    classes: int,
    radii: Sequence[float] | None = None,
) -> Metrics:
    """All metrics of a certified test set; ``radii`` are those of the curve."""
    if len(truth) != len(certificates.labels):
        raise RequestError(f"{len(certificates.labels)} certificates and {len(truth)} labels do not fit")
    correct = correct_radii(certificates, truth)
    right = certificates.predicted == truth
    gained = np.maximum(correct, 0.0)
    return Metrics(
        tested=len(truth),
        accuracy=Share.of(right),
        abstained=Share.of(certificates.abstained),
        certified=tuple(
            CertifiedAt(radius=radius, accuracy=Share.of(correct >= radius))
            for radius in (curve_radii(correct) if radii is None else radii)
        ),
        average_certified_radius=Mean.of(gained),
        draws=int(certificates.draws.sum()),
        draws_per_input=float(certificates.draws.mean()) if len(truth) else 0.0,
        per_class=tuple(
            ClassMetrics(
                label=label,
                accuracy=Share.of(right[truth == label]),
                certified=Share.of(correct[truth == label] >= 0),
                average_certified_radius=Mean.of(gained[truth == label]),
            )
            for label in range(classes)
        ),
    )


def as_numbers(value: Any) -> Any:
    """Metrics as JSON: infinities, which JSON does not have, become null."""
    if isinstance(value, tuple | list):
        return [as_numbers(each) for each in value]
    if hasattr(value, "__dataclass_fields__"):
        return {name: as_numbers(getattr(value, name)) for name in value.__dataclass_fields__}
    return None if isinstance(value, float) and not math.isfinite(value) else value
