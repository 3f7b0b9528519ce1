"""Secure-SGD: where r comes from, what that costs, and what the same votes certify by which formula."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from hauberk.accounting import GaussianEvent, PrivacyPlan, UnprotectedEvent, prove
from hauberk.certify import Certificates, clopper_pearson_lower
from hauberk.certify.certificates import find_certificate
from hauberk.data import Dataset
from hauberk.errors import RequestError
from hauberk.files import read_tensors
from hauberk.methods import METHODS, AuditSettings
from hauberk.methods.catalogue import named_network
from hauberk.methods.claims import PublishedRadius
from hauberk.methods.run import Run
from hauberk.methods.secure_sgd import LEAKS, SecureSGD, SecureSGDAGM
from hauberk.methods.settings import TrainSettings
from hauberk.training import RunFolder
from hauberk.training.layer_noise import LayerNoiseViews, NoiseAfter, SharedNoiseViews
from hauberk.training.loop import PrivateTrainer

SHAPE, RECORDS = (1, 14, 14), 512
AUDIT = AuditSettings(tested=16, samples=200, attacked=2, attack_steps=2)


def data(rows: int = RECORDS, seed: int = 0) -> Dataset:
    """One of four quarters is bright: learnt in a few private steps."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 4, (rows,), generator=generator)
    x = 0.3 * torch.rand(rows, *SHAPE, generator=generator)
    for row, label in enumerate(y.tolist()):
        down, right = 7 * (label // 2), 7 * (label % 2)
        x[row, :, down : down + 7, right : right + 7] += 0.6
    return Dataset(name="quarters", x=x, y=y, classes=4)


PUBLIC = data(64, seed=5)


def settings_(name: str, variant: str, **changes: object) -> TrainSettings:
    basis: dict[str, object] = {
        "method": name,
        "variant": variant,
        "epsilon": 4.0,
        "delta": 1e-4,
        "batch": 128,
        "epochs": 4.0,
        "lr": 2.0,
        "clip": 0.5,
        "model": "small-tanh-cnn",
    }
    return TrainSettings(**{**basis, **METHODS[name].settings, **changes})  # type: ignore[arg-type]


def build(name: str, variant: str, **changes: object) -> SecureSGDAGM:
    chosen, row = settings_(name, variant, **changes), METHODS[name]
    torch.manual_seed(2)
    network = named_network(chosen, SHAPE, 4)
    built = row.build(network, chosen, row.plan(chosen, records=RECORDS))
    assert isinstance(built, SecureSGDAGM)
    return built


@pytest.fixture(scope="module")
def private() -> Run:
    """It learns at this size: a wide clip and a small rate."""
    learning = {"epochs": 12.0, "epsilon": 8.0, "sigma": 0.15, "clip": 1.0, "lr": 1.0, "averaging": 0.8}
    return build("secure-sgd", "sound", redistribution="private", **learning).fit(data())


@pytest.fixture(scope="module")
def published() -> Run:
    return build("secure-sgd", "paper").fit(data())


# --- privacy ------------------------------------------------------------------------------------------------


def test_a_private_r_is_paid_for_within_the_target(private: Run) -> None:
    before, steps = private.ledger.events
    assert isinstance(before, GaussianEvent)
    assert (before.sampling_rate, before.count) == (1.0, 1)
    assert private.plan.beforehand == (before,)
    assert steps == private.plan.event()
    card = private.audit(data(16, seed=3), settings=AUDIT)
    assert card.privacy.proven is not None
    assert card.privacy.claimed is not None
    assert card.privacy.proven.epsilon == prove(private.ledger.events, 1e-4).epsilon
    assert 8.0 * 0.99 < card.privacy.proven.epsilon <= 8.0
    assert card.privacy.claimed.epsilon == card.privacy.proven.epsilon
    # without the first event the noise would be a little less, and the two together above the target
    alone = PrivacyPlan.calibrate(epsilon=8.0, delta=1e-4, records=RECORDS, batch=128, epochs=12)
    assert alone.noise_multiplier < private.plan.noise_multiplier
    assert prove((before, alone.event()), 1e-4).epsilon > 8.0


def test_an_r_from_public_records_costs_nothing() -> None:
    method = build("secure-sgd", "sound", public_data="first:1", epochs=1.0)
    assert isinstance(method, SecureSGD)
    assert method.source == "public"
    run = method.fit(data(), public=PUBLIC)
    assert run.plan.beforehand == ()
    assert run.ledger.events == (run.plan.event(),)
    assert run.audit(data(16, seed=3), settings=AUDIT).privacy.proven is not None
    # and does not look at private records: others give the same r
    again = build("secure-sgd", "sound", public_data="first:1", epochs=1.0).fit(data(seed=8), public=PUBLIC)
    assert isinstance(run.noise.after_first_map, Tensor)
    assert torch.equal(run.noise.after_first_map, again.noise.after_first_map)


def test_the_published_r_reads_the_private_records_and_nothing_is_proven(published: Run) -> None:
    assert published.ledger.events == (UnprotectedEvent(), published.plan.event())
    card = published.audit(data(16, seed=3), settings=AUDIT)
    assert card.privacy.claimed is not None
    assert card.privacy.claimed.epsilon == 4.0
    assert card.privacy.proven is None
    assert card.privacy.reason == LEAKS
    other = data()
    changed = Dataset(name="quarters", x=other.x.flip(0), y=other.y.flip(0).roll(1), classes=4)
    scales = [
        build("secure-sgd", "paper", epochs=0.25).fit(each).noise.after_first_map for each in (other, changed)
    ]
    assert not torch.equal(*scales)


def test_the_published_even_noise_proves_its_privacy() -> None:
    run = build("secure-sgd-agm", "paper").fit(data())
    assert run.ledger.events == (run.plan.event(),)
    card = run.audit(data(16, seed=3), settings=AUDIT)
    assert card.privacy.proven is not None
    assert card.privacy.proven.epsilon <= 4.0
    assert "feature map" in str(card.robustness.reason)


def test_published_noise_is_one_draw_for_all_records_and_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Tensor] = []
    forward = NoiseAfter.forward

    def watched(self: NoiseAfter, x: Tensor, noise: Tensor) -> Tensor:
        drawn.append(noise.detach().clone())
        return forward(self, x, noise)

    for name in ("secure-sgd", "secure-sgd-agm"):
        trainers: list[PrivateTrainer] = []
        make = PrivateTrainer.__init__

        def noted(
            self: PrivateTrainer, *words: object, make=make, trainers=trainers, **named: object
        ) -> None:
            make(self, *words, **named)
            trainers.append(self)
            drawn.clear()  # what made-up records had

        monkeypatch.setattr(PrivateTrainer, "__init__", noted)
        monkeypatch.setattr(NoiseAfter, "forward", watched)
        build(name, "paper", epochs=0.5).fit(data())
        monkeypatch.undo()
        rows = torch.cat([each.reshape(-1, *each.shape[-3:]) for each in drawn])
        assert len(rows) > 128
        assert isinstance(trainers[0]._views, SharedNoiseViews)
        assert all(torch.equal(row, trainers[0].constants["gamma"]) for row in rows)
        assert trainers[0].constants["gamma"].abs().sum() > 0


