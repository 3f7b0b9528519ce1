"""004 Tables 5.6 and 5.7: adversarial training with AIN, AIN without noise and I-FGSM, also under privacy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from torch import nn

from hauberk.accounting import PrivacyPlan
from hauberk.attacks import build_attack
from hauberk.attacks.imitation import AINSettings, BoundSchedule, Imitation, train_ain
from hauberk.attacks.imitation.classifier import (
    Adversary,
    accuracy,
    adversary_of_attack,
    adversary_of_imitation,
    fresh_classifier,
)
from hauberk.attacks.imitation.target import Inputs, load_inputs, trained_classifier
from hauberk.data import Dataset, declare_public, load
from hauberk.errors import RequestError
from hauberk.experiments.ain_measures import COLOURS, SHORTER, Setting, device, inputs_of
from hauberk.experiments.ain_measures import trained_ain as trained_against
from hauberk.experiments.ain_tiny import SIZES as TINY_IMAGENET
from hauberk.experiments.parts import remembered
from hauberk.experiments.result import Result, Size
from hauberk.methods.dp_sgd import DPSGD
from hauberk.methods.imitation_views import ImitationTraining
from hauberk.progress import Progress
from hauberk.training import Optimisation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NONE, AIN, AIN_NR, IFGSM = "no adversary", "AIN", "AIN without noise", "I-FGSM"
WAYS = (NONE, AIN, AIN_NR, IFGSM)
DIGITS, PICTURES, PRIVATE = "digits", "tiny imagenet", "private"
PARTS: dict[Size, tuple[str, ...]] = {
    "tiny": (DIGITS, PRIVATE),
    "quick": (DIGITS, PRIVATE),
    "full": (DIGITS, PICTURES, PRIVATE),
}
THESIS: dict[tuple[str, str], tuple[float, float, float]] = {
    (DIGITS, AIN): (0.9863, 0.9868, 0.9648),
    (DIGITS, AIN_NR): (0.9820, 0.9842, 0.9606),
    (DIGITS, IFGSM): (0.9862, 0.9484, 0.9647),
    (PICTURES, AIN): (0.7764, 0.7556, 0.7586),
    (PICTURES, AIN_NR): (0.7602, 0.7513, 0.7346),
    (PICTURES, IFGSM): (0.7824, 0.7148, 0.7624),
}
"""Accuracies on clean, AIN and I-FGSM inputs."""
COLUMNS = (
    "part", "way", "seed", "radius", "clean", "ain", "ain_tuned", "ifgsm",
    "thesis_clean", "thesis_ain", "thesis_ifgsm", "proven_epsilon",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Private:
    """Private training: the AIN and its classifier come from the public records, the rest is protected."""

    public: str
    epsilon: float
    epochs: float
    batch: int
    network: str


PRIVATE_SETTINGS: dict[Size, Private] = {
    "tiny": Private(public="first:80", epsilon=3.0, epochs=1.0, batch=32, network="logistic"),
    "quick": Private(public="first:3000", epsilon=3.0, epochs=5.0, batch=512, network="small-tanh-cnn"),
    "full": Private(public="first:10000", epsilon=3.0, epochs=30.0, batch=2048, network="small-tanh-cnn"),
}
_DELTA = 1e-5
TRAINING_STEPS = 10  # of I-FGSM as an adversary in training


def run(size: Size, seed: int, progress: Progress) -> Result:
    """Both tables and private training, one after the other."""
    return _result(size, [_part(part, size, seed, progress) for part in PARTS[size]])


def run_for(part: str, size: Size, seed: int, progress: Progress) -> Result:
    """One of the parts alone: `run` in pieces."""
    if part not in PARTS[size]:
        raise RequestError(
            f"ain-training of size {size} has the parts {', '.join(PARTS[size])}, not {part!r}"
        )
    return _result(size, [_part(part, size, seed, progress)])


def _setting(part: str, size: Size) -> Setting:
    return TINY_IMAGENET[size] if part == PICTURES else SHORTER[size]


def _part(part: str, size: Size, seed: int, progress: Progress) -> list[dict[str, Any]]:
    setting = _setting(part, size)
    more = {"private": vars(PRIVATE_SETTINGS[size])} if part == PRIVATE else {}
    measured: Callable[..., list[dict[str, Any]]] = _privately if part == PRIVATE else _plainly
    found: list[dict[str, Any]] = remembered(
        setting.about("ain-training", seed, part=part, **more),
        lambda: measured(part, size, setting, seed, progress),
    )
    return found


def _radius(setting: Setting) -> float:
    return setting.ain.schedule.final


def _without_noise(settings: AINSettings) -> AINSettings:
    return replace(settings, architecture=replace(settings.architecture, noise=0.0))


def _plainly(part: str, size: Size, setting: Setting, seed: int, progress: Progress) -> list[dict[str, Any]]:
    """A classifier for each adversary, from the same weights and in the same order."""
    inputs, target = inputs_of(setting.target), setting.target
    ain = trained_against(setting, None, seed, progress).imitation
    plain = trained_against(setting, None, seed, progress, _without_noise(setting.ain)).imitation
    radius = max(_radius(setting), ain.bound, plain.bound)
    attack = build_attack("ifgsm", steps=min(TRAINING_STEPS, setting.steps), stop_when_broken=False)
    adversaries: dict[str, Adversary | None] = {
        NONE: None,
        AIN: adversary_of_imitation(ain, radius=radius, seed=seed),
        AIN_NR: adversary_of_imitation(plain, radius=radius, seed=seed),
        IFGSM: adversary_of_attack(attack, radius=radius, seed=seed),
    }
    rows = []
    for way, adversary in adversaries.items():
        model = trained_classifier(
            target.network,
            inputs,
            epochs=target.epochs,
            batch=target.batch,
            adversary=adversary,
            seed=seed,
            progress=progress,
        )
        rows.append(_judged(part, way, setting, inputs, model, ain, radius, seed, progress))
    return rows


def _judged(
    part: str,
    way: str,
    setting: Setting,
    inputs: Inputs,
    model: nn.Module,
    ain: Imitation,
    radius: float,
    seed: int,
    progress: Progress,
) -> dict[str, Any]:
    """Accuracy on test inputs, on AIN's examples (as made, and by one tuned to this model), on I-FGSM's."""
    x, y = inputs.test
    model.requires_grad_(False).eval()
    others = seed + 1  # other noise than that of training
    tuned = train_ain(
        model,
        *inputs.train,
        validation=inputs.validation,
        classes=inputs.classes,
        target=None,
        settings=_tuning(setting, ain.bound),
        start=ain,
        seed=seed,
        progress=progress,
    ).imitation
    ifgsm = build_attack("ifgsm", steps=setting.steps)
    points = {
        "ain": ain.craft(x, y, radius=radius, seed=others)[:, 0],
        "ain_tuned": tuned.craft(x, y, radius=radius, seed=others)[:, 0],
        "ifgsm": ifgsm.perturb(model, x, y, radius=radius, seed=others),
    }
    found = {name: accuracy(model, each, y) for name, each in points.items()}
    return {
        "part": part,
        "way": way,
        "seed": seed,
        "radius": radius,
        "clean": accuracy(model, x, y),
        **found,
        "proven": None,
    }


def _tuning(setting: Setting, bound: float) -> AINSettings:
    """A fifth of the epochs at the bound that the earlier AIN has reached."""
    schedule = BoundSchedule(decay="none", initial=bound, final=bound)
    return replace(setting.ain, schedule=schedule, epochs=max(1, setting.ain.epochs // 5))


def _privately(
    part: str, size: Size, setting: Setting, seed: int, progress: Progress
) -> list[dict[str, Any]]:
    """DP-SGD without and with adversarial copies by an AIN that has seen public records only."""
    own, target = PRIVATE_SETTINGS[size], setting.target
    split = declare_public(load(target.data), own.public)
    private = split.train if target.most is None else split.train.first(target.most)
    public = load_inputs(target.data, public=own.public, most_tests=target.most_tests, device=device())
    attacked = trained_classifier(
        target.network, public, epochs=target.epochs, batch=target.batch, seed=seed, progress=progress
    )
    shared: dict[str, Any] = {
        "validation": public.validation,
        "classes": public.classes,
        "target": None,
        "origin": public.origin(classifier=target.network, imitated="ifgsm"),
        "seed": seed,
        "progress": progress,
    }
    noisy = train_ain(attacked, *public.train, settings=setting.ain, **shared).imitation
    still = train_ain(attacked, *public.train, settings=_without_noise(setting.ain), **shared).imitation
    radius = max(_radius(setting), noisy.bound, still.bound)
    records = len(private)
    plan = PrivacyPlan.calibrate(
        epsilon=own.epsilon, delta=_DELTA, records=records, batch=min(own.batch, records), epochs=own.epochs
    )
    rows = []
    for way, imitation in ((NONE, None), (AIN, noisy), (AIN_NR, still)):
        model = _private_model(own, private, plan, imitation, radius, seed, progress)
        row = _judged(part, way, setting, public, model[0], noisy, radius, seed, progress)
        rows.append({**row, "proven": model[1]})
    return rows


def _private_model(
    own: Private,
    private: Dataset,
    plan: PrivacyPlan,
    imitation: Imitation | None,
    radius: float,
    seed: int,
    progress: Progress,
) -> tuple[nn.Module, float | None]:
    """The released network, and what is proven of it once its noise is unpredictable."""
    model = fresh_classifier(own.network, shape=private.shape, classes=private.classes, seed=seed)
    model = model.to(device())
    common: dict[str, Any] = {
        "plan": plan,
        "clipping": 0.1,
        "optimisation": Optimisation(lr=2.0),
        "noise_seed": seed,
    }
    method = (
        DPSGD(model, **common)
        if imitation is None
        else ImitationTraining(model, imitation=imitation, size=radius, **common)
    )
    run = method.fit(private, progress=progress)
    proven = None if run.unprovable else plan.epsilon()
    return run.model, proven


def _result(size: Size, parts: Sequence[list[dict[str, Any]]]) -> Result:
    cases = [each for part in parts for each in part]
    rows: list[tuple[Any, ...]] = []
    for case in cases:
        printed: Sequence[float | None] = THESIS.get((case["part"], case["way"]), (None, None, None))
        measured = [
            case[name] for name in ("part", "way", "seed", "radius", "clean", "ain", "ain_tuned", "ifgsm")
        ]
        rows.append((*measured, *printed, case["proven"]))
    return Result(
        columns=COLUMNS,
        rows=tuple(rows),
        facts={
            "data": {part: _setting(part, size).target.data for part in PARTS[size]},
            "network": {part: _setting(part, size).target.network for part in PARTS[size]},
            "private": vars(PRIVATE_SETTINGS[size]),
            "delta": _DELTA,
            "ifgsm_steps_in_training": TRAINING_STEPS,
        },
        notes=(
            "Accuracies on test inputs: clean; ain: on the examples of the AIN that was trained against the "
            "classifier without an adversary, whose like a defended classifier has seen; ain_tuned: of "
            "that AIN tuned further against the classifier in the row; ifgsm: on that very classifier.",
            "The thesis does not say against which classifier its AIN and I-FGSM examples were made.",
            "I-FGSM as an adversary attacks the network in training with ten steps; the AINs do not change.",
            "private: DP-SGD on the records behind the public ones; the AIN and its classifier have seen "
            "public records only, so its copies cost nothing; proven_epsilon is for unpredictable noise, the "
            "noise here is seeded so that figures can be repeated.",
        ),
        draw=lambda figure: _draw(figure, cases),
        upper_bounds=("proven_epsilon",),
    )


def _draw(figure: Figure, cases: Sequence[dict[str, Any]]) -> None:
    parts = list(dict.fromkeys(case["part"] for case in cases))
    figure.set_size_inches(4.0 * max(2, len(parts)), 4.0)
    measures = ("clean", "ain", "ain_tuned", "ifgsm")
    for axes, part in zip(figure.subplots(1, len(parts), squeeze=False, sharey=True)[0], parts, strict=True):
        own = [case for case in cases if case["part"] == part]
        width = 0.8 / len(own)
        for place, case in enumerate(own):
            where = [number + place * width for number in range(len(measures))]
            heights = [case[name] for name in measures]
            axes.bar(where, heights, width=width, color=COLOURS[place], label=case["way"])
        axes.set_xticks([number + 0.4 - width / 2 for number in range(len(measures))], measures)
        axes.set_title(part)
        axes.set_ylim(0, 1)
    axes.legend(fontsize="xx-small")
