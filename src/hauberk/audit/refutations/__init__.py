"""Attacks that were made for one published claim each: one file and one row a claim.

    from hauberk.audit.refutations import REFUTATIONS, Stakes
    REFUTATIONS["directional-noise"].play("directional", "paper", Stakes(epsilon=1.0, alpha=1e-5))

Every one of them can be played against the sound variant as well, where it must find nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from hauberk.audit.refutations import (
    credited_noise,
    directional_noise,
    settled_noise_shape,
    shared_noise,
    single_feature_map,
    unprotected_update,
)
from hauberk.audit.refutations.base import Refutation, Stakes

__all__ = ["REFUTATIONS", "Refutation", "RefutationRow", "Stakes", "refutations_of"]


@dataclass(frozen=True, kw_only=True)
class RefutationRow:
    """``games``: how many of them are worth their time on two cores; ``about`` privacy or robustness."""

    methods: tuple[str, ...]
    about: str
    refute: Callable[[str, str, Stakes], Refutation]
    games: int

    def play(self, method: str, variant: str, stakes: Stakes, *, games: int | None = None) -> Refutation:
        return self.refute(method, variant, replace(stakes, games=self.games if games is None else games))


REFUTATIONS: Mapping[str, RefutationRow] = MappingProxyType(
    {
        "directional-noise": RefutationRow(
            methods=("directional",), about="privacy", refute=directional_noise.refute, games=20_000
        ),
        "shared-noise": RefutationRow(
            methods=("stobatch", "adlm"), about="privacy", refute=shared_noise.refute, games=150
        ),
        "credited-noise": RefutationRow(
            methods=("transdenoiser",), about="privacy", refute=credited_noise.refute, games=100
        ),
        "unprotected-update": RefutationRow(
            methods=("igamt",), about="privacy", refute=unprotected_update.refute, games=100
        ),
        "r-from-records": RefutationRow(
            methods=("secure-sgd",), about="privacy", refute=settled_noise_shape.refute, games=150
        ),
        "one-feature-map": RefutationRow(
            methods=tuple(single_feature_map.CERTIFICATES),
            about="robustness",
            refute=single_feature_map.refute,
            games=50,
        ),
    }
)
"""By name; the methods are those whose published variant makes the claim."""


def refutations_of(method: str, *, about: str) -> tuple[RefutationRow, ...]:
    """Those that were made for a method's published claims about privacy, or about robustness."""
    return tuple(row for row in REFUTATIONS.values() if method in row.methods and row.about == about)
