"""VAE-GAN: a VAE whose reconstructed and synthetic rows a critic tells from real ones (004 section 3.3)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hauberk.synthesis.game import Game, wasserstein_loss
from hauberk.synthesis.networks import (
    Decoder,
    Encoder,
    negative_log_likelihood,
    turned,
)
from hauberk.synthesis.neural import NeuralSynthesizer
from hauberk.synthesis.packing import RowShape
from hauberk.synthesis.scales import Scales
from hauberk.synthesis.vae import VaeSettings, encoded, start_certain


@dataclass(frozen=True, kw_only=True)
class VaeGanSettings(VaeSettings):
    """``critic_weight``: of what the critic says to the decoder, beside reconstruction and divergence."""

    critic_weight: float = 1.0


class CriticisedAutoencoder(Game):
    """Per record: reconstruction, divergence, and the critic's loss on the record and two made rows.

    The critic's gradient goes down that loss and, reversed, the autoencoder's goes up it: all networks move
    in the same step, by one clipped gradient per record, which is one event.
    """

    def __init__(self, shape: RowShape, settings: VaeGanSettings) -> None:
        latent, width = settings.latent, settings.width
        super().__init__(
            shape, latent=latent, noise_width=2 * latent + shape.width, persistence=settings.persistence
        )
        self.settings = settings
        self.encoder = Encoder(shape, width=width, outputs=2 * latent)
        self.decoder = Decoder(shape, width=width, latent=latent)
        self.critic = Encoder(shape, width=width, outputs=1, critic=True)

    def start_from(self, scales: Scales) -> None:
        self.decoder.start_from(scales)
        start_certain(self.encoder)
        super().start_from(scales)

    @property
    def critics(self) -> Iterable[nn.Module]:
        return (self.critic,)

    def record_loss(self, rows: Tensor, noise: Tensor) -> Tensor:
        width, settings = self.shape.width, self.settings
        latent_noise, prior, coins = noise.split([self.latent, self.latent, width], -1)
        latent, divergence = encoded(self.encoder, rows, latent_noise)
        head, steps, spread = self.decoder(torch.stack([latent, prior], -2))
        reconstructed = (head[..., 0, :], steps[..., 0, :, :], spread[..., 0, :])
        cost = negative_log_likelihood(reconstructed, rows, self.shape, head_weight=settings.head_weight)
        # both made rows by the same coins: noise is not free, and neither row minds
        made = self.drawn((head, steps, spread), torch.stack([coins, coins], -2))
        fakes = turned(made, settings.critic_weight).unbind(-2)
        criticised = wasserstein_loss(self.critic, rows, fakes)
        return cost + settings.divergence_weight * divergence / self.shape.steps + criticised

    def generate(self, latent: Tensor, noise: Tensor) -> Tensor:
        return self.drawn(self.decoder(latent), noise)


class VAEGAN(NeuralSynthesizer):
    """Trains a `CriticisedAutoencoder`."""

    name = "vae-gan"
    settings_kind = VaeGanSettings

    def build_game(self, shape: RowShape) -> Game:
        assert isinstance(self.settings, VaeGanSettings)
        return CriticisedAutoencoder(shape, self.settings)
