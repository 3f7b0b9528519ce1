"""Every certificate, attacked: 200 certified inputs each, just inside their radius, averaging over the noise.

A break is a rival class that wins by an exact test at level 0.001 on fresh draws. Certificates may be wrong
with probability alpha each, the test with 0.001: more breaks than that would mean a false certificate.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch
from scipy.stats import binom
from torch import Tensor, nn

from hauberk.attacks import NoisyPGD, attack_inside_radius
from hauberk.certify import NoiseLayers, Norm, Smoothed
from hauberk.data import load

ALPHA, ATTACKED = 0.01, 200


def scales() -> Tensor:
    return 0.5 + torch.rand(24, generator=torch.Generator().manual_seed(1))


NOISES = {
    "input": NoiseLayers(at_input=0.2),
    "layer": NoiseLayers(after_first_map=scales()),
    "both": NoiseLayers(at_input=0.15, after_first_map=0.5),
    "laplace input": NoiseLayers(kind="laplace", at_input=0.12),
    "laplace layer": NoiseLayers(kind="laplace", after_first_map=0.5),
}
CASES: list[tuple[str, Norm, str]] = [
    ("tight", "l2", "input"),
    ("tight", "l2", "layer"),
    ("tight", "l1", "layer"),
    ("tight", "linf", "both"),
    ("hgm", "l2", "layer"),
    ("hgm-analytic", "l2", "both"),
    ("pixeldp", "l2", "layer"),
    ("laplace", "linf", "laplace layer"),
    ("laplace", "l2", "laplace input"),
    ("laplace-l1", "l1", "laplace input"),
]


def small(x: Tensor) -> Tensor:
    """Digits of 7 x 7 pixels: most of the time here goes into drawing noise."""
    return nn.functional.avg_pool2d(x, 4)


@cache
def inputs() -> Tensor:
    return small(load("digits").test.x[:500])


@cache
def smoothed(noise: str) -> Smoothed:
    """Trained for a few seconds under its own noise."""
    split = load("digits")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(49, 24), nn.Tanh(), nn.Linear(24, 10))
    target = Smoothed(model, noise=NOISES[noise], classes=10)
    optimizer, generator = torch.optim.Adam(model.parameters(), lr=0.01), torch.Generator().manual_seed(0)
    for _ in range(400):
        rows = torch.randint(len(split.train.x), (128,), generator=generator)
        optimizer.zero_grad()
        scores = target.logits(small(split.train.x[rows]), 1, generator)
        nn.functional.cross_entropy(scores, split.train.y[rows]).backward()
        optimizer.step()
    return target


@pytest.mark.parametrize(("certificate", "norm", "noise"), CASES)
def test_no_certificate_is_broken_beyond_alpha(certificate: str, norm: Norm, noise: str) -> None:
    target, x = smoothed(noise), inputs()
    found = target.certify(x, samples=1000, alpha=ALPHA, certificate=certificate, norm=norm)
    assert (found.radii > 0).sum() >= ATTACKED
    attacked = attack_inside_radius(
        target,
        x,
        found,
        limit=ATTACKED,
        attack=NoisyPGD(steps=10, draws=16, norm=norm),
        fraction=0.999,
        samples=500,
    )
    assert len(attacked.rows) == ATTACKED
    assert (attacked.sizes <= found.radii[attacked.rows]).all()
    assert attacked.broken.sum() <= binom.isf(1e-4, ATTACKED, ALPHA + 0.001)


@pytest.mark.parametrize(("certificate", "norm", "noise"), [CASES[0], CASES[3], CASES[9]])
def test_the_audit_sees_a_radius_that_is_too_large(certificate: str, norm: Norm, noise: str) -> None:
    target, x = smoothed(noise), inputs()
    found = target.certify(x, samples=1000, alpha=ALPHA, certificate=certificate, norm=norm)
    attack = NoisyPGD(steps=10, draws=16, norm=norm)
    boast = replace(found, radii=8 * found.radii)
    attacked = attack_inside_radius(target, x, boast, limit=100, attack=attack, samples=500)
    assert attacked.broken.sum() > binom.isf(1e-4, 100, ALPHA + 0.001)
