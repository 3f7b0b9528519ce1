"""PGD against a randomised classifier, each input with its own radius, points without a verdict."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from hauberk.attacks.iterative import PGD
from hauberk.certify import Norm, Smoothed


@dataclass(frozen=True, kw_only=True)
class NoisyPGD:
    """Ascent on ``-log E[softmax probability of the label]`` over the classifier's own noise.

    The projected loop from a random start with ``draws`` fresh noises at every step, all steps taken: the
    point that a certificate has to survive is the last one, not the first that looks broken.
    """

    steps: int = 20
    draws: int = 16
    restarts: int = 1
    norm: Norm = "l2"

    def __post_init__(self) -> None:
        self._loop()

    def _loop(self) -> PGD:
        return PGD(
            norm=self.norm,
            steps=self.steps,
            draws=self.draws,
            restarts=self.restarts,
            stop_when_broken=False,
        )

    @property
    def name(self) -> str:
        starts = "1 start" if self.restarts == 1 else f"{self.restarts} starts"
        return f"{self.norm} PGD, {self.steps} steps, expectation over {self.draws} draws, {starts}"

    def run(self, target: Smoothed, x: Tensor, labels: Tensor, radii: Tensor, *, seed: int) -> Tensor:
        """For each input, the worst point found within its own radius and within [0, 1].

        Radius zero returns the input bit for bit. The model's modes and gradients are left as they were.
        """
        return self._loop().perturb(target, x, labels, radius=radii, seed=seed)
