"""Audit of certificates: strong attacks inside the certified radii, and a test that tells breaks from luck.

    certified input -> attacks, strongest first, each through fresh noise of its own -> a point in the ball
    point -> a rival class, picked on fresh draws -> a sequential test on other draws -> broken, or not

A certificate says that one class is on top everywhere within its radius. It is *broken* where another class
is shown to be ahead at a point within the radius, while at the input itself the certified class is shown to
be on top. An abstention at the point is no break: the deployed classifier promises to answer rightly or not
at all. True labels play no part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import binom
from torch import Tensor

from hauberk.accounting.card import RobustnessObservation
from hauberk.attacks import MIM, PGD, Attack
from hauberk.attacks.projections import Bounds, sizes
from hauberk.attacks.targets import generator
from hauberk.audit.bounds import check_level
from hauberk.certify import Certificates, Norm, Smoothed
from hauberk.certify.sequential import SHORT, is_above, is_below
from hauberk.errors import RequestError
from hauberk.methods.run import Run
from hauberk.progress import Progress, silent

Mask = NDArray[np.bool_]

FRACTION = 0.99
MOST_DRAWS = 20_000
_SELECTION = 200  # draws that pick the rival
_FIRST_LOOK = 100
_GIVE_UP = 0.01  # how readily a point is left alone; that costs a break, never the level
_AT_A_TIME = 32  # inputs between two reports of progress
_OF_SCORES = ("hoeffding", "bernstein")


def strongest_first(norm: Norm, *, bounds: Bounds = (0.0, 1.0), quick: bool = False) -> tuple[Attack, ...]:
    """The attacks of an audit: what breaks most alone comes first, and what it broke is done with.

    ``quick``: one attack of 20 steps with 16 draws each.
    """
    settings: dict[str, Any] = {"norm": norm, "bounds": bounds, "stop_when_broken": False}
    if quick:
        return (PGD(**settings, steps=20, draws=16),)
    return (
        PGD(**settings, steps=40, draws=32, restarts=2, loss="margin"),
        PGD(**settings, steps=20, draws=32),
        MIM(**settings, steps=20, draws=16),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class RobustnessAudit:
    """Which of the attacked certificates were broken; one row for each that was attacked.

    Guarantee: with probability at least ``1 - alpha / 2`` over the tests' draws, *every* certificate in
    ``broken`` is false: at the input its class is on top, at the point (``sizes`` away, at most ``fraction``
    of the certified radius) another one. The same holds, in the same event, for ``mistaken``: certificates
    whose class is not even on top at their own input. Certificates that each err with probability
    ``certificate_alpha`` may have such faults; `refuted` says when there are too many of them.
    """

    certificate: str
    norm: Norm
    fraction: float
    attacks: tuple[str, ...]
    alpha: float
    certificate_alpha: float
    rows: NDArray[np.int64]  # which inputs were attacked
    radii: NDArray[np.float64]  # as certified
    points: Tensor
    sizes: NDArray[np.float64]  # distance of each point from its input, in the norm
    labels: NDArray[np.int64]  # as certified
    rivals: NDArray[np.int64]  # at the points; what the test was about
    broken: Mask
    mistaken: Mask
    undecided: Mask  # the draws ran out at a point
    draws: NDArray[np.int64] = field(repr=False)  # of the tests

    @property
    def tested(self) -> int:
        return len(self.rows)

    @property
    def broken_count(self) -> int:
        return int(self.broken.sum())

    @property
    def false_count(self) -> int:
        """Broken, or mistaken at the input itself."""
        return int((self.broken | self.mistaken).sum())

    @property
    def confidence(self) -> float:
        return 1 - self.alpha

    @property
    def p_value(self) -> float:
        """How likely so many false certificates are at most, if each errs with ``certificate_alpha``."""
        return float(binom.sf(self.false_count - 1, self.tested, self.certificate_alpha))

    @property
    def refuted(self) -> bool:
        """More false certificates than their own error allows.

        Said of certificates that keep their promise with probability at most ``alpha``: half of it is for
        the tests of all points together, half for the number of certificates that err by their own alpha.
        """
        return self.false_count > 0 and self.p_value <= self.alpha / 2

    def observation(self) -> RobustnessObservation:
        """For the guarantee card."""
        return RobustnessObservation(
            attack="; ".join(self.attacks),
            fraction_of_certified=self.fraction,
            tested=self.tested,
            broken=self.broken_count,
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "certificate": self.certificate,
            "norm": self.norm,
            "fraction_of_certified": self.fraction,
            "attacks": list(self.attacks),
            "confidence": self.confidence,
            "certificate_alpha": self.certificate_alpha,
            "average_attacked_radius": float(self.radii.mean()) if self.tested else None,
            "tested": self.tested,
            "broken": self.broken_count,
            "mistaken": int(self.mistaken.sum()),
            "undecided": int(self.undecided.sum()),
            "p_value": self.p_value,
            "refuted": self.refuted,
        }


def published_certificates(
    run: Run, certificates: Certificates, shape: tuple[int, ...]
) -> Certificates | None:
    """The certificates that the method's own formula makes of the same votes; None where it has none."""
    published = run.published_radius
    if published is None:
        return None
    radii = published.radii(certificates, run.classifier, shape)
    return replace(certificates, radii=radii, certificate=f"published: {published.source}")


