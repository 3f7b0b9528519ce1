"""Frozen dataclasses to plain JSON and back, checked against their annotations."""

from __future__ import annotations

import types
import typing
from dataclasses import MISSING, asdict, fields, is_dataclass
from typing import Any, TypeVar

from hauberk.errors import RequestError

T = TypeVar("T")


def to_json(value: Any) -> Any:
    return asdict(value)


def from_json(cls: type[T], content: Any, *, where: str) -> T:
    """Build ``cls`` from JSON; a missing, unknown or ill-typed key is named in the error."""
    return typing.cast(T, _build(cls, content, where))


def _build(kind: Any, content: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if content is None and type(None) in arguments:
            return None
        others = [argument for argument in arguments if argument is not type(None)]
        return _build(others[0], content, where)
    if origin is tuple:
        if not isinstance(content, list):
            raise RequestError(f"{where} should be a list")
        return tuple(_build(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(content))
    if origin is dict:
        if not isinstance(content, dict):
            raise RequestError(f"{where} should be an object")
        return {key: _build(arguments[1], item, f"{where}.{key}") for key, item in content.items()}
    if is_dataclass(kind):
        return _build_dataclass(kind, content, where)
    if kind is float and type(content) is int:
        return float(content)
    if type(content) is not kind:
        raise RequestError(f"{where} should be a {getattr(kind, '__name__', kind)}, not {content!r}")
    return content


def _build_dataclass(kind: Any, content: Any, where: str) -> Any:
    if not isinstance(content, dict):
        raise RequestError(f"{where} should be an object")
    hints = typing.get_type_hints(kind)
    known = {field.name: field for field in fields(kind)}
    unknown = set(content) - set(known)
    if unknown:
        raise RequestError(f"{where} has an unknown key {sorted(unknown)[0]!r}")
    values = {}
    for name, field in known.items():
        if name in content:
            values[name] = _build(hints[name], content[name], f"{where}.{name}")
        elif field.default is MISSING and field.default_factory is MISSING:
            raise RequestError(f"{where} lacks the key {name!r}")
    return kind(**values)
