"""A trained perturbation network with what one must know to use it, in one safetensors file.

The tensors are the weights; the file's metadata hold one JSON text. Nothing in it can run code.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from hauberk.attacks.imitation.advgan import AdversarialGenerator
from hauberk.attacks.imitation.networks import Architecture, ImitationNetwork, PerturbationNetwork
from hauberk.attacks.projections import ball
from hauberk.attacks.targets import generator
from hauberk.certify import evaluation_mode
from hauberk.errors import RequestError
from hauberk.files import read_tensors_and_metadata, write_tensors

Kind = Literal["ain", "atn", "advgan"]
KINDS: tuple[Kind, ...] = get_args(Kind)
TITLES: dict[Kind, str] = {"ain": "AIN", "atn": "ATN", "advgan": "AdvGAN"}
SUFFIX = ".safetensors"

_HEADER, _FORMAT = "hauberk-imitation", 1
_ROWS_AT_ONCE = {"cpu": 256}
_ROWS_AT_ONCE_ON_A_DEVICE = 8192


@dataclass(frozen=True, kw_only=True)
class Origin:
    """What a network was trained on. ``public``: the words by which its records were declared public, all of
    them; None if any of them was not. That decides whether private training may use it."""

    data: str = "unknown"
    public: str | None = None
    classifier: str = "unknown"
    imitated: str = ""
    records: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Imitation:
    """``target`` None: untargeted. ``bound``: the smallest that it was trained for; any larger one will do
    (004, bound constraint at inference)."""

    kind: Kind
    network: PerturbationNetwork
    target: int | None
    bound: float
    origin: Origin

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device

    def to(self, device: torch.device | str) -> Imitation:
        return replace(self, network=self.network.to(device))

    def stretch(self, radius: float) -> float:
        """At a radius above the bound perturbations grow with it. The thesis only clips later, but a
        network trained down to a bound hardly goes beyond it and would leave the rest unused."""
        return max(1.0, radius / self.bound)

    def check_radius(self, radius: float) -> None:
        if not self.bound * (1 - 1e-9) <= radius < math.inf:
            raise RequestError(
                f"this {TITLES[self.kind]} was trained down to a bound of {self.bound:.4g}: "
                "attack at that radius or a larger one"
            )

    @torch.no_grad()
    def craft(
        self, x: Tensor, labels: Tensor, *, radius: float, copies: int = 1, seed: int = 0, first: int = 0
    ) -> Tensor:
        """Adversarial examples ``(n, copies, *shape)`` of inputs in [0, 1], on the inputs' device.

        Guarantee: each lies within ``radius`` of its input in l_inf and within [0, 1], float rounding
        included. With noise in the network the copies differ. ``first`` tells batches of one set apart.
        """
        self.check_radius(radius)
        check_pictures(self, x)
        chance = generator(self.device, seed, f"imitation {first}")
        at_once = _ROWS_AT_ONCE.get(self.device.type, _ROWS_AT_ONCE_ON_A_DEVICE)
        made = [x.new_empty(0, copies, *x.shape[1:])]
        with evaluation_mode(self.network):
            for some, classes in zip(x.split(at_once), labels.split(at_once), strict=True):
                given = some.to(self.device, torch.float32).reshape(-1, *self.network.shape)
                known = classes.to(self.device)
                own = [self._one(given, known, radius, chance) for _ in range(copies)]
                made.append(torch.stack(own, dim=1).reshape(len(some), copies, *x.shape[1:]).to(x))
        return torch.cat(made)

    def _one(self, x: Tensor, labels: Tensor, radius: float, chance: torch.Generator) -> Tensor:
        noise = self.network.draw_noise(len(x), chance)
        moved, _ = self.network.moved(x, labels, noise, radius, stretch=self.stretch(radius))
        radii = torch.full((len(x),), radius, dtype=torch.float64, device=x.device)
        return ball("linf", x, radii, (0.0, 1.0)).project_(moved)


def check_pictures(imitation: Imitation, x: Tensor) -> None:
    """Refuse, in a sentence, inputs that the network was not made for."""
    shape, network = tuple(x.shape[1:]), imitation.network
    if math.prod(shape) != math.prod(network.shape):
        raise RequestError(
            f"this {TITLES[imitation.kind]} was made for inputs of shape {network.shape}, not of {shape}"
        )
    if len(x) and not (bool(x.isfinite().all()) and float(x.min()) >= 0 and float(x.max()) <= 1):
        raise RequestError("imitation networks take inputs whose values lie in [0, 1], all of them numbers")


def fresh_network(
    kind: Kind, shape: tuple[int, int, int], classes: int, architecture: dict[str, Any] | None
) -> PerturbationNetwork:
    """A network of this kind with weights from torch's global generator."""
    if kind == "advgan":
        return AdversarialGenerator(shape, classes)
    given = dict(architecture or {})
    if "widths" in given:
        given["widths"] = tuple(given["widths"])
    return ImitationNetwork(shape, classes, Architecture(**given))


def save_imitation(path: Path, imitation: Imitation) -> None:
    """Bit for bit; the file appears whole or not at all."""
    network = imitation.network
    header = {
        "format": _FORMAT,
        "kind": imitation.kind,
        "shape": list(network.shape),
        "classes": network.classes,
        "target": imitation.target,
        "bound": imitation.bound,
        "architecture": asdict(network.architecture) if isinstance(network, ImitationNetwork) else None,
        "origin": asdict(imitation.origin),
    }
    write_tensors(path, network.state_dict(), {_HEADER: json.dumps(header)})


def load_imitation(path: Path | str, *, device: torch.device | str = "cpu") -> Imitation:
    """What `save_imitation` wrote; anything else is refused in a sentence."""
    path = Path(path)
    tensors, metadata = read_tensors_and_metadata(path)
    if _HEADER not in metadata:
        raise RequestError(
            f"{path} holds no imitation network: make one with `hauberk imitate train`, or name another file"
        )
    try:
        header = json.loads(metadata[_HEADER])
        if header["format"] != _FORMAT or header["kind"] not in KINDS:
            raise RequestError(f"{path} was written by another version of hauberk: train it again")
        with torch.random.fork_rng(devices=[]):  # its weights are replaced at once
            network = fresh_network(
                header["kind"], tuple(header["shape"]), header["classes"], header["architecture"]
            )
        network.load_state_dict(tensors)
        imitation = Imitation(
            kind=header["kind"],
            network=network,
            target=header["target"],
            bound=float(header["bound"]),
            origin=Origin(**header["origin"]),
        )
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        if isinstance(error, RequestError):
            raise
        raise RequestError(f"{path} is damaged: its header and its weights do not fit together") from error
    network.requires_grad_(False)
    return imitation.to(device)
