"""Several finished runs side by side: what each claims, proves, was observed to do, answers, and took.

Nothing is computed anew: every number is from the run's card, its settings and the times of its files. What
makes two numbers not comparable (other data, another delta, another norm) is said in a sentence, because an
epsilon without its delta, unit and data is no number at all.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hauberk.accounting import Card, PrivacyPlan
from hauberk.accounting.card import CertifiedAccuracy
from hauberk.accounting.json_form import from_json
from hauberk.certify.metrics import RADIUS_STEP
from hauberk.errors import RequestError
from hauberk.files import read_json
from hauberk.methods.settings import TrainSettings
from hauberk.methods.spending import SYNTHESIZER, RecordsUsed, releases_beforehand
from hauberk.methods.training import read_settings
from hauberk.training import RunFolder

_USUAL_RADII = (0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
_FEW = 3  # radii in a table
_COPIED = 0.1  # seconds: no run trains so fast; files that near to each other were copied
_TOLERANCE = 1e-9


@dataclass(frozen=True, kw_only=True)
class ComparedRun:
    """One run's numbers. None: it was not computed, or is not known; ``reason`` says why nothing is proven.

    ``observed_epsilon`` is a lower bound, the other epsilons are upper bounds. ``training_seconds`` and
    ``certification_seconds`` (attacks included) are from the times of the run's files.
    """

    name: str
    method: str
    variant: str
    model: str
    data: str
    records: int
    used: RecordsUsed
    unit: str
    neighbours: str
    claimed_epsilon: float | None
    claimed_delta: float | None
    proven_epsilon: float | None
    proven_delta: float | None
    observed_epsilon: float | None
    reason: str | None
    accuracy: float | None
    base_accuracy: float | None
    tested: int | None
    norm: str
    certificate: str | None
    alpha: float | None
    samples: int | None
    average_certified_radius: float | None
    standard_error: float | None
    curve: tuple[CertifiedAccuracy, ...]
    training_seconds: float | None
    certification_seconds: float | None
    device: str
    sigma: float | None
    seed: int

    @property
    def title(self) -> str:
        return self.method if self.variant == "sound" else f"{self.method} ({self.variant})"

    def certified_at(self, radius: float) -> float | None:
        """Share of tested inputs that are answered correctly and certified at ``radius``.

        Between two radii of the card the share at the larger one, which is a lower bound; beyond the last,
        where the card's curve has reached zero, zero. None where nothing is certified.
        """
        if not self.curve:
            return None
        for point in self.curve:
            if point.radius >= radius - _TOLERANCE:
                return point.accuracy
        return 0.0 if self.curve[-1].accuracy == 0 else None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Runs in the order given, the radii at which they are compared, and what the reader must know."""

    runs: tuple[ComparedRun, ...]
    radii: tuple[float, ...]
    remarks: tuple[str, ...]

    def rows(self) -> list[dict[str, Any]]:
        """One flat row per run, for CSV and JSON."""
        skipped = ("used", "curve")
        rows = []
        for run in self.runs:
            row = {name: getattr(run, name) for name in run.__dataclass_fields__ if name not in skipped}
            row |= {f"certified_at_{radius:g}": run.certified_at(radius) for radius in self.radii}
            rows.append(row)
        return rows

    def to_json(self) -> dict[str, Any]:
        curves = [[asdict(point) for point in run.curve] for run in self.runs]
        rows = [{**row, "curve": curve} for row, curve in zip(self.rows(), curves, strict=True)]
        return {"runs": rows, "radii": list(self.radii), "remarks": list(self.remarks)}

    def to_csv(self) -> str:
        return as_csv(self.rows())


def as_csv(rows: Sequence[dict[str, Any]]) -> str:
    """A head line and one line per row; floats as exact as they are, nothing where nothing is known."""
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def compare_runs(paths: Sequence[Path], *, radii: Sequence[float] | None = None) -> Comparison:
    """The runs at ``paths``, each named once; ``radii`` default to some of those that a run certifies."""
    if len({path.resolve() for path in paths}) < len(paths):
        raise RequestError("a run is named twice: name every run once")
    runs = tuple(read_run(path) for path in paths)
    for radius in radii or ():
        if not 0 <= radius < math.inf:
            raise RequestError(f"a radius is a number that is not negative, got {radius:g}")
    chosen = usual_radii(runs) if radii is None else tuple(sorted(set(radii)))
    since = [(path, asked) for path in paths if (asked := _asked_since(path)) is not None]
    also = [
        f"{path} was also asked ({asked}): its certificates.csv has the answers." for path, asked in since
    ]
    return Comparison(runs=runs, radii=chosen, remarks=(*remarks(runs), *also))


def read_run(path: Path) -> ComparedRun:
    """What a finished run's files say about it."""
    folder = RunFolder.open(path)
    if folder.read_config().get("kind") == SYNTHESIZER:
        raise RequestError(
            f"{path} holds a synthesizer: compare knows runs of `hauberk train`, `hauberk synth evaluate` "
            "tells of synthesizers"
        )
    settings, config = read_settings(folder)
    plan = from_json(PrivacyPlan, config["plan"], where=f"{path / 'config.json'} plan")
    return _compared(path, folder.read_card(), settings, plan, _seconds(folder, plan))


