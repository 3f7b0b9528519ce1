"""A finished training run: its classifier, its ledger, and the audit that ends in a card."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hauberk.accounting import Card, CurvePoint, Exhibits, Ledger, PrivacyPlan, Strip
from hauberk.accounting.card import RobustnessClaim, RobustnessColumns, RobustnessObservation
from hauberk.attacks import InsideRadius, NoisyPGD, attack_inside_radius
from hauberk.certify import Certificates, NoiseLayers, Norm, Smoothed, evaluation_mode
from hauberk.certify.metrics import correct_radii
from hauberk.certify.noise import NoiseKind
from hauberk.data import Dataset
from hauberk.errors import RequestError
from hauberk.methods.claims import PublishedRadius
from hauberk.methods.columns import ALWAYS_TRUE, privacy_columns, robustness_proof, utility, versions
from hauberk.progress import Progress, silent

STRIP_LENGTH = 12
NO_ROBUSTNESS = RobustnessColumns(
    norm="l2",
    claimed=None,
    proven=None,
    observed=None,
    reason="this method promises no robustness; private-smoothing does",
)
CARD_RADII: dict[NoiseKind, tuple[Norm, str]] = {"gaussian": ("l2", "tight"), "laplace": ("l1", "laplace")}
"""Norm and certificate of the radii on a card: those in which the loss of the noise is known exactly."""
FORMULAS = {"tight": "tight Gaussian radius", "laplace": "radius by the loss of Laplace noise"}
NOT_ATTACKED = "no attack inside the certified radius has been run since the last certification"


@dataclass(frozen=True, kw_only=True)
class AuditSettings:
    """How hard a run is examined. The first test inputs are not special: tested ones are spread evenly."""

    tested: int = 500
    samples: int = 1000
    alpha: float = 0.001
    attacked: int = 100
    attack_steps: int = 20
    attack_draws: int = 16

    def __post_init__(self) -> None:
        if self.tested < 1 or self.samples < 1:
            raise RequestError("an audit needs at least one test input and one draw")
        if not 0 < self.alpha < 1:
            raise RequestError(f"alpha must lie strictly between 0 and 1, got {self.alpha}")
        if self.attacked < 0:
            raise RequestError(f"attacked must not be negative, got {self.attacked}")
        self.attack()

    def attack(self, norm: Norm = "l2") -> NoisyPGD:
        return NoisyPGD(steps=self.attack_steps, draws=self.attack_draws, norm=norm)


@torch.no_grad()
def predictions(model: nn.Module, test: Dataset) -> NDArray[np.int64]:
    """What the network itself answers, without noise."""
    device = next(model.parameters()).device
    with evaluation_mode(model):
        answers = [model(x.to(device)).argmax(1).cpu() for x in test.x.split(1024)]
    labels: NDArray[np.int64] = torch.cat(answers).numpy()
    return labels


def base_accuracy(model: nn.Module, test: Dataset) -> float:
    """Accuracy of the network itself, without noise."""
    return float((predictions(model, test) == test.y.numpy()).mean())


def spread_rows(total: int, count: int) -> NDArray[np.int64]:
    """``count`` of ``total`` rows, spread evenly."""
    return np.asarray(torch.linspace(0, total - 1, min(count, total)).round().long().numpy())


def spread(test: Dataset, count: int) -> Dataset:
    """``count`` test records spread evenly over the set."""
    rows = torch.from_numpy(spread_rows(len(test), count))
    return replace(test, x=test.x[rows], y=test.y[rows])


@dataclass(frozen=True, kw_only=True)
class Run:
    """What training left behind: ``ledger`` holds what was executed."""

    method: str
    variant: str
    claim_source: str
    claimed_epsilon: float | None = None  # None: the plan's own
    unprovable: str | None = None  # why nothing can be proven, if so
    data: str
    plan: PrivacyPlan
    ledger: Ledger
    model: nn.Module
    classes: int
    noise: NoiseLayers | None  # of the smoothed classifier; None: the network answers by itself
    published_radius: PublishedRadius | None = None  # None: what is claimed is what is proven
    curve: tuple[CurvePoint, ...]
    seed: int
    command: str
    notes: tuple[str, ...] = ()

    @property
    def classifier(self) -> Smoothed:
        """The smoothed classifier, where the method has one."""
        if self.noise is None:
            raise RequestError(
                f"{self.method} promises no robustness, there is nothing to certify or to attack: "
                "private-smoothing does"
            )
        return Smoothed(self.model, noise=self.noise, classes=self.classes)

    @property
    def card_radius(self) -> tuple[Norm, str]:
        """Norm and certificate of the radii on this run's card."""
        return CARD_RADII[self.classifier.noise.kind]

    def audit(
        self,
        test: Dataset | tuple[Tensor, Tensor],
        *,
        settings: AuditSettings | None = None,
        progress: Progress = silent,
    ) -> Card:
        """Certify on test data and attack inside the certified radii, if a radius is promised; the card."""
        test = as_dataset(test, classes=self.classes)
        settings = settings or AuditSettings()
        if self.noise is None:
            robustness, answers, tested, strip = NO_ROBUSTNESS, predictions(self.model, test), test, None
        else:
            tested = spread(test, settings.tested)
            certificates = self._certify(tested, settings, progress)
            attacked = self._attack(tested, certificates, settings, progress) if settings.attacked else None
            robustness = self.robustness(certificates, tested, attacked)
            answers, strip = certificates.labels, _strip(tested, certificates, attacked)
        return Card(
            method=self.method,
            variant=self.variant,
            data=self.data,
            records=self.plan.records,
            privacy=privacy_columns(
                self.plan,
                self.ledger,
                source=self.claim_source,
                claimed_epsilon=self.claimed_epsilon,
                unprovable=self.unprovable,
            ),
            robustness=robustness,
            utility=utility(
                answers,
                tested.y.numpy(),
                classes=self.classes,
                base_accuracy=base_accuracy(self.model, test),
                base_tested=len(test),
            ),
            seed=self.seed,
            versions=versions(),
            command=self.command,
            notes=(*self.notes, *ALWAYS_TRUE),
            exhibits=Exhibits(curve=self.curve, strip=strip),
        )

    def robustness(
        self, certificates: Certificates, tested: Dataset, attacked: InsideRadius | None
    ) -> RobustnessColumns:
        """The card's columns; claimed is what the method's own formula makes of the same votes."""
        truth = tested.y.numpy()
        columns = robustness_columns(certificates, truth, attacked)
        published = self.published_radius
        if published is None:
            return columns
        radii = published.radii(certificates, self.classifier, tested.shape)
        average = np.maximum(correct_radii(replace(certificates, radii=radii), truth), 0.0).mean()
        claim = RobustnessClaim(formula=published.source, average_radius=float(average))
        return replace(columns, claimed=claim, reason=published.reason or columns.reason)

    def _certify(self, tested: Dataset, settings: AuditSettings, progress: Progress) -> Certificates:
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            progress("certifying", done, len(tested))

        norm, certificate = self.card_radius
        return self.classifier.certify(
            tested.x,
            samples=settings.samples,
            alpha=settings.alpha,
            norm=norm,
            certificate=certificate,
            seed=self.seed,
            progress=advance,
        )

    def _attack(
        self, tested: Dataset, certificates: Certificates, settings: AuditSettings, progress: Progress
    ) -> InsideRadius:
        done, total = 0, min(settings.attacked, int((certificates.radii > 0).sum()))

        def advance(count: int) -> None:
            nonlocal done
            done += count
            progress("attacking", done, total)

        return attack_inside_radius(
            self.classifier,
            tested.x,
            certificates,
            limit=settings.attacked,
            attack=settings.attack(certificates.norm),
            samples=settings.samples,
            seed=self.seed,
            progress=advance,
        )


