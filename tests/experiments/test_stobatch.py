"""The figures of 003: two ways of attacking side by side, three ways of training with the same weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hauberk.accounting import Ledger, PrivacyPlan
from hauberk.attacks import IFGSM
from hauberk.certify import NoiseLayers
from hauberk.data import Dataset
from hauberk.errors import RequestError
from hauberk.experiments import stobatch_figures, stobatch_scaling, stobatch_strong
from hauberk.experiments.parts import kept_in
from hauberk.experiments.result import Result
from hauberk.experiments.stobatch_measures import (
    BY_CLAIM,
    BY_PROOF,
    CLEAN,
    DEPLOYED,
    PUBLISHED_WAY,
    Accuracy,
    Measured,
    Training,
    measured_case,
    right_after_published_attack,
)
from hauberk.experiments.stobatch_scaling import BATCH_BY_BATCH, DISTRIBUTED, TOGETHER, Contender, InPieces
from hauberk.experiments.trained_runs import FigureRun
from hauberk.methods.attack_records import WORST_CASE
from hauberk.methods.run import Run
from hauberk.methods.shared_noise import SharedNoise
from hauberk.progress import silent
from hauberk.training import LayerNoiseViews
from hauberk.training.distribution import Ranks


@pytest.fixture(scope="module")
def panels() -> stobatch_figures.Panels:
    return stobatch_figures._panels(stobatch_figures._SETTINGS["tiny"][0], "tiny", 0, silent)


@pytest.fixture(scope="module")
def figures(panels: stobatch_figures.Panels) -> Result:
    return stobatch_figures._result([panels])


def table(result: Result) -> list[dict[str, Any]]:
    return [dict(zip(result.columns, row, strict=True)) for row in result.rows]


# --- the figures --------------------------------------------------------------------------------------------


def test_every_method_is_attacked_both_ways_and_certified_where_it_promises(figures: Result) -> None:
    rows = table(figures)
    promised = {("dp-sgd", "sound"): False, ("adlm", "paper"): False}
    for case in stobatch_figures.CASES:
        own = [row for row in rows if (row["method"], row["variant"]) == case]
        ways = {(row["measure"], row["attack"]) for row in own}
        expected = {(CLEAN, None), (DEPLOYED, WORST_CASE)}
        expected |= {(way, name) for way in (DEPLOYED, PUBLISHED_WAY) for name in stobatch_figures.ATTACKS}
        if promised.get(case, True):
            expected |= {(BY_CLAIM, None), (BY_PROOF, None)}
        assert ways == expected, case
    for row in rows:
        assert row["low"] <= row["accuracy"] <= row["high"]
        assert row["radius_of_003"] == 2 * row["radius"]
        unproven = row["variant"] == "paper" or row["method"] == "pixeldp"
        assert (row["proven"] is None) == unproven
        assert row["epsilon"] == (None if row["method"] == "pixeldp" else 2.0)
        assert unproven or 0 < row["proven"] <= 2.0


def test_sound_variants_claim_what_is_proven_and_radii_only_shrink_the_accuracy(figures: Result) -> None:
    shares: dict[tuple[Any, ...], dict[str, list[float]]] = {}
    for row in table(figures):
        if row["measure"] in (BY_CLAIM, BY_PROOF):
            place = tuple(row[name] for name in ("method", "variant", "norm"))
            shares.setdefault(place, {}).setdefault(row["measure"], []).append(row["accuracy"])
    assert len(shares) == 5 * 2
    for (_, variant, _), found in shares.items():
        assert variant == "paper" or found[BY_CLAIM] == found[BY_PROOF]
        assert all(each == sorted(each, reverse=True) for each in found.values())


def test_the_gains_are_differences_of_the_rows(figures: Result) -> None:
    rows = table(figures)

    def mean(method: str, variant: str, measure: str) -> float:
        found = [
            row["accuracy"]
            for row in rows
            if (row["method"], row["variant"], row["measure"]) == (method, variant, measure)
            and row["radius"] == 0.1
            and row["attack"] in stobatch_figures.ATTACKS
        ]
        assert len(found) == 4
        return sum(found) / 4

    gains = figures.facts["stobatch_minus"]["digits"]
    difference = mean("stobatch", "paper", PUBLISHED_WAY) - mean("adlm", "paper", PUBLISHED_WAY)
    assert gains["paper_as_published"]["adlm"] == pytest.approx(100 * difference)
    difference = mean("stobatch", "sound", DEPLOYED) - mean("dp-sgd", "sound", DEPLOYED)
    assert gains["sound_attacked"]["dp-sgd"] == pytest.approx(100 * difference)


def test_what_003_prints_is_compared_in_sentences(panels: stobatch_figures.Panels) -> None:
    """For a data set that it has: nothing of it is left out, and nothing is missing here."""
    part = replace(panels, setting=replace(panels.setting, data="mnist"))
    sentences = list(stobatch_figures._compared(part))
    assert len(sentences) == 4 + 3  # four rivals, and three accuracies at epsilon 2
    assert any("22.36 points above SecureSGD," in each for each in sentences)
    assert any("89.59 % for stobatch at epsilon 2" in each for each in sentences)
    assert not any("nan" in each for each in sentences)


@pytest.mark.parametrize("run_for", [stobatch_figures.run_for, stobatch_strong.run_for])
def test_a_data_set_that_is_not_in_the_figure_is_refused(run_for: Callable[..., Result]) -> None:
    with pytest.raises(RequestError, match="no data set 'cifar10'"):
        run_for("cifar10", "tiny", 0, silent)


def test_strong_attacks_keep_their_number_of_steps() -> None:
    rows = table(stobatch_strong.run_for("digits", "tiny", 0, silent))
    for way in (DEPLOYED, PUBLISHED_WAY):
        found = {(row["attack"], row["steps"]) for row in rows if row["measure"] == way}
        assert found - {(WORST_CASE, None)} == {
            (name, steps) for name in ("ifgsm", "pgd") for steps in (2, 4)
        }
    for setting in stobatch_strong._SETTINGS["full"]:
        assert max(setting.steps) == 2000
        assert len(setting.radii) <= 3


def test_a_case_that_was_finished_is_not_trained_again(tmp_path: Path) -> None:
    training = Training(data="digits", model="logistic", batch=64, epochs=0.5, training_attack_steps=1)
    seen: list[str] = []

    def measure(trained: FigureRun) -> list[Accuracy]:
        seen.append(trained.run.method)
        return [Accuracy.of(np.array([True, False]), measure=CLEAN, radius=0.0)]

    def ask(epsilon: float) -> list[Measured]:
        about: dict[str, Any] = {"epsilon": epsilon, "size": "tiny", "seed": 0}
        return measured_case(
            "a figure", training, "dp-sgd", "sound", measure=measure, progress=silent, **about
        )

    with kept_in(tmp_path / "parts", remove=False):
        first, again, other = ask(2.0), ask(2.0), ask(3.0)
    assert first == again
    assert [each.epsilon for each in (*first, *other)] == [2.0, 3.0]
    assert first[0].found.accuracy == 0.5
    assert seen == ["dp-sgd", "dp-sgd"]


# --- the published attack -----------------------------------------------------------------------------------


def run_of(model: nn.Module, noise: NoiseLayers | None) -> Run:
    plan = PrivacyPlan(records=8, batch=4, epochs=1, noise_multiplier=1.0, delta=1e-3)
    return Run(
        method="stobatch",
        variant="paper",
        claim_source="",
        data="made up",
        plan=plan,
        ledger=Ledger(),
        model=model,
        classes=2,
        noise=noise,
        curve=(),
        seed=0,
        command="python",
    )


def bright_or_dark() -> nn.Sequential:
    """Class 1 where the mean of the pixels is above one half."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 1), nn.Linear(1, 2))
    with torch.no_grad():
        model[1].weight.fill_(0.25)
        model[1].bias.fill_(-0.5)
        model[2].weight.copy_(torch.tensor([[-8.0], [8.0]]))
        model[2].bias.zero_()
    return model


