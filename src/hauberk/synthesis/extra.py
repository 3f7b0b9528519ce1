"""The libraries of the extra ``[synth]``, asked for when they are needed."""

from __future__ import annotations

import importlib
from typing import Any

from hauberk.errors import RequestError


def pandas() -> Any:
    """pandas, or one sentence on how to get it."""
    return _optional("pandas", "pandas")


def pyarrow(module: str = "pyarrow") -> Any:
    """pyarrow, with which pandas reads and writes Parquet, or one sentence on how to get it."""
    return _optional(module, "pyarrow")


def scikit_learn(module: str) -> Any:
    """A module of scikit-learn such as ``sklearn.cluster``, or one sentence on how to get it."""
    return _optional(module, "scikit-learn")


def _optional(module: str, library: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise RequestError(
            f"health records need {library}, which is not installed; run pip install 'hauberk[synth]'."
        ) from error
