"""Private smoothing: DP-SGD on noisy copies of each record, then a certified smoothed classifier.

    for every step:
        sample each record by its own coin
        for every sampled record: average the loss over K noisy copies, take its gradient, clip it once
        add the clipped gradients and Gaussian noise, divide by a constant, take a momentum step
    release the averaged weights; predict by majority vote under the same input noise

Guarantees: training is (epsilon, delta)-differentially private for adding or removing one record (PLD). Each
prediction comes with an l2 radius within which it cannot change, wrong with probability at most alpha.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from hauberk.accounting import PrivacyPlan
from hauberk.certify import Smoothed
from hauberk.data import Dataset
from hauberk.errors import RequestError
from hauberk.gradients import Clipping, FlatClip, refuse_record_mixing
from hauberk.gradients.choice import PathChoice
from hauberk.methods.run import Run, as_dataset, base_accuracy
from hauberk.progress import Progress, silent
from hauberk.randomness import SystemRandomness, choose_randomness
from hauberk.training import NoisyViews, Optimisation, PrivateTrainer, RunFolder
from hauberk.training.checkpoints import read_checkpoint_facts, restore_checkpoint
from hauberk.training.journal import Journal

NAME = "private-smoothing"
DEFAULT_OPTIMISATION = Optimisation(lr=2.0)
CLAIM_SOURCE = "accounting of the plan: Poisson sampling, per-record clipping, Gaussian noise on the sum"


class PrivateSmoothing:
    """The method with its settings. The model you pass in is copied, never changed or rewritten.

    ``sigma`` is both the noise of the training copies and that of the smoothed classifier. ``clipping`` (a
    number: a flat l2 bound) bounds each record's gradient; ``memory`` limits, in bytes, what a step works
    with; ``path`` insists on the fast or the general gradients, which agree. ``seed`` governs evaluation;
    ``noise_seed`` makes training repeatable and thereby gives up every privacy proof.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        plan: PrivacyPlan,
        sigma: float,
        views: int = 1,
        clipping: Clipping | float = 0.1,
        optimisation: Optimisation = DEFAULT_OPTIMISATION,
        memory: int | None = None,
        path: PathChoice = "auto",
        seed: int = 0,
        noise_seed: int | None = None,
    ) -> None:
        if not 0 < sigma < float("inf"):
            raise RequestError(f"sigma must be positive, got {sigma}: without noise there is no certificate")
        refuse_record_mixing(model)
        self.model, self.plan, self.sigma = model, plan, sigma
        self.clipping = FlatClip(float(clipping)) if isinstance(clipping, int | float) else clipping
        self.views = NoisyViews(sigma=sigma, views=views)
        self.optimisation, self.memory, self.path = optimisation, memory, path
        self.seed, self.noise_seed = seed, noise_seed

    def fit(
        self,
        train: Dataset | tuple[Tensor, Tensor],
        *,
        test: Dataset | None = None,
        classes: int | None = None,
        folder: RunFolder | None = None,
        resume: bool = False,
        progress: Progress = silent,
        command: str = "python",
        notes: tuple[str, ...] = (),
    ) -> Run:
        """Train; ``test`` (not protected) is only used to draw the accuracy curve.

        ``classes`` is needed for a pair of tensors: the number of classes is a public constant.
        """
        if isinstance(train, Dataset):
            classes = train.classes
        elif classes is None:
            raise RequestError("pass classes=...: the number of classes is public and not read from the data")
        data = as_dataset(train, classes=classes)
        model, released = copy.deepcopy(self.model), copy.deepcopy(self.model)
        _refuse_other_outputs(released, data.shape, classes)
        device = next(model.parameters()).device
        randomness = choose_randomness(self.noise_seed)
        if resume and folder is not None and self.noise_seed is None:
            randomness = SystemRandomness(view_key=read_checkpoint_facts(folder.checkpoint)[1])
        trainer = PrivateTrainer(
            model,
            data.x.to(device),
            data.y.to(device),
            plan=self.plan,
            views=self.views,
            clipping=copy.deepcopy(self.clipping),  # an adaptive one moves during training
            optimisation=self.optimisation,
            randomness=randomness,
            memory=self.memory,
            path=self.path,
        )
        journal = Journal(
            trainer,
            folder=folder,
            randomness=randomness,
            evaluate=None if test is None else lambda each: base_accuracy(each, test),
            scratch=released,
            progress=progress,
        )
        if resume and folder is not None:
            restore_checkpoint(trainer, folder.checkpoint)
            journal.resume(folder.read_events(), folder.read_metrics())
        journal.reserve()
        trainer.run(journal)
        trainer.averaged_model(released)
        if folder is not None:
            folder.write_model(released.state_dict())
            folder.remove_checkpoint()
        return Run(
            method=NAME,
            variant="sound",
            claim_source=CLAIM_SOURCE,
            data=data.name,
            plan=self.plan,
            ledger=journal.spent,
            classifier=Smoothed(released, sigma=self.sigma, classes=classes),
            curve=tuple(journal.curve),
            seed=self.seed,
            command=command,
            notes=notes,
        )


def _refuse_other_outputs(model: nn.Module, shape: tuple[int, ...], classes: int) -> None:
    """The network must give one score per class; tried on a blank input, never on a record."""
    weight = next(model.parameters(), None)
    blank = torch.zeros(1, *shape, device=None if weight is None else weight.device)
    try:
        with torch.no_grad():
            answer = tuple(model(blank).shape)
    except (RuntimeError, IndexError, ValueError, TypeError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise RequestError(f"this model cannot take inputs of shape {shape}: {reason}") from error
    if answer != (1, classes):
        raise RequestError(f"this model answers with shape {answer[1:]} and not with {classes} class scores")
