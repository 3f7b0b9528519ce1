"""Honest certificates survive the attack, false ones are found out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from hauberk.attacks import NoisyPGD, attack_inside_radius
from hauberk.certify import ABSTAINED, Certificates, Smoothed

SIGMA = 0.25
DIRECTION = torch.linspace(-1, 1.5, 16) / torch.linspace(-1, 1.5, 16).norm()
SHAPES = [(16,), (1, 4, 4)]
tables_and_images = pytest.mark.parametrize("shape", SHAPES, ids=["table", "image"])


def half_space() -> Smoothed:
    """Class 0 where DIRECTION (x - 1/2) > 0, else class 1; class 2 never wins."""
    layer = nn.Linear(16, 3)
    with torch.no_grad():
        layer.weight.copy_(torch.stack([4 * DIRECTION, -4 * DIRECTION, torch.zeros(16)]))
        layer.bias.copy_(torch.stack([-2 * DIRECTION.sum(), 2 * DIRECTION.sum(), torch.tensor(-50.0)]))
    return Smoothed(nn.Sequential(nn.Flatten(), layer), sigma=SIGMA, classes=3)


def inputs(shape: tuple[int, ...], count: int = 40) -> torch.Tensor:
    """On both sides of the plane, some so near that the classifier abstains."""
    distances = torch.linspace(-0.3, 0.3, count)
    return (0.5 + distances[:, None] * DIRECTION).view(-1, *shape)


@tables_and_images
def test_an_honest_certificate_survives(shape: tuple[int, ...]) -> None:
    target, x = half_space(), inputs(shape)
    certificates = target.certify(x, samples=1000, alpha=0.001, seed=3)
    outcome = attack_inside_radius(target, x, certificates, limit=1000, seed=3)
    certified = np.flatnonzero(~certificates.abstained)
    assert 0 < len(certified) < len(x)
    assert outcome.rows.tolist() == certified.tolist()
    assert not outcome.broken.any()
    # so near to the plane a count of votes may go the other way, unconfirmed
    assert (outcome.answers == certificates.labels[certified]).mean() > 0.8
    assert (outcome.sizes <= 0.99 * certificates.radii[certified]).all()
    assert (outcome.sizes > 0.5 * certificates.radii[certified]).all()  # it went to the edge
    found = (outcome.attempts - x[torch.from_numpy(certified)]).flatten(1).norm(dim=1)
    assert found.numpy() == pytest.approx(outcome.sizes, abs=1e-6)
    assert (outcome.fraction, outcome.attack, outcome.norm) == (0.99, NoisyPGD().name, "l2")


@pytest.mark.parametrize(("norm", "dual"), [("linf", 1.0), ("l1", torch.inf)])
def test_radii_of_other_norms_are_attacked_in_their_norm(norm: str, dual: float) -> None:
    """The distance to the plane in the norm is known: nothing breaks within it, everything beyond it."""
    target, x = half_space(), inputs((16,), 12)
    distances = ((x - 0.5) @ DIRECTION).abs() / float(DIRECTION.norm(dual))
    labels = ((x - 0.5) @ DIRECTION < 0).long().tolist()
    for factor, broken in ((0.9, False), (1.6, True)):
        radii = (factor * distances).tolist()
        outcome = attack_inside_radius(
            target,
            x,
            made_up(radii, labels),
            limit=12,
            attack=NoisyPGD(norm=norm),
            fraction=1.0,
            samples=2000,
        )
        assert outcome.norm == norm
        assert (outcome.sizes <= radii).all()
        far = (distances > distances.median()).numpy()  # clear of the noise of the count
        assert (outcome.broken[far] == broken).all()


@tables_and_images
def test_a_false_certificate_is_found_out(shape: tuple[int, ...]) -> None:
    target, x = half_space(), inputs(shape)
    honest = target.certify(x, samples=1000, alpha=0.001, seed=3)
    false = replace(honest, radii=3 * honest.radii)
    outcome = attack_inside_radius(target, x, false, limit=1000, seed=3)
    distances = (x[torch.from_numpy(outcome.rows)].flatten(1) - 0.5) @ DIRECTION
    beyond = 0.99 * false.radii[outcome.rows] > distances.abs().numpy() + 0.05  # clearly across the plane
    assert beyond.sum() > 10
    assert outcome.broken[beyond].all()
    assert (outcome.answers[beyond] == 1 - honest.labels[outcome.rows][beyond]).all()


def made_up(radii: list[float], labels: list[int] | None = None) -> Certificates:
    return Certificates(
        labels=np.array(labels or [0 if radius > 0 else ABSTAINED for radius in radii], dtype=np.int64),
        radii=np.array(radii),
        votes=np.zeros(len(radii), dtype=np.int64),
        samples=100,
        alpha=0.001,
    )


def test_a_wrong_label_breaks_by_itself() -> None:
    """The certified class is not on top even at the input: the smallest radius is broken."""
    x = inputs((16,), 2)  # classes 1 and 0
    outcome = attack_inside_radius(half_space(), x, made_up([1e-3, 1e-3], [0, 0]), limit=2)
    assert outcome.broken.tolist() == [True, False]
    assert outcome.answers.tolist() == [1, 0]


def test_a_tie_is_no_break() -> None:
    x = torch.full((30, 16), 0.5)  # on the plane: another class is ahead in half of all counts
    outcome = attack_inside_radius(half_space(), x, made_up([1e-6] * 30), limit=30, samples=200)
    assert outcome.broken.sum() <= 1  # each at level 0.001


def test_attacked_inputs_are_spread_over_the_certified_ones() -> None:
    radii = [0.0 if row % 3 == 0 else 1e-3 for row in range(60)]
    told: list[int] = []
    outcome = attack_inside_radius(
        half_space(),
        inputs((16,), 60),
        made_up(radii),
        limit=5,
        attack=NoisyPGD(steps=1, draws=1),
        samples=100,
        progress=told.append,
    )
    assert len(set(outcome.rows.tolist())) == 5
    assert all(radii[row] > 0 for row in outcome.rows)
    assert outcome.rows[0] == 1
    assert outcome.rows[-1] == 59
    assert sum(told) == 5
    assert outcome.attempts.shape == (5, 16)


@pytest.mark.parametrize(("radii", "limit"), [([0.0] * 4, 10), ([0.1] * 4, 0), ([], 10)])
def test_nothing_to_attack(radii: list[float], limit: int) -> None:
    x = inputs((1, 4, 4), len(radii)) if radii else torch.empty(0, 1, 4, 4)
    outcome = attack_inside_radius(half_space(), x, made_up(radii), limit=limit)
    assert len(outcome.rows) == len(outcome.broken) == len(outcome.answers) == len(outcome.sizes) == 0
    assert outcome.attempts.shape == (0, 1, 4, 4)


def test_a_seed_repeats() -> None:
    target, x = half_space(), inputs((16,), 6)
    attack = NoisyPGD(steps=2, draws=2)
    one, same, other = (
        attack_inside_radius(target, x, made_up([0.1] * 6), limit=6, attack=attack, samples=100, seed=seed)
        for seed in (1, 1, 2)
    )
    assert torch.equal(one.attempts, same.attempts)
    assert not torch.equal(one.attempts, other.attempts)
