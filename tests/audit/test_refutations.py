"""Each refutation fires on the published variant, and the same game finds nothing against the sound one."""

import math

import pytest
import torch
from torch import nn

from hauberk.audit.bounds import many_run_epsilon
from hauberk.audit.refutations import REFUTATIONS, Refutation, Stakes, refutations_of
from hauberk.audit.refutations.base import observed_epsilon
from hauberk.audit.refutations.directional_noise import RecordedNoise
from hauberk.audit.refutations.shared_noise import differ_by
from hauberk.audit.refutations.single_feature_map import MAPS, SIDE, HalfSpace
from hauberk.audit.refutations.small_worlds import fresh_randomness, method_of, pictures
from hauberk.audit.refutations.unprotected_update import refute_update, updates_of
from hauberk.certify import NoiseLayers, Smoothed
from hauberk.certify.first_map import find_first_map
from hauberk.certify.published_gains import published_gain
from hauberk.errors import RequestError
from hauberk.methods import METHODS
from hauberk.synthesis.catalogue import SYNTHESIZERS

STAKES = Stakes(epsilon=1.0, delta=1e-7, alpha=0.01, seed=0)
GAMES = [
    ("directional-noise", "directional", 1000),
    ("shared-noise", "stobatch", 25),
    ("shared-noise", "adlm", 50),
    ("credited-noise", "transdenoiser", 30),
    pytest.param("unprotected-update", "igamt", 25, marks=pytest.mark.slow),
    ("r-from-records", "secure-sgd", 25),
    ("one-feature-map", "hgm-pixeldp", 40),
    ("one-feature-map", "secure-sgd-agm", 25),
]


@pytest.mark.parametrize(("name", "method", "games"), GAMES)
def test_the_published_claim_is_refuted_and_the_sound_one_is_not(name: str, method: str, games: int) -> None:
    row = REFUTATIONS[name]
    published = row.play(method, "paper", STAKES, games=games)
    assert published.refuted
    assert published.confidence == 1 - STAKES.alpha
    assert published.reason
    if row.about == "privacy":
        assert published.observed_epsilon is not None
        assert STAKES.epsilon == published.claimed_epsilon < published.observed_epsilon < math.inf
    else:
        assert published.claimed_radius is not None
        assert published.proven_radius is not None
        assert published.claimed_radius > published.proven_radius
    if method == "adlm":
        return  # there is no sound one
    sound = row.play(method, "sound", STAKES, games=games)
    assert not sound.refuted
    assert (sound.games, sound.tested) == (published.games, published.tested)


def test_the_weakest_coordinate_at_claimed_epsilon_one_shows_more_than_five() -> None:
    """At the level of a row of the truth table, and with more than the 600 runs that an audit needs."""
    stakes = Stakes(epsilon=1.0, delta=1e-7, alpha=1e-5)
    found = REFUTATIONS["directional-noise"].play("directional", "paper", stakes, games=3000)
    assert found.observed_epsilon is not None
    assert found.observed_epsilon > 5


def test_every_published_claim_of_the_list_has_a_refutation() -> None:
    about_privacy = {
        method for method in (*METHODS, *SYNTHESIZERS) if refutations_of(method, about="privacy")
    }
    assert about_privacy == {"directional", "stobatch", "adlm", "transdenoiser", "secure-sgd", "igamt"}
    about_radii = {method for method in METHODS if refutations_of(method, about="robustness")}
    assert about_radii == {"hgm-pixeldp", "secure-sgd", "secure-sgd-agm"}
    for row in REFUTATIONS.values():
        for method in row.methods:
            if method in METHODS:
                assert "paper" in METHODS[method].variants


def test_a_game_that_is_always_won_is_worth_its_number_of_games_and_no_more() -> None:
    bounds = [
        observed_epsilon(lambda inside, game: inside, Stakes(games=games, delta=0.0, alpha=0.01))
        for games in (100, 1000)
    ]
    assert bounds[0] == many_run_epsilon(
        true_positives=100, positives=100, false_positives=0, negatives=100, delta=0.0, alpha=0.01
    )
    assert bounds[0] < bounds[1] < math.log(1000)


