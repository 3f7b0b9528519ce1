"""Perturbation transformation as 004 chapter 6 prints it: noise on the input, counted as noise on a gradient.

The thesis trains a denoiser ``g`` on noisy records ``z = x + N(0, sigma^2 I)`` with ``l(z) = ||g(z) - x||^2``
and adds to the gradient only the noise that is missing to ``xi_up``:

    o_i   = l(z_i) - l(x_i) - (z_i - x_i)' grad_x l(x_i)        non-negative, or no credit (Alg. 3 line 8)
    A_i   = J_theta grad_x l(x_i)                               weights by pixels (Lemma 1)
    M     = (1/B^2) sum_i A_i A_i'                              (section 6.2.3, by slices of theta: App. .13)
    noise = xi_up, sqrt(xi_up^2 - T S_min(M) sigma^2) or 0      (Alg. 3 line 16)

**Nothing here is a privacy guarantee.** It serves the paper variant of TransDenoiser alone, because:

- from ``l(z) >= l(x) + (z - x)' grad_x l(x)`` nothing follows for gradients with respect to theta: a function
  may lie above another and have any slope there, and the dropped term depends on the record;
- ``M`` has rank at most pixels x records. With more weights than that S_min is zero, so all credit comes from
  cutting theta into small slices, and the releases of the slices are never composed;
- the factor ``T`` has no proof (`hauberk.mechanisms.MixedGaussian` says what is true in its place);
- ``S_min``, the signs of ``o_i`` and so the noise itself are chosen from private records, without budget;
- the target in ``l`` is the clean ``x``: the gradient reads it beside the noise.

Where a record's gradient is clipped by a factor ``a_i``, 004 App. .12 (Lemma 5) counts ``a_i A_i``:
multiply before asking for singular values. (The factor depends on the noise: a further gap.)
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vjp, vmap

from hauberk.errors import RequestError
from hauberk.gradients import trainable
from hauberk.mechanisms import checks

SLICE = 18
"""Consecutive weights per slice; the limit in the precursor's code."""


def reconstruction_losses(model: nn.Module, inputs: Tensor, clean: Tensor) -> Tensor:
    """``||g(input) - clean||^2`` of each record (004 Eq. 6.1); the sum over pixels, not their mean."""
    losses: Tensor = (model(inputs) - clean).square().flatten(1).sum(1)
    return losses


def remainder(loss: Callable[[Tensor], Tensor], z: Tensor, x: Tensor) -> Tensor:
    """Per record ``o(z - x) = l(z) - l(x) - (z - x)' grad_x l(x)`` (004 Eq. 6.2, Alg. 3 line 8).

    ``loss`` takes a batch of inputs and gives one number per record, targets held constant:
    ``lambda inputs: reconstruction_losses(model, inputs, x)``. The sign of the result sorts records into the
    thesis' non-negative and negative cases. It is computed from clean records and must not be published.
    """
    with torch.enable_grad():
        at_x = x.detach().clone().requires_grad_()
        losses = loss(at_x)
        (slope,) = torch.autograd.grad(losses.sum(), at_x)
    with torch.no_grad():
        linear = losses.detach() + ((z - x) * slope).flatten(1).sum(1)
        return loss(z) - linear


def transformation(model: nn.Module, x: Tensor, *, chunk: int = 64) -> Tensor:
    """``A_i = J_theta grad_x l(x_i)`` of each record, ``(records, weights, pixels)``.

    ``l(input, theta) = ||g(input; theta) - x_i||^2``: the gradient is with respect to the *input* at
    ``input = x_i``, while the target ``x_i`` stays constant. Weights are those with ``requires_grad``, in the
    order of ``named_parameters``, each flattened; pixels run as in ``x_i.flatten()``. To first order,
    ``A_i b`` is what input noise ``b`` adds to the record's gradient.

    Reverse over reverse: theta -> grad_x l is pulled back once for each pixel, ``chunk`` pixels at a time.
    Memory: the result (records x weights x pixels numbers; 21 MB for a record of MNIST and a denoiser of
    width 8) and, beside it, ``chunk`` times one record's activations and weights.
    """
    checks.count("chunk", chunk)
    weights = trainable(model)
    if not weights:
        raise RequestError(
            "the model has no parameter with requires_grad=True: there is nothing to transform"
        )
    pixels = x[0].numel() if len(x) else 0
    result = x.new_empty(len(x), sum(weight.numel() for weight in weights.values()), pixels)
    for record, matrix in zip(x.detach(), result, strict=True):
        pull_back = _pull_back_input_gradient(model, weights, record)
        for start in range(0, pixels, chunk):
            chosen = torch.arange(start, min(start + chunk, pixels), device=x.device)
            rows = vmap(pull_back)(nn.functional.one_hot(chosen, pixels).to(x.dtype))
            matrix[:, chosen] = torch.cat([rows[name].flatten(1) for name in weights], dim=1).mT
    return result


