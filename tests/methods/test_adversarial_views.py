"""Adversarial copies as views: each depends on its own record alone, stays in its ball, leaves no trace."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from hauberk.attacks import IFGSM, MIM, PGD
from hauberk.methods.adversarial_views import AdversarialViews, ensemble
from hauberk.randomness import keyed_normals
from hauberk.training import LayerNoiseViews, NoiseAfter

KEY, STEP, SIZE, SIGMA = (11, 22), 5, 0.3, 0.25
SHAPE, ROWS = (1, 6, 6), 40
IDENTITIES = torch.arange(ROWS) * 7 + 3


def network() -> nn.Sequential:
    """In float64: where a sum in another order could turn the sign of a gradient, nothing could be told."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = nn.Sequential(
            nn.Conv2d(1, 3, 3, padding=1), nn.Tanh(), nn.Dropout(), nn.Flatten(), nn.Linear(3 * 36, 4)
        )
    return layers.double()


def views(model: nn.Sequential | None = None, *, steps: int = 3, **changes: object) -> AdversarialViews:
    settings = {
        "network": NoiseAfter(model or network(), "0"),
        "noise": LayerNoiseViews(at_input=SIGMA, after_layer=0.1, shape=(3, 6, 6), views=2),
        "attacks": ensemble(steps),
        "size": SIZE,
        **changes,
    }
    return AdversarialViews(**settings)  # type: ignore[arg-type]


