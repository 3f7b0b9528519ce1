"""The networks of adversarial imitation (004 Fig. 5.2): from an input and its label to a perturbation.

    [input, label channel] -> four convolutions, each with residual blocks, self-attention before the last
                           -> central state + noise
                           -> the same backwards -> z -> clipped to [-B, B] (Eq. 5.3)

Guarantee: whatever the weights are, ``moved`` leaves neither the bound nor [0, 1], up to the rounding of one
float32 addition; `hauberk.attacks.imitation.saved` holds what it gives away to the bound exactly.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from hauberk.errors import RequestError
from hauberk.progress import Progress, silent

_SHRINKS = 4  # two convolutions of stride 2: sides are padded to multiples of this
_LEAK = 0.2
_EXTRACTOR_EPOCHS = 40


class _Clip(torch.autograd.Function):
    """``clamp(z, -B, B)`` whose gradient still leads values outside back in.

    The gradient of a plain clamp is zero outside, so that a pixel that has once reached the bound with the
    wrong sign stays there for ever. This is projected gradient descent on the clipped values: a step further
    out is ignored, a step back in is taken.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, bound: float) -> Tensor:
        ctx.save_for_backward(z)
        ctx.bound = bound
        return z.clamp(-bound, bound)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (z,), (gradient,) = ctx.saved_tensors, gradients
        further_out = ((z > ctx.bound) & (gradient < 0)) | ((z < -ctx.bound) & (gradient > 0))
        return gradient.masked_fill(further_out, 0.0), None


def clipped(z: Tensor, bound: float) -> Tensor:
    """Eq. 5.3; a value that is no number moves nothing."""
    kept: Tensor = _Clip.apply(z.nan_to_num(0.0, posinf=torch.inf, neginf=-torch.inf), bound)  # type: ignore[no-untyped-call]
    return kept


class PerturbationNetwork(nn.Module, ABC):
    """Something that makes a perturbation of an input in one pass.

    ``shape`` is that of one input, ``noise_shape`` that of the random numbers which one example takes: with
    none, an input has a single adversarial example.
    """

    def __init__(self, shape: tuple[int, int, int], classes: int) -> None:
        super().__init__()
        if len(shape) != 3 or min(shape) < 1:
            raise RequestError(
                f"imitation networks perturb pictures (channels, height, width), not inputs of shape {shape}"
            )
        self.shape, self.classes = tuple(shape), classes

    @property
    def noise_shape(self) -> tuple[int, ...] | None:
        return None

    @abstractmethod
    def forward(self, x: Tensor, labels: Tensor, noise: Tensor | None = None) -> Tensor:
        """``z``, not yet clipped; ``noise`` is standard normal."""

    def moved(
        self, x: Tensor, labels: Tensor, noise: Tensor | None, bound: float, *, stretch: float = 1.0
    ) -> tuple[Tensor, Tensor]:
        """The adversarial example ``x' = x + p`` within [0, 1], and ``p`` (Eq. 5.3), ``stretch`` times z."""
        perturbation = clipped(stretch * self(x, labels, noise), bound)
        return (x + perturbation).clamp(0.0, 1.0), perturbation

    def draw_noise(self, count: int, generator: torch.Generator) -> Tensor | None:
        """For ``count`` examples, or None where the network takes no noise."""
        if self.noise_shape is None:
            return None
        return torch.randn(count, *self.noise_shape, generator=generator, device=generator.device)


class LabelExtractor(nn.Module):
    """From a class to a channel of the input's size, with values in (0, 1) like the input's own.

    The encoder of an auto-encoder of one-hot labels (004, label conditioning). The thesis normalises after
    the sigmoid; here before it, so that the values stay in the domain that it wants.
    """

    def __init__(self, classes: int, height: int, width: int) -> None:
        super().__init__()
        self.classes, self.size = classes, (height, width)
        self.spread_out = nn.Linear(classes, height * width)
        self.normalise = nn.LayerNorm(height * width)
        self.recognise = nn.Linear(height * width, classes)

    def forward(self, labels: Tensor) -> Tensor:
        hot = functional.one_hot(labels, self.classes).to(self.spread_out.weight.dtype)
        return torch.sigmoid(self.normalise(self.spread_out(hot))).view(-1, 1, *self.size)

    def train_once(self, *, progress: Progress = silent) -> float:
        """Fit the auto-encoder by cross-entropy and freeze it; the share of classes that it recognises."""
        labels = torch.arange(self.classes, device=self.spread_out.weight.device)
        optimizer = torch.optim.Adam(self.parameters(), lr=0.02)
        for epoch in range(_EXTRACTOR_EPOCHS):
            optimizer.zero_grad(set_to_none=True)
            functional.cross_entropy(self.recognise(self(labels).flatten(1)), labels).backward()
            optimizer.step()
            progress("label extractor", epoch + 1, _EXTRACTOR_EPOCHS)
        self.requires_grad_(False)
        with torch.no_grad():
            known = self.recognise(self(labels).flatten(1)).argmax(1) == labels
        return float(known.float().mean())


