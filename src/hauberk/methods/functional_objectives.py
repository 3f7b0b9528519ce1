"""The two objectives of StoBatch (003) and the noise that its functional mechanism puts on them.

    R(theta_1) = sum_i sum_j (1/2 - x_ij) (theta_1 h_i)_j, the first layer as an auto-encoder      (Eq. 6)
    L(theta_2) = Taylor-expanded cross-entropy, chi_3 / m on every label coefficient h_pi y_k      (3.2)

    x_i = record + chi_1 / m,  h_i = theta_1' x_i + 2 chi_2 / m,  theta_1 h_i with the encoder's own weights
    Delta_R = d (beta + 2) (Lemma 2),  Delta_L = 2 |h_pi| (Lemma 4)
    chi_1, chi_2 ~ Lap(Delta_R / epsilon_1),  chi_3 ~ Lap(Delta_L / epsilon_2), each drawn once
    claimed: epsilon = epsilon_1 (1 + 1/gamma_x + 1/gamma) + epsilon_2                           (Theorem 4)
    gamma_x = Delta_R / m,  gamma = 2 Delta_R / (m ||theta_1||_{1,1})                            (Lemma 3)

The paper treats ``h_i`` in R as a coefficient, and so does its gradient (Eq. 19): none of it goes through the
encoder. As ``sum_j u_j (theta_1 h)_j = sum_k h_k (theta_1' u)_k``, R is the first layer's answer to
``1/2 - x_i`` weighed with ``h_i``, for a convolution as well.

Why this is no privacy is said in `hauberk.methods.published_stobatch`. The lemmas hold for inputs in [0, 1]
and hidden values in [-1, 1]: those in R are cut off there, those before the last layer are the network's
business (tanh keeps them, ReLU does not).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hauberk.certify import NoiseLayers
from hauberk.certify.first_map import FirstMap
from hauberk.certify.published_gains import single_map_gain
from hauberk.errors import RequestError
from hauberk.mechanisms import checks
from hauberk.mechanisms.functional import coefficient_sensitivity
from hauberk.mechanisms.objectives import output_norm, output_taylor, reconstruction_norm
from hauberk.methods.shared_noise import SharedNoise


def reconstruction_sensitivity(first_map: FirstMap) -> float:
    """Delta_R: ``d (beta + 2)`` with d inputs of an output and beta outputs of one feature map.

    003 appendix P counts one map in place of all: (14^2 + 2) 25 for 5 x 5 kernels and 14 x 14 positions.
    """
    layer = first_map.layer
    hidden = layer.out_features if isinstance(layer, nn.Linear) else math.prod(first_map.output_shape[1:])
    norm = reconstruction_norm(inputs=layer.weight[0].numel(), hidden=hidden)
    return coefficient_sensitivity(norm, "replace-one")


def label_sensitivity(hidden: int) -> float:
    """Delta_L: ``2 |h_pi|``."""
    return coefficient_sensitivity(output_norm(hidden=hidden), "replace-one")


def first_map_norm(first_map: FirstMap) -> float:
    """``||theta_1||_{1,1}``: how far one unit of an input moves the outputs, for a convolution those of one
    feature map."""
    unit = NoiseLayers(kind="laplace", after_first_map=1.0)
    return single_map_gain(unit, "l1", shape=first_map.input_shape, first_map=first_map).value


@dataclass(frozen=True, kw_only=True)
class FunctionalBudgets:
    """``reconstruction`` is epsilon_1, ``labels`` epsilon_2."""

    reconstruction: float
    labels: float
    gamma_x: float
    gamma: float

    @property
    def claimed(self) -> float:
        """Theorem 4. No guarantee follows."""
        return self.reconstruction * (1 + 1 / self.gamma_x + 1 / self.gamma) + self.labels

    @classmethod
    def split(
        cls, epsilon: float, *, label_share: float, batch: int, sensitivity: float, norm: float
    ) -> FunctionalBudgets:
        """``label_share`` of ``epsilon`` for the labels, and such an epsilon_1 that all is used up.

        ``norm`` is that of theta_1 before training: the noise is drawn then.
        """
        if not 0 < label_share < 1:
            raise RequestError(f"the labels' share of epsilon must lie between 0 and 1, got {label_share}")
        labels = label_share * checks.positive("epsilon", epsilon)
        gamma_x = sensitivity / batch
        gamma = 2 * sensitivity / (batch * norm)
        return cls(
            reconstruction=(epsilon - labels) / (1 + 1 / gamma_x + 1 / gamma),
            labels=labels,
            gamma_x=gamma_x,
            gamma=gamma,
        )


class TwoObjectives(nn.Module):
    """In one row the scores of a perturbed input and its reconstruction objective; the weights are those of
    ``shared``.

    The scores have no gradient in the first layer, the reconstruction none in any other, so that the sum of
    the two objectives trains theta_1 on R alone and theta_2 on L alone (003 Alg. 1, line 12).
    """

    def __init__(self, shared: SharedNoise) -> None:
        super().__init__()
        self.shared = shared

    def forward(self, x: Tensor) -> Tensor:
        first, noise = self.shared.first, self.shared.layer_noise
        seen: list[Tensor] = []

        def perturbed(read: Tensor, hidden: Tensor) -> Tensor:
            seen[:] = read, hidden.detach()
            return hidden.detach() + noise

        scores = self.shared.answer(x, perturbed)
        read, hidden = seen
        coefficients = hidden.clamp(-1.0, 1.0) + noise
        decoded = first(0.5 - read)
        if first.bias is not None:
            decoded = decoded - first.bias.view(-1, *[1] * (decoded.ndim - 2))
        reconstruction = (coefficients * decoded).flatten(1).sum(1, keepdim=True)
        return torch.cat([scores, reconstruction], dim=1)


@dataclass(frozen=True, kw_only=True)
class AdversarialObjective:
    """R + L of records with two views, the benign and the adversarial copy, from rows of `TwoObjectives`.

    L is ``(benign + xi adversarial) / (1 + xi)`` (Eq. 9), R the mean of both. Without the labels' noise.
    """

    adversarial_weight: float  # xi

    def __call__(self, rows: Tensor, labels: Tensor) -> Tensor:
        scores, reconstruction = rows[..., :-1], rows[..., -1]
        own = torch.arange(scores.shape[-1], device=labels.device) == labels.unsqueeze(-1)
        benign, adversarial = output_taylor(scores, own.to(scores).unsqueeze(1)).unbind(1)
        xi = self.adversarial_weight
        return (benign + xi * adversarial) / (1 + xi) + reconstruction.mean(1)
