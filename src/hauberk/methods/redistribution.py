"""The vector ``r`` of 000 Eq. 7: more noise on the outputs of the first map to which the loss reacts more.

    s = mean over records of |dL/dh1|^beta,    r = s / sum(s),    output k of K gets variance sigma_r^2 K r_k

As published ``s`` is computed from the private training records, with a network trained on them, and 000 says
that this leaks nothing. It does: ``r`` is released with the classifier. Here it comes from public records, or
from the private ones by a Gaussian mechanism whose cost is part of the plan.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from hauberk.accounting import GaussianEvent
from hauberk.data import Dataset
from hauberk.mechanisms import redistribution
from hauberk.mechanisms.gaussian_profile import GaussianProfile
from hauberk.randomness import Randomness
from hauberk.training import NoiseAfter

SHARE = 0.1
"""Of epsilon, for a private ``r``."""
USUAL_NOISE = 20.0
"""Its noise multiplier where no epsilon was asked for."""
FLOOR = 0.5
"""Every output keeps at least this part of uniform noise. The radius shrinks with the *least* noise of any
output: without a floor the heterogeneous mechanism certifies next to nothing."""
PUBLISHED_FLOOR = 1e-3
"""As published there is none, and an output whose derivative is zero would be released without noise."""
_AT_A_TIME = 256
_STEP = 1 << 50  # a number that no training step has


def private_event(*, epsilon: float | None, delta: float) -> GaussianEvent:
    """What releasing ``s`` once from all private records costs."""
    if epsilon is None:
        return GaussianEvent(noise_multiplier=USUAL_NOISE)
    return GaussianEvent(
        noise_multiplier=1 / GaussianProfile.calibrate(epsilon=SHARE * epsilon, delta=delta).mu
    )


def vulnerabilities(
    model: nn.Module, layer: str, output_shape: tuple[int, ...], x: Tensor, y: Tensor, *, inflation: float
) -> Tensor:
    """``|dL/dh1|^beta`` of every record, one row each; ``h1`` is the output of ``layer``."""
    noise = torch.zeros(len(x), *output_shape, device=x.device, requires_grad=True)  # h1 moves as this does
    loss = nn.functional.cross_entropy(NoiseAfter(model, layer)(x, noise), y, reduction="sum")
    (derivative,) = torch.autograd.grad(loss, noise)
    return derivative.flatten(1).double().abs().pow(inflation)


def mean_vulnerability(
    model: nn.Module, layer: str, output_shape: tuple[int, ...], data: Dataset, *, inflation: float
) -> Tensor:
    """``s`` of Eq. 7 over all records of ``data``, without any protection."""
    return _summed(model, layer, output_shape, data, inflation=inflation, normalised=False) / len(data)


def private_vulnerability(
    model: nn.Module,
    layer: str,
    output_shape: tuple[int, ...],
    data: Dataset,
    *,
    inflation: float,
    event: GaussianEvent,
    randomness: Randomness,
) -> Tensor:
    """``s`` with each record's row scaled to l2 norm 1 at most, summed, and noise added.

    Guarantee: one release of the Gaussian mechanism with sensitivity 1 for adding or removing a record, which
    is what ``event`` says. ``model`` must not have been trained on private records.
    """
    total = _summed(model, layer, output_shape, data, inflation=inflation, normalised=True)
    normals = randomness.normals(step=_STEP, count=total.numel(), device=total.device)
    noisy = total + event.noise_multiplier * normals.to(total)
    return noisy.clamp_min(0.0)


def _summed(
    model: nn.Module,
    layer: str,
    output_shape: tuple[int, ...],
    data: Dataset,
    *,
    inflation: float,
    normalised: bool,
) -> Tensor:
    device = next(model.parameters()).device
    total = torch.zeros(math.prod(output_shape), dtype=torch.float64, device=device)
    for rows in torch.arange(len(data)).split(_AT_A_TIME):
        x, y = data.x[rows].to(device), data.y[rows].to(device)
        each = vulnerabilities(model, layer, output_shape, x, y, inflation=inflation)
        if normalised:
            each = torch.nan_to_num(each, nan=0.0, posinf=0.0)  # a record that overflows gives nothing
            each = each / each.amax(dim=1, keepdim=True).clamp_min(5e-324)  # else squares round to nothing
            norms = each.norm(dim=1, keepdim=True)
            each = torch.where(norms > 0, each / (norms * (1 + 1e-12)), 0.0)
        total += each.sum(0)
    return total


def scales(vulnerability: Tensor, output_shape: tuple[int, ...], *, sigma: float, floor: float) -> Tensor:
    """Standard deviations ``sigma_r sqrt(K r_k)`` of the noise after the first map."""
    if bool((vulnerability > 0).any()):
        r = redistribution.from_vulnerability(vulnerability.cpu().numpy(), floor=floor)
    else:
        r = redistribution.uniform(vulnerability.numel())
    deviations = sigma * torch.from_numpy(r * r.size).sqrt()
    return deviations.float().view(output_shape)
