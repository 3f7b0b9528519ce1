"""Private smoothing beside the best published numbers (DP-CERT) and beside training without privacy.

Every row is one trained network and one number of votes: average certified l2 radius, Cohen et al.'s
procedure, alpha 0.001, a wrong or missing answer counting as radius 0.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from hauberk.accounting import prove
from hauberk.certify.metrics import Mean
from hauberk.experiments.parts import remembered
from hauberk.experiments.pictures import CLAIMED, OTHER, PROVEN
from hauberk.experiments.result import Cell, Result, Size
from hauberk.experiments.trained_runs import ALPHA, FigureRun, trained_run
from hauberk.methods.run import base_accuracy, spread, spread_rows
from hauberk.methods.smoothing_presets import smoothing_preset
from hauberk.progress import Progress

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = (
    "data",
    "sigma",
    "samples",
    "tested",
    "epsilon",
    "delta",
    "accountant",
    "seed",
    "average_certified_radius",
    "standard_error",
    "base_accuracy",
    "seconds_train",
    "seconds_certify",
    "device",
    "radius_of_all_images",
    "its_standard_error",
)
PUBLISHED: dict[str, dict[str, tuple[float, float]]] = {
    "mnist": {"0.25": (0.9819, 0.748), "0.5": (0.9774, 1.295), "1": (0.956, 1.354)},
    "fashion_mnist": {"0.25": (0.8407, 0.568), "0.5": (0.8202, 0.935), "1": (0.782, 1.186)},
}
"""DP-CERT (TMLR 2024): clean accuracy and average certified radius, n = 10,000, epsilon 2.68 (MNIST) and 2.70
by PLD, delta 1e-6."""
WITHOUT_PRIVACY = {"0.25": 0.91, "0.5": 1.55, "1": 1.62}
"""MNIST, Gaussian training without privacy, n = 100,000: average certified radius, about."""
_CURVE = tuple(round(0.05 * place, 2) for place in range(81))


@dataclass(frozen=True, kw_only=True)
class Case:
    """One network to train; ``epsilon`` None: without privacy. ``votes``: draws, and test images for each."""

    data: str
    sigma: float
    epsilon: float | None
    delta: float
    votes: tuple[tuple[int, int], ...]
    model: str | None = None
    seeds: int | None = None  # fewer than asked for


def _full() -> tuple[Case, ...]:
    all_images, some = (10_000, 10_000), (100_000, 500)
    beaten = [
        Case(data=data, sigma=sigma, epsilon=epsilon, delta=1e-6, votes=votes)
        for data, epsilon, votes in (
            ("mnist", 2.68, (all_images, some)),
            ("fashion_mnist", 2.70, (all_images,)),
        )
        for sigma in (0.25, 0.5, 1.0)
    ]
    over_epsilon = [
        Case(data="mnist", sigma=0.5, epsilon=epsilon, delta=1e-6, votes=(all_images,), seeds=1)
        for epsilon in (1.0, 8.0, None)
    ]
    from_scratch = [
        Case(data="cifar10", sigma=0.25, epsilon=8.0, delta=1e-5, votes=((10_000, 500),), seeds=1),
    ]
    return (*beaten, *over_epsilon, *from_scratch)


CASES: dict[Size, tuple[Case, ...]] = {
    "tiny": (
        Case(data="digits", sigma=0.25, epsilon=3.0, delta=1e-5, votes=((60, 8),), model="logistic"),
        Case(data="digits", sigma=0.25, epsilon=None, delta=1e-5, votes=((60, 8),), model="logistic"),
    ),
    "quick": (
        Case(data="digits", sigma=0.25, epsilon=2.99, delta=1e-5, votes=((1000, 200),)),
        Case(data="digits", sigma=0.25, epsilon=None, delta=1e-5, votes=((1000, 200),)),
    ),
    "full": _full(),
}
_SEEDS: dict[Size, int] = {"tiny": 1, "quick": 1, "full": 3}


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One row, with its certified accuracy against the radius."""

    case: Case
    row: tuple[Cell, ...]
    curve: list[float]

    def __getitem__(self, column: str) -> Cell:
        return self.row[COLUMNS.index(column)]


def run(size: Size, seed: int, progress: Progress) -> Result:
    return run_seeds(size, seed, _SEEDS[size], progress)


def run_seeds(size: Size, seed: int, seeds: int, progress: Progress) -> Result:
    """All cases with ``seeds`` seeds each."""
    cases = [
        (case, own) for case in CASES[size] for own in range(seed, seed + min(seeds, case.seeds or seeds))
    ]
    measured: list[Measured] = []
    for done, (case, own_seed) in enumerate(cases):
        progress("networks", done, len(cases))
        measured += case_rows(case, size, own_seed, progress)
    progress("networks", len(cases), len(cases))
    return result_of(measured)


