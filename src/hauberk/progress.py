"""How long work tells whoever is watching how far it is."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""``progress(stage, done, total)``. Never told anything computed from training records."""


def silent(stage: str, done: int, total: int) -> None:
    """Nobody is watching."""
