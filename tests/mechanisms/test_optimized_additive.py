"""Requests to 002's mechanism: the budget split, and what is refused."""

import math
from typing import Any

import numpy as np
import pytest

from hauberk.errors import RequestError
from hauberk.mechanisms import EpsilonDelta, OptimizedAdditive
from hauberk.mechanisms.optimized_additive import squared_loss_budget

REQUEST: dict[str, Any] = {
    "epsilon": 1.0,
    "delta": 1e-5,
    "sensitivity": 2.0,
    "weights": [3.0, -1.0, 0.2],
    "steps": 20,
    "sampling_rate": 0.1,
}


def test_the_noise_follows_the_cube_root_of_the_weights() -> None:
    run = OptimizedAdditive.calibrate(**REQUEST)
    assert run.scale / run.scale[0] == pytest.approx(np.cbrt([1.0, 1 / 3, 0.2 / 3]))
    rescaled = OptimizedAdditive.calibrate(**REQUEST | {"weights": [-3e200, 1e200, 0.2e200]})
    assert rescaled.scale == pytest.approx(run.scale)


def test_equal_weights_get_alpha_over_root_tau() -> None:
    run = OptimizedAdditive.calibrate(**REQUEST | {"weights": np.ones((2, 2))})
    tau = squared_loss_budget(EpsilonDelta(epsilon=1.0, delta=1e-5), steps=20, sampling_rate=0.1)
    assert run.scale == pytest.approx(np.full((2, 2), 2.0 / math.sqrt(tau)))


def test_what_the_weights_spend_the_gradients_lack() -> None:
    """002's example: an eighth of both budgets for the weights."""
    eighth = EpsilonDelta(epsilon=1 / 8, delta=1e-5 / 8)
    run = OptimizedAdditive.calibrate(**REQUEST, weights_budget=eighth)
    assert run.claimed == EpsilonDelta(epsilon=1.0, delta=1e-5)
    rest = OptimizedAdditive.calibrate(**REQUEST | {"epsilon": 7 / 8, "delta": 7e-5 / 8})
    assert run.scale == pytest.approx(rest.scale)
    assert rest.weights_scale is None
    tau = squared_loss_budget(eighth, steps=20)  # the weights read all records, not a sample
    assert run.weights_scale == pytest.approx(2.0 / math.sqrt(tau))
    assert run.epsilon(1e-5) > rest.epsilon(1e-5)


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"weights": [1.0, 0.0]}, "no noise"),
        ({"weights": []}, "non-empty"),
        ({"weights": ["many"]}, "numbers"),
        ({"steps": 0}, "whole number"),
        ({"steps": 1.5}, "whole number"),
        ({"sampling_rate": 0.0}, "above 0"),
        ({"sampling_rate": 1.1}, "not above 1"),
        ({"sampling_rate": 1e-6}, "delta/q"),
        ({"weights_budget": EpsilonDelta(epsilon=1.0, delta=1e-6)}, "smaller than the total"),
        ({"weights_budget": EpsilonDelta(epsilon=0.1, delta=1e-5)}, "smaller than the total"),
        ({"weights_budget": EpsilonDelta(epsilon=0.1, delta=0.0)}, "delta/q"),
    ],
    ids=str,
)
def test_a_wrong_request_is_refused(wrong: dict[str, Any], word: str) -> None:
    with pytest.raises(RequestError, match=word):
        OptimizedAdditive.calibrate(**REQUEST | wrong)


@pytest.mark.parametrize(("epsilon", "delta"), [(-1.0, 0.1), (math.inf, 0.1), (1.0, 1.0), (1.0, -0.1)])
def test_what_is_no_privacy_pair_is_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(RequestError):
        EpsilonDelta(epsilon=epsilon, delta=delta)
