"""IGAMT as published: Algorithm 1 of 004, misprints repaired.

    for each part that is perturbed (D_x, D_m, D_z, the last layer of Dec):
        g = mean gradient of the batch;  g = g / max(1, |g| / C);  step by g + N(0, sigma^2)
    for each other part (Enc, the rest of Dec, Dec_i, G):  step by the mean gradient

Nothing can be proven about it. The mean of a batch is clipped and not what a record gives; the noise does not
grow with C; the four parts share one epsilon though each is a release; and Enc, Dec and Dec_i step by
gradients of records without any noise, the imitator's through ``MSE(x * m, x- * m-)``. What steps without
noise is in `PublishedNoise.unprotected` after every step, for whoever wants to see it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from hauberk.accounting import Event, PrivacyPlan, UnprotectedEvent
from hauberk.gradients import ClippedSum
from hauberk.randomness import Randomness
from hauberk.synthesis.igamt_game import ImitativeGame
from hauberk.synthesis.igamt_last_layer import decoded
from hauberk.synthesis.igamt_settings import IgamtSettings
from hauberk.synthesis.networks import turned
from hauberk.training.noise import Released
from hauberk.training.optimisation import MakeOptimizer, Optimisation

REASON = (
    "Algorithm 1 clips the mean of a batch and not each patient, adds noise that does not grow with the clip "
    "and trains encoder, decoder and imitator on patients without noise"
)
CLAIM_SOURCE = (
    "004 Theorem 2 as its authors use it: one Gaussian release of noise multiplier sigma a step, whatever "
    "the clip and however many networks step"
)
NOTES = (
    "Noise of deviation sigma goes on gradients of norm at most the published clip, as Algorithm 1 prints.",
    "Every part steps by Adam at the published rates; the generator has no batch normalisation.",
)
PERTURBED: Mapping[str, tuple[str, ...]] = {
    "D_x": ("critic.",),
    "D_m": ("mask_critic.",),
    "D_z": ("latent_critic.",),
    "last layer of Dec": ("last.", "outcome_head."),
}
"""The parts whose gradients Algorithm 1 clips and perturbs, by what their weights' names begin with."""
_DECAY = 0.99  # of the learning rates, each epoch


class PublishedGame(ImitativeGame):
    """All losses of the thesis in one pass; every part is trained on records, G and Dec_i among them.

    Per record: Eqs. 4.1 to 4.4 and 4.6 with those of appendix .1 as in the other forms, and Eq. 4.5 in full.
    Each part goes down its own loss alone: gradients are stopped or turned between the parts.
    """

    def apprentices(self) -> dict[str, nn.Module]:
        return {}

    def record_loss(self, rows: Tensor, noise: Tensor) -> Tensor:
        settings, meeting = self.settings, self.meet(rows, noise)
        fakes = turned(meeting.drawn, settings.critic_weight).unbind(-2)
        if self.imitator is None:
            return meeting.loss + self.criticised(rows, fakes)
        before = self.imitated_rows[meeting.place]
        outputs = decoded(
            self.imitator, self.last, before, meeting.made_state, self.past(before), frozen=True
        )
        imitated = self.drawn(outputs, self.made_coins[meeting.place])
        likeness = imitation_loss(imitated, rows, meeting.drawn.detach().unbind(-2))
        judged = self.criticised(rows, (*fakes, turned(imitated, settings.critic_weight)))
        return meeting.loss + judged + settings.imitation_weight * likeness


def imitation_loss(imitated: Tensor, rows: Tensor, made: Iterable[Tensor]) -> Tensor:
    """``MSE(x^, x-) + MSE(x~, x-) + MSE(x, x-)`` for each record: the l_im of 004 section 4.2.4.

    Rows hold data times mask, and masks. The last term is where records reach the imitator without noise.
    """
    parts = [(each - imitated).square().mean(-1) for each in (*made, rows)]
    return torch.stack(parts).sum(0)


class PublishedNoise:
    """The perturbation of Algorithm 1 on a batch's gradients; promises nothing.

    ``unprotected`` holds, after each step, the mean gradients that were applied without noise.
    """

    looks_at_records = False

    def __init__(
        self, plan: PrivacyPlan, settings: IgamtSettings, *, sigma: float, randomness: Randomness
    ) -> None:
        self._plan, self._settings, self.sigma, self._randomness = plan, settings, sigma, randomness
        self.unprotected: dict[str, Tensor] = {}

    def events(self, steps: int) -> tuple[Event, ...]:
        return (UnprotectedEvent(count=steps),)

    def deviation(self, sensitivity: float) -> float:
        """Of the noise on the sum of a batch."""
        return self.sigma * self._plan.batch

    def state(self) -> dict[str, Tensor]:
        return {}

    def release(self, clipped: ClippedSum, step: int) -> Released:
        settings, batch = self._settings, self._plan.batch
        means = {name: gradient / batch for name, gradient in clipped.gradients.items()}
        hit = step % settings.critic_base < settings.critic_hit
        total = sum(gradient.numel() for gradient in means.values())
        device = next(iter(means.values())).device
        normals = self._randomness.normals(step=step, count=total, device=device)
        noises = dict(zip(means, normals.split([each.numel() for each in means.values()]), strict=True))
        released = dict(means)
        for part, prefixes in PERTURBED.items():
            names = [name for name in means if name.startswith(prefixes)]
            norm = torch.cat([means[name].flatten() for name in names] or [torch.zeros(1)]).norm()
            factor = 1 / torch.clamp(norm / settings.published_clip, min=1.0)
            moves = float(hit or part == "last layer of Dec")
            for name in names:
                noise = noises[name].view_as(means[name]).to(means[name])
                released[name] = moves * (means[name] * factor + self.sigma * noise)
        perturbed = tuple(prefix for prefixes in PERTURBED.values() for prefix in prefixes)
        self.unprotected = {name: each for name, each in means.items() if not name.startswith(perturbed)}
        return Released(gradients={name: each * batch for name, each in released.items()}, count_normal=None)


def published_optimisation(game: ImitativeGame, settings: IgamtSettings, plan: PrivacyPlan) -> Optimisation:
    """Adam with one rate for critics and one for all else, both falling by a hundredth each epoch."""
    of_critics = {id(weight) for critic in game.critics for weight in critic.parameters()}

    def make(weights: list[nn.Parameter]) -> torch.optim.Optimizer:
        critics = [weight for weight in weights if id(weight) in of_critics]
        others = [weight for weight in weights if id(weight) not in of_critics]
        return torch.optim.Adam(
            [
                {"params": others, "lr": settings.lr},
                {"params": critics, "lr": settings.published_critic_lr},
            ]
        )

    def falling(step: int, steps: int) -> float:
        return _DECAY ** int(step * plan.sampling_rate)

    optimizer: MakeOptimizer = make
    return Optimisation(lr=settings.lr, averaging=0.0, optimizer=optimizer, schedule=falling)