def _pull_back_input_gradient(
    model: nn.Module, weights: dict[str, Tensor], record: Tensor
) -> Callable[[Tensor], dict[str, Tensor]]:
    """A vector over pixels ``p`` to the gradient of ``p' grad_x l`` with respect to each weight."""

    def input_gradient(weights: dict[str, Tensor]) -> Tensor:
        def loss(given: Tensor) -> Tensor:
            restored: Tensor = functional_call(model, weights, (given.unsqueeze(0),))[0]
            return (restored - record).square().sum()

        slope: Tensor = grad(loss)(record)
        return slope.flatten()

    pulled_back = vjp(input_gradient, weights)[1]

    def pull_back(pixels: Tensor) -> dict[str, Tensor]:
        (by_name,) = pulled_back(pixels)
        return dict(by_name)

    return pull_back


def smallest_singular_values(transformations: Tensor, batch: int, slice_size: int = SLICE) -> Tensor:
    """``S_min`` of ``M = (1/B^2) sum_i A_i A_i'`` for each slice of ``slice_size`` consecutive weights.

    ``transformations`` is ``(records, weights, pixels)`` from `transformation`; ``batch`` is ``B``, the
    divisor of the update. One number per slice, in float64; the last slice may be shorter.

    The records may be part of the batch: ``A A'`` is positive semi-definite, so a partial sum lies below the
    whole in the Loewner order and its smallest singular value is not larger. Fewer records under-state the
    credit that 004 would count; they never over-state it. (No choice of records makes the credit true.)

    A value that rounding alone can make of zero is zero.
    """
    records, weights, _ = transformations.shape
    if records > checks.count("the batch size", batch):
        raise RequestError(
            f"{records} records cannot be part of a batch of {batch}: give the whole batch size"
        )
    edge = weights - weights % checks.count("the slice size", slice_size)
    found = [
        _smallest_of_slices(part.unflatten(1, (-1, size)))
        for part, size in (
            (transformations[:, :edge], slice_size),
            (transformations[:, edge:], weights - edge),
        )
        if part.shape[1]
    ]
    return torch.cat([transformations.new_zeros(0, dtype=torch.float64), *found]) / batch**2


def _smallest_of_slices(transformations: Tensor) -> Tensor:
    """``S_min(sum_i A_i A_i')`` for ``(records, slices, weights of a slice, pixels)``."""
    _, slices, size, _ = transformations.shape
    total = transformations.new_zeros(slices, size, size, dtype=torch.float64)
    for matrices in transformations:
        precise = matrices.double()
        total += precise @ precise.mT
    ordered = torch.linalg.eigvalsh(total)
    # A's own rounding enters squared, the sum's once.
    unit = max(torch.finfo(transformations.dtype).eps ** 2, torch.finfo(torch.float64).eps)
    smallest, largest = ordered[:, 0], ordered[:, -1]
    return torch.where(smallest > size * unit * largest, smallest, 0.0)


def additional_noise(s_min: Tensor, *, sigma: float, steps: int, low: float, up: float) -> Tensor:
    """004 Alg. 3 line 16: the deviation of the noise that is added to each slice's gradient.

    ``xi_up`` where ``sqrt(T s_min) sigma < xi_low``, ``sqrt(xi_up^2 - T s_min sigma^2)`` from there up to
    ``xi_up``, 0 beyond. ``sigma`` is that of the input noise, ``steps`` is ``T``, ``low`` and ``up`` are
    ``xi_low`` and ``xi_up``. Continuous at ``xi_up``, a jump at ``xi_low``.

    Added to what the input noise is *counted* as, this makes ``xi_up``. It is not noise of deviation
    ``xi_up``: where the credit is untrue (see above) the gradient has this noise and no more.
    """
    checks.nonnegative("the input noise", sigma)
    checks.count("steps", steps)
    if checks.nonnegative("xi_low", low) > checks.nonnegative("xi_up", up):
        raise RequestError(f"xi_low ({low}) must not be above xi_up ({up})")
    credited = (steps * sigma**2) * s_min
    missing = (up**2 - credited).clamp_min(0).sqrt()
    return torch.where(credited.sqrt() < low, up, missing)
