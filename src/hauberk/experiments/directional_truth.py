"""002's closed form in its MNIST setting: the epsilon it claims, and the epsilon it has."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammaln
from scipy.stats import binom, norm

from hauberk.accounting import GaussianEvent
from hauberk.accounting.accountant import accountant_name, optimistic_epsilon
from hauberk.experiments.pictures import CLAIMED, OBSERVED, PROVEN
from hauberk.experiments.result import Result, Size
from hauberk.mechanisms import OptimizedAdditive
from hauberk.mechanisms.checks import Vector
from hauberk.progress import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COORDINATES, LOT, RECORDS, EPOCHS, ALPHA, DELTA = 61_706, 512, 55_000, 60, 0.1, 1e-5
STEPS, RATE = EPOCHS * RECORDS // LOT, LOT / RECORDS
CLAIMS: dict[Size, tuple[float, ...]] = {
    "tiny": (0.2, 1.0),
    "quick": (0.2, 0.5, 1.0, 3.0, 10.0),
    "full": (0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0),
}


def half_normal_quantiles(size: int) -> Vector:
    """``w_i = Phi^{-1}((1 + (i - 1/2)/d) / 2)``: the sizes of d standard normal weights, without chance."""
    quantiles: Vector = norm.ppf((1 + (np.arange(1, size + 1) - 0.5) / size) / 2)
    return quantiles


def closed_form(epsilon: float, weights: Vector) -> OptimizedAdditive:
    """The paper's noise for MNIST; nothing is spent on the weights, noise goes on the lot *sum*."""
    return OptimizedAdditive.calibrate(
        epsilon=epsilon,
        delta=DELTA,
        sensitivity=ALPHA,
        weights=weights,
        steps=STEPS,
        sampling_rate=RATE,
    )


def threshold_test_epsilon(mu: float, *, steps: int, rate: float, delta: float) -> float:
    """A lower bound on epsilon by one explicit attack: did the weakest coordinate exceed t in k lots?

    The neighbour's record adds ``mu`` (in units of that coordinate's noise) to every lot it is in. With
    ``t = mu - c`` the event has probability at least ``P[Bin(steps, rate) >= k] Phi(c)^k`` with the record
    and at most ``C(steps, k) Phi(-t)^k`` without it; the best k and c of a grid are taken.
    """
    margins = np.linspace(-4.0, mu, 400)
    hits, false_alarms = norm.logcdf(margins), norm.logsf(mu - margins)
    best = 0.0
    for k in range(1, steps + 1):
        present = float(binom.logsf(k - 1, steps, rate))
        if present <= math.log(delta):
            break
        choices = gammaln(steps + 1) - gammaln(k + 1) - gammaln(steps - k + 1)
        power = np.exp(present + k * hits)
        enough = power > 2 * delta
        if enough.any():
            losses = np.log(power[enough] - delta) - choices - k * false_alarms[enough]
            best = max(best, float(losses.max()))
    return best


def run(size: Size, seed: int, progress: Progress) -> Result:
    """Claimed, proven and refuted epsilon for the whole training, and the same with equal weights."""
    weights = half_normal_quantiles(COORDINATES)
    rows = []
    for done, claimed in enumerate(CLAIMS[size], start=1):
        directional = closed_form(claimed, weights)
        proven = directional.epsilon(DELTA)
        event = GaussianEvent(noise_multiplier=1 / directional.mu, sampling_rate=RATE, count=STEPS)
        at_least = max(
            optimistic_epsilon(event, DELTA, interval=max(1e-3, 2e-6 * proven)),
            threshold_test_epsilon(directional.mu, steps=STEPS, rate=RATE, delta=DELTA),
        )
        equal = closed_form(claimed, np.ones(1))
        rows.append((claimed, proven, at_least, directional.mu, equal.epsilon(DELTA)))
        progress("claims", done, len(CLAIMS[size]))
    return Result(
        columns=("claimed", "proven", "at_least", "noise_ratio_mu", "proven_for_equal_weights"),
        rows=tuple(rows),
        facts={
            "delta": DELTA,
            "coordinates": COORDINATES,
            "lot": LOT,
            "records": RECORDS,
            "epochs": EPOCHS,
            "steps": STEPS,
            "clipping_bound": ALPHA,
            "accountant": accountant_name(),
            "neighbours": "add or remove one record",
        },
        notes=(
            "proven is an upper bound of the true epsilon, at_least a lower bound: the claim is refuted, "
            "not only unproven.",
            "at_least is the larger of the optimistic PLD and one explicit threshold test on the weakest "
            "coordinate.",
            "With equal weights the same budget formula is kept here, although dividing by q is no theorem.",
        ),
        draw=lambda figure: _draw(figure, rows),
        upper_bounds=("proven", "proven_for_equal_weights"),
        lower_bounds=("at_least",),
    )


def _draw(figure: Figure, rows: list[tuple[float, float, float, float, float]]) -> None:
    axes = figure.add_subplot()
    claimed, proven, at_least, _, equal = zip(*rows, strict=True)
    axes.fill_between(claimed, at_least, proven, color=PROVEN, alpha=0.15, linewidth=0)
    axes.plot(claimed, proven, color=PROVEN, marker="o", markersize=4, label="proven (upper bound)")
    axes.plot(claimed, at_least, color=OBSERVED, marker="v", markersize=4, label="at least (lower bound)")
    axes.plot(claimed, claimed, color=CLAIMED, label="claimed")
    axes.plot(claimed, equal, color="black", linewidth=1, dashes=(4, 3), label="proven for equal weights")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("claimed epsilon")
    axes.set_title(f"epsilon of the whole training at delta {DELTA:g}")
    axes.legend()
