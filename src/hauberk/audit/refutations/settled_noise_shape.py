"""Secure-SGD (000) as published: the redistribution vector r tells who shaped it.

000 takes r (Eq. 7) from a network trained on the private records and from their derivatives, without noise,
says that this leaks nothing, and releases r with the classifier: the noise after the first map is
``sigma_r sqrt(K r)``.

The game. Two data sets differ in one record, the target. The adversary knows all other records and the seed
of the public initial weights, and so computes both vectors that can come out; it says "in" where the released
one is nearer to the vector with the target. The rule was fixed beforehand; nothing is learnt.
"""

from __future__ import annotations

from torch import Tensor

from hauberk.audit.refutations.base import Refutation, Stakes, observed_epsilon
from hauberk.audit.refutations.small_worlds import fresh_randomness, method_of, pictures, settled
from hauberk.data import Dataset

REASON = (
    "r is a function of the private records without any noise: whoever knows all but one of them computes "
    "both vectors that can come out and sees which one did"
)
_SIDE, _OTHERS, _DECLARED, _BATCH = 8, 11, 64, 16


def refute(method: str, variant: str, stakes: Stakes) -> Refutation:
    """The sound variant releases r with noise, which is paid for: the same game stays within the promise."""
    world = pictures(_OTHERS + 1, side=_SIDE, seed=stakes.seed)
    without = world.first(_OTHERS)
    settings = {"redistribution": "private"} if variant == "sound" else {}
    secure = method_of(
        method,
        variant,
        stakes,
        shape=world.shape,
        records=_DECLARED,
        batch=_BATCH,
        epochs=4.0,
        model="mlp",
        **settings,
    )

    def released(data: Dataset, game: int) -> Tensor:
        return settled(secure, data, fresh_randomness(stakes, game))["scales"].double()

    # what the adversary expects, from games that are not counted
    expected_in, expected_out = released(world, -1), released(without, -1)
    middle, direction = (expected_in + expected_out) / 2, expected_in - expected_out

    def play(inside: bool, game: int) -> bool:
        seen = released(world if inside else without, game)
        return float(((seen - middle) * direction).sum()) > 0

    return Refutation(
        name="r from the records",
        method=method,
        variant=variant,
        attack="which of two known vectors r is",
        reason=REASON,
        confidence=1 - stakes.alpha,
        claimed_epsilon=stakes.epsilon,
        observed_epsilon=observed_epsilon(play, stakes),
        delta=stakes.delta,
        games=stakes.games,
    )
