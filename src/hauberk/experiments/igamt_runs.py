"""What the experiments on IGAMT share: who takes part, and how each is trained and asked for patients.

    contender = a synthesizer, its form (without privacy, as published, sound) and what is left out of it
    fitted(scene, contender, ...) -> the trained synthesizer and as many new patients as it learned from

The data of 004 cannot be had: MIMIC-IV-ED in full asks for credentials and the Emory records are not public.
The same tables and figures are made here of patients that anybody can get.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from hauberk.accounting import prove
from hauberk.experiments.parts import settings_of
from hauberk.experiments.result import Size
from hauberk.mechanisms import EpsilonDelta
from hauberk.synthesis.base import Synthesizer, Task
from hauberk.synthesis.catalogue import Size as Amount
from hauberk.synthesis.catalogue import find_synthesizer
from hauberk.synthesis.igamt_settings import ABLATIONS
from hauberk.synthesis.patients import Patients
from hauberk.synthesis.presets import find_preset, load_patients

WITHOUT, PAPER, SOUND = "without privacy", "as published", "sound"
BASELINES = ("vae", "gan", "vae-gan", "aae", "daae")
NOT_PUBLIC = (
    "The numbers of the thesis are about MIMIC-IV-ED in full and Emory Synergy, which are not public; they "
    "stand beside ours to be compared in order, not in size."
)
SEEDED = (
    "The noise of these runs has a seed, so that they can be made again; epsilon is for noise nobody knows."
)


@dataclass(frozen=True, kw_only=True)
class Scene:
    """Which patients, how much work; ``patients``: at most so many of each set, None takes all."""

    data: str
    train: str
    test: str
    patients: int | None
    amount: Amount
    epsilon: float
    delta: float
    features: tuple[str, str]  # shown beside the time, as heart rate and systolic pressure in the thesis


SCENES: dict[Size, Scene] = {
    "tiny": Scene(
        data="ward",
        train="train",
        test="test",
        patients=64,
        amount="tiny",
        epsilon=3.0,
        delta=1e-5,
        features=("heart_rate", "systolic"),
    ),
    "quick": Scene(
        data="ward",
        train="train",
        test="test",
        patients=1000,
        amount="quick",
        epsilon=3.0,
        delta=1e-5,
        features=("heart_rate", "systolic"),
    ),
    "full": Scene(
        data="physionet2012",
        train="a",
        test="b",
        patients=None,
        amount="full",
        epsilon=3.0,
        delta=1e-5,
        features=("HR", "SysABP"),
    ),
}


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One row: ``ablation`` and ``protect`` are of igamt alone."""

    synthesizer: str
    form: str
    ablation: str | None = None
    protect: str | None = None

    @property
    def model(self) -> str:
        """As the thesis names it."""
        return self.synthesizer if self.ablation in (None, "none") else f"igamt {self.ablation}"

    @property
    def label(self) -> str:
        return f"{self.model} ({self.protect})" if self.protect is not None else self.model

    def settings(self, amount: Amount) -> Any:
        return find_synthesizer(self.synthesizer).settings(
            amount,
            private=self.form != WITHOUT,
            variant="paper" if self.form == PAPER else "sound",
            ablation=self.ablation,
            protect=self.protect,
        )


def contenders(*forms: str) -> tuple[Contender, ...]:
    """Everybody in these forms: marginals, the five baselines, four ablations and IGAMT, sound in two ways.

    Baselines have no published form of their own: that of the thesis is IGAMT's (and its ablations').
    """
    found = []
    for form in forms:
        if form != PAPER:
            found += [Contender(synthesizer=name, form=form) for name in ("marginals", *BASELINES)]
        for ablation in ("w/o_emb", "only_t_emb", "w/o_imi", "w/o_imi_var", "none"):
            assert ablation in ABLATIONS
            ways = ("joint", "critics") if form == SOUND else (None,)
            found += [
                Contender(synthesizer="igamt", form=form, ablation=ablation, protect=way) for way in ways
            ]
    return tuple(found)


class Sets:
    """Training and test patients, read when the first part needs them."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._read: dict[str, Patients] = {}

    def __getitem__(self, part: str) -> Patients:
        if part not in self._read:
            patients = load_patients(self._scene.data, part=part).patients
            most = self._scene.patients
            self._read[part] = patients if most is None else patients.first(most)
        return self._read[part]


def fitted(
    scene: Scene, sets: Sets, contender: Contender, *, seed: int, epsilon: float | None = None
) -> tuple[Synthesizer, Patients]:
    """Trained on the training patients, and as many new ones; ``epsilon`` in the place of the scene's."""
    train = sets[scene.train]
    part = find_preset(scene.data).parts[scene.train]
    budget = EpsilonDelta(epsilon=scene.epsilon if epsilon is None else epsilon, delta=scene.delta)
    task = Task(
        schema=train.schema,
        records=part.records if scene.patients is None else len(train),
        budget=None if contender.form == WITHOUT else budget,
        seed=seed,
        noise_seed=seed,
        data=scene.data,
        unit=part.unit,
    )
    kind = find_synthesizer(contender.synthesizer).kind
    model = kind(task, contender.settings(scene.amount)).fit(train)
    return model, model.sample(len(train), seed=seed)


def epsilons(model: Synthesizer, contender: Contender) -> tuple[float | None, float | None]:
    """Claimed and proven; what a run with seeded noise would have proven with the operating system's."""
    if contender.form == WITHOUT:
        return None, None
    claimed = model.card().privacy.claimed
    proven = None
    if contender.form == SOUND:
        proven = prove(model.trained.ledger.events, model.task.delta).epsilon
    return None if claimed is None else claimed.epsilon, proven


def about(experiment: str, scene: Scene, contender: Contender, **more: Any) -> dict[str, Any]:
    """Everything that a part depends on."""
    return {
        "experiment": experiment,
        **settings_of(scene),
        **asdict(contender),
        "settings": asdict(contender.settings(scene.amount)),
        **more,
    }
