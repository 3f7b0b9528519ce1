"""Which path serves a model: the fast one where it provably gives the general one's gradients.

Decided on made-up records, never on real ones: a choice that depended on them would tell about them. Two
questions are put to the fast path. Does one record's loss reach any other record's rows (exactly, in the
model's own mode)? And are its gradients, norms and sums those of the general path? Both on a copy of the
model in double precision, where kinks and rounding do not blur the answer, with its weights shaken, because
behind a head of zeros every gradient is zero and every rule agrees.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from typing import Literal

import torch
from torch import Tensor, nn

from hauberk.errors import RequestError
from hauberk.gradients.contributions import PerRecordGradient
from hauberk.gradients.fast import FastPath
from hauberk.gradients.general import GeneralPath
from hauberk.gradients.losses import RecordLoss, ScoreLoss, Views
from hauberk.precision import full_precision

RECORDS = 3  # a prime: axes that only happen to divide evenly are found out
_TOLERANCE = 1e-7
_SHAKE = 0.05

PathChoice = Literal["auto", "fast", "general"]


class GeneralPathNotice(UserWarning):
    """Part or all of a model goes a slower path with the same result."""


def notice(sentence: str) -> None:
    warnings.warn(sentence, GeneralPathNotice, stacklevel=5)


def choose_path(
    model: nn.Module,
    loss: RecordLoss,
    views: Views,
    labels: Tensor,
    *,
    asked: PathChoice = "auto",
    bfloat16: bool = False,
) -> FastPath | GeneralPath:
    """``views`` and ``labels`` are made up. A `RequestError` where no path serves, or not the asked one.

    Says once, by a `GeneralPathNotice`, if all or part of the model goes the general path.
    """
    general = GeneralPath(model, loss)
    try:
        with _evaluating(model), torch.random.fork_rng():
            general.gradients(views, labels)
    except Exception as error:  # the model may be anybody's code
        raise RequestError(f"this model has no per-record gradient here: {_first_line(error)}") from error
    if asked == "general":
        return general
    reason = "its loss is not a function of the model's answers alone (a ScoreLoss)"
    for copies in (False, True) if isinstance(loss, ScoreLoss) else ():
        assert isinstance(loss, ScoreLoss)
        reason = _objection(model, loss, views, labels, copies=copies)
        if not reason:
            fast = FastPath(model, loss, bfloat16=bfloat16, copies=copies)
            if alone := fast.without_rule():
                notice(f"no gradient rule for {', '.join(alone)}: the general path serves there")
            return fast
    if asked == "fast" or bfloat16:
        raise RequestError(f"this model cannot go the fast path: {reason}")
    notice(f"training goes the general path, which is slower: {reason}")
    return general


def _objection(model: nn.Module, loss: ScoreLoss, views: Views, labels: Tensor, *, copies: bool) -> str:
    """Why the fast path must not be used, or nothing."""
    try:
        with torch.random.fork_rng(), full_precision():
            copy, precise = _shaken_copy(model), _in_double(views)
            fast = FastPath(copy, loss, copies=copies)
            fast.check_records_stay_apart(precise, labels)
            copy.eval()  # layers that draw (dropout) draw nothing while two paths are compared
            gradients, _ = fast.gradients(precise, labels)
            reference, _ = GeneralPath(copy, loss).gradients(precise, labels)
            different = disagreement(gradients, reference)
    except Exception as error:  # a rule may be anybody's code
        return _first_line(error)
    return "" if different is None else f"the fast path gives another gradient for {different}"


def _shaken_copy(model: nn.Module) -> nn.Module:
    copy = deepcopy(model).double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in copy.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator).to(weight), alpha=_SHAKE)
    return copy


def _in_double(views: Views) -> Views:
    if isinstance(views, tuple):
        return tuple(each.double() if each.is_floating_point() else each for each in views)
    return views.double() if views.is_floating_point() else views


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def made_up(example: Views) -> Views:
    """A few records of the same shape and type, made of nothing but a fixed seed."""
    if isinstance(example, tuple):
        return tuple(_made_up(each, seed) for seed, each in enumerate(example))
    return _made_up(example, 0)


def _made_up(example: Tensor, seed: int) -> Tensor:
    shape = (RECORDS, min(example.shape[1], 2), *example.shape[2:])
    if not example.is_floating_point():  # rows of a table, say: only 0 is sure to exist
        return torch.zeros(shape, dtype=example.dtype, device=example.device)
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(shape, generator=generator).to(example)


def disagreement(
    gradients: Mapping[str, PerRecordGradient], reference: Mapping[str, PerRecordGradient]
) -> str | None:
    """The first parameter whose per-record gradients, norms or sums differ, or None."""
    for name, expected in reference.items():
        wanted = expected.materialised()
        size = float(wanted.abs().amax()) if wanted.numel() else 0.0
        allowed = _TOLERANCE * size + 1e-12
        if not bool(((gradients[name].materialised() - wanted).abs() <= allowed).all()):
            return name
        norms = expected.norms()
        if not bool(((gradients[name].norms() - norms).abs() <= _TOLERANCE * norms + 1e-12).all()):
            return name
        factors = torch.linspace(0.5, 1.0, len(norms)).to(norms)
        difference = gradients[name].weighted_sum(factors) - expected.weighted_sum(factors)
        if not bool((difference.abs() <= len(norms) * allowed).all()):
            return name
    return None


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """In evaluation mode; every layer's own mode is put back after."""
    modes = [(layer, layer.training) for layer in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for layer, mode in modes:
            layer.training = mode