def test_sound_noise_is_fresh_for_every_record() -> None:
    method = build("secure-sgd-agm", "sound", views=2)
    constants = method.settle(_given(method))
    assert set(constants) == {"scales"}
    views = method.record_views(method.model, SHAPE, constants)
    assert isinstance(views, LayerNoiseViews)
    assert views.views == 2
    _, noise = views(data(3).x, records=torch.arange(3), step=0, key=(1, 2))
    assert len({tuple(row.flatten()[:4].tolist()) for row in noise.flatten(0, 1)}) == 6


def _given(method: SecureSGDAGM):
    from hauberk.methods.base import Given
    from hauberk.progress import silent
    from hauberk.randomness import SystemRandomness
    from hauberk.training.distribution import Ranks

    return Given(
        model=method.model,
        private=data(),
        public=None,
        randomness=SystemRandomness(),
        ranks=Ranks.alone(),
        progress=silent,
    )


def test_the_published_gamma_follows_the_scales() -> None:
    method = build("secure-sgd-agm", "paper")
    gammas = [method.settle(_given(method))["gamma"] for _ in range(2)]
    assert not torch.equal(*gammas)  # from the operating system
    sigma = method.settle(_given(method))["scales"].flatten()[0]
    ratio = float(torch.cat(gammas).square().mean() / sigma**2)
    assert abs(ratio - 1) < 6 * (2 / (2 * gammas[0].numel())) ** 0.5


# --- interruptions ------------------------------------------------------------------------------------------


class Killed(BaseException):
    """Nothing catches it."""


