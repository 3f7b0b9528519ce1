"""The exact profile against draws of the very noise: hockey-stick divergences by simulation."""

import math

import numpy as np
import pytest
import torch

from hauberk.mechanisms import (
    EpsilonDelta,
    HeterogeneousGaussian,
    Laplace,
    MixedGaussian,
    MultivariateGaussian,
)
from hauberk.mechanisms.checks import Vector

DRAWS = 200_000
CLAIM = EpsilonDelta(epsilon=1.0, delta=1e-5)


def random_covariance(seed: int, size: int = 4) -> Vector:
    factor = np.random.default_rng(seed).normal(size=(size, size))
    return factor @ factor.T + 0.05 * np.eye(size)


def simulated_delta(noise: Vector, precision: Vector, shift: Vector, epsilon: float) -> tuple[float, float]:
    """Mean and standard error of ``(1 - e^(epsilon - loss))_+`` for a neighbour at distance ``shift``."""
    loss = noise @ precision @ shift + shift @ precision @ shift / 2
    gain = np.maximum(0.0, -np.expm1(epsilon - loss))
    return float(gain.mean()), float(gain.std() / math.sqrt(len(gain)))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("epsilon", [0.0, 0.7, 2.0])
def test_a_random_covariance_is_as_private_as_its_weakest_direction(seed: int, epsilon: float) -> None:
    covariance = random_covariance(seed)
    values, directions = np.linalg.eigh(covariance)
    sensitivity = 1.3 * math.sqrt(values[0])
    mechanism = MultivariateGaussian(sensitivity=sensitivity, covariance=covariance, claimed=CLAIM)
    noise = mechanism.sample((DRAWS, 4), torch.Generator().manual_seed(seed)).double().numpy()
    precision = np.linalg.inv(covariance)
    worst, error = simulated_delta(noise, precision, sensitivity * directions[:, 0], epsilon)
    assert worst == pytest.approx(mechanism.delta(epsilon), abs=5 * error)
    for direction in np.random.default_rng(seed).normal(size=(5, 4)):
        shift = sensitivity * direction / np.linalg.norm(direction)
        other, error = simulated_delta(noise, precision, shift, epsilon)
        assert other <= mechanism.delta(epsilon) + 5 * error


def test_the_mixed_noise_is_the_sum_of_both() -> None:
    mechanism = MixedGaussian(
        sensitivity=2.0, transformed=random_covariance(9), isotropic=0.8, steps=100, claimed=CLAIM
    )
    weakest = np.linalg.eigh(mechanism.covariance)[1][:, 0]
    noise = mechanism.sample((DRAWS, 4), torch.Generator().manual_seed(5)).double().numpy()
    delta, error = simulated_delta(noise, np.linalg.inv(mechanism.covariance), 2.0 * weakest, 1.0)
    assert delta == pytest.approx(mechanism.delta(1.0), abs=5 * error)


def test_the_heterogeneous_noise_is_measured_in_its_own_units() -> None:
    r = np.array([0.05, 0.15, 0.8])
    mechanism = HeterogeneousGaussian(sensitivity=1.0, sigma=0.8, redistribution=r, claimed=CLAIM)
    noise = mechanism.sample((DRAWS, 3), torch.Generator().manual_seed(6)).double().numpy()
    for direction in np.random.default_rng(1).normal(size=(4, 3)):
        shift = np.sqrt(3 * r) * direction / np.linalg.norm(direction)  # weighted length 1
        delta, error = simulated_delta(noise, np.diag(mechanism.scale**-2), shift, 1.0)
        assert delta == pytest.approx(mechanism.delta(1.0), abs=5 * error)


@pytest.mark.parametrize("shift", [(2.0, 0.0, 0.0), (1.0, 1.0, 0.0), (0.5, 0.7, 0.8)])
def test_laplace_noise_is_weakest_against_one_coordinate(shift: tuple[float, ...]) -> None:
    mechanism = Laplace(sensitivity=2.0, diversity=1.0, claimed=CLAIM)
    noise = mechanism.sample((DRAWS, 3), torch.Generator().manual_seed(8)).double().numpy()
    loss = (np.abs(noise + np.array(shift)) - np.abs(noise)).sum(axis=1)
    for epsilon in (0.0, 0.5, 1.5):
        gain = np.maximum(0.0, -np.expm1(epsilon - loss))
        error = 5 * gain.std() / math.sqrt(DRAWS)
        if np.count_nonzero(shift) == 1:
            assert gain.mean() == pytest.approx(mechanism.delta(epsilon), abs=error)
        else:
            assert gain.mean() < mechanism.delta(epsilon) - error
