"""A classifier smoothed by noise, with its Monte Carlo certificate.

    input -> (+ noise) -> first affine map -> (+ noise) -> the rest of the network -> a vote

The smoothed classifier answers with the class that wins most often over the noise. It is this classifier that
is certified and deployed, not the network underneath. The bound needs noise at the input, or right after an
affine first map that everything else reads: a model that is built differently is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hauberk.certify.certificates import find_certificate
from hauberk.certify.confidence import bounds_from_scores, bounds_from_votes
from hauberk.certify.evaluation import (
    comfortable_rows,
    evaluation_mode,
    refuse_batch_statistics,
    refuse_mixed_inputs,
)
from hauberk.certify.first_map import FirstMap, find_first_map
from hauberk.certify.gains import Gain, gain
from hauberk.certify.noise import NoiseLayers, Norm
from hauberk.certify.rules import Asked, FixedDraws, Rule, largest_radius_of
from hauberk.certify.voting import Outcome, block_generator, block_size, settle
from hauberk.errors import RequestError
from hauberk.precision import coarse_convolutions, full_precision

ABSTAINED = -1
Precision = Literal["float32", "bfloat16"]
Bound = Literal["votes", "votes-and-rivals", "hoeffding", "bernstein"]
"""From draws to probabilities: Clopper–Pearson for the top class alone or for its rivals too; mean scores."""


@dataclass(frozen=True, kw_only=True)
class Certificates:
    """One row per input. Abstentions have label -1 and radius 0."""

    labels: NDArray[np.int64]
    radii: NDArray[np.float64]
    votes: NDArray[np.int64]  # for the selected class, among the estimation draws
    samples: int  # what a fixed number of draws is, or would have been
    alpha: float
    norm: Norm = "l2"
    certificate: str = "tight"
    question: str = ""
    arithmetic: str = "float32"
    draws: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))  # per input, all
    predicted: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))  # uncertified

    @property
    def abstained(self) -> NDArray[np.bool_]:
        return np.equal(self.labels, ABSTAINED)


class Smoothed:
    """``model`` smoothed with ``noise``; ``sigma`` is short for Gaussian noise of that size at the input.

    ``precision="bfloat16"`` and ``compiled`` run the network behind the noise faster. They are then part of
    the classifier that is certified (`arithmetic` says so): deploy the same one. The affine first map, on
    which the bound rests, always stays in the model's own precision.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        classes: int,
        sigma: float | None = None,
        noise: NoiseLayers | None = None,
        precision: Precision = "float32",
        compiled: bool = False,
    ) -> None:
        if (sigma is None) == (noise is None):
            raise RequestError("say either sigma or noise: without noise there is no certificate")
        if sigma is not None and not 0 < sigma < float("inf"):
            raise RequestError(f"sigma must be positive, got {sigma}: without noise there is no certificate")
        if precision not in ("float32", "bfloat16"):
            raise RequestError(f"the precision is float32 or bfloat16, not {precision}")
        refuse_batch_statistics(model)
        self.noise = noise if noise is not None else NoiseLayers(at_input=float(sigma or 0.0))
        if compiled and self.noise.after_map:
            raise RequestError("a network with noise behind its first map cannot be compiled: leave it out")
        self.model, self.classes, self.precision, self.compiled = model, classes, precision, compiled
        self._network = torch.compile(model, dynamic=True) if compiled else model
        self._shape: tuple[int, ...] | None = None
        self._first_map: FirstMap | None = None
        self._rows = 1

    @property
    def sigma(self) -> float:
        """Size of the noise at the input; zero if it is elsewhere."""
        return self.noise.at_input

    @property
    def gain(self) -> float:
        """Whitened l2 gain of input noise, the only one that depends on no shape."""
        if self.noise.after_map or self.noise.kind != "gaussian":
            raise RequestError("this gain depends on the network and the inputs' shape: ask gain_of")
        return 1.0 / self.noise.at_input

    @property
    def arithmetic(self) -> str:
        """What computes the votes: part of the function that is certified."""
        parts: list[str] = [self.precision]
        if self.device.type == "cuda" and self.precision == "float32" and coarse_convolutions():
            parts.append("with TensorFloat32 convolutions")
        if self.compiled:
            parts.append("compiled")
        return " ".join(parts)

    @property
    def device(self) -> torch.device:
        for tensor in (*self.model.parameters(), *self.model.buffers()):
            return tensor.device
        return torch.device("cpu")

    def examine(self, shape: tuple[int, ...]) -> None:
        """Refuse what no bound covers, for inputs of this shape; done once by whoever needs it first."""
        if self._shape == shape:
            return
        kind = next((each.dtype for each in self.model.parameters() if each.is_floating_point()), None)
        example = torch.rand((1, *shape), generator=torch.Generator().manual_seed(0)).to(self.device, kind)
        with evaluation_mode(self.model):
            first_map = None
            if self.noise.after_map:
                first_map = find_first_map(self.model, shape, self.noise.first_map)
            refuse_mixed_inputs(self.model, example[0])
            rows = comfortable_rows(self.model, lambda: self.model(example), self.device)
        self._shape, self._first_map, self._rows = shape, first_map, rows

    def gain_of(self, norm: Norm, shape: tuple[int, ...]) -> Gain:
        """How much one unit of ``norm`` at the input moves the noisy place, in units of the noise."""
        self.examine(shape)
        return gain(self.noise, norm, shape=shape, first_map=self._first_map)

    def asked(self, certificate: str, norm: Norm, alpha: float, shape: tuple[int, ...]) -> Asked:
        """A certificate for this classifier; one that does not fit its noise or the norm is refused."""
        chosen = find_certificate(certificate)
        if chosen.kind != self.noise.kind:
            raise RequestError(
                f"the certificate {chosen.name} is for {chosen.kind} noise, this classifier's is "
                f"{self.noise.kind}"
            )
        if norm not in chosen.norms:
            raise RequestError(f"the certificate {chosen.name} holds for {', '.join(chosen.norms)} only")
        if not 0 < alpha < 1:
            raise RequestError(f"alpha must lie strictly between 0 and 1, got {alpha}")
        return Asked(certificate=chosen, gain=self.gain_of(norm, shape).value, alpha=alpha)

    def noisy(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """The input with its noise."""
        return x + self.noise.draw(x, self.noise.at_input, generator) if self.noise.at_input else x

    def start(self, x: Tensor) -> StartedInputs:
        """Do once what does not depend on the noise."""
        self.examine(tuple(x.shape[1:]))
        x = x.to(self.device)
        if self._first_map is not None and not self.noise.at_input:
            x = self._mapped(self._first_map, x)
        return StartedInputs(self, x)

    @staticmethod
    def _mapped(first_map: FirstMap, x: Tensor) -> Tensor:
        """``W x + b`` in the model's own precision: coarser arithmetic would not be affine."""
        with full_precision():
            return first_map.apply(x)

    def _answers(self, started: Tensor, generator: torch.Generator) -> Tensor:
        """Scores of one draw for every row of what `start` returned."""
        rows = self.noisy(started, generator)
        if self._first_map is None:
            with self._arithmetic():
                return self._checked(self._network(rows), len(rows))
        mapped = self._mapped(self._first_map, rows) if self.noise.at_input else rows
        mapped = mapped + self.noise.draw(mapped, self.noise.after_first_map, generator)
        with self._arithmetic():
            return self._checked(self._first_map.rest(mapped, mapped), len(rows))

    @contextmanager
    def _arithmetic(self) -> Iterator[None]:
        half = self.precision == "bfloat16"
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=half):
            yield

    def _checked(self, scores: Tensor, rows: int) -> Tensor:
        if scores.shape != (rows, self.classes):
            raise RequestError(
                f"the network's scores have shape {tuple(scores.shape)} for {rows} inputs: it must give one "
                f"score for each of the {self.classes} classes"
            )
        return scores.float() if scores.dtype == torch.bfloat16 else scores

    def logits(self, x: Tensor, draws: int, generator: torch.Generator) -> Tensor:
        """Scores of ``draws`` noisy copies of every input, those of one input side by side.

        Differentiable in ``x``: what attacks with expectation over the noise need.
        """
        return self._answers(self.start(x)._start.repeat_interleave(draws, 0), generator)

    def count_votes(self, x: Tensor, samples: int, generator: torch.Generator) -> NDArray[np.int64]:
        """Votes per class, ``(inputs, classes)``, from ``samples`` fresh draws per input.

        A draw whose scores hold NaN is a vote for nobody: argmax would name a class all the same.
        """
        if not len(x):
            return np.zeros((0, self.classes), dtype=np.int64)
        with torch.no_grad(), evaluation_mode(self.model):
            return self.start(x).votes(samples, generator)

    def certify(
        self,
        x: Tensor,
        *,
        samples: int = 1000,
        alpha: float = 0.001,
        selection_samples: int = 100,
        rule: Rule | None = None,
        norm: Norm = "l2",
        certificate: str = "tight",
        bound: Bound = "votes",
        seed: int = 0,
        first: int = 0,
        progress: Callable[[int], None] | None = None,
    ) -> Certificates:
        """Label and certified radius for every input.

        Guarantee, for each input on its own: with probability at least ``1 - alpha`` over the draws, the
        smoothed classifier's answer on every input within the radius, measured in ``norm``, is the returned
        label. The class is selected on draws of its own.

        ``rule`` says how many draws (default: `FixedDraws` with ``samples`` and ``selection_samples``, the
        procedure of Cohen et al. 2019). Other bounds, for a fixed number of draws: ``votes-and-rivals``
        bounds every rival class by itself, with alpha split, instead of giving it the rest; ``hoeffding`` and
        ``bernstein`` certify the classifier that answers by its largest mean softmax score instead of by
        votes. ``first`` is where ``x`` begins in a longer test set: blocks of inputs have seeds of their own.
        """
        if bound not in get_args(Bound):
            raise RequestError(f"there is no bound '{bound}': choose one of {', '.join(get_args(Bound))}")
        rule = rule or FixedDraws(samples=samples, selection=selection_samples)
        if bound != "votes" and not isinstance(rule, FixedDraws):
            raise RequestError(f"the bound {bound} needs a fixed number of draws")
        asked = self.asked(certificate, norm, alpha, tuple(x.shape[1:]))
        size = block_size(self.device)
        outcomes, room = [], self._rows if self.device.type != "cpu" else 0
        with torch.no_grad(), evaluation_mode(self.model):
            for begin in range(0, len(x), size):
                block = self.start(x[begin : begin + size])
                generator = block_generator(self.device, seed, first + begin)
                if bound == "votes":
                    outcomes.append(settle(block, rule, asked, generator, room=room, progress=progress))
                else:
                    outcomes.append(_by_all_classes(block, rule, asked, generator, bound))
                    if progress is not None:
                        progress(len(block))
        return self._certificates(_joined(outcomes), rule, asked, norm, bound)

    def _certificates(
        self, outcome: Outcome, rule: Rule, asked: Asked, norm: Norm, bound: str
    ) -> Certificates:
        certain = outcome.radii > 0
        return Certificates(
            labels=np.where(certain, outcome.selected, ABSTAINED),
            radii=outcome.radii,
            votes=outcome.votes,
            samples=rule.samples,
            alpha=asked.alpha,
            norm=norm,
            certificate=asked.certificate.name,
            question=rule.question if bound == "votes" else f"{rule.question} ({bound})",
            arithmetic=self.arithmetic,
            draws=outcome.draws,
            predicted=outcome.leading,
        )


