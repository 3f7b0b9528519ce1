"""GAN: a generator that records never touch, and a critic that tells its rows from real ones (004 ch. 3)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hauberk.errors import RequestError
from hauberk.randomness import Key, keyed_normals
from hauberk.synthesis.game import Game, wasserstein_loss
from hauberk.synthesis.networks import Decoder, Encoder
from hauberk.synthesis.neural import NeuralSettings, NeuralSynthesizer
from hauberk.synthesis.packing import RowShape
from hauberk.synthesis.scales import Scales

_AVERAGING = 0.99


@dataclass(frozen=True, kw_only=True)
class GanSettings(NeuralSettings):
    """The generator moves after every ``critic_steps`` steps of the critic, by ``generated`` made rows."""

    critic_steps: int = 2
    generated: int = 128
    generator_lr: float = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.critic_steps < 1 or self.generated < 1 or not self.generator_lr > 0:
            raise RequestError("critic_steps, generated and generator_lr of a GAN must be positive.")


class AdversarialGenerator(Game):
    """Per record: the critic's score of a made row minus that of the record.

    Only the critic is trained on records, every one of its updates on a Poisson sample of its own and
    therefore an event of its own. The generator reads the critic's released weights and its own noise:
    post-processing. ``released`` is the average of the generator over the steps, from which rows are made.
    """

    def __init__(self, shape: RowShape, settings: GanSettings) -> None:
        latent, width = settings.latent, settings.width
        super().__init__(
            shape, latent=latent, noise_width=latent + shape.width, persistence=settings.persistence
        )
        self.settings = settings
        self.critic = Encoder(shape, width=width, outputs=1, critic=True)
        self.generator = Decoder(shape, width=width, latent=latent)
        self.released = Decoder(shape, width=width, latent=latent)
        self.memory = AdamMemory(self.generator)
        for network in (self.generator, self.released):
            network.requires_grad_(False)

    def start_from(self, scales: Scales) -> None:
        self.generator.start_from(scales)
        self.released.load_state_dict(self.generator.state_dict())
        super().start_from(scales)

    @property
    def critics(self) -> Iterable[nn.Module]:
        return (self.critic,)

    def record_loss(self, rows: Tensor, noise: Tensor) -> Tensor:
        latent, coins = noise.split([self.latent, self.shape.width], -1)
        return wasserstein_loss(self.critic, rows, (self.drawn(self.generator(latent), coins),))

    def generate(self, latent: Tensor, noise: Tensor) -> Tensor:
        return self.drawn(self.released(latent), noise)

    def after_step(self, *, step: int, steps: int, key: Key) -> None:
        super().after_step(step=step, steps=steps, key=key)
        if (step + 1) % self.settings.critic_steps == 0:
            self._move_generator(step=step, steps=steps, key=key)

    def _move_generator(self, *, step: int, steps: int, key: Key) -> None:
        # made rows have numbers that no record has: their noise is their own
        places = torch.arange(2**31, 2**31 + self.settings.generated)
        noise = keyed_normals(key, step=step, records=places, views=1, shape=(self.noise_width,))[:, 0]
        latent, coins = noise.split([self.latent, self.shape.width], -1)
        weights = list(self.generator.parameters())
        self.generator.requires_grad_(True)
        with torch.enable_grad():
            loss = -self.critic(self.drawn(self.generator(latent), coins)).mean()
            gradients = torch.autograd.grad(loss, weights)
        self.generator.requires_grad_(False)
        rate = self.settings.generator_lr * min(1.0, (steps - step) / (0.3 * steps))
        with torch.no_grad():
            self.memory.move(weights, gradients, rate=rate)
            for average, weight in zip(self.released.parameters(), weights, strict=True):
                average.lerp_(weight, 1 - _AVERAGING)


class AdamMemory(nn.Module):
    """Adam's memory of the generator as buffers, so that a checkpoint holds it."""

    count: Tensor

    def __init__(self, network: nn.Module, *, first: float = 0.5, second: float = 0.99) -> None:
        super().__init__()
        self._first, self._second = first, second
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        for place, weight in enumerate(network.parameters()):
            self.register_buffer(f"mean_{place}", torch.zeros_like(weight))
            self.register_buffer(f"square_{place}", torch.zeros_like(weight))

    def move(self, weights: list[nn.Parameter], gradients: tuple[Tensor, ...], *, rate: float) -> None:
        self.count += 1
        done = int(self.count)
        for place, (weight, gradient) in enumerate(zip(weights, gradients, strict=True)):
            mean, square = self.get_buffer(f"mean_{place}"), self.get_buffer(f"square_{place}")
            mean.lerp_(gradient, 1 - self._first)
            square.lerp_(gradient.square(), 1 - self._second)
            corrected = (square / (1 - self._second**done)).sqrt() + 1e-8
            weight.sub_(mean / (1 - self._first**done) / corrected, alpha=rate)


class GAN(NeuralSynthesizer):
    """Class documentation is that of `AdversarialGenerator`, which it trains."""

    name = "gan"
    settings_kind = GanSettings

    def build_game(self, shape: RowShape) -> Game:
        assert isinstance(self.settings, GanSettings)
        return AdversarialGenerator(shape, self.settings)
