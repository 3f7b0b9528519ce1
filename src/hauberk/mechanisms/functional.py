"""The functional mechanism: release a polynomial objective's coefficients once, then optimise at will."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from hauberk.errors import RequestError
from hauberk.mechanisms import checks
from hauberk.mechanisms.laplace import Laplace

Neighbours = Literal["add-remove", "replace-one"]


def coefficient_sensitivity(record_norm: float, neighbours: Neighbours) -> float:
    """l1 sensitivity of a sum of per-record coefficients, each of l1 norm at most ``record_norm``.

    003 Appendix B prints the factor 2, which is for replacing a record; adding or removing one needs half.
    """
    if neighbours not in ("add-remove", "replace-one"):
        raise RequestError(f"neighbours must be 'add-remove' or 'replace-one', got {neighbours!r}.")
    records_that_differ = 2 if neighbours == "replace-one" else 1
    return records_that_differ * checks.positive("the l1 norm of a record's coefficients", record_norm)


@dataclass(frozen=True, kw_only=True)
class FunctionalMechanism(Laplace):
    """Functional mechanism (Zhang et al. 2012; 003 Appendix B): Laplace noise on polynomial coefficients.

    Guarantee: pure epsilon-privacy for ``neighbours`` of everything computed from the noisy coefficients,
    if the summed coefficients of degree >= 1 have l1 ``sensitivity`` *and do not depend on anything that
    was learnt from the records*. (The constant term moves no optimum and is not released.) The second
    condition fails in 003, where the coefficients are hidden activations of the network in training.
    """

    neighbours: Neighbours

    @classmethod
    def calibrate(
        cls,
        *,
        epsilon: float,
        delta: float = 0.0,
        sensitivity: float,
        neighbours: Neighbours = "add-remove",
    ) -> FunctionalMechanism:
        """Here ``sensitivity`` is the l1 norm of *one record's* coefficients; ``neighbours`` adds the
        factor 2."""
        noise = Laplace.calibrate(
            epsilon=epsilon, delta=delta, sensitivity=coefficient_sensitivity(sensitivity, neighbours)
        )
        return cls(
            sensitivity=noise.sensitivity,
            diversity=noise.diversity,
            claimed=noise.claimed,
            neighbours=neighbours,
        )

    def release(self, coefficients: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """The noisy ``coefficients``, which hold each monomial of degree >= 1 once, summed over records."""
        return coefficients + self.sample(coefficients.shape, generator).to(coefficients)
