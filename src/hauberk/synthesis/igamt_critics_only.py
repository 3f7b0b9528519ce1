"""IGAMT with ``protect="critics"``: records touch the critics of rows and nothing else."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hauberk.synthesis.game import wasserstein_loss
from hauberk.synthesis.igamt_game import ImitativeGame
from hauberk.synthesis.igamt_last_layer import decoded
from hauberk.synthesis.igamt_settings import IgamtSettings
from hauberk.synthesis.networks import negative_log_likelihood, turned
from hauberk.synthesis.packing import RowShape


class CriticsGame(ImitativeGame):
    """Records touch D_x, D_m and the outcome's head; Enc, Dec, D_z, G and Dec_i are post-processing.

    Per record: the critics' scores of made rows minus those of the record, and the outcome's likelihood. All
    else learns after the step from the released critics, on made rows: where the thesis takes x, z = Enc(x)
    and x^, this takes x~, Enc(x~) and its reconstruction. Start features come from the released scales.
    """

    reconstructed_rows: Tensor

    def __init__(self, shape: RowShape, settings: IgamtSettings) -> None:
        super().__init__(shape, settings)
        self.register_buffer("reconstructed_rows", torch.zeros(settings.generated, shape.width))

    def apprentices(self) -> dict[str, nn.Module]:
        own = {
            "encoder": self.encoder,
            "decoder": self.decoder,
            "last": self.last,
            "latent_critic": self.latent_critic,
        }
        return {**super().apprentices(), **own}

    def record_loss(self, rows: Tensor, noise: Tensor) -> Tensor:
        place = self.pool_place(noise[..., :1])
        fakes = [self.reconstructed_rows[place], self.made_rows[place]]
        if self.imitator is not None:
            fakes.append(self.imitated_rows[place])
        return self.criticised(rows, tuple(fakes))

    def taught_loss(self) -> Tensor:
        """Eqs. 4.2 to 4.6 with made rows in the place of records."""
        settings, made = self.settings, self.made_rows
        states, made_states = self.states_from(self.generator, self.made_seeds)
        own_states, past = self.state_of(made)
        # the second half of a seed is the noise on a state
        smeared = own_states + settings.code_noise * self.made_seeds.chunk(2, -1)[1]
        both = torch.stack([made, made], -2)
        outputs = decoded(
            self.decoder,
            self.last,
            both,
            torch.stack([smeared, made_states.detach()], -2),
            (torch.stack([past[0]] * 2, -3), torch.stack([past[1]] * 2, -2)),
        )
        drawn = self.drawn(outputs, torch.stack([self.made_coins] * 2, -2))
        self.reconstructed_rows.copy_(drawn[..., 0, :].detach())
        head, steps, spread = (each[:, 0] for each in outputs)
        reconstruction = negative_log_likelihood(
            (head, steps, spread), made, self.shape, head_weight=settings.head_weight
        )
        told = wasserstein_loss(
            self.latent_critic, turned(own_states, settings.latent_weight), (turned(states, 1.0),)
        )
        loss = (settings.reconstruction_weight * reconstruction + told).mean() - self.praise(drawn)
        return loss if self.imitator is None else loss + self.imitation(made_states.detach())
