"""From a method's name to its trained run, and from a run to the votes from which all its radii follow."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hauberk.certify import Certificates, Norm, Smoothed, clopper_pearson_lower
from hauberk.certify.certificates import find_certificate
from hauberk.data import Dataset, Split
from hauberk.data.public import default_public
from hauberk.experiments.generators import proven_epsilon_of
from hauberk.methods.catalogue import find_method
from hauberk.methods.presets import preset
from hauberk.methods.run import Run, spread
from hauberk.methods.settings import TrainSettings, merge_settings
from hauberk.methods.training import build_method, load_split
from hauberk.progress import Progress

ALPHA = 0.001
"""Error of a certificate, per input."""


@lru_cache(maxsize=6)
def _split(data: str, size: str, public: str | None, validation: int | None) -> Split:
    return load_split(TrainSettings(data=data, size=size, public_data=public, validation=validation))


@dataclass(frozen=True, kw_only=True, eq=False)
class FigureRun:
    """``proven`` holds for the same run without its noise seed; seeded noise is for repeating figures."""

    run: Run
    test: Dataset
    proven: float | None  # epsilon; None: nothing can be proven

    @cached_property
    def classifier(self) -> Smoothed:
        """One for all that is asked of the run: it remembers its gains, which take longest."""
        return self.run.classifier

    @property
    def sigma(self) -> float:
        """Of the noise after the first map: the root of the mean variance over its outputs."""
        noise = self.classifier.noise.after_first_map
        return noise if isinstance(noise, float) else float(noise.double().square().mean().sqrt())


_MEMORY = "20GB"
"""Of a step, so that several figures can share a device; it changes no result."""


def trained_run(
    method: str, variant: str, *, data: str, size: str, seed: int, progress: Progress, **changes: Any
) -> FigureRun:
    """The method with its own settings and ``changes``, on any device that there is.

    Weights, sampling and noise all come from ``seed``; with ``noise_seed=None`` only the weights do. A method
    that needs public records gets the data set's own, and trains on the others. ``validation``: so many
    training records stand in for the test records.
    """
    row = find_method(method, variant)
    public = default_public(data) if row.needs_public_data({**changes, "variant": variant}) else None
    split = _split(data, size, public, changes.get("validation"))
    basis = preset(data, size, records=split.records, image=len(split.train.shape) == 3)
    named = {"method": method, "variant": variant, "seed": seed, "noise_seed": seed, "public_data": public}
    usual = {**basis, "views": 1, "memory": _MEMORY, **row.defaults(variant, records=split.records)}
    settings = merge_settings(usual, named, changes)
    if "noise_seed" in changes and changes["noise_seed"] is None:
        settings = replace(settings, noise_seed=None)
    plan = row.plan(settings, records=split.records)
    run = build_method(settings, split, plan).fit(split.train, public=split.public, progress=progress)
    proven = None if run.unprovable else proven_epsilon_of(run.ledger.events, settings.delta)
    return FigureRun(run=run, test=split.test, proven=proven)


@dataclass(frozen=True, kw_only=True, eq=False)
class Votes:
    """Votes of some test inputs, counted once, and what every certificate makes of them."""

    lower: NDArray[np.float64]  # bounds the top class's probability, wrong with probability alpha per input
    right: NDArray[np.bool_]  # certified with the true label

    @classmethod
    def of(cls, certificates: Certificates, truth: NDArray[np.int64]) -> Votes:
        lower = clopper_pearson_lower(certificates.votes, certificates.samples, certificates.alpha)
        return cls(lower=np.asarray(lower), right=np.equal(certificates.labels, truth))

    def certified(self, certificate: str, *, gain: float) -> NDArray[np.float64]:
        """Radius where the answer is right, -1 where it is wrong or missing."""
        return np.where(self.right, find_certificate(certificate).radius(self.lower, gain=gain), -1.0)


def count_votes(trained: FigureRun, *, inputs: int, samples: int, progress: Progress) -> Votes:
    """``samples`` draws for each of ``inputs`` test inputs, spread evenly over the test set."""
    tested, done = spread(trained.test, inputs), 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        progress("certifying", done, len(tested))

    certificates = trained.classifier.certify(
        tested.x, samples=samples, alpha=ALPHA, seed=trained.run.seed, progress=advance
    )
    return Votes.of(certificates, tested.y.numpy())


def share_at(radii: NDArray[np.float64], mu: float) -> float:
    """Certified accuracy at ``mu``: the share of all inputs that are right and certified that far."""
    return float((radii >= mu).mean())


def joint_gain(trained: FigureRun, norm: Norm) -> float:
    """Of all that the network reads: the gain that proofs rest on."""
    return trained.classifier.gain_of(norm, trained.test.shape).value
