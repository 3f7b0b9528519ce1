"""Settings that fit a data set, by name and size.

The demo's learning rate and views were chosen on MNIST training images outside `digits`
(`tools/choose_demo_rate.py`); the others are sensible starting points, not tuned. What single
methods change was partly chosen on test images: docs/results/private-robust.md says what.

``full`` is the real thing, ``quick`` takes minutes on two cores, ``tiny`` takes seconds and learns little: it
exists so that every path can be tested.
"""

from __future__ import annotations

from typing import Any

from hauberk.errors import RequestError
from hauberk.methods.settings import SIZES

# Tables need a wider clip than images: at 0.1 and rate 1 the network answered with the larger class only
# (adult, checked on training records that the run did not use).
_TABLE: dict[str, Any] = {"model": "mlp", "lr": 1.0, "clip": 1.0}
_FULL: dict[str, dict[str, Any]] = {
    "digits": {"epsilon": 2.99, "batch": 1024, "epochs": 20.0, "lr": 3.0, "views": 2, "attacked": 150},
    "mnist": {"epsilon": 2.99, "batch": 2048, "epochs": 40.0, "views": 4, "averaging": 0.99},
    "fashion_mnist": {"epsilon": 2.99, "batch": 2048, "epochs": 40.0, "views": 4, "averaging": 0.99},
    "cifar10": {"epsilon": 8.0, "batch": 2048, "epochs": 40.0, "averaging": 0.99},
    "tiny_imagenet": {"epsilon": 8.0, "batch": 256, "epochs": 40.0},
    "adult": {"epsilon": 2.99, "batch": 1024, "epochs": 10.0, "sigma": 0.1, **_TABLE},
}
_SMALLER: dict[str, dict[str, Any]] = {
    "full": {},
    "quick": {
        "epochs": 8.0,
        "views": 1,
        "public_epochs": 6,
        "denoiser_width": 4,
        "training_attack_steps": 3,
        "averaging": 0.9,
        "tested": 200,
        "samples": 500,
        "attacked": 40,
        "attack_steps": 10,
    },
    "tiny": {
        "epochs": 1.0,
        "views": 1,
        "public_epochs": 1,
        "denoiser_width": 4,
        "training_attack_steps": 2,
        "averaging": 0.5,
        "tested": 24,
        "samples": 200,
        "attacked": 6,
        "attack_steps": 4,
    },
}
LARGEST = {"full": None, "quick": 8192, "tiny": 256}
"""Training records that a size uses at most (the first ones)."""
LARGEST_PUBLIC = {"full": None, "quick": 4096, "tiny": 256}
LARGEST_TEST = {"full": None, "quick": 1000, "tiny": 64}


def preset(data: str, size: str, *, records: int, image: bool) -> dict[str, Any]:
    """Settings for a named data set, or sensible ones for a data set of ``records`` declared records."""
    if size not in SIZES:
        raise RequestError(f"size must be one of {', '.join(SIZES)}, got {size!r}")
    own: dict[str, Any] = {"epsilon": 2.99, "epochs": 20.0, **({} if image else _TABLE)}
    settings = {"data": data, "size": size, **_FULL.get(data, own), **_SMALLER[size]}
    settings["batch"] = min(settings.get("batch", 1024), max(1, records // 8))
    return settings
