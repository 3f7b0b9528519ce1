"""Four bugs that private training is known for, planted in DP-SGD: each raises the alarm, the sound one none.

The plan proves epsilon 1 for what should have been run. An alarm is a bound above that, at level 1e-3.
"""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hauberk.accounting import PrivacyPlan
from hauberk.audit import GradientCanaries, PrivacyAudit, RecordCanaries, audit_training
from hauberk.data import Dataset
from hauberk.gradients import ClippedSum, Views
from hauberk.methods.dp_sgd import DPSGD
from hauberk.training import Optimisation, PrivateTrainer
from hauberk.training.noise import Released, StepNoise, SumNoise

LEVEL = 1e-3
FEATURES, CLASSES = 400, 10


class OtherNoise(SumNoise):
    """The sound noise of a trainer, for a bug to change."""

    def __init__(self, trainer: PrivateTrainer) -> None:
        super().__init__(trainer.plan, trainer.clipping, trainer.randomness)


class NoiseWithoutClipFactor(OtherNoise):
    """z in place of z C."""

    def release(self, clipped: ClippedSum, step: int) -> Released:
        return super().release(replace(clipped, sensitivity=1.0), step)


class ReusedNoise(OtherNoise):
    """Drawn once, added in every step."""

    def release(self, clipped: ClippedSum, step: int) -> Released:
        return super().release(clipped, 0)


class RealisedDivisor(OtherNoise):
    """The sum over the records that were really sampled; the noise still for the public divisor."""

    def release(self, clipped: ClippedSum, step: int) -> Released:
        factor = self._plan.batch / max(1, clipped.records)
        scaled = {name: factor * part for name, part in clipped.gradients.items()}
        return super().release(replace(clipped, gradients=scaled), step)


class ClippedMean:
    """Clips the mean gradient of the batch and says that this bounds every record."""

    geometry = None

    def __init__(self, trainer: PrivateTrainer) -> None:
        self._whole, self._bound = trainer._unclipped, trainer.clipping.sensitivity

    def clipped_sum(self, views: Views, labels: Tensor) -> ClippedSum:
        whole = self._whole.clipped_sum(views, labels)
        total = torch.cat([part.flatten() for part in whole.gradients.values()]).norm()
        factor = min(1.0, self._bound * max(1, whole.records) / max(float(total), 1e-12))
        clipped = {name: factor * part for name, part in whole.gradients.items()}
        return replace(whole, gradients=clipped, sensitivity=self._bound)

    def close(self) -> None:
        pass


class Buggy(DPSGD):
    noise_kind: type[OtherNoise] = OtherNoise
    clips_mean = False

    def noise(self, trainer: PrivateTrainer) -> StepNoise:
        return self.noise_kind(trainer)

    def trainer(self, *args: Any, **options: Any) -> PrivateTrainer:
        trainer = super().trainer(*args, **options)
        if self.clips_mean:
            trainer._gradients = ClippedMean(trainer)  # type: ignore[assignment]
        return trainer


def toy(records: int, brightness: float = 1.0) -> Dataset:
    generator = torch.Generator().manual_seed(0)
    x = brightness * torch.rand(records, FEATURES, generator=generator)
    return Dataset(
        name="toy", x=x, y=torch.randint(0, CLASSES, (records,), generator=generator), classes=CLASSES
    )


def one_hot_records() -> RecordCanaries:
    """Every feature alone, with ten labels: records whose gradients never meet."""
    return RecordCanaries(kind="one-hot records", x=torch.eye(FEATURES), y=torch.arange(FEATURES) % CLASSES)


def audited(
    noise: type[OtherNoise] = OtherNoise,
    *,
    clips_mean: bool = False,
    clip: float,
    records: int = 64,
    declared: int = 128,
    batch: int = 64,
    canaries: GradientCanaries | RecordCanaries,
    brightness: float = 1.0,
) -> tuple[PrivacyAudit, float]:
    """The audit, and the epsilon that the plan proves for sound training."""
    torch.manual_seed(0)
    plan = PrivacyPlan.calibrate(epsilon=1.0, delta=1e-5, records=declared, batch=batch, epochs=4)
    method = Buggy(
        nn.Sequential(nn.Linear(FEATURES, CLASSES, bias=False)),
        plan=plan,
        clipping=clip,
        noise_seed=3,
        optimisation=Optimisation(lr=0.1),
    )
    method.noise_kind, method.clips_mean = noise, clips_mean
    audit = audit_training(method, toy(records, brightness), canaries=canaries, alpha=LEVEL, seed=1)
    return audit, plan.epsilon()


@pytest.mark.parametrize(
    ("bug", "setting"),
    [
        (NoiseWithoutClipFactor, {"clip": 10.0, "canaries": GradientCanaries.axes(500)}),
        (ReusedNoise, {"clip": 1.0, "canaries": GradientCanaries.axes(500)}),
        (
            RealisedDivisor,
            {"clip": 1.0, "canaries": GradientCanaries.axes(128)}
            | {"records": 4, "declared": 1024, "batch": 512},
        ),
    ],
)
def test_a_bug_in_the_noise_raises_the_alarm(bug: type[OtherNoise], setting: dict[str, Any]) -> None:
    audit, proven = audited(bug, **setting)
    assert audit.epsilon_lower > proven
    sound, _ = audited(**setting)
    assert sound.epsilon_lower <= proven


def test_clipping_the_mean_raises_the_alarm() -> None:
    """Among dark records a bright one moves the clipped mean by far more than a clipped record may."""
    setting: dict[str, Any] = {"clip": 0.02, "canaries": one_hot_records(), "brightness": 0.01}
    setting |= {"records": 500, "declared": 500, "batch": 250}
    audit, proven = audited(clips_mean=True, **setting)
    assert audit.epsilon_lower > proven
    sound, _ = audited(**setting)
    assert sound.epsilon_lower <= proven
