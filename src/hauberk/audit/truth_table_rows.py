"""What a row of the truth table is, what it is about, and how its parts are put together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from hauberk.accounting.card import PrivacyColumns

TOTAL_LEVEL = 1e-3
"""How often a table in which every sound promise holds may accuse one of them."""
EPSILON, DELTA = 1.0, 1e-7
"""What every private row promises. Delta is small because one training with many canaries cannot refute
anything at a level below it, and the level of a row is 1e-3 over the number of attacks."""
ATTACKS_PER_ROW = 2  # one on privacy, one on robustness

Size = Literal["tiny", "quick", "full"]
Kind = Literal["method", "synthesizer"]


@dataclass(frozen=True, kw_only=True)
class TruthRow:
    """One variant. None where there is nothing to say; ``reason`` says why, or why a claim is refuted.

    Radii are means over the tested inputs, a wrong answer or an abstention counting as 0, by the paper's
    formula (claimed) and by ours (proven). ``tested`` certificates were attacked within the claimed radius,
    ``broken`` of them confirmed false.
    """

    method: str
    variant: str
    claimed_epsilon: float | None = None
    proven_epsilon: float | None = None
    observed_epsilon: float | None = None
    claimed_radius: float | None = None
    proven_radius: float | None = None
    tested: int | None = None
    broken: int | None = None
    accuracy: float | None = None
    refuted: bool = False
    reason: str | None = None

    @property
    def name(self) -> str:
        return f"{self.method}:{self.variant}"


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What a row is about."""

    method: str
    variant: str
    kind: Kind

    @property
    def name(self) -> str:
        return f"{self.method}:{self.variant}"


@dataclass(frozen=True, kw_only=True)
class Inquiry:
    """How hard a row is looked at. ``level`` is that of each of its attacks."""

    size: Size
    level: float
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A row, and beside it how it was found: ``attacks`` in words, and seconds."""

    row: TruthRow
    attacks: tuple[str, ...]
    seconds: float = 0.0


def judged(finding: Finding, *, refuted_because: tuple[str, ...], missing: tuple[str, ...]) -> Finding:
    """The finding with its verdict: why it is refuted, if it is, and why what is missing is missing.

    An observed epsilon above the proven one refutes the proof, above the claimed one the claim.
    """
    row, because = finding.row, list(refuted_because)
    if row.observed_epsilon is not None:
        bounds = (("proven", row.proven_epsilon), ("claimed", row.claimed_epsilon))
        above = [what for what, bound in bounds if bound is not None and row.observed_epsilon > bound]
        if above and not because:
            because.append(f"the observed epsilon is above the {above[0]} one")
        elif "proven" in above:
            because.append("the observed epsilon is above the proven one")
    said = list(dict.fromkeys((*because, *missing)))
    reason = "; ".join(said) if said else None
    return replace(finding, row=replace(row, refuted=bool(because), reason=reason))


def privacy_of(row: TruthRow, columns: PrivacyColumns) -> tuple[TruthRow, tuple[str, ...]]:
    """The row with claimed and proven epsilon, and why one of them is missing."""
    claimed, proven = columns.claimed, columns.proven
    filled = replace(
        row,
        claimed_epsilon=None if claimed is None else claimed.epsilon,
        proven_epsilon=None if proven is None else proven.epsilon,
    )
    return filled, () if proven is not None or columns.reason is None else (columns.reason,)
