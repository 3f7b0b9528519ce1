"""VAE: an encoder and a decoder; reconstruction and Kullback-Leibler divergence (004 section 3.3)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hauberk.synthesis.game import Game
from hauberk.synthesis.networks import Decoder, Encoder, negative_log_likelihood
from hauberk.synthesis.neural import AutoencoderSettings, NeuralSynthesizer
from hauberk.synthesis.packing import RowShape
from hauberk.synthesis.scales import Scales

_FIRST_LOG_VARIANCE = -3.0


@dataclass(frozen=True, kw_only=True)
class VaeSettings(AutoencoderSettings):
    """``divergence_weight`` is 1 for the variational bound itself."""

    divergence_weight: float = 1.0


class VariationalAutoencoder(Game):
    """Per record: negative log-likelihood of data and masks, and ``divergence_weight`` times the divergence.

    Everything is touched by records, so all of it is one model with one clipped gradient per record.
    """

    def __init__(self, shape: RowShape, settings: VaeSettings) -> None:
        latent, width = settings.latent, settings.width
        super().__init__(shape, latent=latent, noise_width=latent, persistence=settings.persistence)
        self.settings = settings
        self.encoder = Encoder(shape, width=width, outputs=2 * latent)
        self.decoder = Decoder(shape, width=width, latent=latent)

    def start_from(self, scales: Scales) -> None:
        self.decoder.start_from(scales)
        start_certain(self.encoder)
        super().start_from(scales)

    def record_loss(self, rows: Tensor, noise: Tensor) -> Tensor:
        latent, divergence = encoded(self.encoder, rows, noise)
        cost = negative_log_likelihood(
            self.decoder(latent), rows, self.shape, head_weight=self.settings.head_weight
        )
        return cost + self.settings.divergence_weight * divergence / self.shape.steps

    def generate(self, latent: Tensor, noise: Tensor) -> Tensor:
        return self.drawn(self.decoder(latent), noise)


def encoded(encoder: Encoder, rows: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """A sample of the latent numbers, and the divergence of their distribution from the standard normal."""
    mean, log_variance = encoder(rows).chunk(2, -1)
    log_variance = log_variance.clamp(-8.0, 4.0)
    divergence = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(-1)
    return mean + torch.exp(0.5 * log_variance) * noise, divergence


def start_certain(encoder: Encoder) -> None:
    """Small variances to begin with: under their own noise the first codes would tell a decoder nothing."""
    with torch.no_grad():
        encoder.out.bias.chunk(2)[1].fill_(_FIRST_LOG_VARIANCE)


class VAE(NeuralSynthesizer):
    """Trains a `VariationalAutoencoder`."""

    name = "vae"
    settings_kind = VaeSettings

    def build_game(self, shape: RowShape) -> Game:
        assert isinstance(self.settings, VaeSettings)
        return VariationalAutoencoder(shape, self.settings)
