"""Verified inference: a label, whether it is robust, and up to which radius, for every input.

    for every input:
        draw noisy copies, let them vote, bound the winner's probability         (000 Alg. 1, lines 18-23)
        certificate and gain of the noise turn the bound into a radius           (003 Alg. 3)
        return isRobust (radius >= mu), label, radius

Long test sets go in blocks, each with a seed of its own: finished blocks are kept on disk, so that a killed
command goes on where it was, and several processes share the blocks among themselves. Neither changes a bit
of the result.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from hauberk.certify import Certificates, Gain, Metrics, Smoothed, evaluation_mode, measure
from hauberk.certify.first_map import find_first_map
from hauberk.certify.metrics import as_numbers, correct_radii, curve_radii
from hauberk.certify.published_gains import PublishedGain, published_gain
from hauberk.certify.voting import block_size
from hauberk.errors import RequestError
from hauberk.methods.finished_blocks import Block, FinishedBlocks, digest_of, joined
from hauberk.methods.robustness_question import Question
from hauberk.progress import Progress, silent
from hauberk.training.distribution import ProcessLost, Ranks
from hauberk.version import __version__

_NO_FEATURE_MAP = "The noise is at the input, there is no feature map: the published radius is the sound one."
_PATIENCE = timedelta(days=30)  # one process may be done with its block long before another


class CertificationLost(RequestError):
    """One of several processes has gone; the leader has kept the finished blocks."""

    def __init__(self) -> None:
        super().__init__(
            "a process of this certification was lost: give the same command again, "
            "it goes on with the blocks that are finished"
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Verdicts:
    """The answer to a `Question` for each of some inputs; ``rows`` are their places in the test set or file.

    Guarantee, for each input on its own: with probability at least ``1 - alpha`` over the draws, the smoothed
    classifier answers ``label`` on every input within ``radius``. Nothing of the kind holds for the claimed
    radii, which are those of the papers.
    """

    question: Question
    certificates: Certificates
    classes: int
    gain: Gain
    largest_radius: float
    published: PublishedGain | None
    rows: NDArray[np.int64]
    truth: NDArray[np.int64] | None

    @property
    def labels(self) -> NDArray[np.int64]:
        """The certified label; without a certificate the class that won most draws, which may be wrong."""
        certificates = self.certificates
        return np.where(certificates.abstained, certificates.predicted, certificates.labels)

    @property
    def robust(self) -> NDArray[np.bool_]:
        """At the radius that was asked for, else at any radius at all."""
        return self._robust(self.certificates.radii)

    def _robust(self, radii: NDArray[np.float64]) -> NDArray[np.bool_]:
        asked = self.question.radius
        return np.asarray(radii > 0 if asked is None else radii >= asked)

    @property
    def claimed_radii(self) -> NDArray[np.float64] | None:
        """What the papers' gain makes of the same votes."""
        if self.published is None:
            return None
        return self.certificates.radii * self.published.radius_too_large_by(self.gain)

    @cached_property
    def metrics(self) -> Metrics | None:
        """None where the truth is not known."""
        return self._measured(self.certificates)

    @cached_property
    def claimed_metrics(self) -> Metrics | None:
        claimed = self.claimed_radii
        return None if claimed is None else self._measured(replace(self.certificates, radii=claimed))

    def _measured(self, certificates: Certificates) -> Metrics | None:
        if self.truth is None:
            return None
        asked = self.question.radius
        radii = set() if asked is None else {asked}
        if self.question.fixed or asked is None:
            radii |= set(curve_radii(correct_radii(certificates, self.truth)))
        return measure(certificates, self.truth, classes=self.classes, radii=sorted(radii))

    def _columns(self) -> dict[str, NDArray[Any]]:
        columns: dict[str, NDArray[Any]] = {"row": self.rows}
        if self.truth is not None:
            columns["truth"] = self.truth
        columns["label"] = self.labels
        if self.truth is not None:
            columns["correct"] = self.labels == self.truth
        columns |= {"robust": self.robust, "radius": self.certificates.radii}
        if (claimed := self.claimed_radii) is not None:
            columns |= {"claimed_robust": self._robust(claimed), "claimed_radius": claimed}
        if self.question.bound.startswith("votes"):
            columns["votes"] = self.certificates.votes
        columns["draws"] = self.certificates.draws
        return columns

    def inputs(self) -> list[dict[str, Any]]:
        """One row per input, as plain numbers."""
        columns = {name: column.tolist() for name, column in self._columns().items()}
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]

    def to_csv(self) -> str:
        """The same with a head line; floats as exact as they are, truth values as true and false."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self._columns())
        for row in self.inputs():
            writer.writerow(str(each).lower() if isinstance(each, bool) else each for each in row.values())
        return text.getvalue()

    def summary(self) -> dict[str, Any]:
        """Everything but the single inputs, as JSON."""
        question, certificates = self.question, self.certificates
        published = None
        if self.published is not None:
            factor = self.published.radius_too_large_by(self.gain)
            published = {**as_numbers(self.published), "radius_too_large_by": factor}
        return {
            "question": certificates.question,
            "norm": certificates.norm,
            "radius": question.radius,
            "within": question.within,
            "certificate": certificates.certificate,
            "variant": question.variant,
            "bound": question.bound,
            "alpha": certificates.alpha,
            "samples": certificates.samples,
            "seed": question.seed,
            "arithmetic": certificates.arithmetic,
            "gain": as_numbers(self.gain),
            "published_gain": published,
            "largest_radius": self.largest_radius,
            "tested": len(self.rows),
            "robust": int(self.robust.sum()),
            "draws": int(certificates.draws.sum()),
            "metrics": as_numbers(self.metrics),
            "claimed_metrics": as_numbers(self.claimed_metrics),
        }


class VerifiedInference:
    """A question to a classifier about inputs of one shape; what cannot be answered is refused here.

    ``notices`` are sentences that whoever asked should read before the draws are made.
    """

    def __init__(self, classifier: Smoothed, question: Question, *, shape: tuple[int, ...]) -> None:
        self.classifier, self.question, self.shape = classifier, question, shape
        self.certificate = question.certificate_for(classifier.noise)
        asked = classifier.asked(self.certificate, question.norm, question.alpha, shape)
        self.gain = classifier.gain_of(question.norm, shape)
        notices = [question.check_draws(asked, classes=classifier.classes)]
        self.largest_radius = question.largest_radius(asked, classes=classifier.classes)
        self.published = None
        if question.variant == "paper":
            self.published = self._published_gain()
            notices.append(None if classifier.noise.after_map else _NO_FEATURE_MAP)
        self.notices = tuple(notice for notice in notices if notice is not None)

    def _published_gain(self) -> PublishedGain:
        noise, model = self.classifier.noise, self.classifier.model
        with evaluation_mode(model):
            first_map = find_first_map(model, self.shape, noise.first_map) if noise.after_map else None
        return published_gain(noise, self.question.norm, shape=self.shape, first_map=first_map)

    def digest(self, x: Tensor) -> str:
        """Of all that the certificates of ``x`` depend on, the versions that compute them included."""
        classifier, question = self.classifier, self.question
        noise, device = classifier.noise, classifier.device
        weights = {name: _sha256(each) for name, each in classifier.model.state_dict().items()}
        return digest_of(
            {
                "weights": weights,
                "network": repr(classifier.model),
                "noise": [noise.kind, noise.at_input, noise.first_map],
                "noise after the map": _sha256(torch.as_tensor(noise.after_first_map)),
                "arithmetic": classifier.arithmetic,
                "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
                "block": block_size(device),
                "rule": repr(question.rule()),
                "asked": [question.norm, self.certificate, question.bound, question.alpha, question.seed],
                "inputs": [list(x.shape), _sha256(x)],
                "versions": [__version__, torch.__version__, np.__version__],
            }
        )

    def kept(self, folder: Path, x: Tensor) -> FinishedBlocks:
        """What an earlier, interrupted command with the same question about ``x`` left in the folder.

        A single block cannot be resumed in its middle: nothing is kept of it.
        """
        several = len(x) > block_size(self.classifier.device)
        return FinishedBlocks(folder if several else None, self.digest(x))

    def answer(
        self,
        x: Tensor,
        *,
        rows: NDArray[np.int64] | None = None,
        truth: NDArray[np.int64] | None = None,
        kept: FinishedBlocks | None = None,
        ranks: Ranks | None = None,
        progress: Progress = silent,
    ) -> Verdicts | None:
        """Label, robustness and radius of every input; see `Verdicts` for the guarantee.

        All processes of ``ranks`` call this with the same inputs. The leader alone takes ``kept`` and gets
        an answer, the same for any number of processes; the others get None.
        """
        ranks = ranks or Ranks.alone()
        kept = FinishedBlocks() if kept is None else kept
        try:
            ranks.check_same(self.digest(x) if ranks.count > 1 else "")
            self._finish_blocks(x, kept, ranks, progress)
        except ProcessLost as lost:
            raise CertificationLost from lost
        if not ranks.leader:
            return None
        return Verdicts(
            question=self.question,
            certificates=joined(kept.blocks, like=self._certified(x[:0], first=0)),
            classes=self.classifier.classes,
            gain=self.gain,
            largest_radius=self.largest_radius,
            published=self.published,
            rows=np.arange(len(x)) if rows is None else rows,
            truth=truth,
        )

    def _finish_blocks(self, x: Tensor, kept: FinishedBlocks, ranks: Ranks, progress: Progress) -> None:
        """In turns: every process certifies a block, the leader gathers and keeps them."""
        size = block_size(self.classifier.device)
        missing = [first for first in range(0, len(x), size) if first not in kept]
        missing = json.loads(ranks.text_from_leader(json.dumps(missing)))
        exchange = _Exchange(ranks, size)
        for turn in range(0, len(missing), ranks.count):
            firsts = missing[turn : turn + ranks.count]
            settled = len(kept)

            def advance(count: int) -> None:
                nonlocal settled
                settled += count
                if ranks.leader:
                    progress("certifying", settled, len(x))

            own = None
            if ranks.rank < len(firsts):
                first = firsts[ranks.rank]
                own = Block.of(first, self._certified(x[first : first + size], first, advance))
            kept.add(exchange.at_leader(own, firsts, len(x)))
            if ranks.leader:
                progress("certifying", len(kept), len(x))

    def _certified(self, x: Tensor, first: int, advance: Any = None) -> Certificates:
        question = self.question
        return self.classifier.certify(
            x,
            rule=question.rule(),
            alpha=question.alpha,
            norm=question.norm,
            certificate=self.certificate,
            bound=question.bound,
            seed=question.seed,
            first=first,
            progress=advance,
        )


class _Exchange:
    """Brings blocks to the leader, through main memory."""

    def __init__(self, ranks: Ranks, size: int) -> None:
        self._ranks, self._size = ranks, size
        self._group = None
        if ranks.count > 1:
            with _together():
                self._group = dist.new_group(backend="gloo", timeout=_PATIENCE)

    def at_leader(self, own: Block | None, firsts: list[int], inputs: int) -> list[Block]:
        """At the leader the blocks that begin at ``firsts``, one of each process; elsewhere nothing."""
        if self._group is None:
            return [] if own is None else [own]
        empty = torch.zeros((self._size, 5), dtype=torch.int64)
        sent = empty if own is None else torch.from_numpy(own.to_words(self._size))
        received = [torch.empty_like(empty) for _ in range(self._ranks.count)] if self._ranks.leader else None
        with _together():
            dist.gather(sent, received, dst=0, group=self._group)
        return [
            Block.from_words(first, words[: min(self._size, inputs - first)].numpy())
            for first, words in zip(firsts, received or [], strict=False)
        ]


@contextmanager
def _together() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise CertificationLost from error


def verify(
    classifier: Smoothed,
    x: Tensor,
    question: Question | None = None,
    *,
    truth: NDArray[np.int64] | None = None,
    progress: Progress = silent,
) -> Verdicts:
    """The question's answer for every input, in this process, in memory; see `Verdicts`."""
    inference = VerifiedInference(classifier, question or Question(), shape=tuple(x.shape[1:]))
    for notice in inference.notices:
        warnings.warn(notice, stacklevel=2)
    verdicts = inference.answer(x, truth=truth, progress=progress)
    assert verdicts is not None  # alone, one leads
    return verdicts


def _sha256(tensor: Tensor) -> str:
    plain = tensor.detach().cpu().contiguous()
    return hashlib.sha256(plain.flatten().view(torch.uint8).numpy().tobytes()).hexdigest()