def audit_robustness(
    target: Run | Smoothed,
    inputs: Tensor,
    certificates: Certificates,
    *,
    limit: int | None = None,
    attacks: Sequence[Attack] | None = None,
    bounds: Bounds = (0.0, 1.0),
    fraction: float = FRACTION,
    alpha: float = 1e-3,
    most_draws: int = MOST_DRAWS,
    seed: int = 0,
    progress: Progress = silent,
) -> RobustnessAudit:
    """Attack certificates of the deployed classifier inside their radii; which ones are broken?

    ``target``: a run (its smoothed classifier) or a smoothed classifier. ``certificates``: of ``inputs``, row
    by row, as proven (`Smoothed.certify`) or as published (`published_certificates`, or any others with
    ``radii`` of one's own). ``limit``: so many certified inputs, spread evenly over them. ``attacks``: in the
    certificates' norm, tried in this order (default: `strongest_first`); an input that one of them broke is
    left alone by the next. ``fraction``: of the radius. ``bounds``: of the data.

    Guarantee: the tests use noise that no attack has seen, rivals are picked on draws that no test counts,
    and every one of the ``tested x attacks`` points is tested at level ``alpha / (2 tested attacks)`` by a
    confidence sequence, which may be looked at as often as one likes (`hauberk.certify.sequential`). So the
    probability that *any* certificate which in truth holds at its points is called broken is at most
    ``alpha / 2``, and for each one it is at most ``alpha / (2 tested)``. What is not broken is not proven.
    """
    smoothed = target.classifier if isinstance(target, Run) else target
    check_level(alpha)
    _check(inputs, certificates, fraction=fraction, most_draws=most_draws, limit=limit)
    ladder = tuple(strongest_first(certificates.norm, bounds=bounds) if attacks is None else attacks)
    if not ladder:
        raise RequestError("there is no attack to try: name at least one")
    for attack in ladder:
        if attack.norm != certificates.norm:
            raise RequestError(
                f"the certificates are in {certificates.norm}, so the attack {attack.name} must be too"
            )
    certified = np.flatnonzero(certificates.radii > 0)
    count = len(certified) if limit is None else min(limit, len(certified))
    rows = certified[np.linspace(0, len(certified) - 1, count).astype(np.int64)] if count else certified[:0]
    court = _Court(
        smoothed,
        inputs[torch.from_numpy(rows)],
        certificates.labels[rows],
        fraction * certificates.radii[rows],
        level=alpha / (2 * max(1, count) * len(ladder)),
        most_draws=most_draws,
        seed=seed,
    )
    for place, attack in enumerate(ladder):
        court.hear(attack, place, progress)
    return RobustnessAudit(
        certificate=certificates.certificate,
        norm=certificates.norm,
        fraction=fraction,
        attacks=tuple(_words(attack) for attack in ladder),
        alpha=alpha,
        certificate_alpha=certificates.alpha,
        rows=rows,
        radii=certificates.radii[rows],
        points=court.points,
        sizes=np.asarray(sizes(court.points, court.inputs, certificates.norm).cpu().numpy()),
        labels=court.labels,
        rivals=court.rivals,
        broken=court.broken,
        mistaken=court.mistaken,
        undecided=court.undecided & ~court.broken & ~court.mistaken,
        draws=court.draws,
    )


