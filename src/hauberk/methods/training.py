"""From settings to a finished run folder, and back from a folder to a run."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hauberk.accounting import Card, PrivacyPlan
from hauberk.accounting.json_form import from_json
from hauberk.data import Split, load
from hauberk.data.input_form import ONE_RECORD, DescribedSplit, InputForm
from hauberk.data.loading import OWN_FILE_OPTIONS
from hauberk.data.persons import PersonDataset
from hauberk.data.public import declare_public, default_public, describe_public
from hauberk.errors import RequestError
from hauberk.methods.base import Method
from hauberk.methods.by_person import RunByPerson, method_by_person
from hauberk.methods.catalogue import find_method, named_network
from hauberk.methods.presets import LARGEST, LARGEST_PUBLIC, LARGEST_TEST, preset
from hauberk.methods.request_checks import refuse_cuts_of_persons, refuse_own_network, refuse_unread
from hauberk.methods.run import AuditSettings, Run
from hauberk.methods.settings import TrainSettings, merge_settings
from hauberk.methods.starting_network import (
    NetworkFacts,
    StartingNetwork,
    begin,
    facts_of,
    furnished,
    load_released,
    refuse_other_beginning,
)
from hauberk.progress import Progress, silent
from hauberk.training import RunFolder
from hauberk.training.checkpoints import read_checkpoint_facts, refuse_lost_events
from hauberk.training.distribution import Ranks

TRAINING = "training"  # what the leader tells the others to come


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A request that has been checked completely; nothing has been written yet."""

    settings: TrainSettings
    split: Split
    method: Method
    folder: RunFolder
    notes: tuple[str, ...]
    network: NetworkFacts | None = None  # what config.json keeps of a network of the user's own


def choose_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise RequestError(f"unknown device {name!r}: say cpu, cuda or auto") from error
    if device.type not in ("cpu", "cuda"):
        raise RequestError(f"device {name!r} is not supported: say cpu, cuda or auto")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise RequestError("this machine has no usable CUDA device: say --device cpu")
    return device


