"""IGAMT as a game: Enc, Dec, G, D_z, D_x, D_m and the imitator Dec_i (004 section 4.2, appendix .1).

Symbols: x a record, x^ its reconstruction, x~ a row that Dec makes of a state of G, x- one that Dec_i makes
of the same state through the last layer of Dec; z = Enc(x), z~ = G(s). Every critic's loss is the mean over
its fakes instead of their sum (Eq. 4.1 divided by three), which changes rates and no optimum.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor, nn

from hauberk.gradients import Geometry, trainable
from hauberk.randomness import Key, keyed_normals
from hauberk.synthesis.game import Game, wasserstein_loss
from hauberk.synthesis.gan import AdamMemory
from hauberk.synthesis.igamt_critics import WindowCritic
from hauberk.synthesis.igamt_history import Known, history
from hauberk.synthesis.igamt_last_layer import LastLayer, Outputs, decoded, make_rows
from hauberk.synthesis.igamt_settings import IgamtSettings
from hauberk.synthesis.igamt_transformer import TransformerDecoder, TransformerEncoder, TransformerSizes
from hauberk.synthesis.networks import LatentNetwork, negative_log_likelihood, turned
from hauberk.synthesis.packing import RowShape
from hauberk.synthesis.scales import Scales

_MADE = 2**31  # made rows have numbers that no record has: their noise is their own

GRADIENT_SIZES: Mapping[str, float] = MappingProxyType(
    {
        "encoder.embedding.": 0.15,
        "encoder.blocks.": 0.1,
        "encoder.": 0.25,
        "decoder.embedding.": 0.2,
        "decoder.blocks.": 0.12,
        "decoder.": 0.25,
        "last.head.": 0.5,
        "last.spread.": 0.55,
        "last.": 0.35,
        "critic.": 0.15,
        "mask_critic.": 0.12,
        "latent_critic.": 0.12,
        "outcome_head.": 0.25,
    }
)
"""About the root of a record's usual gradient in a coordinate of each part, from first weights: public
constants. Of all scales under which gradients have one clip these leave the least noise in sum; the outcome's
few weights get a little less than their share."""


class StateGenerator(LatentNetwork):
    """G: standard normals to central hidden states in (-1, 1)."""

    def forward(self, numbers: Tensor) -> Tensor:
        return torch.tanh(super().forward(numbers))


class Held(nn.Module):
    """Weights as they were after the last step that critics may take: buffers, for checkpoints."""

    def __init__(self, critics: Iterable[nn.Module]) -> None:
        super().__init__()
        weights = [weight for critic in critics for weight in critic.parameters()]
        for place, weight in enumerate(weights):
            self.register_buffer(f"weight_{place}", weight.detach().clone())

    @torch.no_grad()
    def settle(self, weights: Iterable[nn.Parameter], *, hit: bool) -> None:
        """Remember the weights of a ``hit``; else put back what was remembered."""
        for place, weight in enumerate(weights):
            kept = self.get_buffer(f"weight_{place}")
            if hit:
                kept.copy_(weight)
            else:
                weight.copy_(kept)


@dataclass(frozen=True, kw_only=True)
class Meeting:
    """A record and the made row it met: ``drawn`` holds x^ and x~, ``made_state`` is z~ for decoders."""

    place: Tensor
    drawn: Tensor
    made_state: Tensor
    loss: Tensor


class ImitativeGame(Game):
    """What all forms of IGAMT share; this class itself is ``protect="joint"``, and the form without privacy.

    Records touch Enc, Dec with its last layer, D_x, D_m, D_z and the outcome's head: one loss per record, one
    clip over all of them, one release a step. Everything that is made (z~, x~, x-) is made after a step from
    released weights and its own noise (``made_...``: a pool of rows that the next step's records meet as
    fakes). G and Dec_i learn from that pool and from critics that were released: post-processing. The terms
    of Eq. 4.5 with x and x^ are dropped.

    Gradients flow through generation: rows are made step by step, and one teacher-forced pass over them with
    the same noise gives the same rows as a function of the weights.
    """

    made_seeds: Tensor
    made_coins: Tensor
    made_rows: Tensor
    imitated_rows: Tensor

    def __init__(self, shape: RowShape, settings: IgamtSettings) -> None:
        latent, width = settings.latent, settings.width
        # a made state takes its seed and the noise that decoders are used to
        super().__init__(shape, latent=2 * latent, noise_width=1 + latent + shape.width)
        self.settings = settings
        sizes = TransformerSizes(
            width=width,
            heads=settings.heads,
            layers=settings.layers,
            latent=latent,
            time=settings.time_embedding,
            static=settings.static_embedding,
        )
        self.known = Known(shape)
        self.encoder = TransformerEncoder(shape, sizes)
        self.decoder = TransformerDecoder(shape, sizes)
        self.last = LastLayer(shape, width=width, latent=latent, persistence=settings.persistence)
        self.critic = WindowCritic(shape, width=settings.critic_width)
        self.mask_critic = (
            WindowCritic(shape, width=settings.critic_width, masks_only=True)
            if settings.mask_critic
            else None
        )
        self.latent_critic = LatentNetwork(latent, width=settings.critic_width, outputs=1)
        self.generator = StateGenerator(latent, width=settings.critic_width, outputs=latent)
        self.imitator = TransformerDecoder(shape, sizes) if settings.imitator else None
        for name, size in (("seeds", self.latent), ("coins", shape.width), ("rows", shape.width)):
            self.register_buffer(f"made_{name}", torch.zeros(settings.generated, size))
        self.register_buffer("imitated_rows", torch.zeros(settings.generated, shape.width))
        self.held = Held(self.critics) if settings.critic_hit < settings.critic_base else None
        # rows are made of the averages over the steps of what learns after steps
        self.released = nn.ModuleDict(deepcopy(self.apprentices()))
        self.memory = AdamMemory(self.released)
        for network in (*self.apprentices().values(), self.released):
            network.requires_grad_(False)

    def apprentices(self) -> dict[str, nn.Module]:
        """What learns after steps, from released weights alone."""
        every = {"generator": self.generator, "imitator": self.imitator}
        return {name: network for name, network in every.items() if network is not None}

    @property
    def critics(self) -> Iterable[nn.Module]:
        every = (self.critic, self.mask_critic, self.latent_critic)
        return tuple(each for each in every if each is not None)

    def start_from(self, scales: Scales) -> None:
        self.known.start_from(scales)
        self.last.start_from(scales)
        if self.imitator is not None:
            self.imitator.load_state_dict(self.decoder.state_dict())
        super().start_from(scales)
        for name, network in self.apprentices().items():
            self.released[name].load_state_dict(network.state_dict())
        if self.held is not None:
            self.held.settle(self._critic_weights(), hit=True)
        self._make((0, 0), step=0)

    def geometry(self) -> Geometry:
        sizes = {
            name: next(size for part, size in GRADIENT_SIZES.items() if name.startswith(part))
            for name in trainable(self)
        }
        return Geometry(sizes)

    # what records touch

    def record_loss(self, rows: Tensor, noise: Tensor) -> Tensor:
        meeting = self.meet(rows, noise)
        fakes = turned(meeting.drawn, self.settings.critic_weight).unbind(-2)
        if self.imitator is not None:
            fakes = (*fakes, self.imitated_rows[meeting.place])
        return meeting.loss + self.criticised(rows, fakes)

    def meet(self, rows: Tensor, noise: Tensor) -> Meeting:
        """Each record through Enc and Dec beside one made row: Eqs. 4.2 to 4.4 without what D_x says."""
        settings = self.settings
        pick, smear, coins = noise.split([1, settings.latent, self.shape.width], -1)
        place = self.pool_place(pick)
        made, made_coins = self.made_rows[place], self.made_coins[place]
        made_state, made_smeared = self.states_from(self.generator, self.made_seeds[place])
        state, _ = self.state_of(rows)
        both = torch.stack([rows, made], -2)
        states = torch.stack([state + settings.code_noise * smear, made_smeared.detach()], -2)
        outputs = decoded(self.decoder, self.last, both, states, self.past(both))
        reconstruction = negative_log_likelihood(
            _first(outputs), rows, self.shape, head_weight=settings.head_weight
        )
        # Enc goes down D_z(z) as D_z goes up it; where G learns here too it goes up D_z(z~)
        told = wasserstein_loss(
            self.latent_critic, turned(state, settings.latent_weight), (turned(made_state, 1.0),)
        )
        return Meeting(
            place=place,
            drawn=self.drawn(outputs, torch.stack([coins, made_coins], -2)),
            made_state=made_smeared.detach(),
            loss=settings.reconstruction_weight * reconstruction + told,
        )

    def criticised(self, rows: Tensor, fakes: tuple[Tensor, ...]) -> Tensor:
        """Eq. 4.1 and, with D_m, that of appendix .1."""
        loss = wasserstein_loss(self.critic, rows, fakes)
        return loss if self.mask_critic is None else loss + wasserstein_loss(self.mask_critic, rows, fakes)

    def past(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        return history(self.shape.parts(rows)[1], self.known)

    def state_of(self, rows: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        past = self.past(rows)
        return self.encoder(rows, past[1]), past

    def states_from(self, generator: nn.Module, seeds: Tensor) -> tuple[Tensor, Tensor]:
        """Central hidden states z~, and as decoders get them: with the noise that they learned with."""
        seed, smear = seeds.chunk(2, -1)
        states = generator(seed)
        return states, states + self.settings.code_noise * smear

    def pool_place(self, pick: Tensor) -> Tensor:
        """The made row that a record meets in this step, chosen by the record's own noise."""
        number = len(self.made_rows)
        share: Tensor = torch.special.ndtr(pick[..., 0])
        return (share * number).long().clamp(0, number - 1)

    # what happens to released weights

    def after_step(self, *, step: int, steps: int, key: Key) -> None:
        super().after_step(step=step, steps=steps, key=key)
        settings = self.settings
        if self.held is not None:
            self.held.settle(self._critic_weights(), hit=step % settings.critic_base < settings.critic_hit)
        if (step + 1) % settings.refresh == 0:
            self._make(key, step=step)
        self._teach(rate=settings.generator_lr * min(1.0, (steps - step) / (0.3 * steps)))

    def _critic_weights(self) -> list[nn.Parameter]:
        return [weight for critic in self.critics for weight in critic.parameters()]

    @torch.no_grad()
    def _make(self, key: Key, *, step: int) -> None:
        """Rows of the present weights, by Dec and by Dec_i from the same states with the same coins."""
        device = self.made_rows.device
        places = torch.arange(_MADE, _MADE + len(self.made_rows), device=device)
        noise = keyed_normals(
            key, step=step, records=places, views=1, shape=(self.latent + self.shape.width,)
        )
        seeds, coins = noise[:, 0].split([self.latent, self.shape.width], -1)
        self.made_seeds.copy_(seeds)
        self.made_coins.copy_(coins)
        _, states = self.states_from(self.generator, seeds)
        self.made_rows.copy_(
            self._completed(make_rows(self.decoder, self.last, self.known, states, coins), coins)
        )
        if self.imitator is not None:
            made = make_rows(self.imitator, self.last, self.known, states, coins)
            self.imitated_rows.copy_(self._completed(made, coins))

    def _teach(self, *, rate: float) -> None:
        """One step of Adam for all that learns after steps, and for their averages."""
        learning = nn.ModuleDict(self.apprentices())
        weights = list(learning.parameters())
        if not weights:
            return
        learning.requires_grad_(True)
        with torch.enable_grad():
            # with one step there is no step before another: a layer may be unused
            gradients = torch.autograd.grad(self.taught_loss(), weights, materialize_grads=True)
        learning.requires_grad_(False)
        with torch.no_grad():
            self.memory.move(weights, gradients, rate=rate)
            for average, weight in zip(self.released.parameters(), weights, strict=True):
                average.lerp_(weight, 1 - self.settings.averaging)

    def taught_loss(self) -> Tensor:
        """Eq. 4.6 for G, and for Dec_i Eq. 4.5 without the terms that hold records."""
        states, smeared = self.states_from(self.generator, self.made_seeds)
        loss: Tensor = -self.latent_critic(states).mean()
        return loss if self.imitator is None else loss + self.imitation(smeared.detach())

    def imitation(self, states: Tensor) -> Tensor:
        """``-D_x(x-) - D_m(m-) + MSE(x~, x-)``, both rows from the same states and coins.

        Dec_i is asked for each step after the steps that Dec made, so that a difference is its own and not
        that of an earlier coin.
        """
        assert self.imitator is not None
        settings, target = self.settings, self.made_rows
        outputs = decoded(self.imitator, self.last, target, states, self.past(target))
        row = self.drawn(outputs, self.made_coins)
        return settings.imitation_weight * (row - target).square().mean() - self.praise(row)

    def praise(self, rows: Tensor) -> Tensor:
        """What the critics say to those who make rows, by its weight (l_de and l_di of appendix .1)."""
        score: Tensor = self.critic(rows).mean()
        if self.mask_critic is not None:
            score = score + self.mask_critic(rows).mean()
        return self.settings.critic_weight * score

    # synthesis

    def _completed(self, rows: Tensor, noise: Tensor) -> Tensor:
        return rows if self.outcome_head is None else self.outcome_head.complete(rows, noise)

    def generate(self, latent: Tensor, noise: Tensor) -> Tensor:
        """The five stages of section 4.2.6: random states (``latent``), hidden states by G, start features,
        step after step by Dec_i (by Dec where there is none) and the last layer, and the assembled row."""
        body = self._final("decoder" if self.imitator is None else "imitator")
        last, generator = self._final("last"), self._final("generator")
        assert isinstance(body, TransformerDecoder)
        assert isinstance(last, LastLayer)
        _, states = self.states_from(generator, latent)
        return self._completed(make_rows(body, last, self.known, states, noise), noise)

    def _final(self, name: str) -> nn.Module:
        """The average of a network that learned after steps, and any other as it is."""
        return self.released[name] if name in self.released else self.get_submodule(name)


def _first(outputs: Outputs) -> Outputs:
    """The record's own distribution, of outputs for the record and a made row."""
    head, steps, spread = outputs
    return head[..., 0, :], steps[..., 0, :, :], spread[..., 0, :]
