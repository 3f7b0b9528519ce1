"""The network that a run begins with: by name or by the user's factory, with public weights, partly frozen.

    factory or name -> frozen BatchNorm -> what is trained -> weights from the file -> private training

Guarantee: what is frozen is a function of the file, the factory and the seed alone; no private record changes
a bit of it. All of it is taken as public: of a file that was trained on the private records nothing is
proven, and the card says that it is the user who declares it public.

``config.json`` keeps what a later command needs to tell another network from this one (`NetworkFacts`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hauberk import models
from hauberk.accounting.json_form import from_json
from hauberk.errors import RequestError
from hauberk.methods.settings import TrainSettings
from hauberk.models.frozen import FrozenBatchNorm, batch_norms, freeze_batch_norm, train_only, trained_names
from hauberk.models.own import fingerprint, is_own, own_network, same_fingerprint
from hauberk.models.weights import LoadedWeights, frozen_sha256, load_weights

_NAMED = 6  # of many weights, so many are named on a card


@dataclass(frozen=True, kw_only=True)
class NetworkFacts:
    """Of a network that is not just one of the catalogue with weights drawn from the seed.

    ``weights``: SHA-256 of the file; ``frozen``: of all that training leaves as it was; ``answers``: what the
    architecture answers with made-up weights.
    """

    weights: str | None
    frozen: str
    answers: tuple[float, ...]


def describes_own_network(settings: TrainSettings) -> bool:
    """Whether anything about the network is the user's own."""
    return is_own(settings.model) or settings.weights is not None or bool(settings.train_only)


def starting_architecture(settings: TrainSettings, shape: tuple[int, ...], classes: int) -> nn.Module:
    """The network before its weights are read: everything but ``--weights`` has been done."""
    if not is_own(settings.model):
        return furnished(models.build(settings.model, shape=shape, classes=classes), settings)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)  # constants that the factory draws are the same each time
        return furnished(own_network(settings.model, shape=shape, classes=classes), settings)


def furnished(network: nn.Module, settings: TrainSettings) -> nn.Module:
    """With frozen BatchNorm, and with nothing trained but what the settings name."""
    if not describes_own_network(settings):
        return network
    if found := batch_norms(network):
        if settings.weights is None:
            raise RequestError(
                f"BatchNorm at '{found[0]}' mixes the records of a batch: give --weights with running "
                "statistics from public records, which then stay as they are, or use GroupNorm"
            )
        network = freeze_batch_norm(network)
    if settings.train_only:
        network = train_only(network, *settings.train_only)
    if not trained_names(network):
        raise RequestError(f"the network {settings.model} has no weight that is trained: see --train-only")
    return network


@dataclass(frozen=True, kw_only=True, eq=False)
class StartingNetwork:
    """A network ready to be trained, what is remembered of it, and what its card must say."""

    network: nn.Module
    facts: NetworkFacts | None = None  # None: one of the catalogue, with weights drawn from the seed
    notes: tuple[str, ...] = ()


def begin(network: nn.Module, settings: TrainSettings, shape: tuple[int, ...]) -> StartingNetwork:
    """Read the weights into a fresh `starting_architecture`, on the CPU."""
    if not describes_own_network(settings):
        return StartingNetwork(network=network)
    loaded = None if settings.weights is None else load_weights(network, settings.weights)
    facts = NetworkFacts(
        weights=None if loaded is None else loaded.sha256,
        frozen=frozen_sha256(network),
        answers=fingerprint(network, shape),
    )
    return StartingNetwork(network=network, facts=facts, notes=_notes(network, settings, loaded))


def _notes(network: nn.Module, settings: TrainSettings, loaded: LoadedWeights | None) -> tuple[str, ...]:
    notes = []
    if loaded is not None:
        notes.append(
            f"Initial weights: file {settings.weights}, sha256 {loaded.sha256}, declared public by the user; "
            "if it was trained on the private records nothing is proven."
        )
        if loaded.fresh:
            notes.append(f"Not in that file, and drawn from the seed: {_some(loaded.fresh)}.")
    elif is_own(settings.model):
        notes.append(
            f"Initial weights: as {settings.model} makes them, declared public by the user; if it reads any "
            "that were trained on the private records nothing is proven."
        )
    weights = dict(network.named_parameters())
    trained = [name for name, weight in weights.items() if weight.requires_grad]
    if len(trained) < len(weights):
        count, total = (sum(weights[name].numel() for name in names) for names in (trained, weights))
        notes.append(
            f"Trained: {_some(trained)}, {count:,} of {total:,} weights; training leaves the others as they "
            "are, bit for bit."
        )
    frozen = [path for path, layer in network.named_modules() if isinstance(layer, FrozenBatchNorm)]
    if frozen:
        notes.append(f"BatchNorm at {_some(frozen)}: fixed, with statistics, weight and bias from that file.")
    return tuple(notes)


def _some(names: list[str] | tuple[str, ...]) -> str:
    shown = ", ".join(names[:_NAMED])
    return shown if len(names) <= _NAMED else f"{shown} and {len(names) - _NAMED} more"


def facts_of(config: Mapping[str, Any], settings: TrainSettings, *, where: Path) -> NetworkFacts | None:
    """What config.json keeps of the network; None where it is one of the catalogue and nothing else."""
    if not describes_own_network(settings):
        return None
    if "network" not in config:
        raise RequestError(f"{where / 'config.json'} lacks the key 'network'")
    return from_json(NetworkFacts, config["network"], where="config.json network")


def load_released(
    network: nn.Module,
    weights: Mapping[str, Tensor],
    facts: NetworkFacts | None,
    settings: TrainSettings,
    shape: tuple[int, ...],
    *,
    where: Path,
) -> None:
    """Put a run's released weights into its network.

    A factory may have changed since: the same weights would mean something else. And what a run releases
    holds the frozen weights that it began with, bit for bit. Both are refused if not so.
    """
    if facts is not None and not same_fingerprint(facts.answers, fingerprint(network, shape)):
        raise RequestError(
            f"{settings.model} makes another network than the one that {where} was trained with: put it back"
        )
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:
        raise RequestError(f"the weights in {where} do not fit the network {settings.model}") from error
    if facts is not None and frozen_sha256(network) != facts.frozen:
        raise RequestError(f"the frozen weights in {where} are not those that the run began with")


def refuse_other_beginning(
    begun: StartingNetwork, facts: NetworkFacts | None, settings: TrainSettings
) -> None:
    """A run is resumed with the network that it began with; its checkpoints hold only what is trained."""
    if begun.facts is None or facts is None:
        return
    if begun.facts.weights != facts.weights:
        raise RequestError(f"{settings.weights} is no longer the file that the run began with: put it back")
    if not same_fingerprint(begun.facts.answers, facts.answers):
        raise RequestError(f"{settings.model} is no longer the network that the run began with: put it back")
    if begun.facts.frozen != facts.frozen:
        raise RequestError(
            f"the frozen weights of {settings.model} are no longer those that the run began with: put them "
            "back"
        )
