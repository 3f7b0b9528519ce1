"""AAE: an autoencoder whose latent numbers a critic tells from standard normals (004 section 3.3)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

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
class AaeSettings(AutoencoderSettings):
    """``latent_critic_weight``: of what the latent critic says to the encoder, beside reconstruction."""

    latent_critic_weight: float = 1.0


class AdversarialAutoencoder(Game):
    """Per record: reconstruction, and the latent critic's loss on the record's code and a normal sample.

    The critic replaces the divergence of a VAE. Its gradient goes down its loss and, reversed, the encoder's
    goes up it: one clipped gradient per record and one event a step for all networks.
    """

    def __init__(self, shape: RowShape, settings: AaeSettings) -> None:
        latent, width = settings.latent, settings.width
        super().__init__(shape, latent=latent, noise_width=latent, persistence=settings.persistence)
        self.settings = settings
        self.encoder = Encoder(shape, width=width, outputs=latent)
        self.decoder = Decoder(shape, width=width, latent=latent)
        self.latent_critic = LatentNetwork(latent, width=width, outputs=1)

    def start_from(self, scales: Scales) -> None:
        self.decoder.start_from(scales)
        super().start_from(scales)

    @property
    def critics(self) -> Iterable[nn.Module]:
        return (self.latent_critic,)

    def record_loss(self, rows: Tensor, noise: Tensor) -> Tensor:
        latent = self.encoder(rows)
        cost = negative_log_likelihood(
            self.decoder(latent), rows, self.shape, head_weight=self.settings.head_weight
        )
        codes = turned(latent, self.settings.latent_critic_weight)
        return cost + wasserstein_loss(self.latent_critic, noise, (codes,))

    def generate(self, latent: Tensor, noise: Tensor) -> Tensor:
        return self.drawn(self.decoder(latent), noise)


class AAE(NeuralSynthesizer):
    """Trains an `AdversarialAutoencoder`."""

    name = "aae"
    settings_kind = AaeSettings

    def build_game(self, shape: RowShape) -> Game:
        assert isinstance(self.settings, AaeSettings)
        return AdversarialAutoencoder(shape, self.settings)
