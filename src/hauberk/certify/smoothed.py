"""A classifier smoothed by Gaussian input noise, with its Monte Carlo certificate.

The smoothed classifier answers with the class that the network most often gives to ``x + N(0, sigma^2 I)``.
It is this classifier that is certified and deployed, not the network underneath.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hauberk.certify.certificates import tight_radius
from hauberk.certify.confidence import clopper_pearson_lower
from hauberk.errors import RequestError

ABSTAINED = -1
_ROWS_AT_ONCE = 512  # on a CPU: activations stay in its cache
_ROWS_AT_ONCE_ON_A_DEVICE = 16_384


@dataclass(frozen=True, kw_only=True)
class Certificates:
    """One row per input. Abstentions have label -1 and radius 0."""

    labels: NDArray[np.int64]
    radii: NDArray[np.float64]
    votes: NDArray[np.int64]  # for the selected class, among the estimation draws
    samples: int
    alpha: float

    @property
    def abstained(self) -> NDArray[np.bool_]:
        return np.equal(self.labels, ABSTAINED)


@contextlib.contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Force eval mode (no dropout, no batch statistics) and restore every layer's own mode afterwards."""
    modes = {layer: layer.training for layer in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for layer, training in modes.items():
            layer.training = training


def _refuse_batch_statistics(model: nn.Module) -> None:
    for path, layer in model.named_modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) and layer.running_mean is None:
            raise RequestError(
                f"{type(layer).__name__} at '{path}' uses the statistics of the batch: an input's answer "
                "would depend on other inputs, and no certificate can hold"
            )


class Smoothed:
    """``model`` smoothed with input noise of standard deviation ``sigma``."""

    def __init__(self, model: nn.Module, *, sigma: float, classes: int) -> None:
        if not 0 < sigma < float("inf"):
            raise RequestError(f"sigma must be positive, got {sigma}: without noise there is no certificate")
        _refuse_batch_statistics(model)
        self.model, self.sigma, self.classes = model, sigma, classes

    @property
    def gain(self) -> float:
        """Whitened l2 gain of the noise layer."""
        return 1.0 / self.sigma

    @property
    def device(self) -> torch.device:
        for tensor in (*self.model.parameters(), *self.model.buffers()):
            return tensor.device
        return torch.device("cpu")

    def noisy(self, x: Tensor, generator: torch.Generator) -> Tensor:
        noise = torch.randn(x.shape, generator=generator, device=x.device, dtype=x.dtype)
        return x + self.sigma * noise

    @torch.no_grad()
    def count_votes(self, x: Tensor, samples: int, generator: torch.Generator) -> NDArray[np.int64]:
        """Votes per class, ``(inputs, classes)``, from ``samples`` fresh draws per input.

        A draw whose scores hold NaN is a vote for nobody: argmax would name a class all the same.
        """
        counts = torch.zeros(len(x), self.classes, dtype=torch.int64, device=self.device)
        limit = _ROWS_AT_ONCE if self.device.type == "cpu" else _ROWS_AT_ONCE_ON_A_DEVICE
        at_once = max(1, limit // max(1, samples))
        with evaluation_mode(self.model):
            for start in range(0, len(x), at_once):
                rows = x[start : start + at_once].to(self.device)
                remaining = samples
                while remaining > 0:
                    draws = min(remaining, max(1, limit // len(rows)))
                    logits = self.model(self.noisy(rows.repeat_interleave(draws, 0), generator))
                    if logits.shape != (len(rows) * draws, self.classes):
                        raise RequestError(
                            f"the network's scores have shape {tuple(logits.shape)} for {len(rows) * draws} "
                            f"inputs: it must give one score for each of the {self.classes} classes"
                        )
                    votes = nn.functional.one_hot(logits.argmax(1), self.classes)
                    votes *= ~logits.isnan().any(1, keepdim=True)
                    counts[start : start + len(rows)] += votes.view(len(rows), draws, self.classes).sum(1)
                    remaining -= draws
        return np.asarray(counts.cpu().numpy(), dtype=np.int64)

    def certify(
        self,
        x: Tensor,
        *,
        samples: int = 1000,
        alpha: float = 0.001,
        selection_samples: int = 100,
        seed: int = 0,
        progress: Callable[[int], None] | None = None,
    ) -> Certificates:
        """Label and certified l2 radius for every input.

        The class is selected on ``selection_samples`` draws and its probability bounded on ``samples`` other
        draws (Clopper–Pearson). Guarantee, for each input on its own: with probability at least
        ``1 - alpha`` over the draws, the smoothed classifier's answer on every input within the radius is the
        returned label (Cohen et al. 2019, CERTIFY).
        """
        if samples < 1 or selection_samples < 1:
            raise RequestError("certification needs at least one draw for selection and one for estimation")
        if not 0 < alpha < 1:
            raise RequestError(f"alpha must lie strictly between 0 and 1, got {alpha}")
        generator = torch.Generator(device=self.device).manual_seed(seed)
        labels, votes = [], []
        for part in x.split(64) if len(x) else []:
            chosen = self.count_votes(part, selection_samples, generator).argmax(1)
            counted = self.count_votes(part, samples, generator)
            labels.append(chosen)
            votes.append(np.take_along_axis(counted, chosen[:, None], 1)[:, 0])
            if progress is not None:
                progress(len(part))
        label = np.concatenate(labels) if labels else np.empty(0, dtype=np.int64)
        vote = np.concatenate(votes) if votes else np.empty(0, dtype=np.int64)
        lower = clopper_pearson_lower(vote, samples, alpha)
        certain = lower > 0.5
        return Certificates(
            labels=np.where(certain, label, ABSTAINED),
            radii=np.where(certain, tight_radius(lower, gain=self.gain), 0.0),
            votes=vote,
            samples=samples,
            alpha=alpha,
        )


def largest_radius(*, gain: float, samples: int, alpha: float) -> float:
    """What unanimous votes would certify: the cap that ``samples`` and ``alpha`` put on every radius."""
    lower = clopper_pearson_lower(samples, samples, alpha)
    return float(tight_radius(lower, gain=gain)) if lower > 0.5 else 0.0