def records(rows: int = ROWS) -> Tensor:
    """Some pixels are black, some white: an attack must not leave [0, 1] there."""
    x = torch.rand(rows, *SHAPE, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return (2 * x - 0.5).clamp(0, 1)


def seen(made: AdversarialViews, rows: Tensor | None = None, step: int = STEP) -> tuple[Tensor, Tensor]:
    rows = torch.arange(ROWS) if rows is None else rows
    return made(records()[rows], records=IDENTITIES[rows], step=step, key=KEY)


def moved(inputs: Tensor) -> Tensor:
    """The adversarial copies before their noise."""
    noise = keyed_normals(KEY, step=STEP, records=IDENTITIES, views=2, shape=SHAPE)
    return inputs[:, 1] - SIGMA * noise[:, 1]


# --- a record alone -----------------------------------------------------------------------------------------


def test_a_records_views_do_not_depend_on_who_else_is_there() -> None:
    made = views()
    inputs, noise = seen(made)
    for row in (0, 7, ROWS - 1):
        alone, own_noise = seen(made, torch.tensor([row]))
        torch.testing.assert_close(alone[0], inputs[row], rtol=0, atol=1e-9)
        assert torch.equal(own_noise[0], noise[row])


def test_a_permuted_sample_has_permuted_views() -> None:
    made = views()
    order = torch.randperm(ROWS, generator=torch.Generator().manual_seed(2))
    inputs, noise = seen(made)
    other, other_noise = seen(made, order)
    torch.testing.assert_close(other, inputs[order], rtol=0, atol=1e-9)
    assert torch.equal(other_noise, noise[order])


def test_another_neighbour_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """One other record, and passes of few records at once: the views of the rest stay."""
    made = views()
    inputs, _ = seen(made)
    x = records()
    x[0] = 1 - x[0]
    monkeypatch.setattr("hauberk.methods.adversarial_views._AT_ONCE", {"cpu": 4})
    other, _ = made(x, records=IDENTITIES, step=STEP, key=KEY)
    torch.testing.assert_close(other[1:], inputs[1:], rtol=0, atol=1e-9)
    assert float((other[0] - inputs[0]).abs().max()) > 0.1


def test_nobody_in_the_sample_gives_no_views() -> None:
    inputs, noise = seen(views(), torch.arange(0))
    assert inputs.shape == (0, 2, *SHAPE)
    assert noise.shape == (0, 2, 3, 6, 6)


# --- where the copies lie -----------------------------------------------------------------------------------


def test_the_benign_view_is_the_record_with_noise_of_its_own() -> None:
    inputs, layer_noise = seen(views())
    noise = keyed_normals(KEY, step=STEP, records=IDENTITIES, views=2, shape=SHAPE)
    torch.testing.assert_close(inputs[:, 0], records() + SIGMA * noise[:, 0])
    assert float((noise[:, 0] - noise[:, 1]).abs().min(0).values.max()) > 0  # two draws, not one
    assert not torch.equal(layer_noise[:, 0], layer_noise[:, 1])


def test_an_adversarial_copy_stays_within_its_random_size_and_the_pixels_range() -> None:
    points = moved(seen(views())[0])
    assert float(points.min()) > -1e-6
    assert float(points.max()) < 1 + 1e-6
    sizes = (points - records()).flatten(1).abs().amax(1)
    assert float(sizes.max()) <= SIZE + 1e-6
    assert float(sizes.min()) > 0
    assert float(sizes.std()) > 0.2 * SIZE / 12**0.5  # sizes are drawn, uniformly in (0, SIZE]
    assert 0.3 * SIZE < float(sizes.mean()) < 0.7 * SIZE


def test_every_attack_of_the_ensemble_has_its_share_of_the_records() -> None:
    assert [type(each) for each in ensemble(4)] == [IFGSM, MIM, PGD]
    assert {(each.steps, each.norm, each.stop_when_broken) for each in ensemble(4)} == {(4, "linf", False)}
    together = moved(seen(views())[0])
    owners = [0, 0, 0]
    for number, attack in enumerate(ensemble(3)):
        alone = moved(seen(views(attacks=(attack,)))[0])
        same = (alone - together).flatten(1).abs().amax(1) < 1e-9
        owners[number] = int(same.sum())
    assert min(owners) >= 4
    assert sum(owners) >= ROWS


def test_copies_are_moved_away_from_the_networks_own_answer() -> None:
    model = network()
    made = views(
        model, steps=10, noise=LayerNoiseViews(at_input=0.0, after_layer=0.0, shape=(3, 6, 6), views=2)
    )
    (inputs, _), before = seen(made), network().eval()
    own = before(records()).argmax(1)
    losses = [
        nn.functional.cross_entropy(before(inputs[:, view]), own, reduction="none").detach()
        for view in (0, 1)
    ]
    assert float((losses[1] > losses[0]).double().mean()) > 0.95


# --- chance -------------------------------------------------------------------------------------------------


def test_key_and_step_decide_everything() -> None:
    inputs, noise = seen(views())
    again, same_noise = seen(views())
    assert torch.equal(again, inputs)
    assert torch.equal(same_noise, noise)
    assert not torch.equal(seen(views(), step=STEP + 1)[0], inputs)
    other, _ = views()(records(), records=IDENTITIES, step=STEP, key=(11, 23))
    assert not torch.equal(other, inputs)


# --- the network is left as it was --------------------------------------------------------------------------


def test_weights_keep_their_gradients_their_wishes_and_their_mode() -> None:
    model = network().train()
    model[0].bias.requires_grad_(False)
    model[4].weight.grad = torch.ones_like(model[4].weight)
    before = [each.detach().clone() for each in model.parameters()]
    with torch.no_grad():  # as a training step calls it
        seen(views(model))
    assert all(torch.equal(each, old) for each, old in zip(model.parameters(), before, strict=True))
    assert torch.equal(model[4].weight.grad, torch.ones_like(model[4].weight))
    assert model[0].weight.grad is None
    frozen = [name for name, each in model.named_parameters() if not each.requires_grad]
    assert frozen == ["0.bias"]
    assert all(each.training for each in model.modules())
    assert not any(each._forward_hooks for each in model.modules())


def test_weights_ask_for_gradients_again_after_a_failure() -> None:
    model = network().train()

    class Failing(NoiseAfter):
        def forward(self, x: Tensor, noise: Tensor) -> Tensor:
            assert not any(each.requires_grad for each in self.parameters())
            raise KeyError("somewhere inside")

    with pytest.raises(KeyError, match="somewhere inside"):
        seen(views(network=Failing(model, "0")))
    assert all(each.requires_grad for each in model.parameters())
    assert all(each.training for each in model.modules())


def test_a_network_that_has_lost_its_numbers_still_gets_finite_views() -> None:
    """One bad step must not stop training with an index that does not exist."""
    model = network()
    with torch.no_grad():
        model[4].weight.fill_(float("nan"))
    points = moved(seen(views(model))[0])
    assert bool(points.isfinite().all())
    assert float((points - records()).abs().max()) <= SIZE + 1e-6
