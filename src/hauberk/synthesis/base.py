"""What all synthesizers share: they learn from patients, make new ones, and say what they guarantee.

A synthesizer is one file with a subclass of `Synthesizer` and one row in `hauberk.synthesis.catalogue`. The
subclass says what it releases (`planned_events`, `train`) and how patients are made of it (`sampler`); the
checks, the files and the card are here once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from hauberk.accounting import Card, Event, Ledger
from hauberk.accounting.card import PrivacyColumns
from hauberk.accounting.json_form import from_json
from hauberk.data.validation import check_count
from hauberk.errors import RequestError
from hauberk.mechanisms import EpsilonDelta
from hauberk.progress import Progress, silent
from hauberk.randomness import check_seed
from hauberk.synthesis.cards import ALWAYS_TRUE, NO_ROBUSTNESS, privacy_columns, versions
from hauberk.synthesis.patients import Patients
from hauberk.synthesis.schema import Schema
from hauberk.training.checkpoints import refuse_lost_events
from hauberk.training.run_folder import RunFolder

KIND = "synthesizer"  # marks the config.json of a synthesizer's run
STAND_IN_DELTA = 1e-5  # written beside the events of a run without privacy, where it means nothing
_PATIENTS_AT_ONCE = 1000


Sampler = Callable[[int, torch.Generator], Patients]
"""``sampler(count, generator)``: so many new patients."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a synthesizer is told beside its settings. Everything here is public.

    ``records`` is what you declare about the number of patients; it is never read from the data. ``budget``
    None trains without privacy. ``seed`` governs initial weights; ``noise_seed`` makes a run repeatable and
    thereby gives up every privacy proof.
    """

    schema: Schema
    records: int
    budget: EpsilonDelta | None
    seed: int = 0
    noise_seed: int | None = None
    data: str = "your data"
    unit: str = "one patient"
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_count(self.records, at_least=1, named="the declared number of patients")
        check_seed(check_count(self.seed, at_least=0, named="the seed"))
        if self.noise_seed is not None:
            check_seed(check_count(self.noise_seed, at_least=0, named="the noise seed"))
        if self.budget is not None and not (self.budget.epsilon > 0 and self.budget.delta > 0):
            raise RequestError("epsilon and delta must both be positive; or train without privacy.")

    @property
    def delta(self) -> float:
        return STAND_IN_DELTA if self.budget is None else self.budget.delta


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What training leaves: tensors that were released, and the ledger of how."""

    tensors: dict[str, Tensor]
    ledger: Ledger