def build_network(settings: TrainSettings, split: Split) -> StartingNetwork:
    """The network with weights drawn from ``seed`` or read; the global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        model = named_network(settings, split.train.shape, split.classes)
    return begin(model, settings, split.train.shape)


def build_model(settings: TrainSettings, split: Split, ranks: Ranks | None = None) -> nn.Module:
    return _placed(build_network(settings, split).network, settings, ranks)


def _placed(model: nn.Module, settings: TrainSettings, ranks: Ranks | None) -> nn.Module:
    return model.to((ranks or Ranks.alone()).device(choose_device(settings.device)))


def build_method(
    settings: TrainSettings,
    split: Split,
    plan: PrivacyPlan,
    ranks: Ranks | None = None,
    *,
    network: StartingNetwork | None = None,
) -> Method:
    """The method of the settings on ``network``; without one, on a fresh one."""
    network = network or build_network(settings, split)
    row, model = find_method(settings.method, settings.variant), _placed(network.network, settings, ranks)
    if isinstance(split.train, PersonDataset):
        return method_by_person(model, settings, plan)
    return row.build(model, settings, plan)


def cut_to_size(split: Split, size: str) -> tuple[Split, tuple[str, ...]]:
    """The first records of a data set, for quick tries; the cut set *is* the private set then."""
    largest, largest_test = LARGEST[size], LARGEST_TEST[size]
    notes = (split.public_note,) if split.public_note else ()
    if largest_test is not None:
        split = replace(split, test=split.test.first(largest_test))
    if split.public is not None and (most := LARGEST_PUBLIC[size]) is not None:
        split = replace(split, public=split.public.first(most))
        notes = (*notes, f"Size {size}: {len(split.public or ())} of the public records were used.")
    if largest is None or split.records <= largest:
        return split, notes
    note = (
        f"Size {size}: the first {largest} training records were used; the privacy statement is about these."
    )
    return replace(split, train=split.train.first(largest), records=largest), (*notes, note)


def held_out_note(split: Split) -> str:
    return (
        f"Figures are about {len(split.test):,} training records that were held out and not about the test "
        f"records; these are not protected, the privacy statement is about the other {split.records:,}."
    )


def prepare(
    *,
    root: Path,
    name: str | None,
    force: bool,
    config: Mapping[str, Any],
    options: Mapping[str, Any],
    ranks: Ranks | None = None,
) -> Prepared:
    """Check the whole request: settings, data, model, plan, folder. Nothing is written."""
    ranks = ranks or Ranks.alone()
    given = {**config, **{key: value for key, value in options.items() if value is not None}}
    data, size = given.get("data", "digits"), given.get("size", "full")
    method, variant = given.get("method", "private-smoothing"), given.get("variant", "sound")
    row = find_method(method, variant)
    refuse_unread(row, str(variant), given)
    refuse_own_network(row, given)
    path = root / (name or f"{method}-{Path(str(data)).stem}")
    # the folder is the leader's business: by the time that another process looks it may have been made
    folder = RunFolder.check_free(path, force=force) if ranks.leader else RunFolder(path)
    data_dir = given.get("data_dir")
    split = load(
        str(data),
        data_dir=None if data_dir is None else Path(data_dir),
        records=given.get("records"),
        classes=given.get("classes"),
        **{name: given[name] for name in OWN_FILE_OPTIONS if name in given},
    )
    refuse_cuts_of_persons(split, given, form=_form_of(split))
    public = given.get("public_data")
    if public is None and row.needs_public_data(given):
        public = default_public(str(data))
    notes: tuple[str, ...] = ()
    if public is not None:
        split = declare_public(split, str(public), data_dir=None if data_dir is None else Path(data_dir))
        notes = (describe_public(str(public), split),)
    if (validation := given.get("validation")) is not None:
        split = split.held_out(int(validation))
        notes = (*notes, held_out_note(split))
    split, cut_notes = cut_to_size(split, size) if size in LARGEST else (split, ())
    notes += cut_notes
    basis = preset(str(data), size, records=split.records, image=len(split.train.shape) == 3)
    settings = merge_settings(
        {
            **basis,
            **row.defaults(str(variant), records=split.records, size=size),
            **row.tuned_for(given, size=size),
        },
        config,
        options,
        {"public_data": public},
    )
    # calibrated once, so that all processes have it to the last digit
    content = json.dumps(asdict(row.plan(settings, records=split.records))) if ranks.leader else ""
    plan = from_json(PrivacyPlan, json.loads(ranks.text_from_leader(content)), where="plan")
    if plan.delta >= 1 / plan.records:
        notes = (
            *notes,
            f"delta {plan.delta:g} is not below 1/records: it would allow publishing a whole record.",
        )
    network = build_network(settings, split)
    method = build_method(settings, split, plan, ranks, network=network)
    method.check(split.public, shape=split.train.shape)
    if network.facts is not None or settings.memory is not None:
        method.refuse_unfit(split.train)
    notes = (*notes, *network.notes, *method.remarks)
    return Prepared(
        settings=settings, split=split, method=method, folder=folder, notes=notes, network=network.facts
    )


def follow(prepared: Prepared, ranks: Ranks) -> None:
    """What the other processes do: train with the leader, which alone writes, shows and audits."""
    if ranks.text_from_leader() == TRAINING:
        prepared.method.fit(prepared.split.train, public=prepared.split.public, ranks=ranks)
    ranks.close()


def train(
    prepared: Prepared,
    *,
    command: str,
    resume: bool = False,
    progress: Progress = silent,
    ranks: Ranks | None = None,
) -> tuple[Run, Card]:
    """Train, certify, attack; the folder holds everything but the report when this returns.

    The leader's part of several processes; the others `follow`.
    """
    ranks = ranks or Ranks.alone()
    settings, folder = prepared.settings, prepared.folder
    if not resume:
        folder.create()
        folder.write_config(
            {
                "settings": settings.to_json(),
                "plan": asdict(prepared.method.plan),
                "shape": list(prepared.split.train.shape),
                "classes": prepared.split.classes,
                "command": command,
                "notes": list(prepared.notes),
                **({} if (form := _form_of(prepared.split)) is None else {"inputs": asdict(form)}),
                **({} if prepared.network is None else {"network": asdict(prepared.network)}),
            }
        )
    only_audit = resume and folder.trained  # interrupted between training and card
    ranks.text_from_leader("" if only_audit else TRAINING)
    if only_audit:
        run = load_run(folder.path, device=settings.device)
        card = run.audit(prepared.split.test, settings=settings.audit(), progress=progress)
        folder.write_card(card)
        return run, card
    run = prepared.method.fit(
        prepared.split.train,
        public=prepared.split.public,
        test=prepared.split.test,
        folder=folder,
        resume=resume,
        progress=progress,
        command=command,
        notes=prepared.notes,
        ranks=ranks,
    )
    run = _as_far_as_provable(run, _form_of(prepared.split))
    ranks.close()  # the others leave now; what becomes of them no longer matters
    card = run.audit(prepared.split.test, settings=settings.audit(), progress=progress)
    folder.write_card(card)
    return run, card


def _form_of(split: Split) -> InputForm | None:
    return split.form if isinstance(split, DescribedSplit) else None


def read_form(config: Mapping[str, Any]) -> InputForm | None:
    """How the run's inputs were read, where a table or a folder of pictures was; None for other data."""
    content = config.get("inputs")
    return None if content is None else from_json(InputForm, content, where="config.json inputs")


def _as_far_as_provable(run: Run, form: InputForm | None) -> Run:
    """Constants that were read from private data leave nothing to prove."""
    if form is None or form.unprovable is None:
        return run
    return replace(run, unprovable=form.unprovable)


