"""The optimized additive noise of 002: Gaussian noise shaped by what the cost is sensitive to.

002 asks for the noise that disturbs the cost least among all that keep

    sum_i Delta_i^2 / sigma_i^2 <= tau    for every ||Delta||_2 <= alpha                      (Eq. 8)

and prints a closed form. That form keeps the constraint for the single direction ``Delta = alpha
w/||w||`` only. For *every* Delta the constraint says ``alpha / min sigma_i <= sqrt(tau)``, so the exact
optimum is isotropic, ``sigma_i = alpha / sqrt(tau)``, whatever ``w`` is. Coordinates with a small ``w_i``
get almost no noise from the closed form, and a neighbour who differs there is seen: that is the proven
column of this mechanism.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import dp_accounting
import numpy as np
from dp_accounting.pld import PLDAccountant
from numpy.typing import ArrayLike
from scipy.stats import binom

from hauberk.errors import RequestError
from hauberk.mechanisms import checks
from hauberk.mechanisms.base import EpsilonDelta, GaussianMechanism, sampled_releases
from hauberk.mechanisms.checks import Vector
from hauberk.mechanisms.gaussian_profile import GaussianProfile
from hauberk.mechanisms.search import last_true

_ROUND_UP = 1 + 1e-10  # what double precision may have taken, more on one processor than on another
_LARGEST_MU_OF_PLD = 200.0


def best_moment_order(epsilon: float, delta: float) -> float:
    """The real ``beta`` that makes ``tau`` largest: ``(l + sqrt(l^2 + epsilon l)) / epsilon``, l = -ln
    delta."""
    log_inverse = -math.log(delta)
    return (log_inverse + math.sqrt(log_inverse**2 + epsilon * log_inverse)) / epsilon


def squared_loss_budget(budget: EpsilonDelta, *, steps: int, sampling_rate: float = 1.0) -> float:
    """``tau`` of 002 Eq. 8b: how large ``sum_i Delta_i^2 / sigma_i^2`` may be in each of ``steps`` lots.

    002 divides the budget by the sampling rate, (epsilon/q, delta/q); that is no theorem of
    amplification, and it is kept because the claim rests on it.
    """
    epsilon, delta = budget.epsilon / sampling_rate, budget.delta / sampling_rate
    if not (epsilon > 0 and 0 < delta < 1):
        raise RequestError(
            f"002 spends (epsilon/q, delta/q) = ({epsilon:.3g}, {delta:.3g}), which needs epsilon > 0 and "
            "0 < delta/q < 1; choose a smaller delta or a larger sampling rate."
        )
    order = best_moment_order(epsilon, delta)
    return 2 * (epsilon + math.log(delta) / order) / (steps * (1 + order))


def closed_form_scale(weights: Vector, *, sensitivity: float, tau: float) -> Vector:
    """``sigma_i = alpha sqrt(sum_j |w_j|^{4/3} / (tau ||w||^2)) |w_i|^{1/3}`` (002 Eqs. 11-13)."""
    size = np.abs(weights) / np.abs(weights).max()  # the form does not change when w is rescaled
    common = math.sqrt(float((size ** (4 / 3)).sum()) / (tau * float((size**2).sum())))
    scale: Vector = sensitivity * common * np.cbrt(size)
    return scale


@dataclass(frozen=True, kw_only=True, eq=False)
class OptimizedAdditive(GaussianMechanism):
    """Optimized additive noise (002 Algorithm 1): ``N(0, sigma_i^2)`` on the *sum* of a lot of gradients.

    ``claimed`` is 002's promise for the whole training: ``steps`` lots, each a Poisson sample with
    ``sampling_rate``, add/remove neighbours, gradients clipped to ``sensitivity`` (alpha). It does not
    hold.

    Proven is what the weakest coordinate allows, ``mu = alpha / min_i sigma_i`` in every release (and,
    where budget was spent on the weights, ``2 alpha / weights_scale``: clipping a *mean* to alpha bounds
    its change by 2 alpha, not alpha). ``mu`` and ``profile`` describe one release; ``delta``, ``epsilon``
    and ``event`` the training: exact when ``sampling_rate`` is 1, an upper bound (dp_accounting's PLD,
    where it can compute) when it is smaller. Sigma is taken to be the same in all steps and independent
    of the private data.
    """

    sensitivity: float
    sigma: Vector
    steps: int
    sampling_rate: float
    claimed: EpsilonDelta
    weights_scale: float | None = None

    def __post_init__(self) -> None:
        checks.positive("sensitivity", self.sensitivity)
        checks.count("steps", self.steps)
        checks.rate("sampling_rate", self.sampling_rate)
        object.__setattr__(self, "sigma", checks.positive_array("sigma", self.sigma))
        if self.weights_scale is not None:
            checks.positive("weights_scale", self.weights_scale)

    @classmethod
    def calibrate(
        cls,
        *,
        epsilon: float,
        delta: float,
        sensitivity: float,
        weights: ArrayLike,
        steps: int,
        sampling_rate: float,
        weights_budget: EpsilonDelta | None = None,
    ) -> OptimizedAdditive:
        """002's noise for the impact ``weights`` (all ones: isotropic) and the total budget.

        ``weights_budget`` is the part (eps_w, delta_w) of the total that releases the weights in every
        step with isotropic noise ``weights_scale``; the rest (eps_g, delta_g) goes to the gradients.
        Without it the weights are taken to be public.
        """
        checks.positive("epsilon", epsilon)
        checks.probability("delta", delta)
        checks.positive("sensitivity", sensitivity)
        checks.count("steps", steps)
        checks.rate("sampling_rate", sampling_rate)
        size = np.abs(checks.array("the weights", weights))
        if not (size > 0).all():
            raise RequestError("every weight must differ from 0, because a weight of 0 gets no noise.")
        spent = weights_budget or EpsilonDelta(epsilon=0.0, delta=0.0)
        if spent.epsilon >= epsilon or spent.delta >= delta:
            raise RequestError(
                "the budget of the weights must be smaller than the total, in epsilon and in delta."
            )
        rest = EpsilonDelta(epsilon=epsilon - spent.epsilon, delta=delta - spent.delta)
        tau = squared_loss_budget(rest, steps=steps, sampling_rate=sampling_rate)
        weights_scale = None
        if weights_budget is not None:
            weights_scale = sensitivity / math.sqrt(squared_loss_budget(weights_budget, steps=steps))
        return cls(
            sensitivity=sensitivity,
            sigma=closed_form_scale(size, sensitivity=sensitivity, tau=tau),
            steps=steps,
            sampling_rate=sampling_rate,
            claimed=EpsilonDelta(epsilon=epsilon, delta=delta),
            weights_scale=weights_scale,
        )

    @property
    def scale(self) -> Vector:
        return self.sigma

    @property
    def mu(self) -> float:
        return self.sensitivity / float(self.sigma.min())

    @property
    def weights_mu(self) -> float:
        """Whitened sensitivity of one release of the weights; 0 when they are public."""
        return 0.0 if self.weights_scale is None else 2 * self.sensitivity / self.weights_scale

    def event(self) -> dp_accounting.DpEvent:
        gradients = sampled_releases(1 / self.mu, sampling_rate=self.sampling_rate, steps=self.steps)
        if self.weights_mu == 0:
            return gradients
        weights = sampled_releases(1 / self.weights_mu, sampling_rate=1.0, steps=self.steps)
        return dp_accounting.ComposedDpEvent([gradients, weights])

    def delta(self, epsilon: float) -> float:
        checks.nonnegative("epsilon", epsilon)
        if self.sampling_rate == 1:
            return self._composed(self.steps).delta(epsilon)
        bound = 1.0 if self._accountant is None else float(self._accountant.get_delta(epsilon))
        return min(bound, self._delta_with_known_lots(epsilon))

    def epsilon(self, delta: float) -> float:
        checks.probability("delta", delta)
        unsampled = self._composed(self.steps).epsilon(delta)
        if self.sampling_rate == 1:
            return unsampled
        if self._accountant is None:
            bound = math.inf
        else:
            bound = float(self._accountant.get_epsilon(delta)) * _ROUND_UP
        if bound <= unsampled:
            return bound
        return last_true(lambda e: self._delta_with_known_lots(e) <= delta, true_at=unsampled, false_at=0.0)

    def _composed(self, lots: int) -> GaussianProfile:
        """Exact profile of all releases together when the record is in exactly so many lots."""
        weights_mu = self.weights_mu * math.sqrt(self.steps)
        return GaussianProfile(mu=math.hypot(self.mu * math.sqrt(lots), weights_mu))

    def _delta_with_known_lots(self, epsilon: float) -> float:
        """Upper bound of delta against an adversary who is told which lots would hold the record.

        Loose for moderate noise. It is what remains where a single release gives the record away, and for
        a delta below about 1e-15, where the accountant cuts off its tails.
        """
        lots = np.arange(0 if self.weights_mu else 1, self.steps + 1)
        probability = binom.pmf(lots, self.steps, self.sampling_rate)
        likely = probability > 1e-40
        deltas = [self._composed(int(n)).delta(epsilon) for n in lots[likely]]
        told = float(probability[likely] @ deltas + probability[~likely].sum()) * (1 + 1e-9)
        return min(told, self._composed(self.steps).delta(epsilon))

    @cached_property
    def _accountant(self) -> PLDAccountant | None:
        """Accountant of the training; none where its arithmetic of e^loss would overflow."""
        if self.mu > _LARGEST_MU_OF_PLD:
            return None
        # The grid of the privacy loss may be as coarse as the loss of one release is large: the estimate
        # stays pessimistic, and the composition of thousands of steps stays quick.
        interval = max(1e-4, 3e-4 * self.mu**2, 1e-7 * self.steps * self.weights_mu**2)
        return PLDAccountant(value_discretization_interval=interval).compose(self.event())