class StartedInputs:
    """Inputs of a smoothed classifier, with what does not depend on the noise already done."""

    def __init__(self, target: Smoothed, start: Tensor) -> None:
        self._target, self._start = target, start

    def __len__(self) -> int:
        return len(self._start)

    def take(self, rows: Tensor) -> StartedInputs:
        return StartedInputs(self._target, self._start[rows.to(self._start.device)])

    def _batches(self, draws: int, generator: torch.Generator) -> Iterator[tuple[slice, Tensor]]:
        """Scores ``(inputs, draws, classes)`` of some inputs at a time, in pieces the device likes."""
        limit = self._target._rows
        at_once = max(1, limit // max(1, draws))
        for begin in range(0, len(self), at_once):
            rows = self._start[begin : begin + at_once]
            left = draws
            while left > 0:
                now = min(left, max(1, limit // len(rows)))
                scores = self._target._answers(rows.repeat_interleave(now, 0), generator)
                yield slice(begin, begin + len(rows)), scores.unflatten(0, (len(rows), now))
                left -= now

    def votes(self, draws: int, generator: torch.Generator) -> NDArray[np.int64]:
        classes = self._target.classes
        counts = torch.zeros(len(self), classes, dtype=torch.int64, device=self._start.device)
        for rows, scores in self._batches(draws, generator):
            votes = nn.functional.one_hot(scores.argmax(2), classes)
            votes *= ~scores.isnan().any(2, keepdim=True)
            counts[rows] += votes.sum(1)
        return np.asarray(counts.cpu().numpy(), dtype=np.int64)

    def scores(
        self, draws: int, generator: torch.Generator
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and variance (with divisor draws - 1) of every class's softmax score; NaN counts as zero."""
        classes = self._target.classes
        sums = torch.zeros(2, len(self), classes, dtype=torch.float64, device=self._start.device)
        for rows, scores in self._batches(draws, generator):
            share = torch.nan_to_num(scores.double().softmax(2), nan=0.0)
            sums[0, rows] += share.sum(1)
            sums[1, rows] += share.square().sum(1)
        mean, square = (sums / draws).cpu().numpy()
        return mean, np.maximum(square - mean**2, 0.0) * draws / max(1, draws - 1)


def _by_all_classes(
    block: StartedInputs, rule: Rule, asked: Asked, generator: torch.Generator, bound: str
) -> Outcome:
    """One look after a fixed number of draws at the selected class and at every rival by itself."""
    picked = np.arange(len(block))
    if bound == "votes-and-rivals":
        selected = block.votes(rule.selection, generator).argmax(1)
        counts = block.votes(rule.samples, generator)
        lower, rival = bounds_from_votes(counts, selected, rule.samples, asked.alpha)
        leading, votes = counts.argmax(1), counts[picked, selected]
    else:
        selected = block.scores(rule.selection, generator)[0].argmax(1)
        mean, variance = block.scores(rule.samples, generator)
        lower, rival = bounds_from_scores(
            mean, selected, rule.samples, asked.alpha, variances=variance if bound == "bernstein" else None
        )
        leading, votes = mean.argmax(1), np.zeros(len(block), dtype=np.int64)
    return Outcome(
        selected=selected,
        leading=leading,
        votes=votes,
        draws=np.full(len(block), rule.samples),
        lower=lower,
        radii=asked.certificate.radius(lower, rival, gain=asked.gain),
    )


def _joined(outcomes: list[Outcome]) -> Outcome:
    whole = np.empty(0, dtype=np.int64)
    names = ("selected", "leading", "votes", "draws", "lower", "radii")
    kinds = {name: np.float64 if name in ("lower", "radii") else np.int64 for name in names}
    return Outcome(
        **{
            name: np.concatenate([whole.astype(kinds[name]), *(getattr(each, name) for each in outcomes)])
            for name in names
        }
    )


def largest_radius(*, gain: float, samples: int, alpha: float, certificate: str = "tight") -> float:
    """What unanimous votes would certify: the cap that ``samples`` and ``alpha`` put on every radius."""
    return largest_radius_of(
        Asked(certificate=find_certificate(certificate), gain=gain, alpha=alpha), samples
    )