def read_settings(folder: RunFolder) -> tuple[TrainSettings, dict[str, Any]]:
    config = folder.read_config()
    for key in ("settings", "plan", "shape", "classes", "command", "notes"):
        if key not in config:
            raise RequestError(f"{folder.path / 'config.json'} lacks the key {key!r}")
    types = {"shape": (list, int), "notes": (list, str)}
    for key, (outer, inner) in types.items():
        if not isinstance(config[key], outer) or not all(type(item) is inner for item in config[key]):
            raise RequestError(f"{folder.path / 'config.json'} has a damaged {key!r}")
    if type(config["classes"]) is not int or not 2 <= config["classes"] < 2**31:
        raise RequestError(f"{folder.path / 'config.json'} has a damaged 'classes'")
    if len(config["shape"]) not in (1, 3) or min(config["shape"]) < 1:
        raise RequestError(f"{folder.path / 'config.json'} has a damaged 'shape'")
    if (form := read_form(config)) is not None:
        form.check(shape=tuple(config["shape"]), classes=config["classes"])
    return from_json(TrainSettings, config["settings"], where="config.json settings"), config


def audit_settings_of(path: Path) -> AuditSettings:
    """How a run was last audited, as its card says."""
    folder = RunFolder.open(path)
    settings = read_settings(folder)[0].audit()
    proven = folder.read_card().robustness.proven
    if proven is None:
        return settings
    return replace(settings, tested=proven.tested, samples=proven.samples, alpha=proven.alpha)


def prepare_resume(path: Path, ranks: Ranks | None = None) -> tuple[Prepared, str]:
    """An interrupted run, checked and ready to go on, with its original command."""
    ranks = ranks or Ranks.alone()
    folder, content = RunFolder(path), ""
    if ranks.leader:  # the others need not see the folder: they may run on other machines
        _check_resumable(folder)
        content = json.dumps(folder.read_config())
    config = json.loads(ranks.text_from_leader(content))
    settings = from_json(TrainSettings, config["settings"], where="config.json settings")
    split = load_split(settings)
    if _form_of(split) != read_form(config):
        raise RequestError(
            f"the schema or the folder of {settings.data} is no longer what {path} began with: put it back"
        )
    plan = from_json(PrivacyPlan, config["plan"], where="config.json plan")
    network, facts = build_network(settings, split), facts_of(config, settings, where=path)
    refuse_other_beginning(network, facts, settings)
    prepared = Prepared(
        settings=settings,
        split=split,
        method=build_method(settings, split, plan, ranks, network=network),
        folder=folder,
        notes=tuple(config["notes"]),
        network=facts,
    )
    return prepared, str(config["command"])


def _check_resumable(folder: RunFolder) -> None:
    path = folder.path
    read_settings(RunFolder.open(path))
    if (path / "card.json").exists():
        raise RequestError(f"{path} has finished; there is nothing to resume")
    if folder.trained:
        folder.remove_checkpoint()  # in case the kill came just before
    refuse_lost_events(folder)
    if folder.begun and not folder.trained:
        read_checkpoint_facts(folder.checkpoint)  # where none is whole, say so before anything is loaded


def load_split(settings: TrainSettings) -> Split:
    split = load(
        settings.data,
        data_dir=None if settings.data_dir is None else Path(settings.data_dir),
        records=settings.records,
        classes=settings.classes,
        schema=settings.schema,
        image_size=settings.image_size,
        grey=settings.grey,
        unit=settings.unit,
        max_per_unit=settings.max_per_unit,
        test=settings.test,
        holdout=settings.holdout,
    )
    if settings.public_data is not None:
        data_dir = None if settings.data_dir is None else Path(settings.data_dir)
        split = declare_public(split, settings.public_data, data_dir=data_dir)
    if settings.validation is not None:
        split = split.held_out(settings.validation)
    return cut_to_size(split, settings.size)[0]


def load_run(path: str | Path, *, model: nn.Module | None = None, device: str = "auto") -> Run:
    """A finished run from its folder.

    A network of your own is made by the factory that the run names, imported from the current folder or the
    installed packages; ``model``, if given, takes its place and is not changed.
    """
    folder = RunFolder.open(Path(path))
    settings, config = read_settings(folder)
    shape, facts = tuple(config["shape"]), facts_of(config, settings, where=folder.path)
    if model is None:
        model = named_network(settings, shape, config["classes"])
    else:
        model = furnished(copy.deepcopy(model), settings)
    load_released(model, folder.read_model(), facts, settings, shape, where=folder.path)
    row = find_method(settings.method, settings.variant)
    plan = from_json(PrivacyPlan, config["plan"], where="config.json plan")
    form = read_form(config)
    persons = form is not None and form.unit != ONE_RECORD
    build, kind = (method_by_person, RunByPerson) if persons else (row.build, Run)
    method = build(model.to(choose_device(device)), settings, plan)
    run = kind(
        method=settings.method,
        variant=settings.variant,
        claim_source=method.claim_source,
        claimed_epsilon=method.claimed_epsilon,
        unprovable=method.unprovable,
        data=Path(settings.data).stem,
        plan=plan,
        ledger=folder.read_events(),
        model=method.model,
        classes=config["classes"],
        noise=method.noise_layers(folder.read_constants(method.released_constants)),
        published_radius=method.published_radius,
        curve=folder.read_metrics(),
        seed=settings.seed,
        command=str(config["command"]),
        notes=tuple(config["notes"]),
    )
    return _as_far_as_provable(run, form)
