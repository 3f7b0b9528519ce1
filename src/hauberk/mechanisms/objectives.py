"""Polynomial objectives for the functional mechanism: two regressions, and the two Taylor losses of 003.

Each comes with the largest l1 norm that one record's coefficients of degree >= 1 can have, which is what
`FunctionalMechanism.calibrate` calls ``sensitivity``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

from hauberk.errors import RequestError
from hauberk.mechanisms import checks

_E = math.e


@dataclass(frozen=True, kw_only=True, eq=False)
class QuadraticObjective:
    """``theta' quadratic theta + linear' theta`` with a symmetric matrix; the constant is left out."""

    linear: Tensor
    quadratic: Tensor

    def value(self, theta: Tensor) -> Tensor:
        return theta @ self.quadratic @ theta + self.linear @ theta

    def coefficients(self) -> Tensor:
        """Every monomial once: ``theta_j``, then ``theta_j theta_l``, j <= l (twice the entry if j < l)."""
        rows, columns = torch.triu_indices(*self.quadratic.shape)
        twice = torch.where(rows == columns, 1.0, 2.0).to(self.quadratic)
        return torch.cat([self.linear, self.quadratic[rows, columns] * twice])

    @classmethod
    def from_coefficients(cls, coefficients: Tensor, dimension: int) -> QuadraticObjective:
        """The inverse of `coefficients`."""
        linear, monomials = coefficients[:dimension], coefficients[dimension:]
        rows, columns = torch.triu_indices(dimension, dimension)
        if len(monomials) != len(rows):
            raise RequestError(
                f"{len(coefficients)} coefficients are not those of a quadratic in {dimension} variables."
            )
        upper = torch.zeros(dimension, dimension, dtype=coefficients.dtype, device=coefficients.device)
        upper[rows, columns] = monomials / 2
        return cls(linear=linear, quadratic=upper + upper.T)

    def minimiser(self, *, ridge: float = 0.0) -> Tensor:
        """Where the objective is least within the directions in which it curves upwards.

        Noise may leave the matrix without a minimum; ``ridge`` is added to its diagonal and directions that
        still do not curve upwards are left at zero. Both are post-processing of released coefficients.
        """
        curvature, directions = torch.linalg.eigh(self.quadratic)
        curvature = curvature + checks.nonnegative("ridge", ridge)
        kept = curvature > 1e-12 * curvature.abs().max()
        slopes = directions[:, kept].T @ self.linear
        minimiser: Tensor = -directions[:, kept] @ (slopes / (2 * curvature[kept]))
        return minimiser


def linear_regression(features: Tensor, targets: Tensor) -> QuadraticObjective:
    """``sum_i (y_i - x_i' theta)^2`` without its constant: a polynomial already (003 Appendix B)."""
    return QuadraticObjective(linear=-2 * targets @ features, quadratic=features.T @ features)


def linear_regression_norm(*, feature_norm: float, target_bound: float) -> float:
    """``2 |y| ||x||_1 + ||x||_1^2`` for ``||x||_1 <= feature_norm`` and ``|y| <= target_bound``."""
    size = checks.positive("feature_norm", feature_norm)
    return 2 * checks.positive("target_bound", target_bound) * size + size**2


def logistic_regression(features: Tensor, labels: Tensor) -> QuadraticObjective:
    """``sum_i ln(1 + e^z) - y_i z``, ``z = x_i' theta``, y in {0, 1}, by its second Taylor polynomial."""
    return QuadraticObjective(linear=(0.5 - labels) @ features, quadratic=features.T @ features / 8)


def logistic_regression_norm(*, feature_norm: float) -> float:
    """``||x||_1 / 2 + ||x||_1^2 / 8`` for ``||x||_1 <= feature_norm``."""
    size = checks.positive("feature_norm", feature_norm)
    return size / 2 + size**2 / 8


def reconstruction_loss(inputs: Tensor, reconstruction: Tensor) -> Tensor:
    """Cross-entropy of an auto-encoder per record: ``sum_j x ln(1 + e^{-z}) + (1 - x) ln(1 + e^z)``."""
    return (inputs * softplus(-reconstruction) + (1 - inputs) * softplus(reconstruction)).sum(-1)


def reconstruction_taylor(inputs: Tensor, reconstruction: Tensor) -> Tensor:
    """Its first Taylor polynomial (003 Eq. 5): ``sum_j ln 2 + (1/2 - x) z``, linear in the decoder."""
    return (math.log(2) + (0.5 - inputs) * reconstruction).sum(-1)


def reconstruction_norm(*, inputs: int, hidden: int) -> float:
    """``d (beta/2 + 1)``: half of 003 Lemma 2, whose ``d (beta + 2)`` counts a replaced record.

    Covers the coefficients ``(1/2 - x_j) h`` for inputs in [0, 1] and ``hidden`` activations in [-1, 1];
    for inputs in [-1, 1], which 003 uses, those reach ``3 d beta / 2`` and the lemma is too small.
    """
    return checks.count("inputs", inputs) * (checks.count("hidden", hidden) / 2 + 1)


def reconstruction_error_bound(inputs: int) -> float:
    """003 Eq. 35: bound of the average error of `reconstruction_taylor` per record, ``4 e d / (1 + e)^2``."""
    return 4 * _E * checks.count("inputs", inputs) / (1 + _E) ** 2


def output_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Sigmoid cross-entropy over the classes, one number per record: ``sum_k ln(1 + e^z) - y z``."""
    return (softplus(logits) - labels * logits).sum(-1)


def output_taylor(logits: Tensor, labels: Tensor) -> Tensor:
    """Its second Taylor polynomial: ``sum_k ln 2 + z/2 - y z + z^2/8``.

    003 prints ``z - |z|/2`` where ``max(z, 0) - |z|/2 = z/2`` belongs: the same for positive z, wrong by |z|
    for negative. Only ``y z`` touches the labels; its coefficients are the last hidden layer.
    """
    return (math.log(2) + (0.5 - labels) * logits + logits**2 / 8).sum(-1)


def output_norm(*, hidden: int) -> float:
    """l1 norm of one record's label coefficients ``h y_k`` (y one-hot, h in [-1, 1]): half of 003 Lemma 4."""
    return float(checks.count("hidden", hidden))


def output_error_bound(classes: int) -> float:
    """003 Eq. 36: bound of the average error of `output_taylor` per record, in its stricter reading.

    The text leaves open whether the denominator is ``6 (1 + e)^2`` or ``e (1 + e)^2``; the first bound is
    smaller.
    """
    return (_E**2 + 2 * _E - 1) * checks.count("classes", classes) / (6 * (1 + _E) ** 2)
