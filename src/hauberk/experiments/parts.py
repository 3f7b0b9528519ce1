"""Finished parts of a long experiment: a killed command goes on where it was.

    with kept_in(folder):            # `hauberk reproduce` does this
        experiment.run(...)          # which calls remembered(about, compute) for everything that takes long

A part is plain JSON under a name made of everything that it depends on: settings, seed, versions. Parts are
removed when the experiment has been written down.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from hauberk.errors import RequestError
from hauberk.files import read_json, write_json
from hauberk.version import __version__

_folder: ContextVar[Path | None] = ContextVar("folder of finished parts", default=None)


@contextmanager
def kept_in(folder: Path, *, remove: bool = True) -> Iterator[None]:
    """Parts that are finished meanwhile are kept in ``folder``; it is removed if all goes well."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(f"cannot make the folder {folder}: {error.strerror or error}") from error
    token = _folder.set(folder)
    try:
        yield
    finally:
        _folder.reset(token)
    if remove:
        shutil.rmtree(folder, ignore_errors=True)


def settings_of(setting: Any) -> dict[str, Any]:
    """What a part depends on of a figure's setting: all but the number of seeds, each of which is a part."""
    return {name: value for name, value in asdict(setting).items() if name != "seeds"}


def remembered(about: Mapping[str, Any], compute: Callable[[], Any]) -> Any:
    """``compute()``, or what an interrupted command had finished of exactly this: a JSON value.

    ``about`` is everything that the value depends on, as JSON.
    """
    folder = _folder.get()
    if folder is None:
        return compute()
    named = {**about, "versions": [__version__, str(torch.__version__), torch.cuda.is_available()]}
    digest = hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()
    path = folder / f"{digest[:32]}.json"
    if path.exists():
        return read_json(path)["value"]
    value = compute()
    write_json(path, {"about": named, "value": value})
    return json.loads(json.dumps(value))  # the same whether it was kept or not
