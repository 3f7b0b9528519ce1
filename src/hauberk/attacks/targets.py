"""What is attacked: a network, or a smoothed classifier with its own noise.

Both look the same from inside an attack: ``scores`` are differentiable, one per class, and an attack climbs
on them. They differ in what may be believed. A network's answer at a point is a fact. A smoothed classifier's
scores are an estimate from a few draws, and only many fresh draws say what it answers
(`hauberk.attacks.outcome`).
"""

from __future__ import annotations

import contextlib
import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, get_args

import torch
from torch import Tensor, nn

from hauberk.certify import Smoothed, evaluation_mode
from hauberk.certify.evaluation import comfortable_rows
from hauberk.errors import RequestError
from hauberk.randomness import derive_key

Loss = Literal["cross-entropy", "margin"]
LOSSES: tuple[Loss, ...] = get_args(Loss)
NO_ANSWER = -1  # scores that are no numbers name no class


class Target(ABC):
    """Something with differentiable class scores."""

    model: nn.Module
    device: torch.device
    classes: int
    randomised: bool
    inputs_at_once: int  # as many as suit the device

    @abstractmethod
    def scores(self, x: Tensor) -> Tensor:
        """``(len(x), classes)``, larger for likelier classes, differentiable in ``x``."""


class Network(Target):
    """A torch model that answers with the class of the largest score."""

    randomised = False

    def __init__(self, model: nn.Module, example: Tensor) -> None:
        self.model = model
        self._forward: Callable[[Tensor], Tensor] = model
        self.device = next((part.device for part in (*model.parameters(), *model.buffers())), example.device)
        self.inputs_at_once, answer = _try_out(model, example.to(self.device))
        if not isinstance(answer, Tensor) or answer.ndim != 2 or len(answer) != len(example):
            shape = tuple(answer.shape) if isinstance(answer, Tensor) else type(answer).__name__
            raise RequestError(
                f"the model answers {len(example)} input with {shape}: it must give a row of class scores"
            )
        if answer.shape[1] < 2:
            raise RequestError(
                "the model gives a single score: it must give one per class, for two classes for instance "
                "torch.cat([-score, score], dim=1)"
            )
        self.classes = answer.shape[1]

    def scores(self, x: Tensor) -> Tensor:
        scores: Tensor = self._forward(x)
        return scores

    def compiled(self) -> Network:
        """The same through ``torch.compile``."""
        other = copy.copy(self)
        other._forward = torch.compile(self.model, dynamic=True)  # batches shrink
        return other


class Noisy(Target):
    """A smoothed classifier, seen through ``draws`` fresh noises at every look.

    The scores are ``log E[softmax]``: the expectation is inside the logarithm, so that climbing on their
    cross-entropy climbs on the smoothed classifier's own loss (Salman et al. 2019), not on the average loss
    of its noisy copies.
    """

    randomised = True

    def __init__(self, smoothed: Smoothed, example: Tensor, *, draws: int, seed: int) -> None:
        self.smoothed, self.draws = smoothed, draws
        self.model, self.device, self.classes = smoothed.model, smoothed.device, smoothed.classes
        rows, _ = _try_out(self.model, example.to(self.device))
        self.inputs_at_once = max(1, rows // draws)
        self.generator = generator(smoothed.device, seed, "noise of the attack")

    def scores(self, x: Tensor) -> Tensor:
        logits = self.smoothed.logits(x, self.draws, self.generator)
        return log_mean_softmax(logits.unflatten(0, (len(x), self.draws)))


def _try_out(model: nn.Module, example: Tensor) -> tuple[int, object]:
    """How many rows at once suit the device, and what the model answers to the example."""
    answers: list[Any] = []

    def run() -> Any:
        answers.append(model(example))
        return answers[0]

    with evaluation_mode(model):
        rows = comfortable_rows(model, run, example.device)
    if example.device.type != "cpu":
        rows //= 4  # a gradient keeps the outputs of all layers, a vote only those of two
    return max(1, rows), answers[0]


def log_mean_softmax(logits: Tensor) -> Tensor:
    """``log`` of the mean of the softmax over the second axis."""
    return torch.logsumexp(nn.functional.log_softmax(logits, dim=2), dim=1) - math.log(logits.shape[1])


def generator(device: torch.device, seed: int, stream: str) -> torch.Generator:
    """Random numbers of one purpose: different streams of a seed have nothing in common."""
    high, low = derive_key(seed, stream)
    return torch.Generator(device=device).manual_seed((high << 32 | low) >> 1)


def answers(scores: Tensor) -> Tensor:
    """The class of the largest score; `NO_ANSWER` where a score is no number."""
    return torch.where(scores.isnan().any(1), NO_ANSWER, scores.argmax(1))


@dataclass(frozen=True, kw_only=True)
class Goal:
    """What an attack wants of every row: to lose its class, or, targeted, to get it."""

    classes: Tensor
    targeted: bool
    loss: Loss = "cross-entropy"

    def gains(self, scores: Tensor) -> Tensor:
        """One number per row that an attack makes large.

        ``cross-entropy`` of the class (its negative when targeted); ``margin``: by how much the best other
        class is ahead (behind when targeted), which still has a slope where the softmax has saturated.
        """
        if self.loss == "margin":
            rows = self.classes.view(-1, 1)
            others = scores.scatter(1, rows, -torch.inf).amax(1)
            ahead = others - scores.gather(1, rows).squeeze(1)
        else:
            ahead = nn.functional.cross_entropy(scores, self.classes, reduction="none")
        return -ahead if self.targeted else ahead

    def reached(self, answers: Tensor) -> Tensor:
        return (answers == self.classes) if self.targeted else (answers != self.classes)

    def take(self, rows: Tensor) -> Self:
        return replace(self, classes=self.classes[rows])


@contextlib.contextmanager
def left_as_it_was(model: nn.Module) -> Iterator[None]:
    """Eval mode inside; afterwards every layer's mode, every ``.grad`` and ``.requires_grad`` as before.

    Inside, no parameter asks for a gradient: an attack needs those of its inputs alone.
    """
    parameters = list(model.parameters())
    before = [(parameter, parameter.grad, parameter.requires_grad) for parameter in parameters]
    with evaluation_mode(model), torch.enable_grad():
        try:
            for parameter in parameters:
                parameter.grad = None
                parameter.requires_grad_(False)
            yield
        finally:
            for parameter, gradient, wanted in before:
                parameter.requires_grad_(wanted)
                parameter.grad = gradient
