"""One training audited end to end: what the adversaries see, what they find, what they do not disturb."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import binom, norm
from torch import nn

from hauberk.accounting import PrivacyPlan
from hauberk.accounting.card import PrivacyObservation
from hauberk.audit import (
    GradientCanaries,
    GuessRule,
    RecordCanaries,
    audit_training,
    audit_trainings,
)
from hauberk.audit.black_box import canary_losses, loss_scores
from hauberk.audit.white_box import (
    CanarySampler,
    GradientCanaryNoise,
    RecordCanaryNoise,
    Sighting,
    matched_scores,
    spread_scores,
)
from hauberk.data import Dataset
from hauberk.errors import RequestError
from hauberk.gradients import AdaptiveClip, Clipping, FlatClip, PerLayerClip
from hauberk.methods.dp_sgd import DPSGD
from hauberk.training import Optimisation, PrivateTrainer

FEATURES, CLASSES, RECORDS = 60, 10, 48
COORDINATES = FEATURES * CLASSES + CLASSES


@pytest.fixture
def data() -> Dataset:
    generator = torch.Generator().manual_seed(0)
    return Dataset(
        name="toy",
        x=torch.rand(RECORDS, FEATURES, generator=generator),
        y=torch.randint(0, CLASSES, (RECORDS,), generator=generator),
        classes=CLASSES,
    )


def method(
    noise: float,
    *,
    batch: int = RECORDS // 2,
    epochs: float = 4,
    clipping: Clipping | float = 0.5,
    bias: bool = True,
) -> DPSGD:
    torch.manual_seed(0)
    return DPSGD(
        nn.Sequential(nn.Linear(FEATURES, CLASSES, bias=bias)),
        plan=PrivacyPlan(records=RECORDS, batch=batch, epochs=epochs, noise_multiplier=noise, delta=1e-5),
        clipping=clipping,
        noise_seed=5,
        optimisation=Optimisation(lr=0.5),
    )


def watched(trainer: PrivateTrainer, coins: torch.Tensor) -> GradientCanaryNoise:
    """Gradient canaries along axes in a trainer whose data end with their placeholders."""
    sampler = CanarySampler(trainer.sampler, records=RECORDS, coins=coins)
    placed = GradientCanaries.axes(len(coins)).placed(COORDINATES, torch.device("cpu"))
    trainer.sampler = sampler
    trainer.noise = watch = GradientCanaryNoise(trainer.noise, sampler, placed)
    return watch


def test_a_white_box_audit_has_teeth_and_stays_below_what_is_proven(data: Dataset) -> None:
    trained = method(0.5)
    audit = audit_training(trained, data, canaries=GradientCanaries.axes(600), alpha=1e-3, seed=1)
    assert 2 < audit.epsilon_lower <= trained.plan.epsilon()
    assert audit.delta == trained.plan.delta
    assert audit.correct <= audit.guesses <= audit.canaries == 600
    assert audit.observation() == PrivacyObservation(
        epsilon_lower=audit.epsilon_lower,
        confidence=1 - 1e-3,
        attack="white-box, one run, gradients along axes",
        canaries=600,
    )
    assert audit.to_json()["estimate"]["delta"] == 1e-5
    assert audit == audit_training(trained, data, canaries=GradientCanaries.axes(600), alpha=1e-3, seed=1)


def test_more_noise_hides_more(data: Dataset) -> None:
    canaries = GradientCanaries.axes(600)
    bounds = [
        audit_training(method(noise), data, canaries=canaries, seed=1).epsilon_lower
        for noise in (0.4, 1.0, 20.0)
    ]
    assert bounds[0] > bounds[1] > bounds[2]
    assert bounds[2] < 0.2


@pytest.mark.parametrize(
    "clipping",
    [FlatClip(0.5), PerLayerClip(0.5), AdaptiveClip(bound=0.5, count_deviation=10.0)],
    ids=lambda clipping: type(clipping).__name__,
)
def test_every_clipping_can_be_audited(data: Dataset, clipping: Clipping) -> None:
    trained = method(0.5, clipping=clipping)
    audit = audit_training(trained, data, canaries=GradientCanaries.axes(500), alpha=1e-3, seed=2)
    assert 1.5 < audit.epsilon_lower <= trained.plan.epsilon()


def test_without_noise_the_products_are_the_presence_of_each_canary(data: Dataset) -> None:
    trained = method(0.0)
    coins = torch.arange(40) % 2 == 0
    trainer = trained.trainer(GradientCanaries.axes(40).placeholders(data))
    watch = watched(trainer, coins)
    trainer.run(lambda done: None)
    products = np.stack([seen.products for seen in watch.sightings])
    assert products.shape == (trained.plan.steps, 40)
    assert np.allclose(products, products.round(), atol=1e-5)
    assert not products.round()[:, ~coins.numpy()].any()
    present = products.round()[:, coins.numpy()]
    assert set(np.unique(present)) == {0.0, 1.0}
    assert 0.3 < present.mean() < 0.7  # the method's own sampling rate


def test_canaries_that_are_out_change_nothing(data: Dataset) -> None:
    trained = method(1.0)
    plain = copy.deepcopy(trained.model)
    unwatched = trained.trainer(data, model=plain)
    unwatched.run(lambda done: None)
    audited = copy.deepcopy(trained.model)
    trainer = trained.trainer(GradientCanaries.axes(40).placeholders(data), model=audited)
    watched(trainer, torch.zeros(40, dtype=torch.bool))
    trainer.run(lambda done: None)
    for first, second in zip(plain.parameters(), audited.parameters(), strict=True):
        assert torch.equal(first, second)
    assert trainer.ledger.to_json() == unwatched.ledger.to_json()


def test_a_present_record_is_seen_along_its_own_gradient(data: Dataset) -> None:
    """One record, no noise, all sampled: the product is the length of its clipped gradient."""
    canary = RecordCanaries(kind="one", x=data.x[:1], y=data.y[:1])
    plan = PrivacyPlan(records=1, batch=1, epochs=3, noise_multiplier=0.0, delta=1e-5)
    for bound in (1e-2, 1e6):
        trained = DPSGD(nn.Sequential(nn.Linear(FEATURES, CLASSES)), plan=plan, clipping=bound)
        trainer = trained.trainer(data.first(1))
        trainer.noise = watch = RecordCanaryNoise(trainer.noise, trainer.model, canary, trained=trainer.model)
        trainer.run(lambda done: None)
        for seen in watch.sightings:
            assert seen.products == pytest.approx(seen.lengths, rel=1e-4)
            assert (seen.lengths == 1) if bound == 1e-2 else (0 < seen.lengths < 1e-2)


def test_record_canaries_are_found_by_both_adversaries_when_there_is_little_noise(data: Dataset) -> None:
    """Features of their own, and no bias that all share: the canaries' gradients never meet."""
    dark = Dataset(name="dark", x=0.05 * data.x, y=data.y, classes=CLASSES)
    canaries = RecordCanaries(
        kind="one-hot records", x=torch.eye(FEATURES), y=torch.arange(FEATURES) % CLASSES
    )
    everybody = [GuessRule(top=0.5, bottom=0.5)]
    for adversary, scores in (("white-box", ("matched", "spread")), ("black-box", ("loss",))):
        trained = method(0.05, bias=False)
        audit = audit_training(
            trained, dark, canaries=canaries, adversary=adversary, rules=everybody, alpha=1e-3, seed=3
        )
        assert audit.epsilon_lower > 0.5
        assert audit.score in scores
        assert audit.attack == f"{adversary}, one run, one-hot records"


