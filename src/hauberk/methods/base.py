"""What all methods share: a model that is copied, a plan, a way to train, a run that can be examined.

A method is one file with a subclass of `Method` and one row in the catalogue. The subclass says where it
differs from DP-SGD, and nothing else; the rest is done here once:

    settle         what is computed before training (a redistribution of noise, a public classifier)
    noise_layers   the noise of the released classifier
    in_training    the form in which the network is trained
    record_views, record_loss   what it sees of a record, and what it minimises
    shaping, noise how privacy noise is shaped, or which noise its paper adds
    hold           what is done to released weights after every step
"""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from hauberk.accounting import Event, Ledger, PrivacyPlan
from hauberk.certify import NoiseLayers
from hauberk.data import Dataset
from hauberk.errors import RequestError
from hauberk.gradients import (
    Clipping,
    FlatClip,
    GeneralPathNotice,
    RecordLoss,
    mean_cross_entropy,
    refuse_record_mixing,
)
from hauberk.gradients.choice import PathChoice
from hauberk.methods.claims import PublishedRadius
from hauberk.methods.published_pruning import REASON, ErrorFeedback, PublishedPruning
from hauberk.methods.run import Run, as_dataset, base_accuracy
from hauberk.progress import Progress, silent
from hauberk.randomness import Randomness, SystemRandomness, choose_randomness
from hauberk.training import NoisyViews, Optimisation, PrivateTrainer, RecordViews, RunFolder, StepDone
from hauberk.training.checkpoints import (
    read_checkpoint_constants,
    read_checkpoint_facts,
    refuse_lost_events,
    restore_checkpoint,
)
from hauberk.training.distribution import ProcessLost, Ranks
from hauberk.training.journal import Journal
from hauberk.training.noise import StepNoise
from hauberk.training.sampling import Sampler
from hauberk.training.shaping import Moments, PlainShaping, Shaping

DEFAULT_OPTIMISATION = Optimisation(lr=2.0)
CLEAN_VIEW = NoisyViews(sigma=0.0, views=1)


