"""Strings of a card are untrusted: they may come from a file name, a shell, somebody else's JSON."""

from __future__ import annotations

import dataclasses
import unicodedata
from typing import Any, TypeVar

T = TypeVar("T")


def printable(value: T) -> T:
    """The same dataclass without characters that act instead of being shown.

    Terminal escapes, right-to-left overrides and lone surrogates become U+FFFD, line breaks become spaces.
    """
    cleaned: T = _clean(value)
    return cleaned


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return "".join(_clean_character(character) for character in value)
    if isinstance(value, tuple):
        return tuple(_clean(item) for item in value)
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: _clean(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return dataclasses.replace(value, **parts)
    return value


def _clean_character(character: str) -> str:
    if character in "\n\r\t":
        return " "
    return "\N{REPLACEMENT CHARACTER}" if unicodedata.category(character).startswith("C") else character