def test_the_loss_score_is_how_much_better_the_model_knows_a_canary(data: Dataset) -> None:
    before, after = nn.Linear(FEATURES, CLASSES), nn.Linear(FEATURES, CLASSES)
    canaries = RecordCanaries.noise(data, count=9, seed=1)
    expected = nn.functional.cross_entropy(before(canaries.x), canaries.y, reduction="none")
    assert torch.allclose(canary_losses(before, canaries), expected.double(), atol=1e-5)
    assert np.allclose(loss_scores(before, after, canaries), -loss_scores(after, before, canaries))
    assert not loss_scores(before, before, canaries).any()
    assert before.training  # left as it was


def test_the_matched_score_is_the_log_likelihood_ratio() -> None:
    rng = np.random.default_rng(0)
    products, q, z, length = rng.normal(size=(5, 7)), 0.3, 0.8, 0.6
    sightings = [Sighting(products=row, lengths=np.full(7, length), noise=z) for row in products]
    out = norm.logpdf(products, 0, z)
    present = np.log((1 - q) * np.exp(out) + q * norm.pdf(products, length, z))
    assert np.allclose(matched_scores(sightings, sampling_rate=q), (present - out).sum(axis=0))
    always = (norm.logpdf(products, length, z) - out).sum(axis=0)
    assert np.allclose(matched_scores(sightings, sampling_rate=1.0), always)
    assert np.allclose(spread_scores(sightings), np.ptp(products, axis=0))


