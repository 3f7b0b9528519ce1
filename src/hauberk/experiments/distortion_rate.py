"""002 section 5: no mechanism that reveals little distorts little, and how far above the bound ours are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hauberk.experiments.directional_truth import half_normal_quantiles
from hauberk.experiments.pictures import CLAIMED, OBSERVED, OTHER, PROVEN
from hauberk.experiments.result import Cell, Result, Size
from hauberk.mechanisms import Laplace
from hauberk.mechanisms.checks import Vector
from hauberk.mechanisms.information import (
    distortion_rate,
    gaussian_channel_rate,
    gaussian_source,
    mutual_information_bound,
    tight_mutual_information_bound,
    uniform_source,
)
from hauberk.mechanisms.optimized_additive import closed_form_scale
from hauberk.progress import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COORDINATES = 100
POINTS: dict[Size, int] = {"tiny": 4, "quick": 15, "full": 41}


def run(size: Size, seed: int, progress: Progress) -> Result:
    """Two questions, both with independent coordinates and in nats.

    Left: a standard Gaussian gradient with half-normal weights, released with isotropic noise, with the
    noise of 002's closed form, each with and without the best linear estimate of the gradient from what was
    released (which reveals nothing more). At every rate the bound is D*(R) for the rate really used.
    Right: one uniform value, all of whose values are neighbours, under pure epsilon: the rate that epsilon
    allows (002 Theorem 2, and the tighter form) turned into a bound, and the Laplace mechanism above it.
    """
    points = POINTS[size]
    weights = half_normal_quantiles(COORDINATES)
    source = gaussian_source(np.ones(COORDINATES))
    shapes = {
        "isotropic": np.ones(COORDINATES),
        "closed form": closed_form_scale(weights, sensitivity=1.0, tau=1.0),
    }
    curves: dict[str, list[tuple[float, float, float, float]]] = {}
    for name, shape in shapes.items():
        points_of_curve = []
        for level in np.geomspace(0.05, 20, points):
            noise: Vector = (level * shape / np.sqrt(np.mean(shape**2))) ** 2
            rate = gaussian_channel_rate(np.ones(COORDINATES), noise)
            plain = float((weights**2 * noise).sum())
            estimated = float((weights**2 * noise / (1 + noise)).sum())
            bound = distortion_rate(rate, source, weights=weights).distortion
            points_of_curve.append((rate, bound, plain, estimated))
        curves[name] = points_of_curve
        progress("noise", len(curves), len(shapes))
    pure = []
    uniform = uniform_source([1.0])
    for epsilon in np.geomspace(0.1, 20, points).tolist():
        laplace = Laplace.calibrate(epsilon=epsilon, sensitivity=1.0)
        loose = distortion_rate(mutual_information_bound(epsilon), uniform).distortion
        tight = distortion_rate(tight_mutual_information_bound(epsilon), uniform).distortion
        pure.append((epsilon, loose, tight, laplace.scale**2))
    rows: list[tuple[Cell, ...]] = [
        (name, rate, None, bound, None, plain, estimated)
        for name, curve in curves.items()
        for rate, bound, plain, estimated in curve
    ]
    rows += [
        ("laplace", tight_mutual_information_bound(epsilon), epsilon, tight, loose, noise, None)
        for epsilon, loose, tight, noise in pure
    ]
    return Result(
        columns=(
            "mechanism",
            "rate",
            "epsilon",
            "bound",
            "bound_by_theorem_2",
            "distortion",
            "distortion_of_best_estimate",
        ),
        rows=tuple(rows),
        facts={
            "coordinates": COORDINATES,
            "source": "independent standard Gaussian (noise), uniform of width 1 (laplace)",
            "units": "nats",
            "least_distortion_over_bound": {
                name: min(plain / bound for _, bound, plain, _ in curve) for name, curve in curves.items()
            },
            "least_estimate_over_bound": {
                name: min(estimated / bound for _, bound, _, estimated in curve)
                for name, curve in curves.items()
            },
            "least_laplace_over_tight_bound": min(noise / tight for _, _, tight, noise in pure),
        },
        notes=(
            "The rate of laplace is the most that its epsilon allows; of the others, what the noise reveals.",
            "No curve falls below its bound. At equal rate the closed form distorts more than isotropic "
            "noise: it puts the larger noise where the weight is larger.",
        ),
        draw=lambda figure: _draw(figure, curves, pure),
        lower_bounds=("bound",),
    )


def _draw(
    figure: Figure,
    curves: dict[str, list[tuple[float, float, float, float]]],
    pure: list[tuple[float, float, float, float]],
) -> None:
    left, right = figure.subplots(1, 2)
    everything = sorted((rate, bound) for curve in curves.values() for rate, bound, _, _ in curve)
    left.plot(*zip(*everything, strict=True), color="black", label="bound D*(R)")
    for (name, curve), colour in zip(curves.items(), (OTHER, CLAIMED), strict=True):
        rates, _, plain, estimated = zip(*curve, strict=True)
        left.plot(rates, plain, color=colour, dashes=(4, 3), label=name)
        left.plot(rates, estimated, color=colour, label=f"{name}, best estimate")
    left.set_xlabel("rate, nats")
    left.set_title("weighted distortion, Gaussian source")
    epsilons, loose, tight, laplace = zip(*pure, strict=True)
    right.plot(epsilons, loose, color="black", dashes=(4, 3), label="bound, 002 Theorem 2")
    right.plot(epsilons, tight, color="black", label="bound, tighter form")
    right.plot(epsilons, laplace, color=OBSERVED, label="Laplace")
    right.axhline(1 / 12, color=PROVEN, linewidth=1, label="answer the mean")
    right.set_xlabel("pure epsilon")
    right.set_title("distortion, uniform source")
    right.set_ylim(1e-6, 1e3)
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.legend(fontsize="small")
