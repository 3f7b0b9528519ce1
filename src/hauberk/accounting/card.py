"""The guarantee card: what is claimed, what is proven, what attacks observed.

A value that was not computed is ``None`` (JSON ``null``), never a guess, and the ``reason`` beside it says
why in one sentence. ``proven`` values come from the events that were executed and the votes that were cast.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hauberk.accounting.exhibits import Exhibits
from hauberk.accounting.json_form import from_json, to_json
from hauberk.errors import RequestError
from hauberk.files import write_json


@dataclass(frozen=True, kw_only=True)
class PrivacyClaim:
    """What the method's own formula says for this run."""

    epsilon: float
    delta: float
    source: str


@dataclass(frozen=True, kw_only=True)
class PrivacyProof:
    """An upper bound on epsilon computed from the events that were executed."""

    epsilon: float
    delta: float
    accountant: str


@dataclass(frozen=True, kw_only=True)
class PrivacyObservation:
    """A statistical lower bound on epsilon found by an attack, at the stated confidence."""

    epsilon_lower: float
    confidence: float
    attack: str
    canaries: int


@dataclass(frozen=True, kw_only=True)
class PrivacyColumns:
    unit: str
    neighbours: str
    claimed: PrivacyClaim | None
    proven: PrivacyProof | None
    observed: PrivacyObservation | None
    reason: str | None


@dataclass(frozen=True, kw_only=True)
class RobustnessClaim:
    """The radius that the method's own formula gives on the tested inputs."""

    formula: str
    average_radius: float


@dataclass(frozen=True, kw_only=True)
class CertifiedAccuracy:
    radius: float
    accuracy: float


@dataclass(frozen=True, kw_only=True)
class RobustnessProof:
    """Certified on clean test inputs; each input's certificate is wrong with probability at most alpha.

    ``standard_error`` is that of the average radius over test inputs; ``abstained`` a share of them;
    ``draws`` all that were made for estimation; ``arithmetic`` what computed the votes and is thereby part of
    the classifier that is certified. None on cards that are older than these fields.
    """

    certificate: str
    alpha: float
    samples: int
    tested: int
    average_certified_radius: float
    certified_accuracy: tuple[CertifiedAccuracy, ...]
    standard_error: float | None = None
    abstained: float | None = None
    draws: int | None = None
    arithmetic: str | None = None
    question: str | None = None


@dataclass(frozen=True, kw_only=True)
class RobustnessObservation:
    """Certified inputs attacked at ``fraction_of_certified`` times their own certified radius."""

    attack: str
    fraction_of_certified: float
    tested: int
    broken: int


@dataclass(frozen=True, kw_only=True)
class RobustnessColumns:
    """``observed`` is about the proven radii, ``observed_of_claimed`` about the claimed ones where they are
    others. ``confidence``: with this probability every break that an audit counts is one; None where the
    breaks were each confirmed at level 0.001 (`hauberk attack`)."""

    norm: str
    claimed: RobustnessClaim | None
    proven: RobustnessProof | None
    observed: RobustnessObservation | None
    reason: str | None
    observed_of_claimed: RobustnessObservation | None = None
    confidence: float | None = None


@dataclass(frozen=True, kw_only=True)
class ClassAccuracy:
    label: int
    tested: int
    accuracy: float | None


@dataclass(frozen=True, kw_only=True)
class Utility:
    """``accuracy``: the deployed smoothed classifier, an abstention counts as wrong, on ``tested`` inputs.

    ``base_accuracy``: the network itself without noise, on the whole test set (``base_tested`` inputs).
    """

    accuracy: float
    base_accuracy: float
    balanced_accuracy: float
    per_class: tuple[ClassAccuracy, ...]
    tested: int
    base_tested: int


Claim = PrivacyClaim | RobustnessClaim
Proof = PrivacyProof | RobustnessProof
Observation = PrivacyObservation | RobustnessObservation

# The room that draws cards lies above this one; it hangs its function here when the package is imported.
_html_writer: Callable[[Card, Path], None] | None = None


def hang_html_writer(writer: Callable[[Card, Path], None]) -> None:
    global _html_writer
    _html_writer = writer


@dataclass(frozen=True, kw_only=True)
class Card:
    """One run's guarantees; ``exhibits`` (curves and pictures for the report) are not part of the JSON."""

    method: str
    variant: str
    data: str
    records: int
    privacy: PrivacyColumns
    robustness: RobustnessColumns
    utility: Utility | None
    seed: int
    versions: dict[str, str]
    command: str
    notes: tuple[str, ...]
    exhibits: Exhibits = field(default_factory=Exhibits, compare=False, repr=False)

    def to_json(self) -> dict[str, Any]:
        content: dict[str, Any] = {
            name: value
            for name, value in vars(self).items()
            if name not in ("exhibits", "privacy", "robustness", "utility")
        }
        content["privacy"] = to_json(self.privacy)
        content["robustness"] = to_json(self.robustness)
        content["utility"] = None if self.utility is None else to_json(self.utility)
        return {name: content[name] for name in self.__dataclass_fields__ if name != "exhibits"}

    @classmethod
    def from_json(cls, content: Any, *, where: str = "card", exhibits: Exhibits | None = None) -> Card:
        if isinstance(content, dict) and "exhibits" in content:
            raise RequestError(f"{where} has an unknown key 'exhibits'")
        card = from_json(cls, content, where=where)
        return replace(card, exhibits=exhibits or Exhibits())

    def save(self, path: Path) -> None:
        write_json(path, self.to_json())

    def to_html(self, path: str | Path) -> None:
        """Write the report: one self-contained file that needs no network."""
        if _html_writer is None:
            raise RequestError("import hauberk (the whole package) to write reports")
        _html_writer(self, Path(path))