def _compared(
    path: Path,
    card: Card,
    settings: TrainSettings,
    plan: PrivacyPlan,
    seconds: tuple[float | None, float | None],
) -> ComparedRun:
    privacy, proof, utility = card.privacy, card.robustness.proven, card.utility
    points = () if proof is None else proof.certified_accuracy
    return ComparedRun(
        name=str(path),
        method=card.method,
        variant=card.variant,
        model=settings.model,
        data=card.data,
        records=card.records,
        used=RecordsUsed.of(settings, plan),
        unit=privacy.unit,
        neighbours=privacy.neighbours,
        claimed_epsilon=None if privacy.claimed is None else privacy.claimed.epsilon,
        claimed_delta=None if privacy.claimed is None else privacy.claimed.delta,
        proven_epsilon=None if privacy.proven is None else privacy.proven.epsilon,
        proven_delta=None if privacy.proven is None else privacy.proven.delta,
        observed_epsilon=None if privacy.observed is None else privacy.observed.epsilon_lower,
        reason=privacy.reason if privacy.proven is None else None,
        accuracy=None if utility is None else utility.accuracy,
        base_accuracy=None if utility is None else utility.base_accuracy,
        tested=None if utility is None else utility.tested,
        norm=card.robustness.norm,
        certificate=None if proof is None else proof.certificate,
        alpha=None if proof is None else proof.alpha,
        samples=None if proof is None else proof.samples,
        average_certified_radius=None if proof is None else proof.average_certified_radius,
        standard_error=None if proof is None else proof.standard_error,
        curve=tuple(sorted(points, key=lambda point: point.radius)),
        training_seconds=seconds[0],
        certification_seconds=seconds[1],
        device=settings.device,
        sigma=settings.sigma,
        seed=card.seed,
    )


def _seconds(folder: RunFolder, plan: PrivacyPlan) -> tuple[float | None, float | None]:
    """Training, then certification with its attacks; None where the files do not tell.

    ``config.json`` is written when training begins, the model when it ends, the card when certification does.
    Later commands write the card again, a run that was interrupted lay still in between, and copies have the
    times of their copying.
    """
    try:
        begun, trained, done = (
            (folder.path / name).stat().st_mtime for name in ("config.json", "model.safetensors", "card.json")
        )
    except OSError:
        return None, None
    ledger = folder.read_events() if folder.begun else None
    interrupted = ledger is not None and ledger.steps - releases_beforehand(ledger, plan) > plan.steps
    if interrupted or trained - begun < _COPIED or done < trained:
        return None, None
    rewritten = any((folder.path / name).exists() for name in ("certificates.json", "attacks.json"))
    return trained - begun, None if rewritten else done - trained


def usual_radii(runs: Iterable[ComparedRun]) -> tuple[float, ...]:
    """A few radii at which papers compare, the largest ones that any run certifies anything at."""
    largest = max((point.radius for run in runs for point in run.curve if point.accuracy > 0), default=0.0)
    reached = [radius for radius in _USUAL_RADII if radius <= largest + _TOLERANCE]
    return tuple(reached[-_FEW:])


def mean_curve(runs: Sequence[ComparedRun]) -> tuple[CertifiedAccuracy, ...]:
    """The mean of several curves at every step of the radius, up to where all have reached zero."""
    if not runs or not all(run.curve for run in runs):
        return ()
    last = max(run.curve[-1].radius for run in runs)
    points = []
    for place in range(round(last / RADIUS_STEP) + 1):
        radius = round(place * RADIUS_STEP, 4)
        shares = [run.certified_at(radius) or 0.0 for run in runs]
        points.append(CertifiedAccuracy(radius=radius, accuracy=math.fsum(shares) / len(shares)))
    return tuple(points)


def remarks(runs: Sequence[ComparedRun]) -> tuple[str, ...]:
    """What makes the numbers of these runs not comparable, one sentence each; nothing if nothing does."""
    said = []
    differences = {runs[0].used.difference(run.used) for run in runs} - {None}
    if differences:
        said.append(
            f"The runs are not about the same records ({_listed(differences)}): their epsilons are not of "
            "the same thing, and accuracies and radii may be of different tasks."
        )
    deltas = {delta for run in runs for delta in (run.claimed_delta, run.proven_delta) if delta is not None}
    if len(deltas) > 1:
        said.append(
            f"The deltas differ ({_listed({f'{delta:g}' for delta in deltas})}): an epsilon at a smaller "
            "delta says more, so the epsilons are not of the same thing."
        )
    if _several(runs, lambda run: (run.unit, run.neighbours)):
        units = _listed({f"{run.unit}, {run.neighbours}" for run in runs})
        said.append(f"The runs protect different things ({units}): their epsilons are not of the same thing.")
    unproven = [run for run in runs if run.proven_epsilon is None]
    said += [f"{run.name} proves no privacy: {(run.reason or 'no reason').rstrip('.')}." for run in unproven]
    certified = [run for run in runs if run.curve]
    if _several(certified, lambda run: run.norm):
        norms = _listed({run.norm for run in certified})
        said.append(f"The radii are in different norms ({norms}) and drawn apart: they cannot be compared.")
    if _several(certified, lambda run: (run.alpha, run.samples, run.tested)):
        said.append(
            "The certificates are from different numbers of inputs or votes, or at different error rates: "
            "more votes certify larger radii of the same network."
        )
    return tuple(said)


def _several(runs: Sequence[ComparedRun], fact: Callable[[ComparedRun], object]) -> bool:
    return len({fact(run) for run in runs}) > 1


def _listed(words: set[str] | set[str | None]) -> str:
    return "; ".join(sorted(word for word in words if word is not None))


def _asked_since(path: Path) -> str | None:
    """The last question of `hauberk certify` to a run, where its answer is not the one on the card."""
    file = path / "certificates.json"
    if not file.is_file():
        return None
    content = read_json(file)
    if not isinstance(content, dict) or content.get("on_the_card", True):
        return None
    return f"{content.get('question')}, {content.get('norm')}, certificate {content.get('certificate')}"