@pytest.mark.parametrize(
    ("name", "variant", "changes"),
    [
        ("secure-sgd", "sound", {"redistribution": "private"}),
        ("secure-sgd", "sound", {"public_data": "first:1"}),
        ("secure-sgd", "paper", {}),
        ("secure-sgd-agm", "paper", {}),
    ],
    ids=["private", "public", "paper", "even, paper"],
)
def test_a_resumed_run_has_the_noise_that_it_began_with(
    name: str, variant: str, changes: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a seed: nothing could bring the same noise back but the checkpoint."""
    place = RunFolder(tmp_path / "run")
    place.create()
    place.write_config({})
    advance, constants = PrivateTrainer.advance, []

    def dying(self: PrivateTrainer) -> object:
        constants.append({name: value.clone() for name, value in self.constants.items()})
        if self.step == 3:
            raise Killed
        return advance(self)

    monkeypatch.setattr(PrivateTrainer, "advance", dying)
    changes = {**changes, "epochs": 1.5}
    with pytest.raises(Killed):
        build(name, variant, **changes).fit(data(), public=PUBLIC, folder=place)
    monkeypatch.setattr(PrivateTrainer, "advance", advance)
    counted = RunFolder(tmp_path / "run").read_events()
    run = build(name, variant, **changes).fit(data(), public=PUBLIC, folder=place, resume=True)
    scales = constants[0]["scales"]
    found = run.noise.after_first_map
    expected = scales if isinstance(found, Tensor) else float(scales.flatten()[0])
    assert torch.equal(found, expected) if isinstance(found, Tensor) else found == expected
    stored = read_tensors(place.path / "noise.safetensors")
    assert set(stored) == {"scales"}  # the noise of training is not released
    assert torch.equal(place.read_constants(("scales",))["scales"], scales)
    with pytest.raises(RequestError, match="lacks 'gamma'"):
        place.read_constants(("gamma",))
    first = counted.events[0]
    if not isinstance(first, GaussianEvent) or first.sampling_rate == 1:
        assert [event for event in run.ledger.events if event == first] == [first]
    assert run.ledger.steps >= run.plan.steps
    if variant == "paper":
        assert all(torch.equal(each["gamma"], constants[0]["gamma"]) for each in constants)


# --- robustness ---------------------------------------------------------------------------------------------


def radii(run: Run, found: Certificates, name: str, gain: float) -> np.ndarray:
    lower = clopper_pearson_lower(found.votes, found.samples, found.alpha)
    lower = np.where(found.abstained, 0.0, lower)
    return find_certificate(name).radius(lower, gain=gain)


def test_the_same_votes_certify_most_by_the_tight_certificate(private: Run) -> None:
    """Issue: sound Secure-SGD certifies more than its paper's formula, once the gain is that of all maps."""
    test = data(60, seed=3)
    classifier = private.classifier
    found = classifier.certify(test.x, samples=1000, alpha=0.001, seed=1)
    certified = found.radii > 0
    right = found.labels == test.y.numpy()
    assert (certified & right).mean() > 0.8  # it has learnt
    joint = classifier.gain_of("l2", SHAPE).value
    tight, analytic, hgm, pixeldp = (
        radii(private, found, name, joint) for name in ("tight", "hgm-analytic", "hgm", "pixeldp")
    )
    np.testing.assert_allclose(tight, found.radii, rtol=1e-12)
    assert (tight[certified] > analytic[certified]).all()
    assert (tight[certified] > hgm[certified]).all()
    assert (analytic >= np.maximum(hgm, pixeldp) * (1 - 1e-9)).all()
    assert hgm[certified].max() > 0
    for name, expected in (("hgm", hgm), ("hgm-analytic", analytic)):
        formula = PublishedRadius(certificate=name, one_map=False, source="")
        np.testing.assert_array_equal(formula.radii(found, classifier, SHAPE), expected)


def test_the_published_claim_uses_one_map_and_says_so(published: Run) -> None:
    test = data(16, seed=3)
    found = published.classifier.certify(test.x, samples=200, alpha=0.001, seed=0)
    columns = published.robustness(found, test, attacked=None)
    formula = published.published_radius
    assert formula is not None
    assert (formula.certificate, formula.one_map) == ("hgm", True)
    claimed = np.where(
        found.labels == test.y.numpy(), formula.radii(found, published.classifier, SHAPE), 0.0
    ).mean()
    assert columns.claimed is not None
    assert columns.claimed.average_radius == pytest.approx(float(claimed))
    assert "feature map" in str(columns.reason)
    one, joint = (
        PublishedRadius(certificate="hgm", one_map=one_map, source="").gain(published.classifier, "l2", SHAPE)
        for one_map in (True, False)
    )
    assert one < joint


# --- wrong requests -----------------------------------------------------------------------------------------


def test_wrong_requests_cost_a_sentence() -> None:
    network = build("secure-sgd", "paper").model
    plan = PrivacyPlan(records=RECORDS, batch=64, epochs=1, noise_multiplier=1.0, delta=1e-4)
    with pytest.raises(RequestError, match="public, private or training-set"):
        SecureSGD(network, plan=plan, sigma=1.0, source="rumours")
    with pytest.raises(RequestError, match="public data"):
        SecureSGD(network, plan=plan, sigma=1.0, source="public").fit(data())
    with pytest.raises(RequestError, match="redistribution must be one of"):
        settings_("secure-sgd", "sound", redistribution="rumours")
    for name, value in (("inflation", 0.0), ("robust_epsilon", -1.0), ("robust_size", float("inf"))):
        with pytest.raises(RequestError, match=name):
            settings_("secure-sgd", "sound", **{name: value})
    with pytest.raises(RequestError, match="robust_delta"):
        settings_("secure-sgd", "sound", robust_delta=0.5)
