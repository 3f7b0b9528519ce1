"""What IGAMT is made of, what records touch in each of its forms, and what its card says."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from hauberk.gradients import ClippedGradients, FlatClip, trainable
from hauberk.mechanisms import EpsilonDelta
from hauberk.randomness import SeededRandomness
from hauberk.synthesis import WARD, simulate_ward
from hauberk.synthesis.base import Task
from hauberk.synthesis.catalogue import SYNTHESIZERS, find_synthesizer
from hauberk.synthesis.game import NoiseBesideRows, game_loss
from hauberk.synthesis.igamt import IGAMT
from hauberk.synthesis.igamt_game import ImitativeGame
from hauberk.synthesis.igamt_history import RunningHistory, history
from hauberk.synthesis.igamt_last_layer import decoded, make_rows
from hauberk.synthesis.igamt_paper import PublishedNoise, imitation_loss
from hauberk.synthesis.igamt_settings import ABLATIONS, IgamtSettings
from hauberk.synthesis.networks import draw
from hauberk.synthesis.packing import Packing
from hauberk.synthesis.scales import Scales
from hauberk.training.loop import PrivateTrainer
from hauberk.training.run_folder import RunFolder

PATIENTS = simulate_ward(24, seed=5)
SCALES = Scales.release(PATIENTS, noise_multiplier=0.0, randomness=SeededRandomness(0), step=0)
PACKING = Packing(SCALES)
SHAPE, ROWS = PACKING.shape, PACKING.pack(PATIENTS)
KEY = (3, 4)
BUDGET = EpsilonDelta(epsilon=3.0, delta=1e-3)
TINY = IgamtSettings(width=8, latent=3, batch=8, epochs=1.0, heads=2, generated=4, critic_width=4)
FORMS = {
    "joint": TINY,
    "critics": replace(TINY, protect="critics"),
    "paper": replace(TINY, variant="paper", critic_base=2),
}
forms = pytest.mark.parametrize("form", FORMS)


def build(settings: IgamtSettings = TINY, budget: EpsilonDelta | None = BUDGET) -> IGAMT:
    return IGAMT(Task(schema=WARD, records=24, budget=budget, noise_seed=1), settings)


def game_of(settings: IgamtSettings = TINY) -> ImitativeGame:
    """With weights that are not those of the start, so that everything has a say."""
    torch.manual_seed(0)
    game = build(settings).build_game(SHAPE)
    assert isinstance(game, ImitativeGame)
    game.start_from(SCALES)
    with torch.no_grad():
        for weight in game.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    return game


def trainer_of(settings: IgamtSettings) -> tuple[PrivateTrainer, ImitativeGame]:
    trainer, game = build(settings).trainer(PATIENTS, SCALES, randomness=SeededRandomness(0))
    assert isinstance(game, ImitativeGame)
    return trainer, game


def one_step(game: ImitativeGame, rows: Tensor) -> Tensor:
    """Mean, logits and all else of every step given those before it."""
    past = game.past(rows)
    state = torch.linspace(-1, 1, TINY.latent).expand(len(rows), -1)
    return decoded(game.decoder, game.last, rows, state, past)[1]


def test_rows_made_step_by_step_are_those_of_one_pass_over_them() -> None:
    game = game_of()
    states, coins = torch.tanh(torch.randn(6, 3)), torch.randn(6, SHAPE.width)
    made = make_rows(game.decoder, game.last, game.known, states, coins)
    again = draw(decoded(game.decoder, game.last, made, states, game.past(made)), coins, SHAPE)
    torch.testing.assert_close(again, made, atol=1e-4, rtol=1e-4)
    assert float(made.std()) > 0.1


def test_a_step_is_predicted_from_earlier_steps_alone() -> None:
    game, place = game_of(), 4
    changed = ROWS.clone()
    SHAPE.parts(changed)[1][:, place] += 1.0  # a view of the rows
    before, after = one_step(game, ROWS), one_step(game, changed)
    assert torch.equal(before[:, : place + 1], after[:, : place + 1])
    assert not torch.allclose(before[:, place + 1], after[:, place + 1])


def test_histories_are_the_same_at_once_and_step_by_step() -> None:
    game = game_of()
    steps = SHAPE.parts(ROWS)[1]
    before, elapsed = history(steps, game.known)
    running = RunningHistory(game.known, len(ROWS), like=ROWS)
    for place in range(SHAPE.steps):
        torch.testing.assert_close(running.before(), before[:, place])
        torch.testing.assert_close(running.elapsed, elapsed[:, place])
        running.after(steps[:, place])
    # times in a row are scores, and come back as the share of the horizon that had passed
    real = PATIENTS.real_steps
    true = PATIENTS.increments.cumsum(1)
    assert float((elapsed[:, 1:] - true)[real].abs().median()) < 0.02


def test_the_encoder_sees_no_outcome_and_no_padding() -> None:
    game, changed = game_of(), ROWS.clone()
    head, steps = SHAPE.parts(changed)
    assert SHAPE.outcome is not None
    head[:, SHAPE.outcome.start : SHAPE.outcome.stop] += 1.0
    padding = steps[..., -1] < 0.5
    assert bool(padding.any())
    steps[..., :-1][padding] += 3.0
    torch.testing.assert_close(game.state_of(changed)[0], game.state_of(ROWS)[0])
    steps[:, 0, 0] += 1.0
    assert not torch.allclose(game.state_of(changed)[0], game.state_of(ROWS)[0])


def test_gradients_flow_through_made_rows_into_both_decoders() -> None:
    game = game_of()
    for network in (game.decoder, game.imitator):
        assert network is not None
        network.requires_grad_(True)
        _, states = game.states_from(game.generator, game.made_seeds)
        outputs = decoded(network, game.last, game.made_rows, states, game.past(game.made_rows))
        score = game.praise(game.drawn(outputs, game.made_coins))
        gradients = torch.autograd.grad(score, list(network.parameters()), allow_unused=True)
        moved = [each is not None and bool(each.abs().max() > 0) for each in gradients]
        assert sum(moved) >= 0.9 * len(moved)


def test_a_frozen_last_layer_answers_alike_and_is_not_trained() -> None:
    game = game_of()
    states, past = torch.zeros(4, 3), game.past(ROWS[:4])
    free = decoded(game.decoder, game.last, ROWS[:4], states, past)
    frozen = decoded(game.decoder, game.last, ROWS[:4], states, past, frozen=True)
    for one, other in zip(free, frozen, strict=True):
        torch.testing.assert_close(one, other)
    found = torch.autograd.grad(frozen[1].sum(), list(game.last.parameters()), allow_unused=True)
    assert all(each is None for each in found)


@forms
def test_the_fast_path_gives_the_general_paths_clipped_sum(form: str) -> None:
    game, places = game_of(FORMS[form]), torch.arange(4)
    views = NoiseBesideRows(game.noise_width)(ROWS[:4], records=places, step=3, key=KEY)
    sums = [
        ClippedGradients(game, game_loss, clipping=FlatClip(0.05), path=path)
        .clipped_sum(views, torch.zeros(4, dtype=torch.int64))
        .gradients
        for path in ("fast", "general")
    ]
    for name, expected in sums[1].items():
        torch.testing.assert_close(sums[0][name], expected, rtol=1e-3, atol=1e-6)


def test_what_records_touch() -> None:
    names = {form: {name.split(".")[0] for name in trainable(game_of(FORMS[form]))} for form in FORMS}
    critics = {"critic", "mask_critic", "outcome_head"}
    assert names["critics"] == critics
    assert names["joint"] == critics | {"encoder", "decoder", "last", "latent_critic"}
    assert names["paper"] == names["joint"] | {"generator", "imitator"}


@pytest.mark.parametrize("form", ["joint", "critics"])
def test_all_else_is_a_function_of_released_weights(form: str) -> None:
    """What happens after a step reaches no record: the same state gives the same state."""
    trainer, game = trainer_of(FORMS[form])
    trainer.advance()
    state = {name: value.clone() for name, value in game.state_dict().items()}
    game.after_step(step=3, steps=9, key=KEY)
    once = {name: value.clone() for name, value in game.state_dict().items()}
    twin = game_of(FORMS[form])
    twin.load_state_dict(state)
    twin.after_step(step=3, steps=9, key=KEY)
    for name, value in twin.state_dict().items():
        assert torch.equal(value, once[name]), name
    touched = set(trainable(game))
    moved = {
        name.split(".")[0]
        for name in state
        if name not in touched and not torch.equal(state[name], once[name])
    }
    learned = {"generator", "imitator", "made_rows"}
    assert moved >= (
        learned if form == "joint" else learned | {"encoder", "decoder", "last", "latent_critic"}
    )


def test_the_imitator_comes_nearer_to_the_decoder() -> None:
    game = game_of(replace(TINY, critic_weight=0.0, generator_lr=0.02, generated=16))
    game._make(KEY, step=0)
    with torch.no_grad():
        first = float(game.imitation(game.states_from(game.generator, game.made_seeds)[1]))
    for _ in range(30):
        game._teach(rate=0.02)
    with torch.no_grad():
        assert float(game.imitation(game.states_from(game.generator, game.made_seeds)[1])) < 0.5 * first


def test_critics_rest_between_hits() -> None:
    trainer, game = trainer_of(replace(TINY, critic_base=3, critic_hit=1))
    moved = []
    for _ in range(3):
        before = [weight.clone() for critic in game.critics for weight in critic.parameters()]
        trainer.advance()
        after = [weight for critic in game.critics for weight in critic.parameters()]
        moved.append(any(not torch.equal(*pair) for pair in zip(before, after, strict=True)))
    assert moved == [True, False, False]


@pytest.mark.parametrize("name", ABLATIONS)
def test_ablations_leave_out_what_the_thesis_leaves_out(name: str) -> None:
    settings = find_synthesizer("igamt").settings("tiny", private=True, ablation=name)
    game = build(settings).build_game(SHAPE)
    assert isinstance(game, ImitativeGame)
    found = (
        game.decoder.embedding.time is not None,
        game.encoder.embedding.static is not None,
        game.mask_critic is not None,
        game.imitator is not None,
    )
    assert (
        found
        == {
            "none": (True, True, True, True),
            "w/o_emb": (False, False, False, False),
            "only_t_emb": (True, False, False, False),
            "w/o_imi": (True, True, False, False),
            "w/o_imi_var": (True, True, True, False),
        }[name]
    )
    game.start_from(SCALES)
    assert game.generate(torch.randn(3, game.latent), torch.randn(3, SHAPE.width)).shape == (3, SHAPE.width)


@pytest.fixture(scope="module")
def published() -> tuple[ImitativeGame, ClippedGradients]:
    game = game_of(FORMS["paper"])
    return game, ClippedGradients(game, game_loss, clipping=FlatClip(1e30))


def published_step(
    published: tuple[ImitativeGame, ClippedGradients], rows: Tensor, *, sigma: float
) -> tuple[PublishedNoise, dict[str, Tensor]]:
    """One release of Algorithm 1 for a batch of ``rows``, by the same weights and noise each time."""
    game, gradients = published
    settings = replace(FORMS["paper"], published_clip=1e-3)
    views = NoiseBesideRows(game.noise_width)(rows, records=torch.arange(len(rows)), step=0, key=KEY)
    batch = gradients.clipped_sum(views, torch.zeros(len(rows), dtype=torch.int64))
    noise = PublishedNoise(build(settings).plan, settings, sigma=sigma, randomness=SeededRandomness(0))
    released = noise.release(batch, 0).gradients
    return noise, {name: each / 8 for name, each in released.items()}


def test_algorithm_1_clips_means_and_adds_noise_whatever_the_clip(
    published: tuple[ImitativeGame, ClippedGradients],
) -> None:
    _, quiet = published_step(published, ROWS[:8], sigma=0.0)
    of_critic = torch.cat([each.flatten() for name, each in quiet.items() if name.startswith("critic.")])
    assert float(of_critic.norm()) == pytest.approx(1e-3, rel=1e-4)
    _, noisy = published_step(published, ROWS[:8], sigma=2.0)
    noise = torch.cat(
        [(noisy[name] - quiet[name]).flatten() for name in quiet if name.startswith(("critic.", "last."))]
    )
    assert float(noise.std()) == pytest.approx(
        2.0, rel=0.1
    )  # two thousand times the clip: sigma is no multiplier


def test_the_published_imitator_learns_from_each_patient_without_noise(
    published: tuple[ImitativeGame, ClippedGradients],
) -> None:
    noise, _ = published_step(published, ROWS[:8], sigma=5.0)
    assert {name.split(".")[0] for name in noise.unprotected} == {
        "encoder",
        "decoder",
        "generator",
        "imitator",
    }
    another = ROWS[:8].clone()
    another[7] = ROWS[20]
    other, _ = published_step(published, another, sigma=5.0)
    again, _ = published_step(published, ROWS[:8], sigma=9.0)
    for name in noise.unprotected:
        if name.startswith("imitator."):
            assert torch.equal(noise.unprotected[name], again.unprotected[name])  # no noise at all
    moved = [
        float((noise.unprotected[name] - other.unprotected[name]).abs().max())
        for name in noise.unprotected
        if name.startswith("imitator.")
    ]
    assert max(moved) > 0


def test_imitation_is_zero_for_rows_that_agree() -> None:
    assert float(imitation_loss(ROWS, ROWS, (ROWS, ROWS)).abs().max()) == 0
    apart = imitation_loss(ROWS + 1, ROWS, (ROWS, ROWS))
    torch.testing.assert_close(apart, torch.full((len(ROWS),), 3.0))


def test_the_card_of_the_published_form_claims_and_proves_nothing() -> None:
    model = IGAMT(Task(schema=WARD, records=24, budget=BUDGET), FORMS["paper"]).fit(PATIENTS)
    card = model.card()
    assert card.variant == "paper"
    assert card.privacy.claimed is not None
    assert card.privacy.claimed.epsilon == pytest.approx(3.0, rel=0.01)
    assert card.privacy.proven is None
    assert "without noise" in str(card.privacy.reason)
    assert len(model.sample(4, seed=0)) == 4


class _Killed(Exception):
    pass


@pytest.mark.slow
@pytest.mark.parametrize("form", ["critics", "paper"])
def test_other_forms_go_on_exactly_too(form: str, tmp_path: Path) -> None:
    def kill(stage: str, done: int, total: int) -> None:
        if (stage, done) == ("training", 2):
            raise _Killed

    whole = build(FORMS[form]).fit(PATIENTS)
    folder = RunFolder(tmp_path / "broken")
    broken = build(FORMS[form])
    broken.begin(folder)
    with pytest.raises(_Killed):
        broken.fit(PATIENTS, folder=folder, progress=kill)
    broken = build(FORMS[form]).fit(PATIENTS, folder=RunFolder(tmp_path / "broken"), resume=True)
    for name, expected in whole.trained.tensors.items():
        assert torch.equal(broken.trained.tensors[name], expected), name


def test_wrong_requests_are_one_sentence(refusal: Callable[[Callable[[], object]], str]) -> None:
    assert "variant" in refusal(lambda: IgamtSettings(variant="proved"))
    assert "protect" in refusal(lambda: IgamtSettings(protect="nobody"))
    assert "divide" in refusal(lambda: IgamtSettings(width=10, heads=4))
    assert "critic_base" in refusal(lambda: IgamtSettings(critic_hit=2, critic_base=1))
    assert "epsilon to claim" in refusal(lambda: build(FORMS["paper"], budget=None))
    row = SYNTHESIZERS["vae"]
    assert "published form" in refusal(lambda: row.settings("full", private=True, variant="paper"))
    assert "vae has no protect" in refusal(lambda: row.settings("full", private=True, protect="joint"))
    igamt = SYNTHESIZERS["igamt"]
    assert "w/o_emb" in refusal(lambda: igamt.settings("full", private=True, ablation="everything"))


def test_choices_reach_the_settings() -> None:
    row = SYNTHESIZERS["igamt"]
    assert row.settings("full", private=True, protect="critics").protect == "critics"
    assert row.settings("tiny", private=True, variant="paper").published
    assert row.settings("quick", private=False).epochs < row.settings("full", private=False).epochs