def case_rows(case: Case, size: Size, seed: int, progress: Progress) -> Iterator[Measured]:
    about = {name: value for name, value in asdict(case).items() if name != "seeds"} | {"seed": seed}
    settings = settings_of_case(case, size)
    found = remembered(
        {"figure": "flagship", "size": size, **about, "settings": settings},
        partial(_measured, case, size, seed=seed, settings=settings, progress=progress),
    )
    for each in found:
        yield Measured(case=case, row=tuple(each["row"]), curve=each["curve"])


def settings_of_case(case: Case, size: Size) -> dict[str, Any]:
    """The preset for this data set, noise and epsilon; without privacy that of the largest epsilon."""
    privacy = {"no_privacy": True} if case.epsilon is None else {"epsilon": case.epsilon}
    asked = {"data": case.data, "sigma": case.sigma, "epsilon": case.epsilon or 1e9}
    tuned = smoothing_preset(asked) if size == "full" else {}
    named = {"sigma": case.sigma, "delta": case.delta, **privacy}
    return {**tuned, **named, **({} if case.model is None else {"model": case.model})}


def _measured(
    case: Case, size: Size, *, seed: int, settings: dict[str, Any], progress: Progress
) -> list[dict[str, Any]]:
    begun = time.perf_counter()
    # at full size nothing is seeded that a proof needs to be unpredictable
    noise = {"noise_seed": None} if size == "full" else {}
    trained = trained_run(
        "private-smoothing",
        "sound",
        data=case.data,
        size=size,
        seed=seed,
        progress=progress,
        **noise,
        **settings,
    )
    seconds = time.perf_counter() - begun
    found: list[dict[str, Any]] = []
    all_images: NDArray[np.float64] | None = None
    for samples, tested in case.votes:
        begun = time.perf_counter()
        radii = right_radii(trained, samples=samples, tested=tested, progress=progress)
        times = (seconds, time.perf_counter() - begun)
        found.append(_row(trained, case, radii, samples=samples, all_images=all_images, seconds=times))
        if len(radii) == len(trained.test):
            all_images = radii
    return found


def of_all_images(radii: NDArray[np.float64], all_images: NDArray[np.float64]) -> Mean:
    """The mean radius of all images, from ``radii`` of some and others, of fewer draws, of all.

    The mean of all that is known, and what more draws added on the images that had them: the difference
    varies far less from image to image than a radius does. Its error is that of the difference.
    """
    known = all_images.clip(min=0.0)
    more = Mean.of(radii.clip(min=0.0) - known[spread_rows(len(known), len(radii))])
    by = float(known.mean())
    return replace(more, value=by + more.value, low=by + more.low, high=by + more.high)


def _row(
    trained: FigureRun,
    case: Case,
    radii: NDArray[np.float64],
    *,
    samples: int,
    all_images: NDArray[np.float64] | None,
    seconds: tuple[float, float],
) -> dict[str, Any]:
    mean = Mean.of(radii.clip(min=0.0))
    total = None if all_images is None else of_all_images(radii, all_images)
    proof = prove(trained.run.ledger.events, case.delta) if case.epsilon is not None else None
    row: tuple[Cell, ...] = (
        case.data,
        case.sigma,
        samples,
        mean.counted,
        None if proof is None else proof.epsilon,
        None if proof is None else case.delta,
        None if proof is None else proof.accountant,
        trained.run.seed,
        mean.value,
        mean.standard_error,
        base_accuracy(trained.run.model, trained.test),
        *seconds,
        _device(),
        None if total is None else total.value,
        None if total is None else total.standard_error,
    )
    return {"row": row, "curve": [float((radii >= radius).mean()) for radius in _CURVE]}


def right_radii(trained: FigureRun, *, samples: int, tested: int, progress: Progress) -> NDArray[np.float64]:
    """-1 where the answer is wrong or missing."""
    inputs, done = spread(trained.test, tested), 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        progress("certifying", done, len(inputs))

    certificates = trained.classifier.certify(
        inputs.x, samples=samples, alpha=ALPHA, seed=trained.run.seed, progress=advance
    )
    return np.where(np.equal(certificates.labels, inputs.y.numpy()), certificates.radii, -1.0)


def _device() -> str:
    return (
        torch.cuda.get_device_name()
        if torch.cuda.is_available()
        else f"CPU, {torch.get_num_threads()} threads"
    )


