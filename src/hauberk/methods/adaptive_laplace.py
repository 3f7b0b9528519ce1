"""The Laplace noise of AdLM (Phan et al. 2017): how much of it, on which coefficients, made of normals.

    R_j     = mean |x_j dz_y/dx_j| over records, brought to [0, 1], + Lap(2 d / (epsilon1 D))
    beta_j  = d |R_j| / sum |R|
    inputs: x_j + Lap(Delta2 / (beta_j epsilon2)) / L
    loss:   every coefficient of its polynomial in the last weights + Lap(Delta3 / epsilon3)

for d inputs, D records, batches of L. The sensitivities are the published ones; what they miss is said in
`hauberk.methods.adlm`, and nothing here is a guarantee.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hauberk.certify import evaluation_mode
from hauberk.certify.first_map import FirstMap
from hauberk.data import Dataset
from hauberk.mechanisms import checks
from hauberk.mechanisms.objectives import QuadraticObjective

LEAST_SHARE = 1e-5
"""Of beta, as in the authors' code: an input that no class minds would need infinite noise. The text has no
floor; this one is so low that such an input is lost all the same."""
_POOLED = 4  # positions that the 2x2 pooling behind the authors' first convolution makes one of
_AT_A_TIME = 256


@dataclass(frozen=True, kw_only=True)
class Budgets:
    """epsilon1 for the relevance, epsilon2 for the inputs, epsilon3 for the loss."""

    relevance: float
    inputs: float
    loss: float

    @classmethod
    def split(cls, epsilon: float) -> Budgets:
        """1 : 1 : 2, as the authors split theirs."""
        quarter = checks.positive("epsilon", epsilon) / 4
        return cls(relevance=quarter, inputs=quarter, loss=2 * quarter)


def laplace_variables(normals: Tensor) -> Tensor:
    """Independent Laplace(0, 1) variables of shape ``shape`` from standard normals of shape ``(4, *shape)``.

    Half the sum of two squared normals is an exponential variable, and the difference of two of those is a
    Laplace variable. So privacy noise and view noise need one source of randomness, that of normals.
    """
    first, second, third, fourth = normals.square().unbind()
    return (first + second - third - fourth) / 2


def mean_relevance(model: nn.Module, data: Dataset) -> Tensor:
    """``mean |x_j dz_y/dx_j|`` over the records, ``z_y`` the score of a record's own class. Unprotected.

    For a network of ReLUs, pooling and affine maps without bias this is layer-wise relevance propagation
    (its plain rule; the authors' code uses a damped one); for others it is the same quantity to first order.
    """
    device = next(model.parameters()).device
    total = torch.zeros(data.shape, dtype=torch.float64, device=device)
    with evaluation_mode(model), torch.enable_grad():
        for x, y in zip(data.x.split(_AT_A_TIME), data.y.split(_AT_A_TIME), strict=True):
            x, y = x.to(device).requires_grad_(), y.to(device)
            (slopes,) = torch.autograd.grad(model(x).gather(1, y.unsqueeze(1)).sum(), x)
            total += (x * slopes).detach().double().abs().sum(0)
    return (total / len(data)).cpu()


def noisy_relevance(relevance: Tensor, noise: Tensor, *, epsilon: float, records: int) -> Tensor:
    """Relevance brought to [0, 1], plus ``2 d / (epsilon D)`` times ``noise``, which is Laplace(0, 1).

    The authors' code also takes the fourth power before the noise; the text has beta in proportion to the
    relevance itself, and so has this. Least and largest relevance are used without being paid for.
    """
    least, largest = relevance.amin(), relevance.amax()
    normalised = (relevance - least) / (largest - least) if largest > least else torch.ones_like(relevance)
    scale = 2 * relevance.numel() / (checks.positive("epsilon", epsilon) * checks.count("records", records))
    return normalised + scale * noise


def input_shares(relevance: Tensor) -> Tensor:
    """``beta_j = d |R_j| / sum |R|``, of mean one but for the floor: an input that matters more gets more of
    the budget, hence less noise."""
    size = relevance.abs()
    return (size / size.mean()).clamp_min(LEAST_SHARE)


def first_map_sensitivity(first_map: FirstMap) -> float:
    """Delta2: twice the outputs of one feature map, times the inputs that each of them reads.

    Of a convolution one map in place of all, after 2x2 pooling, as the authors count: 2 x 14^2 x 25 for 5 x 5
    kernels on 28 x 28 pixels. A Linear layer is one map whose outputs all read all d inputs.
    """
    layer = first_map.layer
    if isinstance(layer, nn.Linear):
        return 2.0 * layer.out_features * layer.in_features
    _, *positions = first_map.output_shape
    return 2 * math.prod(positions) / _POOLED * layer.weight[0].numel()


def loss_sensitivity(*, hidden: int, classes: int) -> float:
    """Delta3: ``classes (h + h^2 / 4)`` for h hidden values in [0, 1], which a network need not keep to."""
    return checks.count("classes", classes) * (checks.count("hidden", hidden) + hidden**2 / 4)


@dataclass(frozen=True, kw_only=True, eq=False)
class LossNoise:
    """Noise on the coefficients of a polynomial in the last weights, each class with coefficients of its own.

    ``linear`` is (classes, h), ``quadratic`` (classes, h, h), symmetric: every monomial ``w_i w_j`` of a
    class has one noise. As a term of the objective: ``sum_k linear_k' w_k + w_k' quadratic_k w_k``, which has
    no minimum where a matrix is not positive; the published algorithm descends all the same.
    """

    linear: Tensor
    quadratic: Tensor

    @classmethod
    def draw(cls, normals: Tensor, *, hidden: int, classes: int, scale: float) -> LossNoise:
        """From ``4 * coefficients(hidden, classes)`` standard normals."""
        noise = scale * laplace_variables(normals.view(4, classes, -1))
        terms = [QuadraticObjective.from_coefficients(each, hidden) for each in noise]
        return cls(
            linear=torch.stack([term.linear for term in terms]).float(),
            quadratic=torch.stack([term.quadratic for term in terms]).float(),
        )

    @staticmethod
    def coefficients(*, hidden: int, classes: int) -> int:
        """How many coefficients get noise."""
        return classes * (hidden + hidden * (hidden + 1) // 2)

    def gradient(self, weight: Tensor) -> Tensor:
        """Of the term, in the last weights (classes, h)."""
        curved: Tensor = torch.einsum("kij,kj->ki", self.quadratic.to(weight), weight)
        return self.linear.to(weight) + 2 * curved
