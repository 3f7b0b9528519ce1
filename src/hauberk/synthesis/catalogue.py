"""All synthesizers by name. To add one: one file, and one row here; the table test does the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from hauberk.errors import RequestError
from hauberk.synthesis.aae import AAE, AaeSettings
from hauberk.synthesis.base import KIND, Synthesizer, Task
from hauberk.synthesis.class_marginals import MarginalsSettings
from hauberk.synthesis.daae import DAAE, DaaeSettings
from hauberk.synthesis.gan import GAN, GanSettings
from hauberk.synthesis.igamt import IGAMT
from hauberk.synthesis.igamt_settings import IgamtSettings, ablated, protected
from hauberk.synthesis.marginals import Marginals
from hauberk.synthesis.neural import NeuralSettings
from hauberk.synthesis.vae import VAE, VaeSettings
from hauberk.synthesis.vae_gan import VAEGAN, VaeGanSettings
from hauberk.training.run_folder import RunFolder

Size = Literal["tiny", "quick", "full"]
"""``tiny`` is for tests and means nothing, ``quick`` for a first look."""

TINY: Mapping[str, Any] = MappingProxyType({"width": 8, "latent": 3, "batch": 16, "epochs": 2.0})
QUICK_EPOCHS = 0.3  # share of the full number of passes


@dataclass(frozen=True, kw_only=True)
class SynthesizerRow:
    """``plain`` are the settings without privacy, ``private`` those with: noise likes smaller networks.

    ``paper`` are those of the published form, where there is one. ``options`` are what else may be chosen by
    a word: from the word to the settings that it changes.
    """

    kind: type[Synthesizer]
    summary: str
    plain: Any
    private: Any
    paper: Any = None
    options: Mapping[str, Callable[[str], Mapping[str, Any]]] = field(
        default_factory=lambda: MappingProxyType({})
    )

    def settings(self, size: Size, *, private: bool, variant: str = "sound", **chosen: str | None) -> Any:
        """``chosen``: a word for each of ``options``; None where nobody has chosen."""
        full = self._of_variant(variant, private=private)
        for name, word in chosen.items():
            if word is None:
                continue
            if name not in self.options:
                raise RequestError(f"{self.kind.name} has no {name} to choose; leave it out.")
            full = replace(full, **self.options[name](word))
        if not isinstance(full, NeuralSettings) or size == "full":
            return full
        if size == "tiny":
            return replace(full, **TINY)
        return replace(full, epochs=QUICK_EPOCHS * full.epochs)

    def _of_variant(self, variant: str, *, private: bool) -> Any:
        if variant == "sound":
            return self.private if private else self.plain
        if variant != "paper":
            raise RequestError(f"there is no variant '{variant}'; choose sound or paper.")
        if self.paper is None:
            raise RequestError(f"{self.kind.name} has no published form of its own; leave the variant out.")
        return self.paper

    def build(
        self, task: Task, *, size: Size = "full", variant: str = "sound", **chosen: str | None
    ) -> Synthesizer:
        private = task.budget is not None
        return self.kind(task, self.settings(size, private=private, variant=variant, **chosen))


_PRIVATE: Mapping[str, Any] = MappingProxyType(
    {"width": 32, "latent": 6, "batch": 400, "epochs": 60.0, "lr": 5e-3, "persistence": 0.9}
)
_PRIVATE_AUTOENCODER: Mapping[str, Any] = MappingProxyType({**_PRIVATE, "head_weight": 30.0})

SYNTHESIZERS: Mapping[str, SynthesizerRow] = MappingProxyType(
    {
        "marginals": SynthesizerRow(
            kind=Marginals,
            summary="histograms by outcome, window of time and feature; independent sampling",
            plain=MarginalsSettings(),
            private=MarginalsSettings(),
        ),
        "vae": SynthesizerRow(
            kind=VAE,
            summary="variational autoencoder on data and masks",
            plain=VaeSettings(epochs=30.0, divergence_weight=0.3),
            private=VaeSettings(**_PRIVATE_AUTOENCODER, divergence_weight=0.05),
        ),
        "gan": SynthesizerRow(
            kind=GAN,
            summary="Wasserstein GAN; only the critic touches records",
            plain=GanSettings(),
            private=GanSettings(**_PRIVATE),
        ),
        "vae-gan": SynthesizerRow(
            kind=VAEGAN,
            summary="variational autoencoder and a critic of its rows",
            plain=VaeGanSettings(epochs=25.0, divergence_weight=0.3),
            private=VaeGanSettings(**_PRIVATE_AUTOENCODER, divergence_weight=0.05),
        ),
        "aae": SynthesizerRow(
            kind=AAE,
            summary="autoencoder and a critic of its latent numbers",
            plain=AaeSettings(epochs=30.0),
            private=AaeSettings(**_PRIVATE_AUTOENCODER),
        ),
        "daae": SynthesizerRow(
            kind=DAAE,
            summary="autoencoder with a critic of latent numbers and a critic of rows",
            plain=DaaeSettings(epochs=25.0),
            private=DaaeSettings(**_PRIVATE_AUTOENCODER),
        ),
        "igamt": SynthesizerRow(
            kind=IGAMT,
            summary="transformer that makes step after step, critics, and an imitator of the decoder",
            plain=IgamtSettings(width=32, batch=64, epochs=12.0, lr=4e-3, generator_lr=2e-3, generated=32),
            private=IgamtSettings(
                width=16,
                latent=6,
                batch=500,
                epochs=10.0,
                lr=1.5e-2,
                generator_lr=1e-2,
                head_weight=30.0,
                critic_width=16,
            ),
            paper=IgamtSettings(
                variant="paper",
                width=128,
                latent=128,
                batch=32,
                epochs=12.0,
                lr=5e-4,
                critic_width=16,
                generated=32,
                refresh=1,
                code_noise=0.0,
                reconstruction_weight=10.0,
                critic_weight=1.0,
                latent_weight=1.0,
                imitation_weight=1.0,
                critic_base=5,
            ),
            options=MappingProxyType({"protect": protected, "ablation": ablated}),
        ),
    }
)
"""By the name the command line gives them. Settings were chosen on a part of physionet2012 set a."""


def find_synthesizer(name: str) -> SynthesizerRow:
    if name not in SYNTHESIZERS:
        raise RequestError(f"there is no synthesizer '{name}'; choose one of {', '.join(SYNTHESIZERS)}.")
    return SYNTHESIZERS[name]


def load_synthesizer(path: str | Path) -> Synthesizer:
    """The synthesizer in a run folder, whichever it is."""
    config = RunFolder.open(Path(path)).read_config()
    if config.get("kind") != KIND:
        raise RequestError(
            f"{path} is a run of something else than a synthesizer; name one of `synth train`."
        )
    return find_synthesizer(str(config.get("synthesizer"))).kind.load(path)
