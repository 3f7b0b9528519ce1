"""The folder of an imitation network: from a request to a trained network, to files, and back."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hauberk.attacks import build_attack
from hauberk.attacks.imitation import (
    PAPER,
    SMALL,
    AdvGANSettings,
    AINSettings,
    ATNSettings,
    EpochRecord,
    Imitation,
    Quality,
    evaluate,
    load_imitation,
    save_imitation,
    train_advgan,
    train_ain,
    train_atn,
)
from hauberk.attacks.imitation.classifier import THESIS, fresh_classifier
from hauberk.attacks.imitation.evaluation import attack_crafter, imitation_crafter
from hauberk.attacks.imitation.networks import PerturbationNetwork
from hauberk.attacks.imitation.saved import TITLES, Kind
from hauberk.attacks.imitation.target import Inputs, load_inputs, trained_classifier
from hauberk.cli.examine import find_run
from hauberk.cli.train import RUNS
from hauberk.errors import RequestError
from hauberk.experiments.ain_pictures import draw_examples, one_of_each_class
from hauberk.experiments.pictures import render
from hauberk.files import read_json, read_tensors, write_bytes, write_json, write_tensors
from hauberk.methods import load_run
from hauberk.methods.training import read_settings
from hauberk.progress import Progress
from hauberk.training import RunFolder


class Preset(StrEnum):
    small = "small"
    paper = "paper"


PRESETS: dict[Preset, tuple[AINSettings, str, int]] = {
    Preset.small: (SMALL, "small-tanh-cnn", 6),
    Preset.paper: (PAPER, THESIS, 20),
}
"""Settings of the AIN, and the network and epochs of a classifier that is trained to be attacked."""
QUICK = {"records": 9000, "attacked": 3000, "tests": 1000, "epochs": 7, "classifier": 4}
"""Most records of the classifier and of the imitation network, most test inputs, most epochs of both."""
FILE, _CLASSIFIER, FACTS, PICTURE = (
    "ain.safetensors",
    "classifier.safetensors",
    "imitation.json",
    "examples.png",
)

_SEARCHED = 1000  # test inputs among which pictures are looked for


@dataclass(frozen=True, kw_only=True, eq=False)
class Attacked:
    """A classifier with its inputs, and the words that find it again: a network's name, or a run."""

    model: nn.Module
    inputs: Inputs
    network: str | None
    run: str | None

    @property
    def words(self) -> str:
        return f"{self.network} trained on {self.inputs.data}" if self.run is None else f"run {self.run}"


def attacked_classifier(
    target: str | None,
    data: str | None,
    data_dir: Path | None,
    public: str | None,
    network: str | None,
    preset: Preset,
    most: int | None,
    tests: int | None,
    quick: bool,
    seed: int,
    device: torch.device,
    progress: Progress,
) -> Attacked:
    """A run's network with the run's data, or a classifier trained for the purpose."""
    limits: dict[str, Any] = {"public": public, "most": most, "most_tests": tests, "device": device}
    if target is not None:
        if network is not None or data is not None:
            raise RequestError("--target names a run with its own network and data: leave out the other two")
        path = find_run(target)
        run = load_run(path, device=str(device))
        settings = read_settings(RunFolder.open(path))[0]
        inputs = load_inputs(settings.data, data_dir=data_dir, **limits)
        if inputs.classes != run.classes:
            raise RequestError(f"the run {target} has other classes than its data set {settings.data}")
        return Attacked(model=run.model.eval(), inputs=inputs, network=None, run=str(path))
    inputs = load_inputs("digits" if data is None else data, data_dir=data_dir, **limits)
    _, usual, epochs = PRESETS[preset]
    named = usual if network is None else network
    epochs = min(epochs, QUICK["classifier"]) if quick else epochs
    model = trained_classifier(named, inputs, epochs=epochs, seed=seed, progress=progress)
    return Attacked(model=model, inputs=inputs, network=named, run=None)


def trained_network(
    kind: Kind,
    attacked: Attacked,
    settings: AINSettings,
    aim: int | None,
    start: Imitation | None,
    most: int | None,
    seed: int,
    progress: Progress,
) -> tuple[Imitation, tuple[EpochRecord, ...]]:
    inputs = attacked.inputs
    (x, y), bound = inputs.train, settings.schedule.final
    x, y = x[:most], y[:most]
    if aim is not None and not 0 <= aim < inputs.classes:
        raise RequestError(f"there is no class {aim}: there are the classes 0 to {inputs.classes - 1}")
    shared: dict[str, Any] = {"classes": inputs.classes, "target": aim, "seed": seed, "progress": progress}
    if kind == "ain":
        origin = inputs.origin(classifier=attacked.words, imitated=" and ".join(settings.recipe.attacks))
        given = {"validation": inputs.validation, "settings": settings, "start": start, "origin": origin}
        trained = train_ain(attacked.model, x, y, **given, **shared)  # type: ignore[arg-type]
        return trained.imitation, trained.history
    made: PerturbationNetwork
    if kind == "atn":
        own = ATNSettings(
            widths=settings.architecture.widths, epochs=settings.epochs, batch=settings.batch, bound=bound
        )
        made = train_atn(attacked.model, x, y, settings=own, **shared)
    else:
        gan = AdvGANSettings(epochs=settings.epochs, bound=bound)
        made = train_advgan(attacked.model, x, y, settings=gan, **shared)
    origin = inputs.origin(classifier=attacked.words, imitated="")
    return Imitation(kind=kind, network=made, target=aim, bound=bound, origin=origin), ()


