"""StoBatch (003) and AdLM as published: noise that all records share hides none of them.

003 perturbs every record of a batch by the same draw and says that the perturbed batch is itself
differentially private (Lemma 3 and the proof of Theorem 1), with everything that is computed from it; AdLM
says so of its perturbed inputs. But the difference of two perturbed records is the difference of the records.

The game. Two data sets differ in one record, the target. What is released is the perturbed batch, without
names. The adversary knows the target and one other member, and says "in" where two perturbed rows differ by
exactly what target and member differ by, up to rounding. The rule was fixed beforehand; nothing is learnt.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from hauberk.audit.refutations.base import Refutation, Stakes, observed_epsilon
from hauberk.audit.refutations.small_worlds import fresh_randomness, method_of, pictures, settled
from hauberk.data import Dataset
from hauberk.methods.adlm import LARGEST_INPUT, AdLM
from hauberk.methods.adversarial_views import AdversarialViews
from hauberk.methods.base import Method
from hauberk.methods.published_stobatch import PerturbedPairs
from hauberk.randomness import Randomness
from hauberk.training import RecordViews

REASON = (
    "one noise vector is added to every record, so that the difference of two perturbed records is that of "
    "the records: whoever knows one member finds any other"
)
_SIDE, _OTHERS, _DECLARED, _BATCH = 8, 7, 8192, 1024
_ROUNDING = 0.01  # far above that of float32 under this noise, far below the difference of two pictures
_FEWEST_PIXELS = 4  # that were not cut off in both rows, to compare at all

Perturb = Callable[[Dataset, Randomness], Tensor]


def refute(method: str, variant: str, stakes: Stakes) -> Refutation:
    """``method``: stobatch or adlm. For a variant with fresh noise for every record the same game finds
    nothing."""
    world = pictures(_OTHERS + 1, side=_SIDE, seed=stakes.seed)
    target, member = world.x[-1], world.x[0]
    without = world.first(_OTHERS)
    perturb = perturbation(
        method_of(
            method,
            variant,
            stakes,
            shape=world.shape,
            records=_DECLARED,
            batch=_BATCH,
            epochs=1.0,
            model="mlp",
            training_attack_steps=1,
        ),
        (world, without),
    )

    def play(inside: bool, game: int) -> bool:
        batch = perturb(world if inside else without, fresh_randomness(stakes, game))
        return differ_by(batch, target - member)

    return Refutation(
        name="shared noise",
        method=method,
        variant=variant,
        attack="membership from the difference of two perturbed records",
        reason=REASON,
        confidence=1 - stakes.alpha,
        claimed_epsilon=stakes.epsilon,
        observed_epsilon=observed_epsilon(play, stakes),
        delta=stakes.delta,
        games=stakes.games,
    )


def perturbation(method: Method, worlds: tuple[Dataset, Dataset]) -> Perturb:
    """How a method perturbs a batch, by its own code with fresh noise."""
    if isinstance(method, AdLM):  # its noise is drawn in every step, by scales that are settled once
        once = fresh_randomness(Stakes(), 0)
        scales = {len(world): settled(method, world, once) for world in worlds}

        def perturbed(data: Dataset, randomness: Randomness) -> Tensor:
            views = method.record_views(method.model, data.shape, scales[len(data)])
            return _seen(views, data, randomness)

        return perturbed

    def perturbed_anew(data: Dataset, randomness: Randomness) -> Tensor:
        constants = settled(method, data, randomness)
        return _seen(method.record_views(method.model, data.shape, constants), data, randomness)

    return perturbed_anew


def _seen(views: RecordViews, data: Dataset, randomness: Randomness) -> Tensor:
    """The benign copy of each record as the network reads it; the adversarial one is made of it."""
    if isinstance(views, PerturbedPairs):
        views = views.adversarial
    noise = views.noise if isinstance(views, AdversarialViews) else views
    seen = noise(data.x, records=torch.arange(len(data)), step=0, key=randomness.view_key())
    copies = seen[0] if isinstance(seen, tuple) else seen
    return copies[:, 0]


def differ_by(batch: Tensor, difference: Tensor) -> bool:
    """Whether two rows of ``batch`` differ by ``difference`` wherever neither was cut off."""
    rows, wanted = batch.flatten(1), difference.flatten()
    whole = rows.abs() < LARGEST_INPUT if bool((rows.abs() == LARGEST_INPUT).any()) else torch.ones_like(rows)
    both = whole.bool().unsqueeze(0) & whole.bool().unsqueeze(1)
    off = (rows.unsqueeze(1) - rows.unsqueeze(0) - wanted).abs()
    agree = ((off < _ROUNDING) | ~both).all(-1) & (both.sum(-1) >= _FEWEST_PIXELS)
    return bool(agree.any())
