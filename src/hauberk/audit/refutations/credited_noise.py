"""TransDenoiser (004 chapter 6) as published: noise that is left out because a record vouches for it.

Algorithm 3 counts the noise on a record's pixels as noise on the gradient: where ``T S_min sigma^2`` reaches
``xi_up^2``, no noise is added. S_min is computed from the private records of the step. An almost black
picture makes it huge: a normalised feature of a picture without contrast has an enormous derivative, of which
the noisy picture, the one whose gradient is summed, knows nothing. So wherever that record is in the sample
and is counted, the gradient of everybody in it comes out with a fraction of the noise; and where it is not
counted it brings noise of its own beside that of the others.

The game. Two data sets differ in one almost black picture. One step is run as the method runs it: its own
sampling, views, credit and noise. The adversary looks at the mean square of what is released, in units of the
promised noise, and says "in" where it is not between 0.6 and 1.6. The rule was fixed beforehand; nothing is
learnt. One step of a promise that is made for all of them is enough.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from hauberk.audit.refutations.base import Refutation, Stakes, observed_epsilon
from hauberk.audit.refutations.small_worlds import (
    RepeatedStep,
    flat,
    fresh_randomness,
    method_of,
    pictures,
)
from hauberk.data import Dataset
from hauberk.methods.base import Method

REASON = (
    "a step leaves its noise out where S_min of the private records says that their pixels' noise will do: "
    "how much noise there is tells who is in the sample"
)
_SIDE, _WIDTH, _RECORDS, _EPOCHS = 10, 1, 32, 8.0  # all records are in every step
_CONTRAST = 1e-5
_AS_PROMISED = (0.6, 1.6)  # of the variance: with a hundred coordinates and more, full noise stays within


def refute(method: str, variant: str, stakes: Stakes) -> Refutation:
    """In the sound variant no noise is ever left out, and the same game finds nothing."""
    other = pictures(1, side=_SIDE, seed=stakes.seed)
    generator = torch.Generator().manual_seed(stakes.seed)
    dark = _CONTRAST * torch.rand(1, *other.shape, generator=generator)
    both = replace(other, x=torch.cat([dark, other.x]), y=torch.cat([other.y, other.y]))
    denoising = method_of(
        method,
        variant,
        stakes,
        shape=other.shape,
        records=_RECORDS,
        batch=_RECORDS,
        epochs=_EPOCHS,
        schedule="constant",
        model="mlp",
        denoiser_width=_WIDTH,
    )
    with_dark, without = SingleStep(denoising, both, stakes), SingleStep(denoising, other, stakes)

    def play(inside: bool, game: int) -> bool:
        share = (with_dark if inside else without).noise_share(game)
        return not _AS_PROMISED[0] <= share <= _AS_PROMISED[1]

    return Refutation(
        name="credited noise",
        method=method,
        variant=variant,
        attack="membership from how much noise a step adds",
        reason=REASON,
        confidence=1 - stakes.alpha,
        claimed_epsilon=stakes.epsilon,
        observed_epsilon=observed_epsilon(play, stakes),
        delta=stakes.delta,
        games=stakes.games,
    )


class SingleStep:
    """One step from the same weights with ``data``, as often as one likes."""

    def __init__(self, method: Method, data: Dataset, stakes: Stakes) -> None:
        classifier = method.model.get_submodule("classifier").state_dict()
        self._step = RepeatedStep(
            method.trainer(
                data,
                randomness=fresh_randomness(stakes, 0),
                constants={f"classifier/{name}": value for name, value in classifier.items()},
            )
        )
        self._promised = method.plan.noise_multiplier * method.clipping.sensitivity

    def noise_share(self, game: int) -> float:
        """Mean square of what the step releases over the variance that was promised."""
        released = flat(self._step.released(game).values())
        return float(released.square().mean()) / self._promised**2
