"""What a neural synthesizer trains: a module that gives every record's loss, and makes rows from noise.

Privacy of a game. Records enter through ``forward`` alone, one loss per record; its gradient over *all*
trained networks together is clipped once and summed over one Poisson sample, noise is added once: one event
for all networks of a step. Networks that play against each other share that loss (`turned` reverses the sign
where one of them climbs). A network that records do not touch, the generator of a GAN, is no part of it: it
learns in `after_step` from released weights and its own noise, which costs nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from types import MappingProxyType

import torch
from torch import Tensor, nn

from hauberk.gradients import Geometry, ScoreLoss, trainable
from hauberk.randomness import Key, keyed_normals
from hauberk.synthesis.networks import bound_spectral_norms, draw, persistent
from hauberk.synthesis.outcome_head import OutcomeHead
from hauberk.synthesis.packing import RowShape
from hauberk.synthesis.scales import Scales

GRADIENT_SIZES: Mapping[str, float] = MappingProxyType(
    {
        "encoder.": 0.05,
        "generator.": 0.05,
        "latent_critic.": 0.2,
        "critic.": 0.5,
        "decoder.first.": 0.1,
        "decoder.carried.": 0.2,
        "decoder.place.": 0.2,
        "decoder.head.": 0.5,
        "decoder.step.": 1.0,
        "decoder.spread.": 0.5,
        "outcome_head.": 0.3,
    }
)
"""About how large a record's gradient is in each part, from made-up weights: public constants. Clipped and
noised as they are, the large gradients of the last layer would leave nothing but noise for the encoder."""


class Game(nn.Module, ABC):
    """All networks of a synthesizer together.

    ``forward(rows, noise)`` gives one loss per record: that of the networks (`record_loss`) and that of the
    outcome given the row (`OutcomeHead`). The noise of a record, ``noise_width`` standard normals, is a
    function of (step, record) and nothing else. Buffers and weights without a gradient are part of a
    checkpoint. ``persistence``: see `hauberk.synthesis.networks.persistent`.

    Critics need no gradient penalty: their weights are held to spectral norm 1 after every step, which looks
    at released weights only. A penalty would need gradients of gradients for every record (the slow general
    path), and one more term in the loss that takes its share of the clip.
    """

    def __init__(self, shape: RowShape, *, latent: int, noise_width: int, persistence: float = 0.0) -> None:
        super().__init__()
        self.shape, self.latent, self.noise_width = shape, latent, noise_width
        self.persistence = persistence
        self.outcome_head = None if shape.outcome is None else OutcomeHead(shape)

    def start_from(self, scales: Scales) -> None:
        """Begin at the pooled frequencies that were released."""
        if self.outcome_head is not None:
            self.outcome_head.start_from(scales)
        bound_spectral_norms(self.critics)

    def forward(self, rows: Tensor, noise: Tensor) -> Tensor:
        loss = self.record_loss(rows, noise)
        return loss if self.outcome_head is None else loss + self.outcome_head.cost(rows)

    @abstractmethod
    def record_loss(self, rows: Tensor, noise: Tensor) -> Tensor:
        """One number a record, of everything but the outcome."""

    @abstractmethod
    def generate(self, latent: Tensor, noise: Tensor) -> Tensor:
        """Rows from ``(n, latent)`` and ``(n, shape.width)`` standard normals."""

    def drawn(self, outputs: tuple[Tensor, Tensor, Tensor], noise: Tensor) -> Tensor:
        """Rows from a decoder's outputs, then their outcomes from the rows."""
        rows = draw(outputs, persistent(noise, self.shape, self.persistence), self.shape)
        return rows if self.outcome_head is None else self.outcome_head.complete(rows, noise)

    @property
    def critics(self) -> Iterable[nn.Module]:
        """Networks whose weights are held to spectral norm 1."""
        return ()

    def after_step(self, *, step: int, steps: int, key: Key) -> None:
        """What happens to released weights after each step."""
        bound_spectral_norms(self.critics)

    def geometry(self) -> Geometry:
        """The shape of clip and noise: every part gets noise in proportion to its usual gradients."""
        sizes = {
            name: next(size for part, size in GRADIENT_SIZES.items() if name.startswith(part))
            for name in trainable(self)
        }
        return Geometry(sizes)

    def untrained_state(self) -> dict[str, Tensor]:
        """All tensors of the state that private steps do not change, as they are (not copied)."""
        trained = trainable(self)
        return {name: value for name, value in self.state_dict().items() if name not in trained}


class NoiseBesideRows:
    """Views for a game: each record once, and its own standard normals beside it."""

    def __init__(self, noise_width: int) -> None:
        self._noise_width = noise_width

    def __call__(self, x: Tensor, *, records: Tensor, step: int, key: Key) -> tuple[Tensor, Tensor]:
        noise = keyed_normals(key, step=step, records=records, views=1, shape=(self._noise_width,))
        return x.unsqueeze(1), noise

    def __repr__(self) -> str:
        return f"NoiseBesideRows({self._noise_width})"


def _as_it_is(losses: Tensor, labels: Tensor) -> Tensor:
    return losses.mean(1)


game_loss = ScoreLoss(_as_it_is)
"""A game's answer to a record is the record's loss."""


def wasserstein_loss(critic: nn.Module, real: Tensor, fakes: tuple[Tensor, ...]) -> Tensor:
    """``mean over fakes of critic(fake) - critic(real)``, one number a row (004 section 3.3, WGAN).

    Real and fake rows go through the critic in one pass, as positions of the same record.
    """
    scores = critic(torch.stack([real, *fakes], -2)).squeeze(-1)
    difference: Tensor = scores[..., 1:].mean(-1) - scores[..., 0]
    return difference
