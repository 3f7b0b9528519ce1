"""A network of the user's own: ``module:factory``, imported from the current folder or installed packages.

The factory is the user's code and is run: a run folder that names one makes whoever loads it run what goes by
that name *here*, never anything from the folder. Everything it can do wrong costs one sentence.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from hauberk.errors import RequestError
from hauberk.models.shapes import Shape

_PROBES = 2


def is_own(name: str) -> bool:
    """Whether a network's name is that of a factory and not one of the catalogue."""
    return ":" in name


def own_network(name: str, *, shape: Shape, classes: int) -> nn.Module:
    """What the factory ``module:callable`` makes, from records of ``shape`` to ``classes`` scores.

    It is called with those of ``shape=`` and ``classes=`` that it names among its parameters. Tried on blank
    inputs, in evaluation mode, before anybody trusts it. Weights that it draws come from torch's global
    generator. Raises `RequestError` for whatever is wrong with it, in one sentence.
    """
    with _current_folder_first():
        factory = _find(name)
        arguments = _accepted(name, factory, {"shape": shape, "classes": classes})
        try:
            network = factory(**arguments)
        except (Exception, SystemExit) as error:
            raise RequestError(f"{name} could not make a network: {first_line(error)}") from error
        if not isinstance(network, nn.Module):
            raise RequestError(
                f"{name} made {_article(network)} and not a torch.nn.Module: let it return the network"
            )
        _check(name, network, shape, classes)
    return network


def fingerprint(network: nn.Module, shape: Shape) -> tuple[float, ...]:
    """The architecture's answers with weights that are the same for every network of its form.

    Two networks with equal names and shapes of weights, one with ReLU and one with tanh, say, differ here.
    Nothing that a file of weights holds matters; constants that are in none do.
    """
    made_up = copy.deepcopy(network).cpu().eval()
    weights = dict(made_up.named_parameters())
    saved = {name: each for name, each in made_up.state_dict().items() if each.is_floating_point()}
    used = 0
    with torch.no_grad():
        for name, value in saved.items():
            numbers = _made_up(used, value.numel()).view(value.shape)
            matrix = name in weights and value.ndim > 1
            # biases and statistics are positive: no layer goes silent, no root meets a negative number
            value.copy_(numbers * math.sqrt(6 * len(value) / value.numel()) if matrix else 1 + numbers / 2)
            used += value.numel()
        x = (_made_up(0, _PROBES * math.prod(shape)) + 1) / 2
        try:
            answers: Tensor = made_up(x.float().view(_PROBES, *shape))
        except Exception as error:
            raise RequestError(
                f"the network fails with other weights than its own: {first_line(error)}"
            ) from error
    answers = answers.double().nan_to_num(nan=0.0, posinf=1e30, neginf=-1e30)
    return tuple(float(f"{each:.6g}") for each in answers.flatten().tolist())


def _made_up(start: int, count: int) -> Tensor:
    """Numbers from -1 to 1 by arithmetic alone: no generator that another version of torch might change."""
    places = torch.arange(start, start + count, dtype=torch.int64) % 1_000_003
    return (places * places * 7919 + places * 104_729) % 1_000_003 / 500_001 - 1


def same_fingerprint(first: tuple[float, ...], second: tuple[float, ...]) -> bool:
    """Equal up to what another machine's rounding may change."""
    allowed = 1e-3 * max(map(abs, first), default=0.0) + 1e-6
    return len(first) == len(second) and all(
        abs(a - b) <= allowed for a, b in zip(first, second, strict=True)
    )


def first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


@contextmanager
def _current_folder_first() -> Iterator[None]:
    """As ``python -m`` has it; an installed command does not look there by itself."""
    here = os.getcwd()
    sys.path.insert(0, here)
    importlib.invalidate_caches()  # the file may be younger than Python's idea of the folder
    try:
        yield
    finally:
        if here in sys.path:
            sys.path.remove(here)


def _find(name: str) -> Callable[..., Any]:
    module_name, _, path = name.partition(":")
    parts = [*module_name.split("."), *path.split(".")]
    if not all(part.isidentifier() for part in parts):
        raise RequestError(f"a network of your own is named module:factory, not {name!r}")
    if parts[0] in sys.stdlib_module_names:
        raise RequestError(
            f"{module_name} belongs to Python itself and makes no network: name another module"
        )
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise RequestError(f"importing {module_name} failed: {first_line(error)}") from error
        if module_name.endswith(".py"):
            hint = f": say {module_name.removesuffix('.py')}, without .py"
        else:
            hint = ": run this in the folder that holds it, or install it"
        raise RequestError(
            f"there is no module {module_name} in the current folder or among the installed packages{hint}"
        ) from error
    except (Exception, SystemExit) as error:
        raise RequestError(f"importing {module_name} failed: {first_line(error)}") from error
    for part in path.split("."):
        if not hasattr(found, part):
            raise RequestError(f"{module_name} has no {path}: name a function that makes the network")
        found = getattr(found, part)
    if isinstance(found, nn.Module) or not callable(found):
        raise RequestError(f"{name} is {_article(found)} and not a function that makes a network")
    factory: Callable[..., Any] = found
    return factory


def _accepted(name: str, factory: Callable[..., Any], offered: dict[str, Any]) -> dict[str, Any]:
    """Those arguments that the factory names; a factory that needs others cannot be called."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):  # some callables written in C do not tell
        return {}
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    known = {each.name for each in parameters if each.kind in by_name}
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    for each in parameters:
        needed = each.default is inspect.Parameter.empty and each.kind not in variable
        if needed and not (each.name in offered and each.kind in by_name):
            raise RequestError(
                f"{name} needs an argument {each.name!r}, but is called with shape= and classes= at most: "
                "give it a default"
            )
    return {key: value for key, value in offered.items() if key in known}


def _check(name: str, network: nn.Module, shape: Shape, classes: int) -> None:
    """Everything that training, and a run folder, will need of it."""
    blank = torch.zeros(2, *shape)
    try:
        with torch.enable_grad(), _evaluating(network):  # legacy weight_norm can be copied without
            answer = network(blank)
            again = network(blank)
    except Exception as error:
        raise RequestError(f"{name} cannot take inputs of shape {shape}: {first_line(error)}") from error
    if not isinstance(answer, Tensor) or answer.shape != (2, classes):
        given = _article(answer) if not isinstance(answer, Tensor) else f"shape {tuple(answer.shape[1:])}"
        raise RequestError(f"{name} answers with {given} and not with {classes} class scores for each input")
    if not torch.equal(answer.nan_to_num(), again.nan_to_num()):
        raise RequestError(f"{name} draws random numbers in evaluation mode: two answers to one input differ")
    for key, value in network.state_dict().items():
        if not isinstance(value, Tensor):
            raise RequestError(
                f"{name} keeps {_article(value)} at {key!r} in its state: only tensors are saved"
            )
    try:
        copy.deepcopy(network)
    except Exception as error:
        raise RequestError(f"{name} makes a network that cannot be copied: {first_line(error)}") from error


@contextmanager
def _evaluating(network: nn.Module) -> Iterator[None]:
    modes = [(layer, layer.training) for layer in network.modules()]
    network.eval()
    try:
        yield
    finally:
        for layer, mode in modes:
            layer.training = mode


def _article(value: object) -> str:
    kind = type(value).__name__
    return f"an {kind}" if kind[:1].lower() in "aeiou" else f"a {kind}"
