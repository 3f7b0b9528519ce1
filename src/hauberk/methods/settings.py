"""All settings of a training run, and where they come from: command line over TOML over preset."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from hauberk.accounting import GaussianEvent, PrivacyPlan
from hauberk.accounting.json_form import from_json
from hauberk.errors import RequestError
from hauberk.gradients import AdaptiveClip, AutomaticClip, Clipping, FlatClip, PerLayerClip, parse_memory
from hauberk.methods.robustness_budget import Calibration, RobustnessBudget
from hauberk.methods.run import AuditSettings
from hauberk.training import Optimisation

CLIPPINGS = ("flat", "per-layer", "automatic", "adaptive")
SIZES = ("tiny", "quick", "full")
REDISTRIBUTIONS = ("auto", "public", "private")
SPECIAL_SETTINGS = (
    "sigma",
    "views",
    "share",
    "pruned",
    "robust_epsilon",
    "robust_delta",
    "robust_size",
    "inflation",
    "redistribution",
    "public_data",
    "public_epochs",
    "denoised",
    "denoiser_width",
    "classifier",
    "stability",
    "transformed_records",
    "training_attack_steps",
    "training_attack_size",
    "adversarial_weight",
    "test_divisor",
    "imitation",
    "clean_copy",
    "shift",
    "flip",
    "consistency",
    "macer",
    "weights",
    "train_only",
)
"""Settings that only some methods read; the catalogue says which."""
_POSITIVE = (
    "sigma",
    "inflation",
    "robust_epsilon",
    "robust_size",
    "denoiser_width",
    "public_epochs",
    "transformed_records",
    "training_attack_steps",
    "training_attack_size",
    "validation",
    "image_size",
    "max_per_unit",
)


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """What ``config.json`` records. ``epsilon`` or ``noise_multiplier`` is given, the other computed."""

    method: str = "private-smoothing"
    variant: str = "sound"
    data: str = "digits"
    data_dir: str | None = None
    records: int | None = None
    classes: int | None = None
    validation: int | None = None
    schema: str | None = None
    image_size: int | None = None
    grey: bool = False
    unit: str | None = None
    max_per_unit: int | None = None
    test: str | None = None
    holdout: float | None = None
    size: str = "full"
    model: str = "small-tanh-cnn"
    weights: str | None = None
    train_only: tuple[str, ...] = ()
    epsilon: float | None = None
    delta: float = 1e-5
    noise_multiplier: float | None = None
    no_privacy: bool = False
    clip: float = 0.1
    clipping: str = "flat"
    share: float = 0.125
    pruned: float = 0.0
    sigma: float | None = None
    robust_epsilon: float | None = None
    robust_delta: float | None = None
    robust_size: float | None = None
    redistribution: str = "auto"
    inflation: float = 1.0
    public_data: str | None = None
    public_epochs: int = 20
    denoised: bool = False
    denoiser_width: int = 8
    classifier: str | None = None
    stability: float = 1.0
    transformed_records: int = 1
    training_attack_steps: int = 10
    training_attack_size: float | None = None
    adversarial_weight: float = 1.0
    test_divisor: float = 2.0
    views: int = 1
    imitation: str | None = None
    clean_copy: bool = False
    shift: int = 0
    flip: bool = False
    consistency: float = 0.0
    macer: float = 0.0
    epochs: float = 20.0
    batch: int = 1024
    lr: float = 2.0
    momentum: float = 0.9
    averaging: float = 0.97
    optimizer: str = "sgd"
    schedule: str = "tail"
    memory: str | None = None
    device: str = "auto"
    seed: int = 0
    noise_seed: int | None = None
    tested: int = 500
    samples: int = 1000
    alpha: float = 0.001
    attacked: int = 100
    attack_steps: int = 20

    def __post_init__(self) -> None:
        if self.size not in SIZES:
            raise RequestError(f"size must be one of {', '.join(SIZES)}, got {self.size!r}")
        if not 0 <= self.seed < 2**63 or not 0 <= (self.noise_seed or 0) < 2**63:
            raise RequestError("seeds are whole numbers from 0 to 2^63 - 1")
        self.make_clipping()
        self.optimisation()
        self.memory_limit()
        self.audit()  # wrong examination settings must not cost a whole training
        if self.redistribution not in REDISTRIBUTIONS:
            choices = ", ".join(REDISTRIBUTIONS)
            raise RequestError(f"redistribution must be one of {choices}, got {self.redistribution!r}")
        for name in _POSITIVE:
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise RequestError(f"{name} must be positive, got {value:g}")
        if self.adversarial_weight < 0 or not math.isfinite(self.adversarial_weight):
            raise RequestError(f"adversarial_weight must not be negative, got {self.adversarial_weight:g}")
        if not 1 <= self.test_divisor < math.inf:
            raise RequestError(f"test_divisor must be at least 1, got {self.test_divisor:g}")
        if self.robust_delta is not None and not 0 < self.robust_delta < 0.48:
            raise RequestError(f"robust_delta must lie between 0 and 0.48, got {self.robust_delta:g}")
        for name in ("shift", "consistency", "macer"):
            if not 0 <= getattr(self, name) < math.inf:
                raise RequestError(f"{name} must not be negative, got {getattr(self, name):g}")
        if not 0 <= self.stability < math.inf:
            raise RequestError(f"stability must not be negative, got {self.stability:g}")
        if not 0 <= self.share < 1:
            raise RequestError(f"share must lie in [0, 1), got {self.share}")
        if self.epsilon is not None and self.noise_multiplier is not None:
            raise RequestError("give epsilon or noise_multiplier, not both: one follows from the other")
        if self.no_privacy and (self.epsilon is not None or self.noise_multiplier is not None):
            raise RequestError("no_privacy trains without noise; leave out epsilon and noise_multiplier")
        if self.noise_multiplier == 0:
            raise RequestError("a noise multiplier of 0 is no privacy; say --no-privacy if that is meant")

    @property
    def input_sigma(self) -> float:
        """Noise at the input."""
        return 0.25 if self.sigma is None else self.sigma

    def layer_sigma(self, budget: RobustnessBudget, calibration: Calibration) -> float:
        """Noise after the first map: ``sigma``, else calibrated to ``budget`` and what changes it."""
        if self.sigma is not None:
            return self.sigma
        changes = {
            "epsilon": self.robust_epsilon,
            "delta": self.robust_delta,
            "size": self.robust_size,
        }
        given = {name: value for name, value in changes.items() if value is not None}
        return replace(budget, **given).sigma(calibration)

    @property
    def redistribution_source(self) -> str:
        """Where Secure-SGD's r comes from: ``public`` or ``private`` records."""
        if self.redistribution == "auto":
            return "private" if self.public_data is None else "public"
        return self.redistribution

    def plan_with_noise(
        self, noise_multiplier: float, *, records: int, beforehand: tuple[GaussianEvent, ...] = ()
    ) -> PrivacyPlan:
        return PrivacyPlan(
            records=records,
            batch=self.batch,
            epochs=self.epochs,
            noise_multiplier=noise_multiplier,
            delta=self.delta,
            beforehand=beforehand,
        )

    def plan(self, *, records: int, beforehand: tuple[GaussianEvent, ...] = ()) -> PrivacyPlan:
        if self.no_privacy:
            return self.plan_with_noise(0.0, records=records)
        if self.noise_multiplier is not None:
            return self.plan_with_noise(self.noise_multiplier, records=records, beforehand=beforehand)
        if self.epsilon is None:
            raise RequestError("give --epsilon, --noise-multiplier or --no-privacy")
        return PrivacyPlan.calibrate(
            epsilon=self.epsilon,
            delta=self.delta,
            records=records,
            batch=self.batch,
            epochs=self.epochs,
            beforehand=beforehand,
        )

    def make_clipping(self) -> Clipping:
        """The clipping by name; of an adaptive one ``clip`` is where it starts."""
        if self.clipping == "flat":
            return FlatClip(self.clip)
        if self.clipping == "per-layer":
            return PerLayerClip(self.clip)
        if self.clipping == "automatic":
            return AutomaticClip(self.clip)
        if self.clipping == "adaptive":
            # the count's noise of Andrew et al. 2021: a twentieth of the expected batch
            return AdaptiveClip(bound=self.clip, count_deviation=max(10.0, self.batch / 20))
        raise RequestError(f"clipping must be one of {', '.join(CLIPPINGS)}, got {self.clipping!r}")

    def optimisation(self) -> Optimisation:
        return Optimisation(
            lr=self.lr,
            momentum=self.momentum,
            averaging=self.averaging,
            optimizer=self.optimizer,
            schedule=self.schedule,
        )

    def memory_limit(self) -> int | None:
        """In bytes."""
        return None if self.memory is None else parse_memory(self.memory)

    def common(self) -> dict[str, Any]:
        """The settings that every method takes, as keyword arguments."""
        return {
            "clipping": self.make_clipping(),
            "optimisation": self.optimisation(),
            "memory": self.memory_limit(),
            "seed": self.seed,
            "noise_seed": self.noise_seed,
            "variant": self.variant,
            "claimed_epsilon": self.epsilon if self.variant == "paper" else None,
            "pruned": self.pruned,
        }

    def audit(self) -> AuditSettings:
        return AuditSettings(
            tested=self.tested,
            samples=self.samples,
            alpha=self.alpha,
            attacked=self.attacked,
            attack_steps=self.attack_steps,
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def read_toml(path: Path) -> dict[str, Any]:
    """Settings from a TOML file; the keys are the options' names, with dashes or underscores."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RequestError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:  # of TOML, of its encoding, of its numbers and its depth
        raise RequestError(f"{path} is not valid TOML: {error}") from error
    known = {field.name for field in fields(TrainSettings)}
    settings = {key.replace("-", "_"): value for key, value in content.items()}
    for key in settings:
        if key not in known:
            raise RequestError(f"{path} has an unknown setting {key!r}; known: {', '.join(sorted(known))}")
    from_json(TrainSettings, settings, where=str(path))  # the types, before anything reads them
    return settings


def merge_settings(preset: Mapping[str, Any], *overrides: Mapping[str, Any]) -> TrainSettings:
    """Later mappings win. Whoever gives a noise multiplier takes back the preset's epsilon, and so on."""
    privacy = ("epsilon", "noise_multiplier", "no_privacy")
    merged = dict(preset)
    for override in overrides:
        given = {key: value for key, value in override.items() if value is not None}
        if any(key in given for key in privacy):
            merged = {key: value for key, value in merged.items() if key not in privacy}
        merged |= given
    return from_json(TrainSettings, merged, where="settings")
