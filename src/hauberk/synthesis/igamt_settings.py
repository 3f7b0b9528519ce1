"""The public constants of IGAMT, its forms and its ablations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from hauberk.errors import RequestError
from hauberk.synthesis.neural import AutoencoderSettings

VARIANTS = ("sound", "paper")
PROTECTIONS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "joint": MappingProxyType({}),
        # a decoder that only critics teach: what they say counts, in small steps
        "critics": MappingProxyType(
            {"critic_weight": 1.0, "reconstruction_weight": 0.1, "generator_lr": 1e-3}
        ),
    }
)
"""What records touch, and the settings that go with it."""

ABLATIONS: Mapping[str, Mapping[str, bool]] = MappingProxyType(
    {
        "none": MappingProxyType({}),
        "w/o_emb": MappingProxyType(
            {"imitator": False, "mask_critic": False, "time_embedding": False, "static_embedding": False}
        ),
        "only_t_emb": MappingProxyType({"imitator": False, "mask_critic": False, "static_embedding": False}),
        "w/o_imi": MappingProxyType({"imitator": False, "mask_critic": False}),
        "w/o_imi_var": MappingProxyType({"imitator": False}),
    }
)
"""The rows of 004 Table 4.1, by its names, and what each leaves out; ``w/o_imi_var`` is EDGAMT."""


@dataclass(frozen=True, kw_only=True)
class IgamtSettings(AutoencoderSettings):
    """``variant`` and ``protect`` say what records touch (`hauberk.synthesis.igamt`).

    ``persistence`` is the weight of the value last observed where training begins. ``code_noise`` is the
    deviation of the noise on central hidden states while a decoder learns from them: states that lie near
    each other then mean nearly the same, which a generator of states can learn. ``reconstruction_weight`` is
    that of the likelihood per step, ``critic_weight`` what D_x and D_m say to decoders beside it,
    ``latent_weight`` what D_z says to the encoder, ``imitation_weight`` what imitation says to the imitator.
    ``generated`` rows are made anew every ``refresh`` steps. Critics move in ``critic_hit`` steps of every
    ``critic_base`` (fh and fb of Algorithm 1). ``published_clip`` and ``published_critic_lr`` are for
    ``variant="paper"`` alone.
    """

    variant: str = "sound"
    protect: str = "joint"
    heads: int = 4
    layers: int = 1
    critic_width: int = 32
    generated: int = 64
    refresh: int = 4
    code_noise: float = 1.0
    critic_weight: float = 0.1
    latent_weight: float = 0.1
    imitation_weight: float = 10.0
    reconstruction_weight: float = 1.0
    generator_lr: float = 1e-3
    critic_base: int = 1
    critic_hit: int = 1
    time_embedding: bool = True
    static_embedding: bool = True
    mask_critic: bool = True
    imitator: bool = True
    published_clip: float = 0.5
    published_critic_lr: float = 1e-4

    def __post_init__(self) -> None:
        super().__post_init__()
        for named, value, allowed in (
            ("variant", self.variant, VARIANTS),
            ("protect", self.protect, PROTECTIONS),
        ):
            if value not in allowed:
                raise RequestError(f"{named} of igamt must be one of {', '.join(allowed)}, got '{value}'.")
        if (
            min(self.heads, self.layers, self.critic_width, self.generated, self.refresh) < 1
            or self.width % self.heads
        ):
            raise RequestError(
                "heads, layers, critic_width, generated and refresh must be at least 1, and heads divide "
                "the width."
            )
        if not 1 <= self.critic_hit <= self.critic_base:
            raise RequestError("critic_hit must lie between 1 and critic_base.")
        if not (self.generator_lr > 0 and self.published_clip > 0 and self.published_critic_lr > 0):
            raise RequestError("learning rates and the published clip must be positive.")

    @property
    def published(self) -> bool:
        return self.variant == "paper"


def ablated(name: str) -> dict[str, Any]:
    """What `dataclasses.replace` needs to make an ablation of settings."""
    if name not in ABLATIONS:
        raise RequestError(f"there is no ablation '{name}' of igamt; choose one of {', '.join(ABLATIONS)}.")
    return dict(ABLATIONS[name])


def protected(name: str) -> dict[str, Any]:
    """The same for what records touch."""
    return {"protect": name, **PROTECTIONS.get(name, {})}  # the settings refuse a name that does not exist
