"""Parts of a network that are not trained: named parameters, and BatchNorm with public statistics.

BatchNorm mixes the records of a batch, and keeps their statistics without noise. With *public* statistics
that never change it does neither: it is one affine map per channel, the same for every record.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from fnmatch import fnmatchcase

from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from hauberk.errors import RequestError

_PLAIN = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


class FrozenBatchNorm(nn.Module):
    """``weight * (x - running_mean) / sqrt(running_var + eps) + bias``, all five of them constants.

    Guarantee: the answer for a record depends on that record alone, in training as in evaluation, and no
    record changes anything here: there is no parameter, and the statistics are never updated. The state has
    the names of BatchNorm's own, so the weights go back into the network they came from.
    """

    def __init__(self, layer: _BatchNorm) -> None:
        super().__init__()
        self.num_features, self.eps = layer.num_features, layer.eps
        for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
            value = getattr(layer, name)
            self.register_buffer(name, None if value is None else value.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        return functional.batch_norm(
            x,
            self.get_buffer("running_mean"),
            self.get_buffer("running_var"),
            self._buffers["weight"],
            self._buffers["bias"],
            training=False,
            eps=self.eps,
        )

    def extra_repr(self) -> str:
        return f"{self.num_features}, eps={self.eps}"


def batch_norms(model: nn.Module) -> tuple[str, ...]:
    """Where the network has BatchNorm that is not frozen."""
    return tuple(path for path, layer in model.named_modules() if isinstance(layer, _BatchNorm))


def freeze_batch_norm(model: nn.Module) -> nn.Module:
    """A copy of the network with a `FrozenBatchNorm` in the place of every BatchNorm.

    It answers as the network does in evaluation mode. Running statistics, weight and bias become public
    constants: they must come from public records.
    """
    model = copy.deepcopy(model)
    made: dict[int, FrozenBatchNorm] = {}
    for path, layer in list(model.named_modules(remove_duplicate=False)):
        if not isinstance(layer, _BatchNorm):
            continue
        where = f"{type(layer).__name__} at '{path}'"
        if type(layer) not in _PLAIN or layer._forward_hooks or layer._forward_pre_hooks or not path:
            raise RequestError(f"{where} does more than BatchNorm and cannot be frozen: use a plain one")
        if layer.running_mean is None:
            raise RequestError(
                f"{where} keeps no running statistics to freeze: build it with track_running_stats=True"
            )
        parent, _, name = path.rpartition(".")
        setattr(model.get_submodule(parent), name, made.setdefault(id(layer), FrozenBatchNorm(layer)))
    return model


def split_patterns(patterns: Iterable[str]) -> tuple[str, ...]:
    """Commas separate patterns, as repeating the option does."""
    return tuple(part.strip() for each in patterns for part in each.split(",") if part.strip())


def train_only(model: nn.Module, *patterns: str) -> nn.Module:
    """Let exactly the parameters be trained whose names fit a pattern (``head.*``); the same network.

    ``*`` stands for any text, dots included. A weight that has several names is trained if one of them fits.
    Raises `RequestError` for a pattern that fits no parameter.
    """
    wanted = split_patterns(patterns)
    if not wanted:
        raise RequestError("no pattern says which weights are to be trained")
    every = list(model.named_parameters(remove_duplicate=False))
    for pattern in wanted:
        if any(fnmatchcase(name, pattern) for name, _ in every):
            continue
        if any(fnmatchcase(name, pattern) for name in model.state_dict()):
            raise RequestError(
                f"{pattern!r} names constants only (a frozen BatchNorm is one, weight and bias included): "
                "name other weights to train"
            )
        shown = ", ".join(name for name, _ in every[:6]) + (", …" if len(every) > 6 else "")
        raise RequestError(f"no weight of the network fits {pattern!r}; it has {shown or 'none'}")
    for _, weight in every:
        weight.requires_grad_(False)
    for name, weight in every:
        if any(fnmatchcase(name, pattern) for pattern in wanted):
            weight.requires_grad_(True)
    return model


def trained_names(model: nn.Module) -> frozenset[str]:
    """All names, in the network's state, of weights that training may change."""
    return frozenset(
        name for name, weight in model.named_parameters(remove_duplicate=False) if weight.requires_grad
    )
