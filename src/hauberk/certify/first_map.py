"""The first affine map of a network, and the rest of the network as a function of its output alone.

A certificate for noise after the first map is one for ``post(W x + n)``, where ``post`` reads nothing else
of the input. That holds here by construction: `FirstMap.apply` is the layer, and `FirstMap.rest` runs the
network with the layer's output given and an input of zeros. What `find_first_map` has to make sure of is that
the two together are the network that was handed in; it refuses every network for which they are not.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hauberk.certify.affine_map import AffineMap
from hauberk.certify.evaluation import evaluation_mode
from hauberk.errors import RequestError

_PROBE_SCALES = (0.1, 1.0, 1.0, 10.0)  # of both signs: a ReLU or a clamp would not show within [0, 1]


class FirstMap(AffineMap):
    """The layer ``name`` of ``model``, found by `find_first_map`; ``shape`` is that of the network's inputs.

    Guarantee: ``rest(apply(x), x)`` depends on ``x`` through ``W x + b`` only. On the inputs tried when it
    was found it equals ``model(x)``.
    """

    def __init__(
        self,
        model: nn.Module,
        name: str,
        layer: nn.Linear | nn.Conv2d,
        *,
        shape: tuple[int, ...],
        input_shape: tuple[int, ...],
    ) -> None:
        super().__init__(layer, input_shape)
        self.model, self.name, self.shape = model, name, shape

    def apply(self, x: Tensor) -> Tensor:
        """``W x + b`` for a batch of the network's inputs, by the layer itself."""
        out: Tensor = self.layer(x.reshape(len(x), *self.input_shape))
        return out

    def rest(self, h: Tensor, x: Tensor) -> Tensor:
        """The network's output where the first map gives ``h``, without computing that map.

        ``x`` only tells the type and the device of the network's inputs; its values are never read. A network
        that works in place may overwrite ``h``. The model is as it was afterwards, also when it raises.
        """
        zeros = x.new_zeros(()).expand(len(h), *self.shape)
        with _answering(self.layer, h):
            out: Tensor = self.model(zeros)
        return out


def find_first_map(model: nn.Module, shape: tuple[int, ...], name: str | None = None) -> FirstMap:
    """The affine map that noise may follow: the layer ``name``, or the first Linear or Conv2d that runs.

    ``shape`` is that of one input. Raises `RequestError` if the layer is missing, is changed by hooks or by a
    forward of its own, or is not run exactly once; if anything but a reshape comes before it; if the output
    depends on the input by another way than the layer (told by autograd, and by another answer when the
    input behind the layer's back is zero); and if the network draws random numbers of its own.
    """
    layers = {
        path: layer for path, layer in model.named_modules() if isinstance(layer, nn.Linear | nn.Conv2d)
    }
    if name is not None and name not in layers:
        others = ", ".join(f"'{path}'" for path in layers) or "none"
        raise RequestError(f"the network has no Linear or Conv2d layer '{name}'; it has: {others}")
    with evaluation_mode(model):
        return _examine(model, tuple(shape), layers, name)


@dataclass(frozen=True, kw_only=True)
class _Call:
    path: str
    input: Tensor
    output: Tensor


def _examine(
    model: nn.Module, shape: tuple[int, ...], layers: dict[str, nn.Linear | nn.Conv2d], name: str | None
) -> FirstMap:
    if name is not None:
        _refuse_changed(name, layers[name])
    x = _probes(model, shape)
    answer, calls = _watched(model, x, layers)
    if name is None:
        if not calls:
            raise RequestError(
                "no Linear or Conv2d layer runs in the network, and noise after the first map needs one "
                "(a convolution by function is none)"
            )
        name = calls[0].path
        _refuse_changed(name, layers[name])
    own = [call for call in calls if call.path == name]
    if len(own) != 1:
        raise RequestError(
            f"the network runs its layer '{name}' {len(own)} times for one input: "
            "noise can only follow a layer that runs once"
        )
    read, h = own[0].input, own[0].output
    if len(read) != len(x) or not torch.equal(read.reshape(len(x), -1), x.reshape(len(x), -1)):
        raise RequestError(
            f"the network does more than reshape its input before the layer '{name}': "
            "put the noise after its first layer, or at the input"
        )
    found = FirstMap(model, name, layers[name], shape=shape, input_shape=tuple(read.shape[1:]))
    if not _same(answer, _watched(model, x, layers)[0]):
        raise RequestError(
            "the network draws random numbers of its own: remove them, noise layers are added here"
        )
    if _reads_the_input(model, found.layer, h, x) or not _same(answer, _without_gradient(found, h, x)):
        raise RequestError(
            f"the network's answer depends on its input by a way around the layer '{name}' "
            "(a skip connection), where no noise is added: put the noise at the input"
        )
    return found


