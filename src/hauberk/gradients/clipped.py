"""Clipped gradient sums: the one thing private training takes from its records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hauberk.errors import RequestError
from hauberk.gradients.captured import CapturedPasses, PassOutcome
from hauberk.gradients.choice import RECORDS, PathChoice, choose_path, made_up, notice
from hauberk.gradients.clipping import AdaptiveClip, Clipping, joint_norm
from hauberk.gradients.fast import FastPath
from hauberk.gradients.general import GeneralPath, trainable
from hauberk.gradients.geometry import Geometry
from hauberk.gradients.losses import RecordLoss, ScoreLoss, Views, mean_cross_entropy
from hauberk.gradients.memory import MemoryNeed, measure
from hauberk.gradients.record_mixing import refuse_record_mixing, refuse_remembered_records


@dataclass(frozen=True, kw_only=True)
class ClippedSum:
    """A sum over records of gradients (in the engine's geometry), each clipped to ``sensitivity``.

    Guarantee: adding or removing one record moves the sum by at most ``sensitivity`` in l2 norm over all
    parameters together (up to float32 rounding, which the norms are rounded up for).

    ``records``, ``clipped`` and ``loss`` are private diagnostics: they were computed from the records without
    noise and must not leave the run's ``private`` folder.
    """

    gradients: dict[str, Tensor]
    sensitivity: float
    records: int
    clipped: int
    loss: float


class ClippedGradients:
    """Computes clipped gradient sums for one model, one per-record loss, one clipping and one geometry.

    ``path`` is chosen by itself: fast where the loss is a `ScoreLoss` and the fast path agrees with the
    general one on made-up records of the same shape, general otherwise, with one `GeneralPathNotice`.
    ``memory`` (bytes) limits the working memory of a step: the batch is taken in parts, the result is that of
    the whole batch. ``bfloat16`` runs the model in mixed precision (norms and sums stay in float32).
    """

    def __init__(
        self,
        model: nn.Module,
        loss: RecordLoss = mean_cross_entropy,
        *,
        clipping: Clipping,
        geometry: Geometry | None = None,
        memory: int | None = None,
        path: PathChoice = "auto",
        bfloat16: bool = False,
    ) -> None:
        refuse_record_mixing(model)
        weights = trainable(model)
        if not weights:
            raise RequestError("the model has no parameter with requires_grad=True: nothing can be trained")
        for name, weight in weights.items():
            if weight.dtype not in (torch.float32, torch.float64):
                raise RequestError(
                    f"parameter '{name}' is {weight.dtype}: gradient norms lose their bound below float32"
                )
        if geometry is not None:
            geometry.check(weights)
        if bfloat16 and (not isinstance(loss, ScoreLoss) or path == "general"):
            raise RequestError("bfloat16 needs the fast path")
        self.clipping, self.geometry = clipping, geometry
        self._model, self._loss, self._memory = model, loss, memory
        self._asked, self._bfloat16 = path, bfloat16
        self._path: FastPath | GeneralPath | None = None
        self._need: MemoryNeed | None = None
        self._captured: CapturedPasses | None = None
        self._may_capture = False

    @property
    def path(self) -> str:
        """``"fast"`` or ``"general"``; decided by `prepare`."""
        return "undecided" if self._path is None else self._path.name

    def prepare(self, example: Views) -> None:
        """Choose the path and measure its memory, on made-up records of the shape of ``example``.

        ``example`` is ``(records, K, ...)``. Raises a `RequestError` for a model that has no per-record
        gradient at all. The first sum does this by itself.
        """
        views = made_up(example)
        labels = torch.zeros(RECORDS, dtype=torch.int64, device=_first(views).device)
        refuse_remembered_records(self._model, self._loss, views, labels)
        self._path = choose_path(
            self._model, self._loss, views, labels, asked=self._asked, bfloat16=self._bfloat16
        )
        # a graph would keep the first bound of a clipping that moves
        self._may_capture = isinstance(self._path, FastPath) and not isinstance(self.clipping, AdaptiveClip)
        with torch.random.fork_rng():
            self._need = measure(self._path, self._model, views, labels, count=_first(example).shape[1])
        if self._memory is not None:
            self._need.check(self._memory)

    def close(self) -> None:
        """Give back the device memory of recorded passes; a later sum records anew.

        They hold gigabytes, and hold on to what made them: without this the memory of one training would
        still be in use in the next, until Python looks for cycles.
        """
        self._captured = None

    def records_at_a_time(self) -> int:
        """How many records a step takes through the model at once."""
        assert self._need is not None
        return self._need.records_within(self._memory)

    def clipped_sum(self, views: Views, labels: Tensor) -> ClippedSum:
        """Clip each record's gradient and add up; an empty batch gives zeros.

        Nothing that a record contains may stop this: whether a run finishes must not depend on one record.
        """
        if self._path is None:
            self.prepare(views)
        total: dict[str, Tensor] = {}
        facts, finite = [], []
        for part in even_parts(len(labels), self.records_at_a_time()):
            outcome = self._pass(_rows(views, part), labels[part])
            sums = list(outcome.sums.values())
            if total:
                torch._foreach_add_(list(total.values()), sums)
            else:  # a copy: the next pass may overwrite these
                total = dict(zip(outcome.sums, torch._foreach_mul(sums, 1.0), strict=True))
            facts.append(outcome.facts)
            finite.append(outcome.finite)
        if not total:
            total = {name: torch.zeros_like(weight) for name, weight in trainable(self._model).items()}
        clipped, unbounded, loss = torch.stack(facts).sum(0).tolist() if facts else (0, 0, 0.0)
        if unbounded:  # 0 * NaN is NaN: a factor of zero does not silence a record, leaving it out does
            keep = torch.cat(finite)
            total = self.clipped_sum(_rows(views, keep), labels[keep]).gradients
        return ClippedSum(
            gradients=total,
            sensitivity=self.clipping.sensitivity,
            records=len(labels),
            clipped=int(clipped),
            loss=loss / max(1, len(labels)),
        )

    def _pass(self, views: Views, labels: Tensor) -> PassOutcome:
        """Some of the records, by a recorded graph where there can be one."""
        if self._captured is None and self._may_capture and labels.device.type == "cuda":
            self._captured = CapturedPasses(self._model, self._launch)
        if self._captured is not None:
            try:
                return self._captured(views, labels)
            except RuntimeError as error:
                self._captured, self._may_capture = None, False
                full = isinstance(error, torch.OutOfMemoryError)
                why = "the device's memory is full" if full else str(error).splitlines()[0]
                notice(f"no CUDA graph of this model, steps are slower: {why}")
        return self._launch(views, labels, torch.ones(len(labels), device=labels.device))

    def _launch(self, views: Views, labels: Tensor, present: Tensor) -> PassOutcome:
        """Gradients, norms, factors, sums; ``present`` is 0 for rows that only fill up."""
        assert self._path is not None
        gradients, losses = self._path.gradients(views, labels)
        if self.geometry is not None:
            gradients = self.geometry.divided(gradients, trainable(self._model))
        norms = {name: gradient.norms() for name, gradient in gradients.items()}
        finite = joint_norm(norms).isfinite()
        factors = self.clipping.factors(norms)
        distinct = {id(factor): factor * present.to(factor.dtype) for factor in factors.values()}
        sums = {
            name: gradient.weighted_sum(distinct[id(factors[name])]) for name, gradient in gradients.items()
        }
        shortened = torch.stack([each < present for each in distinct.values()]).any(0)
        known = torch.where(losses.isfinite(), losses, 0.0) * present
        facts = [shortened.sum(), (~finite).sum(), known.sum()]
        return PassOutcome(sums, torch.stack([each.double() for each in facts]), finite)


def even_parts(records: int, most: int) -> Iterator[slice]:
    """As few parts as ``most`` allows, and as equal as possible."""
    size = -(-records // max(1, -(-records // most))) if records else 1
    return (slice(start, min(start + size, records)) for start in range(0, records, size))


def _first(views: Views) -> Tensor:
    return views[0] if isinstance(views, tuple) else views


def _rows(views: Views, rows: slice | Tensor) -> Views:
    return tuple(each[rows] for each in views) if isinstance(views, tuple) else views[rows]