def result_of(measured: Sequence[Measured]) -> Result:
    return Result(
        columns=COLUMNS,
        rows=tuple(each.row for each in measured),
        facts={
            "alpha": ALPHA,
            "published_accuracy_and_radius": PUBLISHED,
            "radius_without_privacy": WITHOUT_PRIVACY,
            "means": _means(measured),
        },
        notes=(
            "average_certified_radius: l2, mean over test images, 0 where the answer is wrong or missing; "
            "standard_error is over images.",
            "radius_of_all_images: where only some images were certified with so many draws, the mean radius "
            "of all of them with fewer draws and what more draws added on those; its_standard_error is that "
            "of the difference.",
            "epsilon is proven from the executed steps, rounded up; - means that nobody is protected.",
            "base_accuracy is that of the network itself on all test images without noise.",
            "Settings were not chosen on test images; choosing them on private records would cost privacy "
            "that is not in epsilon.",
            "published: DP-CERT (TMLR 2024) at n = 10,000; without privacy: about what Gaussian training "
            "reaches on MNIST at n = 100,000.",
        ),
        draw=lambda figure: _draw(figure, measured),
        upper_bounds=("epsilon",),
        lower_bounds=("average_certified_radius", "radius_of_all_images"),
        measured=("seconds_train", "seconds_certify"),
    )


def radius_of(each: Measured) -> float:
    """Of all images where that is known, else of those that were certified."""
    estimated = each["radius_of_all_images"]
    return float((each["average_certified_radius"] if estimated is None else estimated) or 0)


def _means(measured: Sequence[Measured]) -> dict[str, dict[str, float]]:
    """By data set, noise, epsilon and votes: mean and spread over seeds of `radius_of`."""
    groups: dict[str, list[Measured]] = {}
    for each in measured:
        epsilon = "no privacy" if each.case.epsilon is None else f"epsilon {each.case.epsilon:g}"
        name = f"{each.case.data}, sigma {each.case.sigma:g}, {epsilon}, n {each['samples']}"
        groups.setdefault(name, []).append(each)
    means: dict[str, dict[str, float]] = {}
    for name, group in groups.items():
        radii = [radius_of(each) for each in group]
        bases = [float(each["base_accuracy"] or 0) for each in group]
        means[name] = {
            "radius": float(np.mean(radii)),
            "radius_spread": max(radii) - min(radii),
            "base_accuracy": float(np.mean(bases)),
            "base_accuracy_spread": max(bases) - min(bases),
            "seeds": len(group),
        }
    return means


def _draw(figure: Figure, measured: Sequence[Measured]) -> None:
    by_epsilon, by_radius = figure.subplots(1, 2)
    _draw_epsilons(by_epsilon, measured)
    _draw_curves(by_radius, measured)


def _draw_epsilons(axes: Axes, measured: Sequence[Measured]) -> None:
    """The data set and noise that has been trained with most epsilons, at the most votes that all have."""
    sets = {(each.case.data, each.case.sigma) for each in measured}
    data, sigma = max(sorted(sets), key=lambda one: len({each.case.epsilon for each in _of(measured, one)}))
    own = _of(measured, (data, sigma))
    by_epsilon: dict[float | None, set[int]] = {}
    for each in own:
        by_epsilon.setdefault(each.case.epsilon, set()).add(int(each["samples"] or 0))
    samples = max(set.intersection(*by_epsilon.values()))
    own = [each for each in own if each["samples"] == samples]
    points: dict[float, list[float]] = {}
    for each in own:
        radius = radius_of(each)
        if each.case.epsilon is None:
            axes.axhline(radius, color=OTHER, dashes=(4, 2), label="without privacy")
        else:
            points.setdefault(each.case.epsilon, []).append(radius)
    places = sorted(points)
    axes.plot(
        places, [float(np.mean(points[at])) for at in places], color=PROVEN, marker="o", label="private"
    )
    if len(places) > 1:
        axes.set_xscale("log")
        axes.set_xticks(places, [f"{at:g}" for at in places])
        axes.set_xticks([], minor=True)
    axes.set_title(f"average certified radius, {data}, sigma {sigma:g}")
    axes.set_xlabel(f"proven epsilon (n {samples})")
    axes.set_ylim(0, 1.05 * axes.get_ylim()[1])
    axes.legend(fontsize="small")


def _of(measured: Sequence[Measured], one: tuple[str, float]) -> list[Measured]:
    return [each for each in measured if (each.case.data, each.case.sigma) == one]


def _draw_curves(axes: Axes, measured: Sequence[Measured]) -> None:
    """Certified accuracy of the first data set's private networks, one line for each noise."""
    data = measured[0].case.data
    first = measured[0].case.epsilon
    private = [each for each in measured if (each.case.data, each.case.epsilon) == (data, first)]
    colours = (PROVEN, CLAIMED, OTHER)
    for sigma, colour in zip(sorted({each.case.sigma for each in private}), colours, strict=False):
        own = [each for each in private if each.case.sigma == sigma]
        most = max(int(each["samples"] or 0) for each in own)
        curves = [each.curve for each in own if each["samples"] == most]
        axes.plot(_CURVE, np.mean(curves, axis=0), color=colour, label=f"sigma {sigma:g}, n {most}")
    axes.set_title(f"certified accuracy, {data}")
    axes.set_xlabel("l2 radius")
    axes.set_ylim(0, 1)
    axes.legend(fontsize="small")