Constants = dict[str, Tensor]
"""What was settled before training, by name: it stays as it is, and a checkpoint keeps it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Given:
    """What a method may look at before training; what it takes from ``private`` it must account for."""

    model: nn.Module  # a copy, on the device where training will be
    private: Dataset
    public: Dataset | None
    randomness: Randomness
    ranks: Ranks
    progress: Progress


class Method:
    """A method with its settings. The model you pass in is copied, never changed or rewritten.

    ``clipping`` (a number: a flat l2 bound) bounds each record's gradient; ``memory`` limits, in bytes, what
    a step works with; ``path`` insists on the fast or the general gradients, which agree. ``seed`` governs
    evaluation; ``noise_seed`` makes training repeatable and thereby gives up every privacy proof.
    ``pruned`` is the part of the coordinates that a step leaves out (`ReleasedPruning`; as published, nothing
    is proven of it). ``claimed_epsilon`` is what the method's paper says; without it, what the plan's own
    accounting says.
    """

    name: ClassVar[str]
    claim_source = "accounting of the plan: Poisson sampling, per-record clipping, Gaussian noise on the sum"
    published_radius: PublishedRadius | None = None  # None: what is claimed is what is proven
    remarks: ClassVar[tuple[str, ...]] = ()  # what a card must say about how this method is run here
    released_constants: ClassVar[tuple[str, ...]] = ()  # what of the constants `noise_layers` reads

    def __init__(
        self,
        model: nn.Module,
        *,
        plan: PrivacyPlan,
        views: NoisyViews = CLEAN_VIEW,
        clipping: Clipping | float = 0.1,
        optimisation: Optimisation = DEFAULT_OPTIMISATION,
        memory: int | None = None,
        path: PathChoice = "auto",
        seed: int = 0,
        noise_seed: int | None = None,
        variant: str = "sound",
        claimed_epsilon: float | None = None,
        pruned: float = 0.0,
    ) -> None:
        refuse_record_mixing(model)
        self.moments = Moments(pruned=pruned)
        self.model, self.plan, self.views = model, plan, views
        self.clipping = FlatClip(float(clipping)) if isinstance(clipping, int | float) else clipping
        self.optimisation, self.memory, self.path = optimisation, memory, path
        self.seed, self.noise_seed = seed, noise_seed
        self.variant, self.claimed_epsilon = variant, claimed_epsilon

    def shaping(self, weights: Mapping[str, Tensor]) -> Shaping | None:
        """How released gradients shape clipping and noise; by default not at all."""
        return PlainShaping(weights, self.moments) if self.moments.pruned else None

    def noise(self, trainer: PrivateTrainer) -> StepNoise:
        """The plan's noise; some published variants have one of their own."""
        return trainer.noise

    def sampler(self, trainer: PrivateTrainer) -> Sampler:
        """Poisson sampling by the plan; some published variants have fixed batches."""
        return trainer.sampler

    def check(self, public: Dataset | None, *, shape: tuple[int, ...]) -> None:
        """Refuse, before anything is written, what `settle` could not do."""

    def refuse_unfit(self, data: Dataset) -> None:
        """Refuse, before anything is written, a network that the first step would refuse.

        Tried on a blank record of the form of ``data``, whose records are not looked at.
        """
        nobody = replace(data, x=torch.zeros_like(data.x[:1]), y=torch.zeros_like(data.y[:1]))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GeneralPathNotice)  # said when training begins
            self.trainer(nobody).close()

    def settle(self, given: Given) -> Constants:
        """Compute what must be known before the first step; ``given.model`` may be changed freely."""
        return {}

    @property
    def beforehand(self) -> tuple[Event, ...]:
        """What `settle` releases about the private records."""
        return self.plan.beforehand

    def furnish(self, model: nn.Module, constants: Constants) -> None:
        """Put into a fresh model what was settled for its fixed parts."""

    def noise_layers(self, constants: Constants) -> NoiseLayers | None:
        """The noise of the released classifier; None: no robustness is promised."""
        return None

    def in_training(self, model: nn.Module, shape: tuple[int, ...], constants: Constants) -> nn.Module:
        """The network as it is trained; it must train ``model``'s own parameters."""
        return model

    def record_views(self, model: nn.Module, shape: tuple[int, ...], constants: Constants) -> RecordViews:
        """What the loss sees of a record."""
        return self.views

    def record_loss(self, shape: tuple[int, ...], classes: int) -> RecordLoss:
        """Of the network in training, for one record with all its views."""
        return mean_cross_entropy

    def hold(self, model: nn.Module, shape: tuple[int, ...]) -> Callable[[], None] | None:
        """A rule for the weights after every step, which looks at nothing but weights; None: no rule."""
        return None

    @property
    def unprovable(self) -> str | None:
        """Why nothing can be proven about this method with these settings, if so."""
        return REASON if self._published_pruning else None

    @property
    def _published_pruning(self) -> bool:
        return self.variant == "paper" and self.moments.pruned > 0

    def trainer(
        self,
        data: Dataset,
        *,
        model: nn.Module | None = None,
        randomness: Randomness | None = None,
        ranks: Ranks | None = None,
        constants: Constants | None = None,
    ) -> PrivateTrainer:
        """The method's training loop over ``data``, before its first step; ``model`` is trained in place.

        Of several processes this one takes its shard of ``data``. ``constants``: what `settle` gave.
        """
        ranks = ranks or Ranks.alone()
        model = _copied(self.model) if model is None else model
        constants = constants or {}
        device = next(model.parameters()).device
        constants = {name: each.to(device) for name, each in constants.items()}
        self.furnish(model, constants)
        views = self.record_views(model, data.shape, constants)
        held = self.hold(model, data.shape)
        if held is not None:
            held()
        model = self.in_training(model, data.shape, constants)
        weights = {name: weight.detach() for name, weight in model.named_parameters() if weight.requires_grad}
        published_pruning = self._published_pruning
        trainer = PrivateTrainer(
            model,
            data.x[ranks.shard].to(device),
            data.y[ranks.shard].to(device),
            plan=self.plan,
            views=views,
            loss=self.record_loss(data.shape, data.classes),
            clipping=copy.deepcopy(self.clipping),  # an adaptive one moves during training
            shaping=ErrorFeedback(weights) if published_pruning else self.shaping(weights),
            optimisation=self.optimisation,
            randomness=randomness or choose_randomness(self.noise_seed),
            memory=self.memory,
            path=self.path,
            ranks=ranks,
            constants=constants,
            after_step=held,
        )
        trainer.noise = self.noise(trainer)
        trainer.sampler = self.sampler(trainer)
        if published_pruning:
            trainer.noise = PublishedPruning(trainer, trainer.noise, self.moments.pruned)
        return trainer

    def fit(
        self,
        train: Dataset | tuple[Tensor, Tensor],
        *,
        public: Dataset | None = None,
        test: Dataset | None = None,
        classes: int | None = None,
        folder: RunFolder | None = None,
        resume: bool = False,
        progress: Progress = silent,
        command: str = "python",
        notes: tuple[str, ...] = (),
        ranks: Ranks | None = None,
    ) -> Run:
        """Train; ``test`` (not protected) is only used to draw the accuracy curve.

        ``public`` are records that need no protection and are none of ``train``; methods that have a use for
        them say so. ``classes`` is needed for a pair of tensors: the number of classes is a public constant.
        Every process of ``ranks`` calls this with the same ``train``; the leader alone takes ``folder``,
        ``test``, ``resume`` and ``progress``, and all of them get the same weights and the same ledger.
        """
        ranks = ranks or Ranks.alone()
        if not ranks.leader:
            test, folder, resume, progress = None, None, False, silent
        if isinstance(train, Dataset):
            classes = train.classes
        elif classes is None:
            raise RequestError("pass classes=...: the number of classes is public and not read from the data")
        data = as_dataset(train, classes=classes)
        model, released = _copied(self.model), _copied(self.model)
        _refuse_other_outputs(released, data.shape, classes)
        if folder is not None:
            folder.claim()  # before anything of it is read
            refuse_lost_events(folder)
            resume = resume and folder.begun  # else no step has run: begin at the beginning
        if ranks.leader and not resume:
            self.check(public, shape=data.shape)
        randomness = choose_randomness(self.noise_seed)
        if resume and folder is not None and self.noise_seed is None:
            randomness = SystemRandomness(view_key=read_checkpoint_facts(folder.checkpoint)[1])
        constants: Constants = {}
        if resume and folder is not None:
            constants = read_checkpoint_constants(folder.checkpoint)
        elif ranks.leader:
            constants = self.settle(
                Given(
                    model=_copied(self.model),
                    private=data,
                    public=public,
                    randomness=randomness,
                    ranks=ranks,
                    progress=progress,
                )
            )
        constants = ranks.state_from_leader(constants)
        trainer = self.trainer(data, model=model, randomness=randomness, ranks=ranks, constants=constants)
        scratch = self.in_training(released, data.shape, constants)
        journal = Journal(
            trainer,
            folder=folder,
            randomness=randomness,
            evaluate=None if test is None else lambda _: base_accuracy(released, test),
            scratch=scratch,
            progress=progress,
            beforehand=self.beforehand,
        )
        if resume and folder is not None:
            restore_checkpoint(trainer, folder.checkpoint)
            journal.resume(folder.read_events(), folder.read_metrics())
        journal.reserve()
        try:
            trainer.run(journal if ranks.leader else _unobserved)
        except ProcessLost as lost:
            raise lost.at(run=None if folder is None else folder.path) from lost
        ledger = Ledger.from_json(json.loads(ranks.text_from_leader(json.dumps(journal.spent.to_json()))))
        trainer.averaged_model(scratch)
        trainer.close()
        if folder is not None:
            folder.write_constants({name: trainer.constants[name] for name in self.released_constants})
            folder.write_model(released.state_dict())
            folder.remove_checkpoint()
        return Run(
            method=self.name,
            variant=self.variant,
            claim_source=self.claim_source,
            claimed_epsilon=self.claimed_epsilon,
            unprovable=self.unprovable or data.unprovable,
            data=data.name,
            plan=self.plan,
            ledger=ledger,
            model=released,
            classes=classes,
            noise=self.noise_layers(trainer.constants),
            published_radius=self.published_radius,
            curve=tuple(journal.curve),
            seed=self.seed,
            command=command,
            notes=(*notes, *(each for each in self.remarks if each not in notes)),
        )


def _unobserved(done: StepDone) -> None:
    """Of a step that the leader watches."""


def _copied(model: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(model)
    except Exception as error:  # legacy weight_norm keeps a weight that torch does not copy
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise RequestError(f"this model cannot be copied: {reason}") from error


def refuse_other_losses(loss: object) -> None:
    """A module of torch's reduces over a batch and does not know a record's views."""
    if isinstance(loss, nn.Module) or not callable(loss):
        raise RequestError(
            "a loss of your own is a function of (predict, views, label) for one record, or a "
            "hauberk.gradients.ScoreLoss of the scores"
        )


def _refuse_other_outputs(model: nn.Module, shape: tuple[int, ...], classes: int) -> None:
    """The network must give one score per class; tried on a blank input, never on a record."""
    weight = next(model.parameters(), None)
    blank = torch.zeros(1, *shape, device=None if weight is None else weight.device)
    try:
        with torch.no_grad():
            answer = tuple(model(blank).shape)
    except Exception as error:  # the model may be anybody's code
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise RequestError(f"this model cannot take inputs of shape {shape}: {reason}") from error
    if answer != (1, classes):
        raise RequestError(f"this model answers with shape {answer[1:]} and not with {classes} class scores")