def test_many_runs_find_what_one_canary_gives_away(data: Dataset) -> None:
    trained = method(0.2, batch=RECORDS, epochs=1)
    audit = audit_trainings(trained, data, canary=GradientCanaries.axes(1), runs=40, alpha=1e-3)
    assert 0.5 < audit.epsilon_lower <= trained.plan.epsilon()
    assert (audit.canaries, audit.runs, audit.guesses) == (1, 80, 40)
    assert audit.attack == "white-box, many runs, gradients along axes"
    quiet = audit_trainings(
        method(50.0, batch=RECORDS, epochs=1), data, canary=GradientCanaries.axes(1), runs=20, alpha=1e-3
    )
    assert quiet.epsilon_lower == 0


@pytest.mark.slow
def test_two_hundred_audits_of_sound_training_exceed_the_proof_no_more_often_than_allowed(
    data: Dataset,
) -> None:
    """One step without sampling: what is proven is exact, so the bound has the least room."""
    alpha, wrong, repetitions, bounds = 0.2, 0, 200, []
    plan = PrivacyPlan(records=RECORDS, batch=RECORDS, epochs=1, noise_multiplier=1.0, delta=1e-3)
    for repetition in range(repetitions):
        trained = DPSGD(
            nn.Sequential(nn.Linear(FEATURES, CLASSES)), plan=plan, clipping=0.5, noise_seed=repetition
        )
        audit = audit_training(
            trained, data, canaries=GradientCanaries.axes(600), alpha=alpha, seed=repetition
        )
        bounds.append(audit.epsilon_lower)
    wrong = int((np.array(bounds) > plan.epsilon()).sum())
    assert binom.sf(wrong - 1, repetitions, alpha) >= 1e-6
    assert np.median(bounds) > 0.25 * plan.epsilon()


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        ({"adversary": "black-box"}, "needs record canaries"),
        ({"adversary": "grey-box"}, "'white-box' or 'black-box'"),
        ({"alpha": 0.9}, "alpha must lie"),
        ({"canaries": GradientCanaries.axes(COORDINATES + 1)}, "take fewer"),
        ({"rules": []}, "at least one score and one rule"),
    ],
)
def test_a_wrong_request_is_refused(data: Dataset, request_: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RequestError, match=sentence):
        audit_training(method(1.0), data, **({"canaries": GradientCanaries.axes(10)} | request_))


def test_gradient_canaries_need_a_method_that_clips(data: Dataset) -> None:
    with pytest.raises(RequestError, match="take record canaries"):
        audit_training(method(1.0, clipping=1e30), data, canaries=GradientCanaries.axes(10))


def test_the_network_may_be_trained_inside_another(data: Dataset) -> None:
    """The direction of a record is that of the plain network, wherever the trainer keeps its parameters."""
    plain = nn.Sequential(nn.Linear(FEATURES, 8), nn.Tanh(), nn.Linear(8, CLASSES))
    wrapped = nn.Sequential(nn.Identity(), plain, nn.Linear(CLASSES, CLASSES))
    canary = RecordCanaries(kind="one", x=data.x[:1], y=data.y[:1])
    trainer = DPSGD(wrapped, plan=method(1.0).plan, clipping=1.0).trainer(data, model=wrapped)
    trainer.noise = watch = RecordCanaryNoise(trainer.noise, plain, canary, trained=trainer.model)
    trainer.advance()
    assert watch.sightings[0].products.shape == (1,)
    assert np.isfinite(watch.sightings[0].products).all()
    assert 0 < watch.sightings[0].lengths[0] <= 1


def test_many_runs_are_about_one_canary_and_enough_runs(data: Dataset) -> None:
    with pytest.raises(RequestError, match="one canary at a time"):
        audit_trainings(method(1.0), data, canary=GradientCanaries.axes(2), runs=20)
    with pytest.raises(RequestError, match="at least 20 runs"):
        audit_trainings(method(1.0), data, canary=GradientCanaries.axes(1), runs=3)
