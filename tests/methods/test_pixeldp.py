"""PixelDP and HGM-PixelDP: certified, not private, and no larger radius than the votes bear."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from hauberk import models
from hauberk.accounting import PrivacyPlan, UnprotectedEvent
from hauberk.certify import NoiseLayers, Smoothed
from hauberk.certify.first_map import find_first_map
from hauberk.data import Dataset
from hauberk.errors import RequestError
from hauberk.methods import METHODS, AuditSettings
from hauberk.methods.catalogue import named_network
from hauberk.methods.claims import PublishedRadius
from hauberk.methods.pixeldp import BUDGET, HGM_BUDGET, NO_PRIVACY, HGMPixelDP, PixelDP
from hauberk.methods.run import Run
from hauberk.methods.settings import TrainSettings
from hauberk.training.layer_noise import LayerNoiseViews, map_norm

SHAPE = (1, 16, 16)
PLAN = PrivacyPlan(records=192, batch=48, epochs=3, noise_multiplier=0.0, delta=1e-5)


def data(rows: int = 192, seed: int = 0) -> Dataset:
    """Bright above or bright below: learnt in a few steps, and far from the border."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 2, (rows,), generator=generator)
    x = 0.3 * torch.rand(rows, *SHAPE, generator=generator)
    for row, label in enumerate(y.tolist()):
        x[row, :, 8 * label : 8 * label + 8] += 0.6
    return Dataset(name="halves", x=x, y=y, classes=2)


def chosen(name: str, variant: str, **changes: object) -> TrainSettings:
    basis = {"method": name, "variant": variant, "batch": 48, "epochs": 3.0, "model": "small-tanh-cnn"}
    return TrainSettings(**{**METHODS[name].settings, **basis, **changes})  # type: ignore[arg-type]


def build(name: str, variant: str, **changes: object) -> PixelDP:
    settings = chosen(name, variant, **changes)
    torch.manual_seed(1)
    network = named_network(settings, SHAPE, 2)
    row = METHODS[name]
    built = row.build(network, settings, row.plan(settings, records=192))
    assert isinstance(built, PixelDP)
    return built


@pytest.fixture(scope="module")
def runs() -> dict[tuple[str, str], Run]:
    return {
        (name, variant): build(name, variant).fit(data())
        for name in ("pixeldp", "hgm-pixeldp")
        for variant in ("sound", "paper")
    }


EACH = [(name, variant) for name in ("pixeldp", "hgm-pixeldp") for variant in ("sound", "paper")]


def test_the_noise_is_calibrated_to_the_papers_budget() -> None:
    classical = BUDGET.size * math.sqrt(2 * math.log(1.25 / BUDGET.delta)) / BUDGET.epsilon
    for variant in ("sound", "paper"):
        assert build("pixeldp", variant).sigma == pytest.approx(classical)
    s = math.log(math.sqrt(2 / math.pi) / HGM_BUDGET.delta)
    extended = (math.sqrt(s) + math.sqrt(s + HGM_BUDGET.epsilon)) / (math.sqrt(2) * HGM_BUDGET.epsilon)
    assert build("hgm-pixeldp", "paper").sigma == pytest.approx(HGM_BUDGET.size * extended)
    assert build("hgm-pixeldp", "sound").sigma < HGM_BUDGET.size * extended
    assert build("pixeldp", "sound", sigma=0.7).sigma == 0.7
    assert build("pixeldp", "sound", robust_size=0.2).sigma == pytest.approx(2 * classical)


@pytest.mark.parametrize(("name", "variant"), EACH)
def test_the_card_promises_a_radius_and_no_privacy(
    name: str, variant: str, runs: dict[tuple[str, str], Run]
) -> None:
    run = runs[name, variant]
    assert run.ledger.events == (UnprotectedEvent(count=PLAN.steps + (name == "hgm-pixeldp")),)  # its r
    card = run.audit(
        data(24, seed=9), settings=AuditSettings(tested=24, samples=300, attacked=4, attack_steps=3)
    )
    assert card.privacy.claimed is None
    assert card.privacy.proven is None
    assert card.privacy.reason == NO_PRIVACY
    robustness = card.robustness
    assert robustness.claimed is not None
    assert robustness.proven is not None
    claimed, proven = robustness.claimed.average_radius, robustness.proven.average_certified_radius
    assert proven > 0
    assert robustness.observed is not None
    assert robustness.observed.broken == 0
    if variant == "sound":
        assert claimed == proven
    elif name == "pixeldp":
        assert 0 < claimed < proven  # it holds, and is worth less
        assert robustness.reason is None
    else:
        assert "feature map" in str(robustness.reason)