def test_the_published_attack_uses_the_networks_answers_and_not_the_labels() -> None:
    """An input that is answered wrongly is pushed away from its wrong answer: towards the right one."""
    x = torch.full((2, 1, 2, 2), 0.45)
    tested = Dataset(name="made up", x=x, y=torch.tensor([0, 1]), classes=2)
    attack = IFGSM(norm="linf", steps=2)
    right = right_after_published_attack(
        run_of(bright_or_dark(), None), tested, attack, radius=0.1, samples=10
    )
    assert right.tolist() == [False, True]
    noise = NoiseLayers(at_input=0.01)
    again = right_after_published_attack(
        run_of(bright_or_dark(), noise), tested, attack, radius=0.1, samples=50
    )
    assert np.array_equal(again, right)


def test_the_published_attack_never_meets_the_one_draw_of_noise() -> None:
    """With the draw the answer is the other one, so that away from the network's is towards the deployed."""
    shared = SharedNoise(bright_or_dark(), shape=(1, 2, 2))
    shared.put(at_input=torch.zeros(1, 2, 2), after_first=torch.tensor([0.3]))
    tested = Dataset(name="made up", x=torch.full((1, 1, 2, 2), 0.45), y=torch.tensor([1]), classes=2)
    noise = NoiseLayers(kind="laplace", at_input=0.001)
    right = right_after_published_attack(
        run_of(shared, noise), tested, IFGSM(norm="linf", steps=2), radius=0.3, samples=50
    )
    assert right.tolist() == [True]  # 0.45 + 0.3 is class 1 for the deployed; the attack made it brighter
    met = IFGSM(norm="linf", steps=2).perturb(shared, tested.x, torch.tensor([1]), radius=0.3)
    assert int(shared(met).argmax(1)) == 0  # one that knows the draw goes the other way