class Synthesizer(ABC):
    """Learns from patients and makes new ones.

    Guarantee with a budget: everything that `fit` keeps, and thus every patient that `sample` makes, is
    (epsilon, delta)-differentially private for adding or removing one patient with all rows, if the noise
    comes from the operating system. The card proves it from the events that were executed.
    """

    name: ClassVar[str]
    settings_kind: ClassVar[type[Any]]  # a frozen dataclass of public constants
    claim_source: ClassVar[str]

    def __init__(self, task: Task, settings: Any = None) -> None:
        self.task = task
        self.settings = self.settings_kind() if settings is None else settings
        if not isinstance(self.settings, self.settings_kind):
            raise RequestError(f"{self.name} has settings of its own: {self.settings_kind.__name__}.")
        self._trained: Trained | None = None

    @abstractmethod
    def planned_events(self) -> tuple[Event, ...]:
        """All that `train` releases, known before it begins."""

    @abstractmethod
    def train(
        self, patients: Patients, *, folder: RunFolder | None, resume: bool, progress: Progress
    ) -> Trained:
        """Release what is planned, and write it down before it is released."""

    @abstractmethod
    def sampler(self, tensors: Mapping[str, Tensor]) -> Sampler:
        """What makes patients of what was released: post-processing."""

    def fit(
        self,
        patients: Patients,
        *,
        folder: RunFolder | None = None,
        resume: bool = False,
        progress: Progress = silent,
    ) -> Self:
        """Learn. With a ``folder`` (see `begin`) there are checkpoints, and an interrupted run can go on."""
        if patients.schema != self.task.schema:
            raise RequestError(
                f"these patients have the schema '{patients.schema.name}' and not the declared "
                f"'{self.task.schema.name}'; read them with the declared one."
            )
        if self._trained is not None:
            raise RequestError(f"this {self.name} has learned already, and a second time would cost again.")
        if folder is not None:
            folder.claim()
            refuse_lost_events(folder)
            if folder.begun and not resume:
                raise RequestError(f"{folder.path} holds releases of an earlier training; begin another one.")
            resume = resume and folder.begun
        self._trained = self.train(patients.to("cpu"), folder=folder, resume=resume, progress=progress)
        if folder is not None:
            folder.write_events(self._trained.ledger, delta=self.task.delta)
            folder.write_model(self._trained.tensors)
            folder.remove_checkpoint()
        return self

    @property
    def trained(self) -> Trained:
        if self._trained is None:
            raise RequestError(f"this {self.name} has learned nothing yet; call fit or load one.")
        return self._trained

    def sample(self, count: int, *, seed: int, progress: Progress = silent) -> Patients:
        """``count`` new patients, the same for the same seed; they validate against the schema."""
        check_count(count, at_least=1, named="the number of patients to make")
        check_seed(seed)
        make, generator = self.sampler(self.trained.tensors), torch.Generator().manual_seed(seed)
        parts: list[Patients] = []
        done = 0
        with torch.no_grad():
            while done < count:
                parts.append(make(min(_PATIENTS_AT_ONCE, count - done), generator))
                done += len(parts[-1])
                progress("sampling", done, count)
        return _together(parts)

    def card(self, *, command: str = "python") -> Card:
        """What is claimed, proven and observed about this synthesizer."""
        task = self.task
        return Card(
            method=self.name,
            variant=self.variant,
            data=task.data,
            records=task.records,
            privacy=self.privacy(),
            robustness=NO_ROBUSTNESS,
            utility=None,
            seed=task.seed,
            versions=versions(),
            command=command,
            notes=(*task.notes, *self.notes(), *ALWAYS_TRUE),
        )

    @property
    def variant(self) -> str:
        """``sound``: what is claimed is proven; ``paper``: as published."""
        return "sound"

    def privacy(self) -> PrivacyColumns:
        """The privacy columns of the card, from what was planned and what was executed."""
        task = self.task
        return privacy_columns(
            () if task.budget is None else self.planned_events(),
            self.trained.ledger,
            schema=task.schema,
            budget=task.budget,
            source=self.claim_source,
            unit=task.unit,
        )

    def notes(self) -> tuple[str, ...]:
        """What a reader of the card must know of this synthesizer, one sentence each."""
        return ()

    def config(self) -> dict[str, Any]:
        """Everything that makes this synthesizer but what it has learned: plain JSON."""
        task = self.task
        return {
            "kind": KIND,
            "synthesizer": self.name,
            "schema": task.schema.to_toml(),
            "records": task.records,
            "budget": None if task.budget is None else asdict(task.budget),
            "seed": task.seed,
            "noise_seed": task.noise_seed,
            "data": task.data,
            "unit": task.unit,
            "notes": list(task.notes),
            "settings": asdict(self.settings),
        }

    def begin(self, folder: RunFolder, **facts: Any) -> None:
        """Make the run folder and write the configuration, with what else the caller wants to find there."""
        folder.create()
        folder.write_config({**self.config(), **facts})

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """A run folder of plain files (JSON and safetensors) from which `load` makes it again."""
        folder, trained = RunFolder.check_free(Path(path), force=force), self.trained
        self.begin(folder)
        folder.write_events(trained.ledger, delta=self.task.delta)
        folder.write_model(trained.tensors)
        folder.write_card(self.card())
        folder.remove_checkpoint()

    @classmethod
    def from_config(cls, config: Mapping[str, Any], *, where: str) -> Self:
        """The synthesizer that `config` describes, before it learned."""
        if config.get("kind") != KIND or config.get("synthesizer") != cls.name:
            raise RequestError(f"{where} is no run of the synthesizer {cls.name}.")
        try:
            if not all(isinstance(text, str) for text in (config["data"], config["unit"], *config["notes"])):
                raise TypeError("names and notes are texts")
            if not isinstance(config["notes"], list):
                raise TypeError("notes are a list")
            budget = config["budget"]
            task = Task(
                schema=Schema.from_toml(config["schema"]),
                records=config["records"],
                budget=None if budget is None else from_json(EpsilonDelta, budget, where=f"{where} budget"),
                seed=config["seed"],
                noise_seed=config["noise_seed"],
                data=config["data"],
                unit=config["unit"],
                notes=tuple(config["notes"]),
            )
            settings = from_json(cls.settings_kind, config["settings"], where=f"{where} settings")
        except (KeyError, TypeError, AttributeError) as error:
            raise RequestError(f"{where} lacks something or has it in another form; train again.") from error
        return cls(task, settings)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """What `save`, or `fit` with a folder, wrote."""
        folder = RunFolder.open(Path(path))
        synthesizer = cls.from_config(folder.read_config(), where=str(folder.path / "config.json"))
        synthesizer._trained = Trained(tensors=folder.read_model(), ledger=folder.read_events())
        return synthesizer


def _together(parts: list[Patients]) -> Patients:
    """All parts one after the other, numbered anew."""
    return Patients(
        schema=parts[0].schema,
        static=torch.cat([part.static for part in parts]),
        static_observed=torch.cat([part.static_observed for part in parts]),
        increments=torch.cat([part.increments for part in parts]),
        values=torch.cat([part.values for part in parts]),
        observed=torch.cat([part.observed for part in parts]),
        lengths=torch.cat([part.lengths for part in parts]),
    )
