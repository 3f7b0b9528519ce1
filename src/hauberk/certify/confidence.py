"""Confidence bounds on a probability from counted votes."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta, binomtest


def clopper_pearson_lower(successes: ArrayLike, trials: int, alpha: float) -> NDArray[np.float64]:
    """A number that exceeds the true probability with probability at most ``alpha`` (exact, one-sided)."""
    counts = np.asarray(successes, dtype=np.float64)
    bound = beta.ppf(alpha, counts, trials - counts + 1)
    below_one = np.nextafter(1.0, 0.0)  # a bound rounded to 1 would certify an infinite radius
    return np.where(counts > 0, np.minimum(bound, below_one), 0.0)


def majority_p_value(ahead: int, behind: int) -> float:
    """p-value of "the first class is not more likely than the second" given votes for either."""
    if ahead + behind == 0:
        return 1.0
    return float(binomtest(ahead, ahead + behind, 0.5, alternative="greater").pvalue)