# --- scaling ------------------------------------------------------------------------------------------------


def contender(way: str, trainers: int = 1) -> Contender:
    return Contender(
        setting=stobatch_scaling._SETTINGS["tiny"], way=way, trainers=trainers, attack_steps=2, seed=0
    )


def test_batch_by_batch_takes_the_same_steps() -> None:
    runs = [contender(way).train(Ranks.alone()) for way in (BATCH_BY_BATCH, TOGETHER)]
    one, other = (torch.cat([each.flatten() for each in run.model.parameters()]) for run in runs)
    torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
    assert runs[0].ledger.events == runs[1].ledger.events


def test_views_in_pieces_are_the_views() -> None:
    whole = LayerNoiseViews(at_input=0.1, after_layer=0.2, shape=(3,), views=2)
    asked: list[int] = []

    class Watched(LayerNoiseViews):
        def __call__(self, x: Tensor, **rest: Any) -> tuple[Tensor, Tensor]:
            asked.append(len(x))
            return super().__call__(x, **rest)

    pieces = InPieces(views=Watched(at_input=0.1, after_layer=0.2, shape=(3,), views=2), records_at_once=4)
    for count in (10, 0):
        x, chance = torch.rand(count, 5), {"records": torch.arange(count), "step": 1, "key": (1, 2)}
        for one, other in zip(pieces(x, **chance), whole(x, **chance), strict=True):
            assert torch.equal(one, other)
    assert asked == [4, 4, 2, 0]


def test_an_epoch_is_the_steps_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Contender] = []

    def timed(each: Contender) -> list[float]:
        asked.append(each)
        return [9.0, (4.0 if each.way == BATCH_BY_BATCH else 2.0) / each.trainers, 0.0]

    monkeypatch.setattr(stobatch_scaling, "timed", timed)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    tiny = replace(stobatch_scaling._SETTINGS["tiny"], trainers=(1, 2), attack_steps=(3,))
    monkeypatch.setitem(stobatch_scaling._SETTINGS, "tiny", tiny)
    result = stobatch_scaling.run("tiny", 0, silent)
    assert [(each.way, each.trainers) for each in asked] == [
        (BATCH_BY_BATCH, 1),
        (TOGETHER, 1),
        (DISTRIBUTED, 2),
    ]
    rows = table(result)
    steps = math.ceil(256 / 64)
    assert [row["seconds_per_epoch"] for row in rows] == [4.0 * steps, 2.0 * steps, 1.0 * steps]
    assert [row["over_batch_by_batch"] for row in rows] == [1.0, 2.0, 4.0]
    assert result.facts["distributed_over_one_trainer"] == {"2 trainers, 3 attack steps": 2.0}


@pytest.mark.slow
def test_two_trainers_are_started_and_timed() -> None:
    seconds = stobatch_scaling.timed(contender(DISTRIBUTED, trainers=2))
    assert len(seconds) == 2
    assert min(seconds) > 0
