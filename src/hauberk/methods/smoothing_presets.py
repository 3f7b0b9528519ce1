"""Settings of private smoothing by data set, noise and epsilon.

Not tuned yet: one setting from a first sketch (MNIST, sigma 0.25 to 1) for all of them. Whoever changes a row
chooses it on held-out training records (`hauberk reproduce flagship-ablation`) or on other data, never on
test records, and writes down what was compared.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

Key = tuple[float, float]
"""Noise, epsilon."""

_SKETCH: dict[str, Any] = {
    "batch": 2048,
    "epochs": 40.0,
    "views": 8,
    "clip": 0.1,
    "lr": 2.0,
    "averaging": 0.99,
}
SIGMAS = (0.25, 0.5, 1.0)
EPSILONS = {"mnist": (1.0, 2.68, 8.0), "fashion_mnist": (1.0, 2.70, 8.0), "cifar10": (1.0, 2.70, 8.0)}
_TUNED: dict[str, dict[Key, dict[str, Any]]] = {
    data: {(sigma, epsilon): _SKETCH for sigma in SIGMAS for epsilon in epsilons}
    for data, epsilons in EPSILONS.items()
}


def smoothing_preset(given: Mapping[str, Any]) -> dict[str, Any]:
    """For the data set, noise and epsilon that are asked for: the nearest row, by ratio; else nothing."""
    rows = _TUNED.get(str(given.get("data")), {})
    if not rows:
        return {}
    sigma, epsilon = float(given.get("sigma") or 0.25), float(given.get("epsilon") or 2.99)

    def away(key: Key) -> float:
        return abs(math.log(key[0] / max(sigma, 1e-9))) + abs(math.log(key[1] / max(epsilon, 1e-9)))

    return dict(rows[min(rows, key=away)])
