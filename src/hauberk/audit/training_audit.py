"""Audit of a training: insert canaries by coin, train as the method trains, guess the coins, bound epsilon.

One training with many canaries gives the one-run bound; many short trainings with a single canary give the
classical bound. Both attack the promise at the plan's own delta.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from hauberk.accounting.card import PrivacyObservation
from hauberk.audit.black_box import loss_scores
from hauberk.audit.bounds import GaussianEstimate, Values, check_level, choose_threshold, gaussian_estimate
from hauberk.audit.canaries import GradientCanaries, RecordCanaries, fair_coins
from hauberk.audit.guesses import RULES, GuessRule, best_verdict
from hauberk.audit.white_box import (
    CanarySampler,
    GradientCanaryNoise,
    RecordCanaryNoise,
    matched_scores,
    spread_scores,
)
from hauberk.data import Dataset
from hauberk.errors import RequestError
from hauberk.gradients import trainable
from hauberk.methods.base import Given, Method
from hauberk.progress import Progress, silent
from hauberk.randomness import choose_randomness
from hauberk.training import StepDone
from hauberk.training.distribution import Ranks
from hauberk.training.loop import NO_CLIP

Adversary = Literal["white-box", "black-box"]
Canaries = RecordCanaries | GradientCanaries

_FEWEST_RUNS = 20


@dataclass(frozen=True, kw_only=True)
class PrivacyAudit:
    """What an audit of a training found.

    Guarantee: if training is (epsilon, delta)-private for adding or removing one record, then
    ``epsilon_lower`` exceeds epsilon with probability at most ``1 - confidence`` over the coins and the
    training. ``correct`` of ``guesses`` were right under ``rule``, which was fixed beforehand (many runs:
    chosen on one half and counted on the other). ``estimate`` is no bound.
    """

    epsilon_lower: float
    delta: float
    confidence: float
    attack: str
    canaries: int
    runs: int
    guesses: int
    correct: int
    score: str
    rule: str
    estimate: GaussianEstimate | None

    def observation(self) -> PrivacyObservation:
        """For the guarantee card."""
        return PrivacyObservation(
            epsilon_lower=self.epsilon_lower,
            confidence=self.confidence,
            attack=self.attack,
            canaries=self.canaries,
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def audit_training(
    method: Method,
    data: Dataset,
    *,
    canaries: Canaries,
    alpha: float = 0.05,
    seed: int = 0,
    adversary: Adversary = "white-box",
    rules: Sequence[GuessRule] = RULES,
    public: Dataset | None = None,
    progress: Progress = silent,
) -> PrivacyAudit:
    """Train once on ``data`` with ``canaries`` by coin, and bound epsilon at the plan's delta from below.

    The white-box adversary sees every noisy sum, the black-box adversary the released model only. ``seed``
    tosses the canaries' coins. The method trains as it always does, with its own sampler, clipping and noise;
    a noise seed makes the audit repeatable.
    """
    check_level(alpha)
    coins = fair_coins(canaries.count, seed=seed)
    scores = _trained_scores(
        method, data, canaries, coins, adversary=adversary, public=public, progress=progress
    )
    verdict = best_verdict(scores, coins.numpy(), delta=method.plan.delta, alpha=alpha, rules=rules)
    return PrivacyAudit(
        epsilon_lower=verdict.epsilon_lower,
        delta=method.plan.delta,
        confidence=1 - alpha,
        attack=f"{adversary}, one run, {canaries.kind}",
        canaries=canaries.count,
        runs=1,
        guesses=verdict.guesses,
        correct=verdict.correct,
        score=verdict.score,
        rule=verdict.rule,
        estimate=verdict.estimate,
    )


def audit_trainings(
    method: Method,
    data: Dataset,
    *,
    canary: Canaries,
    runs: int,
    alpha: float = 0.05,
    adversary: Adversary = "white-box",
    public: Dataset | None = None,
    progress: Progress = silent,
) -> PrivacyAudit:
    """Train ``runs`` times with a single ``canary`` and ``runs`` times without it.

    Score and threshold are chosen on the first half of the trainings and counted on the second
    (Clopper-Pearson, half of ``alpha`` on either side). With a noise seed every training has its own.
    """
    check_level(alpha)
    if canary.count != 1:
        raise RequestError(f"many runs are about one canary at a time, got {canary.count}.")
    if runs < _FEWEST_RUNS:
        raise RequestError(f"an audit by many runs needs at least {_FEWEST_RUNS} runs a side, got {runs}.")
    found: dict[bool, dict[str, list[float]]] = {True: {}, False: {}}
    for run in range(2 * runs):
        inside = run % 2 == 0
        fresh = copy.copy(method)
        fresh.noise_seed = None if method.noise_seed is None else method.noise_seed + run
        coins = torch.tensor([inside])
        scores = _trained_scores(fresh, data, canary, coins, adversary=adversary, public=public)
        for name, values in scores.items():
            found[inside].setdefault(name, []).append(float(values[0]))
        progress("runs", run + 1, 2 * runs)
    delta, half = method.plan.delta, runs // 2
    bounds = {}
    for name in found[True]:
        high, low = np.array(found[True][name]), np.array(found[False][name])
        threshold = choose_threshold(high[:half], low[:half], delta=delta, alpha=alpha)
        expected = threshold.rates(high[:half], low[:half], alpha=alpha).epsilon(delta)
        bounds[name] = expected, threshold, high[half:], low[half:]
    name = max(bounds, key=lambda each: bounds[each][0])
    _, threshold, high, low = bounds[name]
    rates = threshold.rates(high, low, alpha=alpha)
    hits, misses = int(threshold.says_in(high).sum()), int(threshold.says_in(low).sum())
    tally = {"true_positives": hits, "positives": len(high), "false_positives": misses, "negatives": len(low)}
    return PrivacyAudit(
        epsilon_lower=rates.epsilon(delta),
        delta=delta,
        confidence=1 - alpha,
        attack=f"{adversary}, many runs, {canary.kind}",
        canaries=1,
        runs=2 * runs,
        guesses=len(high) + len(low),
        correct=hits + len(low) - misses,
        score=name,
        rule=f"in where the score is {'at least' if threshold.above else 'at most'} {threshold.value:.6g}",
        estimate=gaussian_estimate(**tally, delta=delta),
    )


def _trained_scores(
    method: Method,
    data: Dataset,
    canaries: Canaries,
    coins: Tensor,
    *,
    adversary: Adversary,
    public: Dataset | None,
    progress: Progress = silent,
) -> dict[str, Values]:
    """Train with the canaries whose coin is heads; every canary's scores."""
    if adversary not in ("white-box", "black-box"):
        raise RequestError(f"the adversary is 'white-box' or 'black-box', got {adversary!r}.")
    if isinstance(canaries, GradientCanaries):
        if adversary == "black-box":
            raise RequestError("a black-box adversary needs record canaries, of which a model has a loss.")
        audited = canaries.placeholders(data)
    else:
        audited = canaries.inserted(data, coins)
    method.check(public, shape=data.shape)
    randomness = choose_randomness(method.noise_seed)
    given = Given(
        model=copy.deepcopy(method.model),
        private=audited,
        public=public,
        randomness=randomness,
        ranks=Ranks.alone(),
        progress=silent,
    )
    constants = method.settle(given)
    model, released = copy.deepcopy(method.model), copy.deepcopy(method.model)
    trainer = method.trainer(audited, model=model, randomness=randomness, constants=constants)
    watched: GradientCanaryNoise | RecordCanaryNoise | None = None
    if isinstance(canaries, GradientCanaries):
        if trainer.clipping.sensitivity >= NO_CLIP.sensitivity:
            raise RequestError(
                "this method does not clip gradients, so that a gradient canary would be longer than any "
                "record's: take record canaries."
            )
        weights = trainable(trainer.model)
        coordinates = sum(weight.numel() for weight in weights.values())
        sampler = CanarySampler(trainer.sampler, records=len(data), coins=coins)
        placed = canaries.placed(coordinates, next(iter(weights.values())).device)
        trainer.sampler = sampler
        trainer.noise = watched = GradientCanaryNoise(trainer.noise, sampler, placed)
    elif adversary == "white-box":
        trainer.noise = watched = RecordCanaryNoise(trainer.noise, model, canaries, trained=trainer.model)

    def observe(done: StepDone) -> None:
        progress("training", done.step, method.plan.steps)

    trainer.run(observe)
    if watched is None:
        trainer.averaged_model(method.in_training(released, data.shape, constants))
    trainer.close()
    if watched is not None:
        return {
            "matched": matched_scores(watched.sightings, sampling_rate=method.plan.sampling_rate),
            "spread": spread_scores(watched.sightings),
        }
    assert isinstance(canaries, RecordCanaries)
    return {"loss": loss_scores(method.model, released, canaries)}
