"""Listens to a model's layers during one forward and one backward pass, and to no other.

Inside ``Recorder.listening()`` every layer with trainable parameters passes its output through a *tap*: an
identity whose backward pass hands the layer's inputs and output gradient to the layer's rule. Asking autograd
for the gradient of the taps alone spares it all ordinary weight gradients. When the context ends the taps are
gone; attacks, evaluations and penalties outside it leave no trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hauberk.gradients.contributions import Materialised, PerRecordGradient
from hauberk.gradients.rules import LayerCall, UnfitLayer, rule_of
from hauberk.gradients.rules.any_layer import any_layer_gradients
from hauberk.gradients.rules.registry import GradientRule


@dataclass(frozen=True, kw_only=True)
class Listened:
    """A layer whose calls are recorded: its rule, and the model's names for its trainable parameters."""

    path: str
    layer: nn.Module
    rule: GradientRule
    names: dict[str, str]
    general: bool


def layers_to_listen_to(model: nn.Module) -> list[Listened]:
    """Every layer that owns a trainable parameter; one without a rule is taken with all it contains."""
    names = {id(weight): name for name, weight in model.named_parameters()}
    found: list[Listened] = []
    inside: list[str] = []
    for path, layer in model.named_modules():
        if any(outer in ("", path) or path.startswith(f"{outer}.") for outer in inside):
            continue
        own = {name: weight for name, weight in layer.named_parameters(recurse=False) if weight.requires_grad}
        if not own:
            continue
        rule = rule_of(layer)
        if rule is None:
            inside.append(path)
            own = {name: weight for name, weight in layer.named_parameters() if weight.requires_grad}
        found.append(
            Listened(
                path=path,
                layer=layer,
                rule=rule or any_layer_gradients,
                names={name: names[id(weight)] for name, weight in own.items()},
                general=rule is None,
            )
        )
    return found


class _Tap(torch.autograd.Function):
    """Identity; ``note`` hears the gradients that come back.

    ``how`` an output passes: "itself" (a layer after it may change it in place), as an "alias" (it may not)
    or as a "copy" (it may, and the tapped layer may still need its own output).
    """

    @staticmethod
    def forward(
        ctx: Any, note: Callable[..., None], how: str, sentinel: Tensor, *outputs: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.note = note
        ctx.set_materialize_grads(False)
        if how == "itself":
            ctx.mark_dirty(*outputs)
            return outputs
        return tuple(each.clone() if how == "copy" else each.view_as(each) for each in outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        ctx.note(gradients)
        ctx.note = None  # the layer's inputs go free as soon as its rule has seen them
        return None, None, None, *gradients


class Recorder:
    """Collects what each record gives to each parameter in one recorded pass over ``records`` records."""

    def __init__(
        self,
        layers: Sequence[Listened],
        *,
        records: int,
        views: int,
        device: torch.device,
        copies: bool = False,
    ) -> None:
        """``copies``: outputs are copied for models that change them in place where that needs a copy."""
        self._layers, self._records, self._views, self._copies = layers, records, views, copies
        self._sentinel = torch.zeros((), device=device, requires_grad=True)
        self._found: dict[str, list[PerRecordGradient]] = {}

    @contextmanager
    def listening(self) -> Iterator[None]:
        handles = [
            each.layer.register_forward_hook(self._hook(each), with_kwargs=True) for each in self._layers
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def backward(self, loss: Tensor, *further: Tensor) -> tuple[Tensor | None, ...]:
        """Pull ``loss`` back to the taps and ``further`` tensors; weight gradients are not computed."""
        return torch.autograd.grad(loss, [self._sentinel, *further], allow_unused=True)[1:]

    def gradients(self, weights: dict[str, Tensor]) -> dict[str, PerRecordGradient]:
        """One entry per parameter; uses of a shared parameter are added up *before* anything takes a norm."""
        result: dict[str, PerRecordGradient] = {}
        for name, weight in weights.items():
            uses = self._found.get(name, [])
            if len(uses) == 1:
                result[name] = uses[0]
            elif uses:
                result[name] = Materialised(torch.stack([use.materialised() for use in uses]).sum(0))
            else:  # the loss does not depend on it
                result[name] = Materialised(weight.new_zeros(self._records, *weight.shape))
        return result

    def _hook(self, listened: Listened) -> Callable[..., Any]:
        def hook(layer: nn.Module, inputs: tuple[Any, ...], keywords: dict[str, Any], output: Any) -> Any:
            if not torch.is_grad_enabled():
                return None
            single = isinstance(output, Tensor)
            outputs = (output,) if single else output
            if not isinstance(outputs, tuple) or not all(isinstance(each, Tensor | None) for each in outputs):
                raise UnfitLayer(f"{type(layer).__name__} at '{listened.path}' gives more than tensors")
            inputs = tuple(_detached(each) for each in inputs)
            keywords = {name: _detached(each) for name, each in keywords.items()}
            versions = _versions(inputs, keywords)
            own = not listened.general and type(layer).__module__.startswith("torch.nn.modules")
            view = any(each is not None and each._is_view() for each in outputs)
            node = outputs[0].grad_fn if own and not view else None

            def note(gradients: tuple[Tensor | None, ...]) -> None:
                if versions != _versions(inputs, keywords):
                    raise UnfitLayer(f"the input of '{listened.path}' was changed in place after its use")
                received = iter(gradients)
                call = LayerCall(
                    layer=layer,
                    inputs=inputs,
                    keywords=keywords,
                    output_gradients=tuple(next(received) if each else None for each in present),
                    wanted=frozenset(listened.names),
                    node=node,
                    records=self._records,
                    views=self._views,
                )
                if all(each is None for each in call.output_gradients):
                    return
                for own, gradient in listened.rule(call).items():
                    if own in listened.names:
                        self._found.setdefault(listened.names[own], []).append(gradient)

            present = [each is not None for each in outputs]
            how = "copy" if self._copies else "alias" if view or not own else "itself"
            passed = [each for each in outputs if each is not None]
            tapped = iter(_Tap.apply(note, how, self._sentinel, *passed))  # type: ignore[no-untyped-call]
            tapped_outputs = tuple(next(tapped) if each else None for each in present)
            return tapped_outputs[0] if single else tapped_outputs

        return hook


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value


def _versions(inputs: tuple[Any, ...], keywords: dict[str, Any]) -> list[int]:
    """How often each tensor has been changed in place; a detached tensor counts with its original."""
    return [each._version for each in (*inputs, *keywords.values()) if isinstance(each, Tensor)]