class ResidualBlock(nn.Module):
    """Two convolutions whose result is added to their input; ``residual`` False leaves the addition out."""

    def __init__(self, channels: int, *, residual: bool) -> None:
        super().__init__()
        self.residual = residual
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 1),
            nn.GroupNorm(1, channels),
            nn.LeakyReLU(_LEAK),
            nn.Conv2d(channels, channels, 3, padding=1),
        )

    def forward(self, x: Tensor) -> Tensor:
        through: Tensor = self.body(x)
        return functional.leaky_relu(x + through if self.residual else through, _LEAK)


class SelfAttention(nn.Module):
    """Every place looks at every place (Zhang et al. 2019); begins as the identity."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        inner = max(1, min(32, channels // 2))
        self.query, self.key = nn.Conv2d(channels, inner, 1), nn.Conv2d(channels, inner, 1)
        self.value, self.out = nn.Conv2d(channels, inner, 1), nn.Conv2d(inner, channels, 1)
        self.weight = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            part(x).flatten(2).transpose(1, 2).unsqueeze(1) for part in (self.query, self.key, self.value)
        )
        seen = functional.scaled_dot_product_attention(query, key, value, scale=1.0)
        attended: Tensor = self.out(seen.squeeze(1).transpose(1, 2).unflatten(2, x.shape[2:]))
        return x + self.weight * attended


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """``widths``: channels after the four convolutions of the encoder; ``blocks``: residual blocks behind
    each. ``noise``: standard deviation in the central state; 0 gives one example per input. The other three
    are what 004 leaves out in Figs. 5.7 and 5.14."""

    widths: tuple[int, int, int, int] = (32, 64, 128, 256)
    blocks: int = 1
    noise: float = 0.1
    attention: bool = True
    residual: bool = True
    conditioned: bool = True

    def __post_init__(self) -> None:
        if len(self.widths) != 4 or min(self.widths) < 1:
            raise RequestError(f"widths are four positive numbers of channels, not {self.widths}")
        if self.blocks < 1:
            raise RequestError(f"blocks must be at least 1, got {self.blocks}")
        if not 0 <= self.noise < float("inf"):
            raise RequestError(f"noise must be 0 (none) or positive, got {self.noise}")


class ImitationNetwork(PerturbationNetwork):
    """AIN. Initial weights come from torch's global generator."""

    def __init__(
        self, shape: tuple[int, int, int], classes: int, architecture: Architecture | None = None
    ) -> None:
        super().__init__(shape, classes)
        self.architecture = architecture = architecture or Architecture()
        channels, height, width = shape
        self._padding = (0, -width % _SHRINKS, 0, -height % _SHRINKS)
        self.extractor = LabelExtractor(classes, height, width) if architecture.conditioned else None
        first, second, third, last = architecture.widths

        def with_blocks(layer: nn.Module, made: int) -> nn.Sequential:
            blocks = [ResidualBlock(made, residual=architecture.residual) for _ in range(architecture.blocks)]
            return nn.Sequential(layer, nn.GroupNorm(1, made), nn.LeakyReLU(_LEAK), *blocks)

        def attention(made: int) -> nn.Module:
            return SelfAttention(made) if architecture.attention else nn.Identity()

        self.encoder = nn.Sequential(
            with_blocks(nn.Conv2d(channels + architecture.conditioned, first, 4, 2, 1), first),
            with_blocks(nn.Conv2d(first, second, 3, 1, 1), second),
            with_blocks(nn.Conv2d(second, third, 4, 2, 1), third),
            attention(third),
            with_blocks(nn.Conv2d(third, last, 3, 1, 1), last),
        )
        self.decoder = nn.Sequential(
            with_blocks(nn.Conv2d(last, third, 3, 1, 1), third),
            attention(third),
            with_blocks(nn.ConvTranspose2d(third, second, 4, 2, 1), second),
            with_blocks(nn.Conv2d(second, first, 3, 1, 1), first),
            nn.ConvTranspose2d(first, channels, 4, 2, 1),
        )
        self._central = (
            last,
            (height + self._padding[3]) // _SHRINKS,
            (width + self._padding[1]) // _SHRINKS,
        )

    @property
    def noise_shape(self) -> tuple[int, ...] | None:
        return self._central if self.architecture.noise else None

    def forward(self, x: Tensor, labels: Tensor, noise: Tensor | None = None) -> Tensor:
        seen = x if self.extractor is None else torch.cat([x, self.extractor(labels)], dim=1)
        state = self.encoder(functional.pad(seen, self._padding))
        if noise is not None:
            state = state + self.architecture.noise * noise
        z: Tensor = self.decoder(state)
        return z[..., : self.shape[1], : self.shape[2]]