@pytest.mark.parametrize(("name", "variant"), EACH)
def test_pixeldp_has_even_noise_and_hgm_pixeldp_has_not(
    name: str, variant: str, runs: dict[tuple[str, str], Run]
) -> None:
    run, method = runs[name, variant], build(name, variant)
    assert run.noise is not None
    sigma = method.sigma * float(map_norm(find_first_map(method.model, SHAPE).layer))
    if name == "pixeldp":
        assert run.noise.after_first_map == pytest.approx(sigma, rel=1e-6)
        return
    scales = run.noise.after_first_map
    assert isinstance(scales, torch.Tensor)
    assert float(scales.double().square().mean().sqrt()) == pytest.approx(sigma, rel=1e-5)
    assert float(scales.max() / scales.min()) > 1.1


@pytest.mark.parametrize(("name", "variant"), EACH)
def test_the_first_map_is_held_where_it_was(
    name: str, variant: str, runs: dict[tuple[str, str], Run]
) -> None:
    before = float(map_norm(find_first_map(build(name, variant).model, SHAPE).layer))
    after = float(map_norm(find_first_map(runs[name, variant].model, SHAPE).layer))
    assert after <= before * (1 + 1e-5)


def test_noise_on_gradients_makes_no_privacy_of_an_r_that_leaks() -> None:
    """A private plan may be handed in; the scales still come from the records, without noise."""
    plan = PrivacyPlan(records=192, batch=48, epochs=1, noise_multiplier=2.0, delta=1e-3)
    network = models.build("mlp", shape=SHAPE, classes=2)
    run = HGMPixelDP(network, plan=plan, sigma=0.5).fit(data())
    card = run.audit(data(8, seed=9), settings=AuditSettings(tested=8, samples=50, attacked=0))
    assert card.privacy.proven is None
    assert card.privacy.reason == NO_PRIVACY


def test_every_record_has_fresh_noise() -> None:
    method = build("pixeldp", "paper")
    views = method.record_views(method.model, SHAPE, {"scales": torch.ones(16, 7, 7)})
    assert isinstance(views, LayerNoiseViews)


def test_gradients_are_not_clipped(runs: dict[tuple[str, str], Run]) -> None:
    trainer = build("pixeldp", "sound").trainer(
        data(),
        constants={
            "scales": torch.full(find_first_map(build("pixeldp", "sound").model, SHAPE).output_shape, 0.1)
        },
    )
    done = trainer.advance()
    assert done.private.records > 0
    assert done.private.clipped == 0


def test_noise_must_be_positive() -> None:
    network = models.build("mlp", shape=SHAPE, classes=2)
    for sigma in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(RequestError, match="sigma must lie between"):
            HGMPixelDP(network, plan=PLAN, sigma=sigma)


def test_a_network_with_a_way_around_its_first_map_is_refused() -> None:
    class Skips(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            answer: torch.Tensor = self.last(torch.tanh(self.first(x)) + x)
            return answer

    x = torch.rand(64, 6)
    with pytest.raises(RequestError, match="way around"):
        PixelDP(Skips(), plan=PLAN, sigma=1.0).fit((x, (x.mean(1) > 0.5).long()), classes=2)


# --- published radii ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("certificate", ["hgm", "hgm-analytic"])
def test_the_published_radius_is_larger_by_the_ratio_of_the_gains(certificate: str, even: bool) -> None:
    torch.manual_seed(0)
    network = models.build("small-tanh-cnn", shape=SHAPE, classes=2)
    first = find_first_map(network, SHAPE)
    scales = 0.2 if even else 0.1 + 0.3 * torch.rand(first.output_shape)
    classifier = Smoothed(network, noise=NoiseLayers(after_first_map=scales), classes=2)
    found = classifier.certify(data(16).x, samples=400, alpha=0.01, seed=1)
    one = PublishedRadius(certificate=certificate, one_map=True, source="")
    joint = PublishedRadius(certificate=certificate, one_map=False, source="")
    gains = [each.gain(classifier, "l2", SHAPE) for each in (one, joint)]
    assert gains[1] == classifier.gain_of("l2", SHAPE).value
    assert gains[0] < gains[1]
    maps = first.output_shape[0]
    assert gains[1] <= math.sqrt(maps) * gains[0] * (1 + 1e-9) or not even
    published, sound = (each.radii(found, classifier, SHAPE) for each in (one, joint))
    certified = sound > 0
    assert certified.any()
    np.testing.assert_allclose(published[certified] / sound[certified], gains[1] / gains[0], rtol=1e-6)
    assert (published[~certified] == 0).all()
    assert (sound <= found.radii).all()  # tight is the largest that the votes bear
    assert (sound[found.abstained] == 0).all()


def test_a_linear_first_map_is_one_map() -> None:
    network = models.build("mlp", shape=(5,), classes=2)
    classifier = Smoothed(network, noise=NoiseLayers(after_first_map=0.3), classes=2)
    one = PublishedRadius(certificate="hgm", one_map=True, source="").gain(classifier, "l2", (5,))
    assert one == pytest.approx(classifier.gain_of("l2", (5,)).value)
