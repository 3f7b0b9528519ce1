"""The truth table: what every method, synthesizer and variant claims, what is proven, what is observed.

    for every row: train it small, prove what was executed, attack what it promises        (`row_of`)
    level of each attack = 1e-3 / (attacks of the whole table)

Guarantee: if all sound variants keep their promises, *any* of them is called refuted with probability at most
1e-3, over the noise and the attacks' coins (a union bound; the law of each audit is in its own module). The
level does not depend on which rows are asked for, so that rows of different calls stand beside each other.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import torch

from hauberk.accounting.json_form import from_json
from hauberk.audit.truth_table_methods import method_finding
from hauberk.audit.truth_table_rows import (
    ATTACKS_PER_ROW,
    DELTA,
    EPSILON,
    TOTAL_LEVEL,
    Finding,
    Inquiry,
    Size,
    Subject,
    TruthRow,
)
from hauberk.audit.truth_table_synthesizers import synthesizer_finding
from hauberk.errors import RequestError
from hauberk.files import read_json, write_json
from hauberk.methods.catalogue import METHODS
from hauberk.progress import Progress, silent
from hauberk.synthesis.catalogue import SYNTHESIZERS
from hauberk.version import __version__


@dataclass(frozen=True, kw_only=True)
class TruthTable:
    size: Size
    seed: int
    level: float
    epsilon: float
    delta: float
    findings: tuple[Finding, ...]

    @property
    def rows(self) -> tuple[TruthRow, ...]:
        return tuple(finding.row for finding in self.findings)

    @property
    def refuted_sound(self) -> tuple[TruthRow, ...]:
        """Promises of ours that did not hold: there must be none."""
        return tuple(row for row in self.rows if row.refuted and row.variant == "sound")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def subjects() -> tuple[Subject, ...]:
    """All rows there are, from the catalogues."""
    methods = [
        Subject(method=name, variant=variant, kind="method")
        for name, row in METHODS.items()
        for variant in row.variants
    ]
    synthesizers = [
        Subject(method=name, variant=variant, kind="synthesizer")
        for name, row in SYNTHESIZERS.items()
        for variant in (("sound",) if row.paper is None else ("sound", "paper"))
    ]
    return (*methods, *synthesizers)


def chosen_subjects(only: Sequence[str]) -> tuple[Subject, ...]:
    """Those named, by method or by method:variant; all of them if none is named."""
    every = subjects()
    for word in only:
        if not any(word in (each.method, each.name) for each in every):
            names = ", ".join(dict.fromkeys(each.method for each in every))
            raise RequestError(
                f"the truth table has no row {word!r}; name some of {names}, or one as adlm:paper"
            )
    return tuple(each for each in every if not only or each.method in only or each.name in only)


def level_of_an_attack() -> float:
    return TOTAL_LEVEL / (ATTACKS_PER_ROW * len(subjects()))


ROWS = "rows"  # the stage that counts them
PARTS = "parts"
RowMaker = Callable[[Subject, Inquiry, Progress], Finding]


def row_of(subject: Subject, inquiry: Inquiry, progress: Progress = silent) -> Finding:
    """Train the subject, prove, attack: one row."""
    make = method_finding if subject.kind == "method" else synthesizer_finding
    started = time.monotonic()
    finding = make(subject, inquiry, progress)
    return replace(finding, seconds=round(time.monotonic() - started, 1))


def truth_table(
    *,
    size: Size = "full",
    only: Sequence[str] = (),
    seed: int = 0,
    folder: Path | None = None,
    progress: Progress = silent,
    done: Callable[[Finding], None] | None = None,
    make: RowMaker = row_of,
) -> TruthTable:
    """All rows, or those of ``only``. With a ``folder`` finished rows are kept there, and an interrupted call
    goes on with them; they are removed when the table is complete. ``done`` hears of every row."""
    if size not in get_args(Size):
        raise RequestError(f"size must be one of {', '.join(get_args(Size))}, got {size!r}")
    inquiry = Inquiry(size=size, level=level_of_an_attack(), seed=seed)
    chosen = chosen_subjects(only)
    findings = []
    for place, subject in enumerate(chosen):
        progress(subject.name, 0, 1)
        finding = _remembered(folder, subject, inquiry, partial(make, subject, inquiry, progress))
        findings.append(finding)
        progress(ROWS, place + 1, len(chosen))
        if done is not None:
            done(finding)
    table = TruthTable(
        size=size,
        seed=seed,
        level=inquiry.level,
        epsilon=EPSILON,
        delta=DELTA,
        findings=tuple(findings),
    )
    if folder is not None:
        write_json(folder / "truth-table.json", table.to_json())
        for subject in chosen:  # rows that another call has finished are not this one's to remove
            _part(folder, subject, inquiry).unlink(missing_ok=True)
        with suppress(OSError):  # there are others, or there never was one
            (folder / PARTS).rmdir()
    return table


def _part(folder: Path, subject: Subject, inquiry: Inquiry) -> Path:
    """Where a finished row is kept, under a name made of everything that it depends on."""
    about = {
        **asdict(subject),
        **asdict(inquiry),
        "promise": [EPSILON, DELTA],
        "versions": [__version__, str(torch.__version__)],
    }
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]
    return folder / PARTS / f"{subject.method}-{subject.variant}-{digest}.json"


def _remembered(
    folder: Path | None, subject: Subject, inquiry: Inquiry, compute: Callable[[], Finding]
) -> Finding:
    """What an interrupted call had finished of exactly this row, else ``compute()``."""
    if folder is None:
        return compute()
    path = _part(folder, subject, inquiry)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(f"cannot make the folder {path.parent}: {error.strerror or error}") from error
    if path.exists():
        return from_json(Finding, read_json(path), where=str(path))
    finding = compute()
    write_json(path, asdict(finding))
    return finding