def measured(
    attacked: Attacked, made: Imitation, radii: list[float], others: list[str], seed: int, progress: Progress
) -> list[dict[str, Any]]:
    """One row for the network and each other attack at each radius."""
    rows: list[dict[str, Any]] = []
    (x, y), model = attacked.inputs.test, attacked.model
    attacks = [(name, build_attack(name, **_steps(name))) for name in others]
    total = len(radii) * (1 + len(others))
    for radius in radii:
        crafters = {TITLES[made.kind]: imitation_crafter(made, radius=radius, seed=seed)}
        for name, each in attacks:
            crafters[name] = attack_crafter(each, model, radius=radius, target=made.target, seed=seed)
        for name, craft in crafters.items():
            quality = evaluate(model, x, y, craft, target=made.target)
            rows.append({"attack": name, "radius": radius, **_cells(quality)})
            progress("evaluating", len(rows), total)
    return rows


def _steps(name: str) -> dict[str, Any]:
    """I-FGSM takes the thesis' fifty steps; the others their own. All work in l_inf."""
    return {"norm": "linf", "steps": 50} if name == "ifgsm" else {"norm": "linf"}


def _cells(quality: Quality) -> dict[str, Any]:
    low, high = quality.interval
    return {**asdict(quality), "success_low": low, "success_high": high}


def write_folder(
    folder: Path, attacked: Attacked, made: Imitation, facts: dict[str, Any], radius: float
) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(f"cannot make the folder {folder}: {error.strerror or error}") from error
    save_imitation(folder / FILE, made)
    if attacked.run is None:
        write_tensors(folder / _CLASSIFIER, attacked.model.state_dict())
    rows, answers = _pictures(attacked, made, radius)

    def draw(figure: Any) -> None:
        figure.set_size_inches(7.2, 0.8 * len(rows) + 0.2)
        draw_examples(figure, rows, answers)

    write_bytes(folder / PICTURE, render(draw))
    write_json(folder / FACTS, facts)  # last: a folder with it is complete


def _pictures(
    attacked: Attacked, made: Imitation, radius: float
) -> tuple[dict[str, Tensor], dict[str, list[int]]]:
    """Figs. 5.4 and 5.11 in form: the inputs, and what the network and I-FGSM make of them."""
    x, y = (each[:_SEARCHED] for each in attacked.inputs.test)
    with torch.no_grad():
        rows = one_of_each_class(y, attacked.model(x).argmax(1), attacked.inputs.classes)
    x, y = x[rows], y[rows]
    ifgsm = build_attack("ifgsm", **_steps("ifgsm"))
    pictures = {
        "clean": x,
        TITLES[made.kind]: made.craft(x, y, radius=radius)[:, 0],
        "I-FGSM": attack_crafter(ifgsm, attacked.model, radius=radius, target=made.target)(x, y),
    }
    with torch.no_grad():
        answers = {name: attacked.model(each).argmax(1).tolist() for name, each in pictures.items()}
    return pictures, answers


def find_folder(name: str) -> Path:
    for path in (Path(name), RUNS / name):
        if os.path.isfile(path / FACTS):
            return path
    raise RequestError(
        f"there is no imitation network at {name} or {RUNS / name}: make one with `hauberk imitate train`"
    )


def reopened(path: Path, data_dir: Path | None, device: torch.device) -> tuple[Attacked, Imitation]:
    """What `_write` wrote: the same classifier with the same test inputs."""
    facts = read_json(path / FACTS)
    made = load_imitation(path / FILE, device=device)
    try:
        folder = data_dir if facts["data_dir"] is None or data_dir is not None else Path(facts["data_dir"])
        data, run, network, seed = facts["source"], facts["run"], facts["network"], facts["seed"]
        most, tests = (QUICK["records"], QUICK["tests"]) if facts["quick"] else (None, None)
        if not isinstance(run or data, str) or not isinstance(network or "", str) or type(seed) is not int:
            raise TypeError("not what `hauberk imitate train` writes")
    except (KeyError, TypeError) as error:
        raise RequestError(f"{path / FACTS} is damaged: train the network again") from error
    if run is not None:
        inputs = load_inputs(
            read_settings(RunFolder.open(find_run(run)))[0].data,
            data_dir=folder,
            most=most,
            most_tests=tests,
            device=device,
        )
        model = load_run(find_run(run), device=str(device)).model.eval()
        return Attacked(model=model, inputs=inputs, network=None, run=run), made
    inputs = load_inputs(data, data_dir=folder, most=most, most_tests=tests, device=device)
    model = fresh_classifier(network, shape=inputs.shape, classes=inputs.classes, seed=seed).to(device)
    try:
        model.load_state_dict(read_tensors(path / _CLASSIFIER))
    except (RuntimeError, KeyError) as error:
        raise RequestError(f"{path / _CLASSIFIER} does not fit its network: train it again") from error
    return Attacked(model=model.eval().requires_grad_(False), inputs=inputs, network=network, run=None), made
