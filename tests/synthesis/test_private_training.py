"""What private training of networks promises: one clip, one event, nobody else's business."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from hauberk.gradients import ClippedGradients, FlatClip, trainable
from hauberk.mechanisms import EpsilonDelta
from hauberk.randomness import SeededRandomness
from hauberk.synthesis import WARD, simulate_ward
from hauberk.synthesis.base import Task
from hauberk.synthesis.catalogue import SYNTHESIZERS
from hauberk.synthesis.game import Game, NoiseBesideRows, game_loss
from hauberk.synthesis.gan import AdversarialGenerator
from hauberk.synthesis.networks import bound_spectral_norms, draw, turned
from hauberk.synthesis.neural import NeuralSynthesizer
from hauberk.synthesis.packing import Packing
from hauberk.synthesis.scales import Scales
from hauberk.training.loop import PrivateTrainer

NEURAL = [name for name, row in SYNTHESIZERS.items() if issubclass(row.kind, NeuralSynthesizer)]
each = pytest.mark.parametrize("name", NEURAL)

PATIENTS = simulate_ward(24, seed=5)
SCALES = Scales.release(PATIENTS, noise_multiplier=0.0, randomness=SeededRandomness(0), step=0)
PACKING = Packing(SCALES)
ROWS = PACKING.pack(PATIENTS)
KEY = (11, 12)
CLIP = 0.05


def build(name: str, budget: EpsilonDelta | None = None) -> NeuralSynthesizer:
    model = SYNTHESIZERS[name].build(Task(schema=WARD, records=24, budget=budget, noise_seed=1), size="tiny")
    assert isinstance(model, NeuralSynthesizer)
    return model


def game_of(name: str) -> Game:
    torch.manual_seed(0)
    game = build(name).build_game(PACKING.shape)
    game.start_from(SCALES)
    return game


def clipped(game: Game, rows: torch.Tensor, places: torch.Tensor, path: str) -> dict[str, torch.Tensor]:
    engine = ClippedGradients(game, game_loss, clipping=FlatClip(CLIP), path=path)
    views = NoiseBesideRows(game.noise_width)(rows[places], records=places, step=3, key=KEY)
    return engine.clipped_sum(views, torch.zeros(len(places), dtype=torch.int64)).gradients


@each
def test_the_fast_path_serves_and_gives_the_general_paths_clipped_sum(name: str) -> None:
    game, places = game_of(name), torch.arange(6)
    fast, general = (clipped(game, ROWS, places, path) for path in ("fast", "general"))
    assert set(fast) == set(trainable(game))
    for weight, expected in general.items():
        torch.testing.assert_close(fast[weight], expected, rtol=1e-3, atol=1e-6)
    assert any(float(part.abs().max()) > 0 for part in fast.values())


@each
def test_a_neighbour_moves_the_sum_by_at_most_the_clip_and_nobody_else(name: str) -> None:
    game, everybody = game_of(name), torch.arange(8)
    without, alone = everybody[everybody != 5], torch.tensor([5])
    all_of_them, others, one = (clipped(game, ROWS, each, "fast") for each in (everybody, without, alone))
    moved = {weight: all_of_them[weight] - others[weight] for weight in all_of_them}
    norm = torch.cat([part.flatten() for part in moved.values()]).norm()
    assert float(norm) <= CLIP * (1 + 1e-3)
    for weight, part in moved.items():  # what it moved is its own clipped gradient: the others' stayed
        torch.testing.assert_close(part, one[weight], rtol=1e-3, atol=1e-6)


def test_a_records_noise_is_its_own() -> None:
    views = NoiseBesideRows(5)
    _, together = views(ROWS[:4], records=torch.arange(4), step=2, key=KEY)
    _, single = views(ROWS[2:3], records=torch.tensor([2]), step=2, key=KEY)
    assert torch.equal(together[2:3], single)


@each
def test_critics_stay_lipschitz_without_a_penalty(name: str) -> None:
    model = build(name)
    trainer, game = model.trainer(PATIENTS, SCALES, randomness=SeededRandomness(0))
    for _ in range(2):
        trainer.advance()
    for critic in game.critics:
        for layer in critic.modules():
            if isinstance(layer, nn.Linear):
                assert float(torch.linalg.matrix_norm(layer.weight.detach(), 2)) <= 1 + 1e-5


def test_bounding_leaves_small_weights_alone() -> None:
    layer = nn.Linear(3, 2, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.5, 0.0, 0.0], [0.0, 0.2, 0.0]]))
    before = layer.weight.clone()
    bound_spectral_norms([layer])
    assert torch.equal(layer.weight, before)


def test_the_generator_of_a_gan_is_post_processing() -> None:
    model = build("gan", EpsilonDelta(epsilon=3.0, delta=1e-3))
    trainer, game = model.trainer(PATIENTS, SCALES, randomness=SeededRandomness(0))
    assert isinstance(game, AdversarialGenerator)
    assert all(name.startswith(("critic.", "outcome_head.")) for name in trainable(game))
    steps = game.settings.critic_steps
    moves = []
    for _ in range(steps):
        before = [weight.clone() for weight in game.generator.parameters()]
        trainer.advance()
        after = list(game.generator.parameters())
        moves.append(any(not torch.equal(*pair) for pair in zip(before, after, strict=True)))
    # it moves after every `critic_steps` updates of the critic, each of which is an event of its own
    assert moves == [*[False] * (steps - 1), True]
    assert trainer.ledger.steps == steps > 1
    # and its move is a function of released weights and the key: no record is within its reach
    state = {name: value.clone() for name, value in game.state_dict().items()}
    twin = model.build_game(PACKING.shape)
    twin.load_state_dict(state)
    for each in (game, twin):
        each.after_step(step=steps - 1, steps=10, key=KEY)
    for one, other in zip(game.generator.parameters(), twin.generator.parameters(), strict=True):
        assert torch.equal(one, other)


def test_noise_reaches_every_trained_weight() -> None:
    """Without records the weights still move, by noise alone; and an empty sample is ordinary."""
    model = build("daae", EpsilonDelta(epsilon=3.0, delta=1e-3))
    trainer, game = model.trainer(PATIENTS, SCALES, randomness=SeededRandomness(0))

    class Nobody:
        def sample(self, step: int) -> torch.Tensor:
            return torch.empty(0, dtype=torch.int64)

    trainer.sampler = Nobody()
    before = {name: weight.clone() for name, weight in trainable(game).items()}
    trainer.advance()
    assert isinstance(trainer, PrivateTrainer)
    for name, weight in trainable(game).items():
        assert not torch.equal(weight, before[name]), name


def test_a_turned_gradient_has_the_opposite_sign() -> None:
    values = torch.tensor([1.0, -2.0], requires_grad=True)
    turned(values, 0.5).sum().backward()
    torch.testing.assert_close(turned(values, 0.5).detach(), values.detach())
    assert values.grad is not None
    assert values.grad.tolist() == [-0.5, -0.5]


def test_drawn_rows_are_data_times_mask() -> None:
    game = game_of("vae")
    noise = torch.randn(40, PACKING.shape.width, generator=torch.Generator().manual_seed(0))
    latent = torch.randn(40, game.latent, generator=torch.Generator().manual_seed(1))
    outputs = game.get_submodule("decoder")(latent)
    rows = draw(outputs, noise, PACKING.shape)
    _, steps = PACKING.shape.parts(rows)
    values, masks, real = (
        steps[..., 1 : 1 + PACKING.shape.value_width],
        steps[..., 1 + PACKING.shape.value_width : -1],
        steps[..., -1],
    )
    assert set(masks.detach().unique().tolist()) <= {0.0, 1.0}
    assert bool((real[:, 0] == 1).all())
    assert bool((real[:, 1:] <= real[:, :-1]).all())
    assert not bool(masks[real == 0].any())
    for columns in PACKING.shape.temporal:
        part = values[..., columns.start - 1 : columns.stop - 1]
        assert not bool(part[masks[..., columns.mask] == 0].any())


def test_encoders_do_not_see_the_outcome_and_critics_do() -> None:
    game = game_of("vae-gan")
    outcome = PACKING.shape.outcome
    assert outcome is not None
    other = ROWS.clone()
    other[:, outcome.start : outcome.stop] = 1 - other[:, outcome.start : outcome.stop]
    codes = [game.get_submodule("encoder")(rows) for rows in (ROWS, other)]
    scores = [game.get_submodule("critic")(rows) for rows in (ROWS, other)]
    assert torch.equal(*codes)
    assert not torch.equal(*scores)


@each
def test_before_training_rows_have_the_pooled_frequencies(name: str) -> None:
    real = simulate_ward(600, seed=1)
    scales = Scales.release(real, noise_multiplier=0.0, randomness=SeededRandomness(0), step=0)
    packing = Packing(scales)
    torch.manual_seed(0)
    game = build(name).build_game(packing.shape)
    game.start_from(scales)
    chance = torch.Generator().manual_seed(1)
    with torch.no_grad():
        made = packing.unpack(
            game.generate(
                torch.randn(600, game.latent, generator=chance),
                torch.randn(600, packing.shape.width, generator=chance),
            )
        )
    lengths = [float(each.lengths.double().mean()) for each in (real, made)]
    assert lengths[1] == pytest.approx(lengths[0], rel=0.25)
    events = [float((each.outcome == 1).double().mean()) for each in (real, made)]
    assert events[1] == pytest.approx(events[0], abs=0.08)


def test_settings_travel_as_they_are() -> None:
    model = build("vae")
    changed = type(model)(model.task, replace(model.settings, clip=0.25))
    assert type(model).from_config(changed.config(), where="here").settings == changed.settings
