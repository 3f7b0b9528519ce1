"""A trained imitation network as an attack like any other: one pass for each input.

    build_attack("runs/imitate/ain.safetensors").attack(model, x, y, radius=0.3)

Several ``copies`` per input are tried where the network has noise; the first that reaches the goal counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from hauberk.attacks.base import Attack, Found
from hauberk.attacks.imitation.saved import TITLES, Imitation, load_imitation
from hauberk.attacks.projections import per_row
from hauberk.attacks.requests import Batch
from hauberk.attacks.targets import Target, answers
from hauberk.errors import RequestError


@lru_cache(maxsize=4)
def _loaded(path: str, changed: int, device: str) -> Imitation:
    return load_imitation(path, device=device)


def imitation_at(path: str, device: torch.device) -> Imitation:
    """The network in a file, read once for each time that the file changes."""
    try:
        changed = Path(path).stat().st_mtime_ns
    except OSError as error:
        raise RequestError(f"cannot read {path}: {error.strerror or error}") from error
    return _loaded(path, changed, str(device))


@dataclass(frozen=True, kw_only=True)
class ImitationAttack(Attack):
    """AIN, ATN or AdvGAN from a file. ``copies``: examples that are tried for each input.

    An input's label is given to the network as 004 does; in a targeted attack the classifier's own answer
    takes its place, which is the label wherever the attack can count. Only radii from the network's final
    bound on are attacked. Inputs may be laid out otherwise than the network's pictures, as long as they have
    as many values.
    """

    title = "imitation"
    norms = ("linf",)
    path: str
    copies: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.copies < 1:
            raise RequestError(f"an attack tries at least one example per input, got {self.copies} copies")
        if not all(abs(bound) < float("inf") for bound in self.bounds):
            raise RequestError("imitation networks work on bounded data: give finite bounds")
        found = imitation_at(self.path, torch.device("cpu"))  # a wrong file is refused before the attack
        object.__setattr__(self, "can_aim", found.target is not None)  # here the file decides, not the class

    @property
    def name(self) -> str:
        found = imitation_at(self.path, torch.device("cpu"))
        aim = "untargeted" if found.target is None else f"at class {found.target}"
        return f"linf {TITLES[found.kind]} {aim}, {Path(self.path).name}"

    def refuse(self, target: Target) -> None:
        network = imitation_at(self.path, torch.device("cpu")).network
        if target.classes != network.classes:
            number = "fewer" if target.classes < network.classes else "more"
            raise RequestError(
                f"{Path(self.path).name} was made for {network.classes} classes, "
                f"the classifier has {number}: train another for it"
            )

    def run(self, batch: Batch) -> Found:
        imitation = imitation_at(self.path, batch.x.device)
        self._check_aim(imitation, batch)
        low, high = batch.bounds
        x = ((batch.x.float() - low) / (high - low)).clamp_(0.0, 1.0)
        labels = batch.goal.classes
        if batch.goal.targeted:
            with torch.no_grad():
                labels = answers(batch.target.scores(batch.x)).clamp_min(0)
        points = batch.x.clone()
        for radius in batch.radii.unique().tolist():
            rows = (batch.radii == radius).nonzero()[:, 0]
            made = imitation.craft(
                x[rows],
                labels[rows],
                radius=radius / (high - low),
                copies=self.copies,
                seed=batch.seed,
                first=int(batch.rows[rows[0]]),
            )
            chosen = self._first_that_works(batch.take(rows), low + (high - low) * made)
            points[rows] = chosen.to(points)
        return Found(points=points)

    def _check_aim(self, imitation: Imitation, batch: Batch) -> None:
        if imitation.target is not None and not bool(
            batch.goal.targeted and (batch.goal.classes == imitation.target).all()
        ):
            raise RequestError(
                f"{Path(self.path).name} aims at class {imitation.target}: attack with that target"
            )

    def _first_that_works(self, batch: Batch, made: Tensor) -> Tensor:
        chosen = made[:, 0]
        if made.shape[1] == 1 or batch.target.randomised:  # a lucky look at a randomised one proves nothing
            return chosen
        with torch.no_grad():
            reached = torch.zeros(len(made), dtype=torch.bool, device=made.device)
            for copy in made.unbind(1):
                works = batch.goal.reached(answers(batch.target.scores(copy.to(batch.x)))) & ~reached
                chosen = torch.where(per_row(works, chosen), copy, chosen)
                reached |= works
        return chosen
