"""The methods by name, with what each one guarantees: one row per published system."""

from __future__ import annotations

from dataclasses import dataclass

from hauberk.errors import RequestError
from hauberk.methods.private_smoothing import NAME as PRIVATE_SMOOTHING
from hauberk.methods.private_smoothing import PrivateSmoothing


@dataclass(frozen=True, kw_only=True)
class MethodRow:
    name: str
    build: type[PrivateSmoothing]
    summary: str
    paper: str
    variants: tuple[str, ...]
    claimed: str
    proven: str


METHODS: dict[str, MethodRow] = {
    row.name: row
    for row in (
        MethodRow(
            name=PRIVATE_SMOOTHING,
            build=PrivateSmoothing,
            summary="DP-SGD on noisy copies of each record, then a certified smoothed classifier",
            paper="none: the flagship (closest public work: DP-CERT)",
            variants=("sound",),
            claimed="the same as proven",
            proven="(epsilon, delta) for one record by PLD; tight l2 radius with error alpha per input",
        ),
    )
}


def find_method(name: str, variant: str) -> MethodRow:
    if name not in METHODS:
        raise RequestError(f"there is no method {name!r}; choose one of {', '.join(METHODS)}")
    row = METHODS[name]
    if variant not in ("sound", "paper"):
        raise RequestError(f"variant must be sound or paper, got {variant!r}")
    if variant not in row.variants:
        raise RequestError(f"{name} has no {variant} variant; choose --variant {' or '.join(row.variants)}")
    return row