class _Court:
    """Inputs with their certified labels, the points found so far, and what the tests say about them."""

    def __init__(
        self,
        smoothed: Smoothed,
        inputs: Tensor,
        labels: NDArray[np.int64],
        radii: NDArray[np.float64],
        *,
        level: float,
        most_draws: int,
        seed: int,
    ) -> None:
        self.smoothed, self.inputs, self.labels, self.radii = smoothed, inputs, labels, radii
        self.level, self.most_draws, self.seed = level, most_draws, seed
        count = len(labels)
        self.points = inputs.clone()
        self.rivals = np.full(count, -1, dtype=np.int64)
        self.broken, self.mistaken, self.undecided = (np.zeros(count, dtype=np.bool_) for _ in range(3))
        self.draws = np.zeros(count, dtype=np.int64)

    def hear(self, attack: Attack, place: int, progress: Progress) -> None:
        """One attack on all inputs that still stand."""
        standing = np.flatnonzero(~(self.broken | self.mistaken))
        stage, done, total = f"attack {place + 1}", len(self.labels) - len(standing), len(self.labels)
        for begin in range(0, len(standing), _AT_A_TIME):
            rows = standing[begin : begin + _AT_A_TIME]
            # a seed for every batch: starts and noises of one attack have nothing in common with another's
            seed = self.seed * 1_000_003 + place * 10_007 + begin
            chosen = torch.from_numpy(rows)
            points = attack.perturb(
                self.smoothed,
                self.inputs[chosen],
                torch.from_numpy(self.labels[rows]),
                radius=torch.from_numpy(self.radii[rows]),
                seed=seed % 2**62,
            )
            fresh = generator(self.smoothed.device, self.seed, f"robustness audit {place} {begin}")
            self._judge(rows, points, fresh)
            done += len(rows)
            progress(stage, done, total)

    def _judge(self, rows: NDArray[np.int64], points: Tensor, fresh: torch.Generator) -> None:
        every = np.arange(len(rows))
        votes = self.smoothed.count_votes(points, _SELECTION, fresh)
        votes[every, self.labels[rows]] = -1
        rivals = votes.argmax(1)
        against_label = np.zeros_like(votes, dtype=np.bool_)
        against_label[every, self.labels[rows]] = True
        ahead, behind, draws = self._settle(points, rivals, against_label, fresh)
        self.draws[rows] += draws
        self.points[torch.from_numpy(rows)] = points.to(self.points)
        self.rivals[rows] = rivals
        self.undecided[rows] = ~(ahead | behind)
        lost = rows[ahead]
        if not len(lost):
            return
        # the other half of the question: at the input itself, is the certified class ahead of all others?
        all_others = np.ones((len(lost), votes.shape[1]), dtype=np.bool_)
        all_others[np.arange(len(lost)), self.labels[lost]] = False
        inputs = self.inputs[torch.from_numpy(lost)]
        on_top, mistaken, draws = self._settle(inputs, self.labels[lost], all_others, fresh, strict=True)
        self.draws[lost] += draws
        self.broken[lost[on_top]] = True
        self.mistaken[lost[mistaken]] = True
        self.undecided[lost[~(on_top | mistaken)]] = True

    def _settle(
        self,
        points: Tensor,
        champions: NDArray[np.int64],
        others: Mask,
        fresh: torch.Generator,
        *,
        strict: bool = False,
    ) -> tuple[Mask, Mask, NDArray[np.int64]]:
        """(champion ahead of all the others, champion behind one of them, draws), point by point.

        *Ahead* is wrong with probability at most ``level``: were the champion not more likely than some
        other class, the sequence about these two alone would have to err. *Behind* is a reason to stop;
        ``strict``: a statement at the same level, shared by the other classes.
        """
        count = len(points)
        votes = np.zeros(others.shape, dtype=np.int64)
        ahead, behind = np.zeros(count, dtype=np.bool_), np.zeros(count, dtype=np.bool_)
        drawn = np.zeros(count, dtype=np.int64)
        give_up = self.level / max(1, int(others.sum(1).max())) if strict else _GIVE_UP
        total = 0
        while total < self.most_draws:
            unsettled = np.flatnonzero(~(ahead | behind))
            if not len(unsettled):
                break
            more = min(max(_FIRST_LOOK, total // 4), self.most_draws - total)
            total += more
            votes[unsettled] += self.smoothed.count_votes(points[torch.from_numpy(unsettled)], more, fresh)
            drawn[unsettled] = total
            ours = np.take_along_axis(votes[unsettled], champions[unsettled, None], axis=1)
            both = ours + votes[unsettled]
            asked = others[unsettled]
            wins = is_above(SHORT, np.broadcast_to(ours, both.shape), both, 0.5, self.level)
            loses = is_below(SHORT, np.broadcast_to(ours, both.shape), both, 0.5, give_up)
            ahead[unsettled] = (wins | ~asked).all(axis=1)
            behind[unsettled] = (loses & asked).any(axis=1)
        return ahead, behind & ~ahead, drawn


def _words(attack: Attack) -> str:
    return f"{attack.name}, expectation over {attack.draws} draws"


def _check(
    inputs: Tensor, certificates: Certificates, *, fraction: float, most_draws: int, limit: int | None
) -> None:
    if len(inputs) != len(certificates.radii):
        raise RequestError(
            f"there are {len(inputs)} inputs and {len(certificates.radii)} certificates: pass one of each"
        )
    if ((certificates.radii > 0) & (certificates.labels < 0)).any():
        raise RequestError("an abstention certifies nothing: a radius needs the class that it is about")
    if any(f"({bound})" in certificates.question for bound in _OF_SCORES):
        raise RequestError(
            "these certificates are about mean scores and not about votes: certify with bound='votes'"
        )
    if not np.isfinite(certificates.radii).all():
        raise RequestError("a certified radius is a finite number: leave out inputs whose radius is not")
    if not 0 < fraction <= 1:
        raise RequestError(f"the fraction of the certified radius lies in (0, 1], got {fraction}")
    if most_draws < _FIRST_LOOK:
        raise RequestError(f"a test needs at least {_FIRST_LOOK} draws, got {most_draws}")
    if limit is not None and limit < 1:
        raise RequestError(f"the limit must be at least 1 certificate, got {limit}")
