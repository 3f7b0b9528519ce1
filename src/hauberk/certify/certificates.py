"""Certified radii from bounds on class probabilities under noise."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri


def tight_radius(
    top_lower: ArrayLike, runner_up_upper: ArrayLike | None = None, *, gain: float
) -> NDArray[np.float64]:
    """``(Phi^{-1}(pA) - Phi^{-1}(pB)) / (2 L)``: the largest radius that holds for every classifier.

    ``top_lower`` bounds the top class's probability from below, ``runner_up_upper`` every other class's from
    above (default: the rest, ``1 - top_lower``). ``gain`` is the whitened gain ``L`` of the noise layer; for
    input noise it is ``1 / sigma``. Zero where the bounds do not separate (Cohen et al. 2019, Theorem 1).

    Guarantee: if the two bounds hold, the smoothed classifier's answer is the same within the radius.
    """
    top = np.asarray(top_lower, dtype=np.float64)
    other = 1.0 - top if runner_up_upper is None else np.asarray(runner_up_upper, dtype=np.float64)
    radius = (ndtri(top) - ndtri(other)) / (2.0 * gain)
    return np.where(top > other, radius, 0.0)
