"""TransDenoiser: the loss by hand, a classifier that stays, noise by slices, and a run that comes back."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from hauberk.accounting import PrivacyPlan, UnprotectedEvent
from hauberk.data import Dataset
from hauberk.errors import RequestError
from hauberk.gradients import ClippedGradients, ClippedSum, FlatClip, GeneralPathNotice, ScoreLoss, trainable
from hauberk.methods import METHODS, AuditSettings, TransDenoiser
from hauberk.methods import transdenoiser as module
from hauberk.methods.catalogue import named_network
from hauberk.methods.frozen_classifier import FrozenClassifier
from hauberk.methods.perturbation_transformation import SLICE
from hauberk.methods.settings import TrainSettings
from hauberk.methods.transdenoiser import UNPROVEN, Compared, DenoisingLoss, NoisyAndClean, PublishedNoise
from hauberk.randomness import SeededRandomness
from hauberk.training import NoisyViews, PrivateTrainer, RunFolder

SHAPE, CLASSES = (1, 8, 8), 3
AUDIT = AuditSettings(tested=8, samples=100, attacked=2, attack_steps=2)


def data(rows: int = 64, seed: int = 0) -> Dataset:
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(0, CLASSES, (rows,), generator=generator)
    x = 0.3 * torch.rand(rows, *SHAPE, generator=generator) + 0.3 * y.view(-1, 1, 1, 1)
    return Dataset(name="made up", x=x, y=y, classes=CLASSES)


PUBLIC = data(48, seed=5)


def settings(variant: str, **changes: object) -> TrainSettings:
    basis: dict[str, object] = {
        "method": "transdenoiser",
        "variant": variant,
        "epsilon": 4.0,
        "delta": 1e-3,
        "batch": 16,
        "epochs": 1.5,
        "lr": 0.5,
        "model": "mlp",
        "denoiser_width": 2,
        "public_epochs": 2,
    }
    return TrainSettings(**{**basis, **METHODS["transdenoiser"].settings, **changes})  # type: ignore[arg-type]


def build(variant: str = "sound", **changes: object) -> TransDenoiser:
    chosen, row = settings(variant, **changes), METHODS["transdenoiser"]
    torch.manual_seed(2)
    built = row.build(named_network(chosen, SHAPE, CLASSES), chosen, row.plan(chosen, records=64))
    assert isinstance(built, TransDenoiser)
    return built


def settled(method: TransDenoiser, seed: int = 3) -> dict[str, Tensor]:
    torch.manual_seed(seed)
    fresh = named_network(settings("sound"), SHAPE, CLASSES)
    return {f"classifier/{name}": value for name, value in fresh.classifier.state_dict().items()}


def classifier_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.get_submodule("classifier").state_dict().items()}


# --- the loss -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stability", [0.0, 0.7, 3.0])
def test_the_loss_is_the_squared_error_and_the_stability_of_the_answer(stability: float) -> None:
    model = build().model.double()
    x = data(5).x.double()
    z, clean = NoisyAndClean(noisy=NoisyViews(sigma=0.25, views=3))(
        x, records=torch.arange(5), step=4, key=(1, 2)
    )
    assert torch.equal(clean, x.unsqueeze(1).expand(-1, 3, -1, -1, -1))
    assert not torch.equal(z[:, 0], z[:, 1])
    model.requires_grad_(False)
    rows = Compared(model)(z.flatten(0, 1), clean.flatten(0, 1)).unflatten(0, (5, 3))
    found = DenoisingLoss(stability=stability, classes=CLASSES)(rows, torch.zeros(5, dtype=torch.int64))
    for record in range(5):
        by_hand = 0.0
        for view in range(3):
            restored = model.denoiser(z[record, view][None])
            by_hand += float((restored - x[record]).square().sum())
            said = model.classifier(x[record][None]).argmax(1)
            entropy = nn.functional.cross_entropy(model.classifier(restored), said)
            by_hand += stability * float(entropy)
        assert float(found[record]) == pytest.approx(by_hand / 3, rel=1e-9)


def test_labels_do_not_enter_the_loss() -> None:
    rows = torch.rand(4, 2, 64 + 2 * CLASSES)
    loss = DenoisingLoss(stability=1.0, classes=CLASSES)
    first, second = (loss(rows, torch.full((4,), label)) for label in (0, 2))
    assert torch.equal(first, second)


@pytest.mark.parametrize("model_name", ["mlp", "small-tanh-cnn"])
def test_the_fast_path_serves_and_agrees(model_name: str) -> None:
    shape = (1, 8, 8) if model_name == "mlp" else (1, 14, 14)
    torch.manual_seed(0)
    network = named_network(settings("sound", model=model_name), shape, CLASSES).double()
    x = torch.rand(3, *shape, dtype=torch.float64)
    views = NoisyAndClean(noisy=NoisyViews(sigma=0.25, views=2))(
        x, records=torch.arange(3), step=0, key=(1, 2)
    )
    loss = ScoreLoss(DenoisingLoss(stability=1.0, classes=CLASSES))
    sums = {}
    for path in ("auto", "general"):
        with warnings.catch_warnings():
            warnings.simplefilter("error", GeneralPathNotice)
            gradients = ClippedGradients(Compared(network), loss, clipping=FlatClip(0.5), path=path)  # type: ignore[arg-type]
            sums[path] = gradients.clipped_sum(views, torch.zeros(3, dtype=torch.int64))
        assert gradients.path == ("fast" if path == "auto" else path)
    assert set(sums["auto"].gradients) == set(trainable(Compared(network)))
    assert not any("classifier" in name for name in sums["auto"].gradients)
    for name, each in sums["auto"].gradients.items():
        assert torch.allclose(each, sums["general"].gradients[name], rtol=1e-7, atol=1e-9)


# --- the classifier stays -----------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["sound", "paper"])
def test_the_classifier_never_sees_a_private_record(variant: str) -> None:
    runs = [build(variant, noise_seed=1).fit(data(seed=seed), public=PUBLIC) for seed in (0, 9)]
    first, second = (classifier_of(run.model) for run in runs)
    for name in first:
        assert torch.equal(first[name], second[name])
    assert any(
        not torch.equal(one, two)
        for one, two in zip(*(run.model.denoiser.parameters() for run in runs), strict=True)
    )


def test_training_leaves_the_classifier_as_it_was_settled() -> None:
    method = build()
    constants = settled(method)
    trainer = method.trainer(data(), constants=constants)
    trainer.run(lambda done: None)
    trained = trainer.model.get_submodule("network.classifier").state_dict()
    assert all(
        torch.equal(trained[name.removeprefix("classifier/")], each) for name, each in constants.items()
    )
    assert all(name.startswith("network.denoiser.") for name in trainable(trainer.model))


def test_the_sound_card_proves_what_it_claims_and_the_published_one_nothing() -> None:
    sound = build().fit(data(), public=PUBLIC)
    assert sound.ledger.events == (sound.plan.event(),)
    card = sound.audit(data(8, seed=3), settings=AUDIT)
    assert card.privacy.proven is not None
    assert card.privacy.proven.epsilon <= 4.0
    assert sound.noise.at_input == 0.25
    paper = build("paper").fit(data(), public=PUBLIC)
    assert paper.ledger.events == (UnprotectedEvent(count=paper.plan.steps),)
    card = paper.audit(data(8, seed=3), settings=AUDIT)
    assert card.privacy.claimed is not None
    assert card.privacy.claimed.epsilon == 4.0
    assert "004" in card.privacy.claimed.source
    assert card.privacy.proven is None
    assert card.privacy.reason == UNPROVEN
    assert card.robustness.proven is not None


class Killed(BaseException):
    """Nothing catches it."""


def test_a_resumed_run_keeps_its_classifier_and_its_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def folder(name: str) -> RunFolder:
        place = RunFolder(tmp_path / name)
        place.create()
        place.write_config({})
        return place

    whole = build(noise_seed=1).fit(data(), public=PUBLIC, folder=folder("whole"))
    advance, place = PrivateTrainer.advance, folder("cut")

    def dying(self: PrivateTrainer) -> object:
        if self.step == 5:
            raise Killed
        return advance(self)

    monkeypatch.setattr(PrivateTrainer, "advance", dying)
    with pytest.raises(Killed):
        build(noise_seed=1).fit(data(), public=PUBLIC, folder=place)
    monkeypatch.setattr(PrivateTrainer, "advance", advance)
    # neither public records nor a file of weights are needed to go on
    run = build(noise_seed=1).fit(data(), public=None, folder=place, resume=True)
    for (name, one), two in zip(
        run.model.state_dict().items(), whole.model.state_dict().values(), strict=True
    ):
        assert torch.equal(one, two), name
    assert (tmp_path / "cut/model.safetensors").read_bytes() == (
        tmp_path / "whole/model.safetensors"
    ).read_bytes()
    assert not (tmp_path / "cut/noise.safetensors").exists()  # input noise is one number


# --- noise as published -------------------------------------------------------------------------------------


def published(**changes: object) -> tuple[PrivateTrainer, PublishedNoise]:
    method = build("paper", noise_seed=4, **changes)
    trainer = method.trainer(data(), constants=settled(method), randomness=SeededRandomness(4))
    assert isinstance(trainer.noise, PublishedNoise)
    return trainer, trainer.noise


def released_noise(trainer: PrivateTrainer, noise: PublishedNoise) -> tuple[Tensor, ClippedSum]:
    clipped = trainer._clipped_sum()
    out = noise.release(clipped, trainer.step)
    drawn = [out.gradients[name].double() - each.double() for name, each in clipped.gradients.items()]
    return torch.cat([each.flatten() for each in drawn]), clipped


def flat_size(trainer: PrivateTrainer) -> int:
    return sum(each.numel() for each in trainable(trainer.model).values())


def test_noise_is_added_slice_by_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, noise = published()
    size = flat_size(trainer)
    slices = math.ceil(size / SLICE)
    missing = torch.linspace(0.0, 2.0, slices, dtype=torch.float64)
    monkeypatch.setattr(PublishedNoise, "_missing", lambda *_: missing)
    monkeypatch.setattr(module, "remainder", lambda loss, z, x: torch.ones(len(x)))  # all are credited
    found, clipped = released_noise(trainer, noise)
    normals = SeededRandomness(4).normals(step=0, count=2 * size, device=torch.device("cpu"))
    expected = clipped.sensitivity * missing.repeat_interleave(SLICE)[:size] * normals[:size]
    assert torch.allclose(found, expected, atol=1e-5)
    assert not found[:SLICE].any()


def test_the_negative_cases_get_all_of_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, noise = published()
    size = flat_size(trainer)
    monkeypatch.setattr(module, "remainder", lambda loss, z, x: -torch.ones(len(x)))
    found, clipped = released_noise(trainer, noise)
    normals = SeededRandomness(4).normals(step=0, count=2 * size, device=torch.device("cpu"))
    expected = clipped.sensitivity * trainer.plan.noise_multiplier * normals[size:]
    assert torch.allclose(found, expected, atol=1e-5)


def test_both_groups_together_get_both_noises(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, noise = published()
    monkeypatch.setattr(module, "remainder", lambda loss, z, x: torch.tensor([1.0] + [-1.0] * (len(x) - 1)))
    monkeypatch.setattr(
        PublishedNoise, "_missing", lambda *_: torch.ones(math.ceil(flat_size(trainer) / SLICE))
    )
    found, clipped = released_noise(trainer, noise)
    deviation = float(found.std()) / clipped.sensitivity
    assert deviation == pytest.approx(math.hypot(1.0, trainer.plan.noise_multiplier), rel=0.2)


def test_published_noise_is_never_above_both_full_noises_and_is_there() -> None:
    trainer, noise = published()
    found, clipped = released_noise(trainer, noise)
    deviation = float(found.std()) / clipped.sensitivity
    assert 0 < deviation <= math.sqrt(2) * trainer.plan.noise_multiplier * 1.2


# --- wrong requests -----------------------------------------------------------------------------------------


def test_wrong_requests_cost_a_sentence() -> None:
    plan = PrivacyPlan(records=64, batch=16, epochs=1, noise_multiplier=1.0, delta=1e-3)
    frozen = FrozenClassifier(weights=None, epochs=1, seed=0)
    network = build().model
    for sigma in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(RequestError, match="sigma must be positive"):
            TransDenoiser(network, plan=plan, sigma=sigma, frozen=frozen)
    with pytest.raises(RequestError, match="denoiser and classifier"):
        TransDenoiser(nn.Linear(4, 2), plan=plan, sigma=0.25, frozen=frozen)
    with pytest.raises(RequestError, match="stability"):
        settings("sound", stability=-1.0)
    with pytest.raises(RequestError, match="--classifier"):
        build().fit(data(), public=None)
