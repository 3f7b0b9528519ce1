"""DAAE: two adversaries, one in the latent space and one before the records (004 section 3.3)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hauberk.synthesis.game import Game, wasserstein_loss
from hauberk.synthesis.networks import (
    Decoder,
    Encoder,
    LatentNetwork,
    negative_log_likelihood,
    turned,
)
from hauberk.synthesis.neural import AutoencoderSettings, NeuralSynthesizer
from hauberk.synthesis.packing import RowShape
from hauberk.synthesis.scales import Scales


@dataclass(frozen=True, kw_only=True)
class DaaeSettings(AutoencoderSettings):
    """Weights of what the two critics say, to the generator of codes and to generator and decoder."""

    latent_critic_weight: float = 1.0
    critic_weight: float = 1.0


class DualAdversarialAutoencoder(Game):
    """Per record: reconstruction, the latent critic's loss and the critic's.

    A generator makes codes from noise; the latent critic tells them from the encoder's codes, and the critic
    tells reconstructed rows and rows of generated codes from real ones. All networks are touched by records,
    and all of them move by one clipped gradient per record: one event a step, however many critics.
    """

    def __init__(self, shape: RowShape, settings: DaaeSettings) -> None:
        latent, width = settings.latent, settings.width
        super().__init__(
            shape, latent=latent, noise_width=latent + shape.width, persistence=settings.persistence
        )
        self.settings = settings
        self.encoder = Encoder(shape, width=width, outputs=latent)
        self.decoder = Decoder(shape, width=width, latent=latent)
        self.generator = LatentNetwork(latent, width=width, outputs=latent)
        self.latent_critic = LatentNetwork(latent, width=width, outputs=1)
        self.critic = Encoder(shape, width=width, outputs=1, critic=True)

    def start_from(self, scales: Scales) -> None:
        self.decoder.start_from(scales)
        super().start_from(scales)

    @property
    def critics(self) -> Iterable[nn.Module]:
        return (self.latent_critic, self.critic)

    def record_loss(self, rows: Tensor, noise: Tensor) -> Tensor:
        width, settings = self.shape.width, self.settings
        seed, coins = noise.split([self.latent, width], -1)
        code, made_code = self.encoder(rows), self.generator(seed)
        head, steps, spread = self.decoder(torch.stack([code, made_code], -2))
        reconstructed = (head[..., 0, :], steps[..., 0, :, :], spread[..., 0, :])
        cost = negative_log_likelihood(reconstructed, rows, self.shape, head_weight=settings.head_weight)
        # the encoder's codes are the truth here: the latent critic moves the generator, not the encoder
        told_apart = wasserstein_loss(
            self.latent_critic, code.detach(), (turned(made_code, settings.latent_critic_weight),)
        )
        # both made rows by the same coins: noise is not free, and neither row minds
        made = self.drawn((head, steps, spread), torch.stack([coins, coins], -2))
        fakes = turned(made, settings.critic_weight).unbind(-2)
        return cost + told_apart + wasserstein_loss(self.critic, rows, fakes)

    def generate(self, latent: Tensor, noise: Tensor) -> Tensor:
        return self.drawn(self.decoder(self.generator(latent)), noise)


class DAAE(NeuralSynthesizer):
    """Trains a `DualAdversarialAutoencoder`."""

    name = "daae"
    settings_kind = DaaeSettings

    def build_game(self, shape: RowShape) -> Game:
        assert isinstance(self.settings, DaaeSettings)
        return DualAdversarialAutoencoder(shape, self.settings)
