"""Every method in every variant keeps the promises of all: one catalogue row, and it is tested here."""

import math

import pytest
import torch

from hauberk.accounting import prove
from hauberk.data import Dataset
from hauberk.errors import RequestError
from hauberk.methods import METHODS
from hauberk.methods.catalogue import named_network
from hauberk.methods.run import AuditSettings
from hauberk.methods.settings import TrainSettings

ROWS = [(name, variant) for name, row in METHODS.items() for variant in row.variants]
each = pytest.mark.parametrize(("name", "variant"), ROWS, ids=[f"{name} {variant}" for name, variant in ROWS])
SHAPE = (1, 6, 6)
AUDIT = AuditSettings(tested=8, samples=50, attacked=2, attack_steps=2)


def data(rows: int = 64) -> Dataset:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(rows, *SHAPE, generator=generator)
    y = (x.flatten(1).mean(1) > 0.5).long()
    return Dataset(name="made up", x=x, y=y, classes=2)


PUBLIC = data(32)


def settings(name: str, variant: str, **changes: object) -> TrainSettings:
    return TrainSettings(
        **{
            "method": name,
            "variant": variant,
            "epsilon": 1.0,
            "delta": 1e-3,
            "batch": 16,
            "epochs": 2.0,
            "lr": 0.5,
            "model": "mlp",
            "public_epochs": 1,
            **METHODS[name].defaults(variant, records=64),
            **changes,
        }
    )


def network(chosen: TrainSettings):
    torch.manual_seed(0)
    return named_network(chosen, SHAPE, 2)


def fit(name: str, variant: str, **changes: object):
    chosen = settings(name, variant, **changes)
    row = METHODS[name]
    method = row.build(network(chosen), chosen, row.plan(chosen, records=64))
    return method.fit(data(), public=PUBLIC if "public_data" in row.reads else None)


@each
def test_a_card_has_what_is_claimed_and_what_is_proven(name: str, variant: str) -> None:
    row, run = METHODS[name], fit(name, variant)
    card = run.audit(data(), settings=AUDIT)
    assert (card.method, card.variant) == (name, variant)
    if not row.private:
        assert card.privacy.claimed is None
        assert card.privacy.proven is None
        assert "does not protect" in str(card.privacy.reason)
    else:
        assert card.privacy.claimed is not None
        assert card.privacy.claimed.epsilon == pytest.approx(1.0, rel=0.01)
        executed = prove(run.ledger.events, card.privacy.claimed.delta).epsilon
        if card.privacy.proven is None:
            assert variant == "paper"
            assert math.isinf(executed)
            assert card.privacy.reason == run.unprovable
        else:
            assert card.privacy.proven.epsilon >= executed
        if variant == "sound":
            assert card.privacy.proven is not None
            assert card.privacy.proven.epsilon <= 1.0
    assert (card.robustness.proven is not None) == row.certifies
    assert card.robustness.observed is not None or card.robustness.reason
    assert card.utility is not None


@pytest.mark.parametrize("name", METHODS)
def test_a_row_says_why_its_paper_variant_proves_less(name: str) -> None:
    row = METHODS[name]
    assert row.why_not or "paper" not in row.variants
    assert all((row.summary, row.paper, row.claimed, row.proven))


@each
def test_the_events_cover_every_step(name: str, variant: str) -> None:
    run = fit(name, variant)
    assert run.ledger.steps >= run.plan.steps


@each
def test_a_noise_seed_repeats_the_weights_and_proves_nothing(name: str, variant: str) -> None:
    first, second = fit(name, variant, noise_seed=3), fit(name, variant, noise_seed=3)
    for one, other in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(one, other)
    assert first.audit(data(), settings=AUDIT).privacy.proven is None


@each
def test_the_model_that_was_passed_in_is_not_changed(name: str, variant: str) -> None:
    chosen, row = settings(name, variant), METHODS[name]
    model = network(chosen)
    before = [weight.clone() for weight in model.parameters()]
    row.build(model, chosen, row.plan(chosen, records=64)).fit(data(), public=PUBLIC)
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), before, strict=True))


@pytest.mark.parametrize("name", ["dp-sgd", "adaclip", "directional"])
def test_pruning_is_proven_when_sound_and_not_when_published(name: str) -> None:
    sound = fit(name, "sound", pruned=0.5).audit(data(), settings=AUDIT)
    assert sound.privacy.proven is not None
    assert sound.privacy.proven.epsilon <= 1.0
    published = fit(name, "paper", pruned=0.5).audit(data(), settings=AUDIT)
    assert published.privacy.claimed is not None
    assert published.privacy.proven is None
    assert "pruning" in str(published.privacy.reason)


def test_published_directional_noise_proves_far_less_than_it_claims() -> None:
    card = fit("directional", "paper").audit(data(), settings=AUDIT)
    assert card.privacy.proven is not None
    assert card.privacy.proven.epsilon > 10 * card.privacy.claimed.epsilon


def test_equal_weights_leave_the_published_plan_isotropic() -> None:
    chosen = settings("directional", "paper", share=0.0)
    plan = METHODS["directional"].plan(chosen, records=64)
    run = fit("directional", "paper", share=0.0)
    assert run.ledger.events == (plan.event(),)


def test_the_published_gaussian_noise_is_the_formula() -> None:
    plan = METHODS["dp-sgd"].plan(settings("dp-sgd", "paper"), records=64)
    expected = 2 * plan.sampling_rate * math.sqrt(plan.steps * math.log(1e3)) / 1.0
    assert plan.noise_multiplier == pytest.approx(expected)


def test_a_method_without_radius_has_nothing_to_certify() -> None:
    with pytest.raises(RequestError, match="promises no robustness"):
        _ = fit("dp-sgd", "sound").classifier


@pytest.mark.parametrize("name", ["dp-sgd", "adaclip", "directional"])
def test_the_published_variant_needs_an_epsilon_to_claim(name: str) -> None:
    chosen = settings(name, "paper", epsilon=None, noise_multiplier=1.0)
    with pytest.raises(RequestError, match="needs --epsilon"):
        METHODS[name].plan(chosen, records=64)