def test_games_of_the_two_sides_share_no_number() -> None:
    seen: list[int] = []

    def play(inside: bool, game: int) -> bool:
        seen.append(game)
        return inside

    observed_epsilon(play, Stakes(games=40))
    assert sorted(seen) == list(range(80))


def test_guessing_refutes_nothing() -> None:
    assert observed_epsilon(lambda inside, game: game % 3 == 0, Stakes(games=300)) < 0.2


@pytest.mark.parametrize(("broken", "refuted"), [(0, False), (1, False), (3, True)])
def test_breaks_are_compared_with_the_certificates_own_error(broken: int, refuted: bool) -> None:
    found = Refutation(
        name="made up",
        method="any",
        variant="paper",
        attack="any",
        reason="any",
        confidence=0.999,
        tested=50,
        broken=broken,
        certificate_alpha=1e-3,
    )
    assert found.refuted is refuted
    assert found.to_json()["refuted"] is refuted


@pytest.mark.parametrize(
    ("wrong", "said"), [({"games": 10}, "at least 25 games"), ({"epsilon": 0.0}, "must be positive")]
)
def test_stakes_that_say_nothing_are_refused(wrong: dict[str, float], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        Stakes(**wrong)  # type: ignore[arg-type]


def test_the_difference_of_two_rows_is_found_under_any_common_noise_and_no_other() -> None:
    world = pictures(5, side=8, seed=1).x
    noise = 100 * torch.randn(1, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    wanted = world[4] - world[0]
    assert differ_by(world + noise, wanted)
    assert not differ_by(world[:4] + noise, wanted)
    own = 0.1 * torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    assert not differ_by(world + noise + own, wanted)
    assert differ_by((world + 0.1 * noise).clamp(-10, 10), wanted)  # enough pixels are whole


def test_the_recorded_noise_of_the_weakest_coordinate_is_less_than_the_plans() -> None:
    world = pictures(8, side=14, seed=0)
    recorded = {}
    for variant in ("paper", "sound"):
        method = method_of(
            "directional", variant, STAKES, shape=world.shape, records=1024, batch=128, epochs=1.0
        )
        trainer = method.trainer(world, randomness=fresh_randomness(STAKES, 0))
        trainer.noise = recorder = RecordedNoise(trainer.noise)
        trainer.run(lambda done: None)
        assert len(recorder.least) == method.plan.steps
        recorded[variant] = max(recorder.least) / method.plan.noise_multiplier
    assert recorded["sound"] == pytest.approx(1.0)
    assert recorded["paper"] < 0.2


def test_the_half_space_has_the_gain_that_the_formula_misses() -> None:
    network, noise = HalfSpace(), NoiseLayers(after_first_map=1.0)
    shape = (1, SIDE, SIDE)
    sound = Smoothed(network, noise=noise, classes=2).gain_of("l2", shape).value
    published = published_gain(noise, "l2", shape=shape, first_map=find_first_map(network, shape)).value
    assert sound / published == pytest.approx(math.sqrt(MAPS), rel=1e-6)


def test_any_update_can_be_attacked() -> None:
    """The interface: a step that shows the record, and one that always moves."""

    def bare(inside: bool, game: int) -> torch.Tensor:
        return torch.full((3,), float(inside))

    def noisy(inside: bool, game: int) -> torch.Tensor:
        return bare(inside, game) + nn.functional.one_hot(torch.tensor(game % 3), 3)

    stakes = Stakes(games=60)
    assert refute_update(bare, method="any", variant="paper", stakes=stakes).refuted
    assert not refute_update(noisy, method="any", variant="sound", stakes=stakes).refuted


def test_a_step_of_igamt_moves_the_imitator_by_records_as_published_and_by_noise_when_sound() -> None:
    """The rule of the game on two steps a side; the game itself is among the slow tests."""
    published, sound = (updates_of("igamt", variant, STAKES) for variant in ("paper", "sound"))
    assert [bool(published(inside, game).any()) for inside in (True, False) for game in (3, 4)] == [
        True,
        True,
        False,
        False,
    ]
    assert all(bool(sound(inside, 5).any()) for inside in (True, False))


def test_only_trained_synthesizers_have_steps_to_attack() -> None:
    with pytest.raises(RequestError, match="does not train by steps"):
        REFUTATIONS["unprotected-update"].play("marginals", "sound", STAKES, games=25)
