"""The Laplace mechanism, pure and with its exact profile."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import dp_accounting
import torch

from hauberk.errors import RequestError
from hauberk.mechanisms import checks
from hauberk.mechanisms.base import ROUND_UP, EpsilonDelta, Mechanism
from hauberk.mechanisms.search import last_true

_UP = 1 + 2.0**-52


@dataclass(frozen=True, kw_only=True)
class Laplace(Mechanism):
    """``Laplace(0, diversity)`` on every coordinate of a release with l1 ``sensitivity``.

    Guarantee: pure ``mu``-privacy with ``mu = sensitivity / diversity``, and for smaller epsilon exactly
    ``delta(epsilon) = 1 - e^{(epsilon - mu)/2}``, in any dimension. The worst neighbour differs in one
    coordinate:

    Let ``f_m`` be the trade-off function between Laplace(0, 1) and Laplace(m, 1). The density is
    log-concave, so threshold tests are optimal and shifts chain: ``f_{a+b} = f_b(1 - f_a)``. For a shift
    ``(a, b)`` of two coordinates go by way of ``(a, 0)``: a test of size ``x`` has at most the power
    ``1 - f_a(x)`` there, hence at the end at least the error ``f_b(1 - f_a(x)) = f_{a+b}(x)``, which is the
    error for the same l1 distance spent on one coordinate.
    """

    sensitivity: float
    diversity: float
    claimed: EpsilonDelta

    def __post_init__(self) -> None:
        checks.positive("sensitivity", self.sensitivity)
        checks.positive("diversity", self.diversity)

    @classmethod
    def calibrate(cls, *, epsilon: float, delta: float = 0.0, sensitivity: float) -> Laplace:
        """``diversity = sensitivity / epsilon``. Whatever ``delta`` is allowed, this mechanism uses none."""
        if not 0 <= delta < 1:
            raise RequestError(f"delta must lie in [0, 1), got {delta}.")
        diversity = checks.positive("sensitivity", sensitivity) / checks.positive("epsilon", epsilon)
        claimed = EpsilonDelta(epsilon=epsilon, delta=0.0)
        return cls(sensitivity=sensitivity, diversity=diversity * ROUND_UP, claimed=claimed)

    @property
    def scale(self) -> float:
        return math.sqrt(2) * self.diversity

    @property
    def mu(self) -> float:
        """The pure epsilon, rounded up."""
        return self.sensitivity / self.diversity * _UP

    def delta(self, epsilon: float) -> float:
        checks.nonnegative("epsilon", epsilon)
        if epsilon >= self.mu:
            return 0.0
        return math.nextafter(-math.expm1((epsilon - self.mu) / 2), 1.0)

    def epsilon(self, delta: float) -> float:
        """Smallest epsilon for this delta, which may be 0."""
        if not 0 <= delta < 1:
            raise RequestError(f"delta must lie in [0, 1), got {delta}.")
        if self.delta(0.0) <= delta:
            return 0.0
        return last_true(lambda epsilon: self.delta(epsilon) <= delta, true_at=self.mu, false_at=0.0)

    def event(self) -> dp_accounting.DpEvent:
        return dp_accounting.LaplaceDpEvent(self.diversity / self.sensitivity)

    def sample(self, shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
        # The difference of two independent exponential variables is a Laplace variable.
        both = torch.empty((2, *shape), device=generator.device).exponential_(generator=generator)
        return (both[0] - both[1]) * self.diversity