def _refuse_changed(name: str, layer: nn.Linear | nn.Conv2d) -> None:
    """What runs must be the affine map that the weights describe."""
    plain = nn.Linear if isinstance(layer, nn.Linear) else nn.Conv2d
    own_ways = [
        method
        for method in ("forward", "_conv_forward")
        if method in vars(layer) or getattr(type(layer), method, None) is not getattr(plain, method, None)
    ]
    if own_ways or layer._forward_hooks or layer._forward_pre_hooks:
        raise RequestError(
            f"the layer '{name}' has hooks or a forward of its own, so its weights do not tell what it "
            f"computes: use a plain {plain.__name__}"
        )


def _probes(model: nn.Module, shape: tuple[int, ...]) -> Tensor:
    scales = torch.tensor(_PROBE_SCALES).view(-1, *(1 for _ in shape))
    x = torch.randn((len(_PROBE_SCALES), *shape), generator=torch.Generator().manual_seed(0)) * scales
    for parameter in model.parameters():
        if parameter.is_floating_point():
            return x.to(parameter)
    return x


@torch.no_grad()
def _watched(
    model: nn.Module, x: Tensor, layers: dict[str, nn.Linear | nn.Conv2d]
) -> tuple[Tensor, list[_Call]]:
    """The network's answer, and what went into and came out of each affine layer, in the order of running."""
    calls: list[_Call] = []

    def note(path: str, arguments: tuple[Tensor, ...], named: dict[str, Tensor], output: Tensor) -> None:
        read = arguments[0] if arguments else named["input"]
        calls.append(
            _Call(path=path, input=read.clone(), output=output.clone())
        )  # a later layer may overwrite

    hooks = [
        layer.register_forward_hook(
            lambda _, arguments, named, output, path=path: note(path, arguments, named, output),
            with_kwargs=True,
        )
        for path, layer in layers.items()
    ]
    try:
        answer = model(x.clone())
    finally:
        for hook in hooks:
            hook.remove()
    if not isinstance(answer, Tensor) or answer.shape[:1] != x.shape[:1]:
        raise RequestError("the network must answer with one tensor, a row of scores for each input")
    return answer, calls


def _reads_the_input(model: nn.Module, layer: nn.Module, h: Tensor, x: Tensor) -> bool:
    """Whether autograd finds a way from the input to the answer when the layer's output is given."""
    with torch.enable_grad(), _answering(layer, h.clone()):
        x = x.clone().requires_grad_()
        answer = model(x)
        if not answer.requires_grad:
            return False
        (way,) = torch.autograd.grad(answer.sum(), x, allow_unused=True)
    return way is not None


@torch.no_grad()
def _without_gradient(found: FirstMap, h: Tensor, x: Tensor) -> Tensor:
    return found.rest(h.clone(), x)


def _same(first: Tensor, second: Tensor) -> bool:
    """Equal up to what another order of summation may change."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    if not first.is_floating_point():
        return torch.equal(first, second)
    size = float(first.double().nan_to_num().abs().max()) if first.numel() else 0.0
    tolerance = math.sqrt(torch.finfo(first.dtype).eps) * size
    return torch.allclose(first, second, rtol=0, atol=tolerance, equal_nan=True)


@contextlib.contextmanager
def _answering(layer: nn.Module, h: Tensor) -> Iterator[None]:
    """The layer answers ``h`` instead of computing anything."""
    vars(layer)["forward"] = lambda *_, **__: h
    try:
        yield
    finally:
        del vars(layer)["forward"]
