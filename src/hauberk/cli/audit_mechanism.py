"""``hauberk audit-mechanism``: a mechanism's noise at two neighbours, its epsilon bounded from below."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.table import Table

from hauberk.audit.mechanism_audit import MechanismAudit, audit_mechanism
from hauberk.cli.calibrate import OPTIONS, Calibration, Numbers, calibrated
from hauberk.cli.screen import output, print_json, progress_bars
from hauberk.mechanisms import Mechanism
from hauberk.randomness import check_seed

LEVEL = 1e-3
"""Default error level of one audit: one sound mechanism in a thousand is accused."""


def audit_mechanism_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"One of {', '.join(OPTIONS)}.")],
    epsilon: Annotated[float, typer.Option(help="The epsilon that is promised.")],
    delta: Annotated[
        float | None, typer.Option(help="The delta that is promised; laplace needs none.", show_default=False)
    ] = None,
    sensitivity: Annotated[
        float, typer.Option(help="How far one record moves the answer: l2 (laplace: l1).")
    ] = 1.0,
    r: Annotated[
        str | None, typer.Option(help=f"heterogeneous: shares of the noise variance, {Numbers}.")
    ] = None,
    calibration: Annotated[
        Calibration | None, typer.Option(help="heterogeneous: exact (the default) or as in the paper.")
    ] = None,
    covariance: Annotated[
        str | None, typer.Option(help=f"multivariate: shape of the noise up to a factor, {Numbers}.")
    ] = None,
    transformed: Annotated[
        str | None, typer.Option(help=f"mixed: covariance of the noise that is there already, {Numbers}.")
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help=f"optimized-additive: impact of each coordinate, {Numbers}.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="mixed, optimized-additive: training steps.")] = None,
    sampling_rate: Annotated[
        float | None, typer.Option(help="optimized-additive: chance of a record to be in a lot.")
    ] = None,
    draws: Annotated[int, typer.Option(help="Releases to draw on each side.")] = 1_000_000,
    alpha: Annotated[float, typer.Option(help="How often a sound mechanism may be accused.")] = LEVEL,
    seed: Annotated[int, typer.Option(help="Of the draws.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Attack a mechanism's promise: claimed, proven and observed epsilon side by side.

    The noise is drawn at the two neighbours that it hides least; a score is learnt on some draws, and the
    others bound epsilon from below. Exit code 1: the promise is refuted.
    """
    check_seed(seed)
    given: dict[str, Any] = {
        "r": r,
        "calibration": None if calibration is None else calibration.value,
        "covariance": covariance,
        "transformed": transformed,
        "weights": weights,
        "steps": steps,
        "sampling-rate": sampling_rate,
    }
    made = calibrated(name, epsilon=epsilon, delta=delta, sensitivity=sensitivity, options=given)
    with progress_bars() as progress:
        audit = audit_mechanism(made, draws=draws, alpha=alpha, seed=seed, progress=progress)
    refuted = audit.epsilon_lower > made.claimed.epsilon
    if as_json:
        print_json(_as_json(name, made, audit))
    else:
        _print(name, made, audit)
    if refuted:
        raise typer.Exit(1)


def _as_json(name: str, made: Mechanism, audit: MechanismAudit) -> dict[str, Any]:
    claimed = made.claimed
    estimate = audit.estimate
    return {
        "mechanism": name,
        "claimed": {"epsilon": claimed.epsilon, "delta": claimed.delta},
        "proven": {"epsilon": made.epsilon(claimed.delta), "delta": claimed.delta},
        "observed": {
            "epsilon_lower": audit.epsilon_lower,
            "delta": audit.delta,
            "delta_lower_at_claimed_epsilon": audit.rates.delta(claimed.epsilon),
            "confidence": audit.confidence,
            "draws": audit.draws,
            "tested": audit.tested,
            "score": audit.score,
        },
        "gaussian_estimate": None if estimate is None else asdict(estimate),
        "refuted": audit.epsilon_lower > claimed.epsilon,
    }


def _print(name: str, made: Mechanism, audit: MechanismAudit) -> None:
    claimed = made.claimed
    table = Table(title=name, title_justify="left")
    columns = ("", "claimed", "proven", "observed, at least", "Gaussian estimate")
    for column in columns:
        table.add_column(column, justify="left" if column == "" else "right", overflow="fold")
    refuted = audit.epsilon_lower > claimed.epsilon
    table.add_row(
        f"epsilon at delta {claimed.delta:g}",
        f"{claimed.epsilon:.6g}",
        f"{made.epsilon(claimed.delta):.6g}",
        f"[{'bold red' if refuted else 'bold'}]{audit.epsilon_lower:.4g}[/]",
        "none" if audit.estimate is None else f"{audit.estimate.epsilon:.4g}",
    )
    output.print(table)
    output.print(
        f"Observed with confidence {audit.confidence:g} from {audit.draws:,} draws per side "
        f"({audit.tested:,} counted, {audit.score}); the estimate is no bound.",
        highlight=False,
    )
    if refuted:
        output.print("The promise is refuted.", style="bold red", highlight=False)
