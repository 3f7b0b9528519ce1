"""Training an adversarial imitation network (004 chapter 5, Alg. 2).

    make the examples to imitate once, by attacks of this package
    for every epoch, at the present bound B:
        for every batch:  x' = clip(x + clip(AIN(x, y, noise), -B, B), 0, 1);  minimise Eq. 5.1
        measure the success on validation inputs; keep the epoch and tighten B, or roll back (Alg. 2)
    at the final bound: the rate falls to zero, and the epoch with the best success on validation is kept

The classifier is a fixed white box. Nothing is private here: everything about the inputs may be in the
weights afterwards, so for use in private training the inputs must be public ones.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from hauberk.attacks.imitation.bound import BoundSchedule, BoundWalk
from hauberk.attacks.imitation.examples import Examples, Recipe, imitated_examples
from hauberk.attacks.imitation.losses import Weights, imitation_loss, margins
from hauberk.attacks.imitation.networks import Architecture, ImitationNetwork
from hauberk.attacks.imitation.saved import Imitation, Origin
from hauberk.attacks.targets import generator, left_as_it_was
from hauberk.errors import RequestError
from hauberk.progress import Progress, silent
from hauberk.randomness import derive_key

_LARGEST_GRADIENT = 1.0  # its l2 norm, as in the authors' code
_ROWS_AT_ONCE = {"cpu": 512}
_ROWS_AT_ONCE_ON_A_DEVICE = 8192


@dataclass(frozen=True, kw_only=True)
class AINSettings:
    """``epochs`` counts those that are rolled back as well. ``falling``: the last part of training, over
    which the learning rate falls to nothing."""

    architecture: Architecture = field(default_factory=Architecture)
    weights: Weights = field(default_factory=Weights)
    schedule: BoundSchedule = field(default_factory=BoundSchedule)
    recipe: Recipe = field(default_factory=Recipe)
    epochs: int = 100
    batch: int = 512
    lr: float = 1e-3
    falling: float = 0.4

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch < 1 or not 0 < self.lr < float("inf"):
            raise RequestError("training needs at least one epoch, one input per batch and a positive rate")
        if not 0 <= self.falling <= 1:
            raise RequestError(f"falling is a part of training, from 0 to 1, got {self.falling}")

    def rate_at(self, epoch: int) -> float:
        left = 1 - epoch / self.epochs
        return self.lr * min(1.0, left / self.falling if self.falling else 1.0)

    def within(self, bound: float) -> AINSettings:
        """The same for another final bound; examples to imitate lie within it too."""
        schedule = replace(self.schedule, final=bound, initial=max(bound, self.schedule.initial))
        return replace(self, schedule=schedule, recipe=replace(self.recipe, radius=bound))


SMALL = AINSettings(
    architecture=Architecture(widths=(16, 32, 48, 64)),
    schedule=BoundSchedule(
        initial=0.5, final=0.3, rate=0.2, upper=5e-3, lower=5e-4, most_rollbacks=1, range=2.0
    ),
    recipe=Recipe(radius=0.3, steps=20),
    epochs=12,
    batch=128,
)
"""Minutes on two cores, for pictures of 28 x 28."""
PAPER = AINSettings(
    architecture=Architecture(widths=(32, 64, 128, 256)),
    schedule=BoundSchedule(
        initial=0.8, final=0.2, rate=0.1, upper=5e-3, lower=5e-4, most_rollbacks=1, range=2.0
    ),
    recipe=Recipe(radius=0.2, steps=50),
    epochs=60,
    batch=512,
)
"""The thesis' setting but for what one finds by reading its code: 1,024 channels in the centre, which make an
example dearer than fifty steps of I-FGSM on its classifier, and tens of thousands of epochs."""


@dataclass(frozen=True, kw_only=True)
class EpochRecord:
    """One epoch of training, whether it was kept or not."""

    epoch: int
    bound: float
    rate: float
    success: float  # on validation inputs, at this bound
    kept: bool
    loss: float


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainedAIN:
    imitation: Imitation
    history: tuple[EpochRecord, ...]


def attackable(classifier: nn.Module, x: Tensor, labels: Tensor, target: int | None) -> Tensor:
    """Rows that are answered rightly and are not of the target class: where an attack can succeed."""
    at_once = _ROWS_AT_ONCE.get(x.device.type, _ROWS_AT_ONCE_ON_A_DEVICE)
    with left_as_it_was(classifier), torch.no_grad():
        answers = [classifier(some).argmax(1) for some in x.split(at_once)]
    right = torch.cat(answers) == labels if answers else labels == labels
    return right if target is None else right & (labels != target)


def train_ain(
    classifier: nn.Module,
    x: Tensor,
    labels: Tensor,
    *,
    validation: tuple[Tensor, Tensor],
    classes: int,
    target: int | None,
    settings: AINSettings,
    start: Imitation | None = None,
    examples: Examples | None = None,
    origin: Origin | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> TrainedAIN:
    """Train on the device of ``x``; the classifier is left as it was.

    ``start``: an earlier AIN to begin with, for a classifier that has changed a little (004, fine-tuning);
    its architecture is kept. ``examples``: made before for exactly these inputs, target and recipe.
    """
    if target is not None and not 0 <= target < classes:
        raise RequestError(f"there is no class {target}: there are the classes 0 to {classes - 1}")
    wanted = labels != target if target is not None else torch.ones_like(labels, dtype=torch.bool)
    if not bool(wanted.any()):
        raise RequestError("there is nothing to attack: all inputs are of the target class already")
    checked = attackable(classifier, *validation, target)
    if not bool(checked.any()):
        raise RequestError(
            "the classifier answers no validation input rightly: train it longer, or give more of them"
        )
    if examples is None and settings.weights.imitation:
        examples = imitated_examples(
            classifier, x, labels, target=target, recipe=settings.recipe, seed=seed, progress=progress
        )
    loop = _Loop(
        classifier=classifier,
        x=x[wanted],
        labels=labels[wanted],
        examples=None if examples is None else _rows_of(examples, wanted),
        validation=(validation[0][checked], validation[1][checked]),
        target=target,
        network=_network(x, classes, settings.architecture, start, seed, progress),
        settings=settings,
        seed=seed,
    )
    with left_as_it_was(classifier):
        history, bound = loop.run(progress)
    imitation = Imitation(
        kind="ain",
        network=loop.network.requires_grad_(False).eval(),
        target=target,
        bound=bound,
        origin=origin or Origin(imitated=" and ".join(settings.recipe.attacks), records=len(x)),
    )
    return TrainedAIN(imitation=imitation, history=history)


def _network(
    x: Tensor,
    classes: int,
    architecture: Architecture,
    start: Imitation | None,
    seed: int,
    progress: Progress,
) -> ImitationNetwork:
    shape: tuple[int, int, int] = tuple(x.shape[1:])  # type: ignore[assignment]
    if start is not None:
        if not isinstance(start.network, ImitationNetwork):
            raise RequestError("only an AIN can be fine-tuned: train the others from the beginning")
        if (start.network.shape, start.network.classes) != (shape, classes):
            raise RequestError(
                f"the earlier AIN was made for inputs of shape {start.network.shape} and "
                f"{start.network.classes} classes, not for {shape} and {classes}"
            )
        network = copy.deepcopy(start.network).to(x.device).requires_grad_(True)
        if network.extractor is not None:
            network.extractor.requires_grad_(False)
        return network
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_key(seed, "imitation weights")[0])
        network = ImitationNetwork(shape, classes, architecture)
    if network.extractor is not None:
        network.extractor.train_once(progress=progress)
    return network.to(x.device)


def _rows_of(examples: Examples, rows: Tensor) -> Examples:
    return Examples(
        points=examples.points[rows], scores=examples.scores[rows], reached=examples.reached[rows]
    )


@dataclass(kw_only=True, eq=False)
class _Loop:
    """The epochs of Alg. 2."""

    classifier: nn.Module
    x: Tensor
    labels: Tensor
    examples: Examples | None
    validation: tuple[Tensor, Tensor]
    target: int | None
    network: ImitationNetwork
    settings: AINSettings
    seed: int

    def run(self, progress: Progress) -> tuple[tuple[EpochRecord, ...], float]:
        """All epochs; the network is left in its best state at the smallest bound that it was kept at."""
        walk = BoundWalk(self.settings.schedule)
        chance = generator(self.x.device, self.seed, "imitation training")
        optimizer = torch.optim.Adam(
            [weight for weight in self.network.parameters() if weight.requires_grad], lr=self.settings.lr
        )
        before = self._state(optimizer)
        best: tuple[float, float, dict[str, Any]] | None = None  # bound, success, weights
        history: list[EpochRecord] = []
        for epoch in range(self.settings.epochs):
            for group in optimizer.param_groups:
                group["lr"] = self.settings.rate_at(epoch)
            bound, rate = walk.bound, walk.rate
            loss = self._epoch(optimizer, bound, chance)
            success = self.success(bound, chance)
            kept = walk.advance(success) == "kept"
            if kept:
                before = self._state(optimizer)
                if best is None or bound < best[0] or (bound == best[0] and success >= best[1]):
                    best = bound, success, before[0]
            else:
                self.network.load_state_dict(before[0])
                optimizer.load_state_dict(before[1])
            history.append(
                EpochRecord(epoch=epoch, bound=bound, rate=rate, success=success, kept=kept, loss=loss)
            )
            progress("imitating", epoch + 1, self.settings.epochs)
        assert best is not None  # the first epoch is always kept
        self.network.load_state_dict(best[2])
        return tuple(history), best[0]

    def _state(self, optimizer: torch.optim.Optimizer) -> tuple[dict[str, Any], dict[str, Any]]:
        return copy.deepcopy(self.network.state_dict()), copy.deepcopy(optimizer.state_dict())

    def _goal(self, labels: Tensor) -> Tensor:
        return labels if self.target is None else torch.full_like(labels, self.target)

    def _epoch(self, optimizer: torch.optim.Optimizer, bound: float, chance: torch.Generator) -> float:
        """One pass over the inputs; the mean loss."""
        self.network.train()
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        order = torch.randperm(len(self.x), generator=chance, device=self.x.device)
        total = self.x.new_zeros(())
        for rows in order.split(self.settings.batch):
            loss = self._loss(rows, bound, chance)
            optimizer.zero_grad(set_to_none=True)
            loss.mean().backward()
            nn.utils.clip_grad_norm_(weights, _LARGEST_GRADIENT)
            optimizer.step()
            total += loss.detach().sum()
        return float(total) / len(self.x)

    def _loss(self, rows: Tensor, bound: float, chance: torch.Generator) -> Tensor:
        x, labels = self.x[rows], self.labels[rows]
        noise = self.network.draw_noise(len(x), chance)
        moved, perturbation = self.network.moved(x, labels, noise, bound)
        scores = self.classifier(moved)
        examples = self.examples
        return imitation_loss(
            self.settings.weights,
            perturbation=perturbation,
            moved=moved,
            imitated=moved if examples is None else examples.points[rows],
            scores=scores,
            imitated_scores=scores if examples is None else examples.scores[rows],
            worth_imitating=torch.zeros_like(labels) if examples is None else examples.reached[rows],
            classes=self._goal(labels),
            targeted=self.target is not None,
        )

    @torch.no_grad()
    def success(self, bound: float, chance: torch.Generator) -> float:
        """Share of the validation inputs that are broken at this bound."""
        self.network.eval()
        at_once = _ROWS_AT_ONCE.get(self.x.device.type, _ROWS_AT_ONCE_ON_A_DEVICE)
        broken, (inputs, truth) = 0.0, self.validation
        for x, labels in zip(inputs.split(at_once), truth.split(at_once), strict=True):
            moved, _ = self.network.moved(x, labels, self.network.draw_noise(len(x), chance), bound)
            behind = margins(self.classifier(moved), self._goal(labels), targeted=self.target is not None)
            broken += float((behind < 0).sum())
        return broken / len(inputs)
