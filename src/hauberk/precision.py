"""TensorFloat32 on and off: 10 bits of mantissa are enough for a gradient, and too few for its norm."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

_MATMUL: Any = torch.backends.cuda.matmul
# torch renamed its switches: setting one kind while somebody else uses the other raises errors
_RENAMED = hasattr(_MATMUL, "fp32_precision")
_CONVOLUTION: Any = torch.backends.cudnn.conv if _RENAMED else torch.backends.cudnn  # type: ignore[attr-defined]
_SWITCH = "fp32_precision" if _RENAMED else "allow_tf32"
_FULL: str | bool = "ieee" if _RENAMED else False


@contextmanager
def _set(matmul: Any, convolution: Any) -> Iterator[None]:
    before = getattr(_MATMUL, _SWITCH), getattr(_CONVOLUTION, _SWITCH)
    setattr(_MATMUL, _SWITCH, matmul)
    setattr(_CONVOLUTION, _SWITCH, convolution)
    try:
        yield
    finally:
        setattr(_MATMUL, _SWITCH, before[0])
        setattr(_CONVOLUTION, _SWITCH, before[1])


def full_precision() -> Any:
    """Float32 throughout: for norms, for the sums that they bound, and to compare two paths."""
    return _set(_FULL, _FULL)


def convolution_precision() -> Any:
    """Matrix products as coarse as the framework's own convolutions are, by the user's setting for those."""
    convolution = getattr(_CONVOLUTION, _SWITCH)
    return _set(convolution, convolution)


def coarse_convolutions() -> bool:
    """Whether convolutions in float32 are computed with TensorFloat32, on devices that have it."""
    chosen = getattr(_CONVOLUTION, _SWITCH)
    return chosen == "tf32" if _RENAMED else bool(chosen)