def as_dataset(data: Dataset | tuple[Tensor, Tensor], *, classes: int, name: str = "your data") -> Dataset:
    """A dataset as it is; a pair of tensors is checked and wrapped."""
    if isinstance(data, Dataset):
        return data
    x, y = data
    return Dataset(name=name, x=x, y=y, classes=classes)


def robustness_columns(
    certificates: Certificates, truth: NDArray[np.int64], attacked: InsideRadius | None
) -> RobustnessColumns:
    proof = robustness_proof(certificates, truth)
    observed = None
    if attacked is not None:
        observed = RobustnessObservation(
            attack=attacked.attack,
            fraction_of_certified=attacked.fraction,
            tested=len(attacked.rows),
            broken=int(attacked.broken.sum()),
        )
    claim = RobustnessClaim(
        formula=FORMULAS[certificates.certificate], average_radius=proof.average_certified_radius
    )
    return RobustnessColumns(
        norm=certificates.norm,
        claimed=claim,
        proven=proof,
        observed=observed,
        reason=None if observed is not None else NOT_ATTACKED,
    )


def _strip(tested: Dataset, certificates: Certificates, attacked: InsideRadius | None) -> Strip | None:
    """The first attacked pictures; tables of numbers have nothing to show."""
    if attacked is None or not len(attacked.rows) or len(tested.shape) != 3 or tested.shape[0] not in (1, 3):
        return None
    picked = slice(0, STRIP_LENGTH)
    rows = attacked.rows[picked]
    return Strip(
        images=tested.x[torch.from_numpy(rows)].numpy(),
        labels=tested.y.numpy()[rows],
        predicted=certificates.labels[rows],
        radii=certificates.radii[rows].astype(np.float32),
        attempts=attacked.attempts[picked].numpy(),
        attempt_predicted=attacked.answers[picked],
        attempt_sizes=attacked.sizes[picked].astype(np.float32),
    )
