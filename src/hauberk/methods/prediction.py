"""Predict from a file: a run's answer to every row or picture, with the radius within which it holds.

Inputs are read as the run's own data were: a table by the run's schema, pictures at the run's size, archives
and single pictures by their shape.
"""

from __future__ import annotations

import csv
import io
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hauberk.data import Dataset
from hauberk.data.image_folder import PICTURES, pictures_below, read_pictures
from hauberk.data.input_form import InputForm
from hauberk.data.inputs import read_inputs
from hauberk.data.table import is_table, read_table
from hauberk.data.table_schema import TableSchema
from hauberk.errors import RequestError
from hauberk.methods.robustness_question import Question
from hauberk.methods.run import Run, predictions
from hauberk.methods.training import audit_settings_of, load_run, read_form, read_settings
from hauberk.methods.verified_inference import VerifiedInference
from hauberk.progress import Progress, silent
from hauberk.training import RunFolder


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """One input's answer. ``label`` is None where the classifier abstains, ``radius`` where it has none.

    ``in_users_units``: how far each number of a table's row may move alone, in its own units; None where the
    row has no such number.
    """

    input: str
    label: str | None
    radius: float | None
    abstain: bool
    in_users_units: dict[str, float | None]

    def flat(self) -> dict[str, Any]:
        """As one line of a table."""
        own = {f"radius_{name}": value for name, value in self.in_users_units.items()}
        return {
            "input": self.input,
            "label": self.label,
            "radius": self.radius,
            "abstain": self.abstain,
        } | own


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """The answers to a file's inputs, and what the radii mean.

    Guarantee, for each input on its own: with probability at least ``1 - alpha`` over the draws, the smoothed
    classifier answers ``label`` on every input within ``radius`` in ``norm``. Without a ``certificate`` (the
    method promises no robustness) labels are the network's own, and nothing is said about other inputs.
    """

    certificate: str | None
    norm: str | None
    alpha: float | None
    samples: int | None
    rows: tuple[Prediction, ...]

    def summary(self) -> dict[str, Any]:
        """Everything but the single inputs."""
        return {name: getattr(self, name) for name in ("certificate", "norm", "alpha", "samples")}

    def to_csv(self) -> str:
        """A head line and one line per input; floats as exact as they are."""
        text = io.StringIO()
        lines = [row.flat() for row in self.rows]
        writer = csv.DictWriter(text, lines[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows({**line, "abstain": str(line["abstain"]).lower()} for line in lines)
        return text.getvalue()


@dataclass(frozen=True, kw_only=True, eq=False)
class PreparedPrediction:
    """A checked request: everything has been read, nothing has been drawn."""

    run: Run
    form: InputForm | None
    inference: VerifiedInference | None
    names: tuple[str, ...]
    x: Tensor

    @property
    def class_names(self) -> tuple[str, ...]:
        return tuple(map(str, range(self.run.classes))) if self.form is None else self.form.classes

    def answer(self, *, progress: Progress = silent) -> Predictions:
        """Label and radius of every input; see `Predictions` for the guarantee."""
        if self.inference is None:
            blank = torch.zeros(len(self.x), dtype=torch.int64)
            asked = Dataset(name="inputs", x=self.x, y=blank, classes=self.run.classes)
            labels = predictions(self.run.model, asked).tolist()
            rows = tuple(self._row(place, label, None) for place, label in enumerate(labels))
            return Predictions(certificate=None, norm=None, alpha=None, samples=None, rows=rows)
        verdicts = self.inference.answer(self.x, progress=progress)
        assert verdicts is not None  # alone, one leads
        found = verdicts.certificates
        answers = zip(range(len(self.x)), found.labels.tolist(), found.radii.tolist(), strict=True)
        return Predictions(
            certificate=found.certificate,
            norm=found.norm,
            alpha=found.alpha,
            samples=found.samples,
            rows=tuple(self._row(*each) for each in answers),
        )

    @cached_property
    def _schema(self) -> TableSchema | None:
        return None if self.form is None else self.form.table

    def _row(self, place: int, label: int, radius: float | None) -> Prediction:
        own: dict[str, float | None] = {}
        if self._schema is not None and radius is not None:
            absent = self._schema.missing_in(self.x[place].tolist())
            moves = self._schema.in_users_units(radius).items()
            own = {name: None if name in absent else move for name, move in moves}
        abstain = label < 0
        return Prediction(
            input=self.names[place],
            label=None if abstain else self.class_names[label],
            radius=radius,
            abstain=abstain,
            in_users_units=own,
        )


def prepare_prediction(
    path: Path,
    inputs: Path,
    *,
    samples: int | None = None,
    alpha: float | None = None,
    seed: int | None = None,
    device: str = "auto",
) -> PreparedPrediction:
    """Check the run and read the inputs. What is not given is taken from the run and its last audit."""
    settings, config = read_settings(RunFolder.open(path))
    form, shape = read_form(config), tuple(config["shape"])
    names, x = _read(inputs, form, shape)
    run, inference = load_run(path, device=device), None
    if run.noise is not None:
        audit = audit_settings_of(path)
        question = Question(
            norm=run.card_radius[0],
            samples=audit.samples if samples is None else samples,
            alpha=audit.alpha if alpha is None else alpha,
            seed=settings.seed if seed is None else seed,
        )
        inference = VerifiedInference(run.classifier, question, shape=shape)
    elif samples is not None or alpha is not None:
        raise RequestError(f"{run.method} promises no robustness: leave out --samples and --alpha")
    return PreparedPrediction(run=run, form=form, inference=inference, names=names, x=x)


def _read(path: Path, form: InputForm | None, shape: tuple[int, ...]) -> tuple[tuple[str, ...], Tensor]:
    """The inputs with a name for each: a line of a table, a row of an archive, a picture's file."""
    schema = None if form is None else form.table
    if is_table(path):
        if schema is None:
            raise RequestError(
                f"{path} is a table, but this run was not trained on one; give it pictures or an .npz file."
            )
        table = read_table(path, schema, labelled=False)
        return tuple(f"line {line}" for line in table.lines), table.x
    if os.path.isdir(path):
        if schema is not None:
            raise RequestError(
                f"{path} is a folder, but this run was trained on a table; give it a .csv file."
            )
        files = pictures_below(path)
        if not files:
            raise RequestError(f"{path} holds no pictures; give a folder with at least one.")
        return tuple(_shown(each.relative_to(path)) for each in files), _pictures(files, form, shape)
    if path.suffix.lower() in PICTURES and schema is None:
        return (_shown(Path(path.name)),), _pictures([path], form, shape)
    x = read_inputs(path, shape=shape)
    return tuple(f"row {row}" for row in range(len(x))), x


def _pictures(paths: list[Path], form: InputForm | None, shape: tuple[int, ...]) -> Tensor:
    """At the size that the run's pictures were brought to; exactly as they are, where it had none."""
    if form is None or form.image_size is None:
        return torch.cat([read_inputs(path, shape=shape) for path in paths])
    return read_pictures(paths, image_size=form.image_size, grey=form.grey)


def _shown(path: Path) -> str:
    """A file's name as text, whatever bytes it has."""
    return os.fsencode(path.as_posix()).decode(errors="replace")
