"""``hauberk calibrate``: the noise a mechanism needs, what is claimed for it, and what is true of it."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.table import Table

from hauberk.accounting import accountant_name
from hauberk.cli.screen import output, print_json
from hauberk.cli.train import RUNS
from hauberk.errors import RequestError
from hauberk.experiments.pictures import CLAIMED, PROVEN, render
from hauberk.files import write_bytes
from hauberk.mechanisms import MECHANISMS, Laplace, Mechanism, OptimizedAdditive, weighted_sensitivity
from hauberk.mechanisms.checks import Vector

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Which options each mechanism takes beyond epsilon, delta and sensitivity; True: it cannot do without.
OPTIONS: dict[str, dict[str, bool]] = {
    "gaussian": {},
    "analytic": {},
    "extended": {},
    "heterogeneous": {"r": True, "calibration": False},
    "multivariate": {"covariance": True},
    "mixed": {"transformed": True, "steps": True},
    "optimized-additive": {"weights": True, "steps": True, "sampling-rate": True},
    "laplace": {},
}
_KEYWORDS = {"r": "redistribution", "sampling-rate": "sampling_rate"}
_PICTURES = ("png", "svg", "pdf")


class Calibration(StrEnum):
    analytic = "analytic"
    extended = "extended"


Numbers = "numbers (1,0.5 or, for a matrix, 1,0.5;0.5,2), or a .csv or .npy file"


def calibrate(
    mechanism: Annotated[str, typer.Option(help=f"One of {', '.join(OPTIONS)}.")],
    epsilon: Annotated[float, typer.Option(help="The epsilon to promise.")],
    delta: Annotated[
        float | None, typer.Option(help="The delta to promise; laplace needs none.", show_default=False)
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
    plot: Annotated[
        Path | None,
        typer.Option(
            help="Where to draw delta(epsilon): .png, .svg or .pdf; default runs/calibrate/NAME.png."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON; draws only with --plot.")] = False,
) -> None:
    """The noise for a promise (epsilon, delta): what is claimed for it, and what is exactly true of it.

    For heterogeneous, --sensitivity is an ordinary l2 sensitivity; the coordinate with the least noise
    decides how much it counts.
    """
    given: dict[str, Any] = {
        "r": r,
        "calibration": None if calibration is None else calibration.value,
        "covariance": covariance,
        "transformed": transformed,
        "weights": weights,
        "steps": steps,
        "sampling-rate": sampling_rate,
    }
    made = calibrated(mechanism, epsilon=epsilon, delta=delta, sensitivity=sensitivity, options=given)
    claimed = made.claimed
    proven = made.epsilon(claimed.delta)
    if plot is None and not as_json:
        plot = RUNS / "calibrate" / f"{mechanism}.png"
    if plot is not None:
        _draw(plot, mechanism, made)
    if as_json:
        scale = made.scale
        print_json(
            {
                "mechanism": mechanism,
                "sigma": scale.tolist() if isinstance(scale, np.ndarray) else scale,
                "claimed": {"epsilon": claimed.epsilon, "delta": claimed.delta},
                "proven": {"epsilon": proven, "delta": claimed.delta},
            }
        )
        return
    _print_table(mechanism, made, proven)
    output.print(f"Plot: {plot}", highlight=False, soft_wrap=True)


def calibrated(
    name: str, *, epsilon: float, delta: float | None, sensitivity: float, options: dict[str, Any]
) -> Mechanism:
    """The mechanism of that name; an option that it does not take, or lacks, is named."""
    if name not in OPTIONS:
        raise RequestError(f"there is no mechanism {name!r}; known: {', '.join(OPTIONS)}.")
    takes = OPTIONS[name]
    request: dict[str, Any] = {}
    for option, value in options.items():
        if value is not None and option not in takes:
            fitting = [other for other, known in OPTIONS.items() if option in known]
            raise RequestError(f"{name} takes no --{option}; it belongs to {' and '.join(fitting)}.")
        if value is None and takes.get(option, False):
            raise RequestError(f"{name} needs --{option}.")
        if value is not None:
            parsed = (
                read_numbers(option, value) if isinstance(value, str) and option != "calibration" else value
            )
            request[_KEYWORDS.get(option, option)] = parsed
    if delta is None:
        if name != "laplace":
            raise RequestError(f"{name} needs --delta.")
    elif not 0 < delta < 1:
        raise RequestError(f"--delta must lie strictly between 0 and 1, got {delta}.")
    else:
        request["delta"] = delta
    if name == "heterogeneous":
        sensitivity = weighted_sensitivity(sensitivity, request["redistribution"])
    try:
        return MECHANISMS[name].calibrate(epsilon=epsilon, sensitivity=sensitivity, **request)
    except OverflowError:
        raise RequestError("these numbers are too large or too small to compute with.") from None


def read_numbers(option: str, text: str) -> Vector:
    """A vector ``1,2,3``, a matrix ``1,0;0,1``, or a .csv or .npy file of either, read without pickle."""
    if text.endswith((".npy", ".csv")):
        try:
            if text.endswith(".npy"):
                loaded = np.load(text, allow_pickle=False)
            else:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", UserWarning)  # an empty file: refused like any other
                    loaded = np.loadtxt(text, delimiter=",")
        except OSError as error:
            raise RequestError(f"cannot read --{option} {text}: {error.strerror or error}.") from error
        except (ValueError, EOFError, MemoryError) as error:  # MemoryError: more is announced than is there
            raise RequestError(f"--{option}: {text} does not hold plain numbers.") from error
        if not isinstance(loaded, np.ndarray) or loaded.dtype.kind not in "fiu":
            raise RequestError(f"--{option}: {text} does not hold plain numbers.")
        return np.atleast_1d(np.asarray(loaded, dtype=np.float64))
    try:
        rows = [[float(number) for number in row.split(",")] for row in text.split(";")]
    except ValueError:
        raise RequestError(f"--{option} takes {Numbers}; got {text!r}.") from None
    if len({len(row) for row in rows}) > 1:
        raise RequestError(f"--{option}: the rows of the matrix have different lengths.")
    return np.array(rows[0] if len(rows) == 1 else rows)


def _print_table(name: str, made: Mechanism, proven: float) -> None:
    claimed = made.claimed
    output.print(f"{name}: {_noise(made)}", style="bold", highlight=False)
    table = Table()
    for column in ("", "claimed", "proven"):
        table.add_column(column, justify="left" if column == "" else "right")
    broken = "bold red" if proven > claimed.epsilon else "bold"
    table.add_row(
        f"epsilon at delta {claimed.delta:g}", f"{claimed.epsilon:.6g}", f"[{broken}]{_up(proven)}[/]"
    )
    table.add_row(
        f"delta at epsilon {claimed.epsilon:g}",
        f"{claimed.delta:.6g}",
        f"[{broken}]{_up(made.delta(claimed.epsilon))}[/]",
    )
    output.print(table)
    if isinstance(made, OptimizedAdditive) and made.sampling_rate < 1:
        output.print(
            f"Proven by {accountant_name()} where it can compute, else by exact profiles with known lots; "
            "add or remove one record.",
            highlight=False,
        )
    else:
        output.print(
            "Proven by the exact privacy profile of the noise, rounded up, for the neighbours of the "
            "sensitivity.",
            highlight=False,
        )
    if proven > claimed.epsilon:
        output.print("The claim does not hold for this noise.", style="bold red", highlight=False)


def _noise(made: Mechanism) -> str:
    scale = made.scale
    if not isinstance(scale, np.ndarray):
        diversity = f" (Laplace diversity b {made.diversity:.6g})" if isinstance(made, Laplace) else ""
        return f"sigma {scale:.6g}{diversity}"
    flat = scale.ravel()
    if flat.size <= 6:
        return f"sigma {', '.join(f'{value:.6g}' for value in flat)}"
    return f"sigma from {flat.min():.6g} to {flat.max():.6g} over {flat.size} coordinates"


def _up(value: float) -> str:
    """Six digits, rounded up as everything proven is."""
    if value == 0:
        return "0"
    exact = Decimal(repr(value))
    rounded = exact.quantize(Decimal(1).scaleb(exact.adjusted() - 5), rounding=ROUND_CEILING)
    return f"{float(rounded):.6g}"


@dataclass(frozen=True)
class _Profile:
    epsilons: Vector
    deltas: list[float]


def _profile(made: Mechanism) -> _Profile:
    """delta(epsilon) from 0 to where it has fallen well below the claim, and past the claim's epsilon."""
    smallest = min(made.claimed.delta or 1e-9, 1e-9)
    end = 1.1 * max(made.epsilon(smallest), made.claimed.epsilon)
    epsilons = np.linspace(0, end, 60)
    return _Profile(epsilons, [made.delta(float(epsilon)) for epsilon in epsilons])


def _draw(path: Path, name: str, made: Mechanism) -> None:
    kind = path.suffix.lower().removeprefix(".")
    if kind not in _PICTURES:
        raise RequestError(f"--plot writes .png, .svg or .pdf files, not {path.name!r}.")
    profile, claimed = _profile(made), made.claimed

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        floor = min(claimed.delta or 1e-9, 1e-9) / 10
        shown = [(e, d) for e, d in zip(profile.epsilons, profile.deltas, strict=True) if d >= floor]
        axes.plot(*zip(*shown, strict=True), color=PROVEN, label="proven: delta(epsilon) of this noise")
        axes.plot(
            claimed.epsilon,
            max(claimed.delta, floor),
            color=CLAIMED,
            marker="o",
            linestyle="none",
            clip_on=False,
            label="claimed",
        )
        axes.set_yscale("log")
        axes.set_ylim(floor, 1.5)
        axes.set_xlim(left=0)
        axes.set_xlabel("epsilon")
        axes.set_title(f"{name}: delta")
        axes.legend()

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(f"cannot make the folder {path.parent}: {error.strerror or error}") from error
    write_bytes(path, render(draw, kind=kind))
