"""Certify a finished run again: on its test data or on a file's inputs, and write down what came out.

    certificates.csv   one row per test input
    certificates.json  question, gain and metrics

Both are about the last question that was asked of the test data. The card has one kind of radius only: l2, by
the tight certificate, from a fixed number of votes, sound, with the run's own seed. Another question leaves
it alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hauberk.accounting import Card
from hauberk.certify import Smoothed
from hauberk.certify.smoothed import Precision
from hauberk.data import Dataset
from hauberk.data.inputs import read_inputs
from hauberk.errors import RequestError
from hauberk.files import write_json, write_text
from hauberk.methods.columns import utility, versions
from hauberk.methods.finished_blocks import FinishedBlocks
from hauberk.methods.robustness_question import Question
from hauberk.methods.run import Run, base_accuracy, spread_rows
from hauberk.methods.training import audit_settings_of, choose_device, load_run, load_split, read_settings
from hauberk.methods.verified_inference import Verdicts, VerifiedInference
from hauberk.progress import Progress, silent
from hauberk.training import RunFolder
from hauberk.training.distribution import Ranks


@dataclass(frozen=True, kw_only=True, eq=False)
class Certification:
    """A checked request: which inputs of which run are asked about, and what. Nothing has been drawn yet."""

    folder: RunFolder
    run: Run
    inference: VerifiedInference
    x: Tensor
    rows: NDArray[np.int64]
    test: Dataset | None  # the whole test set; None if the inputs come from a file

    @property
    def truth(self) -> NDArray[np.int64] | None:
        return None if self.test is None else np.asarray(self.test.y.numpy()[self.rows])

    @property
    def for_the_card(self) -> bool:
        question = self.inference.question
        asked_norm_and_certificate = (question.norm, self.inference.certificate)
        usual = asked_norm_and_certificate == self.run.card_radius and question.bound == "votes"
        usual = usual and question.variant == "sound"
        radius_itself = question.radius is None and question.within is None
        own_seed = question.seed == self.run.seed
        return self.test is not None and usual and radius_itself and own_seed

    def kept(self) -> FinishedBlocks:
        """For the leader: what is finished already of exactly this request."""
        return self.inference.kept(self.folder.path, self.x)

    def answer(
        self, *, kept: FinishedBlocks | None = None, ranks: Ranks | None = None, progress: Progress = silent
    ) -> Verdicts | None:
        """See `VerifiedInference.answer`."""
        return self.inference.answer(
            self.x, rows=self.rows, truth=self.truth, kept=kept, ranks=ranks, progress=progress
        )

    def write(self, verdicts: Verdicts) -> Card | None:
        """Test data: the two files, and the card if it holds this kind of radius; a file's inputs: nothing.

        A new card drops what an attack observed, because the attack was on other certificates.
        """
        if self.test is None:
            return None
        path = self.folder.path
        write_text(path / "certificates.csv", verdicts.to_csv())
        weights = hashlib.sha256((path / "model.safetensors").read_bytes()).hexdigest()
        about = {"data": self.run.data, "weights_sha256": weights, "on_the_card": self.for_the_card}
        write_json(path / "certificates.json", {**about, **verdicts.summary()})
        if not self.for_the_card:
            return None
        card = self._card(verdicts, self.test)
        self.folder.write_card(card)
        return card

    def _card(self, verdicts: Verdicts, test: Dataset) -> Card:
        rows = torch.from_numpy(self.rows)
        before, tested = self.folder.read_card(), replace(test, x=test.x[rows], y=test.y[rows])
        truth = tested.y.numpy()
        return replace(
            before,
            robustness=self.run.robustness(verdicts.certificates, tested, attacked=None),
            utility=utility(
                verdicts.certificates.labels,
                truth,
                classes=self.run.classes,
                base_accuracy=base_accuracy(self.run.model, test),
                base_tested=len(test),
            ),
            versions=versions(),
            exhibits=replace(before.exhibits, strip=None),
        )


def prepare_certification(
    path: Path,
    *,
    options: Mapping[str, Any],
    inputs: Path | None = None,
    limit: int | None = None,
    precision: Precision = "float32",
    device: str = "auto",
    ranks: Ranks | None = None,
) -> Certification:
    """Check everything: the question, the run, its data or the file ``inputs``. Nothing is written.

    ``options`` are fields of `Question`; what is missing (or None) is taken from the run and its last audit.
    ``limit``: so many inputs, spread evenly over the test set or the file.
    """
    if limit is not None and limit < 1:
        raise RequestError(f"--limit must be at least 1, got {limit}")
    given = {name: value for name, value in options.items() if value is not None}
    settings, config = read_settings(RunFolder.open(path))
    audit = audit_settings_of(path)
    ranks = ranks or Ranks.alone()
    run = load_run(path, device=str(ranks.device(choose_device(device))))
    usual = {"alpha": audit.alpha, "seed": settings.seed, "norm": run.card_radius[0]}
    question = Question(**{**usual, **given})
    if question.samples is None and question.fixed:
        question = replace(question, samples=audit.samples)
    plain, shape = run.classifier, tuple(config["shape"])
    classifier = Smoothed(plain.model, classes=plain.classes, noise=plain.noise, precision=precision)
    inference = VerifiedInference(classifier, question, shape=shape)
    if inputs is None:
        test = load_split(settings).test
        rows = spread_rows(len(test), audit.tested if limit is None else limit)
        x = test.x[torch.from_numpy(rows)]
    else:
        test, x = None, read_inputs(inputs, shape=shape)
        rows = spread_rows(len(x), len(x) if limit is None else limit)
        x = x[torch.from_numpy(rows)]
    return Certification(folder=RunFolder.open(path), run=run, inference=inference, x=x, rows=rows, test=test)
