"""The experiments with imitation networks: their pieces, their variants, and what the full size promises."""

from dataclasses import asdict, replace
from types import ModuleType

import pytest

from hauberk.attacks.imitation import BoundWalk
from hauberk.errors import RequestError
from hauberk.experiments import ain_ablation, ain_decay, ain_mnist, ain_targets, ain_tiny, ain_training
from hauberk.experiments.ain_measures import SETTINGS, SHORTER
from hauberk.experiments.ain_tiny import SIZES
from hauberk.progress import silent


@pytest.mark.parametrize("module", [ain_ablation, ain_decay, ain_mnist, ain_targets, ain_tiny, ain_training])
def test_an_unknown_piece_is_refused(module: ModuleType) -> None:
    with pytest.raises(RequestError, match="'nothing'"):
        module.run_for("nothing", "tiny", 0, silent)


def test_pieces_together_are_the_whole() -> None:
    whole = ain_targets.run("tiny", 0, silent)
    piece = ain_targets.run_for("1", "tiny", 0, silent)
    measured = whole.columns.index("milliseconds")
    for one, other in zip(whole.rows, piece.rows, strict=True):
        assert one[:measured] == other[:measured]


def test_every_variant_leaves_out_what_it_says_and_nothing_else() -> None:
    usual = SETTINGS["full"].ain
    for variant in (*ain_ablation.LOSSES, *ain_ablation.NETWORKS):
        changed = ain_ablation.changed(usual, variant)
        weights = {
            name for name, value in asdict(changed.weights).items() if value != asdict(usual.weights)[name]
        }
        parts = {
            name
            for name, value in asdict(changed.architecture).items()
            if value != asdict(usual.architecture)[name]
        }
        assert weights == set(ain_ablation.LOSSES.get(variant, {}))
        assert parts == set(ain_ablation.NETWORKS.get(variant, {}))
        assert (changed.schedule, changed.recipe, changed.epochs) == (
            usual.schedule, usual.recipe, usual.epochs,
        )  # fmt: skip


def test_full_and_quick_networks_always_reach_the_smallest_radius() -> None:
    """Even where every epoch that may be rolled back is."""
    for setting in (SETTINGS["quick"], SETTINGS["full"], SHORTER["full"], SIZES["full"]):
        walk = BoundWalk(setting.ain.schedule)
        for epoch in range(setting.ain.epochs):
            walk.advance(0.97**epoch)
        assert walk.finished
        assert min(setting.radii) == setting.ain.schedule.final == setting.ain.recipe.radius


def test_decays_without_adaptation_arrive_in_time() -> None:
    for size in ("quick", "full"):
        epochs = SHORTER[size].ain.epochs
        for way, _, schedule in ain_decay._cases(ain_decay.FRAMEWORKS, size):
            if not schedule.adaptive:
                assert schedule.at(epochs - 1) == ain_decay.FINAL, way
                assert schedule.at(epochs // 5) > ain_decay.FINAL, way


def test_parts_are_known_by_everything_but_the_number_of_seeds() -> None:
    setting = SETTINGS["tiny"]
    assert setting.about("x", 1) == replace(setting, seeds=9).about("x", 1)
    assert setting.about("x", 1) != replace(setting, steps=9).about("x", 1)
    assert setting.about("x", 1) != setting.about("x", 2)


def test_the_thesis_stands_beside_our_numbers_at_its_radii() -> None:
    full = SETTINGS["full"]
    for part, attack, radius in ain_mnist.THESIS:
        known = {*full.radii, ain_mnist.ADVGAN_RADIUS, ain_mnist.CW_RADII[part]}
        assert radius in known, (part, attack)
