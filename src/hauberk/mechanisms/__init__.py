"""Noise and its exact privacy profile; calibration; nothing about training.

Every mechanism carries what its paper claims (``claimed``) and computes what is true (``delta``,
``epsilon``, ``event``). To add one: one file with a subclass of `Mechanism`, one row in ``MECHANISMS``,
one row in the table test.
"""

from collections.abc import Mapping
from types import MappingProxyType

from hauberk.mechanisms import information, objectives, redistribution
from hauberk.mechanisms.analytic import AnalyticGaussian
from hauberk.mechanisms.base import EpsilonDelta, GaussianMechanism, Mechanism
from hauberk.mechanisms.extended import ExtendedGaussian
from hauberk.mechanisms.functional import FunctionalMechanism
from hauberk.mechanisms.gaussian import Gaussian
from hauberk.mechanisms.gaussian_profile import GaussianProfile
from hauberk.mechanisms.heterogeneous import HeterogeneousGaussian, weighted_sensitivity
from hauberk.mechanisms.laplace import Laplace
from hauberk.mechanisms.mixed import MixedGaussian
from hauberk.mechanisms.multivariate import MultivariateGaussian
from hauberk.mechanisms.optimized_additive import OptimizedAdditive

MECHANISMS: Mapping[str, type[Mechanism]] = MappingProxyType(
    {
        "gaussian": Gaussian,
        "analytic": AnalyticGaussian,
        "extended": ExtendedGaussian,
        "heterogeneous": HeterogeneousGaussian,
        "multivariate": MultivariateGaussian,
        "mixed": MixedGaussian,
        "optimized-additive": OptimizedAdditive,
        "laplace": Laplace,
        "functional": FunctionalMechanism,
    }
)
"""Mechanisms by the name the command line gives them."""

__all__ = [
    "MECHANISMS",
    "AnalyticGaussian",
    "EpsilonDelta",
    "ExtendedGaussian",
    "FunctionalMechanism",
    "Gaussian",
    "GaussianMechanism",
    "GaussianProfile",
    "HeterogeneousGaussian",
    "Laplace",
    "Mechanism",
    "MixedGaussian",
    "MultivariateGaussian",
    "OptimizedAdditive",
    "information",
    "objectives",
    "redistribution",
    "weighted_sensitivity",
]
